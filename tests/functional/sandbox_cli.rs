//! `palisade sandbox` against a real `palisade serve`, and who may use its control socket.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use functional::serving::Server;
use functional::{Live, SOON, own_folder, until};
use harness::{Build, Palisade, User, users};
use rustix::process::Signal;
use serde_json::Value;

const OWN_FAILURE: Option<i32> = Some(125);
const REFUSED: Option<i32> = Some(126);
const INTERRUPTED: Option<i32> = Some(130);
const LARGE_BYTES: usize = 100_000_000;
/// What a process may have of its own while it copies that.
const DATA_BYTES_MAX: usize = 40_000_000;

#[test]
fn a_sandbox_is_opened_listed_and_closed() {
    for user in users() {
        let server = Server::start(user, "verbs");
        let id = server.said_by(&[
            "sandbox",
            "open",
            "--name",
            "analysis",
            "--memory-mb",
            "128",
            "--ttl-s",
            "600",
        ]);
        assert!(id.starts_with("sbx_"), "{id}");
        let [found] = &server.sandboxes()[..] else { panic!("one sandbox") };
        assert_eq!((found["sandbox_id"].as_str(), found["name"].as_str()), (Some(&*id), Some("analysis")));
        assert_eq!(found["limits"]["memory_mb"], 128);
        let table = server.said_by(&["sandbox", "ls"]);
        assert!(table.starts_with("ID ") && table.contains(&id) && table.contains("analysis"), "{table}");
        let other = server.open();
        assert_eq!(server.said_by(&["sandbox", "rm", &id, &other]), "");
        assert_eq!(server.sandboxes().len(), 0);
    }
}

#[test]
fn closing_what_is_not_there_is_told_and_the_others_are_closed() {
    let server = Server::start(users()[0], "rm");
    let id = server.open();
    let ended = server.end(&["sandbox", "rm", "sbx_0", &id]);
    assert_eq!(ended.status.code(), REFUSED);
    assert!(ended.stderr.contains("sbx_0: there is no sandbox"), "{}", ended.stderr);
    assert_eq!(server.sandboxes().len(), 0);
}

#[test]
fn programs_in_a_sandbox_share_state_and_have_their_own_streams_and_status() {
    for user in users() {
        let server = Server::start(user, "exec");
        let id = server.open();
        server.said_by(&["sandbox", "exec", &id, "python", "-c", "x = 40"]);
        let code = "import sys; print(x + 2); print('é', file=sys.stderr); sys.exit(7)";
        let ended = server.end(&["sandbox", "exec", &id, "python", "-c", code]);
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("42\n", "é\n"));
        assert_eq!(ended.status.code(), Some(7));
        let piped = server.palisade(&["sandbox", "exec", &id, "bash", "-"]).stdin(b"echo from a pipe").end();
        assert_eq!(piped.stdout, "from a pipe\n");
        let json = server.said_by(&["sandbox", "exec", &id, "python", "--json", "-c", "x"]);
        let result: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&result["outcome"], &result["value"]["repr"]), (&"completed".into(), &"40".into()));
    }
}

#[test]
fn a_sandbox_is_known_by_its_name() {
    for user in users() {
        let server = Server::start(user, "names");
        let id = server.said_by(&["sandbox", "open", "--name", "analysis", "--ttl", "2h"]);
        server.said_by(&["sandbox", "exec", "analysis", "python", "-c", "x = 41"]);
        assert_eq!(server.said_by(&["sandbox", "exec", &id, "python", "-c", "print(x)"]), "41");
        let file = functional::readable_file("named.txt", b"abc");
        server.said_by(&["sandbox", "cp", file.to_str().unwrap(), "analysis:"]);
        assert_eq!(server.said_by(&["sandbox", "exec", "analysis", "bash", "-c", "cat named.txt"]), "abc");
        let unknown = server.end(&["sandbox", "exec", "nobody", "bash", "-c", "echo ran"]);
        assert_eq!((unknown.status.code(), unknown.stdout.as_str()), (REFUSED, ""));
        assert!(unknown.stderr.contains("palisade sandbox ls"), "{}", unknown.stderr);
        server.said_by(&["sandbox", "open", "--name", "analysis"]);
        let several = server.end(&["sandbox", "rm", "analysis"]);
        assert_eq!(several.status.code(), REFUSED);
        assert!(several.stderr.contains("several sandboxes"), "{}", several.stderr);
        assert_eq!(server.sandboxes().len(), 2, "none of them was closed");
    }
}

