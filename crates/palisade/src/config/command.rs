//! `palisade config show` and `palisade config check`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::file::{self, Trust};
use super::key::Key;
use super::packages::PackagesKey;
use super::{ConfigError, Loaded, Origin, Settings};
use terminal::{Paint, complain};

use crate::options::Options;
use crate::state;

/// Arguments of `config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print every value in force and where it came from
    Show {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Say whether a file is a sound configuration; changes nothing
    Check {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

pub(crate) fn main(options: &Options, arguments: &ConfigArguments) -> ExitCode {
    let done = match &arguments.verb {
        Verb::Show { json } => {
            super::load(options).map(|loaded| if *json { as_json(&loaded) } else { as_text(&loaded) })
        }
        Verb::Check { file } => check(file),
    };
    match done {
        Ok(text) => {
            // The reader of standard output may be gone.
            writeln!(std::io::stdout().lock(), "{}", text.trim_end()).ok();
            ExitCode::SUCCESS
        }
        Err(error) => {
            error.to_string().lines().for_each(|line| complain(line, None));
            ExitCode::FAILURE
        }
    }
}

fn check(path: &Path) -> Result<String, ConfigError> {
    let opened = file::open(path, Trust::Own)?.ok_or_else(|| ConfigError::Unfit {
        path: path.to_owned(),
        reason: "there is no such file".to_owned(),
        remedy: "check the name".to_owned(),
    })?;
    let given = file::parse(path, &opened.text)?;
    let mut text = format!("{} is sound: {} settings", path.display(), given.len());
    for assignment in &given {
        let super::Setting::Interpreter(language, program) = &assignment.setting else { continue };
        if !backends::host::inventory::is_program(program) {
            let program = program.display();
            text.push_str(&format!(
                "\nwarning: {}: {program}, set for {language}, is not a program here",
                assignment.origin
            ));
        }
    }
    Ok(text)
}

/// One line of the table.
struct Row {
    key: Key,
    value: Value,
    origin: Origin,
}

fn rows(settings: &Settings) -> Vec<Row> {
    let row = |key: Key| {
        let (value, origin) = match &key {
            Key::Number(number) => {
                let found = settings.number(*number);
                let value = if number.is_fraction() {
                    json!(found.value as f64 / 1000.0)
                } else {
                    json!(found.value)
                };
                (value, &found.origin)
            }
            Key::Serve(key) => settings.serve.shown(*key),
            Key::Oauth(key) => settings.oauth.shown(*key),
            Key::PoolEnabled => (json!(settings.pool_enabled.value), &settings.pool_enabled.origin),
            Key::AuditEnabled => (json!(settings.audit_enabled.value), &settings.audit_enabled.origin),
            Key::AllowMissing => {
                let names: Vec<_> =
                    settings.allow_missing.value.iter().map(|guarantee| guarantee.name()).collect();
                (json!(names), &settings.allow_missing.origin)
            }
            Key::StateDir => {
                let path = settings.state_dir.value.clone().or_else(state::expected);
                (json!(path.map(|path| path.display().to_string())), &settings.state_dir.origin)
            }
            Key::LogLevel => (json!(settings.log_level.value.name()), &settings.log_level.origin),
            Key::LogFormat => (json!(settings.log_format.value.name()), &settings.log_format.origin),
            Key::OtlpEndpoint => (json!(settings.otlp_endpoint.value), &settings.otlp_endpoint.origin),
            Key::PolicyFolder => {
                let path = settings.policy_folder.value.as_ref();
                (json!(path.map(|path| path.display().to_string())), &settings.policy_folder.origin)
            }
            Key::PolicyBind => {
                let bindings = settings.policy_bind.value.iter();
                let shown: Vec<_> = bindings.map(|one| format!("{}={}", one.callers, one.policy)).collect();
                (json!(shown), &settings.policy_bind.origin)
            }
            Key::Quota(key) => settings.quota.shown(*key),
            Key::Access(key) => settings.access.shown(*key),
            Key::Packages(key) => settings.packages.shown(*key),
            Key::ToolServers => settings.tools.shown(),
            Key::Wall(key) => settings.wall.shown(*key),
            Key::Interpreter(language) => match settings.interpreters.get(language) {
                Some(found) => (json!(found.value.display().to_string()), &found.origin),
                None => (Value::Null, &Origin::Default),
            },
        };
        let origin = origin.clone();
        Row { key, value, origin }
    };
    Key::all().into_iter().map(row).collect()
}

fn as_text(loaded: &Loaded) -> String {
    let paint = Paint::for_stream(&std::io::stdout());
    let shown: Vec<_> =
        rows(&loaded.settings).into_iter().map(|row| (row.key.name(), written(&row), row.origin)).collect();
    let name_width = shown.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    let value_width = shown.iter().map(|(_, value, _)| value.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value, origin) in shown {
        let origin = if origin == Origin::Default { paint.dim("default") } else { origin.to_string() };
        text.push_str(&format!("{name:name_width$}  {value:value_width$}  {origin}\n"));
    }
    text.push_str("\nFiles, from the weakest to the strongest:\n");
    for (path, is_there) in &loaded.files {
        let state = if *is_there { "read" } else { "not there" };
        text.push_str(&format!("  {}  {}\n", path.display(), paint.dim(state)));
    }
    text
}

fn written(row: &Row) -> String {
    match (&row.key, &row.value) {
        (Key::Number(number), _) if number.is_fraction() => {
            row.value.as_f64().unwrap_or_default().to_string()
        }
        (Key::Interpreter(_), Value::Null) => "(found on the PATH)".to_owned(),
        (Key::PolicyFolder, Value::Null) => "(beside the configuration)".to_owned(),
        (Key::StateDir, Value::Null) => "(none can be used)".to_owned(),
        (Key::Packages(PackagesKey::Enabled), Value::Null) => "(on, except for serve)".to_owned(),
        (Key::Packages(PackagesKey::Mirrors), Value::Array(list)) if list.is_empty() => {
            "(as pip and npm)".to_owned()
        }
        (Key::Serve(_) | Key::Oauth(_) | Key::OtlpEndpoint, Value::Null) => "(none)".to_owned(),
        (_, Value::Array(names)) if names.is_empty() => "none".to_owned(),
        (_, Value::Array(names)) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
        (_, Value::String(text)) => text.clone(),
        (_, other) => other.to_string(),
    }
}

fn as_json(loaded: &Loaded) -> String {
    let settings: Map<String, Value> = rows(&loaded.settings)
        .into_iter()
        .map(|row| {
            let value =
                json!({ "value": row.value, "origin": origin(&row.origin), "variable": row.key.variable() });
            (row.key.name(), value)
        })
        .collect();
    let ignored: Vec<Value> = loaded
        .ignored
        .iter()
        .map(|one| json!({ "key": one.key.name(), "origin": origin(&one.origin), "reason": one.reason }))
        .collect();
    let files: Vec<Value> = loaded
        .files
        .iter()
        .map(|(path, read)| json!({ "path": path.display().to_string(), "read": read }))
        .collect();
    let whole = json!({ "settings": settings, "ignored": ignored, "files": files });
    serde_json::to_string_pretty(&whole).unwrap_or_default()
}

fn origin(origin: &Origin) -> Value {
    match origin {
        Origin::Default => json!({ "kind": "default" }),
        Origin::File { path, line } => {
            json!({ "kind": "file", "path": path.display().to_string(), "line": line })
        }
        Origin::Variable(name) => json!({ "kind": "variable", "name": name }),
        Origin::Flag(name) => json!({ "kind": "flag", "name": name }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_all_settings_are_as_before() {
        let names: Vec<String> =
            Key::all().iter().map(|key| format!("{}  {}", key.name(), key.variable())).collect();
        insta::assert_snapshot!("settings", names.join("\n"));
    }
}
