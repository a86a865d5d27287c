//! `palisade setup CLIENT`: writes Palisade into the configuration of an MCP client.
//!
//! The client need not be installed. All other content of its file is preserved: the text is changed only at
//! the entry ([`json_edit`], [`toml_file`]). The result is parsed and compared before it is written, and the
//! old file is kept as a backup ([`file`]). A different entry of the same name is shown, and replaced only
//! with `--force`. Any error leaves every file unchanged.

mod clients;
mod diff;
mod file;
mod http;
mod import;
mod json_edit;
mod toml_file;

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use terminal::complain;

use self::clients::{CLIENTS, Client, Format, Places, Reach};
use self::file::{FILE_BYTES_MAX, Target};
pub use self::http::LOCAL_URL;
use self::http::{Remote, Shape, TOKEN_VARIABLE};
pub use self::import::{ForeignReach, ForeignServer, Imported, import, import_clients};

const NAME_CHARACTERS_MAX: usize = 64;

const AFTER_HELP: &str = "\
Clients: claude-code, claude-desktop, cursor, vscode, codex, gemini, zed, windsurf
With a project file: claude-code, cursor, vscode, gemini
By address (--url, --http): all but claude-desktop
Without a client, the clients are listed with their files.";

/// Arguments of `setup`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct SetupArguments {
    /// The client
    #[arg(value_name = "CLIENT")]
    client: Option<String>,
    /// List all clients, their files and whether Palisade is in them (also without CLIENT)
    #[arg(long, conflicts_with_all = ["client", "print", "force", "http", "url"])]
    list: bool,
    /// Show what would be written and where; write nothing
    #[arg(long, visible_alias = "dry-run", requires = "client")]
    print: bool,
    /// Take the entry out of the client's configuration again
    #[arg(long, requires = "client", conflicts_with_all = ["print", "force", "http", "url"])]
    remove: bool,
    /// Use the client's file in this project instead of the user's own
    #[arg(long)]
    project: bool,
    /// Name of the server in the client
    #[arg(long, value_name = "NAME", default_value = "palisade")]
    name: String,
    /// Connect to a running `palisade serve` on this machine instead of starting a server
    #[arg(long, requires = "client")]
    http: bool,
    /// Connect to a server with this address (https://tools.example/mcp)
    #[arg(long, value_name = "URL", requires = "client")]
    url: Option<String>,
    /// The variable from which the client takes the server's token
    #[arg(long, value_name = "NAME", default_value = TOKEN_VARIABLE)]
    token_variable: String,
    /// That server asks for no token
    #[arg(long, conflicts_with = "token_variable")]
    no_auth: bool,
    /// Replace an entry of that name that says something else
    #[arg(long, requires = "client")]
    force: bool,
}

/// Position of an error in a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    line: usize,
    column: usize,
}