#[test]
fn standard_input_reaches_a_program_on_request() {
    let server = Server::start(users()[0], "stdin");
    let id = server.open();
    let ask = |args: &[&str]| {
        let line = [&["sandbox", "exec"], args, &[&id, "python", "-c", "print(input()[::-1])"]].concat();
        server.palisade(&line).stdin(b"abc\n").end()
    };
    assert_eq!(ask(&["-i"]).stdout, "cba\n");
    assert!(ask(&[]).stderr.contains("EOFError"));
}

#[test]
fn folders_are_copied_both_ways_and_links_lead_nowhere() {
    for user in users() {
        let server = Server::start(user, "folders");
        let id = server.open();
        let source = own_folder(user, "folder-in");
        fs::create_dir_all(source.join("deep/.hidden")).unwrap();
        fs::write(source.join("deep/.hidden/a"), "1").unwrap();
        fs::write(source.join("large"), vec![b'x'; 3_000_000]).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", source.join("users")).unwrap();
        let from = source.to_str().unwrap();
        let ended = server.end(&["sandbox", "cp", from, &format!("{id}:src")]);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("1 symbolic links"), "{}", ended.stderr);
        let listed =
            server.said_by(&["sandbox", "exec", &id, "bash", "-c", "find . -mindepth 1 -not -type d | sort"]);
        assert_eq!(listed, "./src/deep/.hidden/a\n./src/large");
        server.said_by(&[
            "sandbox",
            "exec",
            &id,
            "bash",
            "-c",
            "ln -s /etc/passwd src/link; mkdir src/empty",
        ]);
        let target = own_folder(user, "folder-out");
        let ended = server.end(&["sandbox", "cp", &format!("{id}:src"), target.to_str().unwrap()]);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        let files: Vec<_> = functional::files_beneath(&target)
            .into_iter()
            .filter(|path| target.join(path).is_file())
            .collect();
        assert_eq!(files, [Path::new("src/deep/.hidden/a"), Path::new("src/large")]);
        assert_eq!(fs::read(target.join("src/large")).unwrap().len(), 3_000_000);
        // A link of the user's own in the target is not followed.
        let (outside, trap) = (own_folder(user, "folder-outside"), own_folder(user, "folder-trap"));
        std::os::unix::fs::symlink(&outside, trap.join("src")).unwrap();
        let all = server.end(&["sandbox", "cp", &format!("{id}:"), trap.to_str().unwrap()]);
        assert_eq!(all.status.code(), OWN_FAILURE, "{}", all.stderr);
        assert!(functional::files_beneath(&outside).is_empty());
    }
}

#[test]
fn a_program_that_takes_too_long_has_the_status_of_a_timeout() {
    let server = Server::start(users()[0], "timeout");
    let id = server.open();
    let code = "while True: pass";
    let ended = server.end(&["sandbox", "exec", &id, "python", "--timeout", "300ms", "-c", code]);
    assert_eq!(ended.status.code(), Some(124), "{}", ended.stderr);
}

#[test]
fn output_comes_while_the_program_runs_and_none_of_it_is_lost() {
    let server = Server::start(users()[0], "stream");
    let id = server.open();
    let code = "import time\nprint('first', flush=True)\nwhile not __import__('os').path.exists('go'): time.sleep(0.01)\n\
                for n in range(60000): print(n)";
    let mut live = Live::start(server.palisade(&["sandbox", "exec", &id, "python", "-c", code]));
    assert_eq!(live.line(), "first");
    let empty = functional::readable_file("go", b"");
    server.said_by(&["sandbox", "cp", empty.to_str().unwrap(), &format!("{id}:go")]);
    for number in 0..60000 {
        assert_eq!(live.line(), number.to_string());
    }
    assert_eq!(live.wait(SOON).code(), Some(0));
}

#[test]
fn an_interrupt_cancels_the_run_and_keeps_the_sandbox() {
    let server = Server::start(users()[0], "interrupt");
    let id = server.open();
    let code = "x = 5\nprint('begun', flush=True)\nimport time\ntime.sleep(600)";
    let mut live = Live::start(server.palisade(&["sandbox", "exec", &id, "python", "-c", code]));
    assert_eq!(live.line(), "begun");
    live.signal(Signal::INT);
    let (status, stderr) = live.end(SOON);
    assert_eq!(status.code(), INTERRUPTED, "{stderr}");
    assert_eq!(server.said_by(&["sandbox", "exec", &id, "python", "-c", "print(x)"]), "5");
}

