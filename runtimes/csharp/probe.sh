# Says where Mono really is; $1 is the mcs that was found, a script that starts mono with the compiler.
set -eu
mcs=$(sed -n 's/^exec .* \(\/[^ ]*mcs\.exe\).*/\1/p' "$1")
[ -r "$mcs" ] || { echo "$1 does not say where mcs.exe is" >&2; exit 1; }
mono=$(command -v mono) || { echo "there is no mono" >&2; exit 1; }
mono=$(readlink -f -- "$mono")
told=$("$mono" --version | head -n 1)
version=$(printf %s "$told" | sed 's/.*version \([0-9.]*\).*/\1/')

quoted() { printf '"%s"' "$(printf %s "$1" | sed 's/[\\"]/\\&/g')"; }

binds=
[ -d /etc/mono ] && binds=$(quoted /etc/mono)
case $mono in
/usr/*) ;;
*) binds="$binds${binds:+, }$(quoted "$(dirname "$(dirname "$mono")")")" ;;
esac
printf '{"version": %s, "executable": %s, "binds": [%s], "run_binds": [%s], "programs": {"mcs": %s}, "watch": [%s]}\n' \
    "$(quoted "$version")" "$(quoted "$mono")" "$binds" "$binds" "$(quoted "$mcs")" "$(quoted "$mcs")"
