//! Whose a sandbox that lasts is, how long it is kept, and what several servers and crashes do to it.

use std::fs;
use std::time::Duration;

use functional::{SOON, marked, marker, outcome, until};
use harness::http::Server;
use harness::mcp::Client;
use harness::{Build, Palisade, User, state_dir, users};
use serde_json::{Value, json};

fn stdout(result: &Value) -> &str {
    assert_eq!(outcome(result), "completed", "{result:#}");
    result["stdout"].as_str().unwrap_or_default()
}

fn serve(user: User, more: &[&str]) -> Server {
    Server::start(Palisade::new(Build::Real, user, &["serve", "--listen", "127.0.0.1:0"]).args(more))
}

/// Everything that can be asked about a sandbox, with the answers made comparable.
fn answers(server: &Server, sandbox: &str) -> Vec<Value> {
    [
        ("run", json!({"sandbox_id": sandbox, "language": "python", "code": "1"})),
        ("read_file", json!({"sandbox_id": sandbox, "path": "file"})),
        ("write_file", json!({"sandbox_id": sandbox, "path": "file", "text": "theirs"})),
        ("list_files", json!({"sandbox_id": sandbox})),
        ("sandbox_close", json!({"sandbox_id": sandbox})),
    ]
    .into_iter()
    .map(|(tool, given)| {
        let mut answer = server.call(tool, given);
        if let Some(fields) = answer.as_object_mut() {
            for name in ["run_id", "usage", "isolation"] {
                fields.remove(name);
            }
        }
        answer
    })
    .collect()
}

#[test]
fn a_sandbox_of_another_principal_is_answered_like_one_that_never_was() {
    for user in users() {
        let mut owner = serve(user, &[]);
        owner.token = Some(fs::read_to_string(state_dir(user).join("token")).unwrap().trim().to_owned());
        let other = serve(user, &["--no-auth"]);
        let sandbox = owner.call("sandbox_open", json!({}))["sandbox_id"].as_str().unwrap().to_owned();
        owner.call("write_file", json!({"sandbox_id": sandbox, "path": "file", "text": "mine"}));
        let code = "print(open('file').read())";
        let given = json!({"sandbox_id": sandbox, "language": "python", "code": code});
        assert_eq!(stdout(&owner.call("run", given.clone())), "mine\n");
        let never = format!("sbx_{}", "0123456789abcdef".repeat(2));
        let (of_another, of_none) = (answers(&other, &sandbox), answers(&other, &never));
        assert_eq!(of_another, of_none);
        for answer in of_another {
            assert_eq!(answer["error"]["code"], "unknown_sandbox", "{answer:#}");
        }
        assert_eq!(other.call("sandbox_list", json!({}))["sandboxes"], json!([]));
        assert_eq!(stdout(&owner.call("run", given)), "mine\n");
        for wrong in ["", "sbx_", "../..", "sbx_0123456789ABCDEF0123456789ABCDEF", "sbx_%00"] {
            let answer = owner.call("run", json!({"sandbox_id": wrong, "language": "python", "code": "1"}));
            assert_eq!(outcome(&answer), "refused", "{wrong}: {answer:#}");
        }
    }
}

#[test]
fn a_second_server_is_told_to_come_back_while_the_first_has_it_awake() {
    for user in users() {
        let (first, second) = (Client::new(user), Client::new(user));
        let sandbox = first.open(json!({}));
        assert_eq!(stdout(&second.run(&sandbox, "python", "x = 1; print(x)")), "1\n");
        let refused = first.run(&sandbox, "python", "x");
        assert_eq!(
            (outcome(&refused), &refused["error"]["code"]),
            ("unavailable", &json!("busy")),
            "{refused:#}"
        );
        let refused = first.call("sandbox_close", json!({"sandbox_id": sandbox}));
        assert_eq!(
            refused["error"]["code"], "busy",
            "nothing ends behind the back of the other: {refused:#}"
        );
        assert_eq!(stdout(&second.run(&sandbox, "python", "print(x)")), "1\n");
        assert!(second.end().success());
        let asked = first.run(&sandbox, "python", "print('mine')");
        assert_eq!(stdout(&asked), "mine\n");
        let third = Client::new(user);
        let closed = first.call("sandbox_close", json!({"sandbox_id": sandbox}));
        assert_eq!(closed["closed"], true, "{closed:#}");
        let asked = third.run(&sandbox, "python", "1");
        assert_eq!(asked["error"]["code"], "unknown_sandbox", "{asked:#}");
    }
}

