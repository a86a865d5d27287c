//! A policy that binds every caller of a test's servers, and can be replaced while they run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use harness::mcp::Client;
use harness::{Build, Palisade, User};
use serde_json::Value;

use crate::http::Server;
use crate::own_folder;

/// A folder with the policy `p`, which binds every caller.
pub struct Policies {
    folder: PathBuf,
}

impl Policies {
    /// In a folder of that name.
    pub fn new(user: User, name: &str, rules: &Value) -> Self {
        let policies = Self { folder: own_folder(user, name) };
        policies.write(rules);
        policies
    }

    /// Replaces its rules.
    pub fn write(&self, rules: &Value) {
        self.write_text(&rules.to_string());
    }

    /// Replaced as editors do it, so that no half of it is ever seen.
    pub fn write_text(&self, text: &str) {
        let (path, new) = (self.folder.join("p.json"), self.folder.join("p.new"));
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).unwrap();
        fs::rename(new, path).unwrap();
    }

    /// A command line that has it.
    pub fn palisade(&self, user: User, args: &[&str]) -> Palisade {
        Palisade::new(Build::Real, user, args)
            .env("PALISADE_POLICY_FOLDER", self.folder.to_str().unwrap())
            .env("PALISADE_POLICY_BIND", "*=p")
    }

    /// `palisade mcp` with it.
    pub fn client(&self, user: User) -> Client {
        Client::start(self.palisade(user, &["mcp"]))
    }

    /// `palisade serve` with it.
    pub fn server(&self, user: User) -> Server {
        let serve = self.palisade(user, &["serve", "--listen", "127.0.0.1:0"]).env("PALISADE_LOG", "info");
        Server::start_command(user, serve.into_command())
    }
}