#[test]
fn a_program_that_says_nothing_can_be_interrupted_at_once() {
    let server = Server::start(users()[0], "silent");
    let id = server.open();
    let code = "x = 6\nopen('begun', 'w').close()\nimport time\ntime.sleep(600)";
    let live = Live::start(server.palisade(&["sandbox", "exec", &id, "python", "-c", code]));
    let target = own_folder(server.user, "silent-out");
    let fetch = ["sandbox", "cp", &format!("{id}:begun"), target.to_str().unwrap()];
    until(SOON, "the program has begun", || server.end(&fetch).status.success().then_some(()));
    live.signal(Signal::INT);
    // Less than the pause before the first sign of life of a silent program.
    let (status, stderr) = live.end(Duration::from_secs(4));
    assert_eq!(status.code(), INTERRUPTED, "{stderr}");
    assert_eq!(server.said_by(&["sandbox", "exec", &id, "python", "-c", "print(x)"]), "6");
}

#[test]
fn files_go_in_and_out_whole() {
    for user in users() {
        let server = Server::start(user, "files");
        let id = server.open();
        let mut chance = functional::Chance::new(7);
        for size in [0, 1, 300_000, 3_000_000] {
            let bytes: Vec<u8> = (0..size).map(|_| u8::try_from(chance.below(256)).unwrap()).collect();
            let source = functional::readable_file(&format!("cp {size} ü"), &bytes);
            server.said_by(&["sandbox", "cp", source.to_str().unwrap(), &format!("{id}:in/")]);
            let target = own_folder(user, "cp-out");
            let remote = format!("{id}:in/cp {size} ü");
            server.said_by(&["sandbox", "cp", &remote, target.to_str().unwrap()]);
            assert!(fs::read(target.join(format!("cp {size} ü"))).unwrap() == bytes, "{size} bytes");
            assert_eq!(functional::files_beneath(&target).len(), 1, "nothing else is left");
        }
        let missing = server.end(&["sandbox", "cp", &format!("{id}:none"), "/tmp"]);
        assert_eq!(missing.status.code(), REFUSED, "{}", missing.stderr);
    }
}

