#!/usr/bin/env bash
# Installs what the tests need on a Debian-like machine. Safe to run again; silent about what is already there.
#
# What cannot be had (no root, no package index) is said and skipped: the suite still runs, and the tests that
# need it fail or skip with their own message. What is needed is listed in tests/setup/.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail
umask 022 # the unprivileged test user has to read what is made here

cd "$(dirname "$0")/.."
readonly setup_dir=tests/setup
readonly venv_dir=target/test-venv
readonly log=target/test-logs/setup.log
readonly test_user=${PALISADE_TEST_USER:-palisade-test}
readonly install_timeout_s=600
readonly nextest_timeout_s=1200

steps_done=0
steps_skipped=0

did() {
    steps_done=$((steps_done + 1))
    echo "setup: done: $*"
}

skipped() {
    steps_skipped=$((steps_skipped + 1))
    echo "setup: SKIPPED: $*"
}

is_root() { [ "$(id -u)" -eq 0 ]; }

# Lines of a list in tests/setup without comments and blank lines.
entries() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$setup_dir/$1"; }

is_there() {
    case $1 in
        /*) [ -e "$1" ] ;;
        *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

missing_packages() {
    local package probe
    entries packages.txt | while read -r package probe; do
        is_there "$probe" || echo "$package"
    done
}

apt_install() {
    local options=(-y -qq -o DPkg::Lock::Timeout=120)
    {
        DEBIAN_FRONTEND=noninteractive timeout "$install_timeout_s" apt-get update -qq || true
        DEBIAN_FRONTEND=noninteractive timeout "$install_timeout_s" \
            apt-get install "${options[@]}" --no-install-recommends "$@"
    } </dev/null >>"$log" 2>&1
}

install_packages() {
    local missing
    missing=$(missing_packages | tr '\n' ' ')
    missing=${missing% }
    [ -n "$missing" ] || return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        skipped "no apt-get here; install what provides: $missing"
    elif ! is_root; then
        skipped "not root; missing packages: $missing"
    else
        install_missing "$missing"
    fi
}

# All at once; if that fails, one by one, so that one unknown name does not keep the others away.
install_missing() {
    local package left
    # shellcheck disable=SC2086 # a list of package names, split on purpose
    if ! apt_install $1; then
        for package in $1; do apt_install "$package" || true; done
    fi
    left=$(missing_packages | tr '\n' ' ')
    if [ -n "$left" ]; then
        echo "setup: !!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!"
        skipped "apt-get could not install: ${left% } (see $log); tests that need them are skipped by name"
        echo "setup: !!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!"
    fi
    if [ "${left% }" != "$1" ]; then did "installed packages: those of $1 that are there now"; fi
}

# The suite proves that the wall stands for an ordinary user without sub-ids, so the user must have none.
create_test_user() {
    local useradd=/usr/sbin/useradd
    if ! id -u "$test_user" >/dev/null 2>&1; then
        if ! is_root; then
            skipped "not root; user $test_user is missing, tests that change the user cannot run"
            return 0
        fi
        if ! { [ -x "$useradd" ] && "$useradd" --system --no-create-home --home-dir /nonexistent \
            --shell /usr/sbin/nologin "$test_user" >>"$log" 2>&1; }; then
            skipped "useradd could not create user $test_user (see $log)"
            return 0
        fi
        did "created the host user $test_user: a system account without login, home or sub-ids; scripts/test.sh --clean removes it"
    fi
    if grep -qs "^$test_user:" /etc/subuid /etc/subgid; then
        skipped "user $test_user has sub-ids in /etc/subuid or /etc/subgid: remove them, the suite counts on none"
    fi
}

host_python() {
    if [ -x /usr/bin/python3 ]; then
        echo /usr/bin/python3
    else
        command -v python3
    fi
}

# `--clear` because a venv that was begun and not finished would be taken for a whole one.
make_venv() { "$1" -m venv --clear "$venv_dir" </dev/null >>"$log" 2>&1; }

venv_has_packages() {
    local modules
    modules=$(entries requirements.txt | tr '\n' ',')
    [ -x "$venv_dir/bin/python" ] && "$venv_dir/bin/python" -c "import ${modules%,}" >/dev/null 2>&1
}

install_venv() {
    local python
    venv_has_packages && return 0
    if ! python=$(host_python); then
        skipped "no python3: no test venv"
        return 0
    fi
    if ! make_venv "$python"; then
        if ! { is_root && command -v apt-get >/dev/null 2>&1 && apt_install python3-venv && make_venv "$python"; }; then
            skipped "$python cannot make a venv: install the package python3-venv"
            return 0
        fi
        did "installed packages: python3-venv"
    fi
    if timeout "$install_timeout_s" "$venv_dir/bin/python" -m pip install --quiet --prefer-binary --retries 1 \
        --requirement "$setup_dir/requirements.txt" </dev/null >>"$log" 2>&1 && venv_has_packages; then
        did "made $venv_dir with $(entries requirements.txt | tr '\n' ' ')"
    else
        echo "setup: !!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!"
        skipped "pip could not install the Python packages: is a package index reachable? (see $log)"
        echo "setup: !!!! that numpy, pandas and the others work behind the wall stays unproved"
        echo "setup: !!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!"
    fi
}

# Bounds every test in time and keeps tests apart that would count each other's processes (.config/nextest.toml). Compiled
# from source, once, into cargo's own folder.
install_nextest() {
    if ! command -v cargo >/dev/null 2>&1; then PATH="${HOME:-/nonexistent}/.cargo/bin:$PATH"; fi
    if ! command -v cargo >/dev/null 2>&1 || cargo nextest --version >/dev/null 2>&1; then return 0; fi
    echo "setup: compiling cargo-nextest, which takes some minutes"
    if timeout "$nextest_timeout_s" cargo install cargo-nextest --locked </dev/null >>"$log" 2>&1; then
        did "installed cargo-nextest"
    else
        skipped "cargo-nextest could not be installed (see $log): cargo test runs the tests, without a time limit for each"
    fi
}

mkdir -p "$(dirname "$log")"
: >"$log"
install_packages
create_test_user
install_venv
install_nextest
if [ $((steps_done + steps_skipped)) -eq 0 ]; then
    echo "setup: everything is there"
else
    echo "setup: $steps_done done, $steps_skipped skipped"
fi
