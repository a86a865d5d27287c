//! Starts tool servers behind the wall: resolves the command, prepares its packages, opens its directories and its access.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use engine::access::{AccessBook, AccessCall};
use engine::{Caller, Engine, Given, RunError, ServerProgram};
use sandbox::{BoxFuture, Limits};
use upstreams::{
    DEPTH_VARIABLE, ToolError, ToolErrorCode, WalledEnd, WalledProcess, WalledProgram, WalledStart,
};

use super::command::{self, Command, Launch};
use super::folders::{self, Around};
use super::packaged;

/// What a server may use. It lives for days, so its time is not limited; a call of its tools is.
fn limits() -> Limits {
    Limits {
        wall_ms: 366 * 24 * 3600 * 1000,
        memory_bytes: 1 << 30,
        cpus_milli: 2000,
        processes: 256,
        disk_bytes: 512 << 20,
        open_files: 1024,
        ..Limits::default()
    }
}

/// Starts programs behind the wall of an engine.
pub(super) struct Walled {
    /// The engine offers the tools of these servers, so it must not be kept alive from here.
    engine: Weak<Engine>,
    web: Option<Arc<dyn AccessBook>>,
    state_dir: PathBuf,
    /// The directories that any server may write.
    writable: Vec<PathBuf>,
}

impl Walled {
    pub(super) fn new(
        engine: &Arc<Engine>,
        web: Option<Arc<dyn AccessBook>>,
        state_dir: &Path,
        writable: Vec<PathBuf>,
    ) -> Self {
        Self { engine: Arc::downgrade(engine), web, state_dir: state_dir.to_owned(), writable }
    }

    async fn run(&self, program: WalledProgram<'_>) -> Result<WalledProcess, ToolError> {
        let engine = self.engine.upgrade().ok_or_else(|| unavailable("the server stops", ""))?;
        let caller = Caller::local();
        let around = Around { state_dir: &self.state_dir, writable: &self.writable };
        let command = command::resolve(&program.command, &around).map_err(|reason| {
            unavailable(&reason, "name a program that exists; `wall = \"none\"` runs it without a wall")
        })?;
        let (packages, Launch { language, argv, binds }) = match command {
            Command::Program(launch) => (Vec::new(), launch),
            Command::Packaged(wanted) => {
                let set = packaged::prepare(&engine, &caller, &wanted).await.map_err(told)?;
                let launch = packaged::launch(&wanted, &set).map_err(|reason| unavailable(&reason, ""))?;
                (vec![set], launch)
            }
        };
        let shown = folders::open(program.read, program.write, &around);
        let shown = shown.map_err(|(reason, remedy)| unavailable(&reason, remedy))?;
        let mut given = Given::default();
        let Reach { grants, secrets } = self.reach(&caller, program.access, &mut given).map_err(told)?;
        for (name, value) in program.env {
            given.set(&name, value);
        }
        let started = engine.start_program(ServerProgram {
            caller: &caller,
            language,
            argv,
            given,
            marks: &[(DEPTH_VARIABLE, "1")],
            cwd: program.cwd.map(|path| path.to_string_lossy().into_owned()),
            binds,
            folders: shown.folders,
            links: shown.links,
            packages,
            grants,
            limits: limits(),
        });
        let running = started.await.map_err(told)?;
        Ok(WalledProcess {
            reader: Box::new(running.stdout),
            writer: Box::new(running.stdin),
            end: Box::new(End(running.end)),
            secrets,
        })
    }

    /// Opens names of access for the server's own traffic. Tools of other servers are not among them.
    fn reach(&self, caller: &Caller, names: &[String], given: &mut Given) -> Result<Reach, RunError> {
        if names.is_empty() {
            return Ok(Reach::default());
        }
        let Some(web) = &self.web else {
            return Err(
                RunError::new("access_unknown", "no access is configured").remedy("add [access.NAME]")
            );
        };
        let opened =
            web.open(&AccessCall { caller, run_id: None, sandbox: None, names, calls_tools: false })?;
        given.set_proxies(opened.proxies);
        let mut secrets = Vec::with_capacity(opened.secrets.len());
        for (name, secret) in opened.secrets {
            secrets.push(secret.expose().to_owned());
            given.set_secret(&name, secret);
        }
        Ok(Reach { grants: opened.grants, secrets })
    }
}

/// What the names of access give to a server.
#[derive(Default)]
struct Reach {
    grants: Vec<engine::links::Grant>,
    /// The values of the secrets in its environment, which its results must not show.
    secrets: Vec<String>,
}

impl WalledStart for Walled {
    fn start<'a>(&'a self, program: WalledProgram<'a>) -> BoxFuture<'a, Result<WalledProcess, ToolError>> {
        Box::pin(self.run(program))
    }
}

struct End(engine::ProgramEnd);

impl WalledEnd for End {
    fn end(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.wait())
    }

    fn last_words(&self) -> Vec<u8> {
        self.0.last_words()
    }
}

fn unavailable(message: &str, remedy: &str) -> ToolError {
    ToolError::new(ToolErrorCode::ServerUnavailable, message).with_remedy(remedy)
}

fn told(error: RunError) -> ToolError {
    let cause = error.cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    unavailable(&format!("{}{cause} ({})", error.message, error.code), &error.remedy.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use engine::access::{AccessRecord, Offered, Opened, Reached};
    use engine::{Proxies, Secret};

    use super::*;

    /// Access that gives one secret.
    struct Web;

    struct Nothing;

    impl AccessRecord for Nothing {
        fn reached(&self) -> Vec<Reached> {
            Vec::new()
        }
    }

    impl AccessBook for Web {
        fn offered(&self) -> &[Offered] {
            &[]
        }

        fn open(&self, _: &AccessCall<'_>) -> Result<Opened, RunError> {
            Ok(Opened {
                grants: Vec::new(),
                proxies: Proxies::default(),
                secrets: vec![("TOKEN".to_owned(), Secret::new("s3cret-of-access".to_owned()))],
                redactor: None,
                summary: String::new(),
                has_tools: false,
                record: Arc::new(Nothing),
            })
        }
    }

    #[test]
    fn secrets_that_a_server_gets_by_access_are_known_to_its_redaction() {
        let web: Arc<dyn AccessBook> = Arc::new(Web);
        let walled =
            Walled { engine: Weak::new(), web: Some(web), state_dir: PathBuf::new(), writable: Vec::new() };
        let names = ["web".to_owned()];
        let reach = walled.reach(&Caller::local(), &names, &mut Given::default()).unwrap();
        assert_eq!(reach.secrets, ["s3cret-of-access"]);
    }
}
