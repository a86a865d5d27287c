#!/usr/bin/env bash
# The walls on another kernel and other control groups, in a QEMU guest: tests/guest/run.sh [OPTIONS of scripts/guest-vm]
#
# Builds the test programs, boots the guest and runs tests/guest/inside.sh there with $PALISADE_BIN and
# $PALISADE_BREACH_BIN. Ends with one line: N passed, M failed, K skipped. Where no guest can be had (no root, no QEMU, no
# kernel package), that is one failure and not a skip: who asks for this suite asks for the guest.
#
# PALISADE_GUEST_PART=walls runs only the walls with a container runtime. PALISADE_GUEST_PROFILE=dev takes test programs
# without optimisation, which are built sooner and run slower.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail

cd "$(dirname "$0")/../.."
top=$(pwd -P)
readonly top
readonly folder="$top/target/guest-tests"
readonly seconds=2400

lose() {
    echo "FAILED: $*"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}

: "${PALISADE_BIN:=$top/target/real/palisade}"
: "${PALISADE_BREACH_BIN:=$top/target/breach/palisade}"
for binary in "$PALISADE_BIN" "$PALISADE_BREACH_BIN"; do
    [ -x "$binary" ] || lose "$binary is not built: run scripts/test.sh --long"
done

build_options=(--release)
if [ "${PALISADE_GUEST_PROFILE:-release}" = dev ]; then build_options=(); fi

# The executable of one test, as cargo names it: "Executable main.rs (target/release/deps/escape-0123)".
test_binary() {
    local package=$1 test=$2 path
    path=$(cargo test "${build_options[@]}" --no-run -p "$package" --test "$test" 2>&1 | tee -a "$folder/build.log" |
        sed -n 's/^ *Executable .*(\(.*\))$/\1/p') || true
    [ -x "$path" ] || lose "the test $test of $package does not build (see $folder/build.log)"
    cp "$path" "$folder/$test"
}

mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9 # one at a time: they share the folder
: >"$folder/build.log"
rm -f "$folder"/{conformance,daemon_walls,escape,filter-ends,oci_walls,output}
test_binary backends conformance
test_binary backends oci_walls
test_binary backends daemon_walls
test_binary escape escape
gcc -O2 -Wall -o "$folder/filter-ends" tests/guest/filter-ends.c 2>>"$folder/build.log" ||
    lose "tests/guest/filter-ends.c does not compile (see $folder/build.log)"
cp "$PALISADE_BIN" "$folder/palisade"
cp "$PALISADE_BREACH_BIN" "$folder/palisade-breach"

status=0
bash scripts/guest-vm --seconds "$seconds" --console "$folder/console" "$@" -- \
    bash tests/guest/inside.sh "$folder" "${PALISADE_GUEST_PART:-all}" 2>&1 9>&- | tee "$folder/output" || status=$?
if tail -n 1 "$folder/output" | grep -Eq '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'; then exit "$status"; fi
# The guest was lost on the way, or was never there: what passed until then counts, and the loss is one failure.
echo "FAILED: the guest gave no result (exit status $status of scripts/guest-vm; console: $folder/console)"
echo "$(grep -c '^ok ' "$folder/output" || true) passed, $(($(grep -c '^FAILED ' "$folder/output" || true) + 1)) failed, 0 skipped"
exit 1
