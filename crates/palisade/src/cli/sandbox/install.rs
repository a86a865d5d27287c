//! `palisade sandbox install`: installs packages in a persistent sandbox.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::{print, print_json};
use crate::client::{Client, ClientError};

/// How long one call of `wait` waits.
const WAIT_MS: u64 = 45_000;

/// Arguments of `install`.
#[derive(Debug, Args)]
pub(crate) struct InstallArguments {
    /// The sandbox: its id or its name
    #[arg(value_name = "ID")]
    id: String,
    /// Packages to install, for example pandas or 'pandas>=2'
    #[arg(value_name = "PACKAGE", required = true)]
    packages: Vec<String>,
    /// The language that imports them: python, javascript or typescript
    #[arg(long, value_name = "LANG", default_value = "python")]
    language: String,
    /// Print the whole result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn install(client: &Client, asked: &InstallArguments) -> Result<ExitCode, ClientError> {
    let InstallArguments { id, packages, language, json } = asked;
    let arguments = json!({ "sandbox_id": id, "language": language, "packages": packages });
    let answer = client.tool("install_packages", arguments).await?;
    let answer = wait_for(client, &answer).await?.unwrap_or(answer);
    match json {
        true => print_json(&answer),
        false => {
            let text = |one: &Value, name: &str| terminal::plain(one[name].as_str().unwrap_or_default());
            let lines = answer["packages"].as_array().into_iter().flatten();
            let lines = lines.map(|one| format!("{} {}\n", text(one, "name"), text(one, "version")));
            print(&lines.collect::<String>());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Follows an installation that continues; `None` if the answer is not about one.
pub(crate) async fn wait_for(client: &Client, answer: &Value) -> Result<Option<Value>, ClientError> {
    let mut last = None;
    loop {
        let now = last.as_ref().unwrap_or(answer);
        let run_id = now["run_id"].as_str().filter(|_| now["status"] == "installing");
        let Some(run_id) = run_id.map(str::to_owned) else { return Ok(last) };
        last = Some(client.tool("wait", json!({ "run_id": run_id, "timeout_ms": WAIT_MS })).await?);
    }
}
