# Describes this shell to the host, once, outside any sandbox (docs/DRIVERS.md, "The probe").
# Bash needs no directory of its own beyond the system's libraries, and no compiled driver.

if ((BASH_VERSINFO[0] < 4 || (BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] < 3))); then
  printf 'Bash 4.3 or newer is needed, this is %s\n' "$BASH_VERSION" >&2
  exit 1
fi

# A path may hold anything; JSON may not.
quote() {
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  if [[ $text == *[[:cntrl:]]* ]]; then
    printf 'the path of the shell has control characters\n' >&2
    exit 1
  fi
  printf '"%s"' "$text"
}

# The running file itself, whatever links or wrappers led to it.
executable=$BASH
if [[ -L /proc/$$/exe ]] && link=$(readlink "/proc/$$/exe"); then
  executable=$link
fi

binds=
case ${executable%/*} in
  /bin | /usr/bin | /usr/local/bin) ;;
  *) binds=$(quote "${executable%/*}") ;;
esac

printf '{"version":"%s.%s.%s","executable":%s,"binds":[%s],"env":{},"packages":{}}\n' \
  "${BASH_VERSINFO[0]}" "${BASH_VERSINFO[1]}" "${BASH_VERSINFO[2]}" "$(quote "$executable")" "$binds"
