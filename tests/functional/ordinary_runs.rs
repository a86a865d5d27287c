//! What goes into a run and comes out of it: values, error positions, standard input, arguments, variables, files.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use functional::{completed, files_beneath, outcome, own_folder, readable_file, run_json, run_plain};
use harness::{Build, Palisade, users};
use serde_json::json;

#[test]
fn the_value_of_the_last_expression_comes_back() {
    for user in users() {
        let cases = [
            ("6 * 7", "42", json!(42)),
            ("x = [1, 'zwei', None]\nx", "[1, 'zwei', None]", json!([1, "zwei", null])),
            ("{'a': True, 'ü': 1.5}", "{'a': True, 'ü': 1.5}", json!({"a": true, "ü": 1.5})),
        ];
        for (code, repr, value) in cases {
            let result = run_json(user, "python", code, &[]);
            assert_eq!(result["value"]["repr"], repr, "{result:#}");
            assert_eq!(result["value"]["json"], value, "{result:#}");
            assert_eq!(result["stdout"], "", "a value is not printed");
        }
        for code in ["x = 1", "None", "print(1)", "def f(): pass", ""] {
            let result = run_json(user, "python", code, &[]);
            assert_eq!(outcome(&result), "completed");
            assert!(result.get("value").is_none(), "{code}: {result:#}");
        }
        let result = run_json(user, "python", "object()", &[]);
        assert!(result["value"]["repr"].as_str().unwrap().starts_with("<object"));
        assert!(result["value"].get("json").is_none());
    }
}

#[test]
fn a_huge_value_does_not_break_the_result() {
    for user in users() {
        let result = run_json(user, "python", "'x' * (8 << 20)", &[]);
        assert_eq!(outcome(&result), "completed", "{:.300}", result.to_string());
        let result =
            run_json(user, "python", "class A:\n    def __repr__(self): raise ValueError('no')\nA()", &[]);
        assert!(matches!(outcome(&result), "completed" | "failed"), "{result:#}");
    }
}

#[test]
fn a_syntax_error_has_its_position() {
    for user in users() {
        let result = run_json(user, "python", "x = 1\ny = (2 +\nz = = 3\n", &[]);
        assert_eq!((outcome(&result), &result["exit_code"]), ("failed", &1.into()), "{result:#}");
        assert!(result["error"]["message"].as_str().unwrap().contains("SyntaxError"), "{result:#}");
        assert!(matches!(result["error"]["line"].as_u64(), Some(2 | 3)), "{result:#}");
        assert!(result["error"]["column"].as_u64().is_some_and(|column| column >= 1), "{result:#}");
        assert!(result["stderr"].as_str().unwrap().contains("SyntaxError"));
        assert!(
            !result["stderr"].as_str().unwrap().contains("driver.py"),
            "our own frames are not shown: {result:#}"
        );
    }
}

#[test]
fn an_error_has_line_and_column_of_the_source() {
    for user in users() {
        let result = run_json(user, "python", "a = 1\nb = a + 'x'\n", &[]);
        assert_eq!(
            (&result["error"]["line"], &result["error"]["column"]),
            (&2.into(), &5.into()),
            "{result:#}"
        );
        assert!(!result["stderr"].as_str().unwrap().contains("/palisade/"), "{result:#}");
        let result = run_json(user, "bash", "echo a\nset -e\nfalse\necho b", &[]);
        assert_eq!((outcome(&result), &result["stdout"]), ("failed", &"a\n".into()), "{result:#}");
    }
}

