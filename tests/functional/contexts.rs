//! Contexts: several interpreters of one language over the files of one persistent sandbox.

use functional::sandbox::for_each_user;
use functional::{SOON, outcome, serving, until};
use harness::http::Server;
use harness::mcp::Client;
use harness::{Build, Palisade, state_dir, users};
use serde_json::{Value, json};

fn completed(result: &Value) -> &Value {
    assert_eq!(outcome(result), "completed", "{result:#}");
    result
}

fn stdout(result: &Value) -> &str {
    completed(result)["stdout"].as_str().unwrap_or_default()
}

fn code(answer: &Value) -> &str {
    answer["error"]["code"].as_str().unwrap_or("(none)")
}

fn warns(result: &Value, of: &str) -> bool {
    result["warnings"].as_array().into_iter().flatten().any(|warning| warning.as_str().unwrap().contains(of))
}

/// The interpreters of a sandbox: `default python awake`.
fn contexts(client: &Client, sandbox: &str) -> Vec<String> {
    let list = client.call("sandbox_list", json!({}));
    let all = list["sandboxes"].as_array().unwrap();
    let one = all.iter().find(|one| one["sandbox_id"] == *sandbox).unwrap();
    let text = |context: &Value| {
        ["name", "language", "state"].map(|name| context[name].as_str().unwrap().to_owned()).join(" ")
    };
    let mut found: Vec<String> = one["contexts"].as_array().unwrap().iter().map(text).collect();
    found.sort();
    found
}

#[test]
fn contexts_share_the_files_and_nothing_else() {
    for_each_user(json!({}), |client, sandbox, _| {
        let etl = &format!("{sandbox}#etl");
        completed(&client.run(
            sandbox,
            "python",
            "import os, math\nx = 1\nos.mkdir('d'); os.chdir('d'); os.environ['WORD'] = 'first'\nopen('f', 'w').write('shared')",
        ));
        let unknown = client.run(etl, "python", "x");
        assert_eq!((outcome(&unknown), code(&unknown)), ("failed", "failed"), "{unknown:#}");
        assert!(unknown["stderr"].as_str().unwrap().contains("name 'x' is not defined"), "{unknown:#}");
        let own = client.run(
            etl,
            "python",
            "import os\nx = 2\nprint(os.getcwd(), os.environ.get('WORD'), 'math' in globals(), open('d/f').read())",
        );
        assert_eq!(stdout(&own), "/workspace None False shared\n");
        assert_eq!((&own["sandbox_id"], &own["context"]), (&json!(sandbox), &json!("etl")), "{own:#}");
        let first = client.run(sandbox, "python", "print(x, os.getcwd(), os.environ['WORD'], math.pi > 3)");
        assert_eq!(stdout(&first), "1 /workspace/d first True\n");
        assert_eq!(first.get("context"), None, "{first:#}");
        assert_eq!(completed(&client.run(etl, "python", "x"))["value"]["json"], 2);
        let same = client.run(&format!("{sandbox}#default"), "python", "x");
        assert_eq!(completed(&same)["value"]["json"], 1);
        for (language, set, get) in [
            ("bash", "y=1; f() { :; }", "echo \"${y-none} $(type -t f)\""),
            (
                "javascript",
                "var y = 1; globalThis.f = 1",
                "console.log(typeof y === 'undefined' ? 'none' : y, typeof f === 'number' ? 'function' : '')",
            ),
        ] {
            completed(&client.run(sandbox, language, set));
            assert_eq!(stdout(&client.run(etl, language, get)).trim(), "none", "{language}");
            assert_eq!(stdout(&client.run(sandbox, language, get)), "1 function\n", "{language}");
        }
        completed(&client.run(etl, "typescript", "const z: number = 5"));
        assert_eq!(completed(&client.run(etl, "javascript", "z"))["value"]["json"], 5);
    });
}

