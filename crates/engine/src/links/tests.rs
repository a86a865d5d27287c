//! Links over a table without a sandbox.
