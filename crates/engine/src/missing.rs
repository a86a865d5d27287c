//! What to do about a module that a program did not find. `conclusion` asks for every failed program.
//!
//! The name of the module and the names that resemble it come from the program. They are bounded, shown as names
//! and decide nothing.

use policy::Scope;
use serde_json::json;

use crate::packages::{Ecosystem, ShownPackages, package_of, wanted};
use crate::runtimes::Runtime;
use crate::sandboxes::{SandboxAddress, SandboxId};
use crate::{Caller, Engine};

/// The most names that are suggested.
const NAMES_MAX: usize = 3;
/// The most characters of a name.
const NAME_CHARACTERS_MAX: usize = 80;

/// The names of a driver's message, separated by blanks. What is not a name is left out.
pub(crate) fn names(text: &str) -> Vec<String> {
    text.split(' ').filter(|name| is_name(name)).take(NAMES_MAX).map(str::to_owned).collect()
}

/// How a package that is missing can be installed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Repair {
    /// Not at all: this server has no packages for the caller.
    #[default]
    Off,
    /// By the next run, which is a fresh one.
    NextRun,
    /// In the persistent sandbox of the run.
    InSandbox(SandboxId),
}

impl Repair {
    /// The call that installs these packages.
    pub(crate) fn call(&self, language: &str, packages: &[String]) -> Option<String> {
        let list = json!(packages).to_string().replace("\",\"", "\", \"");
        match self {
            _ if packages.is_empty() => None,
            Self::Off => None,
            Self::NextRun => Some(format!("run it again with \"packages\": {list}")),
            Self::InSandbox(id) => {
                let arguments = format!(
                    "{{\"sandbox_id\": \"{id}\", \"language\": \"{language}\", \"packages\": {list}}}"
                );
                Some(format!("call install_packages {arguments}, then run it again"))
            }
        }
    }

    /// The call that brings a module.
    pub(crate) fn of_module(&self, language: &str, module: &str) -> Option<String> {
        let package = package_of(Ecosystem::of_language(language)?, module)?;
        self.call(language, &[package])
    }
}

impl Engine {
    /// How a caller whose program misses a package can install it.
    pub(crate) fn repair(
        &self,
        caller: &Caller,
        runtime: &Runtime,
        sandbox: Option<&SandboxAddress>,
    ) -> Repair {
        let offered = self.offered_packages();
        let is_served = match Ecosystem::of_language(runtime.name()) {
            Some(ecosystem) => offered.contains(&ecosystem),
            // A program of another language may call an interpreter that has packages.
            None => !offered.is_empty(),
        };
        match sandbox {
            _ if !is_served || !caller.may(Scope::Packages) => Repair::Off,
            Some(address) => Repair::InSandbox(address.id.clone()),
            None => Repair::NextRun,
        }
    }
}

/// What to do next, if the message of a failed program says that a module is missing.
pub(crate) fn remedy(runtime: &Runtime, message: &str, near: &[String], repair: &Repair) -> Option<String> {
    let module = runtime.missing_module(message)?;
    Some(repaired(&module, near, runtime.name(), repair).unwrap_or_else(|| words(&module, near, runtime)))
}

/// How the compiler of Go says that a package of a module is not there. Its import path follows.
const UNFOUND_BY_GO: [&str; 3] = [
    "no required module provides package ",
    "cannot find module providing package ",
    "cannot find package \"",
];

/// The package that a compiler did not find, by one line of what it said.
pub(crate) fn in_message(language: &str, line: &str) -> Option<String> {
    let ecosystem = Ecosystem::of_language(language).filter(|one| !one.is_shown_to_programs())?;
    let (_, after) = UNFOUND_BY_GO.iter().find_map(|words| line.split_once(words))?;
    let end = after.find([' ', '"', ':', ';']).unwrap_or(after.len());
    package_of(ecosystem, &after[..end])
}

/// The call that brings the packages that a compiler did not find. The next run needs those that this one had, too.
pub(crate) fn of_compiler(
    language: &str,
    said: &str,
    shown: &ShownPackages,
    repair: &Repair,
) -> Option<String> {
    let mut missing: Vec<String> = Vec::new();
    for found in said.lines().filter_map(|line| in_message(language, line)) {
        if missing.len() < NAMES_MAX && !missing.contains(&found) {
            missing.push(found);
        }
    }
    if missing.is_empty() {
        return None;
    }
    let had = shown.compiled_in(language).filter(|_| *repair == Repair::NextRun);
    let all: Vec<String> =
        had.iter().flat_map(|set| set.requirements.iter().cloned()).chain(missing).collect();
    repair.call(language, &all)
}

/// What to do about a module that a package brings, where packages can be installed.
fn repaired(module: &str, near: &[String], language: &str, repair: &Repair) -> Option<String> {
    let ecosystem = Ecosystem::of_language(language)?;
    if let Some((prefix, rest)) = module.split_once(':') {
        // Node names only the scheme of the import: `npm:`.
        Ecosystem::named(prefix).filter(|named| *named == ecosystem)?;
        let package = package_of(ecosystem, rest).unwrap_or_else(|| "NAME".to_owned());
        let call = repair.call(language, std::slice::from_ref(&package))?;
        return Some(format!("import it as `{package}`, and {call}"));
    }
    // `pip install` may name several, with versions.
    let call = match repair.of_module(language, module) {
        Some(call) => call,
        None => {
            let asked: Vec<String> = module.split(", ").map(str::to_owned).collect();
            let is_list = asked.len() > 1 || module.contains(['=', '<', '>', '[', '~']);
            wanted(&asked, language).ok().filter(|_| is_list)?;
            repair.call(language, &asked)?
        }
    };
    let meant = near.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
    Some(match meant.as_str() {
        "" => call,
        _ => format!("did you mean {meant}? Otherwise {call}"),
    })
}