#[test]
fn contexts_are_made_by_use_listed_restarted_and_removed() {
    for_each_user(json!({}), |client, sandbox, _| {
        let (a, b) = (format!("{sandbox}#a"), format!("{sandbox}#b"));
        assert_eq!(contexts(client, sandbox), Vec::<String>::new());
        for at in [sandbox, &a, &b] {
            completed(&client.run(at, "python", "import os\nx = os.getpid()"));
        }
        completed(&client.run(&a, "bash", "x=1"));
        let all = ["a bash awake", "a python awake", "b python awake", "default python awake"];
        assert_eq!(contexts(client, sandbox), all);
        let list = client.call("sandbox_list", json!({}));
        let awake = list["sandboxes"][0]["interpreters"].clone();
        assert_eq!(awake, json!(["bash#a", "python#a", "python#b", "python"]), "{list:#}");
        let pid = client.run(&a, "python", "x")["value"]["json"].as_u64().unwrap();
        let closed = client.call("sandbox_close", json!({"sandbox_id": a}));
        assert_eq!(closed, json!({"sandbox_id": sandbox, "context": "a", "closed": true}));
        assert_eq!(contexts(client, sandbox), ["b python awake", "default python awake"]);
        let gone = client.run(sandbox, "python", &format!("os.path.exists('/proc/{pid}')"));
        assert_eq!(completed(&gone)["value"]["json"], false, "its processes have ended");
        // A context that is used again is a new one, and nothing is reported as lost.
        let again = client.run(&a, "python", "'x' in globals()");
        assert_eq!((&again["value"]["json"], &again["warnings"]), (&json!(false), &json!([])), "{again:#}");
        // The default context restarts in the same way; the files and other contexts stay.
        completed(&client.run(sandbox, "python", "open('kept', 'w').write('1')"));
        let closed = client.call("sandbox_close", json!({"sandbox_id": format!("{sandbox}#default")}));
        assert_eq!(closed["closed"], true, "{closed:#}");
        let restarted =
            client.run(sandbox, "python", "import os\n['x' in globals(), os.path.exists('kept')]");
        assert_eq!(restarted["value"]["json"], json!([false, true]), "{restarted:#}");
        assert_eq!(restarted["warnings"], json!([]), "{restarted:#}");
        let other = client.run(&b, "python", "x > 0");
        assert_eq!(completed(&other)["value"]["json"], true);
        let unknown = client.call("sandbox_close", json!({"sandbox_id": format!("{sandbox}#never")}));
        assert_eq!((outcome(&unknown), code(&unknown)), ("refused", "unknown_context"), "{unknown:#}");
        let closed = client.call("sandbox_close", json!({"sandbox_id": sandbox}));
        assert_eq!(closed, json!({"sandbox_id": sandbox, "closed": true}));
        for at in [sandbox, &a, &b] {
            assert_eq!(code(&client.run(at, "python", "1")), "unknown_sandbox");
        }
    });
}

#[test]
fn names_are_bounded_and_refused_with_the_rule() {
    for_each_user(json!({}), |client, sandbox, _| {
        let too_long = "a".repeat(65);
        for name in ["", "a b", "a/b", "../a", "a#b", "é", "a\u{0}", "%41", &too_long] {
            let at = format!("{sandbox}#{name}");
            for (tool, given) in [
                ("run", json!({"sandbox_id": at, "language": "python", "code": "1"})),
                ("read_file", json!({"sandbox_id": at, "path": "f"})),
                ("write_file", json!({"sandbox_id": at, "path": "f", "text": ""})),
                ("list_files", json!({"sandbox_id": at})),
                ("sandbox_close", json!({"sandbox_id": at})),
            ] {
                let answer = client.call(tool, given);
                assert_eq!((outcome(&answer), code(&answer)), ("refused", "bad_context"), "{tool} {name:?}");
                assert!(
                    answer["error"]["message"].as_str().unwrap().contains("1 to 64 letters"),
                    "{answer:#}"
                );
            }
        }
        let longest = format!("{sandbox}#{}", "a".repeat(64));
        completed(&client.run(&longest, "python", "1"));
        assert_eq!(contexts(client, sandbox).len(), 1);
    });
}

#[test]
fn a_name_of_a_sandbox_takes_a_context_and_may_contain_the_sign_itself() {
    for user in users() {
        let client = Client::new(user);
        let plain = client.open(json!({"name": "analysis"}));
        let odd = client.open(json!({"name": "issue #7"}));
        completed(&client.run("analysis#etl", "python", "x = 1"));
        assert_eq!(completed(&client.run(&format!("{plain}#etl"), "python", "x"))["value"]["json"], 1);
        assert_eq!(contexts(&client, &plain), ["etl python awake"]);
        completed(&client.run("issue #7", "python", "y = 1"));
        completed(&client.run("issue #7#etl", "python", "y = 2"));
        assert_eq!(contexts(&client, &odd), ["default python awake", "etl python awake"]);
        assert_eq!(code(&client.run("other#etl", "python", "1")), "unknown_sandbox");
        assert_eq!(code(&client.run("analysis#a b", "python", "1")), "bad_context");
        client.call("write_file", json!({"sandbox_id": "analysis#etl", "path": "f", "text": "t"}));
        let read = client.call("read_file", json!({"sandbox_id": format!("{plain}#any"), "path": "f"}));
        assert_eq!(read["text"], "t", "{read:#}");
        assert_eq!(read["uri"], format!("palisade://sandboxes/{plain}/files/f"), "{read:#}");
        client.call("sandbox_close", json!({"sandbox_id": "analysis#etl"}));
        assert_eq!(contexts(&client, &plain), Vec::<String>::new());
        assert!(client.end().success());
    }
}

