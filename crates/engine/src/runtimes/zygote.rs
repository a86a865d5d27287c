//! Chooses the zygote process for a program.

use sandbox::ZygoteSpec;

use super::{CpuShare, DriverCall, Runtime};
use crate::InputFile;
use crate::packages::{PRELOAD_VARIABLE, Shows, imported_words};

/// The placeholder for the packages in a zygote's command.
const PACKAGES: &str = "{packages}";

/// The packages of a sandbox, for its zygote process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Preload<'a> {
    /// What the sandbox shows.
    pub(crate) shows: Shows,
    /// Whether its packages are there from the start: then a module may come from a package, and not from the host.
    pub(crate) has_layers: bool,
    /// The modules of its packages that its interpreter imports before its program arrives.
    pub(crate) modules: &'a [String],
}

impl Preload<'_> {
    /// Adds the variable that tells the driver.
    pub(crate) fn add_to(&self, env: &mut Vec<(String, String)>) {
        if !self.modules.is_empty() {
            env.push((PRELOAD_VARIABLE.to_owned(), self.modules.join(",")));
        }
    }
}

impl Runtime {
    /// The zygote process for that program, or `None` where the language has none. A zygote process with
    /// packages of the host loaded ahead is for programs that import one of them and have no module of that name among
    /// their inputs.
    ///
    /// A zygote process executes nothing of a layer: it has privileges that no sandbox has, and a caller chose the layer.
    /// Its copies import those modules, each behind the wall of its sandbox.
    ///
    /// The environment of the zygote process is that of its copies: what it has loaded read it long before a run
    /// begins. Packages that compute with threads start them when they are loaded, and a copy would not have
    /// these threads. So they are loaded ahead only for a share of one processor.
    pub(crate) fn zygote(
        &self,
        share: CpuShare,
        preload: Preload<'_>,
        code: &str,
        brings: impl Fn(&str) -> bool,
    ) -> Option<ZygoteSpec> {
        let zygote = self.definition.zygote.as_ref()?;
        let wanted: Vec<&str> = zygote.packages.iter().map(String::as_str).collect();
        let is_named = imported_words(code).any(|word| wanted.contains(&word));
        let is_brought = || wanted.iter().any(|package| brings(package));
        let is_preloaded = share == CpuShare::ONE && !preload.has_layers && is_named && !is_brought();
        let packages = if is_preloaded { self.installed(&wanted).join(",") } else { String::new() };
        let call = DriverCall { mode: "", source: "" };
        let fill = |part: String| part.replace(PACKAGES, &packages);
        let argv = self.fill(&zygote.command, &call).into_iter().map(fill).collect();
        let mut env = self.environment(share, preload.shows);
        preload.shows.suit_zygote(&mut env);
        preload.add_to(&mut env);
        Some(ZygoteSpec { argv, env })
    }

    /// Whether its interpreter has a zygote process.
    pub(crate) fn has_zygote(&self) -> bool {
        self.definition.zygote.is_some()
    }

    /// Names of files and directories that a program would import instead of a package loaded ahead.
    pub(crate) fn names_of_loaded(&self) -> Vec<String> {
        let packages = self.definition.zygote.iter().flat_map(|zygote| &zygote.packages);
        packages.flat_map(|package| [format!("{package}.py"), package.clone()]).collect()
    }

    fn installed<'a>(&self, packages: &[&'a str]) -> Vec<&'a str> {
        let is_there =
            |package: &&str| self.packages().keys().any(|known| known.eq_ignore_ascii_case(package));
        packages.iter().copied().filter(is_there).collect()
    }
}

/// Whether a file among the inputs would be imported by that name.
pub(crate) fn is_among(inputs: &[InputFile], package: &str) -> bool {
    inputs.iter().any(|input| {
        let top = input.path.split('/').next().unwrap_or_default();
        top.strip_suffix(".py").unwrap_or(top) == package
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(code: &str, package: &str) -> bool {
        imported_words(code).any(|word| word == package)
    }

    #[test]
    fn a_program_names_a_package_where_it_imports_it() {
        for code in
            ["import numpy", "import os, numpy as np", "  from numpy.linalg import norm", "x=1\nimport numpy"]
        {
            assert!(imports(code, "numpy"), "{code}");
        }
        for code in ["print('import numpy')", "import numpy_financial", "numpy = 1", "important = numpy"] {
            assert!(!imports(code, "numpy"), "{code}");
        }
    }

    #[test]
    fn a_module_of_the_caller_is_noticed() {
        let input = |path: &str| [InputFile { path: path.to_owned(), ..InputFile::default() }];
        assert!(is_among(&input("numpy.py"), "numpy") && is_among(&input("numpy/__init__.py"), "numpy"));
        assert!(!is_among(&input("data/numpy.csv"), "numpy") && !is_among(&input("numpy.csv"), "numpy"));
    }
}
