#!/usr/bin/env bash
# Removes what the tests created on this machine: scripts/test.sh --clean [--dry-run]
#
# Removed: the host user that scripts/setup-tests.sh creates, folders of the tests under target/, and temporary folders of
# test processes that are gone. Left, and said: packages, cargo-nextest, cargo's own build output, and whatever is in use or
# does not look like ours. With --dry-run nothing is removed. The exit status is 1 when something could not be removed.
#
# PALISADE_TEST_USER names another user and TMPDIR another temporary folder, for trying this script itself.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail

cd "$(dirname "$0")/.."
readonly test_user=${PALISADE_TEST_USER:-palisade-test}
readonly temporary=${TMPDIR:-/tmp}
# The escape suite keeps its files where a build without walls does not mount over them.
readonly bait_parent=${PALISADE_TEST_BAIT_DIR:-/var/tmp}
readonly target_folders=(test-venv test-logs clients upstreams supply conformance guest-vm guest-tests real breach)
# useradd --system takes numbers below this one.
readonly system_uid_end=1000

is_dry=no
removed=0
failures=0

case $#:${1:-} in
    0:) ;;
    1:--dry-run) is_dry=yes ;;
    *)
        echo "usage: scripts/test.sh --clean [--dry-run]" >&2
        exit 2
        ;;
esac

left() { echo "clean: left: $*"; }

# remove WHAT COMMAND...
remove() {
    local what=$1 message
    shift
    if [ "$is_dry" = yes ]; then
        echo "clean: would remove: $what"
    elif message=$("$@" 2>&1); then
        removed=$((removed + 1))
        echo "clean: removed: $what"
    else
        failures=$((failures + 1))
        echo "clean: FAILED to remove: $what: ${message:-no message}"
    fi
}

# Only an account such as setup-tests.sh creates: whoever has a person's account of that name keeps it.
remove_user() {
    local entry name uid home shell
    if ! entry=$(getent passwd "$test_user"); then
        left "no user $test_user is there"
        return 0
    fi
    IFS=: read -r name _ uid _ _ home shell <<<"$entry"
    if [ "$uid" -ge "$system_uid_end" ] || [ "$uid" -eq 0 ] || [ "$home" != /nonexistent ] || [[ $shell != */nologin ]]; then
        left "user $name (uid $uid, home $home, shell $shell) is not an account that scripts/setup-tests.sh creates"
    elif [ "$(id -u)" -ne 0 ]; then
        left "user $name: only root can remove it"
    else
        remove "host user $name (uid $uid) and its group" delete_user
    fi
}

# userdel refuses while a process of the user runs. It takes the group along where login.defs says so.
delete_user() {
    /usr/sbin/userdel "$test_user" || return 1
    if getent group "$test_user" >/dev/null; then /usr/sbin/groupdel "$test_user"; fi
}

remove_target_folders() {
    local name
    for name in "${target_folders[@]}"; do
        if [ -d "target/$name" ]; then remove "target/$name" rm -rf --one-file-system "target/$name"; fi
    done
}

# Names are PREFIX-PID or PREFIX-PID-MORE. Sets `has_live` where a test process still runs.
remove_process_folders() {
    local parent=$1 prefix path pid
    shift
    for prefix in "$@"; do
        for path in "$parent/$prefix-"*; do
            if [ ! -d "$path" ] || [ -L "$path" ]; then continue; fi
            pid=${path#"$parent/$prefix-"}
            pid=${pid%%-*}
            [[ $pid =~ ^[0-9]+$ ]] || continue
            if [ -e "/proc/$pid" ]; then
                has_live=yes
                left "$path: process $pid runs"
            else
                remove "$path" rm -rf --one-file-system "$path"
            fi
        done
    done
}

# Copies of the two builds, which all test processes of a user share.
remove_builds() {
    local path
    for path in "$temporary"/palisade-builds-[0-9]*; do
        if [ ! -d "$path" ] || [ -L "$path" ]; then continue; fi
        if [ "$has_live" = yes ] || is_executed "$(realpath "$path")"; then
            left "$path: in use"
        else
            remove "$path" rm -rf --one-file-system "$path"
        fi
    done
}

# is_executed FOLDER: whether a process runs a program that lies in it.
is_executed() {
    local link
    for link in /proc/[0-9]*/exe; do
        if [[ $(readlink "$link" 2>/dev/null) == "$1"/* ]]; then return 0; fi
    done
    return 1
}

say_what_stays() {
    local packages
    packages=$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' tests/setup/packages.txt | awk '{ printf "%s ", $1 }')
    left "Debian packages that the set-up may have installed: ${packages% } (remove with apt-get what you do not need)"
    if cargo nextest --version >/dev/null 2>&1; then left "cargo-nextest (remove with: cargo uninstall cargo-nextest)"; fi
    left "cargo's build output under target/ (remove with: cargo clean)"
}

has_live=no
remove_user
remove_target_folders
remove_process_folders "$temporary" palisade-suite palisade-test palisade-runs palisade-engine
remove_process_folders "$bait_parent" palisade-escape
remove_builds
say_what_stays
if [ "$is_dry" = yes ]; then
    echo "clean: nothing was removed (--dry-run)"
else
    echo "clean: $removed removed, $failures failed"
fi
[ "$failures" -eq 0 ]
