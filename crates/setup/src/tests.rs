//! Every client in a separate home directory: the tests read and write no files of the user who runs them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use serde_json::json;

use super::*;
use harness::TestFolder;

const COMMAND: &str = "/opt/palisade/bin/palisade";

mod remove;

struct Scene {
    folder: TestFolder,
    places: Places,
}

impl Scene {
    fn new() -> Self {
        let folder = TestFolder::new();
        let home = folder.path().join("home");
        let project = folder.path().join("project");
        fs::create_dir(&home).unwrap();
        fs::create_dir(&project).unwrap();
        let places = Places { config: home.join(".config"), home, claude: None, codex: None, project };
        Self { folder, places }
    }

    fn path(&self, client: &Client) -> PathBuf {
        client.path(Reach::User, &self.places).unwrap()
    }

    /// Writes the initial content of a client's file.
    fn before(&self, client: &Client, text: &str) -> PathBuf {
        let path = self.path(client);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn set_up(&self, client: &'static Client) -> Result<String, SetupError> {
        task(client).set_up(&self.places, false)
    }

    fn force(&self, client: &'static Client) -> Result<String, SetupError> {
        task(client).set_up(&self.places, true)
    }
}

fn task(client: &'static Client) -> Task {
    let connection = Connection::Program(COMMAND.to_owned());
    Task { client, reach: Reach::User, name: "palisade".to_owned(), connection }
}

fn client(name: &str) -> &'static Client {
    Client::by_name(name).unwrap()
}

/// The clients with JSON or JSONC.
fn with_json() -> impl Iterator<Item = &'static Client> {
    CLIENTS.iter().filter(|client| client.format != Format::Toml)
}

fn entry_in(client: &'static Client, text: &str) -> Option<Value> {
    let key = [client.container, "palisade"];
    match client.format {
        Format::Toml => toml_file::find(text, key).unwrap(),
        format => json_edit::find(text, format, key).unwrap(),
    }
}

fn neighbours(path: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|other| other != path && other.is_file());
    all.sort();
    all
}

/// A file with another server, in the client's format and with this line end.
fn with_other_server(client: &Client, newline: &str) -> String {
    let text = match client.format {
        Format::Toml => {
            "# mine\nmodel = \"größer ☃\"\n\n[mcp_servers.other] # keep\ncommand = \"x\"\n\n[last]\na = 1 # one\n".to_owned()
        }
        _ => format!(
            "{{\n    \"first\": \"größer ☃\",\n    \"{}\": {{\n        \"other\": {{ \"command\": \"x\" }}\n    }},\n    \
             \"last\": [1, 2.50, 1e3]\n}}\n",
            client.container
        ),
    };
    text.replace('\n', newline)
}

#[test]
fn a_fresh_home_gets_a_file_that_only_its_user_reads() {
    for client in &CLIENTS {
        let scene = Scene::new();
        let said = scene.set_up(client).unwrap();
        let path = scene.path(client);
        assert!(said.contains("was added in") && said.contains(&path.display().to_string()), "{said}");
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(entry_in(client, &text), Some(client.entry(COMMAND)), "{}", client.name);
        assert!(text.ends_with('\n') && !text.contains('\r'));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(neighbours(&path).is_empty(), "nothing is left beside a fresh file");
    }
}

#[test]
fn the_files_have_the_shape_that_their_clients_read() {
    let scene = Scene::new();
    for client in &CLIENTS {
        scene.set_up(client).unwrap();
    }
    let read = |name: &str| fs::read_to_string(scene.places.home.join(name)).unwrap();
    let json = |name: &str| serde_json::from_str::<Value>(&read(name)).unwrap();
    let plain = json!({ "command": COMMAND, "args": ["mcp"] });
    let claude = json!({ "type": "stdio", "command": COMMAND, "args": ["mcp"], "env": {} });
    assert_eq!(json(".claude.json"), json!({ "mcpServers": { "palisade": claude } }));
    let servers = json!({ "mcpServers": { "palisade": plain } });
    let same = [
        ".config/Claude/claude_desktop_config.json",
        ".cursor/mcp.json",
        ".gemini/settings.json",
        ".codeium/windsurf/mcp_config.json",
    ];
    for name in same {
        assert_eq!(json(name), servers, "{name}");
    }
    let vscode = json!({ "type": "stdio", "command": COMMAND, "args": ["mcp"] });
    assert_eq!(json(".config/Code/User/mcp.json"), json!({ "servers": { "palisade": vscode } }));
    let zed = json!({ "command": COMMAND, "args": ["mcp"], "env": {} });
    assert_eq!(json(".config/zed/settings.json"), json!({ "context_servers": { "palisade": zed } }));
    let codex = format!("[mcp_servers.palisade]\ncommand = \"{COMMAND}\"\nargs = [\"mcp\"]\n");
    assert_eq!(read(".codex/config.toml"), codex);
}

