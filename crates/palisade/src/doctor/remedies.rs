//! Remedies for missing guarantees and languages, as exact commands for the operator.

use engine::{Engine, WallFailure};
use sandbox::BackendError;

use crate::machine::Machine;

/// Remedies for the machine as a whole.
pub(super) fn for_machine(machine: &Machine, wall_problem: Option<&BackendError>) -> Vec<String> {
    let mut list = Vec::new();
    if let Some(error) = wall_problem {
        let failure = WallFailure::of(error);
        list.push(format!("{}: {}", failure.summary(), failure.remedy));
        return list;
    }
    let cgroups = machine.native.cgroup_state();
    if let Some(reason) = cgroups.reason {
        list.push(format!(
            "limits of memory, processes or processor share are kept by stand-ins, as no cgroup is delegated ({reason}): \
             start palisade with `systemd-run --user --scope -p Delegate=yes palisade ...`, or run it as root"
        ));
    }
    if machine.native.shares_own_identity() {
        list.push(
            "sandboxes have this user's own id on the host, and share this user's allowances (pipe pages, epoll watches, descriptors \
             in flight): as root, `apt-get install uidmap` and `usermod --add-subuids \
             100000-165535 --add-subgids 100000-165535 USER` give them ids of their own"
                .to_owned(),
        );
    }
    list
}

/// The remedy for a language that does not work.
pub(super) fn for_language(engine: &Engine, name: &str) -> Option<String> {
    let command = engine.runtimes().install_command(name)?;
    Some(format!("{name}: {command}"))
}