impl Position {
    /// The position of an offset in a text.
    fn of(text: &str, at: usize) -> Self {
        let before = &text[..at.min(text.len())];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

/// The reason why a file's content cannot be edited.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("{message}{}", at.map(|at| format!(" (line {}, column {})", at.line, at.column)).unwrap_or_default())]
    Malformed { at: Option<Position>, message: String },
    #[error("it has comments or trailing commas, which this client does not read")]
    NotStrict,
    #[error("`{what}` is not an object")]
    NotAnObject { what: String },
    #[error("`{key}` is there twice, and it is not clear which one counts")]
    Twice { key: String },
    #[error("the change could not be made without touching something else")]
    Unsure,
}

/// The reason why nothing was set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    #[error("`{name}` is not a client Palisade knows; it knows {}", Client::names(Reach::User))]
    UnknownClient { name: String },
    #[error("{client} has no file for a project; these have: {}", Client::names(Reach::Project))]
    NoProjectFile { client: &'static str },
    #[error("a server's name is made of 1 to {NAME_CHARACTERS_MAX} letters, digits, `-` and `_`")]
    BadName,
    #[error(
        "{client} starts servers itself and takes no address; these take one: {}",
        Client::names_with_http()
    )]
    NoHttp { client: &'static str },
    #[error("that address cannot be used: {reason}")]
    BadUrl { reason: &'static str },
    #[error("a variable's name is made of letters, digits and `_`")]
    BadVariable,
    #[error("the token would travel readable for everybody on the way to {url}")]
    TokenInTheOpen { url: String },
    #[error("this user has no home directory")]
    NoHome,
    #[error("the home directory {} belongs to another user", .0.display())]
    HomeOfAnother(PathBuf),
    #[error("the path of this executable cannot be written into a configuration: {reason}")]
    NoExecutable { reason: String },
    #[error("{} cannot be read: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("{} is larger than {} MB", path.display(), FILE_BYTES_MAX >> 20)]
    TooLarge { path: PathBuf },
    #[error("{} leads out of the project", path.display())]
    OutsideProject { path: PathBuf },
    #[error("{} was left unchanged: {reason}", path.display())]
    Content { path: PathBuf, reason: FormatError },
    #[error("{} is read-only", path.display())]
    ReadOnly { path: PathBuf },
    #[error("{} cannot be written: {reason}", path.display())]
    Unwritable { path: PathBuf, reason: String },
    #[error("{} was changed by somebody else meanwhile", path.display())]
    Changed { path: PathBuf },
    #[error("{} has another server named `{name}`:\n{diff}", path.display())]
    Differs { path: PathBuf, name: String, diff: String },
}

impl SetupError {
    fn remedy(&self) -> &'static str {
        match self {
            Self::UnknownClient { .. } => "`palisade setup --list` shows them with their files",
            Self::NoProjectFile { .. } => "leave out --project",
            Self::BadName => "choose another --name",
            Self::NoHttp { .. } => "leave out --http and --url",
            Self::BadUrl { .. } => "give one such as https://tools.example/mcp",
            Self::BadVariable => "choose another --token-variable",
            Self::TokenInTheOpen { .. } => "give an https:// address",
            Self::NoHome => "set HOME",
            Self::HomeOfAnother(_) => "run this as that user, without sudo",
            Self::NoExecutable { .. } => "install palisade in a directory of your PATH and run it from there",
            Self::OutsideProject { .. } => "remove the link, or set the client up without --project",
            Self::Changed { .. } => "close the client and try again",
            Self::Differs { .. } => "replace it with --force, or choose another --name",
            Self::Content { reason: FormatError::Malformed { .. }, .. } => {
                "repair the file and try again, or add by hand:"
            }
            Self::ReadOnly { .. } => "make it writable (chmod u+w), or add by hand:",
            Self::Unreadable { .. }
            | Self::TooLarge { .. }
            | Self::Content { .. }
            | Self::Unwritable { .. } => "add by hand:",
        }
    }
}

/// One setup task.
struct Task {
    client: &'static Client,
    reach: Reach,
    name: String,
    connection: Connection,
}

/// How the client connects to the server.
enum Connection {
    /// The client starts this program.
    Program(String),
    /// The client connects to an address.
    Http(Shape, Remote),
}

/// The state of a client's file.
#[derive(Debug)]
enum Standing {
    NoFile,
    NoEntry,
    Same,
    Differs(Value),
}

/// The user's folders.
#[derive(Debug, Clone, Default)]
pub struct UserFolders {
    /// The home directory, if there is one.
    pub home: Option<PathBuf>,
    /// The user's configuration directory, if it is not at the default place in the home directory.
    pub config: Option<PathBuf>,
}

/// Runs `palisade setup`.
pub fn main(folders: UserFolders, arguments: &SetupArguments) -> ExitCode {
    let text = match arguments.client.is_none() {
        true => list(folders, arguments),
        false => one(folders, arguments),
    };
    match text {
        Ok(text) => {
            // The reader of standard output may be gone.
            writeln!(std::io::stdout().lock(), "{}", text.trim_end()).ok();
            ExitCode::SUCCESS
        }
        Err((error, fragment)) => {
            complain(&error.to_string(), Some(error.remedy()));
            if let Some(fragment) = fragment.filter(|_| error.remedy().ends_with("by hand:")) {
                eprintln!("\n{fragment}");
            }
            ExitCode::FAILURE
        }
    }
}

/// An error, and a text to paste by hand where that helps.
type Failure = (SetupError, Option<String>);

fn one(folders: UserFolders, arguments: &SetupArguments) -> Result<String, Failure> {
    let bare = |error| (error, None);
    let places = Places::of_process(folders).map_err(bare)?;
    let task = Task::new(arguments, executable).map_err(bare)?;
    let done = match (arguments.remove, arguments.print) {
        (true, _) => task.remove(&places),
        (false, true) => task.print(&places),
        (false, false) => task.set_up(&places, arguments.force),
    };
    done.map_err(|error| (error, Some(task.fragment())))
}

