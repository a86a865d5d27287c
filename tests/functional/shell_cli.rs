//! `palisade shell` against a real `palisade serve`, from a pipe and on a terminal.

use std::os::unix::fs::PermissionsExt;

use functional::serving::{Server, Terminal};
use functional::{SOON, until};
use harness::users;

#[test]
fn a_shell_runs_programs_from_a_pipe_without_prompts() {
    for user in users() {
        let server = Server::start(user, "piped");
        let session = "x = 20\n\ndef f(a):\n    return a * 2\n\nf(x) + 2\nopen('made.txt', 'w').write('abc')\n\
                       %files\n%lang bash\ncat <<END\n(\n\nEND\n%lang python\n1 / 0\nprint('on')\nexit(3)\n";
        let ended = server.palisade(&["shell"]).stdin(session.as_bytes()).end();
        let lines: Vec<&str> = ended.stdout.lines().map(str::trim).collect();
        assert_eq!(lines, ["42", "3", "3  made.txt", "(", "", "on"], "{}", ended.stderr);
        assert!(
            ended.stderr.contains("ZeroDivisionError") && !ended.stderr.contains("python>"),
            "{}",
            ended.stderr
        );
        assert_eq!(ended.status.code(), Some(3), "that of the last program");
        assert_eq!(server.sandboxes().len(), 0, "what the shell opened it closed");
    }
}

#[test]
fn a_program_in_a_shell_reads_the_lines_given_for_it() {
    let server = Server::start(users()[0], "shell-stdin");
    let session = "%stdin one two\n%stdin three\nprint(input(), '+', input())\n\
                   try:\n  input()\nexcept EOFError:\n  print('empty')\n\n";
    let ended = server.palisade(&["shell"]).stdin(session.as_bytes()).end();
    assert_eq!(ended.stdout, "one two + three\nempty\n", "{}", ended.stderr);
}

#[test]
fn a_shell_in_an_open_sandbox_or_with_keep_leaves_it_open() {
    let server = Server::start(users()[0], "keep");
    let kept = server.palisade(&["shell", "--keep", "--language", "bash"]).stdin(b"x=hello").end();
    assert_eq!(kept.status.code(), Some(0), "{}", kept.stderr);
    let id = server.sandboxes()[0]["sandbox_id"].as_str().unwrap().to_owned();
    assert!(kept.stderr.contains(&id), "{}", kept.stderr);
    let again = server.palisade(&["shell", &id]).stdin(b"%lang bash\necho $x\n%quit\necho unheard\n").end();
    assert_eq!(again.stdout, "hello\n", "{}", again.stderr);
    assert_eq!(server.sandboxes().len(), 1);
}

#[test]
fn on_a_terminal_ctrl_c_ends_a_program_or_forgets_lines_and_keeps_the_state() {
    let server = Server::start(users()[0], "terminal");
    let mut terminal = Terminal::start(&server, "shell");
    terminal.prompts(1);
    terminal.press("x = 41\n");
    terminal.prompts(2);
    terminal.press("import time; print('be' + 'gun', flush=True); time.sleep(600)\n");
    terminal.screen.wait_for("begun");
    terminal.press("\u{3}");
    terminal.prompts(3);
    terminal.press("def f(:\n");
    terminal.screen.wait_for("... ");
    terminal.press("\u{3}");
    terminal.prompts(4);
    terminal.press("x + 1\n");
    terminal.screen.wait_for("\n42\r");
    terminal.prompts(5);
    terminal.press("\u{4}");
    assert_eq!(terminal.status(), Some(0), "{}", terminal.screen.text());
    assert_eq!(server.sandboxes().len(), 0);
}

const LEFT: &str = "\u{1b}[D";
const UP: &str = "\u{1b}[A";

#[test]
fn on_a_terminal_with_a_cursor_lines_are_edited_completed_and_recalled() {
    let server = Server::start(users()[0], "editor");
    let mut terminal = Terminal::start_on("xterm", &server, "shell");
    terminal.prompt_behind("here");
    terminal.press(&format!("print('ac'){LEFT}{LEFT}{LEFT}b\r"));
    terminal.prompt_behind("\nabc\r");
    terminal.press(&format!("{UP}{LEFT}*2\r"));
    terminal.prompt_behind("\nabcabc\r");
    terminal.press("%la\t ba\t\r");
    terminal.screen.wait_for("bash> ");
    terminal.press("echo $((40 + 3))\r");
    terminal.prompt_behind("\n43\r");
    terminal.press("%lang python\r");
    terminal.prompt_behind("%lang python");
    terminal.press("def f():\r\treturn 41\r\rf() + 1\rprint('pa' + 'rt', end='')\r");
    terminal.prompt_behind("\npart\r\n");
    assert!(terminal.screen.text().contains("\n42\r"), "{}", terminal.screen.text());
    terminal.press("\u{4}");
    assert_eq!(terminal.status(), Some(0), "{}", terminal.screen.text());
    assert_eq!(server.sandboxes().len(), 0);

    let history = server.state_dir.join("shell_history");
    assert_eq!(std::fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);
    let mut later = Terminal::start_on("xterm", &server, "shell");
    later.prompt_behind("here");
    later.press(&format!("{UP}{UP}{UP}\rprint(f() + 2)\r"));
    later.prompt_behind("\n43\r");
}

#[test]
fn on_a_terminal_with_a_cursor_ctrl_c_ends_a_program_or_forgets_a_line() {
    let server = Server::start(users()[0], "editor-ctrl-c");
    let mut terminal = Terminal::start_on("xterm", &server, "shell");
    terminal.prompt_behind("here");
    terminal.press("x = 41\rprint('set')\r");
    terminal.prompt_behind("\nset\r");
    terminal.press("import time; print('be' + 'gun', flush=True); time.sleep(600)\r");
    terminal.screen.wait_for("begun");
    terminal.press("\u{3}");
    terminal.prompt_behind("cancelled");
    terminal.press("x = 7 + (\r  1");
    terminal.screen.wait_for("  1");
    terminal.press("\u{3}");
    terminal.prompt_behind("  1");
    terminal.press("x + 1\r");
    terminal.prompt_behind("\n42\r");
    terminal.press("\u{4}");
    assert_eq!(terminal.status(), Some(0), "{}", terminal.screen.text());
}

#[test]
fn a_terminal_that_goes_away_ends_the_shell_and_closes_its_sandbox() {
    let server = Server::start(users()[0], "hangup");
    let mut terminal = Terminal::start(&server, "shell");
    terminal.prompts(1);
    terminal.press("import time; print('be' + 'gun', flush=True); time.sleep(600)\n");
    terminal.screen.wait_for("begun");
    drop(terminal);
    until(SOON, "its sandbox is closed", || server.sandboxes().is_empty().then_some(()));
}
