//! The writer and its reader together.