#[test]
fn other_servers_and_every_other_byte_stay() {
    for newline in ["\n", "\r\n"] {
        for client in &CLIENTS {
            let scene = Scene::new();
            let before = with_other_server(client, newline);
            let path = scene.before(client, &before);
            scene.set_up(client).unwrap();
            let after = fs::read_to_string(&path).unwrap();
            assert_eq!(entry_in(client, &after), Some(client.entry(COMMAND)));
            let mut rest = after.lines();
            for line in before.lines() {
                let kept = rest.any(|other| other == line || other.strip_suffix(',') == Some(line));
                assert!(kept, "{}: lost {line:?} of\n{after}", client.name);
            }
            assert_eq!(
                after.matches('\n').count(),
                after.matches(newline).count(),
                "{}: line ends",
                client.name
            );
            let backups = neighbours(&path);
            assert_eq!(backups.len(), 1, "{backups:?}");
            assert_eq!(fs::read_to_string(&backups[0]).unwrap(), before);
        }
    }
}

#[test]
fn a_second_time_writes_nothing() {
    for client in &CLIENTS {
        let scene = Scene::new();
        let path = scene.before(client, &with_other_server(client, "\n"));
        scene.set_up(client).unwrap();
        let (before, beside) = (fs::metadata(&path).unwrap(), neighbours(&path));
        let said = scene.set_up(client).unwrap();
        assert!(said.contains("already set up"), "{said}");
        let after = fs::metadata(&path).unwrap();
        assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
        assert_eq!(neighbours(&path), beside);
    }
}

#[test]
fn the_same_entry_in_other_words_is_the_same() {
    let scene = Scene::new();
    let path = scene.before(
        client("cursor"),
        &json!({ "mcpServers": { "palisade": { "args": ["mcp"], "env": {}, "type": "stdio", "command": COMMAND } } }).to_string(),
    );
    let before = fs::read(&path).unwrap();
    assert!(scene.set_up(client("cursor")).unwrap().contains("already"));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn another_entry_is_replaced_only_by_force() {
    for client in &CLIENTS {
        let scene = Scene::new();
        let before = with_other_server(client, "\n").replace("other", "palisade");
        let path = scene.before(client, &before);
        let error = scene.set_up(client).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("-   \"command\": \"x\"")
                && said.contains(&format!("+   \"command\": \"{COMMAND}\"")),
            "{said}"
        );
        assert!(error.remedy().contains("--force"));
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
        assert!(neighbours(&path).is_empty());
        assert!(scene.force(client).unwrap().contains("was replaced in"));
        let after = fs::read_to_string(&path).unwrap();
        assert_eq!(entry_in(client, &after), Some(client.entry(COMMAND)));
        assert!(after.contains("größer ☃"));
        assert_eq!(neighbours(&path).len(), 1);
    }
}

