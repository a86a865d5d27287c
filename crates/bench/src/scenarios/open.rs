//! Runs in a persistent sandbox: opening it, its first run, and the following runs, which use a running
//! interpreter.
//!
//! The server stores every such run on the disk before it answers. A small durable write on the same disk is
//! therefore measured in turns with them. The rest is the cost of a run beyond its code.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use serde_json::json;

use crate::client::{BenchCall, Client, milliseconds};
use crate::lanes::{Lane, in_turns};
use crate::measured::{OURS, Series};
use crate::server::Server;
use crate::{Bench, Scenario};

const SCENARIO: Scenario = Scenario::Open;
/// Language, a statement that prints nothing, one that prints 1.
const PROGRAMS: [(&str, &str, &str); 4] = [
    ("python", "x = 1", "print(1)"),
    ("javascript", "var x = 1", "console.log(1)"),
    ("typescript", "var y: number = 1", "console.log(1 as number)"),
    ("bash", "x=1", "echo 1"),
];
/// The size of one database page.
const WRITE_BYTES: usize = 4096;
/// Side for the time that remains after subtracting the time that the server measured for the program.
const BEYOND: &str = "beyond usage.wall_ms";

/// A statement in a sandbox, and the times of its runs beyond what the server measured.
struct Statement {
    label: String,
    call: BenchCall,
    stdout: &'static str,
    beyond: RefCell<Series>,
}

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let server = Server::start(&bench.scene.recipe_in("open")?)?;
    let client = server.client()?;
    let openings = openings(bench, client);
    bench.measured.series.extend(openings);
    let sandbox = open(client)?;
    let mut statements = Vec::new();
    for (language, quiet, loud) in PROGRAMS {
        if bench.scene.language(language).is_none() {
            bench.measured.absent(SCENARIO, language, "it is not installed");
            continue;
        }
        for (kind, code, stdout) in [("set", quiet, ""), ("print", loud, "1\n")] {
            let label = format!("{language} {kind}");
            let call = BenchCall::run_in(&sandbox, language, code);
            let beyond = RefCell::new(Series::new(SCENARIO, &label, BEYOND));
            // The first run starts the interpreter.
            client.call(&call)?;
            statements.push(Statement { label, call, stdout, beyond });
        }
    }
    let disk = File::create(bench.scene.folder.path().join("disk"))
        .map_err(|error| format!("a file to write to: {error}"))?;
    let mut lanes: Vec<Lane<'_>> = statements.iter().map(|one| lane(client, one)).collect();
    lanes.push(Lane::new(Series::new(SCENARIO, "disk", "write and fdatasync"), || durable_write(&disk)));
    let series = in_turns(lanes, bench.sizes.open, &mut bench.progress);
    for one in series {
        let beyond = statements.iter().find(|statement| statement.label == one.name);
        let beyond = beyond.map(|statement| statement.beyond.borrow().clone());
        bench.measured.series.push(one);
        bench.measured.series.extend(beyond);
    }
    Ok(())
}

fn lane<'a>(client: &'a Client, statement: &'a Statement) -> Lane<'a> {
    Lane::new(Series::new(SCENARIO, &statement.label, OURS), || {
        let (result, ms) = client.call(&statement.call)?;
        if result.stdout != statement.stdout {
            return Err(format!("it printed {:?}", result.stdout));
        }
        statement.beyond.borrow_mut().take(Ok(ms - result.usage.wall_ms));
        Ok(ms)
    })
}

/// Opens, uses and closes some sandboxes, one after the other.
fn openings(bench: &mut Bench, client: &Client) -> Vec<Series> {
    let mut all =
        ["sandbox_open", "first python run", "sandbox_close"].map(|name| Series::new(SCENARIO, name, OURS));
    for _ in 0..bench.sizes.openings {
        let [opening, first, closing] = &mut all;
        let opened = client.call(&BenchCall::tool("sandbox_open", &json!({})));
        let sandbox = opened.as_ref().map(|(result, _)| result.sandbox_id.clone()).unwrap_or_default();
        opening.take(opened.map(|(_, ms)| ms));
        first.take(client.call(&BenchCall::run_in(&sandbox, "python", "x = 1")).map(|(_, ms)| ms));
        let close = BenchCall::tool("sandbox_close", &json!({ "sandbox_id": sandbox }));
        closing.take(client.call(&close).map(|(_, ms)| ms));
    }
    all.to_vec()
}

/// Opens a sandbox; returns its id.
pub(super) fn open(client: &Client) -> Result<String, String> {
    client.call(&BenchCall::tool("sandbox_open", &json!({}))).map(|(result, _)| result.sandbox_id)
}

fn durable_write(file: &File) -> Result<f64, String> {
    let began = Instant::now();
    let written = file.write_all_at(&[1; WRITE_BYTES], 0).and_then(|()| file.sync_data());
    written.map(|()| milliseconds(began.elapsed())).map_err(|error| format!("writing: {error}"))
}
