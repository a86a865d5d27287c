//! Walls that test builds can switch off, so that every attack is seen to succeed without its wall.
//!
//! In a build without the feature `breach` the answer is a constant and nothing is read.

/// A wall that has attacks of its own in the escape suite.
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
    /// The System V and message queue namespace.
    Ipc,
    /// The host name namespace.
    Uts,
    /// The root made from nothing: off shows the host's root at `/host`, writable.
    Root,
    /// Read-only binds.
    Readonly,
    /// Masks over procfs.
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
    /// Closing inherited descriptors.
    Descriptors,
    /// The host's look at the wall before code is sent.
    Verify,
    /// Limits on time, memory and output kept by the host itself.
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

/// Reads the list before the environment is scrubbed.
pub(crate) fn remember() {
    switch::remember();
}

/// Lets a zygote know the list.
pub(crate) fn pass_on(command: &mut std::process::Command) {
    switch::pass_on(command);
}
