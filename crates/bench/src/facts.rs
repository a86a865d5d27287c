//! Facts about the machine, for judging the figures: kernel, processor, memory. No names of hosts or users,
//! no paths.

use std::fs;

use serde::Serialize;

/// The machine.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Facts {
    pub(super) kernel: String,
    pub(super) architecture: &'static str,
    pub(super) cores: usize,
    pub(super) cpu: String,
    pub(super) memory_mb: u64,
    /// Load average over one minute, before the benchmark.
    pub(super) load_before: f64,
    pub(super) user: &'static str,
}

impl Facts {
    pub(super) fn find() -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            architecture: std::env::consts::ARCH,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            memory_mb: field("/proc/meminfo", "MemTotal").and_then(|text| kilobytes(&text)).unwrap_or(0)
                / 1024,
            load_before: first_number("/proc/loadavg").unwrap_or(0.0),
            user: if is_root { "root" } else { "an ordinary user" },
        }
    }
}

/// The value of the first line with that name in a file of `name: value`.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim().to_owned())
    })
}

fn kilobytes(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

fn first_number(file: &str) -> Option<f64> {
    fs::read_to_string(file).ok()?.split_whitespace().next()?.parse().ok()
}
