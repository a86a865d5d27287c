//! Chooses the zygote process for a program.

use sandbox::ZygoteSpec;

use super::{CpuShare, DriverCall, Runtime};
use crate::InputFile;

/// The placeholder for the packages in a zygote's command.
const PACKAGES: &str = "{packages}";
/// The beginnings of import lines.
const IMPORTS: [&str; 2] = ["import ", "from "];

impl Runtime {
    /// The zygote process for that program, or `None` where the language has none. A zygote process with
    /// packages loaded ahead is for programs that import one of them and have no module of that name among
    /// their inputs.
    ///
    /// The environment of the zygote process is that of its copies: what it has loaded read it long before a run
    /// begins. Packages that compute with threads start them when they are loaded, and a copy would not have
    /// these threads. So they are loaded ahead only for a share of one processor.
    pub(crate) fn zygote(
        &self,
        share: CpuShare,
        code: &str,
        brings: impl Fn(&str) -> bool,
    ) -> Option<ZygoteSpec> {
        let zygote = self.definition.zygote.as_ref()?;
        let wanted: Vec<&str> = zygote.packages.iter().map(String::as_str).collect();
        let is_named = wanted.iter().any(|package| imports(code, package));
        let is_brought = || wanted.iter().any(|package| brings(package));
        let is_preloaded = share == CpuShare::ONE && is_named && !is_brought();
        let packages = if is_preloaded { self.installed(&wanted).join(",") } else { String::new() };
        let call = DriverCall { mode: "", source: "" };
        let fill = |part: String| part.replace(PACKAGES, &packages);
        let argv = self.fill(&zygote.command, &call).into_iter().map(fill).collect();
        Some(ZygoteSpec { argv, env: self.environment(share) })
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

/// Whether a line of the program imports that package. This is a guess; a wrong guess costs only time.
fn imports(code: &str, package: &str) -> bool {
    code.lines().map(str::trim_start).filter(|line| IMPORTS.iter().any(|word| line.starts_with(word))).any(
        |line| {
            line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|word| word == package)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
