# Looks at main.go without running it: its syntax first, which is quick, then its types. $1 is the go command.
set -eu
gofmt=$(dirname "$1")/gofmt
if [ -x "$gofmt" ]; then "$gofmt" -e -l main.go > /dev/null; fi
exec "$1" build -o /dev/null main.go
