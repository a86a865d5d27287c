//! Sandboxes that last, over MCP: what an interpreter remembers from run to run, and that nothing else is remembered.

use functional::languages::languages;
use functional::sandbox::for_each_user;
use functional::{Chance, outcome};
use harness::mcp::Client;
use harness::users;
use serde_json::{Value, json};

fn completed(result: &Value) -> &Value {
    assert_eq!(outcome(result), "completed", "{result:#}");
    result
}

fn stdout(result: &Value) -> &str {
    completed(result)["stdout"].as_str().unwrap_or_default()
}

#[test]
fn python_remembers_variables_imports_functions_folder_and_environment() {
    for_each_user(json!({}), |client, sandbox, _| {
        let python = |code: &str| client.run(sandbox, "python", code);
        completed(&python(
            "import math, os\nx = 20\ndef f(n):\n    return n + x\nos.mkdir('d'); os.chdir('d'); os.environ['WORD'] = 'kept'",
        ));
        let result = python("x += 2\nprint(f(20), math.sqrt(4), os.getcwd().rsplit('/', 1)[1])\nf(20)");
        assert_eq!(stdout(&result), "42 2.0 d\n");
        assert_eq!(result["value"]["json"], 42);
        assert_eq!(result["sandbox_id"], *sandbox);
        let result = python(
            "import subprocess\nprint(subprocess.check_output(['sh', '-c', 'echo $WORD; basename $PWD'], text=True))",
        );
        assert_eq!(stdout(&result), "kept\nd\n\n");
    });
}

#[test]
fn errors_of_a_live_shell_have_the_lines_of_the_program() {
    for_each_user(json!({}), |client, sandbox, _| {
        for _ in 0..2 {
            for (code, line) in
                [("true\n\nnosuch", 3), ("f() {\n  nosuch\n}\nf", 2), ("echo\nfi", 2), ("\nexit $((1/0))", 2)]
            {
                let result = client.run(sandbox, "bash", code);
                let stderr = result["stderr"].as_str().unwrap();
                assert!(!stderr.contains("driver"), "{stderr}");
                assert!(stderr.contains(&format!("line {line}: ")), "{code:?}: {stderr}");
            }
            client.run(sandbox, "bash", "exit 3");
        }
    });
}

#[test]
fn javascript_and_typescript_share_one_interpreter() {
    for_each_user(json!({}), |client, sandbox, _| {
        completed(&client.run(
            sandbox,
            "javascript",
            "const a = 1; let b = 2; function f(n) { return n + b }; class C { m() { return 'm' } }",
        ));
        let result =
            client.run(sandbox, "typescript", "enum E { A = 40 }\nb = E.A as number;\nnew C().m() + f(2)");
        assert_eq!(completed(&result)["value"]["json"], "m42");
        let result = client.run(sandbox, "javascript", "console.log(a, b, f(1), E.A)");
        assert_eq!(stdout(&result), "1 40 41 40\n");
        let result = client.run(sandbox, "javascript", "process.env.WORD = 'kept'; process.chdir('/tmp')");
        completed(&result);
        let result = client.run(
            sandbox,
            "typescript",
            "import { cwd } from 'node:process';\nconsole.log(process.env.WORD, cwd())",
        );
        assert_eq!(stdout(&result), "kept /tmp\n");
    });
}

#[test]
fn bash_remembers_variables_functions_folder_environment_and_options() {
    for_each_user(json!({}), |client, sandbox, _| {
        completed(&client.run(
            sandbox,
            "bash",
            "x=1; export WORD=kept; f() { echo f$x; }; mkdir d; cd d; shopt -s nullglob; a=(1 2 3)",
        ));
        let result = client.run(
            sandbox,
            "bash",
            "x=2; f; sh -c 'echo $WORD'; basename $PWD; echo *.none; echo ${#a[@]}",
        );
        assert_eq!(stdout(&result), "f2\nkept\nd\n\n3\n");
    });
}

