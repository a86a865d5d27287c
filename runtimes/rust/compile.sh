# Compiles a program: $1 the compiler, $2 where the product goes, $3 the file. Modules beside it are found by rustc itself.
set -eu
rustc=$1 build=$2 source=$3
set -- --edition 2024 -C opt-level=1 -C overflow-checks=on -C debuginfo=0 -C strip=symbols --color never
if [ -f /palisade/vars.rs.in ]; then
    "$rustc" "$@" -C codegen-units=1 --crate-type rlib --crate-name vars -o /tmp/libvars.rlib /palisade/vars.rs.in
    set -- "$@" --extern vars=/tmp/libvars.rlib
fi
exec "$rustc" "$@" --crate-name main -o "$build/program" "$source"
