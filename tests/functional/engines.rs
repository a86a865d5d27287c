//! Docker and Podman: the walls that they build, images for them, and palisade itself in an image of Docker.
//!
//! Each test starts an engine of its own with a data directory of its own. An engine that is not installed is skipped,
//! and the output says so by name.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use harness::behind::OwnEngine;
use harness::engines::{DOCKER, PODMAN, Running, import};
use harness::{Build, Ended, Palisade, User};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(240);

/// A running engine; `None`, loudly, where there is none.
struct Place(OwnEngine);

impl Place {
    fn new(name: &'static str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED the wall {name}: the suite does not run as root");
            return None;
        }
        let engine = OwnEngine::start(name);
        if engine.is_none() {
            eprintln!("SKIPPED: {name} is not installed, so its wall is not tested (scripts/setup-tests.sh)");
        }
        engine.map(Self)
    }

    fn engine(&self) -> &Running {
        self.0.running()
    }

    /// Palisade with this engine's socket, and a state directory of its own.
    fn palisade(&self, arguments: &[&str]) -> Ended {
        self.with(arguments, &[])
    }

    fn with(&self, arguments: &[&str], more: &[(&str, &str)]) -> Ended {
        let state = self.0.folder().join("state").display().to_string();
        let palisade = self.0.set(Palisade::new(Build::Real, User::Root, arguments));
        let palisade = palisade.env("PALISADE_STATE_DIR", &state).within(PATIENCE);
        more.iter().fold(palisade, |palisade, (key, value)| palisade.env(key, value)).end()
    }

    fn left(&self) -> Vec<String> {
        self.0.left()
    }
}

/// The root of an image with these packages, made by the documented script.
fn root_of(packages: &[&str]) -> Vec<u8> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/images/from-packages.sh");
    let made = Command::new(script).args(packages).stderr(Stdio::inherit()).output().unwrap();
    assert!(made.status.success());
    made.stdout
}

fn json_of(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[test]
fn a_program_runs_behind_each_engine_and_nothing_is_left() {
    for name in [DOCKER, PODMAN] {
        let Some(place) = Place::new(name) else { continue };
        let ended = place.palisade(&["run", "--wall", name, "--json", "python", "-c", "print(6*7)"]);
        let result = json_of(&ended);
        assert_eq!(result["stdout"], "42\n", "{result:#}");
        let told = (&result["isolation"]["backend"], &result["isolation"]["kernel"]);
        assert_eq!(told, (&json!(name), &json!("shared")), "{result:#}");
        assert_eq!(place.left(), [""; 0], "behind {name}");
    }
}

#[test]
fn an_engine_that_is_not_there_is_named_with_what_to_do() {
    let ended =
        Palisade::new(Build::Real, User::Root, &["run", "--wall", "docker", "python", "-c", "print(1)"])
            .env("PALISADE_WALL_DOCKER_SOCKET", "/nowhere/docker.sock")
            .end();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.stderr.contains("docker has no socket at /nowhere/docker.sock"), "{}", ended.stderr);
    assert!(ended.stderr.contains("start Docker"), "{}", ended.stderr);
}