impl Task {
    /// `program` determines the program to start, if there is one.
    fn new(
        arguments: &SetupArguments,
        program: impl FnOnce() -> Result<String, SetupError>,
    ) -> Result<Self, SetupError> {
        let wanted = arguments.client.as_deref().unwrap_or_default();
        let client = Client::by_name(wanted)
            .ok_or_else(|| SetupError::UnknownClient { name: terminal::plain(wanted) })?;
        let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let name = arguments.name.clone();
        if name.is_empty() || name.len() > NAME_CHARACTERS_MAX || !name.chars().all(is_good) {
            return Err(SetupError::BadName);
        }
        let reach = if arguments.project { Reach::Project } else { Reach::User };
        let connection = match (arguments.http || arguments.url.is_some(), client.http) {
            (false, _) => Connection::Program(program()?),
            (true, None) => return Err(SetupError::NoHttp { client: client.name }),
            (true, Some(shape)) => {
                let variable = Some(arguments.token_variable.as_str()).filter(|_| !arguments.no_auth);
                Connection::Http(shape, Remote::new(arguments.url.as_deref(), variable)?)
            }
        };
        Ok(Self { client, reach, name, connection })
    }

    fn path(&self, places: &Places) -> Result<PathBuf, SetupError> {
        let found = self.client.path(self.reach, places);
        found.ok_or(SetupError::NoProjectFile { client: self.client.name })
    }

    fn read(&self, places: &Places) -> Result<Target, SetupError> {
        if self.reach == Reach::User {
            places.check_home()?;
        }
        file::read(&self.path(places)?, self.reach, &places.project)
    }

    fn key(&self) -> [&str; 2] {
        [self.client.container, &self.name]
    }

    fn entry(&self) -> Value {
        match &self.connection {
            Connection::Program(command) => self.client.entry(command),
            Connection::Http(shape, remote) => remote.entry(shape),
        }
    }

    /// The user's next step for the token, if there is one.
    fn about_token(&self) -> Option<String> {
        match &self.connection {
            Connection::Program(_) => None,
            Connection::Http(shape, remote) => remote.about_token(shape, self.client.title),
        }
    }

    fn fragment(&self) -> String {
        match self.client.format {
            Format::Json | Format::Jsonc => json_edit::fragment(self.key(), &self.entry()),
            Format::Toml => toml_file::fragment(self.key(), &self.entry()),
        }
    }

    fn standing(&self, target: &Target) -> Result<Standing, SetupError> {
        let Some(found) = &target.found else { return Ok(Standing::NoFile) };
        let entry = match self.client.format {
            Format::Toml => toml_file::find(&found.text, self.key()),
            format => json_edit::find(&found.text, format, self.key()),
        };
        let entry = entry.map_err(|reason| SetupError::Content { path: target.path.clone(), reason })?;
        Ok(match entry {
            None => Standing::NoEntry,
            Some(entry) if json_edit::is_same(&entry, &self.entry()) => Standing::Same,
            Some(entry) => Standing::Differs(entry),
        })
    }

    fn set_up(&self, places: &Places, is_forced: bool) -> Result<String, SetupError> {
        let target = self.read(places)?;
        let (title, name, path) = (self.client.title, &self.name, target.path.display());
        let verb = match self.standing(&target)? {
            Standing::Same => return Ok(format!("{title} is already set up: `{name}` is in {path}")),
            Standing::Differs(old) if !is_forced && !self.switches(&old) => {
                let diff = diff::of_entries(&old, &self.entry()).trim_end().to_owned();
                return Err(SetupError::Differs { path: target.path.clone(), name: name.clone(), diff });
            }
            Standing::Differs(_) => "replaced",
            Standing::NoFile | Standing::NoEntry => "added",
        };
        let text = target.found.as_ref().map_or("", |found| &found.text);
        let edited = match self.client.format {
            Format::Toml => toml_file::put(text, self.key(), &self.entry()),
            format => json_edit::put(text, format, self.key(), &self.entry()),
        };
        let edited = edited.map_err(|reason| SetupError::Content { path: target.path.clone(), reason })?;
        let backup = target.write(&edited)?;
        let mut text = format!("{title} is set up: `{name}` was {verb} in {path}\n");
        if let Some(backup) = backup {
            writeln!(text, "  before: {}", backup.display()).ok();
        }
        if let Some(about) = self.about_token() {
            writeln!(text, "  token:  {about}").ok();
        }
        writeln!(text, "  next:   {}", self.client.after).ok();
        Ok(text)
    }

    /// Whether an entry of Palisade only gets the other connection: a program, or an address.
    fn switches(&self, old: &Value) -> bool {
        let is_program = |entry: &Value| entry.get("command").is_some();
        clients::is_own_entry(old) && is_program(old) != is_program(&self.entry())
    }

