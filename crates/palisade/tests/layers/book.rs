//! A book of packages that are written here by hand.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::RunError;
use engine::packages::{Ecosystem, PackageBook, PackageCall, PackageSet, PackageVersion};
use sandbox::Layer;

/// Files of a package, with their permission bits.
type Files = Vec<(String, String, u32)>;

/// Makes layers in a folder.
pub(crate) struct Book {
    folder: PathBuf,
    pub(crate) prepared: AtomicUsize,
}

impl Book {
    pub(crate) fn new(folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).unwrap();
        Self { folder, prepared: AtomicUsize::new(0) }
    }

    /// The folder of a set.
    pub(crate) fn path(&self, ecosystem: Ecosystem, requirements: &[String]) -> PathBuf {
        match std::env::var_os("PALISADE_LAYER") {
            // A layer that was made elsewhere, for measurements.
            Some(path) if requirements == ["measured"] => PathBuf::from(path),
            _ => self.folder.join(format!("{}-{}", ecosystem.name(), requirements.join("+"))),
        }
    }

    fn set(&self, call: &PackageCall<'_>, was_cached: bool) -> PackageSet {
        let path = self.path(call.ecosystem, call.requirements);
        let name = |text: &String| text.split("==").next().unwrap().to_owned();
        let version = |text: &String| text.split("==").nth(1).unwrap_or("1").to_owned();
        let one = |text: &String| PackageVersion { name: name(text), version: version(text) };
        PackageSet {
            ecosystem: call.ecosystem,
            layer: Layer {
                digest: path.file_name().unwrap().to_string_lossy().into_owned(),
                path,
                target: PathBuf::from("/wherever"),
            },
            requirements: call.requirements.to_vec(),
            packages: call.requirements.iter().map(one).collect(),
            modules: if call.requirements == ["measured"] {
                vec!["numpy".to_owned(), "pandas".to_owned()]
            } else {
                call.requirements.iter().map(name).collect()
            },
            was_cached,
            in_use: Arc::new(()),
        }
    }
}

impl PackageBook for Book {
    fn offered(&self) -> Vec<Ecosystem> {
        Ecosystem::ALL.to_vec()
    }

    fn recall(&self, call: &PackageCall<'_>) -> Option<PackageSet> {
        self.path(call.ecosystem, call.requirements).exists().then(|| self.set(call, true))
    }

    fn prepare<'a>(
        &'a self,
        call: PackageCall<'a>,
    ) -> Pin<Box<dyn Future<Output = Result<PackageSet, RunError>> + Send + 'a>> {
        Box::pin(async move {
            self.prepared.fetch_add(1, Ordering::SeqCst);
            let set = self.set(&call, false);
            let draft =
                set.layer.path.with_extension(format!("draft{}", self.prepared.load(Ordering::SeqCst)));
            for requirement in call.requirements {
                let files = match call.ecosystem {
                    Ecosystem::Pypi => python_package(requirement),
                    Ecosystem::Npm => node_package(requirement),
                    Ecosystem::Go => panic!("no test asks for modules"),
                };
                write(&draft, files);
            }
            if call.ecosystem == Ecosystem::Pypi {
                let compiled =
                    Command::new("/usr/bin/python3").args(["-m", "compileall", "-q"]).arg(&draft).status();
                assert!(compiled.unwrap().success());
            }
            fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
            // Another test may have made it meanwhile.
            fs::rename(&draft, &set.layer.path).ok();
            Ok(set)
        })
    }
}

fn write(root: &Path, files: Files) {
    for (name, content, mode) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let set_uid = root.join("bin/set-uid");
    if root.join("bin").exists() && !set_uid.exists() {
        fs::copy("/usr/bin/id", &set_uid).unwrap();
        fs::set_permissions(&set_uid, fs::Permissions::from_mode(0o6755)).unwrap();
    }
}

/// Notes at import whether a system-call filter is in force (proc(5), `Seccomp`).
pub(crate) const FILTER: &str =
    "FILTER = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('Seccomp:'))\n";

/// `name==version`: a module that knows its version, and a command.
fn python_package(requirement: &str) -> Files {
    let (name, version) = requirement.split_once("==").unwrap_or((requirement, "1"));
    vec![
        (format!("{name}/__init__.py"), format!("VERSION = '{version}'\n{FILTER}"), 0o644),
        (format!("{name}/late.py"), format!("VERSION = '{version}'\n"), 0o644),
        (
            format!("{name}-{version}.dist-info/METADATA"),
            format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
            0o644,
        ),
        (format!("bin/{name}-tool"), format!("#!/bin/sh\necho {name} {version}\n"), 0o755),
    ]
}

/// A package whose entry is not `index.js`, which is found by its description alone; `esm-*` is a module.
fn node_package(requirement: &str) -> Files {
    let (name, version) = requirement.split_once("==").unwrap_or((requirement, "1"));
    let is_module = name.starts_with("esm-");
    let kind = if is_module { "module" } else { "commonjs" };
    let code = if is_module {
        format!("export const version = '{version}';\nexport default '{name}';\n")
    } else {
        format!("exports.version = '{version}'; exports.name = '{name}';\n")
    };
    let description =
        format!(r#"{{"name": "{name}", "version": "{version}", "type": "{kind}", "main": "lib/entry.js"}}"#);
    vec![
        (format!("{name}/package.json"), description, 0o644),
        (format!("{name}/lib/entry.js"), code, 0o644),
        (format!(".bin/{name}-tool"), format!("#!/bin/sh\necho {name} {version}\n"), 0o755),
    ]
}
