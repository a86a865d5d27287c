#!/usr/bin/env bash
# The test command: ./scripts/test.sh [--quick | --long | --clean [--dry-run]]
#
# Prepares the machine, checks style and rules, builds the real binary and the one without walls, runs every
# suite, and ends with one line: N passed, M failed, K skipped. The exit status is 0 only when nothing failed.
# Each step says what it is for as it begins, is bounded in time and keeps its whole output in target/test-logs/. A run that
# is stopped by a signal ends the step that is running and counts the tests that had ended until then.
#
# The set-up changes the host: scripts/setup-tests.sh installs packages and creates the user palisade-test.
#
# --quick  leave out the long suites (tests see PALISADE_QUICK=1)
# --long   run only the suites that need a QEMU guest or many repetitions (docs/TESTING.md), which the others do not include: other kernels,
#          pure cgroup v2 and v1, AppArmor. Root, QEMU and a Debian mirror are needed; where they are missing, the
#          suites fail.
# --clean  run nothing; remove what set-up and suites created, and say what stays (scripts/clean-tests.sh). With --dry-run
#          only say it.
#
# Tests are given PALISADE_BIN (the product) and PALISADE_BREACH_BIN (the test build,
# `--features breach,conformance`: walls can be switched off, so that an attack can be seen to succeed without
# them, and the fixtures of the conformance suite can be served).
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail

cd "$(dirname "$0")/.."
top=$(pwd -P)
readonly top
readonly logs=target/test-logs
readonly counter=scripts/count-results.awk
readonly test_user=${PALISADE_TEST_USER:-palisade-test}

readonly setup_timeout_s=2400
readonly check_timeout_s=1800
readonly build_timeout_s=2400
readonly driver_timeout_s=300
readonly suite_timeout_s=4200
readonly guest_timeout_s=3600
readonly walls_timeout_s=10800
readonly newer_release=trixie
readonly kill_after_s=20
readonly failure_lines_max=120
# Lets the broker for the web reach the tests' own hosts, which are on loopback. The product lacks it.
readonly test_features=egress/loopback

passed=0
failed=0
skipped=0
report=()
step_pid=
# The step that is running: its name, its runner (none for a step that is itself one check), when it began.
step_name=
step_runner=
step_begin=0
is_counted=0
built=
breach_in_release=no

usage() {
    echo "usage: scripts/test.sh [--quick | --long | --clean [--dry-run]]" >&2
    exit 2
}

finish() {
    echo
    if [ "${#report[@]}" -gt 0 ]; then printf '%s\n' "${report[@]}"; fi
    echo
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}

# begin NAME PURPOSE [RUNNER]: says what starts now.
begin() {
    step_name=$1 step_runner=${3:-} step_begin=$SECONDS is_counted=0
    printf '%(%H:%M:%S)T %-22s begins: %s\n' -1 "$1" "$2"
}

# descendants PID: all processes below it.
descendants() {
    local child
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null || true); do
        echo "$child"
        descendants "$child"
    done
}

# Ends the step that is running: its runner first, so that it can end its tests and say what became of them. `timeout`
# leads a process group of its own, so a key on the terminal does not reach it; it passes TERM on to that group. What has
# yet another group (a `timeout` within the step) is ended afterwards.
end_step() {
    local family pid
    [ -n "$step_pid" ] || return 0
    family=$(descendants "$step_pid")
    kill -TERM "$step_pid" 2>/dev/null || true
    wait "$step_pid" 2>/dev/null || true
    for pid in $family; do kill -TERM "$pid" 2>/dev/null || true; done
}

# stop SIGNAL STATUS: the tests that had ended count, and that the run was stopped is one failure.
stop() {
    local counts='' p=0 f=0 s=0
    trap '' INT TERM HUP
    echo
    echo "stopped by SIG$1${step_name:+ during $step_name}: ending it, which takes up to $kill_after_s s"
    end_step
    if [ -n "$step_runner" ] && [ "$is_counted" -eq 0 ]; then
        counts=$(awk -v runner="$step_runner" -v partial=1 -f "$counter" "$logs/$step_name.log" 2>/dev/null) || true
        if [ -n "$counts" ]; then read -r p f s <<<"$counts"; fi
        ((passed += p, failed += f, skipped += s, 1))
        note "$step_name" STOPPED "$p passed, $f failed, $s skipped until then, $((SECONDS - step_begin)) s"
    elif [ -n "$step_name" ]; then
        note "$step_name" STOPPED "$((SECONDS - step_begin)) s"
    fi
    failed=$((failed + 1))
    report+=("stopped by SIG$1: counted as one failure; what came after was not run")
    finish || true
    exit "$2"
}

