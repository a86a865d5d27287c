//! Files of sandboxes that last: what runs make of them, what is hidden, what a full disk does.

use functional::outcome;
use functional::sandbox::{in_a_sandbox, stdout};
use harness::mcp::Client;
use serde_json::json;

fn names(client: &Client, sandbox: &str) -> Vec<String> {
    let all = "import os\nprint(*sorted(os.listdir('/workspace')), sep='\\n', end='')";
    stdout(&client.run(sandbox, "python", all)).lines().map(str::to_owned).collect()
}

#[test]
fn no_file_of_ours_is_left_and_none_of_the_callers_is_overwritten() {
    in_a_sandbox(json!({}), |client, sandbox| {
        let mut own = Vec::new();
        for name in ["main.bash", "main.c", "main.js", "main.py", "main.rb", "main.sh", "main.ts"] {
            let content = format!("caller's {name}");
            client.call("write_file", json!({"sandbox_id": sandbox, "path": name, "text": content}));
            own.push(name);
        }
        let stdin = json!({"stdin": "words"});
        for (language, code) in [
            ("python", "import sys; print(sys.stdin.read())"),
            ("javascript", "console.log(require('fs').readFileSync(0, 'utf8'))"),
            ("typescript", "enum E { A }\nconsole.log('words')"),
            ("bash", "cat; echo"),
            ("ruby", "puts STDIN.read"),
            ("c", "#include <stdio.h>\nint main(void) { char b[9]; puts(fgets(b, 9, stdin)); }"),
        ] {
            let result = client.run_with(sandbox, language, code, stdin.clone());
            if result["error"]["code"] == "language_unavailable" {
                eprintln!("SKIPPED: {language} is not here");
                continue;
            }
            assert_eq!(stdout(&result), "words\n", "{language}");
            assert_eq!(result["artifacts"], json!([]), "{language}");
        }
        for code in ["import time; time.sleep(60)", "raise SystemExit(4)", "import os; os._exit(5)"] {
            client.run_with(sandbox, "python", code, json!({"stdin": "x", "timeout_ms": 300}));
        }
        assert_eq!(names(client, sandbox), own);
        for name in own {
            let found = client.call("read_file", json!({"sandbox_id": sandbox, "path": name}));
            assert_eq!(found["text"], format!("caller's {name}"));
        }
    });
}

