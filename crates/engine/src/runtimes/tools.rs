//! The commands of the languages that every program finds on its PATH: `python`, `cargo`, `go`, `node` and others.
//!
//! They belong to the toolchains that the wall's inventory named for the languages, wherever those lie. A
//! directory outside the usual ones goes to the front of the PATH. A command that has another name there, or that
//! another program of a usual directory would hide, is a link in [`LINKS`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sandbox::{PROGRAM_PATH, ReadOnlyBind, Toolchain};

use super::{Definition, Runtime, Runtimes, definition};

/// The directory of the links.
const LINKS: &str = "/palisade/bin";
/// How long the first program of a server waits for the toolchains of other languages. A toolchain that takes
/// longer is left out until the next start.
const PATIENCE: Duration = Duration::from_secs(10);

/// What all programs of one wall get for these commands.
#[derive(Debug, Default)]
pub(super) struct ShellTools {
    binds: Vec<PathBuf>,
    /// Path and target.
    links: Vec<(PathBuf, PathBuf)>,
    env: BTreeMap<String, String>,
}

impl ShellTools {
    fn of(found: &[(Arc<Definition>, Arc<Toolchain>)]) -> Self {
        let usual: Vec<&Path> = PROGRAM_PATH.split(':').map(Path::new).collect();
        let (mut tools, mut directories) = (Self::default(), Vec::new());
        for (definition, toolchain) in found {
            tools.binds.extend(toolchain.tools.binds.iter().cloned());
            let wanted = definition.tools.iter().flat_map(|tools| &tools.env).chain(&toolchain.env);
            for (name, value) in wanted {
                tools.env.entry(name.clone()).or_insert_with(|| value.clone());
            }
            for (name, path) in &toolchain.tools.commands {
                let path = Path::new(path);
                match path.parent().filter(|_| path.file_name().is_some_and(|own| own == name.as_str())) {
                    Some(directory) if !usual.contains(&directory) => {
                        if !directories.contains(&directory) {
                            directories.push(directory);
                        }
                    }
                    _ => tools.links.push((Path::new(LINKS).join(name), path.to_owned())),
                }
            }
        }
        if !tools.links.is_empty() {
            directories.insert(0, Path::new(LINKS));
        }
        let path: String = directories.iter().map(|directory| format!("{}:", directory.display())).collect();
        tools.env.insert("PATH".to_owned(), format!("{path}{PROGRAM_PATH}"));
        tools
    }
}

impl Runtimes {
    /// The commands of this wall's languages. They are looked for once.
    pub(super) async fn shell_tools(&self) -> Arc<ShellTools> {
        let find = || async {
            let definitions: Vec<_> = definition::names_with_tools().filter_map(definition::load).collect();
            let ask = |definition: &Arc<Definition>| {
                let definition = Arc::clone(definition);
                Box::pin(async move {
                    let found = tokio::time::timeout(PATIENCE, self.toolchain_of(&definition.name)).await;
                    match found {
                        Ok(found) => found.ok().map(|found| (definition, found)),
                        Err(_) => {
                            tracing::warn!(language = definition.name, "tools_left_out");
                            None
                        }
                    }
                })
            };
            let found = all(definitions.iter().map(ask).collect()).await;
            Arc::new(ShellTools::of(&found.into_iter().flatten().collect::<Vec<_>>()))
        };
        Arc::clone(self.tools.get_or_init(find).await)
    }
}

