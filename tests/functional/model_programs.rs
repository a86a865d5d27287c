//! Programs as models send them: without the frame of their language, damaged on their way, or written for another
//! runtime. The result says what to send instead.

use functional::outcome;
use harness::mcp::Client;
use harness::users;
use serde_json::{Value, json};

fn run(client: &Client, language: &str, code: &str) -> Value {
    let first = client.call("run", json!({ "language": language, "code": code }));
    // A compiler on a busy machine may take longer than a call.
    match first["run_id"].as_str().filter(|_| outcome(&first) == "running") {
        Some(id) => client.call("wait", json!({ "run_id": id, "timeout_ms": 120_000 })),
        None => first,
    }
}

fn remedy(result: &Value) -> &str {
    assert!(["failed", "compile_failed"].contains(&outcome(result)), "{result:#}");
    result["error"]["remedy"].as_str().unwrap_or_default()
}

#[test]
fn a_fragment_that_does_not_compile_is_answered_with_a_whole_program() {
    let client = Client::new(users()[0]);
    for (language, code, frame) in [
        ("java", "System.out.println(7);", "public static void main"),
        ("go", "import \"fmt\"\nfunc main() { fmt.Println(7) }", "package main"),
        ("go", "package main\n", "func main()"),
        ("c", "#include <stdio.h>\nprintf(\"7\");", "int main(void)"),
        ("cpp", "#include <iostream>\nstd::cout << 7;", "int main()"),
        ("csharp", "Console.WriteLine(7);", "static void Main()"),
        ("rust", "println!(\"1\");", "fn main()"),
    ] {
        let result = run(&client, language, code);
        if result["error"]["code"] == "language_missing" {
            eprintln!("SKIPPED {language}: {}", result["error"]["message"]);
            continue;
        }
        assert_eq!(outcome(&result), "compile_failed", "{language}: {result:#}");
        assert!(remedy(&result).contains(frame), "{language}: {result:#}");
    }
    // A whole program with another mistake needs no frame.
    for (language, code) in [("c", "int main(void) { return x; }"), ("cpp", "int main() { return x; }")] {
        let result = run(&client, language, code);
        assert_eq!(remedy(&result), "", "{language}: {result:#}");
    }
    assert!(client.end().success());
}

#[test]
fn an_unused_import_of_go_is_reported_before_the_library_is_compiled() {
    let client = Client::new(users()[0]);
    let code = "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() { fmt.Println(1) }\n";
    let result = run(&client, "go", code);
    assert_eq!(outcome(&result), "compile_failed", "{result:#}");
    assert_eq!(result["error"]["message"], "\"os\" imported and not used", "{result:#}");
    assert_eq!((&result["error"]["line"], &result["error"]["column"]), (&json!(5), &json!(2)), "{result:#}");
    assert!(result["usage"]["cpu_ms"].as_f64().unwrap() < 2000.0, "{result:#}");
    assert!(client.end().success());
}

#[test]
fn damaged_code_that_does_not_parse_is_told_how_it_was_damaged() {
    let client = Client::new(users()[0]);
    let sandbox = client.open(json!({}));
    for (language, code, word) in [
        ("python", "Here is the code:\n```python\nprint(1)\n```\nIt prints 1.", "Markdown"),
        ("javascript", "Here is the code:\n```js\nconsole.log(1)\n```", "Markdown"),
        ("python", "if 1 &lt; 2:\n    print(&quot;yes&quot;)", "HTML"),
        ("javascript", "for (let i = 0; i &lt; 2; i++) console.log(i)", "HTML"),
        ("c", "#include &lt;stdio.h&gt;\nint main(void) { puts(&quot;a&quot;); }", "HTML"),
        ("python", r"import os\nprint(os.sep)", r"`\n`"),
        ("python", r#"print(\"hi\")"#, "`\\\"`"),
        ("javascript", r"let a = 1;\nconsole.log(a)", r"`\n`"),
        ("bash", "#!/usr/bin/env python3\nimport os\nprint(os.sep)", "language: \"python\""),
        ("python", "#!/bin/bash\nfor i in 1 2; do echo $i; done", "language: \"bash\""),
    ] {
        for result in [run(&client, language, code), client.run(&sandbox, language, code)] {
            assert!(remedy(&result).contains(word), "{language} {code}: {result:#}");
        }
    }
    // The same characters in a program that has another mistake, or none.
    for (language, code) in [
        ("python", r#"print("a\n""#),
        ("python", "x = '<b>'.replace('<', '&lt;'"),
        ("python", "a = \"\"\"\n```\n\"\"\"\nraise ValueError('unexpected')"),
    ] {
        let result = run(&client, language, code);
        assert_eq!(remedy(&result), "", "{language} {code}: {result:#}");
    }
    assert_eq!(run(&client, "python", "print('&lt;', '\\\\n')")["stdout"], "&lt; \\n\n");
    assert!(client.end().success());
}

#[test]
fn the_value_of_a_return_at_the_top_level_is_not_lost() {
    let client = Client::new(users()[0]);
    for language in ["javascript", "typescript"] {
        let result = run(&client, language, "const a = 3;\nreturn a + 4;");
        assert_eq!(result["value"]["json"], 7, "{language}: {result:#}");
        assert_eq!(outcome(&run(&client, language, "return;")), "completed");
        let result = run(&client, language, "async function main() { return 7 }\nreturn main();");
        assert_eq!(result["value"]["json"], 7, "{language}: {result:#}");
        let thrown = run(&client, language, "return (async () => { throw new Error('late') })();");
        assert_eq!(thrown["error"]["message"], "Error: late", "{language}: {thrown:#}");
    }
    let sandbox = client.open(json!({}));
    for result in [
        client.run(&sandbox, "javascript", "return 7"),
        run(&client, "javascript", "await 1; return 7"),
        run(&client, "python", "return 7"),
    ] {
        assert!(remedy(&result).contains("last expression"), "{result:#}");
    }
    assert!(client.end().success());
}

#[test]
fn an_import_of_another_runtime_is_told_as_one() {
    let client = Client::new(users()[0]);
    for code in ["import x from 'npm:chalk'; console.log(x)", "await import('https://esm.sh/chalk')"] {
        for language in ["javascript", "typescript"] {
            let result = run(&client, language, code);
            assert!(remedy(&result).contains("another runtime"), "{language} {code}: {result:#}");
        }
    }
    assert!(client.end().success());
}

#[test]
fn a_file_is_not_written_to_the_path_of_a_folder_and_a_long_time_is_reported_as_clamped() {
    let client = Client::new(users()[0]);
    let opened = client.call_whole("sandbox_open", json!({ "ttl_s": 86_400_000 }));
    let view = &opened["structuredContent"];
    let clamp = json!([{ "limit": "ttl_s", "asked": 86_400_000.0, "given": 2_592_000.0 }]);
    assert_eq!(view["clamped"], clamp, "{opened:#}");
    let text = opened["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("ttl_s is 2592000, not 86400000 as asked"), "{text}");
    let asked = json!({ "sandbox_id": view["sandbox_id"], "path": "new/", "text": "x" });
    let refused = client.call("write_file", asked);
    assert_eq!(refused["error"]["code"], "bad_path", "{refused:#}");
    assert_eq!(client.call("list_files", json!({ "sandbox_id": view["sandbox_id"] }))["entries"], json!([]));
    assert!(client.end().success());
}
