//! What people write in notebooks works in Python programs, or says what to do instead.

use functional::outcome;
use harness::mcp::Client;
use harness::{Build, Palisade, run_json, users};
use serde_json::{Value, json};

fn run(client: &Client, code: &str) -> Value {
    client.call("run", json!({ "language": "python", "code": code }))
}

#[test]
fn commands_of_notebooks_run() {
    for user in users() {
        let client = Client::new(user);
        for (code, stdout) in [
            ("%matplotlib inline\nprint(1)", "1\n"),
            ("print('a')\n!echo b\nprint('c')", "a\nb\nc\n"),
            ("name = 'x'\nlines = !echo {name}; echo $name\nprint(lines)", "['x', 'x']\n"),
            ("%%bash\nfor n in 1 2; do echo $n; done", "1\n2\n"),
            ("if True:\n    %cd /tmp", "/tmp\n"),
            ("    x = 1\n    print(x)", "1\n"),
            ("%%writefile a.txt\nabc", "Writing a.txt\n"),
            ("h = display('a', display_id=True)\nh.update('b')\nprint('c')", "c\n'b'\n"),
        ] {
            let result = run(&client, code);
            let seen = (outcome(&result), result["stdout"].as_str().unwrap_or_default());
            assert_eq!(seen, ("completed", stdout), "as {user:?}: {code}: {result:#}");
        }
        assert!(client.end().success());
    }
}

#[test]
fn what_cannot_work_says_what_to_do() {
    for user in users() {
        let client = Client::new(user);
        for code in ["x = 1\n%pip install no-such-package", "x = 1\n!pip install no-such-package"] {
            let result = run(&client, code);
            let (error, remedy) = (&result["error"], result["error"]["remedy"].as_str().unwrap_or_default());
            assert_eq!((outcome(&result), &error["line"]), ("failed", &json!(2)), "{result:#}");
            assert!(remedy.contains("no network") && remedy.contains("get_capabilities"), "{result:#}");
        }
        let result = run(&client, "\n%store x");
        assert!(result["error"]["message"].as_str().unwrap().contains("not available here"), "{result:#}");
        assert_eq!(result["error"]["line"], 2);
        assert!(client.end().success());
    }
}

#[test]
fn tracebacks_have_the_lines_of_the_program_and_no_others() {
    for user in users() {
        let client = Client::new(user);
        let id = client.open(json!({}));
        let code = "%matplotlib inline\ndef f():\n    %cd nowhere\nf()";
        for result in [run(&client, code), client.run(&id, "python", code)] {
            let stderr = result["stderr"].as_str().unwrap();
            assert_eq!(result["error"]["line"], 3, "as {user:?}: {result:#}");
            assert!(
                stderr.contains("    %cd nowhere\n") && stderr.contains("line 4, in <module>"),
                "{stderr}"
            );
            assert!(!stderr.contains("notebook") && !stderr.contains("driver"), "{stderr}");
        }
        assert!(client.end().success());
    }
}

#[test]
fn objects_of_ipython_are_shown_without_it() {
    for user in users() {
        let client = Client::new(user);
        let code = "from IPython.display import display, HTML, Markdown, Latex\nimport IPython\n\
                    display(HTML('<b>x</b>')); IPython.display.display(Markdown('# m'))\nLatex('$x$')";
        let result = run(&client, code);
        let displays = result["displays"].as_array().unwrap();
        let kinds: Vec<&str> = displays.iter().filter_map(|display| display["mime"].as_str()).collect();
        assert_eq!(kinds, ["text/html", "text/markdown", "text/latex"], "as {user:?}: {result:#}");
        assert!(client.end().success());
    }
}

#[test]
fn the_last_value_has_a_name_and_a_semicolon_hides_it() {
    for user in users() {
        let client = Client::new(user);
        let id = client.open(json!({}));
        let values = ["41 + 1", "_", "_ + 1;", "_"]
            .map(|code| client.run(&id, "python", code)["value"]["json"].clone());
        assert_eq!(values, [json!(42), json!(42), Value::Null, json!(42)], "as {user:?}");
        assert!(client.end().success());
    }
}

#[test]
fn the_check_understands_notebooks() {
    for user in users() {
        let client = Client::new(user);
        let check = |code: &str| client.call("validate_code", json!({ "language": "python", "code": code }));
        let found = check("%matplotlib inline\n!ls\nx = !ls\nimport jsno\n%store x");
        assert_eq!((&found["valid"], &found["errors"]), (&json!(true), &json!([])), "{found:#}");
        let missing = &found["missing_imports"][0];
        assert_eq!((&missing["module"], &missing["line"]), (&json!("jsno"), &json!(4)), "{found:#}");
        assert!(missing["remedy"].as_str().unwrap().starts_with("did you mean json?"), "{found:#}");
        assert!(found["notes"][0].as_str().unwrap().starts_with("line 5: %store"), "{found:#}");
        let wrong = check("%matplotlib inline\n!ls\nx = = 1");
        assert_eq!((&wrong["valid"], &wrong["errors"][0]["line"]), (&json!(false), &json!(3)), "{wrong:#}");
        assert!(client.end().success());
    }
}

#[test]
fn a_module_that_is_missing_comes_with_a_remedy() {
    for user in users() {
        for (language, code, words) in [
            ("python", "import jsno", "did you mean `json`? `jsno` is not installed"),
            ("python", "import concurrent.futurse", "did you mean `concurrent.futures`?"),
            ("python", "import nothing_of_that_name", "a sandbox has no network"),
            ("javascript", "require('lodash')", "`lodash` is not installed"),
            ("javascript", "import x from 'lodash'", "`lodash` is not installed"),
            ("javascript", "require('./nothing')", "no such file"),
            ("typescript", "import x from 'lodash'\nconsole.log(x)", "`lodash` is not installed"),
        ] {
            let result = run_json(user, language, code, &[]);
            let remedy = result["error"]["remedy"].as_str().unwrap_or_default();
            assert!(remedy.contains(words), "as {user:?}: {code}: {result:#}");
        }
        // An error of the same words that a program raises itself is no more than that.
        let forged =
            run_json(user, "python", "raise ModuleNotFoundError(\"No module named 'a b\\x1b'\")", &[]);
        assert!(!forged["error"]["remedy"].as_str().unwrap_or_default().contains('\x1b'), "{forged:#}");
        let ended = Palisade::new(Build::Real, user, &["run", "python", "-c", "import jsno"]).end();
        assert_eq!(ended.status.code(), Some(1));
        assert!(!ended.stderr.contains("get_capabilities"), "{}", ended.stderr);
        assert!(ended.stderr.contains("did you mean `json`?"), "{}", ended.stderr);
    }
}
