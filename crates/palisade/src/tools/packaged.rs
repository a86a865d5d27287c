//! Commands that fetch a package and run it (`npx`, `uvx`, `pipx run`): the package becomes a layer, and the sandbox of the
//! server fetches nothing.

use std::path::Path;

use engine::packages::{Ecosystem, PackageCall, PackageSet};
use engine::{Caller, Engine, RunError};
use serde_json::Value;

use super::command::Launch;

/// A package and the command in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackagedCommand {
    pub(super) ecosystem: Ecosystem,
    /// What the registry is asked for.
    pub(super) requirement: String,
    /// The name of the package.
    pub(super) package: String,
    /// The command of the package.
    pub(super) command: String,
    pub(super) args: Vec<String>,
}

/// Reads a command line of a fetcher; `None` if the program is none.
pub(super) fn parse(program: &str, args: &[String]) -> Result<Option<PackagedCommand>, String> {
    let (ecosystem, args) = match (program, args) {
        ("npx", args) => (Ecosystem::Npm, args),
        ("uvx", args) => (Ecosystem::Pypi, args),
        ("pipx", [first, args @ ..]) if first == "run" => (Ecosystem::Pypi, args),
        ("bunx" | "pnpx" | "pipx", _) => {
            return Err(format!("{program} is not known behind the wall: use npx or uvx"));
        }
        _ => return Ok(None),
    };
    let (mut from, mut rest) = (None, args.iter());
    let first = loop {
        let word = rest.next().ok_or_else(|| format!("{program} names no package"))?;
        match word.as_str() {
            "-y" | "--yes" | "-q" | "--quiet" => {}
            "-p" | "--package" | "--from" | "--spec" => from = rest.next().cloned(),
            option if option.starts_with("--package=") || option.starts_with("--from=") => {
                from = option.split_once('=').map(|(_, value)| value.to_owned());
            }
            option if option.starts_with('-') => {
                return Err(format!("{program} is not run with the option {option} behind the wall"));
            }
            _ => break word.clone(),
        }
    };
    let (package, requirement) = requirement(ecosystem, from.as_deref().unwrap_or(&first));
    let command = match from {
        Some(_) => first,
        None => package.rsplit('/').next().unwrap_or(&package).to_owned(),
    };
    let args = rest.cloned().collect();
    Ok(Some(PackagedCommand { ecosystem, requirement, package, command, args }))
}

/// The name of the package, and what the registry is asked for.
fn requirement(ecosystem: Ecosystem, text: &str) -> (String, String) {
    // A scope begins with the sign that also separates the version.
    let at = text.char_indices().skip(1).find(|(_, one)| *one == '@').map(|(at, _)| at);
    let (name, version) = at.map_or((text, None), |at| (&text[..at], Some(&text[at + 1..])));
    let version = version.filter(|version| !version.is_empty() && *version != "latest");
    match (ecosystem, version) {
        (_, None) => {
            let plain = name.find(['=', '<', '>', '~', '!', '[']).map_or(name, |end| &name[..end]);
            let package = if ecosystem == Ecosystem::Pypi { plain } else { name };
            (package.to_owned(), name.to_owned())
        }
        (Ecosystem::Npm | Ecosystem::Go, Some(version)) => (name.to_owned(), format!("{name}@{version}")),
        (Ecosystem::Pypi, Some(version)) => (name.to_owned(), format!("{name}=={version}")),
    }
}

/// Makes the layer of the package, or finds the one that is there.
pub(super) async fn prepare(
    engine: &Engine,
    caller: &Caller,
    wanted: &PackagedCommand,
) -> Result<PackageSet, RunError> {
    let Some(book) = engine.package_book().filter(|book| book.offered().contains(&wanted.ecosystem)) else {
        let message = format!("`{}` is a package, and this server installs none", wanted.requirement);
        return Err(RunError::new("packages_off", message)
            .remedy("set `packages.enabled = true`, or install it and name its program in `command`"));
    };
    let wall = engine.program_wall();
    // The layers of a set are known by its interpreter.
    let found = wall.runtimes().find(language(wanted.ecosystem)).await;
    found.map_err(|error| RunError::new(error.code(), error.to_string()).remedy(error.remedy()))?;
    let requirements = [wanted.requirement.clone()];
    let call = || PackageCall {
        caller,
        wall: wall.name(),
        ecosystem: wanted.ecosystem,
        requirements: &requirements,
        present: &[],
        progress: None,
    };
    match book.recall(&call()) {
        Some(set) => Ok(set),
        None => book.prepare(call()).await,
    }
}

