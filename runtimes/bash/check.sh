# Looks at a program without running it: `check.sh SOURCE` (docs/DRIVERS.md, "The check").
# Bash reads the program with -n; what it complains of is told on standard output in counted fields.

source=$1
errors=$("$BASH" --norc --noprofile -n "$source" 2>&1 >/dev/null)
status=$?

say() {
  printf '%d\0' "$#"
  printf '%s\0' "$@"
}

# `/path/main.sh: line 3: syntax error ...`; the line that repeats the source begins with a backquote.
last=
while IFS= read -r line; do
  text=${line#"$source: "}
  if [[ $text =~ ^line\ ([0-9]+):\ (.*)$ ]]; then
    number=${BASH_REMATCH[1]} message=${BASH_REMATCH[2]}
    if [[ $message == '`'* && -n $last ]]; then
      continue
    fi
    if ((status == 0)); then
      say note "line $number: $message"
    else
      say error "$number" '' "$message"
    fi
    last=$message
  elif [[ -n $text ]]; then
    say note "$text"
  fi
done <<<"$errors"
if ((status != 0)) && [[ -z $last ]]; then
  say error '' '' 'bash cannot read the program'
fi
exit 0
