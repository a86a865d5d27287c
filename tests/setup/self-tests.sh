#!/usr/bin/env bash
# The tests of the test command itself: tests/setup/self-tests.sh. Result lines are libtest's.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail
cd "$(dirname "$0")"

status=0
bash count-results-test.sh || status=1
bash test-command-test.sh || status=1
exit "$status"
