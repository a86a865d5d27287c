//! The packages that the code of a run asks for, on this machine.

use super::script::{Requested, accepts_version, asked_in_code};
use super::{Ecosystem, package_name};
use crate::Engine;
use crate::result::RunError;
use crate::runtimes::Runtime;

/// The language whose programs can ask for packages.
const PYTHON: &str = "python";

impl Engine {
    /// The requirements of a program itself: its script metadata, and lines that install. Empty where this server installs
    /// nothing for its language. Refuses a program that is for another version of the language.
    pub async fn packages_of_code(&self, language: &str, code: &str) -> Result<Vec<String>, RunError> {
        // Most programs ask for nothing, and are not read line by line.
        let may_ask = code.contains("pip") || code.contains("# /// script");
        if language != PYTHON || !may_ask || !self.offered_packages().contains(&Ecosystem::Pypi) {
            return Ok(Vec::new());
        }
        let Requested { dependencies, installs, requires_python } = asked_in_code(language, code)?;
        if installs.is_empty() && requires_python.is_none() {
            return Ok(dependencies);
        }
        // A language that is not there is refused later, by its own error.
        let Ok(runtime) = self.runtimes().find(language).await else { return Ok(dependencies) };
        if let Some(specifier) = requires_python {
            check_version(&specifier, runtime.version())?;
        }
        let new = installs.into_iter().filter(|requirement| !is_there(requirement, &runtime));
        Ok(dependencies.into_iter().chain(new).collect())
    }
}

/// Whether the interpreter of the host has a package that is asked for in any version.
fn is_there(requirement: &str, runtime: &Runtime) -> bool {
    let wanted = package_name(requirement);
    runtime
        .packages()
        .keys()
        .any(|known| package_name(known) == wanted && wanted == package_name_only(requirement))
}

fn package_name_only(requirement: &str) -> String {
    requirement.trim().to_lowercase().replace(['_', '.'], "-")
}

fn check_version(specifier: &str, version: &str) -> Result<(), RunError> {
    if accepts_version(specifier, version) {
        return Ok(());
    }
    let message =
        format!("the program requires Python {}, and this server has {version}", specifier.escape_debug());
    let remedy = format!("write it for Python {version} and change requires-python, or leave that line out");
    Err(RunError::new("python_version", message).remedy(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_for_another_python_is_refused() {
        check_version(">=3.9", "3.11.2").unwrap();
        let error = check_version(">=3.13", "3.11.2").unwrap_err();
        assert_eq!(error.code, "python_version");
        assert!(error.message.contains("3.11.2") && error.remedy.is_some());
    }

    #[test]
    fn only_a_bare_name_is_satisfied_by_any_version() {
        assert_eq!(package_name("Foo_Bar[x]>=2 ; python_version>'3'"), "foo-bar");
        assert_eq!(package_name("foo.bar"), package_name_only("Foo_Bar"));
        assert_ne!(package_name("foo>=2"), package_name_only("foo>=2"));
    }
}
