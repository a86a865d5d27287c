//! What differs behind a wall by its own nature: other outcomes, and verdicts about a kernel that is the sandbox's own.
//!
//! An attack that says ESCAPED is a failure, unless a row names its words: what it got is gVisor's, and nothing of the host.

use crate::attack::Attack;

/// One difference.
#[derive(Debug)]
pub struct Nature {
    /// The wall.
    pub wall: &'static str,
    /// The attack.
    pub attack: &'static str,
    /// Its outcomes there, besides its own.
    pub outcomes: &'static [&'static str],
    /// The words of verdicts that reach nothing of the host.
    pub says: &'static [&'static str],
    /// Why.
    pub reason: &'static str,
}

const fn gvisor(
    attack: &'static str,
    outcomes: &'static [&'static str],
    says: &'static [&'static str],
    reason: &'static str,
) -> Nature {
    Nature { wall: "gvisor", attack, outcomes, says, reason }
}

/// A difference of an engine.
const fn engine(wall: &'static str, attack: &'static str, reason: &'static str) -> Nature {
    Nature { wall, attack, outcomes: &["failed"], says: &[], reason }
}

const X32: &str = "the engine's system-call filter kills a process that uses this table of calls";

/// Every difference.
pub const NATURE: [Nature; 16] = [
    gvisor(
        "exhaust_connections.py",
        &[],
        &[" connections at once"],
        "the connections are in gVisor's network stack, within the memory limit; the host has none",
    ),
    gvisor(
        "exhaust_locks.py",
        &[],
        &[" locks, of an open file description"],
        "the locks are in gVisor's kernel; no file of the host is locked",
    ),
    gvisor(
        "exhaust_pipes_named.py",
        &["killed"],
        &[],
        "the host refuses threads to gVisor itself, which ends the sandbox",
    ),
    gvisor(
        "exhaust_processes.py",
        &["killed"],
        &[" processes at once"],
        "the control group has an allowance for gVisor; beyond it the host refuses gVisor itself, which ends the sandbox",
    ),
    gvisor(
        "exhaust_terminals.py",
        &[],
        &["600 terminals of one process"],
        "the terminals are in gVisor's kernel, within the memory limit",
    ),
    gvisor(
        "exhaust_threads.py",
        &["killed"],
        &[" threads at once"],
        "the control group has an allowance for gVisor, so a program may have more than its limit",
    ),
    gvisor(
        "exhaust_timers.py",
        &[],
        &["3000 timers"],
        "the timers are in gVisor's kernel, within the memory limit",
    ),
    gvisor(
        "exhaust_watches_hidden.c",
        &["killed"],
        &["400000 watches"],
        "the watches are in gVisor's kernel, within the memory limit; beyond it the host ends the sandbox",
    ),
    gvisor("exhaust_zombies.py", &["killed"], &[" zombies at once"], "zombies are no processes of the host"),
    gvisor("kernel_devices.py", &[], &["fuse gave", "net/tun gave"], "both devices are gVisor's own"),
    gvisor(
        "process_kill_first.py",
        &["killed"],
        &[],
        "process 1 can be killed, which ends this sandbox and nothing else",
    ),
    gvisor(
        "read_guest_environment.py",
        &[],
        &["environ gave 17", "fd gave ", "auxv gave "],
        "it is HOME=/home/agent and what process 1 of the same sandbox has; its descriptors cannot be opened",
    ),
    gvisor(
        "read_proc_of_host.py",
        &[],
        &[
            "/proc/cmdline gave b'BOOT_IMAGE=/vmlinuz-4.4.0-gvisor quiet",
            "/proc/cmdline gave b'BOOT_IMAGE=/vmlinuz-4.19.0-gvisor quiet",
        ],
        "the command line is that of gVisor's kernel, the same on every machine",
    ),
    gvisor(
        "resurrection_storm.py",
        &["killed"],
        &[],
        "the host refuses a thread to gVisor itself, which ends the sandbox",
    ),
    engine("docker", "kernel_x32_calls.c", X32),
    engine("podman", "kernel_x32_calls.c", X32),
];

/// The attack with the outcomes that it may have behind that wall.
pub fn behind(wall: &str, attack: &Attack) -> Attack {
    let mut attack = attack.clone();
    let own = NATURE.iter().filter(|nature| nature.wall == wall && nature.attack == attack.name);
    let own: Vec<&Nature> = own.collect();
    let more: Vec<String> =
        own.iter().flat_map(|nature| nature.outcomes).map(|word| (*word).to_owned()).collect();
    attack.excused = own.iter().flat_map(|nature| nature.says).map(|words| (*words).to_owned()).collect();
    attack.silent.clone_from(&more);
    if !more.is_empty() && attack.outcomes.is_empty() {
        attack.outcomes.push("completed".to_owned());
    }
    attack.outcomes.extend(more);
    attack
}