#[test]
fn top_level_await_works_and_its_results_are_remembered() {
    for_each_user(json!({}), |client, sandbox, _| {
        completed(&client.run(
            sandbox,
            "python",
            "import asyncio\nasync def f(): await asyncio.sleep(0.01); return 7\nx = await f()",
        ));
        let result = client.run(sandbox, "python", "x + await f()");
        assert_eq!(completed(&result)["value"]["json"], 14);
        completed(&client.run(
            sandbox,
            "javascript",
            "const y = await new Promise(done => setTimeout(() => done(7), 10))",
        ));
        let result = client.run(sandbox, "typescript", "const z: number = await Promise.resolve(y + 1)\nz");
        assert_eq!(completed(&result)["value"]["json"], 8);
        assert_eq!(completed(&client.run(sandbox, "javascript", "z + 1"))["value"]["json"], 9);
    });
}

#[test]
fn an_error_keeps_what_came_before_it() {
    for_each_user(json!({}), |client, sandbox, _| {
        for (language, fails, asks) in [
            ("python", "x = 5\nraise ValueError('wrong')", "x"),
            ("python", "x = 5\nimport sys\nsys.exit(3)", "x"),
            ("javascript", "var x = 5\nthrow new Error('wrong')", "x"),
            ("typescript", "var x: number = 5;\nthrow new Error('wrong')", "x"),
        ] {
            let failed = client.run(sandbox, language, fails);
            assert_eq!(outcome(&failed), "failed", "{language}: {failed:#}");
            let asked = client.run(sandbox, language, asks);
            assert_eq!(completed(&asked)["value"]["json"], 5, "{language}: {fails}");
        }
        let failed = client.run(sandbox, "python", "y = 1\n1 / 0");
        assert_eq!((&failed["error"]["line"], &failed["exit_code"]), (&json!(2), &json!(1)), "{failed:#}");
        let failed = client.run(sandbox, "python", "def (");
        assert_eq!(outcome(&failed), "failed", "{failed:#}");
        let failed = client.run(sandbox, "typescript", "let a: number = ;");
        assert_eq!(outcome(&failed), "compile_failed", "{failed:#}");
        let failed = client.run(sandbox, "bash", "x=5; false");
        assert_eq!((outcome(&failed), &failed["exit_code"]), ("failed", &json!(1)), "{failed:#}");
        assert_eq!(stdout(&client.run(sandbox, "bash", "echo $x")), "5\n");
    });
}

#[test]
fn a_bash_that_exits_keeps_the_files_and_says_what_became_of_it() {
    for_each_user(json!({}), |client, sandbox, _| {
        let ended = client.run(sandbox, "bash", "x=5; echo kept > file; exit 3");
        assert_eq!((outcome(&ended), &ended["exit_code"]), ("failed", &json!(3)), "{ended:#}");
        let asked = client.run(sandbox, "bash", "cat file; echo \"[$x]\"");
        let text = stdout(&asked);
        let is_told = asked["warnings"].to_string().contains("fresh") || text == "kept\n[5]\n";
        assert!(text.starts_with("kept\n") && is_told, "{asked:#}");
    });
}

#[test]
fn a_bash_that_a_signal_ends_is_reported_with_that_signal() {
    for_each_user(json!({}), |client, sandbox, _| {
        for (name, number) in [("SEGV", 11), ("TERM", 15), ("USR1", 10), ("KILL", 9)] {
            completed(&client.run(sandbox, "bash", "x=5; echo kept > file"));
            let ended = client.run(sandbox, "bash", &format!("kill -{name} $$; echo no"));
            assert_eq!((outcome(&ended), &ended["signal"]), ("failed", &json!(number)), "{ended:#}");
            assert_eq!(ended["stdout"], "", "{ended:#}");
            let asked = client.run(sandbox, "bash", "cat file; echo \"[$x]\"");
            assert_eq!(stdout(&asked), "kept\n[]\n");
            assert!(asked["warnings"].to_string().contains("it ended with the program"), "{asked:#}");
        }
    });
}

