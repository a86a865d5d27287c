# Compiles the workspace: $1 the go command, $2 where the product goes. All files of package main are at the top.
set -eu
if [ -f /palisade/vars.go ]; then cp /palisade/vars.go palisade_vars.go; fi
# Any other package compiles to a library, which cannot be executed.
awk '
    FNR == 1 { is_found = 0 }
    !is_found && /^[ \t]*package[ \t]+[A-Za-z_]/ {
        is_found = 1
        name = $2
        sub(/[^A-Za-z0-9_].*/, "", name)
        if (name == "main") { is_program = 1; exit }
        if (FILENAME !~ /_test\.go$/ && place == "") {
            place = sprintf("./%s:%d:%d: package %s is not a program; use package main", FILENAME, FNR, index($0, name), name)
        }
    }
    END { if (!is_program && place != "") { print place; exit 1 } }
' *.go >&2
# Modules that the run names are in a layer: docs/PACKAGES.md. A program with its own go.mod chooses among them.
modules=/palisade/packages/go
if [ -f "$modules/go.mod" ]; then
    export GOMODCACHE="$modules/mod"
    if [ -f go.mod ]; then export GOPROXY="file://$modules/mod/cache/download"; fi
fi
if [ -f go.mod ]; then
    exec "$1" build -ldflags="-s -w" -o "$2/program" .
fi
# An import whose name does not occur again is an error that the compiler would report only after it has compiled every
# package of the library that the program uses. Only plain imports at the head of a file are examined.
if ! awk '
    function look(path, column, at, name) {
        at = split(path, parts, "/")
        name = parts[at]
        if (path ~ /\./ || name !~ /^[a-z][a-z0-9]*$/ || name ~ /^v[0-9]+$/) return
        order[++looked] = FILENAME SUBSEP name
        places[order[looked]] = sprintf("./%s:%d:%d: \"%s\" imported and not used", FILENAME, FNR, column, path)
    }
    FNR == 1 { is_head = 1; is_list = 0 }
    is_head && /^[ \t]*(\/\/.*)?\r?$/ { next }
    is_head && /^package [a-z]+[ \t]*\r?$/ { next }
    is_head && /^import[ \t]*\([ \t]*\r?$/ { is_list = 1; next }
    is_head && is_list && /^[ \t]*\)[ \t]*\r?$/ { is_list = 0; next }
    is_head && ((is_list && /^[ \t]*"[^"]*"[ \t]*\r?$/) || (!is_list && /^import[ \t]+"[^"]*"[ \t]*\r?$/)) {
        split($0, pieces, "\"")
        look(pieces[2], length(pieces[1]) + 1)
        next
    }
    {
        is_head = 0
        count = split($0, words, /[^A-Za-z0-9_]+/)
        for (i = 1; i <= count; i++) delete places[FILENAME SUBSEP words[i]]
    }
    END {
        for (i = 1; i <= looked; i++) if (order[i] in places) { print places[order[i]]; found = 1 }
        exit found
    }
' *.go >&2; then exit 1; fi
if [ -f "$modules/go.mod" ]; then
    cat "$modules/go.mod" > go.mod
    cat "$modules/go.sum" > go.sum
fi
set -- "$1" "$2" *.go
go=$1 build=$2
shift 2
exec "$go" build -ldflags="-s -w" -o "$build/program" "$@"
