# Runs programs in this shell on behalf of the guest (protocol: docs/DRIVERS.md): `driver.sh [keep]`.
#
# Mode last: binds the variables, closes the channel and sources the program as the very last act, so that
# its exit status is the shell's; no done is sent. Mode keep: every program runs at the top level of this
# shell, never in a function, because declare would make locals there. The argument keep prepares the shell for
# that mode: only with it do errors name the lines of the program.
#
# Holds: no data is ever evaluated; no process is started on the way to a program, except to remove the file of its
# standard input; while a program runs the
# channel is open only in a copy that is closed on exec. Names that start with __palisade are the driver's.
# `builtin` stands before the words a program may have redefined (not before exec: its redirections would be
# undone).

# The loop of a kept shell, which runs it by -c. There the shell has no script, so messages begin with $0, and a
# program that is evaluated on line 1 counts its lines from 1. The loop must therefore remain one line.
__palisade_loop='builtin . "$0" "$1"; while __palisade_next; do builtin set -- "${__palisade_args[@]}"; \
__palisade_arm; builtin eval "$__palisade_code" 99<&-; \
{ __palisade_last=$? __palisade_flags=${-//[!euxvf]/}; builtin set +euxvf; builtin trap : INT; } 2>/dev/null; \
__palisade_answer; done; __palisade_end'
__palisade_loop=${__palisade_loop//\\$'\n'/}

if [[ $1 == keep ]]; then
  exec "$BASH" --norc --noprofile -c "$__palisade_loop" "${BASH_SOURCE[0]}" --looped
fi
__palisade_driver=${BASH_SOURCE[0]}

# Next message into the array __palisade_message; false at the end of the channel. Bash reads a socket
# byte by byte, so hosts leave the code field empty where the file holds it.
__palisade_receive() {
  builtin local count field IFS=''
  __palisade_message=()
  builtin read -r -d '' count <&99 || builtin return 1
  [[ $count == +([0-9]) ]] || builtin return 1
  while ((count-- > 0)); do
    builtin read -r -d '' field <&99 || builtin return 1
    __palisade_message+=("$field")
  done
}

__palisade_send() {
  builtin local field
  {
    builtin printf '%d\0' "$#"
    for field; do builtin printf '%s\0' "${field:0:16384}"; done
  } >&99 2>/dev/null
}

# Variables from the fields of __palisade_message at index 7 on; sets __palisade_args to what follows them.
__palisade_bind() {
  builtin local IFS=$' \t\n' __palisade_at=7 __palisade_end=$((7 + __palisade_message[6]))
  builtin local __palisade_name __palisade_kind __palisade_n __palisade_i
  while ((__palisade_at < __palisade_end)); do
    __palisade_name=${__palisade_message[__palisade_at]}
    __palisade_kind=${__palisade_message[__palisade_at + 1]}
    __palisade_n=${__palisade_message[__palisade_at + 2]}
    ((__palisade_at += 3))
    # What the shell would evaluate in a name never reaches declare.
    if [[ $__palisade_name == [a-zA-Z_]*([a-zA-Z_0-9]) ]]; then
      case $__palisade_kind in
        a | m) builtin unset -v "$__palisade_name" ;;&
        s | j) builtin printf -v "$__palisade_name" %s "${__palisade_message[__palisade_at]}" ;;
        u) builtin printf -v "$__palisade_name" '' ;;
        a)
          builtin declare -ga "$__palisade_name=()"
          for ((__palisade_i = 0; __palisade_i < __palisade_n; __palisade_i++)); do
            builtin printf -v "$__palisade_name[$__palisade_i]" %s "${__palisade_message[__palisade_at + __palisade_i]}"
          done
          ;;
        m) __palisade_bind_map ;;
      esac
    fi
    ((__palisade_at += __palisade_n))
  done
  __palisade_args=("${__palisade_message[@]:__palisade_end}")
}

# A key is data: as a subscript in text it would be expanded, through a reference it is not.
__palisade_bind_map() {
  builtin declare -gA "$__palisade_name=()"
  builtin local -n __palisade_map=$__palisade_name
  builtin local __palisade_key
  for ((__palisade_i = 0; __palisade_i < __palisade_n; __palisade_i += 2)); do
    __palisade_key=${__palisade_message[__palisade_at + __palisade_i]}
    __palisade_map[$__palisade_key]=${__palisade_message[__palisade_at + __palisade_i + 1]}
  done
}

