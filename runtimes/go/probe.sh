# Says where the Go toolchain really is; $1 is the command that was found.
set -eu
# Else every call counts itself in the home of the user (telemetry of Go), and makes that home if there is none.
export XDG_CONFIG_HOME=/dev/null
root=$("$1" env GOROOT)
go=$(readlink -f -- "$root/bin/go")
version=$("$go" env GOVERSION)
tools=$("$go" env GOTOOLDIR)

quoted() { printf '"%s"' "$(printf %s "$1" | sed 's/[\\"]/\\&/g')"; }

# A toolchain outside /usr brings a folder of its own.
binds=
case $root in
/usr/*) ;;
*) binds=$(quoted "$(readlink -f -- "$root")") ;;
esac
commands="\"go\": $(quoted "$go")"
if [ -x "${go%/*}/gofmt" ]; then commands="$commands, \"gofmt\": $(quoted "${go%/*}/gofmt")"; fi
printf '{"tools": {"commands": {%s}, "binds": [%s]}, ' "$commands" "$binds"
printf '"version": %s, "executable": %s, "binds": [%s], "watch": [%s, %s]}\n' \
    "$(quoted "${version#go}")" "$(quoted "$go")" "$binds" "$(quoted "$tools/compile")" "$(quoted "$tools/link")"
