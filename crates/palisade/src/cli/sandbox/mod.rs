//! `palisade sandbox`: manages sandboxes of a running server from the terminal.

pub(crate) mod attached;
mod copy;
mod copy_folder;
pub(crate) mod exec;
mod install;
pub(crate) mod interrupt;
pub(crate) mod live;
mod raw_terminal;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::cli::time::parse_time_s;
use crate::cli::words;
use crate::client::{Client, ClientError};
use crate::options::Options;
use crate::{config, state};
use terminal::{BAD_USAGE, INTERRUPTED, OWN_FAILURE, REFUSED, complain};

const AFTER_HELP: &str = "\
Examples:
  palisade sandbox open --name analysis      prints its id; the name serves as well
  palisade sandbox cp data.csv analysis:data.csv
  palisade sandbox exec analysis python -c 'rows = open(\"data.csv\").readlines()'
  palisade sandbox exec analysis python -c 'print(len(rows))'     what was there before is still there
  palisade sandbox exec analysis#test python -c 'rows'            a further interpreter, with variables of its own
  palisade sandbox rm analysis#test          ends only that interpreter
  palisade sandbox install analysis pandas 'httpx>=0.27'          packages for its programs to import
  palisade sandbox cp analysis:out .         a folder with all its files
  palisade sandbox rm analysis

They talk to the `palisade serve` of the same state directory and the same user, over its control socket.
Exit status: 0; 2 a mistake in the command; 125 Palisade itself failed, or no server runs; 126 the server refused.
`exec` has the program's own, as `palisade run` does.";

/// Which server.
#[derive(Debug, Args)]
pub(crate) struct ServerChoice {
    /// The server's control socket [default: control.sock of the state directory]
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl ServerChoice {
    /// The state directory of the server's socket; `None` if the user named the socket.
    pub(crate) fn state_dir<'a>(&self, client: &'a Client) -> Option<&'a Path> {
        if self.socket.is_none() { client.socket().parent() } else { None }
    }
}

