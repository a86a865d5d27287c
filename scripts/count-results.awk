# Reads the output of one test runner and prints "PASSED FAILED SKIPPED", or nothing when it gave no result.
#
# usage: awk -v runner=libtest|nextest|unittest|plain [-v partial=1] -f count-results.awk LOG
# One runner per log, named by the caller: a failing test may print lines that look like those of another.
#
# partial=1: the runner was stopped. Tests that had ended are counted one by one; those that the stop ended are not.

{
    gsub(/\033\[[0-9;]*m/, "")
    sub(/\r$/, "")
}

# libtest, once per test binary: test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; ...
!partial && runner == "libtest" && /^test result: / {
    seen = 1
    passed += number_before($0, " passed")
    failed += number_before($0, " failed")
    skipped += number_before($0, " ignored")
}

# nextest, once: Summary [ 1.2s] 9 tests run: 6 passed (1 slow), 2 failed, 1 timed out, 4 skipped
# A run that was stopped says "6/9 tests run"; its exit status tells.
!partial && runner == "nextest" && /^ *Summary \[/ {
    seen = 1
    sub(/^.*tests? run: */, "")
    gsub(/\([^)]*\)/, "")
    passed = failed = skipped = 0
    parts = split($0, part, ",")
    for (i = 1; i <= parts; i++) {
        count = number_before(part[i], " ")
        if (part[i] ~ /passed/) passed += count
        else if (part[i] ~ /skipped/) skipped += count
        else failed += count
    }
}

# unittest, once: "Ran 5 tests in 0.1s", then OK, OK (skipped=1) or FAILED (failures=1, errors=1, skipped=1)
!partial && runner == "unittest" && /^Ran [0-9]+ tests? in / { ran = $2 }
!partial && runner == "unittest" && /^(OK|FAILED|NO TESTS RAN)( \(.*\))?$/ {
    seen = 1
    sub(/expected failures=[0-9]+/, "") # as good as passed
    failed = number_after($0, "failures=") + number_after($0, "errors=")
    failed += number_after($0, "unexpected successes=")
    skipped = number_after($0, "skipped=")
    passed = ran - failed - skipped
    if (passed < 0) passed = 0 # errors of set-up code count without a test having run
}

# our own scripts, as the last line: 7 passed, 0 failed, 1 skipped
!partial && runner == "plain" { seen = 0 }
!partial && runner == "plain" && /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ {
    seen = 1
    passed = number_before($0, " passed")
    failed = number_before($0, " failed")
    skipped = number_before($0, " skipped")
}

# libtest, per test: test suite::name ... ok
partial && runner == "libtest" && /^test .* \.\.\. (ok|FAILED|ignored)/ {
    seen = 1
    if (/ \.\.\. ok/) passed++
    else if (/ \.\.\. FAILED/) failed++
    else skipped++
}

# nextest, per test: PASS [   0.010s] (1/5) crate name. Tests that the stop ended are SIGTERM or SIGINT; the summary behind
# the list counts them as failed, and failures are told again behind it.
partial && runner == "nextest" && /^ *Summary \[/ { is_over = 1 }
partial && runner == "nextest" && !is_over && /^ *(PASS|LEAK|FAIL|TIMEOUT|SIGKILL|SIGSEGV|SIGABRT|XFAIL) \[/ {
    seen = 1
    if ($1 == "PASS" || $1 == "LEAK") passed++
    else failed++
}

# a test that passed when it was repeated: TRY 2 PASS [   0.010s] crate name
partial && runner == "nextest" && !is_over && /^ *TRY [0-9]+ PASS \[/ {
    seen = 1
    passed++
}

# unittest: one character per test
partial && runner == "unittest" && /^[.FEsxu]+$/ {
    seen = 1
    passed += gsub(/[.x]/, "")
    skipped += gsub(/s/, "")
    failed += length($0)
}

# our own scripts, per check: ok NAME, FAILED NAME, SKIPPED NAME
partial && runner == "plain" && /^(ok|FAILED|SKIPPED) / {
    seen = 1
    if ($1 == "ok") passed++
    else if ($1 == "FAILED") failed++
    else skipped++
}

END { if (seen) print passed + 0, failed + 0, skipped + 0 }

# The number that stands directly before `mark`, else 0.
function number_before(text, mark) {
    if (!match(text, "[0-9]+" mark)) return 0
    return substr(text, RSTART) + 0
}

# The number that stands directly behind `mark`, else 0.
function number_after(text, mark) {
    if (!match(text, mark "[0-9]+")) return 0
    text = substr(text, RSTART, RLENGTH)
    sub(/^.*=/, "", text)
    return text + 0
}
