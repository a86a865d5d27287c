//! The walls of this server, made from the configuration by name.
//!
//! A new wall needs a row in [`TABLE`], its name in `config::wall::BUILT` and a row in `sandbox::WALLS`.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use backends::daemon::{self, DaemonBackend, DaemonConfig};
use backends::host::HostParts;
use backends::native::NativeBackend;
use backends::oci::{GuestProgram, OciBackend, OciConfig, OciRuntime};
use sandbox::{Backend, Kernel, OWN_KERNEL};

use crate::config::wall::{BUILT, WallSettings};
use crate::static_guest;

/// What walls are made from.
struct Parts<'a> {
    native: &'a Arc<NativeBackend>,
    host: &'a HostParts,
    settings: &'a WallSettings,
}

type Make = fn(&Parts<'_>) -> io::Result<Arc<dyn Backend>>;

/// How each wall is made.
const TABLE: [(&str, Make); BUILT.len()] = [
    ("native", |parts| Ok(Arc::clone(parts.native) as Arc<dyn Backend>)),
    ("runc", |parts| parts.oci(OciRuntime::Runc)),
    ("crun", |parts| parts.oci(OciRuntime::Crun)),
    ("docker", |parts| parts.engine(daemon::Engine::Docker)),
    ("podman", |parts| parts.engine(daemon::Engine::Podman)),
    ("gvisor", |parts| parts.oci(OciRuntime::Gvisor)),
];

impl Parts<'_> {
    fn oci(&self, runtime: OciRuntime) -> io::Result<Arc<dyn Backend>> {
        let program = self.settings.programs.get(runtime.name()).map(|program| program.value.clone());
        let guest = GuestProgram::Bytes(static_guest::program());
        let config = OciConfig { runtime, program, guest };
        Ok(Arc::new(OciBackend::beside(self.native, config, self.host)))
    }

    fn engine(&self, engine: daemon::Engine) -> io::Result<Arc<dyn Backend>> {
        let name = engine.name();
        let image = self.settings.images.get(name).map(|image| image.value.clone());
        let allow_tags = self.settings.tags_allowed.get(name).is_some_and(|allowed| allowed.value);
        let guest = GuestProgram::Bytes(static_guest::program());
        let socket = socket(self.settings, engine);
        let config = DaemonConfig { socket, image, allow_tags, ..DaemonConfig::usual(engine, guest) };
        Ok(Arc::new(DaemonBackend::beside(self.native, config, self.host)))
    }
}

/// The socket of an engine: the configured one, or the usual one.
pub(crate) fn socket(settings: &WallSettings, engine: daemon::Engine) -> PathBuf {
    let configured = settings.sockets.get(engine.name()).map(|socket| socket.value.clone());
    configured.unwrap_or_else(|| engine.usual_socket().to_owned())
}

/// The engine behind the wall of that name.
pub(crate) fn engine_of(wall: &str) -> Option<daemon::Engine> {
    daemon::Engine::ALL.into_iter().find(|engine| engine.name() == wall)
}

/// The walls that a command names itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Named {
    /// Those of the configuration.
    #[default]
    None,
    /// Those of the configuration, and what `--wall` of a run names.
    Also(Vec<&'static str>),
    /// Only these, to examine them. They are sorted by strength, so that each may be asked for.
    Examined(Vec<&'static str>),
}

impl Named {
    /// The walls that `--wall` of a run adds: the command line belongs to the operator.
    pub(crate) fn of_run(wanted: Option<&str>) -> Self {
        let fits = |name: &&'static str| match wanted {
            Some(OWN_KERNEL) => Kernel::of_wall(name) == Kernel::Own,
            wanted => wanted == Some(*name),
        };
        Self::Also(BUILT.into_iter().filter(fits).collect())
    }

    /// The walls that `doctor --wall` examines.
    pub(crate) fn of_doctor(wanted: Option<&str>) -> Result<Self, String> {
        match wanted {
            None => Ok(Self::None),
            Some("all") => Ok(Self::Examined(BUILT.to_vec())),
            Some(name) => match BUILT.iter().find(|built| **built == name) {
                Some(built) => Ok(Self::Examined(vec![built])),
                None => Err(format!(
                    "there is no wall `{}`; use all, or one of {}",
                    terminal::plain(name),
                    BUILT.join(", ")
                )),
            },
        }
    }
}

/// The names of the walls, the default first.
pub(crate) fn names(settings: &WallSettings, named: &Named) -> Vec<&'static str> {
    let mut names = settings.names();
    match named {
        Named::None => {}
        Named::Also(more) => names.extend(more.iter().filter(|name| !settings.names().contains(name))),
        Named::Examined(only) => {
            names.clone_from(only);
            names.sort_by_key(|name| Kernel::of_wall(name));
        }
    }
    names
}

/// Makes the walls of these names.
pub(crate) fn make(
    names: &[&'static str],
    settings: &WallSettings,
    native: &Arc<NativeBackend>,
    host: &HostParts,
) -> io::Result<Vec<Arc<dyn Backend>>> {
    let parts = Parts { native, host, settings };
    let one = |name: &&'static str| match TABLE.iter().find(|(known, _)| known == name) {
        Some((_, make)) => make(&parts),
        None => Err(io::Error::other(format!("no wall {name} can be made"))),
    };
    names.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wall_that_can_be_configured_can_be_made_and_has_facts() {
        assert_eq!(TABLE.map(|(name, _)| name), BUILT);
        assert!(BUILT.iter().all(|name| sandbox::WALLS.iter().any(|wall| wall.name == *name)));
    }

    #[test]
    fn a_command_adds_the_wall_that_it_names() {
        let settings = WallSettings::built_in();
        assert_eq!(names(&settings, &Named::None), ["native"]);
        assert_eq!(names(&settings, &Named::of_run(Some("runc"))), ["native", "runc"]);
        assert_eq!(names(&settings, &Named::of_run(Some("native"))), ["native"]);
        assert_eq!(names(&settings, &Named::of_run(Some(OWN_KERNEL))), ["native", "gvisor"]);
        assert_eq!(names(&settings, &Named::of_run(Some("moat"))), ["native"], "the engine refuses it");
        let all = Named::of_doctor(Some("all")).unwrap();
        assert_eq!(names(&settings, &all), BUILT);
        assert!(Named::of_doctor(Some("moat")).unwrap_err().contains("native, runc"));
    }
}
