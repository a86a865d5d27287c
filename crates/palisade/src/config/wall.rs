//! The settings of walls: which ones the server has, which one is the default, and the least that a run gets.
//!
//! `[wall]` has `default`, `allowed` and `least`. `[wall.runc]`, `[wall.crun]` and `[wall.gvisor]` name the program of an
//! OCI runtime. `[wall.docker]` and `[wall.podman]` have the engine's `socket`, and the `image` of sandboxes. A file in the working directory may only tighten: raise `least`, take names from `allowed`, and make an
//! allowed wall the default that is as strong as the present one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sandbox::{Kernel, OWN_KERNEL, SHARED_KERNEL, WALLS};
use serde_json::{Value, json};

use super::settings::{Origin, Valued};
use super::value::Raw;

/// The wall that needs nothing but the kernel.
pub(crate) const NATIVE: &str = "native";
/// Walls that this version can build. The others of [`WALLS`] are known by name only.
pub(crate) const BUILT: [&str; 6] = [NATIVE, "runc", "crun", "docker", "podman", "gvisor"];
/// The walls with a program.
pub(crate) const RUNTIMES: [&str; 3] = ["runc", "crun", "gvisor"];
/// The walls with an engine.
pub(crate) const ENGINES: [&str; 2] = ["docker", "podman"];

/// A setting of walls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WallKey {
    Default,
    Allowed,
    Least,
    /// The program of that OCI runtime.
    Program(&'static str),
    /// The socket of that engine.
    Socket(&'static str),
    /// The image of that engine's sandboxes.
    Image(&'static str),
    /// Whether the image may be named without a digest.
    AllowTags(&'static str),
}

impl WallKey {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let engines = [Self::Socket, Self::Image, Self::AllowTags].into_iter();
        let engines = engines.flat_map(|key| ENGINES.map(key));
        [Self::Default, Self::Allowed, Self::Least]
            .into_iter()
            .chain(RUNTIMES.map(Self::Program))
            .chain(engines)
    }

    /// The name of the setting after `wall.`.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::Allowed => "allowed".to_owned(),
            Self::Least => "least".to_owned(),
            Self::Program(wall) => format!("{wall}.program"),
            Self::Socket(wall) => format!("{wall}.socket"),
            Self::Image(wall) => format!("{wall}.image"),
            Self::AllowTags(wall) => format!("{wall}.allow_tags"),
        }
    }

    /// Interprets the text of a variable.
    pub(crate) fn raw(self, text: &str) -> Raw {
        match self {
            Self::Allowed => Raw::list_from_text(text),
            Self::AllowTags(_) => text.parse().map_or_else(|_| Raw::Text(text.to_owned()), Raw::Boolean),
            _ => Raw::Text(text.to_owned()),
        }
    }
}

