# Unpacks archives inside the sandbox: `sh -c SCRIPT unpack ./ARCHIVE...`, relative to the workspace. Each goes into
# its own folder and is removed. Standard output names the archive at work, standard error what went wrong.
#
# GNU tar and unzip leave `..` and the leading `/` out of names, or refuse them, and make links that lead elsewhere
# last, so that nothing is written through a link of the archive.

unpack_zip() {
    if command -v unzip > /dev/null; then
        # Status 1: it warned, for example of a name with `..`.
        unzip -q -o -d "$2" "$1" || [ $? -eq 1 ]
    elif command -v python3 > /dev/null; then
        python3 -I -c 'import sys, zipfile
try:
    zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])
except Exception as error:
    sys.exit(str(error))' "$1" "$2"
    elif command -v bsdtar > /dev/null; then
        bsdtar -xf "$1" -C "$2"
    else
        echo 'there is no program for .zip on this machine: its operator can install unzip' >&2
        return 1
    fi
}

for archive; do
    printf '%s\n' "$archive"
    folder=${archive%/*}
    case $archive in
    *.[zZ][iI][pP]) unpack_zip "$archive" "$folder" ;;
    *) tar -xf "$archive" -C "$folder" ;;
    esac < /dev/null || exit 1
    rm -f -- "$archive" || exit 1
done
