//! Installing packages from a hostile mirror: what a package, an index or a requirement may try, and what comes of it.
//!
//! The mirror is a Python program on loopback (`mirror.py`). The resolver comes from the machine's own registry at
//! set-up, once; without it these tests are skipped loudly.

mod environment;
mod hostile_files;
mod hostile_index;
mod popular;
mod rules;
mod store;
mod tools;
