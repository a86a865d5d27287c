#!/usr/bin/env bash
# Fetches what tests/functional/supply works from, with the built product, into target/supply: the resolver, and the packages
# that agents ask for most. scripts/test.sh calls it before the tests, which need no network.
#
# usage: PALISADE_BIN=PATH tests/functional/supply/fetch.sh
#
# resolver/, pypi/, npm/ and go/ are state directories. Each has a stamp that names what it was made for; one whose stamp is
# right is left as it is. The exit status is 1 where one could not be fetched: the tests that need it say SKIPPED.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi
set -euo pipefail

cd "$(dirname "$0")/../../.."
readonly folder="$PWD/target/supply"
readonly palisade=${PALISADE_BIN:-$PWD/target/real/palisade}
readonly python=(httpx lxml matplotlib numpy openpyxl pandas pillow requests scikit-learn scipy)
readonly javascript=(axios lodash typescript zod)
readonly modules=(github.com/google/uuid github.com/spf13/cobra golang.org/x/text gopkg.in/yaml.v3)
readonly fetch_timeout_s=600
# That of tests/harness: a layer belongs to the interpreter for which it was built.
readonly search_path=/usr/local/bin:/usr/bin:/bin:/usr/local/go/bin

# Everything on which a layer depends beside its requirements. The pinned resolver is in uv.rs.
version_of() { PATH=$search_path "$1" --version 2>/dev/null || echo none; }
resolver_pin() { sed -n 's/.*"\([0-9a-f]\{64\}\)".*/\1/p' crates/packages/src/tools/uv.rs | tr '\n' ' '; }
readonly made_for="1 $(uname -m) $(version_of python3) $(version_of node) $(resolver_pin)"

go_version() { PATH=$search_path go version 2>/dev/null || echo none; }

# fetch NAME ECOSYSTEM PACKAGE...: into a folder that gets its name when it is complete.
fetch() {
    local name=$1 from=$2 stamp
    shift 2
    stamp="$made_for $*"
    if [ "$from" = go ]; then stamp="1 $(go_version) $*"; fi
    if [ "$(cat "$folder/$name/stamp" 2>/dev/null)" = "$stamp" ]; then return 0; fi
    rm -rf "$folder/$name" "$folder/new-$name"
    mkdir -p "$folder/new-$name"
    chmod 700 "$folder/new-$name"
    if ! PATH=$search_path LANG=C.UTF-8 PALISADE_STATE_DIR="$folder/new-$name" PALISADE_PACKAGES_ENABLED=true PALISADE_LOG=error \
        timeout "$fetch_timeout_s" "$palisade" packages prepare --from "$from" -- "$@"; then
        rm -rf "$folder/new-$name"
        echo "SKIPPED: $name: not fetched from this machine's registry: $*"
        return 1
    fi
    echo "$stamp" >"$folder/new-$name/stamp"
    mv "$folder/new-$name" "$folder/$name"
    echo "fetched: $folder/$name"
}

status=0
fetch resolver pypi six || status=1
fetch pypi pypi "${python[@]}" || status=1
fetch npm npm "${javascript[@]}" || status=1
if [ "$(go_version)" = none ]; then
    echo "SKIPPED: go: there is no Go on this machine"
else
    fetch go go "${modules[@]}" || status=1
fi
exit "$status"