# No binary is better than one without walls where people look for the product.
leave() {
    if [ "$breach_in_release" = yes ] && [ -n "$built" ]; then rm -f "$built"; fi
}

# note NAME VERDICT DETAIL
note() {
    local line
    line=$(printf '%-22s %-7s %s' "$1" "$2" "$3")
    report+=("$line")
    echo "$line"
}

# run_bounded NAME SECONDS COMMAND...: output to the log of that name; gives the command's status, 124 or 137
# when time ran out.
run_bounded() {
    local name=$1 seconds=$2 status=0
    shift 2
    timeout --kill-after="$kill_after_s" "$seconds" "$@" </dev/null >"$logs/$name.log" 2>&1 &
    step_pid=$!
    wait "$step_pid" || status=$?
    step_pid=
    return "$status"
}

explain() {
    case $1 in
        0) echo "no result line" ;;
        124 | 137) echo "out of time" ;;
        *) echo "exit status $1" ;;
    esac
}

show_failure() {
    echo "---- end of $logs/$1.log"
    tail -n "$failure_lines_max" "$logs/$1.log" | sed 's/^/    /'
    echo "----"
}

# check NAME PURPOSE SECONDS COMMAND...: a step that is itself one check.
check() {
    local name=$1 status=0
    begin "$name" "$2"
    shift 2
    run_bounded "$name" "$@" || status=$?
    if [ "$status" -eq 0 ]; then
        passed=$((passed + 1))
        note "$name" ok "$((SECONDS - step_begin)) s"
    else
        failed=$((failed + 1))
        show_failure "$name"
        note "$name" FAILED "$(explain "$status"), $((SECONDS - step_begin)) s"
    fi
    step_name=
}

# build NAME PURPOSE COMMAND...: counts only when it fails.
build() {
    local name=$1 status=0
    begin "$name" "$2"
    shift 2
    run_bounded "$name" "$build_timeout_s" "$@" || status=$?
    if [ "$status" -eq 0 ]; then
        note "$name" ok "$((SECONDS - step_begin)) s"
    else
        failed=$((failed + 1))
        show_failure "$name"
        note "$name" FAILED "$(explain "$status"), $((SECONDS - step_begin)) s"
    fi
    step_name=
    return "$status"
}

# suite NAME RUNNER PURPOSE SECONDS COMMAND...: adds the runner's own counts. A runner that fails without a failed test
# (it crashed, was stopped, did not compile) counts as one failure.
suite() {
    local name=$1 runner=$2 status=0 counts p=0 f=0 s=0 verdict=ok detail
    rm -f "$logs/$name.log" # what an earlier run left is not this one's
    begin "$name" "$3" "$runner"
    shift 3
    run_bounded "$name" "$@" || status=$?
    counts=$(awk -v runner="$runner" -f "$counter" "$logs/$name.log")
    detail="$((SECONDS - step_begin)) s"
    if [ -n "$counts" ]; then read -r p f s <<<"$counts"; fi
    if [ "$f" -eq 0 ] && { [ "$status" -ne 0 ] || [ -z "$counts" ]; }; then
        f=1
        detail="$(explain "$status"), $detail"
    fi
    # One command, so that no signal comes between: a suite is counted here or in `stop`, never twice.
    ((passed += p, failed += f, skipped += s, is_counted = 1))
    step_name=
    if [ "$f" -ne 0 ]; then
        verdict=FAILED
        show_failure "$name"
    fi
    note "$name" "$verdict" "$p passed, $f failed, $s skipped, $detail"
    if [ "$runner" = nextest ]; then tell_flaky "$name"; fi
}

# tell_flaky NAME: names the tests that passed only when they were repeated (.config/nextest.toml). Each is a bug.
tell_flaky() {
    local line
    while read -r line; do
        note "$1" FLAKY "$line"
    done < <(sed -n -e '1,/^ *Summary \[/d' -e 's/^ *FLAKY [0-9/]* *\[[^]]*\] *//p' "$logs/$1.log")
}

prepare() {
    local status=0
    begin set-up "installs what is missing and creates the host user $test_user where it is not there; --clean removes it"
    timeout --kill-after="$kill_after_s" "$setup_timeout_s" bash scripts/setup-tests.sh </dev/null &
    step_pid=$!
    wait "$step_pid" || status=$?
    step_pid=
    if [ "$status" -ne 0 ]; then
        failed=$((failed + 1))
        note set-up FAILED "$(explain "$status")"
    fi
    step_name=
}

