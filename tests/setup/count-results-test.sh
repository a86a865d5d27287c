#!/usr/bin/env bash
# Checks scripts/count-results.awk on samples of what each runner prints. Its own result line is libtest's.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail
cd "$(dirname "$0")/../.."

passed=0
failed=0

# expect RUNNER WANTED [partial], sample on standard input
expect() {
    local got
    got=$(awk -v runner="$1" ${3:+-v partial=1} -f scripts/count-results.awk)
    if [ "$got" = "$2" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "line ${BASH_LINENO[0]}: $1: wanted '$2', got '$got'"
    fi
}

expect libtest "5 1 2" <<'SAMPLE'
running 4 tests
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.01s
   Doc-tests wire
test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.20s
SAMPLE

expect libtest "0 0 0" <<'SAMPLE'
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
SAMPLE

expect libtest "" <<'SAMPLE'
error: could not compile `engine` (lib) due to 1 previous error
    a printed line: test result: ok. 9 passed; 0 failed; 0 ignored
SAMPLE

expect nextest "47 0 0" <<'SAMPLE'
────────────
     Summary [   0.065s] 47 tests run: 47 passed, 0 skipped
SAMPLE

expect nextest "6 4 4" <<'SAMPLE'
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 46 filtered out
     Summary [  61.203s] 10 tests run: 6 passed (1 slow, 2 flaky), 2 failed (1 due to being leaky), 1 exec failed, 1 timed out, 4 skipped
        FAIL [   0.004s] xtask::bin/xtask tidy::one
SAMPLE

expect nextest "1 1 0" <<'SAMPLE'
     Summary [   0.065s] 2/9 tests run: 1 passed, 1 failed, 0 skipped
SAMPLE

expect nextest "1 0 0" <<<"$(printf '\033[32;1m     Summary\033[0m [   0.0s] \033[1m1\033[0m test run: \033[1m1\033[0m \033[32mpassed\033[0m, 0 skipped')"

expect nextest "" <<'SAMPLE'
error: command `cargo test --no-run` exited with code 101
SAMPLE

expect plain "7 1 2" <<'SAMPLE'
ok one
9 passed, 0 failed, 0 skipped
FAILED two: 3 passed, 4 failed

7 passed, 1 failed, 2 skipped
SAMPLE

expect plain "" <<'SAMPLE'
7 passed, 1 failed, 2 skipped
and then it crashed
SAMPLE

expect unittest "5 0 0" <<'SAMPLE'
.....
----------------------------------------------------------------------
Ran 5 tests in 0.104s

OK
SAMPLE

expect unittest "1 0 0" <<'SAMPLE'
Ran 1 test in 0.001s
OK (expected failures=1)
SAMPLE

expect unittest "3 3 1" <<'SAMPLE'
FAIL: test_one (__main__.Driver.test_one)
Ran 7 tests in 0.104s

FAILED (failures=1, errors=1, skipped=1, expected failures=2, unexpected successes=1)
SAMPLE

expect unittest "4 0 2" <<'SAMPLE'
Ran 6 tests in 0.104s

OK (skipped=2)
SAMPLE

expect unittest "0 0 0" <<'SAMPLE'
Ran 0 tests in 0.000s

NO TESTS RAN
SAMPLE

expect unittest "" <<'SAMPLE'
Traceback (most recent call last):
ImportError: no module named driver
OK then
SAMPLE

expect libtest "3 1 1" partial <<'SAMPLE'
running 2 tests
test a::one ... ok
test a::two ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
running 9 tests
test three ... ok
test four ... ignored, no kernel
test five ... ok
SAMPLE

expect nextest "2 1 0" partial <<'SAMPLE'
    Starting 5 tests across 1 binary (1 test skipped)
        PASS [   0.010s] (1/5) scratch a
        PASS [   0.013s] (2/5) scratch b
        FAIL [   0.294s] (3/5) scratch c
  Cancelling due to signal: 2 tests still running
     SIGTERM [   3.660s] (4/5) scratch slow
     SIGTERM [   3.369s] (5/5) scratch slow2
     Summary [   3.674s] 5 tests run: 2 passed, 3 failed, 1 skipped
        FAIL [   0.294s] (3/5) scratch c
SAMPLE

expect nextest "" partial <<'SAMPLE'
   Compiling engine v0.1.0
SAMPLE

expect unittest "4 1 1" partial <<'SAMPLE'
..s.F.
SAMPLE

expect plain "2 1 1" partial <<'SAMPLE'
ok one
FAILED two: exit status 3
SKIPPED three: no npm
ok four
!!!! SKIPPED three: no npm
SAMPLE

if [ "$failed" -eq 0 ]; then word=ok; else word=FAILED; fi
echo "test result: $word. $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
[ "$failed" -eq 0 ]