#[test]
fn a_sandbox_closed_by_one_server_is_unknown_to_another_that_knew_it() {
    for user in users() {
        let (first, second) = (Client::new(user), Client::new(user));
        let sandbox = first.open(json!({}));
        let listed = second.call("list_files", json!({"sandbox_id": sandbox}));
        assert!(listed["error"].is_null(), "{listed:#}");
        first.call("sandbox_close", json!({"sandbox_id": sandbox}));
        for (tool, given) in [
            ("run", json!({"sandbox_id": sandbox, "language": "python", "code": "1"})),
            ("list_files", json!({"sandbox_id": sandbox})),
            ("sandbox_close", json!({"sandbox_id": sandbox})),
        ] {
            let answer = second.call(tool, given);
            assert_eq!(answer["error"]["code"], "unknown_sandbox", "{tool}: {answer:#}");
        }
    }
}

#[test]
fn after_a_crash_the_files_are_there_and_the_interpreter_is_said_to_be_fresh() {
    for user in users() {
        let word = marker("crash");
        let mut first = Client::new(user);
        let sandbox = first.open(json!({"name": "survivor"}));
        let code = format!(
            "import subprocess\nx = 1\nopen('file', 'w').write('kept')\np = subprocess.Popen(['bash', '-c', 'exec -a {word} sleep 300'])"
        );
        stdout(&first.run(&sandbox, "python", &code));
        first.kill();
        until(SOON, "nothing of it lives", || marked(&word).is_empty().then_some(()));
        let second = Client::new(user);
        let list = second.call("sandbox_list", json!({}));
        assert_eq!(list["sandboxes"][0]["name"], "survivor");
        let asked = second.run(&sandbox, "python", "print(open('file').read(), 'x' in globals())");
        assert_eq!(stdout(&asked), "kept False\n");
        assert!(asked["warnings"].to_string().contains("the server was restarted"), "{asked:#}");
        let asked = second.run(&sandbox, "python", "print(1)");
        assert_eq!(asked["warnings"], json!([]), "it is said once");
        second.call("sandbox_close", json!({"sandbox_id": sandbox}));
    }
}

#[test]
fn what_is_not_used_for_its_time_is_closed_and_what_is_used_is_not() {
    for user in users() {
        let client = Client::new(user);
        let word = marker("expiry");
        // Longer than its time and the pause between two looks.
        let busy = client.open(json!({"ttl_s": 3}));
        let code = "import time\ntime.sleep(9)\nprint('done')";
        let running = client.begin_run(&busy, "python", code, json!({}));
        let idle = client.open(json!({"ttl_s": 3}));
        stdout(&client.run(&idle, "bash", &format!("bash -c 'exec -a {word} sleep 300' > /dev/null 2>&1 &")));
        let folder = state_dir(user).join("sandboxes").join(&idle);
        assert!(folder.is_dir());
        until(Duration::from_secs(20), "it expires", || {
            let list = client.call("sandbox_list", json!({}));
            let is_listed =
                list["sandboxes"].as_array().unwrap().iter().any(|entry| entry["sandbox_id"] == *idle);
            (!is_listed).then_some(())
        });
        assert_eq!(marked(&word), Vec::<String>::new());
        until(SOON, "its files are removed", || (!folder.exists()).then_some(()));
        let asked = client.run(&idle, "python", "1");
        assert_eq!(asked["error"]["code"], "unknown_sandbox", "{asked:#}");
        assert_eq!(stdout(&running.result()), "done\n");
    }
}

#[test]
fn a_sandbox_that_expired_while_no_server_ran_is_removed_by_the_next() {
    for user in users() {
        let mut first = Client::new(user);
        let sandbox = first.open(json!({"ttl_s": 1}));
        first.kill();
        let folder = state_dir(user).join("sandboxes").join(&sandbox);
        assert!(folder.is_dir());
        let second = Client::new(user);
        until(SOON, "it is removed", || (!folder.exists()).then_some(()));
        assert_eq!(second.call("sandbox_list", json!({}))["sandboxes"], json!([]));
    }
}

#[test]
fn another_server_does_not_close_what_this_one_uses() {
    for user in users() {
        let (first, second) = (Client::new(user), Client::new(user));
        let sandbox = first.open(json!({"ttl_s": 4}));
        // The second knows it from now on, as unused since it was opened.
        assert!(second.call("list_files", json!({"sandbox_id": sandbox}))["error"].is_null());
        for number in 0..6 {
            let asked =
                first.run(&sandbox, "python", &format!("import time\ntime.sleep(2)\nprint({number})"));
            assert_eq!(stdout(&asked), format!("{number}\n"));
        }
    }
}
