//! Remedies for missing guarantees and languages, as exact commands for the operator.

use backends::native::{GroupMounts, Surroundings};
use engine::{Engine, Wall, WallFailure};
use sandbox::BackendError;

use super::LanguageFinding;
use crate::config::wall::NATIVE;
use crate::machine::Machine;
use crate::walls;

/// What rustup's shims ask for when they have no toolchain.
const RUSTUP_DEFAULT: &str = "rustup default stable";

/// Remedies for the machine as a whole.
pub(super) fn for_machine(
    machine: &Machine,
    wall: &Wall,
    wall_problem: Option<&BackendError>,
) -> Vec<String> {
    let mut list = Vec::new();
    if let Some(error) = wall_problem {
        let failure = WallFailure::of(error);
        list.push(format!("{}: {}", failure.summary(), failure.remedy));
        return list;
    }
    if wall.name() != NATIVE {
        return list;
    }
    let cgroups = machine.native.cgroup_state();
    let around = Surroundings::read();
    if let Some(reason) = cgroups.reason {
        list.push(without_groups(&around, &reason));
    }
    if machine.native.shares_own_identity() && !around.is_contained() {
        list.push(
            "sandboxes have this user's own id on the host, and share this user's allowances (pipe pages, epoll watches, descriptors \
             in flight): as root, `apt-get install uidmap` and `usermod --add-subuids \
             100000-165535 --add-subgids 100000-165535 USER` give them ids of their own"
                .to_owned(),
        );
    }
    list
}

/// What an operator should know about the engine behind a wall.
pub(super) async fn for_engine(machine: &Machine, wall: &Wall) -> Vec<String> {
    let Some(engine) = walls::engine_of(wall.name()) else { return Vec::new() };
    let settings = &machine.settings.wall;
    let socket = walls::socket(settings, engine);
    match settings.images.get(engine.name()) {
        Some(image) => {
            let checked = backends::daemon::check_image(&socket, &image.value).await;
            checked.map(|report| report.warnings).unwrap_or_default()
        }
        None => backends::daemon::check_engine(&socket).await.unwrap_or_default(),
    }
}

/// What keeps the limits without control groups, and how to get groups.
fn without_groups(around: &Surroundings, reason: &str) -> String {
    let stand_ins =
        "limits of memory, processes or processor share are kept by stand-ins, as no cgroup is delegated";
    if !around.is_contained() {
        return format!(
            "{stand_ins} ({reason}): start palisade with `systemd-run --user --scope -p Delegate=yes palisade ...`, or run it as root"
        );
    }
    let why = match around.groups {
        GroupMounts::Absent => "control groups are not mounted in this container",
        GroupMounts::ReadOnly => "control groups are mounted read-only in this container",
        GroupMounts::Writable => reason,
    };
    format!(
        "{stand_ins} ({why}): give the container itself a limit of memory, processes and cores, as docs/CONTAINERS.md shows; all \
         sandboxes together cannot exceed it"
    )
}

/// The remedy for a language that does not work.
pub(super) fn for_language(engine: &Engine, finding: &LanguageFinding) -> Option<String> {
    let install = engine.runtimes().install_command(&finding.name)?;
    let problem = finding.problem.as_deref().unwrap_or_default();
    Some(format!("{}: {}", finding.name, command(&install, problem)))
}

/// The command that repairs a language. Where rustup is installed without a default toolchain, the language itself need
/// not be installed.
fn command<'a>(install: &'a str, problem: &str) -> &'a str {
    if problem.contains(RUSTUP_DEFAULT) { RUSTUP_DEFAULT } else { install }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rustup_without_a_toolchain_needs_a_toolchain() {
        let shim = "rustup could not choose a version of rustc to run, because one wasn't specified explicitly, and no default is configured.\n\
                    help: run 'rustup default stable' to download the latest stable release of Rust and set it as your default toolchain.";
        assert_eq!(command("apt-get install rustc gcc", shim), RUSTUP_DEFAULT);
        let none = "no rustc on the PATH";
        assert_eq!(command("apt-get install rustc gcc", none), "apt-get install rustc gcc");
    }
}
