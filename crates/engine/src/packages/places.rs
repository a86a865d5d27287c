//! Where packages are shown in a sandbox, and how programs find them there.
//!
//! The places never change, so an interpreter that started before a layer was attached finds it, too. A later layer of the
//! same ecosystem covers an earlier one.
//!
//! - Python: the driver puts the directory into `sys.path` behind the standard library and before the packages of the host
//!   (`PALISADE_PACKAGES`). Child processes find it by `PYTHONPATH`.
//! - JavaScript: `require` and `import` look for `node_modules` in every directory above the program, so in `/`.
//! - Commands of packages are on the `PATH` of every language.
//! - Go: only the sandbox of the compiler shows the modules. Its tool (`runtimes/go/compile.sh`) knows the place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sandbox::Layer;

use super::{Ecosystem, PackageSet};

/// Tells the driver of Python where the packages are.
const PYTHON_VARIABLE: &str = "PALISADE_PACKAGES";
/// Tells the driver of Python what to import before its program arrives.
pub(crate) const PRELOAD_VARIABLE: &str = "PALISADE_PRELOAD";
const PYTHONPATH: &str = "PYTHONPATH";

impl Ecosystem {
    /// The directory inside a sandbox that shows packages of this kind.
    pub fn target(self) -> &'static str {
        match self {
            Self::Pypi => "/palisade/packages/python",
            Self::Npm => "/node_modules",
            Self::Go => "/palisade/packages/go",
        }
    }

    /// Whether the sandbox of a program shows packages of this kind. A compiled program has them in it.
    pub fn is_shown_to_programs(self) -> bool {
        self != Self::Go
    }

    /// The directory of their commands. Go modules are sources and have none.
    fn commands(self) -> Option<String> {
        let name = match self {
            Self::Pypi => "bin",
            Self::Npm => ".bin",
            Self::Go => return None,
        };
        Some(format!("{}/{name}", self.target()))
    }
}

impl PackageSet {
    /// Its layer, at the place where programs look for it.
    pub(crate) fn shown_layer(&self) -> Layer {
        Layer { target: PathBuf::from(self.ecosystem.target()), ..self.layer.clone() }
    }
}

/// The ecosystems whose packages a sandbox shows, or may show later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shows {
    pypi: bool,
    npm: bool,
}

impl Shows {
    /// None: the sandbox of a run without packages.
    pub(crate) const NOTHING: Self = Self { pypi: false, npm: false };
    /// All of them: a sandbox to which layers can be attached.
    pub(crate) const EVERYTHING: Self = Self { pypi: true, npm: true };

    pub(crate) fn of(sets: &[PackageSet]) -> Self {
        let has = |wanted| sets.iter().any(|set| set.ecosystem == wanted);
        Self { pypi: has(Ecosystem::Pypi), npm: has(Ecosystem::Npm) }
    }

    fn ecosystems(self) -> impl Iterator<Item = Ecosystem> {
        let shown = [(self.pypi, Ecosystem::Pypi), (self.npm, Ecosystem::Npm)];
        shown.into_iter().filter_map(|(is_shown, ecosystem)| is_shown.then_some(ecosystem))
    }

    /// The directories at which layers can be attached.
    pub(crate) fn attach_points(self) -> Vec<PathBuf> {
        self.ecosystems().map(|ecosystem| Path::new(ecosystem.target()).to_owned()).collect()
    }

    /// Adds the variables by which programs find the packages.
    pub(crate) fn add_to(self, env: &mut BTreeMap<String, String>) {
        let mut path: Vec<String> = self.ecosystems().filter_map(Ecosystem::commands).collect();
        if path.is_empty() {
            return;
        }
        path.extend(env.get("PATH").cloned());
        env.insert("PATH".to_owned(), path.join(":"));
        if self.pypi {
            let target = Ecosystem::Pypi.target();
            env.insert(PYTHON_VARIABLE.to_owned(), target.to_owned());
            let before = env.get(PYTHONPATH).filter(|paths| !paths.is_empty());
            let paths = before.map_or_else(|| target.to_owned(), |paths| format!("{paths}:{target}"));
            env.insert(PYTHONPATH.to_owned(), paths);
        }
    }

    /// The same for a zygote process. It has privileges that no sandbox has, so it must not execute anything of a package, and
    /// Python looks into `PYTHONPATH` before it looks into its standard library. The driver sets the variable in each copy.
    pub(crate) fn suit_zygote(self, env: &mut Vec<(String, String)>) {
        if self.pypi {
            env.retain(|(name, _)| name != PYTHONPATH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_packages_has_the_environment_of_before() {
        let before = BTreeMap::from([("PATH".to_owned(), "/usr/bin".to_owned())]);
        let mut env = before.clone();
        Shows::NOTHING.add_to(&mut env);
        assert_eq!(env, before);
        assert!(Shows::NOTHING.attach_points().is_empty());
    }

    #[test]
    fn commands_of_packages_come_before_those_of_the_host_and_the_callers_modules_before_packages() {
        let own = [("PATH", "/usr/bin"), ("PYTHONPATH", "/workspace/lib")];
        let mut env: BTreeMap<String, String> =
            own.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Shows::EVERYTHING.add_to(&mut env);
        assert_eq!(env["PATH"], "/palisade/packages/python/bin:/node_modules/.bin:/usr/bin");
        assert_eq!(env["PYTHONPATH"], "/workspace/lib:/palisade/packages/python");
        assert_eq!(env["PALISADE_PACKAGES"], "/palisade/packages/python");
    }
}