find_cargo() {
    if ! command -v cargo >/dev/null 2>&1 && [ -x "${HOME:-/nonexistent}/.cargo/bin/cargo" ]; then
        PATH="$HOME/.cargo/bin:$PATH"
        export PATH
    fi
    if ! command -v cargo >/dev/null 2>&1; then
        failed=$((failed + 1))
        note cargo FAILED "not found: install the Rust toolchain (rustup) and run again"
        finish
        exit 1
    fi
}

# Where cargo puts the release binary, whatever its configuration says.
release_binary() {
    local folder
    folder=$(cargo metadata --format-version 1 --no-deps 2>/dev/null |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p') || true
    echo "${folder:-$top/target}/release/palisade"
}

# The binary without walls is built first, so that the real one is the last to be put where people look for it. Both are built
# without link-time optimisation, which changes no behaviour and takes minutes.
# Copies are made anew (never written over): cargo's own file is a hard link into its cache.
build_binaries() {
    rm -f target/real/palisade target/breach/palisade
    mkdir -p target/real target/breach
    built=$(release_binary)
    breach_in_release=yes
    if build build-breach "the product with walls that can be switched off, for attacks, and the conformance fixtures" \
        env CARGO_PROFILE_RELEASE_LTO=off cargo build --release -p palisade --features breach,conformance; then
        cp "$built" target/breach/palisade
    fi
    if build build-real "the product" env CARGO_PROFILE_RELEASE_LTO=off cargo build --release -p palisade; then
        breach_in_release=no
        cp "$built" target/real/palisade
    fi
    if [ -e target/real/palisade ] && cmp -s target/real/palisade target/breach/palisade; then
        failed=$((failed + 1))
        note build FAILED "the breach build is the same file as the real one"
    fi
}

# Compiling cargo-deny takes ten minutes, so the set-up does not; where it is there, it runs as well. The advisories are
# left out: their database is a git repository elsewhere (docs/TESTING.md).
check_dependencies() {
    check licences "licences and sources of the dependencies (deny.toml)" "$check_timeout_s" scripts/check-licences.py
    if cargo deny --version >/dev/null 2>&1; then
        check deny "licences, sources and versions of the dependencies (deny.toml)" "$check_timeout_s" \
            cargo deny --locked check --hide-inclusion-graph licenses bans sources
    fi
}

run_driver_tests() {
    local file language
    for file in runtimes/*/test_driver.py; do
        [ -e "$file" ] || continue
        language=$(basename "$(dirname "$file")")
        suite "driver-$language" unittest "the driver of $language, without a sandbox" "$driver_timeout_s" python3 "$file"
    done
}

# Real MCP servers of other makers, which programs call: a package registry the first time.
install_upstreams() {
    if [ -n "${PALISADE_QUICK:-}" ] || [ -e target/upstreams/stamp ]; then return 0; fi
    if ! run_bounded upstreams "$setup_timeout_s" bash tests/upstreams/install.sh; then
        skipped=$((skipped + 1))
        note upstreams SKIPPED "!!!! not installed: no test called a tool of a real server of another maker"
    fi
}

# The resolver and the packages that tests/functional/supply works from: a package registry the first time. Tests fetch nothing.
fetch_packages() {
    if ! run_bounded packages "$setup_timeout_s" bash tests/functional/supply/fetch.sh; then
        skipped=$((skipped + 1))
        note packages SKIPPED "!!!! not all were fetched ($logs/packages.log): tests that install or use packages say SKIPPED and prove nothing"
    fi
}

# nextest does not run the examples in the documentation, so those run apart.
run_cargo_tests() {
    if cargo nextest --version >/dev/null 2>&1; then
        suite tests nextest "unit tests and the suites over the built product: functional, languages, escape" \
            "$suite_timeout_s" cargo nextest run --profile ci --workspace --features "$test_features" --no-fail-fast --failure-output final
        if [ -n "${PALISADE_QUICK:-}" ]; then return 0; fi
        suite doc-tests libtest "examples in the documentation of the crates" "$suite_timeout_s" cargo test --workspace --doc --no-fail-fast
    else
        suite tests libtest "unit tests and the suites over the built product; no cargo-nextest here" \
            "$suite_timeout_s" cargo test --workspace --features "$test_features" --no-fail-fast -- --skip upheaval::
        suite tests-alone libtest "tests that kill palisades and count what is left" "$suite_timeout_s" cargo test -p functional --test functional --no-fail-fast -- \
            --test-threads=1 upheaval::
    fi
}

# Real MCP clients: minutes, and a package registry the first time.
run_client_tests() {
    if [ -n "${PALISADE_QUICK:-}" ]; then return 0; fi
    suite clients plain "real MCP clients, installed under target/clients" "$suite_timeout_s" bash tests/clients/run.sh
}

# The official conformance suite: half a minute, and a package registry the first time.
run_conformance_tests() {
    if [ -n "${PALISADE_QUICK:-}" ]; then
        skipped=$((skipped + 1))
        note conformance SKIPPED "!!!! left out by --quick: whether MCP is spoken conformantly was not tested"
        return 0
    fi
    suite conformance plain "the official MCP conformance suite" "$suite_timeout_s" bash tests/conformance/run.sh
}

# What the default run does fewer times.
run_many_times() {
    suite kills libtest "servers are killed 100 times while calls are counted, approved and recorded" "$suite_timeout_s" \
        env PALISADE_KILLS=100 cargo test -p functional --test functional -- --test-threads=1 _kills::
}

# Every attack from a run that may reach a host of the web; the default run takes one of each family.
run_attacks_with_access() {
    suite attacks-with-access libtest "all attacks with access to the web open" "$suite_timeout_s" \
        env PALISADE_LONG=1 cargo test -p escape --test escape -- --test-threads=1 access
}

# The walls with an OCI runtime or an engine: every attack, 500 runs, and 150 or 60 kills of server, runtime or engine, shim and
# processes inside. The default run takes one attack of each family and fewer runs and kills.
run_walls() {
    suite attacks-on-walls libtest "all attacks behind runc, crun, gVisor, Docker and Podman, in fresh and in persistent sandboxes" "$walls_timeout_s" \
        env PALISADE_LONG=1 cargo test -p escape --test escape -- --test-threads=1 other_walls::
    suite walls-many-times libtest "500 runs and 150 kills leave nothing of runc, crun and gVisor" "$walls_timeout_s" \
        env PALISADE_LONG=1 cargo test -p backends --test oci_walls -- leave
    suite engines-many-times libtest "500 runs and 60 kills leave nothing of Docker and Podman" "$walls_timeout_s" \
        env PALISADE_LONG=1 cargo test -p backends --test daemon_walls -- leave
}

# The grade that a public scanner gives the tools. It is built through the Go module proxy.
run_scanner() {
    suite scanner plain "the ToolTrust scanner over \`palisade mcp\`: grade A for every tool" "$suite_timeout_s" bash tests/scanner/run.sh
}

# The walls in guests: the kernel of this Debian release on both layouts of control groups, then a newer kernel.
run_guest_tests() {
    suite guest-v2 plain "the walls in a QEMU guest with cgroup v2" "$guest_timeout_s" bash tests/guest/run.sh --cgroup v2
    suite guest-v1 plain "the walls in a QEMU guest with cgroup v1" "$guest_timeout_s" bash tests/guest/run.sh --cgroup v1
    suite guest-newer plain "the walls on the kernel of Debian $newer_release" "$guest_timeout_s" bash tests/guest/run.sh --cgroup v2 --release "$newer_release"
}

case $#:${1:-} in
    0:) which=default ;;
    1:--quick)
        which=default
        export PALISADE_QUICK=1
        ;;
    1:--long) which=long ;;
    1:--clean | 2:--clean) exec bash scripts/clean-tests.sh "${@:2}" ;;
    *) usage ;;
esac

export CARGO_TERM_COLOR=never CARGO_TERM_PROGRESS_WHEN=never NO_COLOR=1
export PYTHONDONTWRITEBYTECODE=1
# A snapshot that differs is a failure and nothing else: no file is written beside it.
export INSTA_UPDATE="${INSTA_UPDATE:-no}"
export PALISADE_BIN="$top/target/real/palisade" PALISADE_BREACH_BIN="$top/target/breach/palisade"
mkdir -p "$logs"
trap 'stop INT 130' INT
trap 'stop TERM 143' TERM
trap 'stop HUP 129' HUP
trap leave EXIT

prepare
find_cargo
if [ "$which" = long ]; then
    build_binaries
    run_many_times
    run_attacks_with_access
    run_walls
    run_scanner
    run_guest_tests
    finish
    exit
fi
suite self-test libtest "this command itself: its counts, a stop by a signal, --clean" "$driver_timeout_s" bash tests/setup/self-tests.sh
check fmt "formatting" "$check_timeout_s" cargo fmt --all --check
check clippy "lints, over all crates and tests" "$check_timeout_s" cargo clippy --workspace --all-targets --features "$test_features" -- -D warnings
check tidy "rules of the repository: layers, sizes, names, promises with tests" "$check_timeout_s" cargo xtask tidy
check_dependencies
build_binaries
check manifests "the files of manifests/ say what the code says" "$check_timeout_s" cargo xtask manifests --check
run_driver_tests
install_upstreams
fetch_packages
run_cargo_tests
run_client_tests
run_conformance_tests
finish
