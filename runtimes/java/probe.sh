# Says where the JDK really is, and compiles the tool that compiles programs. $1 is the javac that was found, $2 this folder,
# $3 where the compiled tool goes.
set -eu
home=$(dirname "$(dirname "$(readlink -f -- "$1")")")
[ -x "$home/bin/java" ] || { echo "$home has no java beside its javac" >&2; exit 1; }
# Starting a virtual machine only for its version would take longer.
version=$(sed -n 's/^JAVA_VERSION="\(.*\)"/\1/p' "$home/release" 2>/dev/null || true)
if [ -z "$version" ]; then version=$("$home/bin/javac" -version 2>&1 | sed 's/javac //'); fi
if [ "${version%%.*}" -lt 17 ]; then echo "Java $version is too old: 17 or newer is needed" >&2; exit 1; fi
mkdir "$2/tool"
"$home/bin/javac" -proc:none -d "$2/tool" "$2/Compile.java" >&2
# A jar is a zip archive; the tool for it is part of the JDK.
"$home/bin/jar" --create --no-compress --file "$2/tool.jar" -C "$2/tool" .
chmod 644 "$2/tool.jar"
mv "$2/tool.jar" "$3"

quoted() { printf '"%s"' "$(printf %s "$1" | sed 's/[\\"]/\\&/g')"; }

# Debian keeps the JDK's settings in /etc; a JDK outside /usr brings a folder of its own.
binds=
add() { binds="$binds${binds:+, }$(quoted "$1")"; }
case $home in /usr/*) ;; *) add "$home" ;; esac
settings=$(readlink -f -- "$home/conf/security/java.security" || true)
case $settings in /etc/*/security/java.security) add "$(dirname "$(dirname "$settings")")" ;; esac
printf '{"version": %s, "executable": %s, "binds": [%s], "run_binds": [%s], "watch": [%s]}\n' \
    "$(quoted "$version")" "$(quoted "$home/bin/java")" "$binds" "$binds" "$(quoted "$home/lib/modules")"