/// A setting of walls with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WallSetting {
    Default(&'static str),
    Allowed(Vec<&'static str>),
    Least(Kernel),
    Program(&'static str, PathBuf),
    Socket(&'static str, PathBuf),
    Image(&'static str, String),
    AllowTags(&'static str, bool),
}

impl WallSetting {
    /// Checks a value. The error says what is valid.
    pub(crate) fn parse(key: WallKey, raw: &Raw) -> Result<Self, String> {
        match key {
            WallKey::Default => wall(raw).map(Self::Default),
            WallKey::Allowed => {
                let Raw::List(list) = raw else {
                    return Err(format!(
                        "it must be a list of walls ({}), not {}",
                        BUILT.join(", "),
                        raw.shown()
                    ));
                };
                list.iter().map(wall).collect::<Result<_, _>>().map(Self::Allowed)
            }
            WallKey::Least => {
                let least = if let Raw::Text(text) = raw { Kernel::demanded(text) } else { None };
                let wrong = || {
                    format!(
                        "it must be {SHARED_KERNEL}, {OWN_KERNEL} or the name of a wall, not {}",
                        raw.shown()
                    )
                };
                least.map(Self::Least).ok_or_else(wrong)
            }
            WallKey::Program(wall) => match raw {
                Raw::Text(path) if path.starts_with('/') => Ok(Self::Program(wall, PathBuf::from(path))),
                _ => Err(format!("it must be an absolute path, not {}", raw.shown())),
            },
            WallKey::Socket(wall) => match raw {
                Raw::Text(path) if path.starts_with('/') => Ok(Self::Socket(wall, PathBuf::from(path))),
                _ => Err(format!("it must be the absolute path of a unix socket, not {}", raw.shown())),
            },
            WallKey::Image(wall) => match raw {
                Raw::Text(name) if !name.is_empty() => Ok(Self::Image(wall, name.clone())),
                _ => Err(format!("it must be an image like name@sha256:DIGEST, not {}", raw.shown())),
            },
            WallKey::AllowTags(wall) => match raw {
                Raw::Boolean(value) => Ok(Self::AllowTags(wall, *value)),
                _ => Err(format!("it must be true or false, not {}", raw.shown())),
            },
        }
    }

    pub(crate) fn key(&self) -> WallKey {
        match self {
            Self::Default(_) => WallKey::Default,
            Self::Allowed(_) => WallKey::Allowed,
            Self::Least(_) => WallKey::Least,
            Self::Program(wall, _) => WallKey::Program(wall),
            Self::Socket(wall, _) => WallKey::Socket(wall),
            Self::Image(wall, _) => WallKey::Image(wall),
            Self::AllowTags(wall, _) => WallKey::AllowTags(wall),
        }
    }
}

fn wall(raw: &Raw) -> Result<&'static str, String> {
    let name = if let Raw::Text(name) = raw { name.as_str() } else { "" };
    if let Some(built) = BUILT.iter().find(|built| **built == name) {
        return Ok(built);
    }
    let known = BUILT.join(", ");
    match WALLS.iter().any(|wall| wall.name == name) {
        true => Err(format!("this version cannot build the wall {name}; it has {known}")),
        false => Err(format!("it must be one of {known}, not {}", raw.shown())),
    }
}

/// The walls in force.
#[derive(Debug, Clone)]
pub(crate) struct WallSettings {
    pub(crate) default: Valued<&'static str>,
    /// Empty: the default alone.
    pub(crate) allowed: Valued<Vec<&'static str>>,
    pub(crate) least: Valued<Kernel>,
    pub(crate) programs: BTreeMap<&'static str, Valued<PathBuf>>,
    pub(crate) sockets: BTreeMap<&'static str, Valued<PathBuf>>,
    pub(crate) images: BTreeMap<&'static str, Valued<String>>,
    pub(crate) tags_allowed: BTreeMap<&'static str, Valued<bool>>,
}

impl WallSettings {
    pub(crate) fn built_in() -> Self {
        Self {
            default: Valued::default(NATIVE),
            allowed: Valued::default(Vec::new()),
            least: Valued::default(Kernel::Shared),
            programs: BTreeMap::new(),
            sockets: BTreeMap::new(),
            images: BTreeMap::new(),
            tags_allowed: BTreeMap::new(),
        }
    }

    pub(crate) fn apply(&mut self, setting: WallSetting, origin: Origin) {
        match setting {
            WallSetting::Default(name) => self.default.set(name, origin),
            WallSetting::Allowed(names) => self.allowed.set(names, origin),
            WallSetting::Least(least) => self.least.set(least, origin),
            WallSetting::Program(wall, path) => {
                self.programs.insert(wall, Valued { value: path, origin });
            }
            WallSetting::Socket(wall, path) => {
                self.sockets.insert(wall, Valued { value: path, origin });
            }
            WallSetting::Image(wall, name) => {
                self.images.insert(wall, Valued { value: name, origin });
            }
            WallSetting::AllowTags(wall, value) => {
                self.tags_allowed.insert(wall, Valued { value, origin });
            }
        }
    }

    /// All walls of the server, the default first. An allowed wall below the least is no use, and is left out.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let mut names = vec![self.default.value];
        for name in &self.allowed.value {
            if !names.contains(name) && Kernel::of_wall(name) >= self.least.value {
                names.push(name);
            }
        }
        names
    }

    /// Why a file in the working directory may not have this setting; `None` if it makes the wall no weaker.
    pub(crate) fn loosened_by(&self, setting: &WallSetting) -> Option<String> {
        let names = self.names();
        match setting {
            WallSetting::Least(least) if *least >= self.least.value => None,
            WallSetting::Least(_) => Some("a working directory cannot lower the least wall".to_owned()),
            WallSetting::Allowed(wanted) if wanted.iter().all(|name| names.contains(name)) => None,
            WallSetting::Allowed(_) => {
                Some(format!("a working directory cannot add a wall to {}", names.join(", ")))
            }
            WallSetting::Default(name) if !names.contains(name) => Some(format!(
                "a working directory can only choose among the allowed walls: {}",
                names.join(", ")
            )),
            WallSetting::Default(name) if Kernel::of_wall(name) < Kernel::of_wall(self.default.value) => {
                Some(format!("the wall {name} is weaker than {}", self.default.value))
            }
            WallSetting::Default(_) => None,
            WallSetting::Program(..) => Some(
                "a working directory cannot choose a program that is started outside the sandbox".to_owned(),
            ),
            WallSetting::Socket(..) | WallSetting::Image(..) | WallSetting::AllowTags(..) => {
                Some("a working directory cannot choose an engine or its image".to_owned())
            }
        }
    }

    /// A value for people, with its origin.
    pub(crate) fn shown(&self, key: WallKey) -> (Value, &Origin) {
        match key {
            WallKey::Default => (json!(self.default.value), &self.default.origin),
            WallKey::Allowed => (json!(self.names()), &self.allowed.origin),
            WallKey::Least => {
                let name = if self.least.value == Kernel::Own { OWN_KERNEL } else { SHARED_KERNEL };
                (json!(name), &self.least.origin)
            }
            WallKey::Program(wall) => {
                shown(self.programs.get(wall), |path| json!(path.display().to_string()))
            }
            WallKey::Socket(wall) => shown(self.sockets.get(wall), |path| json!(path.display().to_string())),
            WallKey::Image(wall) => shown(self.images.get(wall), |name| json!(name)),
            WallKey::AllowTags(wall) => shown(self.tags_allowed.get(wall), |value| json!(value)),
        }
    }
}

fn shown<T>(found: Option<&Valued<T>>, value: impl Fn(&T) -> Value) -> (Value, &Origin) {
    found.map_or((Value::Null, &Origin::Default), |found| (value(&found.value), &found.origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Raw {
        Raw::Text(text.to_owned())
    }

    fn settings(default: &'static str, allowed: &[&'static str]) -> WallSettings {
        let mut settings = WallSettings::built_in();
        settings.apply(WallSetting::Default(default), Origin::Default);
        settings.apply(WallSetting::Allowed(allowed.to_vec()), Origin::Default);
        settings
    }

    #[test]
    fn the_default_is_always_among_the_walls_and_first() {
        assert_eq!(WallSettings::built_in().names(), ["native"]);
        assert_eq!(settings("runc", &["native", "runc", "gvisor"]).names(), ["runc", "native", "gvisor"]);
        let mut strict = settings("gvisor", &["native"]);
        strict.apply(WallSetting::Least(Kernel::Own), Origin::Default);
        assert_eq!(strict.names(), ["gvisor"], "what no call can have is not built");
    }

    #[test]
    fn a_wall_that_this_version_lacks_is_told_from_one_that_never_was() {
        assert_eq!(
            WallSetting::parse(WallKey::Default, &text("docker")),
            Ok(WallSetting::Default("docker")),
            "every known wall can be built"
        );
        assert!(
            WallSetting::parse(WallKey::Default, &text("moat")).unwrap_err().starts_with("it must be one of")
        );
        assert!(WallSetting::parse(WallKey::Least, &text("strong")).is_err());
        assert_eq!(WallSetting::parse(WallKey::Least, &text("gvisor")), Ok(WallSetting::Least(Kernel::Own)));
        assert!(WallSetting::parse(WallKey::Program("runc"), &text("runc")).is_err(), "no search path");
    }

    #[test]
    fn a_working_directory_can_only_tighten() {
        let wide = settings("native", &["gvisor"]);
        assert_eq!(wide.loosened_by(&WallSetting::Least(Kernel::Own)), None);
        assert_eq!(wide.loosened_by(&WallSetting::Default("gvisor")), None);
        assert_eq!(wide.loosened_by(&WallSetting::Allowed(vec!["native"])), None);
        assert!(wide.loosened_by(&WallSetting::Allowed(vec!["runc"])).is_some());
        assert!(wide.loosened_by(&WallSetting::Default("runc")).is_some());
        assert!(wide.loosened_by(&WallSetting::Program("runc", PathBuf::from("/tmp/runc"))).is_some());
        assert!(wide.loosened_by(&WallSetting::Socket("docker", PathBuf::from("/tmp/s"))).is_some());
        assert!(wide.loosened_by(&WallSetting::Image("docker", "x".to_owned())).is_some());
        assert!(wide.loosened_by(&WallSetting::AllowTags("docker", true)).is_some());
        let mut strict = settings("gvisor", &["native"]);
        assert!(strict.loosened_by(&WallSetting::Default("native")).is_some());
        strict.apply(WallSetting::Least(Kernel::Own), Origin::Default);
        assert!(strict.loosened_by(&WallSetting::Least(Kernel::Shared)).is_some());
    }
}
