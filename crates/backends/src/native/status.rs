//! Reading a process from outside: /proc/PID/status, /proc/PID/stat. See proc(5).

use std::io;

use super::kernel_file;

/// The lines of `status` as name and value.
pub(super) struct Status(String);

impl Status {
    pub(super) fn read(pid: i32) -> io::Result<Self> {
        kernel_file::read(format!("/proc/{pid}/status")).map(Self)
    }

    pub(super) fn get(&self, name: &str) -> &str {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map_or("", str::trim)
    }

    /// A value in kilobytes, as bytes.
    pub(super) fn bytes(&self, name: &str) -> u64 {
        self.get(name).split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
    }

    pub(super) fn number(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }
}

/// Processor time of a process, and of its children that were waited for, in clock ticks.
pub(super) fn cpu_ticks(pid: i32) -> (u64, u64) {
    let Ok(text) = kernel_file::read(format!("/proc/{pid}/stat")) else { return (0, 0) };
    // The name may hold anything; fields begin after its closing bracket.
    let Some((_, rest)) = text.rsplit_once(')') else { return (0, 0) };
    let field = |number: usize| {
        // `rest` begins with field 3.
        rest.split_whitespace().nth(number - 3).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0)
    };
    (field(14) + field(15), field(16) + field(17))
}
