#!/usr/bin/env bash
# Builds a current runsc (gVisor) through the Go module proxy and prints its path: tests/gvisor/build.sh
#
# go.mod names the version, of gVisor's branch `go`, and go.sum its contents. The executable is kept outside of the tree, by
# version. Where it cannot be had (no Go toolchain, no proxy), this says SKIPPED and why, and the exit status is 3.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail

cd "$(dirname "$0")"
readonly build_timeout_s=1800
readonly unavailable=3

skip() {
    echo "!!!! SKIPPED: no current runsc: $1" >&2
    exit "$unavailable"
}

version=$(sed -n 's/^require gvisor.dev\/gvisor //p' go.mod)
folder=${XDG_CACHE_HOME:-${HOME:-/var/cache}/.cache}/palisade-tests
readonly runsc=$folder/runsc-$version
if [ ! -x "$runsc" ]; then
    command -v go >/dev/null || skip "there is no Go toolchain here"
    mkdir -p "$folder"
    CGO_ENABLED=0 timeout "$build_timeout_s" go build -mod=readonly -buildvcs=false -o "$runsc.new" gvisor.dev/gvisor/runsc \
        >"$folder/runsc-build.log" 2>&1 || skip "it cannot be built (see $folder/runsc-build.log)"
    mv "$runsc.new" "$runsc"
fi
echo "$runsc"
