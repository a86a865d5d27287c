//! Configuration: `palisade.toml`, `PALISADE_*` variables, flags.
//!
//! Precedence from lowest to highest: built-in values, `/etc/palisade`, the user's configuration directory,
//! the working directory, the environment, flags. The working directory may be an untrusted repository, so
//! its file may only tighten settings ([`Settings::tighten`]). Other requests of that file are ignored and
//! reported. Any other mistake, in any source, is an error, and nothing is applied. [`crate::machine`] calls
//! this module before an engine exists, and `palisade config` calls it too.

pub(crate) mod access;
pub(crate) mod command;
mod file;
mod key;
mod oauth;
pub(crate) mod packages;
pub(crate) mod policies;
mod quota;
pub(crate) mod serve;
mod settings;
pub(crate) mod tools;
pub(crate) mod value;
pub(crate) mod wall;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use engine::AdmissionLimits;
use policy::Policy;

use self::file::Trust;
use self::key::Key;
use self::serve::ServeFlag;
use self::settings::{Assignment, contradictions};
pub(crate) use self::settings::{Ignored, Origin, Settings};
pub(crate) use self::value::{LogFormat, LogLevel};
use self::value::{Raw, Setting};
use crate::options::Options;

const SYSTEM_FOLDER: &str = "/etc/palisade";

/// One error and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    place: String,
    message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// The reason why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// A file cannot be used at all.
    #[error("the configuration {} cannot be used: {reason} (remedy: {remedy})", path.display())]
    Unfit { path: PathBuf, reason: String, remedy: String },
    /// The configuration has errors.
    #[error("{}", .0.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes(Vec<Problem>),
}

/// The places of the configuration, of this process or of a test.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    system: PathBuf,
    user: Option<PathBuf>,
    working: Option<PathBuf>,
    variables: BTreeMap<String, OsString>,
}

impl Surroundings {
    pub(crate) fn of_process() -> Self {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        Self {
            system: PathBuf::from(SYSTEM_FOLDER),
            user: crate::state::config_home().map(|folder| folder.join("palisade")),
            working: std::env::current_dir().ok(),
            variables: variables.collect(),
        }
    }
}

/// The settings in force and the notes of loading them.
pub(crate) struct Loaded {
    pub(crate) settings: Settings,
    /// Reported on standard error.
    pub(crate) ignored: Vec<Ignored>,
    /// Every path that was looked for, and whether it exists.
    pub(crate) files: Vec<(PathBuf, bool)>,
}

/// Loads the configuration of this process. Reports ignored settings on standard error.
pub(crate) fn load(options: &Options) -> Result<Loaded, ConfigError> {
    let loaded = load_from(&Surroundings::of_process(), options)?;
    for Ignored { key, origin, reason } in &loaded.ignored {
        terminal::complain(&format!("{origin}: {} is ignored: {reason}", key.name()), None);
    }
    Ok(loaded)
}

/// The built-in policy of this machine and the number of its cores.
pub(crate) fn built_in() -> (Policy, usize) {
    static CORES: OnceLock<usize> = OnceLock::new();
    // Computed once, because it walks through the control groups.
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    (Policy::built_in(u32::try_from(cores).unwrap_or(1)), cores)
}

fn load_from(surroundings: &Surroundings, options: &Options) -> Result<Loaded, ConfigError> {
    let (policy, cores) = built_in();
    let mut settings = Settings::built_in(&policy, AdmissionLimits::for_machine(cores));
    let (mut ignored, mut files, mut identities) = (Vec::new(), Vec::new(), Vec::new());
    for folder in [Some(&surroundings.system), surroundings.user.as_ref()].into_iter().flatten() {
        let path = file::in_folder(folder);
        let opened = file::open(&path, Trust::Own)?;
        files.push((path.clone(), opened.is_some()));
        let Some(opened) = opened else { continue };
        file::parse(&path, &opened.text)?.into_iter().for_each(|given| settings.apply(given));
        identities.push(opened.identity);
    }
    if let Some(working) = &surroundings.working {
        let path = file::in_folder(working);
        // If the working directory is one of the folders above, its file is already trusted and applied.
        let is_known = || same_file(&path).is_some_and(|identity| identities.contains(&identity));
        if !is_known() {
            let opened = file::open(&path, Trust::Stranger)?;
            files.push((path.clone(), opened.is_some()));
            let given =
                opened.map(|opened| file::parse(&path, &opened.text)).transpose()?.unwrap_or_default();
            ignored.extend(given.into_iter().filter_map(|given| settings.tighten(given)));
        }
    }
    match of_opentelemetry(&surroundings.variables) {
        Some(Ok(given)) => settings.apply(given),
        Some(Err(unfit)) => ignored.push(unfit),
        None => {}
    }
    from_environment(&surroundings.variables)?.into_iter().for_each(|given| settings.apply(given));
    from_flags(options)?.into_iter().for_each(|given| settings.apply(given));
    if let Some(message) = settings.tools.conflict(&settings.access.names.value) {
        let place = settings.tools.servers.origin.to_string();
        return Err(ConfigError::Mistakes(vec![Problem { place, message }]));
    }
    Ok(Loaded { settings, ignored, files })
}