#[test]
fn standard_input_is_a_stream() {
    for user in users() {
        let cat = "import sys\nfor line in sys.stdin:\n    print('got', line.strip(), flush=True)";
        let mut command = Palisade::new(Build::Real, user, &["run", "python", "-c", cat]).into_command();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        for word in ["eins", "zwei", "drei"] {
            // Each answer must come before the next line is sent.
            writeln!(to, "{word}").unwrap();
            let mut line = String::new();
            from.read_line(&mut line).unwrap();
            assert_eq!(line, format!("got {word}\n"));
        }
        drop(to);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn much_standard_input_passes_whole() {
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    for user in users() {
        let code = "import sys, hashlib; d = sys.stdin.buffer.read(); print(len(d), int.from_bytes(d[-4:], 'little'), sum(d))";
        let ended = Palisade::new(Build::Real, user, &["run", "python", "-c", code]).stdin(&bytes).end();
        let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(ended.stdout, format!("12000000 2999999 {sum}\n"), "{}", ended.stderr);
        // A program that does not read it is not held up by it.
        let ended = Palisade::new(Build::Real, user, &["run", "bash", "-c", "exec <&-; echo done"])
            .stdin(&bytes)
            .end();
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "done\n"));
    }
}

#[test]
fn a_program_from_standard_input_has_none_itself() {
    for user in users() {
        let ended = Palisade::new(Build::Real, user, &["run", "python", "-"])
            .stdin(b"import sys; print(repr(sys.stdin.read()))")
            .end();
        assert_eq!(ended.stdout, "''\n", "{}", ended.stderr);
    }
}

#[test]
fn arguments_arrive_as_they_are() {
    let odd = ["", "a b", "grüße 🎈", "$HOME `id` \"q\" 'q'", "*", "\n", "--json", "-c"];
    for user in users() {
        let shown: String = odd.iter().map(|argument| format!("<{argument}>\n")).collect();
        let codes = [
            ("python", "import sys\nfor a in sys.argv[1:]: print(f'<{a}>')"),
            ("bash", "printf '<%s>\\n' \"$@\""),
        ];
        for (language, code) in codes {
            let ended =
                Palisade::new(Build::Real, user, &["run", language, "-c", code, "--"]).args(&odd).end();
            assert_eq!(ended.stdout, shown, "{language}: {}", ended.stderr);
            let file = readable_file("arguments", code.as_bytes());
            let ended = Palisade::new(
                Build::Real,
                user,
                &["run", language, file.to_str().unwrap(), "a", "--json", "-x"],
            )
            .end();
            assert_eq!(ended.stdout, "<a>\n<--json>\n<-x>\n", "{language}: {}", ended.stderr);
        }
    }
}

/// Everything behind the file belongs to the program, also `--`. With `-c`, `--` ends Palisade's own options.
#[test]
fn options_behind_the_file_or_two_dashes_belong_to_the_program() {
    let code = "printf '<%s>' \"$@\"";
    let file = readable_file("options.sh", code.as_bytes());
    let file = file.to_str().unwrap();
    for user in users() {
        for option in ["--json", "--verbose", "--timeout=1s", "--help", "-c"] {
            let ended = Palisade::new(Build::Real, user, &["run", "bash", file, option]).end();
            assert_eq!(ended.stdout, format!("<{option}>"), "{}", ended.stderr);
            let ended = Palisade::new(Build::Real, user, &["run", "bash", "-c", code, "--", option]).end();
            assert_eq!(ended.stdout, format!("<{option}>"), "{}", ended.stderr);
        }
        let ended = Palisade::new(Build::Real, user, &["run", "bash", file, "--", "-x"]).end();
        assert_eq!(ended.stdout, "<--><-x>", "{}", ended.stderr);
        let ended = Palisade::new(Build::Real, user, &["run", "bash", "--json", file]).end();
        assert!(ended.stdout.starts_with('{'), "{}", ended.stdout);
    }
}

