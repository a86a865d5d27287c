#!/usr/bin/env bash
# From a fresh clone to a first run: ./scripts/start.sh
#
# Builds the product, lets it say what this machine can enforce, and runs one line of Python behind the wall.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail
cd "$(dirname "$0")/.."

# refuse WHAT REMEDY
refuse() {
    echo "start: $1" >&2
    echo "start: $2, then run this again" >&2
    exit 1
}

check_cargo() {
    if ! command -v cargo >/dev/null 2>&1 && [ -x "${HOME:-/nonexistent}/.cargo/bin/cargo" ]; then
        PATH="$HOME/.cargo/bin:$PATH"
        export PATH
    fi
    command -v cargo >/dev/null 2>&1 ||
        refuse "cargo is not installed" "install the Rust toolchain with rustup (version in Cargo.toml, rust-version)"
}

# Rust links with `cc`, which also needs the C library's start files: try the real thing.
check_c_compiler() {
    local scratch works=yes
    command -v cc >/dev/null 2>&1 ||
        refuse "no C compiler (cc)" "install one, on Debian: apt-get install gcc libc6-dev"
    scratch=$(mktemp -d)
    echo 'int main(void) { return 0; }' >"$scratch/probe.c"
    cc -o "$scratch/probe" "$scratch/probe.c" >/dev/null 2>&1 || works=no
    rm -rf "$scratch"
    [ "$works" = yes ] ||
        refuse "cc cannot link a program" "install the C library's files, on Debian: apt-get install libc6-dev"
}

release_binary() {
    local folder
    folder=$(cargo metadata --format-version 1 --no-deps 2>/dev/null |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p') || true
    echo "${folder:-$(pwd -P)/target}/release/palisade"
}

check_cargo
check_c_compiler
cargo build --release -p palisade
binary=$(release_binary)

echo
"$binary" doctor || echo "start: doctor found something missing; what it says above repairs it" >&2
echo
echo "\$ palisade run python -c 'print(6*7)'"
"$binary" run python -c 'print(6*7)'
echo
echo "palisade is built: $binary"