    fn remove(&self, places: &Places) -> Result<String, SetupError> {
        let target = self.read(places)?;
        let (title, name, path) = (self.client.title, &self.name, target.path.display());
        let Some(found) = &target.found else {
            return Ok(format!("{title} is not set up: there is no {path}"));
        };
        if let Standing::NoEntry = self.standing(&target)? {
            return Ok(format!("{title} is not set up: `{name}` is not in {path}"));
        }
        let edited = match self.client.format {
            Format::Toml => toml_file::remove(&found.text, self.key()),
            format => json_edit::remove(&found.text, format, self.key()),
        };
        let edited = edited.map_err(|reason| SetupError::Content { path: target.path.clone(), reason })?;
        let backup = target.write(&edited)?;
        let mut text = format!("`{name}` was removed from {path}\n");
        if let Some(backup) = backup {
            writeln!(text, "  before: {}", backup.display()).ok();
        }
        Ok(text)
    }

    fn print(&self, places: &Places) -> Result<String, SetupError> {
        let path = self.path(places)?;
        let standing = match self.read(places).and_then(|target| self.standing(&target)) {
            Ok(Standing::NoFile) => "would be made with".to_owned(),
            Ok(Standing::NoEntry) => "would get".to_owned(),
            Ok(Standing::Same) => "already has".to_owned(),
            Ok(Standing::Differs(_)) => format!("has another `{}`; with --force it would get", self.name),
            Err(error) => format!("would not be touched ({error}); by hand it can get"),
        };
        let about = self.about_token().map(|about| format!("\n\ntoken: {about}")).unwrap_or_default();
        Ok(format!("{} {standing}:\n\n{}{about}", path.display(), self.fragment()))
    }
}

fn list(folders: UserFolders, arguments: &SetupArguments) -> Result<String, Failure> {
    let bare = |error| (error, None);
    let places = Places::of_process(folders).map_err(bare)?;
    let command = executable().map_err(bare)?;
    let reach = if arguments.project { Reach::Project } else { Reach::User };
    let clients = list_of(&places, reach, &arguments.name, &command);
    Ok(format!("{clients}\n`palisade setup CLIENT` sets one up; --remove takes the entry out again."))
}

fn list_of(places: &Places, reach: Reach, name: &str, command: &str) -> String {
    let mut text = String::new();
    for client in &CLIENTS {
        let task = Task {
            client,
            reach,
            name: name.to_owned(),
            connection: Connection::Program(command.to_owned()),
        };
        let Ok(path) = task.path(places) else { continue };
        let standing = match task.read(places).and_then(|target| task.standing(&target)) {
            Ok(Standing::NoFile) if !client.is_found(places) => "not found here",
            Ok(Standing::NoFile) => "no file yet",
            Ok(Standing::NoEntry) => "not set up",
            Ok(Standing::Same) => "set up",
            Ok(Standing::Differs(_)) => "set up differently",
            Err(_) => "cannot be edited",
        };
        writeln!(text, "{:15}  {standing:18}  {}", client.name, path.display()).ok();
    }
    text
}

impl Places {
    fn of_process(folders: UserFolders) -> Result<Self, SetupError> {
        let variable =
            |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
        let home = folders.home.ok_or(SetupError::NoHome)?;
        Ok(Self {
            config: folders.config.unwrap_or_else(|| home.join(".config")),
            home,
            claude: variable("CLAUDE_CONFIG_DIR"),
            codex: variable("CODEX_HOME"),
            project: std::env::current_dir().unwrap_or_default(),
        })
    }

    /// With sudo the home directory may belong to another user, who could neither read nor write files that
    /// root creates there.
    fn check_home(&self) -> Result<(), SetupError> {
        let owner = std::fs::metadata(&self.home).map_err(|_| SetupError::NoHome)?.uid();
        let is_own = owner == rustix::process::geteuid().as_raw();
        if is_own { Ok(()) } else { Err(SetupError::HomeOfAnother(self.home.clone())) }
    }
}

/// A stable path of this program: the one on the PATH if it resolves to this file, because the resolved path
/// may contain a version.
fn executable() -> Result<String, SetupError> {
    let unfit = |reason: &str| SetupError::NoExecutable { reason: reason.to_owned() };
    let own = std::env::current_exe().map_err(|error| unfit(&error.to_string()))?;
    if !own.is_file() {
        return Err(unfit("the file was replaced or removed since it was started"));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let leads_here = |file: &PathBuf| file.is_absolute() && same(file, &own);
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("palisade")).find(leads_here);
    let chosen = on_path.unwrap_or(own);
    chosen.into_os_string().into_string().map_err(|_| unfit("it is not UTF-8 text"))
}

fn same(one: &Path, other: &Path) -> bool {
    std::fs::canonicalize(one).is_ok_and(|real| std::fs::canonicalize(other).is_ok_and(|other| real == other))
}

#[cfg(test)]
mod tests;
