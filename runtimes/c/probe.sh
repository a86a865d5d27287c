# Says where the compiler really is and what it is made of; $1 is the command that was found.
set -eu
compiler=$(readlink -f -- "$1")
case $(head -c 2 -- "$compiler" | tr -d '\0') in '#!') echo "$1 is a script, not a compiler" >&2; exit 1 ;; esac
version=$("$compiler" -dumpfullversion 2>/dev/null || "$compiler" -dumpversion)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
printf '#include <stdio.h>\nint main(void) { return 0; }\n' > "$folder/a.c"
"$compiler" -o "$folder/a" "$folder/a.c" >&2

quoted() { printf '"%s"' "$(printf %s "$1" | sed 's/[\\"]/\\&/g')"; }

# A compiler outside /usr brings a folder of its own.
binds=
case $compiler in
/usr/*) ;;
*) binds=$(quoted "$(dirname "$(dirname "$compiler")")") ;;
esac
watch=
for part in cc1 collect2 as ld; do
    path=$("$compiler" -print-prog-name="$part")
    case $path in /*) ;; *) path=$(command -v "$path" || true) ;; esac
    [ -e "$path" ] && watch="$watch${watch:+, }$(quoted "$(readlink -f "$path")")"
done
for header in /usr/include/stdio.h /usr/include/features.h; do
    [ -e "$header" ] && watch="$watch${watch:+, }$(quoted "$header")"
done
printf '{"version": %s, "executable": %s, "binds": [%s], "watch": [%s]}\n' \
    "$(quoted "$version")" "$(quoted "$compiler")" "$binds" "$watch"