#[test]
fn an_interpreter_that_dies_takes_only_its_context_with_it() {
    for_each_user(json!({}), |client, sandbox, _| {
        let (a, b) = (format!("{sandbox}#a"), format!("{sandbox}#b"));
        for at in [&a, &b] {
            completed(&client.run(at, "python", "import os, signal\nx = 5"));
        }
        let died = client.run(&a, "python", "os.kill(os.getpid(), signal.SIGKILL)");
        assert_eq!((outcome(&died), &died["signal"]), ("failed", &json!(9)), "{died:#}");
        assert!(warns(&died, "fresh interpreter"), "{died:#}");
        assert_eq!(completed(&client.run(&b, "python", "x"))["value"]["json"], 5);
        assert_eq!(contexts(client, sandbox), ["a python asleep", "b python awake"]);
        let fresh = client.run(&a, "python", "'x' in globals()");
        assert_eq!(completed(&fresh)["value"]["json"], false);
        assert!(warns(&fresh, "it ended with the program"), "{fresh:#}");
        // One that another context kills: the run that did it reports it, and so does the next one there.
        let pid =
            client.run(&a, "python", "import os\nx = 6\nos.getpid()")["value"]["json"].as_u64().unwrap();
        let killed = client.run(
            &b,
            "python",
            &format!(
                "import time\nos.kill({pid}, 9)\nwhile os.path.exists('/proc/{pid}'): time.sleep(0.01)\nx"
            ),
        );
        assert_eq!(completed(&killed)["value"]["json"], 5, "{killed:#}");
        let next = client.run(&a, "python", "'x' in globals()");
        assert_eq!(completed(&next)["value"]["json"], false);
        assert!(warns(&killed, "python#a") || warns(&next, "between two runs"), "{killed:#}\n{next:#}");
        assert!(warns(&next, "fresh"), "{next:#}");
    });
}

#[test]
fn a_run_that_is_stopped_or_times_out_keeps_every_context() {
    for_each_user(json!({}), |client, sandbox, _| {
        let (a, b) = (format!("{sandbox}#a"), format!("{sandbox}#b"));
        for at in [&a, &b] {
            completed(&client.run(at, "python", "import time\nx = 5"));
        }
        let late = client.run_with(&a, "python", "time.sleep(60)", json!({"timeout_ms": 500}));
        assert_eq!(outcome(&late), "timed_out", "{late:#}");
        let running = client.begin_run(&a, "python", "x = 6\nopen('begun', 'w')\ntime.sleep(60)", json!({}));
        until(SOON, "the run begins", || {
            let listed = client.call("list_files", json!({"sandbox_id": sandbox}));
            listed["entries"].to_string().contains("begun").then_some(())
        });
        client.cancel(&running);
        assert_eq!(completed(&client.run(&a, "python", "x"))["value"]["json"], 6);
        assert_eq!(completed(&client.run(&b, "python", "x"))["value"]["json"], 5);
        // One that ignores the interrupt is killed, and only it.
        let stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass";
        let killed = client.run_with(&a, "python", stubborn, json!({"timeout_ms": 2000}));
        assert!(outcome(&killed) == "timed_out" && warns(&killed, "was killed"), "{killed:#}");
        assert_eq!(contexts(client, sandbox), ["a python asleep", "b python awake"]);
        let kept = client.run(&b, "python", "x");
        assert_eq!((&kept["value"]["json"], &kept["warnings"]), (&json!(5), &json!([])), "{kept:#}");
    });
}

