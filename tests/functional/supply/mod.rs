//! Installing packages from a hostile mirror: what a package, an index or a requirement may try, and what comes of it.
//!
//! The mirror is a Python program on loopback (`mirror.py`). The resolver and the packages of `popular` come
//! from the machine's registries before the tests (`fetch.sh`). Without them these tests are skipped loudly; they fetch nothing. Go
//! modules have a proxy and a checksum database of their own (`gomirror.py`).

mod environment;
mod go;
mod go_hostile;
mod hostile_files;
mod hostile_index;
mod popular;
mod rules;
mod store;
mod tools;
