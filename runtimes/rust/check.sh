# Looks at main.rs without running it, nor any of it: no macro of its own is compiled. $1 is the compiler.
set -eu
exec "$1" --edition 2024 --color never --emit=metadata --crate-name main -o /tmp/main.rmeta main.rs
