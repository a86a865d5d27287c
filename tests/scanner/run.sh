#!/usr/bin/env bash
# Scans `palisade mcp` with the real ToolTrust scanner: every tool must have grade A.
#
# The scanner is a Go program. It is built through the Go module proxy into target/scanner, and it runs without a network,
# because it would ask a vulnerability database elsewhere. Where it cannot be built, the step is skipped, loudly.
set -euo pipefail

cd "$(dirname "$0")/../.."
readonly version=v0.3.8
readonly module=github.com/AgentSafe-AI/tooltrust-scanner/cmd/tooltrust-scanner
readonly folder=$PWD/target/scanner
readonly palisade=${PALISADE_BIN:?the product}

skip() {
    echo "!!!! SKIPPED: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

mkdir -p "$folder"
scanner=$folder/bin/tooltrust-scanner
if [ ! -x "$scanner" ]; then
    command -v go >/dev/null || skip "no Go toolchain here"
    GOPATH=$folder GOFLAGS=-modcacherw go install "$module@$version" || skip "the scanner $version cannot be built (see above)"
fi

report=$folder/report.json
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
unshare --net --map-root-user "$scanner" scan --server "$palisade --state-dir $state mcp" --output json --file "$report"
python3 - "$report" <<'PYTHON'
import json, sys

def grades(value):
    if isinstance(value, dict):
        if "grade" in value:
            yield value.get("name") or value.get("tool_name") or "(summary)", value["grade"]
        for part in value.values():
            yield from grades(part)
    elif isinstance(value, list):
        for part in value:
            yield from grades(part)

found = list(grades(json.load(open(sys.argv[1]))))
for name, grade in found:
    print(f"{name}: {grade}")
wrong = [name for name, grade in found if grade != "A"]
passed = len(found) - len(wrong)
failed = len(wrong) if found else 1
print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(failed != 0)
PYTHON