#[test]
fn variables_of_every_kind_are_native_values() {
    let variables = [
        "none=null",
        "yes=true",
        "no=false",
        "int=42",
        "neg=-7",
        "float=1.5",
        "text=\"a'b\\\"c\\\\ \\n ü 🎈 \\u0000\"",
        "list=[1,[2,[3]],{}]",
        "map={\"k\":{\"ü\":[null]},\"\":0}",
        "big=9007199254740993",
        "long=18446744073709551615",
    ];
    let options: Vec<&str> = variables.iter().flat_map(|variable| ["--var", variable]).collect();
    let code = "assert none is None and yes is True and no is False and int == 42 and neg == -7 and float == 1.5\n\
                assert text == 'a\\'b\"c\\\\ \\n ü 🎈 \\0', repr(text)\nassert list == [1, [2, [3]], {}] and map == {'k': {'ü': [None]}, '': 0}\n\
                assert big == 9007199254740993 and long == 2 ** 64 - 1\nprint('ok')";
    for user in users() {
        assert_eq!(completed(user, "python", code, &options), "ok\n");
    }
}

#[test]
fn integers_of_any_size_stay_exact() {
    for user in users() {
        let digits = "123456789012345678901234567890123456789";
        let (variable, negative) = (format!("n={digits}"), format!("m=[-{digits}]"));
        let out = completed(
            user,
            "python",
            "print(n, m[0], type(n).__name__)",
            &["--var", &variable, "--var", &negative],
        );
        assert_eq!(out, format!("{digits} -{digits} int\n"));
        assert_eq!(completed(user, "bash", "echo $n", &["--var", &variable]), format!("{digits}\n"));
        let result = run_json(user, "python", digits, &[]);
        assert_eq!(result["value"]["repr"], digits);
    }
}

#[test]
fn a_variable_never_becomes_code() {
    let hostile = json!("'; import os; os._exit(9) #\"\"\" $(exit 9) `exit 9`").to_string();
    let variable = format!("x={hostile}");
    for user in users() {
        assert!(completed(user, "python", "print(x)", &["--var", &variable]).contains("os._exit(9)"));
        assert!(completed(user, "bash", "printf '%s' \"$x\"", &["--var", &variable]).contains("$(exit 9)"));
    }
}

#[test]
fn inputs_are_in_the_workspace_and_results_come_out() {
    let input = readable_file("data.csv", "a,b\n1,ü\n".as_bytes());
    let (plain, renamed) = (input.display().to_string(), format!("{}=deep/er/name.csv", input.display()));
    for user in users() {
        let folder = own_folder(user, "out");
        let out = folder.join("new/results");
        let code = "import os\nassert open('data.csv').read() == open('deep/er/name.csv').read() == 'a,b\\n1,ü\\n'\n\
                    os.makedirs('sub/ü'); open('sub/ü/größe.txt', 'w').write('made'); open('empty', 'w').close()\n\
                    open('data.csv', 'a').write('2,x\\n'); open('/tmp/not-wanted', 'w').write('x'); os.symlink('/etc/passwd', 'link')\n\
                    open('.hidden', 'w').write('h'); open('big.bin', 'wb').write(bytes(range(256)) * 4096)";
        let options = ["--input", &plain, "--input", &renamed, "--output-dir", out.to_str().unwrap()];
        let ended = run_plain(user, "python", code, &options);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        let found: Vec<String> = files_beneath(&out)
            .into_iter()
            .filter(|path| out.join(path).is_file())
            .map(|path| path.display().to_string())
            .collect();
        assert_eq!(found, [".hidden", "big.bin", "data.csv", "empty", "sub/ü/größe.txt"]);
        assert_eq!(fs::read_to_string(out.join("data.csv")).unwrap(), "a,b\n1,ü\n2,x\n");
        assert_eq!(fs::read(out.join("big.bin")).unwrap().len(), 1 << 20);
    }
}

#[test]
fn a_large_input_arrives_whole() {
    let content: Vec<u8> = (0..1_000_000_u32).map(|number| u8::try_from(number % 251).unwrap()).collect();
    let input = readable_file("large.bin", &content);
    let sum: u64 = content.iter().map(|byte| u64::from(*byte)).sum();
    for user in users() {
        let code = "d = open('large.bin', 'rb').read(); print(len(d), sum(d))";
        assert_eq!(
            completed(user, "python", code, &["--input", input.to_str().unwrap()]),
            format!("1000000 {sum}\n")
        );
    }
}

