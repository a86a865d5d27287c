#!/usr/bin/env bash
# Installs the real MCP servers that crates/upstreams is tested with, once, under target/upstreams.
#
# everything, filesystem, memory and sequential-thinking by npm; git, time and fetch by pip, in the newest versions. js-tiktoken
# counts tokens for benches/codemode.py. Where no package registry can be
# reached, the tests with them are skipped, loudly.
#
# playwright, github, gitlab and slack by npm, in fixed versions: benches/codemode.py counts the tokens of their definitions,
# and no test needs them. Their install scripts are not run, and one that cannot be had is left out.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail

cd "$(dirname "$0")/../.."
readonly folder="$PWD/target/upstreams"
readonly install_timeout_s=600
readonly counted_timeout_s=120
readonly counted=(
    @playwright/mcp@0.0.83
    @modelcontextprotocol/server-github@2025.4.8
    @modelcontextprotocol/server-gitlab@2025.4.25
    @modelcontextprotocol/server-slack@2025.4.25
)

npm_install() {
    (cd "$folder/js" && timeout "$1" npm install --silent --no-fund --no-audit "${@:2}")
}

if [ ! -e "$folder/stamp" ]; then
    rm -rf "$folder"
    mkdir -p "$folder/js"
    python3 -m venv "$folder/py"
    timeout "$install_timeout_s" "$folder/py/bin/pip" install --quiet --retries 1 mcp-server-git mcp-server-time mcp-server-fetch
    npm_install "$install_timeout_s" @modelcontextprotocol/server-everything @modelcontextprotocol/server-filesystem \
        @modelcontextprotocol/server-memory @modelcontextprotocol/server-sequential-thinking js-tiktoken
    touch "$folder/stamp"
fi
if [ ! -e "$folder/stamp-counted" ]; then
    # All at once is faster; one by one finds those that are still there.
    if ! npm_install "$counted_timeout_s" --ignore-scripts "${counted[@]}"; then
        for package in "${counted[@]}"; do
            npm_install "$counted_timeout_s" --ignore-scripts "$package" || echo "not installed: $package" >&2
        done
    fi
    touch "$folder/stamp-counted"
fi
echo "installed: $folder"
