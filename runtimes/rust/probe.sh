# Says where the compiler really is, behind rustup's shim; $1 is the command that was found.
set -eu
root=$("$1" --print sysroot)
rustc=$root/bin/rustc
[ -x "$rustc" ] || rustc=$(readlink -f -- "$1")
if ! [ -r "$rustc" ]; then echo "$rustc cannot be read by this user; install Rust for all users" >&2; exit 1; fi
version=$("$rustc" --version | cut -d ' ' -f 2)
minor=$(printf %s "$version" | cut -d . -f 2)
if [ "${version%%.*}" = 1 ] && [ "$minor" -lt 85 ]; then echo "Rust $version is too old: 1.85 or newer is needed" >&2; exit 1; fi
if ! command -v cc > /dev/null; then echo "there is no linker: install gcc" >&2; exit 1; fi

quoted() { printf '"%s"' "$(printf %s "$1" | sed 's/[\\"]/\\&/g')"; }

# Only the compiler and its libraries: a toolchain of rustup lies in somebody's home.
binds=
case $root in
/usr|/usr/*) ;;
*) binds="$(quoted "$rustc"), $(quoted "$root/lib")" ;;
esac
# For programs of all languages: cargo and the rest, from the toolchain itself, since rustup's shims need the home. The
# folder of a toolchain of rustup is shown whole, that of any other kind is not: it may be somebody's ~/.local.
commands= tools=$binds
for name in cargo rustc rustdoc rustfmt; do
    path=${rustc%/*}/$name
    [ -x "$path" ] || continue
    commands="$commands${commands:+, }\"$name\": $(quoted "$path")"
    case $binds in '') ;; *) [ "$path" = "$rustc" ] || tools="$tools, $(quoted "$path")" ;; esac
done
case $(readlink -f -- "$root") in
*/.rustup/toolchains/*|*/rustup/toolchains/*) tools=$(quoted "$root") ;;
esac
printf '{"tools": {"commands": {%s}, "binds": [%s]}, ' "$commands" "$tools"
printf '"version": %s, "executable": %s, "binds": [%s], "watch": [%s, %s]}\n' \
    "$(quoted "$version")" "$(quoted "$rustc")" "$binds" "$(quoted "$root/lib")" "$(quoted "$(readlink -f "$(command -v cc)")")"