#[test]
fn artifacts_are_what_a_run_made_or_changed() {
    in_a_sandbox(json!({}), |client, sandbox| {
        client.call("write_file", json!({"sandbox_id": sandbox, "path": "old.txt", "text": "old"}));
        client.call("write_file", json!({"sandbox_id": sandbox, "path": "same.txt", "text": "same"}));
        let code = "import os\nos.mkdir('d')\nopen('d/new.csv', 'w').write('a,b\\n')\nopen('old.txt', 'a').write('er')\nopen('same.txt').read()";
        let whole =
            client.call_whole("run", json!({"language": "python", "code": code, "sandbox_id": sandbox}));
        let artifacts = whole["structuredContent"]["artifacts"].as_array().unwrap().clone();
        let paths: Vec<_> = artifacts.iter().map(|file| file["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["d/new.csv", "old.txt"], "{whole:#}");
        assert_eq!(artifacts[0]["uri"], format!("palisade://sandboxes/{sandbox}/files/d/new.csv"));
        assert_eq!(
            (&artifacts[0]["mime_type"], &artifacts[0]["size_bytes"]),
            (&json!("text/csv"), &json!(4))
        );
        let digest =
            "import hashlib\nprint(hashlib.sha256(open('d/new.csv', 'rb').read()).hexdigest(), end='')";
        assert_eq!(artifacts[0]["sha256"], stdout(&client.run(sandbox, "python", digest)));
        let links: Vec<_> = whole["content"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|block| block["type"] == "resource_link")
            .collect();
        assert_eq!(links.len(), 2, "{whole:#}");
        let read = client.send("resources/read", json!({"uri": links[0]["uri"]})).answer().unwrap();
        assert_eq!(read["result"]["contents"][0]["text"], "a,b\n", "{read:#}");
        let nothing = client.run(sandbox, "python", "1");
        assert_eq!(nothing["artifacts"], json!([]));
    });
}

#[test]
fn a_full_disk_is_said_and_deleting_repairs_it() {
    in_a_sandbox(json!({"disk_mb": 16}), |client, sandbox| {
        stdout(&client.run(sandbox, "python", "x = 1"));
        let fill = "f = open('big', 'wb')\nwhile True:\n    f.write(bytes(1 << 20)); f.flush()";
        let result = client.run_with(sandbox, "python", fill, json!({"timeout_ms": 20000}));
        assert_eq!(outcome(&result), "disk_full", "{result:#}");
        let refused = client
            .call("write_file", json!({"sandbox_id": sandbox, "path": "more", "text": "a".repeat(1 << 20)}));
        assert!(refused["error"]["code"].is_string(), "{refused:#}");
        let result = client.run(
            sandbox,
            "python",
            "import os\nf.close() if not f.closed else 0\nos.remove('big')\nprint(x)",
        );
        let repaired = if outcome(&result) == "completed" {
            result
        } else {
            // What was in the buffer of the file could not be written when it was closed.
            client.run(sandbox, "python", "os.remove('big') if os.path.exists('big') else 0\nprint(x)")
        };
        assert_eq!(stdout(&repaired), "1\n", "the state is kept");
        let result = client.run(sandbox, "python", "open('small', 'wb').write(bytes(4 << 20))");
        assert_eq!(outcome(&result), "completed", "{result:#}");
        let result =
            client.run_with(sandbox, "bash", "head -c 64M /dev/zero > big", json!({"timeout_ms": 20000}));
        assert_eq!(outcome(&result), "disk_full", "{result:#}");
        stdout(&client.run(sandbox, "bash", "rm big; head -c 4M /dev/zero > second"));
    });
}

#[test]
fn what_programs_do_to_their_folder_does_not_stop_the_next_run() {
    in_a_sandbox(json!({}), |client, sandbox| {
        for hostile in [
            "mkdir .palisade-main.ts .palisade-stdin main.py",
            "rmdir .palisade-main.ts .palisade-stdin main.py; ln -s /etc/passwd .palisade-stdin; ln -s /dev/zero .palisade-main.ts",
            "rm -f .palisade-*; mkfifo .palisade-stdin .palisade-main.ts",
            "rm -f .palisade-*; chmod 0 /workspace",
        ] {
            client.run(sandbox, "bash", hostile);
            let result = client.run_with(
                sandbox,
                "python",
                "import sys; print(sys.stdin.read())",
                json!({"stdin": "words"}),
            );
            assert!(
                outcome(&result) == "completed" && result["stdout"] == "words\n"
                    || result["error"]["code"].is_string(),
                "{hostile}: {result:#}"
            );
            client.run(sandbox, "bash", "chmod 755 /workspace; rm -rf /workspace/.palisade-*");
            let result = client.run_with(
                sandbox,
                "python",
                "import sys; print(sys.stdin.read())",
                json!({"stdin": "words"}),
            );
            assert_eq!(stdout(&result), "words\n", "{hostile}");
            let result = client.run(sandbox, "typescript", "console.log('typed' as string)");
            assert_eq!(stdout(&result), "typed\n", "{hostile}");
        }
    });
}

#[test]
fn an_input_that_has_no_place_is_refused_and_the_state_is_kept() {
    in_a_sandbox(json!({"disk_mb": 16}), |client, sandbox| {
        stdout(&client.run(
            sandbox,
            "python",
            "import os\nx = 7\nos.mkdir('folder')\nopen('file', 'w').close()",
        ));
        for path in ["folder", "file/beneath"] {
            let more = json!({"inputs": [{"path": path, "text": "input"}]});
            let result = client.run_with(sandbox, "python", "x = 8", more);
            assert_eq!(outcome(&result), "refused", "{path}: {result:#}");
        }
        stdout(&client.run(sandbox, "python", "open('large', 'w').write('a' * (8 << 20))"));
        let large = "a".repeat(7 << 20);
        let more = json!({"inputs": [{"path": "a", "text": large}, {"path": "b", "text": large}]});
        let result = client.run_with(sandbox, "python", "x = 8", more);
        assert_eq!(
            (outcome(&result), &result["error"]["code"]),
            ("refused", &json!("disk_full")),
            "{result:#}"
        );
        assert_eq!(stdout(&client.run(sandbox, "python", "print(x)")), "7\n");
    });
}
