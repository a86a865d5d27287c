#!/bin/sh
# Writes the root of an image to standard output, as a tar archive: the files of installed Debian packages and of what
# they depend on. No registry, no daemon and no root is needed.
#
#   deploy/images/from-packages.sh python3 bash coreutils | docker import - palisade-python
#
# Only what is installed on this machine is taken, at its installed version. See deploy/images/README.md.
set -eu
export LC_ALL=C

[ $# -gt 0 ] || { echo "usage: $0 PACKAGE..." >&2; exit 2; }
for package in "$@"; do
    dpkg-query -W -f '${db:Status-Abbrev}\n' "$package" 2>/dev/null | grep -q '^ii' ||
        { echo "the package $package is not installed: apt-get install $package" >&2; exit 1; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The packages and, again and again, what they depend on.
printf '%s\n' "$@" | sort -u >"$work/packages"
while :; do
    xargs dpkg-query -W -f '${Depends}, ${Pre-Depends}\n' <"$work/packages" 2>/dev/null |
        tr ',|' '\n\n' | sed 's/([^)]*)//; s/:[a-z0-9]*//; s/[[:space:]]//g; /^$/d' | sort -u >"$work/wanted"
    # A name that is not installed is an alternative of one that is.
    xargs dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' <"$work/wanted" 2>/dev/null |
        sed -n 's/^ii *//p' | sort -u - "$work/packages" >"$work/more" || true
    cmp -s "$work/packages" "$work/more" && break
    mv "$work/more" "$work/packages"
done

# Their files, without documentation. Alternatives are links that no package lists.
xargs dpkg-query -L <"$work/packages" 2>/dev/null |
    grep -v -e '^/usr/share/doc/' -e '^/usr/share/man/' -e '^/usr/share/locale/' -e '^/usr/share/info/' |
    sort -u >"$work/listed"
{ cat "$work/listed"; find /etc/alternatives; printf '/etc\n/usr\n/etc/ld.so.cache\n'; } | while read -r path; do
    case $path in
    # On a system with merged /usr these are links, and the files are below /usr.
    /bin | /sbin | /lib | /lib32 | /lib64 | /libx32) continue ;;
    /bin/* | /sbin/* | /lib/* | /lib32/* | /lib64/* | /libx32/*)
        top=${path#/}
        [ ! -L "/${top%%/*}" ] || path=/usr$path ;;
    esac
    if [ -L "$path" ] || [ -f "$path" ] || [ -d "$path" ]; then echo "${path#/}"; fi
done | sed '/^$/d; /^\.$/d' | sort -u >"$work/beneath"
for link in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$link" ] || [ -d "/$link" ]; then echo "$link"; fi
done | cat - "$work/beneath" >"$work/files"
echo "$(wc -l <"$work/packages") packages, $(wc -l <"$work/files") files" >&2
tar --create --directory / --numeric-owner --owner=0 --group=0 --no-recursion --hard-dereference --files-from "$work/files"