/// Arguments of `sandbox`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SandboxArguments {
    #[command(flatten)]
    server: ServerChoice,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Open a sandbox and print its id
    Open(OpenArguments),
    /// List your open sandboxes
    Ls {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a program in a sandbox
    Exec(exec::ExecArguments),
    /// Install packages in a sandbox; its live interpreters can import them at once
    Install(install::InstallArguments),
    /// Copy a file or a folder into a sandbox or out of it
    Cp(copy::CopyArguments),
    /// Close sandboxes: everything in them ends and their files are removed
    Rm {
        /// Sandboxes to close, by id or name; ID#NAME ends only the interpreters of that context
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

/// What a new sandbox is like.
#[derive(Debug, Default, Args)]
pub(crate) struct OpenArguments {
    /// A name to tell it by in lists
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Memory in MB
    #[arg(long, value_name = "MB")]
    memory_mb: Option<u64>,
    /// Room for files in MB
    #[arg(long, value_name = "MB")]
    disk_mb: Option<u64>,
    /// Processor cores, fractions allowed
    #[arg(long, value_name = "N")]
    cpus: Option<f64>,
    /// Processes and threads
    #[arg(long, value_name = "N")]
    processes: Option<u64>,
    /// Time without use after which it is closed, for example 30m or 8h
    #[arg(long, alias = "ttl-s", value_name = "TIME", value_parser = parse_time_s)]
    ttl: Option<u64>,
    /// What its runs may ask for, as the server's configuration names it (repeatable)
    #[arg(long, value_name = "NAME")]
    access: Vec<String>,
    /// Install a package in it: pandas of PyPI, npm:zod of npm (repeatable)
    #[arg(long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// Print all about it as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(options: &Options, arguments: SandboxArguments) -> ExitCode {
    with_server(options, &arguments.server, async |client| match &arguments.verb {
        Verb::Open(open) => opened(&client, open).await,
        Verb::Ls { json } => list(&client, *json).await,
        Verb::Exec(arguments) => exec::exec(&client, arguments).await,
        Verb::Install(arguments) => install::install(&client, arguments).await,
        Verb::Cp(arguments) => copy::copy(&client, arguments).await,
        Verb::Rm { ids } => remove(&client, ids).await,
    })
}

/// Runs `work` with the selected server, and reports errors.
pub(crate) fn with_server(
    options: &Options,
    choice: &ServerChoice,
    work: impl AsyncFnOnce(Client) -> Result<ExitCode, ClientError>,
) -> ExitCode {
    let socket = match socket(options, choice) {
        Ok(socket) => socket,
        Err(message) => {
            complain(&message, None);
            return ExitCode::from(BAD_USAGE);
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let status = runtime.block_on(work(Client::new(socket))).unwrap_or_else(|error| failed(&error));
    // A blocked read of standard input must not delay the exit.
    runtime.shutdown_background();
    status
}

/// Reports an error.
pub(crate) fn failed(error: &ClientError) -> ExitCode {
    let remedy = error.remedy().map(words::of_command_line);
    complain(&words::of_command_line(&error.to_string()), remedy.as_deref());
    ExitCode::from(match error {
        ClientError::Refused { is_ours: false, .. } => REFUSED,
        ClientError::Interrupted => INTERRUPTED,
        _ => OWN_FAILURE,
    })
}

fn socket(options: &Options, choice: &ServerChoice) -> Result<PathBuf, String> {
    if let Some(path) = &choice.socket {
        return Ok(path.clone());
    }
    let loaded = config::load(options).map_err(|error| error.to_string())?;
    let state_dir = loaded.settings.state_dir.value.or_else(state::expected);
    let state_dir = state_dir.ok_or("no state directory is known: give --state-dir or --socket")?;
    Ok(service::control_socket_path(&state_dir))
}

/// Opens a sandbox and returns its description.
pub(crate) async fn open(client: &Client, asked: &OpenArguments) -> Result<Value, ClientError> {
    let mut arguments = Map::new();
    let mut limits = Map::new();
    let mut limit = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            limits.insert(name.to_owned(), value);
        }
    };
    limit("memory_mb", asked.memory_mb.map(Value::from));
    limit("disk_mb", asked.disk_mb.map(Value::from));
    limit("cpus", asked.cpus.map(Value::from));
    limit("processes", asked.processes.map(Value::from));
    arguments.extend(asked.name.iter().map(|name| ("name".to_owned(), json!(name))));
    arguments.extend(asked.ttl.map(|seconds| ("ttl_s".to_owned(), json!(seconds))));
    if !asked.access.is_empty() {
        arguments.insert("access".to_owned(), json!(asked.access));
    }
    if !asked.packages.is_empty() {
        arguments.insert("packages".to_owned(), json!(asked.packages));
    }
    if !limits.is_empty() {
        arguments.insert("limits".to_owned(), Value::Object(limits));
    }
    let opened = client.tool("sandbox_open", Value::Object(arguments)).await?;
    install::wait_for(client, &opened).await?;
    Ok(opened)
}

async fn opened(client: &Client, asked: &OpenArguments) -> Result<ExitCode, ClientError> {
    let sandbox = open(client, asked).await?;
    live::tell_clamps(&sandbox);
    match asked.json {
        true => print_json(&sandbox),
        false => print(&format!("{}\n", id_of(&sandbox)?)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The id in a sandbox's description.
pub(crate) fn id_of(sandbox: &Value) -> Result<&str, ClientError> {
    sandbox["sandbox_id"].as_str().ok_or(ClientError::Nonsense("a sandbox without an id"))
}

async fn list(client: &Client, as_json: bool) -> Result<ExitCode, ClientError> {
    let answer = client.tool("sandbox_list", json!({})).await?;
    if as_json {
        print_json(&answer["sandboxes"]);
        return Ok(ExitCode::SUCCESS);
    }
    let sandboxes = answer["sandboxes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let lines = sandboxes.iter().map(|sandbox| {
        let text = |name: &str| terminal::plain(sandbox[name].as_str().unwrap_or_default());
        let awake: Vec<&str> =
            sandbox["interpreters"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let awake = if awake.is_empty() { "asleep".to_owned() } else { awake.join(",") };
        let name = if text("name").is_empty() { "-".to_owned() } else { text("name") };
        [text("sandbox_id"), name, sandbox["runs"].to_string(), awake, text("expires_at")]
    });
    print(&table(["ID", "NAME", "RUNS", "INTERPRETERS", "EXPIRES"].map(str::to_owned), lines.collect()));
    Ok(ExitCode::SUCCESS)
}

/// Columns as wide as their widest cell.
fn table<const N: usize>(head: [String; N], rows: Vec<[String; N]>) -> String {
    let mut widths = [0; N];
    for row in rows.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    [&head].into_iter().chain(&rows).map(line).collect()
}

/// Closes every sandbox that can be closed, and reports the others.
async fn remove(client: &Client, ids: &[String]) -> Result<ExitCode, ClientError> {
    let mut status = ExitCode::SUCCESS;
    for id in ids {
        match client.tool("sandbox_close", json!({ "sandbox_id": id })).await {
            Ok(_) => {}
            Err(ClientError::Refused { message, remedy, .. }) => {
                let message = words::of_command_line(&format!("{}: {message}", terminal::plain(id)));
                complain(&message, remedy.as_deref().map(words::of_command_line).as_deref());
                status = ExitCode::from(REFUSED);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(status)
}

fn print(text: &str) {
    // The reader of standard output may be gone.
    io::stdout().lock().write_all(text.as_bytes()).ok();
}

fn print_json(value: &Value) {
    print(&format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |one: &str, two: &str| [one.to_owned(), two.to_owned()];
        let text = table(row("ID", "NAME"), vec![row("sbx_1", "é"), row("x", "")]);
        assert_eq!(text, "ID     NAME\nsbx_1  é\nx\n");
    }
}
