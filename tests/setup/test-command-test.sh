#!/usr/bin/env bash
# Checks scripts/test.sh and scripts/clean-tests.sh on a copy of the scripts with a cargo that only pretends: a signal ends
# the step with everything it started and counts what had ended; --clean removes the tests' folders and nothing else.
# Its result line is libtest's. No user is created or removed: the name below belongs to nobody.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly look_max=200
passed=0
failed=0

copy=$(mktemp -d)
readonly copy
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy"/{bin,tests/setup,tests/functional/supply,tmp,bait}
cp -r scripts "$copy/"
# The copy has no dependencies to check.
printf '#!/bin/sh\nexit 0\n' >"$copy/scripts/check-licences.py"
cp tests/setup/packages.txt "$copy/tests/setup/"
echo 'echo "test result: ok. 3 passed; 0 failed; 0 ignored"' >"$copy/tests/setup/self-tests.sh"
# shellcheck disable=SC2016 # the inner shell expands it
echo 'exit "$(cat fetch-status 2>/dev/null || echo 0)"' >"$copy/tests/functional/supply/fetch.sh"
# Not killed by name: the files say which processes are meant.
cat >"$copy/bin/cargo" <<'STUB'
#!/usr/bin/env bash
case "$*" in
    metadata*) echo "{\"target_directory\":\"$PWD/target\"}" ;;
    "build --release -p palisade"*) mkdir -p target/release && echo "$*" >target/release/palisade ;;
    "nextest run"*)
        trap 'echo "     SIGTERM [   1.0s] (4/9) x d"; exit 100' TERM
        printf '        %s\n' "PASS [   0.01s] (1/9) x a" "PASS [   0.01s] (2/9) x b" "FAIL [   0.01s] (3/9) x c"
        timeout 600 bash -c 'echo "$$" >begun; exec sleep 600' &
        wait "$!"
        ;;
esac
STUB
chmod +x "$copy/bin/cargo"
export PALISADE_TEST_USER=palisade-nobody-of-this-name TMPDIR="$copy/tmp" PALISADE_TEST_BAIT_DIR="$copy/bait"

# verify WHAT CONDITION...
verify() {
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
        sed 's/^/    /' "$copy/out"
    fi
}

# until CONDITION...: looks again until it holds.
until_holds() {
    local look
    for ((look = 0; look < look_max; look++)); do
        if "$@"; then return 0; fi
        sleep 0.05
    done
    return 1
}

is_gone() { [ ! -e "/proc/$1" ]; }

# stop_it: starts the command, ends it by TERM once a step has begun its sleep; sets status and sleeper.
stop_it() {
    local command
    rm -f "$copy/begun"
    (cd "$copy" && PATH="$copy/bin:$PATH" exec bash scripts/test.sh --quick) >"$copy/out" 2>&1 &
    command=$!
    until_holds test -s "$copy/begun" || true
    sleeper=$(cat "$copy/begun" 2>/dev/null || echo none)
    kill -TERM "$command"
    status=0
    wait "$command" || status=$?
}

last_line() { [ "$(tail -n 1 "$copy/out")" = "$1" ]; }
says() { grep -qF -- "$1" "$copy/out"; }

# shellcheck disable=SC2016 # the inner shell expands it
echo 'timeout 600 bash -c '\''echo "$$" >begun; exec sleep 600'\' >"$copy/scripts/setup-tests.sh"
stop_it
verify "the exit status of a stop in the set-up" test "$status" -eq 143
verify "the set-up names its user" says "creates the host user $PALISADE_TEST_USER"
verify "a stop in the set-up has a result line" last_line "0 passed, 1 failed, 0 skipped"
verify "what the set-up started is ended" until_holds is_gone "$sleeper"

echo 'echo "setup: everything is there"' >"$copy/scripts/setup-tests.sh"
stop_it
verify "the exit status of a stop in a suite" test "$status" -eq 143
verify "a suite says that it begins" grep -Eq '^[0-9:]{8} tests +begins: ' "$copy/out"
verify "a stopped suite has its counts" grep -Eq '^tests +STOPPED 2 passed, 1 failed, 0 skipped until then' "$copy/out"
# 3 of the self-test, 5 checks, 2 of the suite; 1 of the suite, and the stop.
verify "the tests that had ended are in the sum" last_line "11 passed, 2 failed, 0 skipped"
verify "what the suite started is ended" until_holds is_gone "$sleeper"

# Without a registry the tests still run, and the result says what was left out.
echo 1 >"$copy/fetch-status"
stop_it
verify "packages that were not fetched are told" says "packages               SKIPPED !!!! not all were fetched"
verify "packages that were not fetched are counted" last_line "11 passed, 2 failed, 1 skipped"

mkdir -p "$copy"/target/{real,debug,supply} "$copy"/tmp/palisade-{suite-$$,runs-0-1,0,builds-x-1} "$copy/bait/palisade-escape-0-a"
clean() { (cd "$copy" && bash scripts/test.sh --clean "$@") >"$copy/out" 2>&1; }
verify "a dry run succeeds" clean --dry-run
verify "a dry run says what it would do" says "would remove: target/real"
verify "a dry run removes nothing" test -d "$copy/target/real" -a -d "$copy/tmp/palisade-runs-0-1"
verify "cleaning succeeds" clean
verify "the tests' folders are gone" test ! -e "$copy/target/real" -a ! -e "$copy/target/test-logs" -a ! -e "$copy/target/supply"
verify "folders of test processes that are gone are removed" \
    test ! -e "$copy/tmp/palisade-runs-0-1" -a ! -e "$copy/bait/palisade-escape-0-a"
verify "folders of a test process that runs stay" test -d "$copy/tmp/palisade-suite-$$"
verify "other folders stay" test -d "$copy/target/debug" -a -d "$copy/tmp/palisade-0" -a -d "$copy/tmp/palisade-builds-x-1"
verify "what stays is said" says "left: Debian packages"

if [ "$failed" -eq 0 ]; then word=ok; else word=FAILED; fi
echo "test result: $word. $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
[ "$failed" -eq 0 ]
