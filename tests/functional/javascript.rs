//! JavaScript programs just work behind the wall: modules of both kinds, values, errors with their places, limits.

use functional::{completed, outcome, readable_file, run_json, run_plain};
use harness::{Build, Palisade, User, users};
use serde_json::{Value, json};

fn prints(code: &str, expected: &str) {
    for user in users() {
        assert_eq!(completed(user, "javascript", code, &[]), expected, "as {user:?}\n{code}");
    }
}

/// For what does not depend on who starts palisade.
fn one_user() -> User {
    users().pop().unwrap()
}

fn result(code: &str, options: &[&str]) -> Value {
    run_json(one_user(), "javascript", code, options)
}

fn input(name: &str, text: &str) -> String {
    let file = readable_file(&format!("javascript-{name}"), text.as_bytes());
    format!("{}={name}", file.display())
}

#[test]
fn a_program_prints_and_ends() {
    prints("console.log(6*7)", "42\n");
    prints("process.stdout.write('grüße 🐍')", "grüße 🐍");
    prints("", "");
}

/// As Node has it before a stream over the pipe exists: else writing to a full one fails instead of waiting.
#[test]
fn the_descriptors_of_its_streams_wait_for_their_reader() {
    prints(
        "const { readFileSync, writeSync } = require('fs');\n\
         const flags = (fd) => parseInt(/flags:\\s*(\\d+)/.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))[1], 8);\n\
         writeSync(1, String([1, 2].map((fd) => flags(fd) & 0o4000)));",
        "0,0",
    );
}

#[test]
fn what_runs_at_the_end_runs_to_its_end() {
    let ended = result(
        "process.emit('exit', 0);\nsetTimeout(() => console.log('later'), 30);\n\
         process.on('exit', (code) => { console.log('bye', code, 'x'.repeat(50000).length); process.exitCode = 5; });",
        &[],
    );
    assert_eq!((ended["stdout"].as_str().unwrap(), &ended["exit_code"]), ("later\nbye 0 50000\n", &json!(5)));
    let broken = result(
        "process.on('uncaughtException', () => { throw new Error('again'); });\nthrow new Error('once');",
        &[],
    );
    assert!(broken["stderr"].as_str().unwrap().contains("again"), "{broken:#}");
    assert_ne!(broken["exit_code"], json!(0));
}

#[test]
fn import_require_and_await_work_in_one_program() {
    prints(
        "import fs, { readFileSync } from 'fs';\nimport * as path from 'node:path';\nconst os = require('os');\n\
         const { setTimeout: wait } = await import('node:timers/promises');\nawait wait(1);\n\
         console.log(fs.readFileSync === readFileSync, path.sep, typeof os.cpus, __filename, import.meta.url);",
        "true / function /workspace/main.js file:///workspace/main.js\n",
    );
    prints("const p = require('path'); console.log(await Promise.resolve(p.sep))", "/\n");
    prints("for await (const x of [1, 2]) console.log(x)", "1\n2\n");
}

#[test]
fn commonjs_programs_have_what_they_know() {
    prints(
        "module.exports = 5; console.log(require.main === module, __dirname, __filename, this === exports, typeof require.resolve)",
        "true /workspace /workspace/main.js true function\n",
    );
    prints("x = 010; console.log(x); with ({ y: 1 }) console.log(y); return; console.log('never')", "8\n1\n");
    prints("import('node:path').then((path) => console.log(path.default.sep))", "/\n");
    prints("var await = 3; console.log(await)", "3\n");
}

#[test]
fn inputs_can_be_imported_and_required() {
    let options = [
        input("helper.mjs", "export let n = 1; export const inc = () => { n++ }; export default 'd'"),
        input("helper.cjs", "exports.c = 'c'; exports.where = __filename"),
        input("plain.js", "export const fromPlain = import.meta.url"),
        input("data.json", "{\"k\": [1]}"),
    ];
    let options: Vec<&str> = options.iter().flat_map(|input| ["--input", input.as_str()]).collect();
    let code = "import d, { n, inc } from './helper.mjs'; import { c, where } from './helper.cjs';\n\
                import { fromPlain } from './plain.js'; import data from './data.json' with { type: 'json' };\n\
                inc(); const again = await import('./helper.mjs');\n\
                console.log(d, n, again.n, c, where, fromPlain, data.k, require('./data.json').k, require('./helper.cjs').c)";
    for user in users() {
        let expected = "d 2 2 c /workspace/helper.cjs file:///workspace/plain.js [ 1 ] [ 1 ] c\n";
        assert_eq!(completed(user, "javascript", code, &options), expected);
    }
    let code =
        "const data = require('./data.json'); const { c } = require('./helper.cjs'); console.log(data.k, c)";
    assert_eq!(completed(one_user(), "javascript", code, &options), "[ 1 ] c\n");
}