#[test]
fn a_malformed_file_stays_as_it_is() {
    for client in &CLIENTS {
        let broken: &[&str] = match client.format {
            Format::Toml => &["a = \n", "[mcp_servers\n", "mcp_servers = 3\n"],
            _ => &[
                "{\n  \"a\": 1\n  \"b\": 2\n}\n",
                "{",
                "[]",
                "not json",
                "{\"CONTAINER\": []}",
                "{\"CONTAINER\": {}, \"CONTAINER\": {}}",
            ],
        };
        for text in broken {
            let text = text.replace("CONTAINER", client.container);
            let scene = Scene::new();
            let path = scene.before(client, &text);
            for result in [scene.set_up(client), scene.force(client)] {
                let error = result.unwrap_err();
                assert!(matches!(error, SetupError::Content { .. }), "{error}");
                assert!(
                    error.to_string().contains("left unchanged") && error.remedy().ends_with("by hand:"),
                    "{error}"
                );
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert!(neighbours(&path).is_empty());
        }
    }
    let scene = Scene::new();
    scene.before(client("cursor"), "{\n  \"a\": 1\n  \"b\": 2\n}\n");
    assert!(scene.set_up(client("cursor")).unwrap_err().to_string().contains("line 2, column 9"));
}

#[test]
fn text_that_is_not_utf8_stays_as_it_is() {
    let scene = Scene::new();
    let path = scene.before(client("zed"), "");
    fs::write(&path, b"{\"a\": \"\xff\"}").unwrap();
    assert!(scene.set_up(client("zed")).unwrap_err().to_string().contains("UTF-8"));
    assert_eq!(fs::read(&path).unwrap(), b"{\"a\": \"\xff\"}");
}

#[test]
fn a_read_only_file_is_left_alone() {
    for client in &CLIENTS {
        let scene = Scene::new();
        let before = with_other_server(client, "\n");
        let path = scene.before(client, &before);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        let error = scene.set_up(client).unwrap_err();
        assert!(
            matches!(error, SetupError::ReadOnly { .. }) && error.remedy().contains("chmod u+w"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
        assert!(neighbours(&path).is_empty());
    }
}

#[test]
fn a_huge_file_is_refused() {
    for client in &CLIENTS {
        let scene = Scene::new();
        let path = scene.before(client, "");
        fs::File::options().write(true).open(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        let error = scene.set_up(client).unwrap_err();
        assert!(matches!(error, SetupError::TooLarge { .. }), "{error}");
        assert_eq!(fs::metadata(&path).unwrap().len(), FILE_BYTES_MAX + 1);
    }
}

#[test]
fn comments_stay_where_clients_read_them_and_are_refused_where_not() {
    let text = "// top\n{\n  // before\n  \"CONTAINER\": {\n    \"other\": {\n      \"command\": \"x\", // why ☃\n    }, // other's\n    \
                /* last\n       words */\n  }, // after\n  \"theme\": \"dark\",\n}\n// end\n";
    let expected = "// top\n{\n  // before\n  \"CONTAINER\": {\n    \"other\": {\n      \"command\": \"x\", // why ☃\n    }, // other's\n    \
                    /* last\n       words */\n    ENTRY,\n  }, // after\n  \"theme\": \"dark\",\n}\n// end\n";
    for client in with_json() {
        for newline in ["\n", "\r\n"] {
            let fill = |text: &str| text.replace("CONTAINER", client.container).replace('\n', newline);
            let scene = Scene::new();
            let path = scene.before(client, &fill(text));
            let result = scene.set_up(client);
            let after = fs::read_to_string(&path).unwrap();
            if client.format == Format::Json {
                let error = result.unwrap_err();
                assert!(
                    error.to_string().contains("comments") && error.remedy() == "add by hand:",
                    "{error}"
                );
                assert_eq!(after, fill(text));
                continue;
            }
            result.unwrap();
            let pretty =
                serde_json::to_string_pretty(&client.entry(COMMAND)).unwrap().replace('\n', "\n    ");
            assert_eq!(
                after,
                fill(&expected.replace("ENTRY", &format!("\"palisade\": {pretty}"))),
                "{}",
                client.name
            );
        }
    }
}

#[test]
fn comments_of_toml_stay() {
    let scene = Scene::new();
    let before = with_other_server(client("codex"), "\n");
    let path = scene.before(client("codex"), &before);
    scene.set_up(client("codex")).unwrap();
    let after = fs::read_to_string(&path).unwrap();
    for comment in ["# mine", "# keep", "# one"] {
        assert!(after.contains(comment), "{after}");
    }
    for form in [
        "mcp_servers = { other = { command = \"x\" } } # inline\n",
        "mcp_servers.other.command = \"x\" # dotted\n",
    ] {
        let scene = Scene::new();
        let path = scene.before(client("codex"), form);
        scene.set_up(client("codex")).unwrap();
        let after = fs::read_to_string(&path).unwrap();
        assert_eq!(entry_in(client("codex"), &after), Some(client("codex").entry(COMMAND)));
        assert!(after.contains(form.split('#').nth(1).unwrap().trim()), "{after}");
    }
}

#[test]
fn deep_nesting_is_refused_and_not_a_crash() {
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let scene = Scene::new();
    scene.before(client("vscode"), &deep);
    assert!(matches!(scene.set_up(client("vscode")), Err(SetupError::Content { .. })));
}

#[test]
fn a_linked_dotfile_stays_a_link() {
    for client in &CLIENTS {
        let scene = Scene::new();
        let path = scene.before(client, "");
        fs::remove_file(&path).unwrap();
        let real = scene.folder.file("dotfiles/real", with_other_server(client, "\n"));
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&real, &path).unwrap();
        scene.set_up(client).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
        assert_eq!(entry_in(client, &fs::read_to_string(&real).unwrap()), Some(client.entry(COMMAND)));
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o640);
        assert_eq!(neighbours(&real).len(), 1, "the backup is beside the real file");
        assert_eq!(fs::metadata(&neighbours(&real)[0]).unwrap().mode() & 0o777, 0o640);
    }
}

#[test]
fn a_link_that_leads_nowhere_and_a_second_name_are_refused() {
    let scene = Scene::new();
    let path = scene.path(client("claude-code"));
    symlink("/nonexistent/file", &path).unwrap();
    assert!(scene.set_up(client("claude-code")).unwrap_err().to_string().contains("leads nowhere"));
    fs::remove_file(&path).unwrap();
    fs::write(&path, "{}").unwrap();
    fs::hard_link(&path, scene.places.home.join("second")).unwrap();
    assert!(scene.set_up(client("claude-code")).unwrap_err().to_string().contains("hard link"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
}

#[test]
fn a_file_that_changed_meanwhile_is_not_overwritten() {
    let scene = Scene::new();
    let path = scene.before(client("gemini"), "{}");
    let target = file::read(&path, Reach::User, &scene.places.project).unwrap();
    fs::write(&path, "{\"theirs\": 1}").unwrap();
    assert!(matches!(target.write("{}"), Err(SetupError::Changed { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"theirs\": 1}");
    assert!(neighbours(&path).is_empty());
    let fresh = scene.places.home.join("fresh");
    let target = file::read(&fresh, Reach::User, &scene.places.project).unwrap();
    fs::write(&fresh, "theirs").unwrap();
    assert!(matches!(target.write("ours"), Err(SetupError::Changed { .. })));
    assert_eq!(fs::read_to_string(&fresh).unwrap(), "theirs");
}

#[test]
fn a_project_has_its_own_file_and_links_do_not_lead_out_of_it() {
    let scene = Scene::new();
    let files = [
        (".mcp.json", "claude-code"),
        (".cursor/mcp.json", "cursor"),
        (".vscode/mcp.json", "vscode"),
        (".gemini/settings.json", "gemini"),
    ];
    for (file, name) in files {
        let task = Task { reach: Reach::Project, ..task(client(name)) };
        task.set_up(&scene.places, false).unwrap();
        let path = scene.places.project.join(file);
        assert!(entry_in(client(name), &fs::read_to_string(&path).unwrap()).is_some());
        fs::remove_file(&path).unwrap();
        let outside = scene.folder.file("outside.json", "{}");
        symlink(&outside, &path).unwrap();
        let error = task.set_up(&scene.places, true).unwrap_err();
        assert!(matches!(error, SetupError::OutsideProject { .. }), "{error}");
        assert_eq!(fs::read_to_string(&outside).unwrap(), "{}");
    }
    for name in ["claude-desktop", "codex", "zed", "windsurf"] {
        let error =
            Task { reach: Reach::Project, ..task(client(name)) }.set_up(&scene.places, false).unwrap_err();
        assert!(error.to_string().contains("claude-code, cursor, vscode, gemini"), "{error}");
    }
}

#[test]
fn folders_of_their_own_are_honoured() {
    let mut scene = Scene::new();
    scene.places.claude = Some(scene.folder.path().join("claude"));
    scene.places.codex = Some(scene.folder.path().join("codex"));
    scene.set_up(client("claude-code")).unwrap();
    scene.set_up(client("codex")).unwrap();
    assert!(scene.folder.path().join("claude/.claude.json").is_file());
    assert!(scene.folder.path().join("codex/config.toml").is_file());
    assert!(neighbours(&scene.places.home.join("x")).is_empty());
}

#[test]
fn printing_and_listing_write_nothing() {
    let scene = Scene::new();
    scene.before(client("zed"), "{ broken");
    scene.set_up(client("cursor")).unwrap();
    for client in &CLIENTS {
        let said = task(client).print(&scene.places).unwrap();
        assert!(said.contains(COMMAND) && said.contains(client.container), "{said}");
        assert!(said.starts_with(&scene.path(client).display().to_string()), "{said}");
    }
    let list = list_of(&scene.places, Reach::User, "palisade", COMMAND);
    assert_eq!(list.lines().count(), CLIENTS.len());
    let standing = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(standing("cursor").contains(" set up ") && standing("zed").contains("cannot be edited"));
    assert!(standing("codex").contains("not found here"));
    assert!(!scene.path(client("codex")).exists());
}

#[test]
fn names_are_plain_words() {
    let arguments = |client: &str, name: &str| SetupArguments {
        client: Some(client.to_owned()),
        list: false,
        remove: false,
        print: false,
        project: false,
        name: name.to_owned(),
        http: false,
        url: None,
        token_variable: String::new(),
        no_auth: false,
        force: false,
    };
    let program = || Ok(COMMAND.to_owned());
    for bad in ["", "a b", "a\"b", "a.b", "ü", &"x".repeat(65)] {
        let result = Task::new(&arguments("zed", bad), program);
        assert!(matches!(result, Err(SetupError::BadName)), "{bad}");
    }
    assert!(Task::new(&arguments("zed", "my-Sandbox_2"), program).is_ok());
    let unknown = Task::new(&arguments("emacs", "x"), program).err().unwrap();
    assert!(unknown.to_string().contains("claude-code, claude-desktop, cursor"), "{unknown}");
    let by_address = SetupArguments { http: true, ..arguments("claude-desktop", "x") };
    assert!(matches!(Task::new(&by_address, program), Err(SetupError::NoHttp { .. })));
}