/// The collector's address from the variables that all programs with OpenTelemetry share. They are weaker
/// than Palisade's variables. They also serve other programs, so an unsuitable value is not an error.
fn of_opentelemetry(variables: &BTreeMap<String, OsString>) -> Option<Result<Assignment, Ignored>> {
    const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let text =
        |name: &str| variables.get(name).and_then(|value| value.to_str()).filter(|text| !text.is_empty());
    let endpoint = text(ENDPOINT)?;
    if text("OTEL_SDK_DISABLED") == Some("true") || text("OTEL_TRACES_EXPORTER") == Some("none") {
        return None;
    }
    let origin = Origin::Variable(ENDPOINT.to_owned());
    let parsed = match text("OTEL_EXPORTER_OTLP_PROTOCOL") {
        Some("grpc") => Err("spans are sent as JSON over HTTP, not by gRPC".to_owned()),
        _ => Setting::parse(&Key::OtlpEndpoint, &Raw::from_text(&Key::OtlpEndpoint, endpoint)),
    };
    Some(match parsed {
        Ok(setting) => Ok(Assignment { setting, origin }),
        Err(reason) => Err(Ignored { key: Key::OtlpEndpoint, origin, reason }),
    })
}

fn same_file(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

fn from_environment(variables: &BTreeMap<String, OsString>) -> Result<Vec<Assignment>, ConfigError> {
    let keys = Key::all();
    let (mut assignments, mut problems) = (Vec::new(), Vec::new());
    // An empty variable counts as unset, because compose files and scripts pass unset values as empty.
    let ours = variables.iter().filter(|(name, value)| key::is_meant_as_setting(name) && !value.is_empty());
    for (name, value) in ours {
        let parsed = match (keys.iter().find(|key| key.variable() == *name), value.to_str()) {
            (None, _) => Err(format!("no setting has this variable; {}", suggestion(&keys, name))),
            (Some(_), None) => Err("it is not UTF-8 text".to_owned()),
            (Some(key), Some(text)) => Setting::parse(key, &Raw::from_text(key, text)),
        };
        match parsed {
            Ok(setting) => assignments.push(Assignment { setting, origin: Origin::Variable(name.clone()) }),
            Err(message) => problems.push(Problem { place: format!("${}", terminal::plain(name)), message }),
        }
    }
    for (origin, message) in contradictions(&assignments) {
        problems.push(Problem { place: origin.to_string(), message });
    }
    if problems.is_empty() { Ok(assignments) } else { Err(ConfigError::Mistakes(problems)) }
}

/// The variables with the longest common prefix with a mistaken name.
fn suggestion(keys: &[Key], mistaken: &str) -> String {
    let common =
        |name: &str| name.bytes().zip(mistaken.bytes()).take_while(|(one, other)| one == other).count();
    let names: Vec<String> = keys.iter().map(Key::variable).collect();
    let most = names.iter().map(|name| common(name)).max().unwrap_or(0);
    // A longer name such as PALISADE_LOG_LEVEL also suggests PALISADE_LOG, because it begins with it.
    let is_near = |name: &&String| common(name) == most || mistaken.starts_with(name.as_str());
    let near: Vec<&str> = names.iter().filter(is_near).map(String::as_str).collect();
    format!("the nearest are {}", near.join(", "))
}

fn from_flags(options: &Options) -> Result<Vec<Assignment>, ConfigError> {
    let mut assignments = Vec::new();
    if let Some(path) = &options.state_dir {
        // Relative to the working directory of the command, as in every other command.
        let setting = Setting::StateDir(std::path::absolute(path).unwrap_or_else(|_| path.clone()));
        assignments.push(Assignment { setting, origin: Origin::Flag("--state-dir") });
    }
    let mut texts = Vec::new();
    if !options.allow_missing.is_empty() {
        texts.push((Key::AllowMissing, "--allow-missing", options.allow_missing.join(",")));
    }
    texts.extend(options.log_level.iter().map(|level| (Key::LogLevel, "--log-level", level.clone())));
    texts.extend(options.log_format.iter().map(|format| (Key::LogFormat, "--log-format", format.clone())));
    texts.extend(options.otlp_endpoint.iter().map(|url| (Key::OtlpEndpoint, "--otlp-endpoint", url.clone())));
    for (key, flag, text) in texts {
        let setting = Setting::parse(&key, &Raw::from_text(&key, &text))
            .map_err(|message| ConfigError::Mistakes(vec![Problem { place: flag.to_owned(), message }]))?;
        assignments.push(Assignment { setting, origin: Origin::Flag(flag) });
    }
    Ok(assignments)
}

/// Applies the flags of `serve`, which override every other source.
pub(crate) fn apply_serve_flags(settings: &mut Settings, flags: Vec<ServeFlag>) -> Result<(), ConfigError> {
    let (mut assignments, mut problems) = (Vec::new(), Vec::new());
    for (key, flag, raw) in flags {
        match Setting::parse(&Key::Serve(key), &raw) {
            Ok(setting) => assignments.push(Assignment { setting, origin: Origin::Flag(flag) }),
            Err(message) => problems.push(Problem { place: flag.to_owned(), message }),
        }
    }
    if !problems.is_empty() {
        return Err(ConfigError::Mistakes(problems));
    }
    assignments.into_iter().for_each(|given| settings.apply(given));
    Ok(())
}

/// The settings with these variables and no file.
#[cfg(test)]
pub(crate) fn of_variables(variables: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), value.into())).collect();
    let surroundings =
        Surroundings { system: PathBuf::from("/nonexistent"), user: None, working: None, variables };
    load_from(&surroundings, &Options::default()).map(|loaded| loaded.settings)
}

#[cfg(test)]
mod tests;