#[test]
fn arguments_and_standard_input_arrive() {
    for user in users() {
        let args = ["run", "javascript", "-c"];
        let code = "console.log(process.argv.slice(1), require('fs').readFileSync(0, 'utf8'))";
        let ended = Palisade::new(Build::Real, user, &args).args(&[code, "a b", "ü"]).stdin(b"in\nput").end();
        assert_eq!(ended.stdout, "[ '/workspace/main.js', 'a b', 'ü' ] in\nput\n");
        let code =
            "let n = 0; process.stdin.on('data', (d) => { n += d.length }).on('end', () => console.log(n))";
        let ended = Palisade::new(Build::Real, user, &args).args(&[code]).stdin(&[b'x'; 300_000]).end();
        assert_eq!(ended.stdout, "300000\n");
    }
}

#[test]
fn the_exit_status_is_the_programs() {
    for (code, status) in [
        ("process.exit(7)", 7),
        ("process.exitCode = 4", 4),
        ("await 0; process.exit(3)", 3),
        ("throw new Error('x')", 1),
        ("Promise.reject(new Error('x'))", 1),
        ("setTimeout(() => { throw 1 }, 1)", 1),
        ("process.on('uncaughtException', () => {}); setTimeout(() => { throw 1 }, 1)", 0),
        ("await new Promise(() => {})", 13),
    ] {
        assert_eq!(run_plain(one_user(), "javascript", code, &[]).status.code(), Some(status), "{code}");
    }
}

#[test]
fn variables_are_native_values() {
    let options = [
        "--var",
        "n=null",
        "--var",
        "t=[true,1.5,{\"k\":\"ü\"}]",
        "--var",
        "big=9223372036854775807",
        "--var",
        "safe=9007199254740991",
        "--var",
        "text=\"12345678901234567890\"",
    ];
    let code = "console.log(n, t, big, safe, text, typeof big); const t2 = t; t = 1; console.log(t)";
    for user in users() {
        let expected = "null [ true, 1.5, { k: 'ü' } ] 9223372036854775807n 9007199254740991 12345678901234567890 bigint\n1\n";
        assert_eq!(completed(user, "javascript", code, &options), expected);
    }
}

#[test]
fn the_last_expression_is_the_value() {
    for (code, repr, as_json) in [
        ("1+1", "2", json!(2)),
        ("const x = { a: [1, 'ü', null] }; x", "{ a: [ 1, 'ü', null ] }", json!({"a": [1, "ü", null]})),
        ("await Promise.resolve('late') // said", "'late'", json!("late")),
        ("import os from 'os'; os.EOL;", "'\\n'", json!("\n")),
        ("new Map([[1, 2]])", "Map(1) { 1 => 2 }", Value::Null),
        ("10n ** 20n", "100000000000000000000n", Value::Null),
        ("(-0)", "-0", Value::Null),
        ("'text'", "'text'", json!("text")),
    ] {
        let result = result(code, &[]);
        assert_eq!((&result["value"]["repr"], &result["value"]["json"]), (&json!(repr), &as_json), "{code}");
    }
    for code in ["let x = 5", "undefined", "console.log(1)", "if (1) 5", ""] {
        assert_eq!(result(code, &[])["value"], Value::Null, "{code}");
    }
}

