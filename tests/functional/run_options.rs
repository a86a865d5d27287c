//! `palisade run` as a person uses it: files with helpers, options of the program, messages, a terminal.

use std::fs;
use std::process::{Command, Stdio};

use functional::{own_folder, run_plain};
use harness::{Build, Ended, Palisade, User, users};

/// `palisade run ARGS`.
fn run(user: User, args: &[&str]) -> Ended {
    Palisade::new(Build::Real, user, &["run"]).args(args).end()
}

/// What `palisade run ARGS` shows on a terminal.
fn on_terminal(args: &str) -> String {
    let line = format!("exec {} run {args}", harness::binary(Build::Real).display());
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env_clear();
    command.env("PATH", "/usr/bin:/bin").env("TERM", "xterm").env("SHELL", "/bin/sh").stdin(Stdio::null());
    command.env("PALISADE_STATE_DIR", own_folder(User::Root, "terminal-state")).current_dir("/");
    String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
}

#[test]
fn the_whole_output_of_a_compiler_is_shown() {
    for user in users() {
        let code = "int main(){ return x; }\nint f(){ return y; }\nint g(){ return z; }";
        let ended = run_plain(user, "c", code, &[]);
        for said in ["‘x’ undeclared", "‘y’ undeclared", "‘z’ undeclared", "palisade: compile_failed"]
        {
            assert!(ended.stderr.contains(said), "{said} is missing:\n{}", ended.stderr);
        }
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(1), ""));
        let typescript = run_plain(user, "typescript", "let x: number = ;", &[]);
        assert_eq!(typescript.stderr.matches("main.ts:1:").count(), 1, "shown once: {}", typescript.stderr);
    }
}

#[test]
fn options_behind_the_file_belong_to_the_program() {
    for user in users() {
        let folder = own_folder(user, "options");
        let file = folder.join("show.py");
        fs::write(&file, "import sys; print(sys.argv[1:])").unwrap();
        let file = file.to_str().unwrap();
        let ended = run(user, &["python", file, "--help", "--json", "--timeout", "1ms", "-c", "--", "x"]);
        assert_eq!(
            ended.stdout, "['--help', '--json', '--timeout', '1ms', '-c', '--', 'x']\n",
            "{}",
            ended.stderr
        );
        let ended = run(user, &["python", "-c", "import sys; print(sys.argv[1:])", "a", "--json"]);
        assert_eq!(ended.stdout, "['a', '--json']\n", "{}", ended.stderr);
        let unknown = run(user, &["python", "--jsn", file]);
        assert_eq!(unknown.status.code(), Some(2), "{}", unknown.stderr);
    }
}

#[test]
fn a_script_keeps_its_name_and_finds_its_helpers() {
    for user in users() {
        let folder = own_folder(user, "project");
        fs::create_dir_all(folder.join("lib/deep")).unwrap();
        fs::create_dir(folder.join(".git")).unwrap();
        fs::write(folder.join(".git/config"), "secret").unwrap();
        fs::write(folder.join("lib/deep/tool.py"), "def f(): return 1 / 0").unwrap();
        fs::write(folder.join("helper.py"), "x = 41").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("users")).unwrap();
        let script = "import os, helper\nfrom lib.deep import tool\nprint(helper.x, os.path.exists('.git'), os.path.exists('users'))\ntool.f()";
        fs::write(folder.join("a.py"), script).unwrap();
        let (whole, file) = (format!("{}=.", folder.display()), folder.join("a.py"));
        let ended = run(user, &["python", "--input", &whole, file.to_str().unwrap()]);
        assert_eq!(ended.stdout, "41 False False\n", "{}", ended.stderr);
        assert!(ended.stderr.contains("File \"/workspace/a.py\", line 4"), "{}", ended.stderr);
        assert!(ended.stderr.contains("1 symbolic links or special files were left out"), "{}", ended.stderr);
        let lib = folder.join("lib").to_string_lossy().into_owned();
        let listed = run(user, &["bash", "--input", &lib, "-c", "find . -type f | sort | grep -v main"]);
        assert_eq!(listed.stdout, "./lib/deep/tool.py\n", "{}", listed.stderr);
        for (language, name, code, said) in [
            ("javascript", "j.mjs", "throw new Error('x')", "/workspace/j.mjs:1"),
            ("typescript", "t.ts", "let x: number = 1;\nthrow new Error('x')", "/workspace/t.ts:2"),
            ("bash", "b.sh", "nonsense_command", "/workspace/b.sh: line 1"),
        ] {
            fs::write(folder.join(name), code).unwrap();
            let ended = run(user, &[language, folder.join(name).to_str().unwrap()]);
            assert!(ended.stderr.contains(said), "{language}: {}", ended.stderr);
        }
    }
}