#[test]
fn languages_in_one_sandbox_share_the_files() {
    for_each_user(json!({}), |client, sandbox, user| {
        completed(&client.run(sandbox, "python", "open('shared', 'w').write('from python')"));
        completed(&client.run(sandbox, "bash", "echo -n ', from bash' >> shared"));
        completed(&client.run(
            sandbox,
            "javascript",
            "require('fs').appendFileSync('shared', ', from node')",
        ));
        let programs = [
            ("ruby", "File.open('shared', 'a') { |f| f.write(', from ruby') }"),
            ("perl", "open(F, '>>', 'shared'); print F ', from perl'; close F;"),
            (
                "c",
                "#include <stdio.h>\nint main(void) { FILE *f = fopen(\"shared\", \"a\"); if (!f) return 9; fputs(\", from c\", f); return fclose(f); }",
            ),
        ];
        let mut expected = "from python, from bash, from node".to_owned();
        for (name, code) in programs {
            let language = languages().into_iter().find(|language| language.name == name).unwrap();
            if !language.is_installed(user) {
                eprintln!("SKIPPED: {name} is not installed");
                continue;
            }
            let result = client.run(sandbox, name, code);
            completed(&result);
            let paths: Vec<&str> = result["artifacts"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|file| file["path"].as_str())
                .collect();
            assert_eq!(paths, ["shared"], "{name}: {result:#}");
            expected.push_str(&format!(", from {name}"));
        }
        assert_eq!(stdout(&client.run(sandbox, "python", "print(open('shared').read(), end='')")), expected);
    });
}

#[test]
fn stdin_args_variables_and_inputs_belong_to_one_run() {
    for_each_user(json!({}), |client, sandbox, _| {
        let more = json!({
            "stdin": "line\n", "args": ["a b", "ü"], "variables": {"n": null, "d": {"k": [1, 2.5]}},
            "inputs": [{"path": "in/put.txt", "text": "input"}],
        });
        let code = "import sys\nprint(sys.stdin.read(), sys.argv[1:], n, d, open('in/put.txt').read())";
        let result = client.run_with(sandbox, "python", code, more.clone());
        assert_eq!(stdout(&result), "line\n ['a b', 'ü'] None {'k': [1, 2.5]} input\n");
        let result =
            client.run(sandbox, "python", "import sys\nprint(repr(sys.stdin.read()), sys.argv[1:], d['k'])");
        assert_eq!(stdout(&result), "'' [] [1, 2.5]\n");
        let code = "cat; echo \"$1|$2|${d}|$(cat in/put.txt)\"";
        let result = client.run_with(sandbox, "bash", code, more.clone());
        assert_eq!(stdout(&result), "line\na b|ü|{\"k\":[1,2.5]}|input\n");
        assert_eq!(stdout(&client.run(sandbox, "bash", "cat; echo \"[$#]\"")), "[0]\n");
        let code = "console.log(require('fs').readFileSync(0, 'utf8'), process.argv.slice(2), n, d.k[1])";
        let result = client.run_with(sandbox, "javascript", code, more);
        assert_eq!(stdout(&result), "line\n [ 'a b', 'ü' ] null 2.5\n");
        let result = client.run(
            sandbox,
            "javascript",
            "console.log(require('fs').readFileSync(0, 'utf8').length, process.argv.length)",
        );
        assert_eq!(stdout(&result), "0 2\n");
    });
}

#[test]
fn what_threads_write_between_runs_belongs_to_the_run_that_is_open() {
    for_each_user(json!({}), |client, sandbox, _| {
        let code = "import threading, time\nstop = threading.Event()\ndef tick():\n    while not stop.wait(0.05): print('tick', flush=True)\n\
                    t = threading.Thread(target=tick, daemon=True); t.start(); print('started')";
        assert!(stdout(&client.run(sandbox, "python", code)).starts_with("started\n"));
        let result = client.run(sandbox, "python", "time.sleep(1.5)\nstop.set(); t.join(); print('stopped')");
        assert!(stdout(&result).contains("tick\n") && stdout(&result).ends_with("stopped\n"), "{result:#}");
        assert_eq!(stdout(&client.run(sandbox, "python", "print('quiet')")), "quiet\n");
    });
}

#[test]
fn a_program_leaves_the_driver_as_it_was_whatever_it_does_to_its_own_names() {
    for_each_user(json!({}), |client, sandbox, _| {
        completed(&client.run(
            sandbox,
            "python",
            "import sys\nprint = None\nsys.stdout = open('/dev/null', 'w')\ndel sys.modules['sys']",
        ));
        let result = client.run(sandbox, "python", "import os; os.write(1, b'alive'); 6 * 7");
        assert_eq!(stdout(&result), "alive");
        assert_eq!(result["value"]["json"], 42);
        completed(&client.run(sandbox, "bash", "printf() { :; }; read() { :; }; set -u; IFS=x; exec 7>&1"));
        assert_eq!(stdout(&client.run(sandbox, "bash", "echo alive")), "alive\n");
        completed(&client.run(
            sandbox,
            "javascript",
            "globalThis.JSON = null; require('fs').readFileSync = null; process.stdout.write = () => {}",
        ));
        let result = client.run(sandbox, "javascript", "require('fs').writeSync(1, 'alive'); 6 * 7");
        assert_eq!(stdout(&result), "alive");
    });
}

