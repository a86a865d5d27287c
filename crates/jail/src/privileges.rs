//! Reduces what a process may do: resource limits, capabilities, visibility.
//!
//! The clone (`raise`) and the zygote process call it on themselves. The order of the steps is decided there,
//! not here.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::breach::Wall;
use crate::{Kernel, Rlimits};

/// A size that no legitimate program exceeds: locked memory, message queues.
const SMALL_BYTES: u64 = 64 << 10;
const PENDING_SIGNALS: u64 = 1024;
/// No core file, and no core handler of the host either. With the value 0 the kernel would still start a
/// handler; 1 disables both. See core(5) and the kernel's coredump.c. Programs may not change it
/// (`seccomp::profile`).
pub(crate) const CORE_BYTES: u64 = 1;
const LAST_CAPABILITY_MAX: u32 = 63;

/// Lets the host read this process's namespaces, because a change of identity cleared the dumpable flag. See
/// proc(5).
pub(crate) fn be_visible_to_host() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Prevents programs of the sandbox, which have the same user, from opening /proc/1/mem and /proc/1/exe.
pub(crate) fn be_hidden_from_siblings() -> io::Result<()> {
    if Wall::Dumpable.off() {
        return Ok(());
    }
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Gives the server, which measures this sandbox, priority for the processor where no control group limits
/// the sandbox's share. The program cannot undo it: RLIMIT_NICE is 0. See setpriority(2).
pub(crate) fn yield_to_watch() -> io::Result<()> {
    const NICE: i32 = 5;
    // A server that is nice itself has yielded already, and an ordinary user cannot take that back.
    if rustix::process::getpriority_process(None)? >= NICE {
        return Ok(());
    }
    Ok(rustix::process::setpriority_process(None, NICE)?)
}

pub(crate) fn set_hostname(name: &str) -> io::Result<()> {
    Ok(rustix::system::sethostname(name.as_bytes())?)
}

/// Ends the child when the spawner ends. A spawner that ended before this call has closed the report socket.
pub(crate) fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Sets the limits that the kernel keeps per process, never above this process's own limits.
pub(crate) fn limit(limits: &Rlimits) -> io::Result<()> {
    limit_on(Kernel::Host, limits)
}

/// The same on either kernel. gVisor has some of these limits and refuses to set the others.
pub(crate) fn limit_on(kernel: Kernel, limits: &Rlimits) -> io::Result<()> {
    if Wall::Rlimits.off() {
        return Ok(());
    }
    let wanted = [
        (Resource::Cpu, limits.cpu_s),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Nofile, limits.open_files),
        (Resource::Nproc, limits.processes),
        (Resource::Core, CORE_BYTES),
        (Resource::Memlock, SMALL_BYTES),
        (Resource::Msgqueue, SMALL_BYTES),
        (Resource::Sigpending, PENDING_SIGNALS),
        (Resource::Nice, 0),
        (Resource::Rtprio, 0),
    ];
    for (resource, value) in wanted {
        let hard = rustix::process::getrlimit(resource).maximum.map_or(value, |maximum| maximum.min(value));
        match rustix::process::setrlimit(resource, Rlimit { current: Some(hard), maximum: Some(hard) }) {
            Err(rustix::io::Errno::PERM) if kernel == Kernel::Own => {}
            set => set?,
        }
    }
    limit_stack(limits.stack_bytes)
}

/// Sets the core limit alone.
pub(crate) fn leave_no_core() -> io::Result<()> {
    let maximum = rustix::process::getrlimit(Resource::Core).maximum;
    let limit = Some(maximum.map_or(CORE_BYTES, |maximum| maximum.min(CORE_BYTES)));
    Ok(rustix::process::setrlimit(Resource::Core, Rlimit { current: limit, maximum: limit })?)
}

/// Sets the stack of programs to a known size, whatever the server was started with. A stack counts as memory, so
/// the hard limit stays.
fn limit_stack(bytes: u64) -> io::Result<()> {
    let maximum = rustix::process::getrlimit(Resource::Stack).maximum;
    let current = Some(maximum.map_or(bytes, |maximum| maximum.min(bytes)));
    Ok(rustix::process::setrlimit(Resource::Stack, Rlimit { current, maximum })?)
}

/// Keeps exactly the current capabilities across exec. See capabilities(7), ambient.
pub(crate) fn keep_over_exec() -> io::Result<()> {
    let own = rustix::thread::capabilities(None)?.permitted;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: own, permitted: own, inheritable: own },
    )?;
    for number in 0..=LAST_CAPABILITY_MAX {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if own.contains(capability) {
            rustix::thread::configure_capability_in_ambient_set(capability, true)?;
        }
    }
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Confirms that this process has no capability, and prevents gaining one. For a process whose runtime dropped them.
pub(crate) fn have_none() -> io::Result<()> {
    let own = rustix::thread::capabilities(None)?;
    let held = own.effective | own.permitted | own.inheritable;
    if !held.is_empty() && !Wall::Capabilities.off() {
        return Err(io::Error::other("the runtime left capabilities"));
    }
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Empties every capability set and prevents regaining any capability. See capabilities(7).
pub(crate) fn drop_all() -> io::Result<()> {
    if Wall::Capabilities.off() {
        return Ok(rustix::thread::set_no_new_privs(true)?);
    }
    for number in 0..=LAST_CAPABILITY_MAX {
        // The kernel knows fewer capabilities; the first unknown number ends the list.
        let Some(capability) = CapabilitySet::from_bits(1 << number) else { break };
        if rustix::thread::remove_capability_from_bounding_set(capability).is_err() {
            break;
        }
    }
    rustix::thread::set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    Ok(rustix::thread::set_no_new_privs(true)?)
}
