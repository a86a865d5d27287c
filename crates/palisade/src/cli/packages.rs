//! `palisade packages`: install packages ahead, list layers, carry them to a machine without a network, remove unused
//! ones.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use engine::packages::{Ecosystem, PackageCall, PackageSet};
use engine::{Caller, RunError};
use packages::{Catalogue, ListedLayer, Removed, Transferred};
use serde_json::{Value, json};
use terminal::complain;

use super::install_progress::told_progress;
use crate::machine::{Machine, ServerMode};
use crate::options::Options;
use crate::{config, machine, state};

const FAILED: u8 = 1;
const DAY_S: u64 = 24 * 60 * 60;

/// Arguments of `packages`.
#[derive(Debug, Args)]
pub(crate) struct PackagesArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Install packages ahead, so that runs find them
    Prepare {
        /// Where they come from: pypi, npm or go
        #[arg(long, default_value = "pypi")]
        from: String,
        /// The packages of one set, for example 'pandas>=2' numpy
        #[arg(required = true, value_name = "PACKAGE")]
        requirements: Vec<String>,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the layers and what they hold
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write all layers and downloaded files to a tar archive
    Export {
        /// The archive to write
        file: PathBuf,
    },
    /// Read an archive of `export`, and check everything by its digest
    Import {
        /// The archive to read
        file: PathBuf,
    },
    /// Remove layers and downloaded files that were not used lately
    Gc {
        /// Keep what was used within this many days
        #[arg(long, default_value_t = 30)]
        unused_days: u64,
    },
}

type Failure = (String, Option<String>);

pub(crate) fn main(options: &Options, arguments: &PackagesArguments) -> ExitCode {
    let done = match &arguments.verb {
        Verb::Prepare { from, requirements, json } => prepare(options, from, requirements, *json),
        Verb::List { json } => state_dir(options).map(|state_dir| list(&state_dir, *json)),
        Verb::Export { file } => state_dir(options).and_then(|state_dir| export(&state_dir, file)),
        Verb::Import { file } => state_dir(options).and_then(|state_dir| import(&state_dir, file)),
        Verb::Gc { unused_days } => state_dir(options).and_then(|state_dir| gc(&state_dir, *unused_days)),
    };
    match done {
        Ok(text) => {
            // A reader that has gone wants no more.
            writeln!(io::stdout().lock(), "{text}").ok();
            ExitCode::SUCCESS
        }
        Err((message, remedy)) => {
            complain(&message, remedy.as_deref());
            ExitCode::from(FAILED)
        }
    }
}

fn failure(error: impl std::fmt::Display) -> Failure {
    (error.to_string(), None)
}

fn state_dir(options: &Options) -> Result<PathBuf, Failure> {
    let settings = config::load(options).map_err(failure)?.settings;
    state::directory(settings.state_dir.value.as_deref()).map_err(failure)
}

fn prepare(options: &Options, from: &str, asked: &[String], json: bool) -> Result<String, Failure> {
    let ecosystem = Ecosystem::named(from).ok_or_else(|| {
        (
            format!("`{from}` is none of {}", Ecosystem::names()),
            Some("use --from npm or --from go".to_owned()),
        )
    })?;
    let mut requirements = asked.to_vec();
    requirements.sort();
    requirements.dedup();
    let prepared = machine::with_engine(options, ServerMode::OneShot, |machine| async move {
        prepare_in(&machine, ecosystem, &requirements).await
    });
    match prepared.map_err(failure)? {
        Ok(set) if json => Ok(serde_json::to_string_pretty(&set_as_json(&set)).unwrap_or_default()),
        Ok(set) => {
            let count = set.packages.len();
            let was = if set.was_cached { "already there" } else { "installed" };
            let packages: Vec<String> =
                set.packages.iter().map(|one| format!("  {} {}", one.name, one.version)).collect();
            Ok(format!("{was}: {count} packages in layer {}\n{}", set.layer.digest, packages.join("\n")))
        }
        Err(error) => {
            let cause = error.cause.map(|cause| format!("\n{cause}")).unwrap_or_default();
            Err((format!("{} ({}){cause}", error.message, error.code), error.remedy))
        }
    }
}