/// Waits for all of them at once.
async fn all<F: Future + Unpin>(mut waiting: Vec<F>) -> Vec<F::Output> {
    let mut done: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, output) in waiting.iter_mut().zip(&mut done).filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(value) = std::pin::Pin::new(future).poll(context) {
                *output = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

impl Runtime {
    /// The links that a sandbox of its programs shows: path and target.
    pub(crate) fn links(&self) -> Vec<(PathBuf, PathBuf)> {
        self.tools.links.clone()
    }

    /// The PATH with the directory of the links in front; `None` if it is there already.
    pub(crate) fn path_with_links(&self) -> Option<String> {
        let path = self.tools.env.get("PATH").map_or(PROGRAM_PATH, String::as_str);
        (!path.split(':').any(|directory| directory == LINKS)).then(|| format!("{LINKS}:{path}"))
    }

    /// The environment of these commands, with the PATH.
    pub(super) fn tools_environment(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.tools.env.iter().map(|(name, value)| (name.clone(), value.clone()))
    }

    /// Adds what these commands need. No bind lies beneath another one.
    pub(super) fn with_tools(&self, own: &[PathBuf]) -> Vec<ReadOnlyBind> {
        let is_beneath =
            |path: &PathBuf, others: &[PathBuf]| others.iter().any(|other| path.starts_with(other));
        let tools: Vec<&PathBuf> = self.tools.binds.iter().filter(|path| !is_beneath(path, own)).collect();
        let own = own.iter().filter(|path| !tools.iter().any(|tool| path.starts_with(tool)));
        let optional = |path: &&PathBuf| ReadOnlyBind::in_place_if_there((*path).clone());
        own.cloned().map(ReadOnlyBind::in_place).chain(tools.iter().map(optional)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::share::CpuShare;
    use sandbox::Tools;
    use sandbox::fake::FakeBackend;

    use super::*;

    fn toolchain(binds: &[&str], commands: &[(&str, &str)]) -> Toolchain {
        let commands = commands.iter().map(|(name, path)| ((*name).to_owned(), (*path).to_owned())).collect();
        let tools = Tools { commands, binds: binds.iter().map(PathBuf::from).collect() };
        Toolchain { tools, binds: binds.iter().map(PathBuf::from).collect(), ..Toolchain::default() }
    }

    async fn runtime_beside(language: &str, python: Toolchain, rust: Toolchain) -> Arc<Runtime> {
        let fake = FakeBackend::new(drop);
        fake.languages().set("python", Ok(python));
        fake.languages().set("rust", Ok(rust));
        Runtimes::new(Arc::new(fake), Path::new("/nowhere"), None).find(language).await.unwrap()
    }

    fn value(runtime: &Runtime, wanted: &str) -> Option<String> {
        runtime.own_environment().into_iter().find(|(name, _)| name == wanted).map(|(_, value)| value)
    }

    #[tokio::test]
    async fn the_shell_finds_the_commands_of_other_languages() {
        let python =
            toolchain(&["/home/u/.pyenv/versions/3"], &[("python", "/home/u/.pyenv/versions/3/bin/python")]);
        let rust =
            toolchain(&["/opt/rust"], &[("cargo", "/opt/rust/bin/cargo"), ("rustc", "/opt/rust/bin/rustc")]);
        let bash = runtime_beside("bash", python, rust).await;
        let path = "/home/u/.pyenv/versions/3/bin:/opt/rust/bin:/usr/local/bin:/usr/bin:/bin";
        assert_eq!(value(&bash, "PATH").as_deref(), Some(path));
        assert_eq!(value(&bash, "CARGO_NET_OFFLINE").as_deref(), Some("true"));
        let binds = bash.read_only_binds();
        let targets: Vec<_> =
            binds.iter().map(|bind| (bind.target.to_str().unwrap(), bind.optional)).collect();
        assert_eq!(targets, [("/home/u/.pyenv/versions/3", true), ("/opt/rust", true)]);
        assert!(bash.links().is_empty());
    }

    #[tokio::test]
    async fn a_command_of_another_name_or_behind_another_is_a_link() {
        let python = toolchain(&[], &[("python", "/usr/bin/python3.11"), ("python3", "/usr/bin/python3")]);
        let bash = runtime_beside("bash", python, Toolchain::default()).await;
        let link = |name: &str, target: &str| (Path::new(LINKS).join(name), PathBuf::from(target));
        assert_eq!(
            bash.links(),
            [link("python", "/usr/bin/python3.11"), link("python3", "/usr/bin/python3")]
        );
        assert_eq!(value(&bash, "PATH").unwrap(), "/palisade/bin:/usr/local/bin:/usr/bin:/bin");
    }

    #[tokio::test]
    async fn a_compiler_gets_none_of_it_and_its_program_does() {
        let rust = toolchain(&["/opt/rust"], &[("rustc", "/opt/rust/bin/rustc")]);
        let rust = Toolchain { binds: vec!["/opt/rust/lib".into()], ..rust };
        let rust = runtime_beside("rust", Toolchain::default(), rust).await;
        assert_eq!(value(&rust, "PATH").as_deref(), Some(PROGRAM_PATH));
        assert_eq!(rust.read_only_binds(), [ReadOnlyBind::in_place("/opt/rust/lib".into())]);
        assert_eq!(rust.run_binds(), [ReadOnlyBind::in_place_if_there("/opt/rust".into())]);
        let env = rust.environment_with(
            CpuShare::ONE,
            crate::packages::Shows::NOTHING,
            &crate::given::Given::default(),
        );
        assert!(env.iter().any(|(name, value)| name == "PATH" && value.starts_with("/opt/rust/bin:")));
    }
}
