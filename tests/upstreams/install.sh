#!/usr/bin/env bash
# Installs the real MCP servers that crates/upstreams is tested with, once, under target/upstreams.
#
# everything, filesystem, memory and sequential-thinking by npm; git, time and fetch by pip, in the newest versions. js-tiktoken
# counts tokens for benches/codemode.py. Where no package registry can be
# reached, the tests with them are skipped, loudly.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail

cd "$(dirname "$0")/../.."
readonly folder="$PWD/target/upstreams"
readonly install_timeout_s=600
[ -e "$folder/stamp" ] && exit 0
rm -rf "$folder"
mkdir -p "$folder/js"
python3 -m venv "$folder/py"
timeout "$install_timeout_s" "$folder/py/bin/pip" install --quiet --retries 1 mcp-server-git mcp-server-time mcp-server-fetch
(cd "$folder/js" && timeout "$install_timeout_s" npm install --silent --no-fund --no-audit \
    @modelcontextprotocol/server-everything @modelcontextprotocol/server-filesystem @modelcontextprotocol/server-memory \
    @modelcontextprotocol/server-sequential-thinking js-tiktoken)
touch "$folder/stamp"
echo "installed: $folder"