#[test]
fn files_of_a_program_that_failed_come_out_too() {
    for user in users() {
        let folder = own_folder(user, "failed");
        let ended = run_plain(
            user,
            "bash",
            "echo log > log.txt; exit 3",
            &["--output-dir", folder.to_str().unwrap()],
        );
        assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
        assert_eq!(fs::read_to_string(folder.join("log.txt")).unwrap(), "log\n");
    }
}

/// A link in the output folder must not lead what a program made, not even an empty folder, somewhere else.
#[test]
fn saved_files_do_not_follow_links_out_of_the_folder() {
    for user in users() {
        let (folder, elsewhere) = (own_folder(user, "links"), own_folder(user, "elsewhere"));
        std::os::unix::fs::symlink(&elsewhere, folder.join("link")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("target"), folder.join("file")).unwrap();
        for code in ["mkdir -p link/sub; echo x > link/sub/f", "echo x > file"] {
            run_plain(user, "bash", code, &["--output-dir", folder.to_str().unwrap()]);
            assert!(files_beneath(&elsewhere).is_empty(), "{code}: {:?}", files_beneath(&elsewhere));
        }
    }
}

/// A file is saved whole or not at all, and what was left out is told.
#[test]
fn a_file_too_large_to_come_out_is_told_and_not_cut() {
    for user in users() {
        let folder = own_folder(user, "large");
        let code = "head -c 80M /dev/zero > big; echo small > small";
        let ended = run_plain(user, "bash", code, &["--output-dir", folder.to_str().unwrap()]);
        assert_eq!(fs::read_to_string(folder.join("small")).unwrap(), "small\n");
        let saved = fs::metadata(folder.join("big")).map(|found| found.len()).ok();
        let told = ended.stderr.contains("big") || ended.status.code() == Some(125);
        assert!(
            saved == Some(80 << 20) || (saved.is_none() && told),
            "saved {saved:?} of 80 MB, told: {told}"
        );
    }
}

#[test]
fn more_files_than_come_out_are_told() {
    for user in users() {
        let folder = own_folder(user, "many");
        let code = "for i in $(seq 5000); do : > f$i; done";
        let ended = run_plain(user, "bash", code, &["--output-dir", folder.to_str().unwrap()]);
        let saved = files_beneath(&folder).len();
        let told = ended.stderr.contains("palisade:");
        assert!(saved == 5000 || told, "{saved} of 5000 saved, nothing said: {:?}", ended.stderr);
    }
}

/// The program itself is a file of the workspace: an input of that name would be lost without a word.
#[test]
fn an_input_named_like_the_program_is_refused_or_kept() {
    let input = readable_file("other.txt", b"mine");
    for user in users() {
        let option = format!("{}=main.py", input.display());
        let ended = run_plain(user, "python", "print(open('main.py').read())", &["--input", &option]);
        assert!(
            ended.status.code() == Some(126) || ended.stdout == "mine\n",
            "{:?} {}",
            ended.status,
            ended.stdout
        );
    }
}

#[test]
fn standard_input_without_end_holds_nothing_up() {
    for user in users() {
        let code = "head -c 3; echo done";
        let mut command = Palisade::new(Build::Real, user, &["run", "bash", "-c", code]).into_command();
        let endless = fs::File::open("/dev/zero").unwrap();
        assert_eq!(command.stdin(endless).output().unwrap().stdout, b"\0\0\0done\n");
        // Open and silent: the end of the program is the end.
        let mut command =
            Palisade::new(Build::Real, user, &["run", "bash", "-c", "echo done"]).into_command();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let silent = child.stdin.take();
        assert_eq!(child.wait_with_output().unwrap().stdout, b"done\n");
        drop(silent);
    }
}
