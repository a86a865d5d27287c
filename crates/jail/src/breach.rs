//! Walls that test builds can switch off, to show that every attack succeeds without its wall.
//!
//! The escape suite uses this. In a build without the feature `breach` the answer is a constant and no input
//! is read.

/// A wall that the escape suite attacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wall {
    /// The system-call filter.
    Seccomp,
    /// Landlock.
    Landlock,
    /// The network namespace.
    Network,
    /// The process namespace.
    Pid,
    /// The namespace of System V IPC and POSIX message queues.
    Ipc,
    /// The host name namespace.
    Uts,
    /// The private root. When it is off, the host's root is visible at `/host`, writable.
    Root,
    /// Read-only binds.
    Readonly,
    /// Masks that cover parts of procfs.
    Masks,
    /// Limits of each process.
    Rlimits,
    /// Control groups.
    Cgroup,
    /// Size limits of the writable space.
    Scratch,
    /// The guest's protection from its siblings.
    Dumpable,
    /// Empty capability sets.
    Capabilities,
    /// Closing of inherited file descriptors.
    Descriptors,
    /// The host's examination of the process before a program is sent.
    Verify,
    /// Limits on time, memory and output that the server itself enforces.
    Watchdog,
}

#[cfg(not(feature = "breach"))]
mod switch {
    pub(super) const fn is_off(_wall: super::Wall) -> bool {
        false
    }

    pub(super) const fn remember() {}

    pub(super) const fn pass_on(_command: &mut std::process::Command) {}
}

#[cfg(feature = "breach")]
mod switch {
    use std::sync::OnceLock;

    static OFF: OnceLock<String> = OnceLock::new();

    fn list() -> &'static str {
        OFF.get_or_init(|| std::env::var("PALISADE_WALLS_OFF").unwrap_or_default())
    }

    pub(super) fn is_off(wall: super::Wall) -> bool {
        let name = format!("{wall:?}").to_lowercase();
        list().split(',').any(|word| word == name)
    }

    pub(super) fn remember() {
        list();
    }

    pub(super) fn pass_on(command: &mut std::process::Command) {
        command.env("PALISADE_WALLS_OFF", list());
    }
}

impl Wall {
    /// Whether a test build switched this wall off.
    pub fn off(self) -> bool {
        switch::is_off(self)
    }
}

/// Reads the list of disabled walls before the environment is scrubbed.
pub(crate) fn remember() {
    switch::remember();
}

/// Passes the list to a zygote process.
pub(crate) fn pass_on(command: &mut std::process::Command) {
    switch::pass_on(command);
}
