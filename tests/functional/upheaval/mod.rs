//! Tests that kill palisades, start many at once and count what is left on the machine. They run one at a time and beside
//! no other test: what a killed palisade of another test leaves would be counted here.

mod approval_kills;
mod audit_kills;
mod chaos;
mod chaos_probe;
mod gate_kills;
mod leaks;
mod sandbox_crash;
mod uploads;