#[test]
fn runs_of_contexts_take_turns_and_a_removal_ends_its_own() {
    for_each_user(json!({}), |client, sandbox, _| {
        let (a, b) = (format!("{sandbox}#a"), format!("{sandbox}#b"));
        let busy = "import time\nopen('begun', 'w')\nwhile not __import__('os').path.exists('go'): time.sleep(0.01)\ntime.time()";
        let begun = |client: &Client| {
            until(SOON, "the run begins", || {
                let listed = client.call("list_files", json!({"sandbox_id": sandbox}));
                listed["entries"].to_string().contains("begun").then_some(())
            });
        };
        let first = client.begin_run(&a, "python", busy, json!({}));
        begun(client);
        let second = client.begin_run(&b, "python", "import time\ntime.time()", json!({}));
        client.call("write_file", json!({"sandbox_id": sandbox, "path": "go", "text": ""}));
        let (first, second) = (first.result(), second.result());
        let ended = completed(&first)["value"]["json"].as_f64().unwrap();
        assert!(completed(&second)["value"]["json"].as_f64().unwrap() >= ended, "they take turns");
        completed(&client.run(&b, "python", "import os\nos.remove('go'); os.remove('begun'); x = 5"));
        let endless = client.begin_run(&a, "python", busy, json!({}));
        begun(client);
        let closed = client.call("sandbox_close", json!({"sandbox_id": a}));
        assert_eq!(closed["closed"], true, "{closed:#}");
        assert_eq!(outcome(&endless.result()), "killed");
        assert_eq!(completed(&client.run(&b, "python", "x"))["value"]["json"], 5);
        assert_eq!(contexts(client, sandbox), ["b python awake"]);
    });
}

#[test]
fn contexts_are_bounded_and_removing_one_makes_room() {
    for_each_user(json!({}), |client, sandbox, _| {
        for number in 0..16 {
            completed(&client.run(&format!("{sandbox}#c{number}"), "python", "x = 1"));
        }
        let refused = client.run(&format!("{sandbox}#more"), "python", "1");
        assert_eq!((outcome(&refused), code(&refused)), ("refused", "too_many_contexts"), "{refused:#}");
        assert!(refused["error"]["remedy"].as_str().unwrap().contains("sandbox_close"), "{refused:#}");
        completed(&client.run(sandbox, "python", "1"));
        assert_eq!(completed(&client.run(&format!("{sandbox}#c7"), "python", "x"))["value"]["json"], 1);
        client.call("sandbox_close", json!({"sandbox_id": format!("{sandbox}#c7")}));
        completed(&client.run(&format!("{sandbox}#more"), "python", "1"));
    });
}

#[test]
fn all_contexts_share_the_limits_of_the_sandbox() {
    for user in users() {
        let client = Client::new(user);
        let sandbox = client.open(json!({"limits": {"memory_mb": 256, "processes": 48}}));
        let hold = "held = bytearray(b'x') * (110 << 20)";
        completed(&client.run(&format!("{sandbox}#a"), "python", hold));
        completed(&client.run(&format!("{sandbox}#b"), "python", "x = 5"));
        // An ordinary user's memory is looked at every 10 ms, so the program stays a while.
        let over = "import time\nheld = bytearray(b'x') * (200 << 20)\ntime.sleep(1)";
        let full = client.run(&format!("{sandbox}#b"), "python", over);
        let lost = warns(&full, "python#a") || outcome(&full) == "out_of_memory";
        assert!(lost, "two contexts together are over the limit: {full:#}");
        // With the context its memory is free again.
        let closed = client.call("sandbox_close", json!({"sandbox_id": format!("{sandbox}#a")}));
        assert_eq!(closed["closed"], true, "{closed:#}");
        client.call("sandbox_close", json!({"sandbox_id": format!("{sandbox}#b")}));
        completed(&client.run(&format!("{sandbox}#b"), "python", "held = bytearray(b'x') * (150 << 20)"));
        assert!(client.end().success());
    }
}

