//! Landlock as a second wall for files: even with a mistake in the mounts, a program cannot write elsewhere.
//!
//! The root was built from an empty one, so reading is allowed everywhere in it. Writing is allowed only
//! where the plan put writable space. The clone calls it on itself, shortly before the system-call filter
//! (`raise`). From ABI 6 on, Landlock also confines abstract sockets and signals. See landlock(7).

use std::io;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::JailPlan;
use crate::breach::Wall;

/// Devices and terminals that programs write to.
const WRITABLE_DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/pts"];
/// A process writes its own attributes here (comm, oom_score_adj). Attempts to write uid_map are refused
/// elsewhere.
const WRITABLE_PROC: &str = "/proc";

/// Restricts this process irrevocably. Returns the ABI version in force, 0 if the kernel has no Landlock.
pub(crate) fn restrict(plan: &JailPlan) -> io::Result<u32> {
    if Wall::Landlock.off() {
        return Ok(0);
    }
    let rules = build(plan).map_err(io::Error::other)?;
    let status = rules.restrict_self().map_err(io::Error::other)?;
    match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => Ok(0),
        (_, LandlockStatus::Available { effective_abi, .. }) => Ok(effective_abi as u32),
        _ => Ok(0),
    }
}

fn build(plan: &JailPlan) -> Result<RulesetCreated, Box<dyn std::error::Error + Send + Sync>> {
    let abi = ABI::V6;
    let all = AccessFs::from_all(abi);
    let read = AccessFs::from_read(abi);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::from_all(abi))?
        .create()?
        .add_rule(PathBeneath::new(PathFd::new("/")?, read))?;
    for path in plan.writable() {
        rules = allow(rules, &path.to_string_lossy(), all)?;
    }
    let device: BitFlags<AccessFs> =
        AccessFs::WriteFile | AccessFs::ReadFile | AccessFs::IoctlDev | AccessFs::Truncate;
    for path in WRITABLE_DEVICES {
        rules = allow(rules, path, device)?;
    }
    allow(rules, WRITABLE_PROC, AccessFs::WriteFile | AccessFs::ReadFile)
}

fn allow(
    rules: RulesetCreated,
    path: &str,
    access: impl Into<BitFlags<AccessFs>>,
) -> Result<RulesetCreated, Box<dyn std::error::Error + Send + Sync>> {
    match PathFd::new(path) {
        Ok(descriptor) => Ok(rules.add_rule(PathBeneath::new(descriptor, access.into()))?),
        Err(_) => Ok(rules),
    }
}