#[test]
fn a_large_file_is_copied_in_constant_memory() {
    let server = Server::start(users()[0], "large");
    let id = server.open();
    let folder = own_folder(users()[0], "large-files");
    let (source, target) = (folder.join("source"), folder.join("target"));
    fs::write(&source, vec![7; LARGE_BYTES]).unwrap();
    let copy = |from: &str, to: &str| {
        let mut command = Command::new("prlimit");
        command.arg(format!("--data={DATA_BYTES_MAX}")).arg(harness::binary(Build::Real));
        command.args(["sandbox", "cp", from, to]).env("PALISADE_STATE_DIR", &server.state_dir);
        let ended = command.output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    };
    copy(source.to_str().unwrap(), &format!("{id}:large"));
    copy(&format!("{id}:large"), target.to_str().unwrap());
    assert!(fs::read(&target).unwrap() == fs::read(&source).unwrap());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn mistakes_in_the_command_have_status_two() {
    let server = Server::start(users()[0], "usage");
    for args in [
        &["sandbox"][..],
        &["sandbox", "nonsense"],
        &["sandbox", "rm"],
        &["sandbox", "exec", "sbx_0", "python"],
        &["sandbox", "exec", "sbx_0", "python", "/nonexistent/file.py"],
        &["sandbox", "cp", "/etc/hostname", "/tmp/x"],
        &["shell", "--keep", "sbx_0"],
    ] {
        assert_eq!(server.end(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn without_a_server_the_remedy_is_said() {
    for user in users() {
        for args in [&["sandbox", "ls"][..], &["shell"], &["sandbox", "exec", "sbx_0", "bash", "-c", "true"]]
        {
            let ended = Palisade::new(Build::Real, user, args).end();
            assert_eq!(ended.status.code(), OWN_FAILURE, "{args:?}");
            assert!(ended.stderr.contains("start one with `palisade serve`"), "{}", ended.stderr);
        }
    }
}

#[test]
fn the_owner_is_whoever_holds_the_token() {
    let server = Server::start(users()[0], "principal");
    let id = server.open();
    let token = fs::read_to_string(server.state_dir.join("token")).unwrap();
    assert!(server.list_over_tcp(Some(token.trim())).contains(&id));
    assert!(server.list_over_tcp(None).starts_with("HTTP/1.1 401"), "without a token nobody is anybody");
}

#[test]
fn where_no_token_is_asked_for_the_owner_is_like_everybody() {
    let user = users()[0];
    let state_dir = own_folder(user, "nobody");
    fs::set_permissions(&state_dir, fs::Permissions::from_mode(0o700)).unwrap();
    let server = Server::start_in(user, state_dir, &["--no-auth"]);
    let id = server.open();
    assert!(server.list_over_tcp(None).contains(&id));
}

#[test]
fn another_user_is_kept_out_by_the_file_and_by_the_server() {
    if users() != [User::Root, User::Ordinary] {
        eprintln!("SKIPPED: it takes two users");
        return;
    }
    let server = Server::start(User::Root, "strangers");
    let socket = server.socket();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
    assert_eq!((mode(&server.state_dir), mode(&socket)), (0o700, 0o600));
    let ask = |args: &[&str]| {
        let socket = ["--socket", socket.to_str().unwrap()];
        Palisade::new(Build::Real, User::Ordinary, args).args(&socket).end()
    };
    let by_file = ask(&["sandbox", "ls"]);
    assert_eq!(by_file.status.code(), OWN_FAILURE);
    assert!(by_file.stderr.contains("is another user's"), "{}", by_file.stderr);
    // Even if somebody opens the way, the server asks the kernel who is there.
    fs::set_permissions(&server.state_dir, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    for args in [&["sandbox", "ls"][..], &["sandbox", "open"], &["shell"]] {
        let by_server = ask(args);
        assert_eq!(by_server.status.code(), OWN_FAILURE, "{args:?}");
        assert!(by_server.stderr.contains("only the user that runs this server"), "{}", by_server.stderr);
    }
    assert_eq!(server.sandboxes().len(), 0);
}

#[test]
fn root_may_use_an_ordinary_users_server() {
    if users() != [User::Root, User::Ordinary] {
        eprintln!("SKIPPED: it takes two users");
        return;
    }
    let server = Server::start(User::Ordinary, "root");
    let socket = server.socket();
    let asked = ["sandbox", "open", "--socket", socket.to_str().unwrap()];
    let ended = Palisade::new(Build::Real, User::Root, &asked).end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert_eq!(server.sandboxes().len(), 1);
}

#[test]
fn a_second_server_leaves_the_socket_to_the_first() {
    let first = Server::start(users()[0], "second");
    let id = first.open();
    let second = Server::start_in(first.user, first.state_dir.clone(), &[]);
    second.said.wait_for("no_control_socket");
    drop(second);
    assert_eq!(first.sandboxes()[0]["sandbox_id"].as_str(), Some(&*id));
}

#[test]
fn a_socket_left_by_a_killed_server_is_replaced() {
    for user in users() {
        let mut first = Server::start(user, "killed");
        first.kill();
        assert!(first.socket().exists(), "it could not clean up");
        assert_eq!(first.end(&["sandbox", "ls"]).status.code(), OWN_FAILURE);
        let second = Server::start_in(user, first.state_dir.clone(), &[]);
        assert!(!second.said.text().contains("no_control_socket"), "{}", second.said.text());
        assert_eq!(second.sandboxes().len(), 0);
    }
}

#[test]
fn a_server_that_ends_takes_its_socket_with_it() {
    let server = Server::start(users()[0], "ends");
    let socket = server.socket();
    drop(server);
    assert!(!socket.exists());
}

#[test]
fn a_path_too_long_for_a_socket_is_told_and_the_server_serves() {
    let user = users()[0];
    let state_dir = own_folder(user, "long").join("x".repeat(120));
    fs::create_dir(&state_dir).unwrap();
    fs::set_permissions(&state_dir, fs::Permissions::from_mode(0o700)).unwrap();
    let server = Server::start_in(user, state_dir, &["--no-auth"]);
    assert!(
        server.said.text().contains("use a state directory with a shorter path"),
        "{}",
        server.said.text()
    );
    assert!(server.list_over_tcp(None).starts_with("HTTP/1.1 200"));
}