#[test]
fn an_image_gives_a_wall_its_languages_and_is_checked_before() {
    let Some(place) = Place::new(DOCKER) else { return };
    let image =
        import(&place.engine().socket(), &root_of(&["python3", "bash", "dash", "coreutils"]), "").unwrap();
    let checked = place.palisade(&["image", "check", "--json", &image]);
    let found = json_of(&checked);
    assert_eq!((&found["id"], &found["age_days"]), (&json!(image), &json!(0)), "{found:#}");
    assert!(
        found["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .all(|warning| !warning.as_str().unwrap().contains("days old"))
    );

    let in_image = [("PALISADE_WALL_DOCKER_IMAGE", image.as_str())];
    let run = |language: &str, code: &str| {
        json_of(&place.with(&["run", "--wall", DOCKER, "--json", language, "-c", code], &in_image))
    };
    let python = run("python", "import os; print(6*7, os.path.exists('/usr/bin/perl'))");
    assert_eq!(python["stdout"], "42 False\n", "{python:#}");
    let perl = run("perl", "print 1");
    assert_eq!(perl["error"]["code"], "language_missing", "the host's Perl is not in the image: {perl:#}");

    let tagged = [("PALISADE_WALL_DOCKER_IMAGE", "python:latest")];
    let refused = place.with(&["run", "--wall", DOCKER, "python", "-c", "print(1)"], &tagged);
    assert!(refused.stderr.contains("sha256:DIGEST"), "{}", refused.stderr);
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn doctor_proves_every_guarantee_behind_an_engine() {
    let Some(place) = Place::new(DOCKER) else { return };
    let found = json_of(&place.palisade(&["doctor", "--wall", DOCKER, "--json"]));
    let guarantees = found["guarantees"].as_array().unwrap();
    assert!(!guarantees.is_empty() && guarantees.iter().all(|one| one["holds"] == true), "{guarantees:#?}");
    assert_eq!((&found["wall"], &found["wall_kernel"]), (&json!(DOCKER), &json!("shared")));
    let identity = guarantees.iter().find(|one| one["name"] == "identity_hidden").unwrap();
    assert!(identity["note"].as_str().unwrap().contains("no user namespace"), "{identity}");
}

/// `docker` with the socket of that engine.
fn docker(place: &Place) -> Command {
    let mut command = Command::new("/usr/bin/docker");
    command.env_clear().env("PATH", harness::SEARCH_PATH).env("HOME", place.0.folder());
    command.arg("-H").arg(format!("unix://{}", place.engine().socket().display()));
    command
}

/// The command of docs/CONTAINERS.md for clients that start their server, without `docker`.
fn documented_run() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/CONTAINERS.md")).unwrap();
    let begin = page.find("docker run --rm -i").expect("the page has the command");
    let block = &page[begin..begin + page[begin..].find("```").unwrap()];
    let words = block
        .replace("\\\n", " ")
        .replace("deploy/docker", &root.join("deploy/docker").display().to_string());
    words.split_whitespace().skip(1).map(str::to_owned).collect()
}

#[test]
fn an_mcp_client_runs_python_in_the_image_of_palisade_by_the_documented_line() {
    let Some(place) = Place::new(DOCKER) else { return };
    let packages = ["python3", "bash", "dash", "coreutils", "ca-certificates"];
    import(&place.engine().socket(), &root_of(&packages), "&repo=base&tag=local").unwrap();
    let context = place.0.folder().join("context");
    fs::create_dir(&context).unwrap();
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/docker/Dockerfile");
    fs::copy(recipe, context.join("Dockerfile")).unwrap();
    fs::copy(harness::binary(Build::Real), context.join("palisade")).unwrap();
    let mut build = docker(&place);
    build.env("DOCKER_BUILDKIT", "1").args(["build", "--network", "none", "--quiet", "--tag", "palisade"]);
    build.args(["--build-arg", "BASE=base:local", "--build-arg", "PACKAGES="]).arg(&context);
    let built = build.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let mut client = Session::start(docker(&place).args(documented_run()));
    let run = json!({ "name": "run", "arguments": { "language": "python", "code": "import os; print(6*7, os.getuid())" } });
    let result = client.call("tools/call", &run);
    let content = &result["result"]["structuredContent"];
    assert_eq!(content["stdout"], "42 1000\n", "{result:#}");
    assert_eq!(content["isolation"]["backend"], "native");
    client.end();
    fs::remove_dir_all(&context).unwrap();
}

/// An MCP client at the streams of a command.
struct Session {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    asked: u32,
}

impl Session {
    fn start(command: &mut Command) -> Self {
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (input, output) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        let mut session = Self { process, input, output, asked: 0 };
        let client = json!({ "name": "test", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        session.call("initialize", &hello);
        session
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params });
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the server has ended");
            let said: Value = serde_json::from_str(&line).unwrap();
            if said["id"] == message["id"] {
                return said;
            }
        }
    }

    fn end(mut self) {
        drop(self.input.take());
        assert!(self.process.wait().unwrap().success());
    }
}
