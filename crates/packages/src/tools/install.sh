# Resolves Go modules and fetches them, behind the wall. $1 the go command; the others are paths with version queries.
set -eu
go=$1
shift
cd /workspace/program
# Without arguments for `go get` below. The versions that a sandbox has already are required before, so they are kept.
"$go" mod init program 2> /dev/null
for line in $(cat /workspace/present); do "$go" mod edit -require="$line"; done
"$go" get -- "$@"
# A caller may name a module and import any package in it. What those need is fetched, too, except for commands and for
# packages that only the module itself can import. What is missing for some of them is told when a program imports them.
count=$#
for one; do set -- "$@" "${one%%@*}/..."; done
shift "$count"
# The names of a module's folders are no words and no options: each ends with a zero byte, and none has a line feed.
named='{{if ne .Name "main"}}{{.ImportPath}}{{"\x00"}}{{end}}'
"$go" list -e -find -f "$named" -- "$@" 2> /dev/null | tr -d '\n' | grep -zv /internal/ > /workspace/importable || true
xargs -0 -r "$go" list -e -deps -- < /workspace/importable > /dev/null 2>&1 || true
touch go.sum
cp go.mod go.sum ../product/
# Nothing of this is needed to compile: archives, locks, and what was learnt of the checksum database.
cd ../product/mod/cache
find . -type f \( -name '*.zip' -o -name '*.lock' -o -name lock \) -exec rm -f {} +
rm -rf download/sumdb vcs
