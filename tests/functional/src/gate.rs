//! A web server and a resolver on loopback, and palisades whose programs may reach them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use harness::mcp::Client;
use harness::{Build, Palisade, TestFolder, User};
use serde_json::Value;

use crate::tls::certificate_with;

/// An origin with its own resolver. It ends when dropped.
pub struct Gate {
    folder: TestFolder,
    child: Child,
    _stdin: ChildStdin,
    /// The port for TLS.
    pub tls: u16,
    /// The port for plain requests.
    pub plain: u16,
}

impl Gate {
    /// Starts one, with the access `web` to `origin.example`. `more` is added to the configuration, with `@TLS` and
    /// `@PLAIN` replaced. None where there is no openssl.
    pub fn start(more: &str) -> Option<Self> {
        let folder = TestFolder::new();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let names = "subjectAltName=DNS:origin.example,DNS:rebind.example";
        let made = certificate_with(folder.path(), "origin.example", &["-addext", names])?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../origin/origin.py");
        let log = folder.path().join("log");
        let mut child = Command::new("python3")
            .args([script, &made.certificate, &made.key])
            .arg(&log)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ports: Vec<u16> = line.split_whitespace().map(|port| port.parse().unwrap()).collect();
        let [tls, plain, names] = ports[..] else { panic!("{line}") };
        let config = format!(
            "[egress]\nresolver = \"127.0.0.1:{names}\"\n[access.web]\nabout = \"the test origin\"\n\
             egress = [\"origin.example:@TLS loopback\", \"origin.example:@PLAIN http loopback\"]\n{more}"
        );
        let config = config.replace("@TLS", &tls.to_string()).replace("@PLAIN", &plain.to_string());
        fs::create_dir_all(folder.path().join("config/palisade")).unwrap();
        fs::write(folder.path().join("config/palisade/palisade.toml"), config).unwrap();
        let stdin = child.stdin.take().unwrap();
        Some(Self { folder, child, _stdin: stdin, tls, plain })
    }

    /// The certificate of the origin.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }

    /// `palisade ARGS` with the configuration, in the test build: only that reaches a loopback address.
    pub fn palisade(&self, user: User, args: &[&str]) -> Palisade {
        let config = self.folder.path().join("config");
        Palisade::new(Build::Breach, user, args).env("XDG_CONFIG_HOME", config.to_str().unwrap())
    }

    /// An MCP client of such a palisade.
    pub fn client(&self, user: User) -> Client {
        Client::start(self.palisade(user, &["mcp"]))
    }

    /// Runs a program from the command line with `--access web`, and returns its result.
    pub fn run(&self, user: User, language: &str, code: &str) -> Value {
        self.run_on(harness::SEARCH_PATH, user, language, code)
    }

    /// The same with the interpreters of that PATH.
    pub fn run_on(&self, path: &str, user: User, language: &str, code: &str) -> Value {
        let certificate = self.certificate();
        let input = ["--input", certificate.to_str().unwrap()];
        let args =
            [&["run", language, "--json", "--access", "web", "--timeout", "60s"][..], &input, &["-c", code]];
        let ended = self.palisade(user, &args.concat()).env("PATH", path).end();
        serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
    }

    /// Has the origin serve a repository as `/git/NAME`, with one file of that content.
    pub fn serve_repository(&self, name: &str, content: &str) {
        let (work, bare) = (self.folder.path().join("work"), self.folder.path().join("git").join(name));
        let git = |folder: &Path, args: &[&str]| {
            let own = ["-c", "user.name=suite", "-c", "user.email=suite@origin.example", "-C"];
            let mut command = Command::new("git");
            command.args(own).arg(folder).args(args).env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", folder);
            let output = command.output().unwrap();
            assert!(output.status.success(), "git {args:?}: {output:?}");
        };
        fs::create_dir_all(&work).unwrap();
        fs::create_dir_all(&bare).unwrap();
        git(&work, &["init", "--quiet"]);
        fs::write(work.join("file"), content).unwrap();
        git(&work, &["add", "file"]);
        git(&work, &["commit", "--quiet", "--message", "a file"]);
        git(&work, &["clone", "--quiet", "--bare", ".", bare.to_str().unwrap()]);
        // Without a program on the server, git reads plain files: the dumb protocol.
        git(&bare, &["update-server-info"]);
    }

    /// What the origin and the resolver were asked, line by line.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// A code with the ports of the origin.
    pub fn with_ports(&self, code: &str) -> String {
        code.replace("@TLS", &self.tls.to_string()).replace("@PLAIN", &self.plain.to_string())
    }

    /// The folder of the test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