#[test]
fn a_list_shows_ones_own_sandboxes_until_they_are_closed() {
    for_each_user(json!({}), |client, sandbox, _| {
        let other = client.open(json!({"name": "second", "ttl_s": 600, "limits": {"memory_mb": 200}}));
        completed(&client.run(&other, "python", "1"));
        let list = client.call("sandbox_list", json!({}));
        let list = list["sandboxes"].as_array().unwrap();
        let found = list.iter().find(|entry| entry["sandbox_id"] == *other).unwrap();
        assert_eq!(
            (&found["name"], &found["runs"], &found["limits"]["memory_mb"]),
            (&json!("second"), &json!(1), &json!(200))
        );
        assert_eq!(found["interpreters"], json!(["python"]), "{found:#}");
        assert!(
            list.iter().any(|entry| entry["sandbox_id"] == *sandbox && entry["interpreters"] == json!([]))
        );
        assert_eq!(client.call("sandbox_close", json!({"sandbox_id": other}))["closed"], true);
        let list = client.call("sandbox_list", json!({}));
        assert!(list["sandboxes"].as_array().unwrap().iter().all(|entry| entry["sandbox_id"] != *other));
        for (tool, given) in [
            ("sandbox_close", json!({"sandbox_id": other})),
            ("run", json!({"sandbox_id": other, "language": "python", "code": "1"})),
            ("list_files", json!({"sandbox_id": other, "path": "."})),
        ] {
            let answer = client.call(tool, given);
            assert_eq!(answer["error"]["code"], "unknown_sandbox", "{tool}: {answer:#}");
        }
    });
}

#[test]
fn many_open_sandboxes_are_not_mixed_up() {
    const SANDBOXES: usize = 20;
    const RUNS: usize = 100;
    for user in users() {
        let client = Client::new(user);
        let ids: Vec<String> =
            (0..SANDBOXES).map(|_| client.open(json!({"limits": {"memory_mb": 128}}))).collect();
        for (number, id) in ids.iter().enumerate() {
            completed(&client.run(
                id,
                "python",
                &format!("secret = {number}\nopen('secret', 'w').write(str(secret))"),
            ));
        }
        let mut chance = Chance::new(20);
        for _ in 0..RUNS / 4 {
            // Four at a time, perhaps two of them in one sandbox.
            let chosen: Vec<usize> = (0..4).map(|_| chance.below(SANDBOXES)).collect();
            let code = "print(secret, open('secret').read())";
            let asked: Vec<_> = chosen
                .iter()
                .map(|number| client.begin_run(&ids[*number], "python", code, json!({})))
                .collect();
            for (number, run) in chosen.iter().zip(asked) {
                assert_eq!(stdout(&run.result()), format!("{number} {number}\n"));
            }
        }
        assert!(client.end().success());
    }
}

#[test]
fn the_peak_of_processes_is_that_of_the_run_and_not_of_an_earlier_one() {
    let threads = |count: usize| {
        format!(
            "import threading, time\nall = [threading.Thread(target=time.sleep, args=(0.3,)) for _ in range({count})]\n\
             for one in all: one.start()\nfor one in all: one.join()"
        )
    };
    for_each_user(json!({}), |client, sandbox, _| {
        let peak = |code: &str| {
            let result = client.run(sandbox, "python", code);
            assert_eq!(outcome(&result), "completed", "{result:#}");
            result["usage"]["processes_peak"].as_u64().unwrap()
        };
        let many = peak(&threads(24));
        assert!(many >= 25, "{many} of a run with 25 threads");
        let few = peak("print(1)");
        assert!((1..12).contains(&few), "{few} of a run with one thread after one with 25");
        let some = peak(&threads(8));
        assert!((9..20).contains(&some), "{some} of a run with 9 threads");
        let more = peak(&threads(30));
        assert!(more >= 31, "{more} of a run with 31 threads");
    });
}
