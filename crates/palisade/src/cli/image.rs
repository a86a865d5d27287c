//! `palisade image check`: an image of Docker or Podman, before it becomes the system of sandboxes.

use std::io;
use std::process::ExitCode;

use backends::daemon::{Engine, ImageReport, check_image};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::config;
use crate::options::Options;
use crate::walls;

/// Arguments of `image`.
#[derive(Debug, Args)]
pub(crate) struct ImageArguments {
    #[command(subcommand)]
    command: ImageCommand,
}

#[derive(Debug, Subcommand)]
enum ImageCommand {
    /// Tell the digest, the age and what is wrong with an image
    Check(CheckArguments),
}

#[derive(Debug, Args)]
struct CheckArguments {
    /// The image: name@sha256:DIGEST, an id, or a tag
    #[arg(value_name = "REF")]
    reference: String,
    /// The engine that has it
    #[arg(long, value_name = "NAME", default_value = "docker", value_parser = ["docker", "podman"])]
    wall: String,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// Returns 1 if there is a warning, 125 if the image cannot be looked at.
pub(crate) fn main(options: &Options, arguments: &ImageArguments) -> ExitCode {
    let ImageCommand::Check(check) = &arguments.command;
    match look(options, check) {
        Ok(report) => {
            show(&report, check.json);
            if report.warnings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(problem) => {
            eprintln!("palisade: {}", clean(&problem));
            ExitCode::from(125)
        }
    }
}

fn look(options: &Options, check: &CheckArguments) -> Result<ImageReport, String> {
    let settings = config::load(options).map_err(|error| error.to_string())?.settings;
    let engine = walls::engine_of(&check.wall).unwrap_or(Engine::Docker);
    let socket = walls::socket(&settings.wall, engine);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error: io::Error| error.to_string())?;
    let name = engine.name();
    runtime.block_on(check_image(&socket, &check.reference)).map_err(|error| {
        format!(
            "the image cannot be looked at: {error} ({name} must be running, `wall.{name}.socket` be its socket, and the image be \
             pulled or imported)"
        )
    })
}

fn show(report: &ImageReport, as_json: bool) {
    let ImageReport { id, digests, created, age_days, warnings } = report;
    if as_json {
        let shown = json!({
            "id": id, "digests": digests, "created": created, "age_days": age_days, "warnings": warnings,
        });
        println!("{shown:#}");
        return;
    }
    println!("id       {}", clean(id));
    for digest in digests {
        println!("digest   {}", clean(digest));
    }
    let age = age_days.map(|days| format!(" ({days} days ago)")).unwrap_or_default();
    println!("created  {}{age}", clean(created));
    for warning in warnings {
        println!("warning  {}", clean(warning));
    }
}

/// The engine's words without what a terminal would act on.
fn clean(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).collect()
}