# Exports the pairs of the message `given`, which precedes the run that they are for. What the names stood for before is
# kept in __palisade_given. A name is unset first: an integer or a reference would evaluate the value.
__palisade_give() {
  builtin local IFS=$' \t\n' __palisade_at __palisade_name
  for ((__palisade_at = 1; __palisade_at < ${#__palisade_message[@]}; __palisade_at += 2)); do
    __palisade_name=${__palisade_message[__palisade_at]}
    [[ $__palisade_name == [a-zA-Z_]*([a-zA-Z_0-9]) ]] || builtin continue
    __palisade_given[$__palisade_name]=
    # A process is started only where there is something to remember.
    if builtin declare -p "$__palisade_name" &>/dev/null; then
      __palisade_given[$__palisade_name]=$(builtin declare -p "$__palisade_name")
    fi
    __palisade_unset "$__palisade_name" &&
      builtin export "$__palisade_name=${__palisade_message[__palisade_at + 1]}"
  done
  __palisade_message=()
}

# Unsets a variable in every scope; false if it is read-only.
__palisade_unset() {
  builtin local __palisade_i
  for ((__palisade_i = 0; __palisade_i < 64; __palisade_i++)); do
    builtin declare -p "$1" &>/dev/null || builtin return 0
    builtin unset -n "$1" || builtin return 1
    builtin unset -v "$1" || builtin return 1
  done
  builtin return 1
}

# After a kept run: every given name is what it was before, whatever the program did with it. A shell whose program made
# one of them read-only cannot forget it, so it ends.
__palisade_take_back() {
  builtin local __palisade_name __palisade_was __palisade_kind
  for __palisade_name in "${!__palisade_given[@]}"; do
    if ! __palisade_unset "$__palisade_name"; then
      builtin trap - EXIT
      builtin exit "$1"
    fi
    # The shell's own words about its variable. `builtin` takes those of an array as one word only.
    __palisade_was=${__palisade_given[$__palisade_name]#declare }
    __palisade_kind=${__palisade_was%% *}
    case $__palisade_kind in
      '') ;;
      *[aA]*) builtin declare -g "$__palisade_kind" "${__palisade_was#* }" ;;
      *) builtin eval "builtin declare -g $__palisade_was" ;;
    esac
  done 2>/dev/null
  __palisade_given=()
}

# The end of a run: input away, then the answer. Arguments: status, exit code.
__palisade_finish() {
  ((${#__palisade_given[@]} == 0)) || __palisade_take_back "$2"
  __palisade_last=$2 __palisade_running='' __palisade_interrupted=''
  [[ -z ${__palisade_message[5]} ]] || exec </dev/null
  __palisade_send done "${__palisade_message[1]}" "$1" "$2" '' '' '' '' '' ''
}

# The program ended the shell (exit, set -e, an unset parameter, an interrupt) or the driver's loop (break):
# say so, then put a new shell with the same state in its place. Runs as the EXIT trap, in which a second
# exit would be the last one; therefore a new shell and not simply the next message.
__palisade_leave() {
  builtin local __palisade_status=exit __palisade_state
  [[ $BASHPID == "$$" && -n $__palisade_running ]] || builtin return 0
  if [[ -n $__palisade_interrupted ]]; then
    __palisade_status=interrupted
  elif [[ $__palisade_flags == *e* && $1 != 0 ]]; then
    __palisade_status=error
  fi
  # An exit leaves the channel where bash saved it, closed on exec; other ends put it back first. Bash copies
  # that flag with the descriptor except to 0, 1 and 2, hence the way through 2.
  { : >&99; } 2>/dev/null || builtin eval "exec 97>&2 2>&$__palisade_saved 99>&2 2>&97 97>&-"
  __palisade_finish "$__palisade_status" "$1"
  builtin set +o posix
  __palisade_state=$(
    builtin unset -f "${__palisade_functions[@]}"
    builtin unset -v __palisade_message __palisade_args __palisade_code
    builtin declare -p
    builtin declare -f
    builtin shopt -p
    builtin set +o
    builtin alias -p
  )
  exec 98<<<"$__palisade_state"
  exec "$BASH" --norc --noprofile -c "$__palisade_loop" "$__palisade_driver" --resume
}

# A signal that ends a shell would run the EXIT trap first, in which it cannot be told from `exit`. So each of them has a
# trap, which sends it again when nothing is in its way.
__palisade_die() {
  builtin trap - EXIT "$1"
  builtin kill -s "$1" "$$"
}

# Waits for the next program and prepares everything for it but its positional parameters. False in mode last and
# when there are no more programs.
__palisade_next() {
  while __palisade_receive && [[ ${__palisade_message[0]} == @(run|given) ]]; do
    if [[ ${__palisade_message[0]} == given ]]; then
      __palisade_give
      builtin continue
    fi
    __palisade_bind
    if [[ -n ${__palisade_message[5]} ]]; then
      exec <"${__palisade_message[5]}"
    fi
    __palisade_mode=${__palisade_message[2]}
    if [[ $__palisade_mode == last ]]; then
      builtin return 1
    fi
    if [[ -n ${__palisade_message[5]} ]]; then
      # Not for the program's eyes. The one process on the way to a program: the shell itself cannot remove a file.
      builtin command -p rm -f -- "${__palisade_message[5]}" 99<&- &>/dev/null
    fi
    if [[ -z $__palisade_signal ]]; then
      for __palisade_signal in "${__palisade_signals[@]}"; do
        builtin trap "__palisade_die $__palisade_signal" "$__palisade_signal"
      done
    fi
    BASH_ARGV0=${__palisade_message[3]}
    # Options come back on the program's first line, so that set -x does not show the driver at work.
    __palisade_code=${__palisade_flags:+builtin set -$__palisade_flags; }
    if [[ -n ${__palisade_message[4]} ]]; then
      __palisade_code+=${__palisade_message[4]}
    else
      __palisade_code+='builtin . "$0"'
    fi
    builtin return 0
  done
  builtin return 1
}

# The last act before a kept program.
__palisade_arm() {
  # Where bash will save the next descriptor: __palisade_leave may have to find it.
  exec {__palisade_saved}<&99
  builtin eval "exec $__palisade_saved<&-"
  __palisade_running=1
  builtin trap '{ __palisade_last=$? __palisade_flags=${-//[!euxvf]/}; builtin set +euxvf; } 2>/dev/null
    __palisade_leave "$__palisade_last"' EXIT
  builtin trap '__palisade_interrupted=1; builtin exit 130' INT
}

# The first act after a kept program that did not end the shell.
__palisade_answer() {
  if ((__palisade_last == 0)); then
    __palisade_finish ok 0
  else
    __palisade_finish error "$__palisade_last"
  fi
}

# After the loop of a kept shell.
__palisade_end() {
  if [[ -n $__palisade_running ]]; then
    # A break of the program reached the loop.
    { __palisade_flags=${-//[!euxvf]/}; builtin set +euxvf; } 2>/dev/null
    __palisade_leave 0
  fi
  builtin exit "$__palisade_last"
}

__palisade_functions=(__palisade_receive __palisade_send __palisade_bind __palisade_bind_map __palisade_give
  __palisade_unset __palisade_take_back __palisade_finish __palisade_leave __palisade_next __palisade_arm
  __palisade_answer __palisade_end __palisade_die)
# The signals that Bash handles so (`terminating_signals` in its sig.c), but for INT.
__palisade_signals=(HUP ILL TRAP ABRT FPE BUS SEGV SYS PIPE ALRM TERM XCPU XFSZ VTALRM USR1 USR2)
__palisade_flags='' __palisade_last=0 __palisade_running='' __palisade_interrupted='' __palisade_mode='' __palisade_signal=''
builtin declare -A '__palisade_given=()'
builtin trap : INT
if [[ $1 == --resume ]]; then
  IFS='' builtin read -r -d '' -u 98 __palisade_state
  exec 98<&-
  # The shell's own words about itself; only its read-only variables complain.
  builtin eval "$__palisade_state" 2>/dev/null
  builtin unset -v __palisade_state
  __palisade_signal=''
else
  exec 99<&3 3<&-
  builtin printf '1\0ready\0' >&99
fi
if [[ $1 == --* ]]; then
  builtin unset -v BASH_EXECUTION_STRING
  builtin return 0
fi

# Without keep the shell is a script's until its first order. An order in mode keep is answered as well, but with
# lines of this file in its messages.
while __palisade_next; do
  builtin set -- "${__palisade_args[@]}"
  __palisade_arm
  builtin eval "$__palisade_code" 99<&-
  { __palisade_last=$? __palisade_flags=${-//[!euxvf]/}; builtin set +euxvf; builtin trap : INT; } 2>/dev/null
  __palisade_answer
done
if [[ $__palisade_mode != last ]]; then
  __palisade_end
fi

# Mode last: from here on the shell is the program's.
exec 99<&-
builtin trap - INT
if [[ -n $__palisade_signal ]]; then builtin trap - "${__palisade_signals[@]}"; fi
__palisade_source=${__palisade_message[3]}
BASH_ARGV0=$__palisade_source
builtin set -- "${__palisade_args[@]}"
builtin unset -f "${__palisade_functions[@]}"
builtin unset -v __palisade_functions __palisade_message __palisade_args __palisade_last __palisade_running \
  __palisade_interrupted __palisade_mode __palisade_given __palisade_driver __palisade_flags __palisade_saved __palisade_code \
  __palisade_loop __palisade_signal __palisade_signals
# Before 5.0 the shell cannot rename itself: $0 stays the driver's and one name of ours remains.
if ((BASH_VERSINFO[0] < 5)); then
  builtin . "$__palisade_source"
else
  builtin unset -v __palisade_source
  builtin . "$0"
fi