#[test]
fn errors_name_the_place_in_the_source() {
    for (code, message, line, column) in [
        ("const a = 1;\n  boom(a)", "ReferenceError: boom is not defined", 2, 3),
        ("let a = 1; a.b.c", "TypeError: Cannot read properties of undefined (reading 'c')", 1, 16),
        ("'🐍ü'; null.x", "TypeError: Cannot read properties of null (reading 'x')", 1, 12),
        ("await 0;\nthrow new RangeError('r')", "RangeError: r", 2, 7),
        (
            "import fs from 'fs';\n\nfs.readFileSync('/nope')",
            "Error: ENOENT: no such file or directory, open '/nope'",
            3,
            4,
        ),
        ("let x = 1;\nlet x = 2;", "SyntaxError: Identifier 'x' has already been declared", 2, 5),
        ("let y = (\n", "SyntaxError: Unexpected end of input", 2, 1),
        (
            "import { nope } from 'fs'\nnope()",
            "SyntaxError: The requested module 'fs' does not provide an export named 'nope'",
            1,
            10,
        ),
        (
            "setTimeout(() => {\n  null.x\n}, 1)",
            "TypeError: Cannot read properties of null (reading 'x')",
            2,
            8,
        ),
    ] {
        let result = result(code, &[]);
        assert_eq!(outcome(&result), "failed", "{result:#}");
        let error = &result["error"];
        let found = (&error["message"], &error["line"], &error["column"]);
        assert_eq!(found, (&json!(message), &json!(line), &json!(column)), "{code}");
        let stderr = result["stderr"].as_str().unwrap();
        assert!(!stderr.contains("driver") && !stderr.contains("__palisade"), "{stderr}");
        assert!(stderr.contains("main.js"), "{stderr}");
    }
}

#[test]
fn packages_that_need_threads_processes_and_memory_work() {
    prints(
        "const { Worker } = require('worker_threads');\n\
         new Worker('require(\"worker_threads\").parentPort.postMessage(7)', { eval: true }).on('message', console.log)",
        "7\n",
    );
    prints("console.log(require('child_process').execSync('echo $((1+1))').toString())", "2\n\n");
    prints("require('crypto').pbkdf2('p', 's', 1000, 8, 'sha1', (e, key) => console.log(key.length))", "8\n");
    prints("console.log(new WebAssembly.Memory({ initial: 1 }).buffer.byteLength)", "65536\n");
    prints("console.log(new Intl.NumberFormat('de').format(1234.5), (5).toLocaleString())", "1.234,5 5\n");
}

#[test]
fn the_channel_is_not_inherited() {
    // Descriptors 0 to 2 of a child are sockets by Node's own doing.
    prints(
        "console.log(require('child_process').execSync('ls -l /proc/self/fd | grep -c \" [3-9] -> socket\"; true').toString())",
        "0\n\n",
    );
}

#[test]
fn an_endless_loop_is_stopped() {
    for user in users() {
        let result = run_json(user, "javascript", "console.log('on'); for (;;) {}", &["--timeout", "3s"]);
        assert_eq!((outcome(&result), &result["stdout"]), ("timed_out", &json!("on\n")), "{result:#}");
    }
}

#[test]
fn too_much_memory_is_named() {
    for user in users() {
        let code = "const all = []; for (;;) all.push(new Array(100000).fill(all.length))";
        let result = run_json(user, "javascript", code, &["--memory-mb", "200"]);
        assert_eq!(outcome(&result), "out_of_memory", "as {user:?} {result:#}");
    }
}

#[test]
fn long_and_deep_programs_are_no_problem() {
    let long: String = (0..10_000).map(|number| format!("let v{number} = {number};\n")).collect();
    let file = readable_file("javascript-long.js", format!("{long}console.log(v9999); boom()").as_bytes());
    let args = ["run", "javascript", "--json", file.to_str().unwrap()];
    let ended = Palisade::new(Build::Real, one_user(), &args).end();
    let result: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&result["stdout"], &result["error"]["line"]), (&json!("9999\n"), &json!(10_001)));
    let deep = readable_file("javascript-deep.js", "[".repeat(100_000).as_bytes());
    let args = ["run", "javascript", "--json", deep.to_str().unwrap()];
    let result: Value =
        serde_json::from_str(&Palisade::new(Build::Real, one_user(), &args).end().stdout).unwrap();
    assert_eq!(outcome(&result), "failed", "{result:#}");
}
