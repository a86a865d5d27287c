#!/usr/bin/env bash
# What tests/guest/run.sh runs inside the guest, as root: tests/guest/inside.sh FOLDER [all|walls]
#
# FOLDER has the programs: palisade, palisade-breach, conformance, oci_walls, daemon_walls, escape, filter-ends. One line per
# check, and at the end N passed, M failed, K skipped.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail

cd "$(dirname "$0")/../.."
readonly programs=${1:?}
readonly part=${2:-all}
readonly user=palisade-test
readonly work=/tmp/guest-tests
readonly check_timeout_s=600
readonly suite_timeout_s=1500
# Time-outs of the escape suite and of the contract are multiplied by this.
readonly patience=20
readonly failure_lines_max=60

passed=0
failed=0
skipped=0

if [ "$(hostname)" != guest-vm ] || ! grep -qw palisade.guest=1 /proc/cmdline; then
    echo "FAILED: this is no guest: run tests/guest/run.sh"
    exit 2
fi

show_log() { tail -n "$failure_lines_max" "$work/log" | sed 's/^/    /'; }

# bounded SECONDS COMMAND...: its output goes to the log. Functions of this script can be commands.
bounded() {
    local seconds=$1 status=0
    shift
    (
        "$@" </dev/null >"$work/log" 2>&1 &
        command=$!
        # Its own descriptors: a sleep that outlives the command must not hold the output open.
        (sleep "$seconds" && kill -KILL "$command") >/dev/null 2>&1 &
        clock=$!
        status=0
        wait "$command" || status=$?
        kill "$clock" 2>/dev/null || true
        exit "$status"
    ) || status=$?
    return "$status"
}

# check NAME COMMAND...
check() {
    local name=$1 status=0 begin=$SECONDS
    shift
    bounded "$check_timeout_s" "$@" || status=$?
    if [ "$status" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok $name ($((SECONDS - begin)) s)"
    else
        failed=$((failed + 1))
        show_log
        echo "FAILED $name (exit status $status, $((SECONDS - begin)) s)"
    fi
}

skip() {
    skipped=$((skipped + 1))
    echo "SKIPPED $1: $2"
}

# suite NAME COMMAND...: a libtest program, whose tests are counted.
suite() {
    local name=$1 status=0 begin=$SECONDS counts p=0 f=0 s=0
    shift
    bounded "$suite_timeout_s" "$@" || status=$?
    counts=$(awk -v runner=libtest -f scripts/count-results.awk "$work/log")
    if [ -n "$counts" ]; then read -r p f s <<<"$counts"; fi
    if [ "$f" -eq 0 ] && { [ "$status" -ne 0 ] || [ -z "$counts" ]; }; then f=1; fi
    passed=$((passed + p))
    failed=$((failed + f))
    skipped=$((skipped + s))
    if [ "$f" -eq 0 ]; then
        echo "ok $name ($p tests, $((SECONDS - begin)) s)"
    else
        show_log
        echo "FAILED $name ($p passed, $f failed, exit status $status, $((SECONDS - begin)) s)"
    fi
}

# These become the command, so that nothing but it is in their control group. They are called in a subshell.
as_root() { exec env "$@"; }

as_user() { exec setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs -- env "$@"; }

# As the user, in a version 2 group of its own that belongs to the user: `systemd-run --user --scope -p Delegate=yes`.
as_user_with_group() {
    local slice=/sys/fs/cgroup/user.slice scope
    scope=$slice/run-$BASHPID.scope
    mkdir -p "$scope"
    echo "+cpu +memory +pids" >"$slice/cgroup.subtree_control"
    chown "$user" "$scope" "$scope"/cgroup.{procs,threads,subtree_control}
    echo "$BASHPID" >"$scope/cgroup.procs"
    as_user "$@"
}

# doctor AS: every guarantee is kept. Two languages are on the PATH: the others take minutes here.
doctor() (
    "$1" -i PATH="$work/languages" PALISADE_STATE_DIR="$work/state-$1" "$work/palisade" doctor
)

# The limits come from control groups and not from the watchdog.
doctor_names_cgroups() {
    doctor "$1" && grep -Eq '^ *ok memory_limited +cgroup' "$work/log" && grep -Eq '^ *ok cpu_limited +cgroup' "$work/log"
}

contract() (
    "$1" -i PATH=/usr/bin:/bin PALISADE_PATIENCE="$patience" "$work/conformance"
)

# wall_test PROGRAM TEST: one test of a wall with a container runtime, as root.
wall_test() (
    as_root -i PATH=/usr/sbin:/usr/bin:/sbin:/bin PALISADE_PATIENCE="$patience" "$work/$1" --exact "$2"
)

# walls_of PROGRAM COMMAND
walls_of() {
    if ! command -v "$2" >/dev/null; then
        skip "$2" "it is not installed"
        return 0
    fi
    check "contract of $2" wall_test "$1" "the_contract_is_kept_by_$2"
    check "one attack of each family behind $2" wall_test "$1" "attacks_fail_behind_$2"
    check "a killed server leaves nothing of $2" wall_test "$1" "a_killed_server_leaves_nothing_of_$2"
}

walls() {
    walls_of oci_walls runc
    walls_of oci_walls crun
    walls_of daemon_walls podman
}

attacks() {
    env PALISADE_BIN="$work/palisade" PALISADE_BREACH_BIN="$work/palisade-breach" PALISADE_PATIENCE="$patience" \
        PALISADE_ATTACKS=representatives "$work/escape" suite:: --test-threads=2
}

mkdir -p "$work"/{languages,state-as_root,state-as_user,state-as_user_with_group}
chmod 755 "$work"
chown "$user" "$work"/state-as_user*
cp "$programs"/{palisade,palisade-breach,conformance,oci_walls,daemon_walls,escape,filter-ends} "$work/"
ln -s /usr/bin/python3 /usr/bin/bash /usr/bin/env "$work/languages/"

kernel=$(uname -r)
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then layout="pure cgroup v2"; else layout="cgroup v1"; fi
echo "kernel $kernel, $layout, security modules $(cat /sys/kernel/security/lsm)"
if [ "$part" = walls ]; then
    walls
    echo
    echo "$passed passed, $failed failed, $skipped skipped"
    if [ "$failed" -eq 0 ]; then exit 0; else exit 1; fi
fi
check "doctor as root" doctor_names_cgroups as_root
check "doctor as an ordinary user" doctor as_user
if [ "$layout" = "pure cgroup v2" ]; then
    check "doctor as an ordinary user with a delegated group" doctor_names_cgroups as_user_with_group
    check "contract as an ordinary user with a delegated group" contract as_user_with_group
fi
check "contract as root" contract as_root
check "contract as an ordinary user" contract as_user
walls
suite "escape suite, representatives" attacks
check "4,096 filters, ended 64 at a time" "$work/filter-ends" staggered
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
