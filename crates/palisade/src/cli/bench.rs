//! `palisade bench`: starts the benchmark with an engine.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::bench::{
    BareEngine, BareRuntime, BareWall, BenchArguments, FoundLanguage, Language, Surroundings, WallUnderTest,
};
use backends::daemon::Engine;
use backends::oci::OciRuntime;

use crate::config;
use crate::config::wall::BUILT;
use crate::machine::{self, ServerMode};
use crate::options::Options;
use crate::walls::{self, Named};

pub(crate) fn main(options: &Options, arguments: &BenchArguments) -> ExitCode {
    let find_languages = |state_dir: &Path, wanted: &[&'static str]| find(options, state_dir, wanted);
    let surroundings = Surroundings {
        state_dir: options.state_dir.as_deref(),
        flags: flags(options),
        find_languages: &find_languages,
        find_wall: &|name| find_wall(options, name),
    };
    ::bench::main(&surroundings, arguments)
}

/// A wall by its name, with what builds it.
fn find_wall(options: &Options, name: &str) -> Result<WallUnderTest, String> {
    let Some(name) = BUILT.into_iter().find(|built| *built == name) else {
        return Err(format!("there is no wall `{}`; use one of {}", terminal::plain(name), BUILT.join(", ")));
    };
    if let Some(engine) = walls::engine_of(name) {
        let bare = Some(BareWall::Engine(find_engine(options, engine)?));
        return Ok(WallUnderTest { name, bare });
    }
    let runtime = OciRuntime::ALL.into_iter().find(|runtime| runtime.name() == name);
    let bare = match runtime.map(|runtime| (runtime, runtime.find())) {
        None => None,
        Some((runtime, None)) => return Err(format!("{} is not installed", runtime.command())),
        Some((runtime, Some(program))) => {
            let options = runtime.options(&program);
            let stage_role = backends::oci::STAGE_ROLE;
            Some(BareWall::Runtime(BareRuntime { program, options, stage_role }))
        }
    };
    Ok(WallUnderTest { name, bare })
}

/// The client of an engine, and the socket of its wall.
fn find_engine(options: &Options, engine: Engine) -> Result<BareEngine, String> {
    let settings = config::load(options).map_err(|error| error.to_string())?.settings;
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut clients = std::env::split_paths(&folders).map(|folder| folder.join(engine.name()));
    let client = clients.find(|file| file.is_file());
    let client = client.ok_or_else(|| format!("the client {} is not on the PATH", engine.name()))?;
    let socket_option = match engine {
        Engine::Docker => "--host",
        Engine::Podman => "--url",
    };
    Ok(BareEngine { client, socket_option, socket: walls::socket(&settings.wall, engine) })
}

fn flags(options: &Options) -> Vec<String> {
    let allowed = options.allow_missing.iter().map(|name| format!("--allow-missing={name}"));
    let level = options.log_level.iter().map(|level| format!("--log-level={level}"));
    let format = options.log_format.iter().map(|format| format!("--log-format={format}"));
    let endpoint = options.otlp_endpoint.iter().map(|url| format!("--otlp-endpoint={url}"));
    allowed.chain(level).chain(format).chain(endpoint).collect()
}

fn find(options: &Options, state_dir: &Path, wanted: &[&'static str]) -> io::Result<Vec<FoundLanguage>> {
    let own = Options {
        state_dir: Some(state_dir.to_owned()),
        allow_missing: options.allow_missing.clone(),
        log_level: options.log_level.clone(),
        log_format: options.log_format.clone(),
        otlp_endpoint: None,
        walls: Named::default(),
    };
    machine::with_engine(&own, ServerMode::OneShot, |machine| async move {
        let mut found = Vec::new();
        for name in wanted {
            let language = machine.engine.runtimes().find(name).await.map(|runtime| Language {
                name: (*name).to_owned(),
                version: runtime.version().to_owned(),
                interpreter: PathBuf::from(runtime.executable()),
                canary: (runtime.canary().0.to_owned(), runtime.canary().1.to_owned()),
            });
            found.push((*name, language.map_err(|error| error.to_string())));
        }
        found
    })
}