#[test]
fn a_folder_that_is_too_large_is_refused() {
    let folder = own_folder(users()[0], "many");
    for number in 0..65 {
        fs::write(folder.join(number.to_string()), "").unwrap();
    }
    let ended = run(users()[0], &["bash", "--input", folder.to_str().unwrap(), "-c", "echo ran"]);
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(126), ""));
    assert!(ended.stderr.contains("more than 64 files"), "{}", ended.stderr);
}

#[test]
fn files_of_an_earlier_run_are_replaced_only_by_force() {
    for user in users() {
        let folder = own_folder(user, "twice");
        let folder = folder.to_str().unwrap();
        let write = |text: &str, more: &[&str]| {
            let code = format!("echo {text} > made.txt");
            run_plain(user, "bash", &code, &[&["--output-dir", folder], more].concat())
        };
        let content = || fs::read_to_string(format!("{folder}/made.txt")).unwrap();
        assert_eq!(write("one", &[]).status.code(), Some(0));
        let refused = write("two", &[]);
        assert_eq!(refused.status.code(), Some(125));
        assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
        assert_eq!(content(), "one\n");
        assert_eq!(write("three", &["--force"]).status.code(), Some(0));
        assert_eq!(content(), "three\n");
    }
}

#[test]
fn times_are_read_the_same_everywhere() {
    let user = users()[0];
    for time in ["200ms", "0.2", "0.2s"] {
        let ended = run_plain(user, "bash", "sleep 9", &["--timeout", time]);
        assert_eq!(ended.status.code(), Some(124), "{time}: {}", ended.stderr);
        assert!(ended.stderr.contains("200 ms") && ended.stderr.contains("--timeout"), "{}", ended.stderr);
    }
    for time in ["1h", "5", "2m", "9000ms"] {
        assert_eq!(run_plain(user, "bash", "true", &["--timeout", time]).status.code(), Some(0), "{time}");
    }
}

#[test]
fn remedies_and_clamps_name_options() {
    let user = users()[0];
    let ended = run_plain(user, "python", "x = 'a' * 10**9", &["--memory-mb", "64"]);
    assert!(ended.stderr.contains("larger --memory-mb"), "{}", ended.stderr);
    let clamped = run_plain(user, "bash", "true", &["--memory-mb", "999999"]);
    assert!(clamped.stderr.contains("--memory-mb is"), "{}", clamped.stderr);
}

#[test]
fn a_crash_is_told_by_its_signal() {
    for user in users() {
        let ended = run_plain(user, "python", "import os; os.kill(os.getpid(), 11)", &[]);
        assert_eq!(ended.status.code(), Some(128 + 11));
        assert!(ended.stderr.contains("killed by signal 11 (SIGSEGV)"), "{}", ended.stderr);
    }
}

#[test]
fn control_sequences_are_shown_on_a_terminal_and_pass_elsewhere() {
    let program = r#"printf '\033]0;title\007\033[31mred\n' "#;
    let passed = run_plain(users()[0], "bash", program, &[]);
    assert_eq!(passed.stdout, "\u{1b}]0;title\u{7}\u{1b}[31mred\n");
    if users()[0] != User::Root {
        eprintln!("SKIPPED: script(1) is used as root here");
        return;
    }
    let quoted = r#""printf '\\033]0;title\\007\\033[31mred\\n'""#;
    let shown = on_terminal(&format!("bash -c {quoted}"));
    assert!(shown.contains("^[]0;title^G^[[31mred\r\n"), "{shown:?}");
    let raw = on_terminal(&format!("bash --raw -c {quoted}"));
    assert!(raw.contains("\u{1b}]0;title\u{7}\u{1b}[31mred\r\n"), "{raw:?}");
}