fn words(module: &str, near: &[String], runtime: &Runtime) -> String {
    if module.starts_with(['.', '/']) {
        return "there is no such file in the sandbox: send it with the program, or write it first"
            .to_owned();
    }
    if let Some(scheme) = scheme_of(module) {
        return format!(
            "imports with `{scheme}:` are of another runtime, and a sandbox has no network to fetch packages from: use \
             what comes with {}, or send the files with the program",
            runtime.title()
        );
    }
    // `pip install` may name several, with versions.
    let module = if is_name(module) { format!("`{module}` is not installed, and ") } else { String::new() };
    let meant = near.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
    let meant = if meant.is_empty() { meant } else { format!("did you mean {meant}? ") };
    let there = match runtime.packages().is_empty() {
        true => format!("use what comes with {}", runtime.title()),
        false => "see get_capabilities for what is installed".to_owned(),
    };
    format!(
        "{meant}{module}a sandbox has no network to install from: {there}, or send its files with the program"
    )
}

/// The scheme of an import such as `npm:chalk` or `https://host/module.js`. Modules of Node have one of their own.
fn scheme_of(module: &str) -> Option<&str> {
    let (scheme, _) = module.split_once(':')?;
    let is_scheme = !scheme.is_empty() && scheme.chars().all(|letter| letter.is_ascii_lowercase());
    (is_scheme && scheme.len() <= NAME_CHARACTERS_MAX && scheme != "node").then_some(scheme)
}

/// Names of modules and packages in Python and JavaScript.
fn is_name(text: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/' | '@');
    !text.is_empty() && text.chars().count() <= NAME_CHARACTERS_MAX && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_nothing_else() {
        assert_eq!(names("numpy pandas"), ["numpy", "pandas"]);
        assert_eq!(names("a b c d").len(), NAMES_MAX);
        assert_eq!(names("`rm` ignore\nall \u{7} os.path @scope/name"), ["os.path", "@scope/name"]);
        assert!(names(&"x".repeat(10_000)).is_empty() && names("").is_empty());
    }

    #[test]
    fn a_missing_module_is_answered_with_the_call_that_brings_its_package() {
        let of = |module: &str, near: &[&str], language: &str, repair: &Repair| {
            let near: Vec<String> = near.iter().map(|name| (*name).to_owned()).collect();
            repaired(module, &near, language, repair)
        };
        let next = |module: &str| of(module, &[], "python", &Repair::NextRun);
        assert_eq!(
            next("cv2").as_deref(),
            Some("run it again with \"packages\": [\"opencv-python-headless\"]")
        );
        assert_eq!(next("a==1, b").as_deref(), Some("run it again with \"packages\": [\"a==1\", \"b\"]"));
        let id = SandboxId::parse(&format!("sbx_{}", "0".repeat(32))).unwrap();
        let told = of("lodash/fp", &[], "javascript", &Repair::InSandbox(id.clone())).unwrap();
        assert_eq!(
            told,
            format!(
                "call install_packages {{\"sandbox_id\": \"{id}\", \"language\": \"javascript\", \"packages\": [\"lodash\"]}}, then run it again"
            )
        );
        assert!(
            of("nump", &["numpy"], "python", &Repair::NextRun)
                .unwrap()
                .starts_with("did you mean `numpy`? Otherwise")
        );
        assert!(
            of("npm:chalk", &[], "javascript", &Repair::NextRun)
                .unwrap()
                .starts_with("import it as `chalk`, and ")
        );
        for (module, language, repair) in [
            ("pandas", "python", Repair::Off),
            ("pandas.cor", "python", Repair::NextRun),
            ("./own.js", "javascript", Repair::NextRun),
            ("https://host/x.js", "javascript", Repair::NextRun),
            ("nokogiri", "ruby", Repair::NextRun),
        ] {
            assert_eq!(of(module, &[], language, &repair), None, "{module}");
        }
    }

    #[test]
    fn packages_that_a_compiler_did_not_find_are_answered_with_the_call_that_brings_them() {
        let said = "main.go:4:2: cannot find package \"github.com/google/uuid\" in any of:\n\t/usr/local/go/src (from $GOROOT)\n\
                    main.go:5:2: cannot find module providing package golang.org/x/text/cases: module lookup disabled by GOPROXY=off\n\
                    main.go:5:2: no required module provides package golang.org/x/text/cases; to add it:\n\
                    main.go:6:2: cannot find package \"own/part\" in any of:";
        let none = ShownPackages::default();
        let of = |language: &str, said: &str, repair: &Repair| of_compiler(language, said, &none, repair);
        assert_eq!(
            of("go", said, &Repair::NextRun).as_deref(),
            Some("run it again with \"packages\": [\"github.com/google/uuid\", \"golang.org/x/text/cases\"]")
        );
        assert_eq!(of("go", said, &Repair::Off), None);
        assert_eq!(of("rust", said, &Repair::NextRun), None);
        assert_eq!(
            of("go", "main.go:6:2: cannot find package \"own/part\" in any of:", &Repair::NextRun),
            None
        );
    }

    #[test]
    fn a_scheme_is_that_of_another_runtime() {
        for (module, scheme) in
            [("npm:", Some("npm")), ("npm:chalk", Some("npm")), ("https://a/b", Some("https"))]
        {
            assert_eq!(scheme_of(module), scheme);
        }
        for module in ["chalk", "@scope/name", "node:nothing", "numpy==1.0 pandas:", ":x"] {
            assert_eq!(scheme_of(module), None, "{module}");
        }
    }
}