fn language(ecosystem: Ecosystem) -> &'static str {
    match ecosystem {
        Ecosystem::Npm => "javascript",
        Ecosystem::Pypi => "python",
        Ecosystem::Go => "go",
    }
}

/// The program in a layer, as the sandbox shows it.
pub(super) fn launch(wanted: &PackagedCommand, set: &PackageSet) -> Result<Launch, String> {
    let place = match wanted.ecosystem {
        Ecosystem::Npm => format!("{}/{}", wanted.package, npm_program(&set.layer.path, wanted)?),
        Ecosystem::Pypi => format!("bin/{}", wanted.command),
        Ecosystem::Go => {
            return Err(format!("{} is a Go module, which has no ready-made command", wanted.package));
        }
    };
    if !set.layer.path.join(&place).is_file() {
        return Err(format!("the package {} has no command `{}`", wanted.package, wanted.command));
    }
    let program = format!("{}/{place}", wanted.ecosystem.target());
    let argv = [String::new(), program].into_iter().chain(wanted.args.iter().cloned()).collect();
    Ok(Launch { language: Some(language(wanted.ecosystem)), argv, binds: Vec::new() })
}

/// The file of a package's command: the one of that name, or the only one.
fn npm_program(layer: &Path, wanted: &PackagedCommand) -> Result<String, String> {
    let none = || format!("the package {} has no command `{}`", wanted.package, wanted.command);
    let text = std::fs::read(layer.join(&wanted.package).join("package.json")).map_err(|_| none())?;
    let manifest: Value = serde_json::from_slice(&text).map_err(|_| none())?;
    let file = match &manifest["bin"] {
        Value::String(file) => Some(file),
        Value::Object(files) => {
            let named = files.get(&wanted.command);
            let only = || files.values().next().filter(|_| files.len() == 1);
            match named.or_else(only) {
                Some(Value::String(file)) => Some(file),
                _ => None,
            }
        }
        _ => None,
    };
    let file = file.ok_or_else(none)?.trim_start_matches("./");
    let is_plain = !file.starts_with('/') && !file.split('/').any(|part| part == "..");
    is_plain.then(|| file.to_owned()).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> PackagedCommand {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        parse(&words[0], &words[1..]).unwrap().unwrap()
    }

    #[test]
    fn fetchers_name_a_package_a_version_and_a_command() {
        for (line, requirement, package, command, args) in [
            ("npx -y @scope/server-x /srv", "@scope/server-x", "@scope/server-x", "server-x", 1),
            ("npx @scope/x@1.2 a b", "@scope/x@1.2", "@scope/x", "x", 2),
            ("npx -y x@latest", "x", "x", "x", 0),
            ("npx --package=@scope/y z", "@scope/y", "@scope/y", "z", 0),
            ("uvx mcp-server-git --repository /r", "mcp-server-git", "mcp-server-git", "mcp-server-git", 2),
            ("uvx ruff@0.9", "ruff==0.9", "ruff", "ruff", 0),
            ("uvx --from tool>=2 run-it", "tool>=2", "tool", "run-it", 0),
            ("pipx run thing", "thing", "thing", "thing", 0),
        ] {
            let found = parsed(line);
            assert_eq!(
                (found.requirement.as_str(), found.package.as_str()),
                (requirement, package),
                "{line}"
            );
            assert_eq!((found.command.as_str(), found.args.len()), (command, args), "{line}");
        }
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parse("node", &words("a")).unwrap(), None);
        assert!(parse("npx", &words("--node-options=x y")).unwrap_err().contains("--node-options"));
        assert!(parse("npx", &[]).unwrap_err().contains("no package"));
    }

    #[test]
    fn the_command_of_a_package_is_its_own_or_the_only_one() {
        let folder = harness::TestFolder::new();
        let package = folder.path().join("x");
        std::fs::create_dir_all(&package).unwrap();
        let wanted = parsed("npx x");
        for (manifest, program) in [
            (r#"{"bin": "./cli.js"}"#, Some("cli.js")),
            (r#"{"bin": {"mcp-x": "dist/i.js"}}"#, Some("dist/i.js")),
            (r#"{"bin": {"x": "a.js", "y": "b.js"}}"#, Some("a.js")),
            (r#"{"bin": {"y": "a.js", "z": "b.js"}}"#, None),
            (r#"{"bin": "../../outside.js"}"#, None),
            ("{}", None),
        ] {
            std::fs::write(package.join("package.json"), manifest).unwrap();
            assert_eq!(npm_program(folder.path(), &wanted).ok().as_deref(), program, "{manifest}");
        }
    }
}