async fn prepare_in(
    machine: &Machine,
    ecosystem: Ecosystem,
    requirements: &[String],
) -> Result<PackageSet, RunError> {
    let off = || RunError::new("packages_off", "packages are off").remedy("set packages.enabled = true");
    let book = machine.engine.package_book().ok_or_else(off)?;
    let caller = Caller::local();
    let call = PackageCall {
        caller: &caller,
        wall: machine.engine.backend().name(),
        ecosystem,
        requirements,
        present: &[],
        progress: told_progress(),
    };
    book.prepare(call).await
}

fn set_as_json(set: &PackageSet) -> Value {
    json!({
        "digest": set.layer.digest,
        "path": set.layer.path,
        "target": set.layer.target,
        "was_cached": set.was_cached,
        "packages": set.packages,
        "modules": set.modules,
    })
}

fn list(state_dir: &Path, json: bool) -> String {
    let layers = Catalogue::new(state_dir).list();
    if json {
        let all: Vec<Value> = layers.iter().map(layer_as_json).collect();
        return serde_json::to_string_pretty(&all).unwrap_or_default();
    }
    if layers.is_empty() {
        return "no packages are installed".to_owned();
    }
    layers.iter().map(layer_as_text).collect::<Vec<_>>().join("\n")
}

fn layer_as_text(layer: &ListedLayer) -> String {
    let packages: Vec<String> =
        layer.packages.iter().map(|one| format!("{} {}", one.name, one.version)).collect();
    let sets: Vec<String> =
        layer.sets.iter().map(|set| set.join(" ")).filter(|set| !set.is_empty()).collect();
    let asked = if sets.is_empty() { "a tool".to_owned() } else { sets.join("; ") };
    format!(
        "{}  {}  {:.1} MB  {}\n  asked for: {asked}\n  {}",
        &layer.digest[..16],
        layer.ecosystem.name(),
        layer.bytes as f64 / 1e6,
        layer.interpreter,
        packages.join(", ")
    )
}

fn layer_as_json(layer: &ListedLayer) -> Value {
    let used = layer.used.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    json!({
        "digest": layer.digest,
        "ecosystem": layer.ecosystem,
        "interpreter": layer.interpreter,
        "bytes": layer.bytes,
        "packages": layer.packages,
        "sets": layer.sets,
        "used_s": used.as_secs(),
    })
}

fn export(state_dir: &Path, file: &Path) -> Result<String, Failure> {
    let out = File::create(file).map_err(|error| failure(format!("{}: {error}", file.display())))?;
    let done = packages::export(state_dir, io::BufWriter::new(out)).map_err(failure)?;
    Ok(format!("wrote {} to {}", transferred(done), file.display()))
}

fn import(state_dir: &Path, file: &Path) -> Result<String, Failure> {
    let archive = File::open(file).map_err(|error| failure(format!("{}: {error}", file.display())))?;
    let done = packages::import(state_dir, io::BufReader::new(archive)).map_err(failure)?;
    Ok(format!("read {} from {}", transferred(done), file.display()))
}

fn transferred(done: Transferred) -> String {
    format!("{} layers, {} downloaded files and {} sets", done.layers, done.blobs, done.sets)
}

fn gc(state_dir: &Path, unused_days: u64) -> Result<String, Failure> {
    let unused_for = Duration::from_secs(unused_days.saturating_mul(DAY_S));
    let removed = Catalogue::new(state_dir).collect_garbage(unused_for).map_err(failure)?;
    let Removed { layers, blobs, bytes } = removed;
    Ok(format!("removed {layers} layers and {blobs} downloaded files: {:.1} MB", bytes as f64 / 1e6))
}
