# Compiles the workspace: $1 the go command, $2 where the product goes. All files of package main are at the top.
set -eu
if [ -f /palisade/vars.go ]; then cp /palisade/vars.go palisade_vars.go; fi
if [ -f go.mod ]; then
    exec "$1" build -ldflags="-s -w" -o "$2/program" .
fi
set -- "$1" "$2" *.go
go=$1 build=$2
shift 2
exec "$go" build -ldflags="-s -w" -o "$build/program" "$@"