#[test]
fn a_server_that_was_killed_leaves_files_and_the_names_of_contexts() {
    for user in users() {
        let mut client = Client::new(user);
        let sandbox = client.open(json!({}));
        let (a, b) = (format!("{sandbox}#a"), format!("{sandbox}#b"));
        completed(&client.run(&a, "python", "x = 5\nopen('f', 'w').write('kept')"));
        completed(&client.run(&b, "python", "x = 6"));
        client.call("sandbox_close", json!({"sandbox_id": b}));
        client.kill();
        let next = Client::new(user);
        assert_eq!(contexts(&next, &sandbox), ["a python asleep"]);
        let told = until(SOON, "the files are free", || {
            let told = next.run(&a, "python", "['x' in globals(), open('f').read()]");
            (outcome(&told) != "unavailable").then_some(told)
        });
        assert_eq!(completed(&told)["value"]["json"], json!([false, "kept"]));
        assert!(warns(&told, "the server was restarted"), "{told:#}");
        let fresh = next.run(&b, "python", "'x' in globals()");
        assert_eq!((&fresh["value"]["json"], &fresh["warnings"]), (&json!(false), &json!([])), "{fresh:#}");
        assert!(next.end().success());
    }
}

#[test]
fn a_context_does_not_get_round_the_owner() {
    for user in users() {
        let serve = |more: &[&str]| {
            Server::start(Palisade::new(Build::Real, user, &["serve", "--listen", "127.0.0.1:0"]).args(more))
        };
        let mut owner = serve(&[]);
        let token = std::fs::read_to_string(state_dir(user).join("token")).unwrap();
        owner.token = Some(token.trim().to_owned());
        let other = serve(&["--no-auth"]);
        let opened = owner.call("sandbox_open", json!({"name": "mine"}));
        let sandbox = opened["sandbox_id"].as_str().unwrap();
        let mine = format!("{sandbox}#etl");
        owner.call("run", json!({"sandbox_id": mine, "language": "python", "code": "x = 5"}));
        for at in [&mine, &format!("{sandbox}#new"), &format!("{sandbox}#default"), "mine#etl"] {
            for (tool, given) in [
                ("run", json!({"sandbox_id": at, "language": "python", "code": "x"})),
                ("read_file", json!({"sandbox_id": at, "path": "f"})),
                ("write_file", json!({"sandbox_id": at, "path": "f", "text": "theirs"})),
                ("list_files", json!({"sandbox_id": at})),
                ("sandbox_close", json!({"sandbox_id": at})),
            ] {
                let answer = other.call(tool, given);
                assert_eq!(code(&answer), "unknown_sandbox", "{tool} {at}: {answer:#}");
            }
        }
        let kept = owner.call("run", json!({"sandbox_id": mine, "language": "python", "code": "x"}));
        assert_eq!(completed(&kept)["value"]["json"], 5);
    }
}

#[test]
fn languages_without_a_live_interpreter_run_in_any_context() {
    for_each_user(json!({}), |client, sandbox, _| {
        let result =
            client.run(&format!("{sandbox}#a"), "perl", "open(F, '>', 'p'); print F 'x'; print 'done'");
        if code(&result) == "language_missing" {
            eprintln!("SKIPPED: perl is not installed");
            return;
        }
        assert_eq!(stdout(&result), "done");
        assert_eq!(contexts(client, sandbox), Vec::<String>::new(), "it keeps nothing");
    });
}

#[test]
fn the_command_line_takes_contexts() {
    for user in users() {
        let server = serving::Server::start(user, "contexts");
        let sandbox = server.said_by(&["sandbox", "open", "--name", "work"]);
        server.said_by(&["sandbox", "exec", "work#a", "python", "-c", "x = 40"]);
        let at = format!("{sandbox}#a");
        assert_eq!(server.said_by(&["sandbox", "exec", &at, "python", "-c", "print(x + 2)"]), "42");
        let other = server.said_by(&["sandbox", "exec", "work", "python", "-c", "print('x' in globals())"]);
        assert_eq!(other, "False");
        let shell = server.palisade(&["shell", &at]).stdin(b"x += 1\nprint(x)\n%files\n").end();
        assert_eq!(shell.stdout, "41\n", "{}", shell.stderr);
        let listed = server.said_by(&["sandbox", "ls"]);
        assert!(listed.contains("python#a,python"), "{listed}");
        let refused = server.end(&["sandbox", "exec", "work#a b", "python", "-c", "1"]);
        assert_eq!(refused.status.code(), Some(126), "{}", refused.stderr);
        assert!(refused.stderr.contains("the name of a context"), "{}", refused.stderr);
        server.said_by(&["sandbox", "rm", "work#a"]);
        assert_eq!(server.end(&["sandbox", "rm", "work#a"]).status.code(), Some(126));
        assert!(!server.said_by(&["sandbox", "ls"]).contains("python#a"));
        assert_eq!(server.sandboxes().len(), 1, "the sandbox is still open");
    }
}
