//! `palisade sandbox exec -t`: commands on a terminal inside a sandbox.

use functional::serving::{Server, Terminal};
use functional::{SOON, until};
use harness::users;
use rustix::process::{Pid, Signal, kill_process};

/// Starts `palisade sandbox exec -t REST` on a terminal of 30 lines with 100 characters, which gets another size when the
/// file `resize` is there. The mode of the terminal before and after it, and its process id, are in files as well.
fn on_terminal(server: &Server, rest: &str) -> Terminal {
    let folder = server.state_dir.display();
    let command = format!("echo $$ > {folder}/pid; exec {} sandbox exec -t {rest}", Terminal::palisade());
    std::fs::write(server.state_dir.join("command.sh"), command).unwrap();
    let outer = format!(
        "stty rows 30 cols 100; stty -g > {folder}/before\n\
         (until [ -e {folder}/resize ]; do sleep 0.05; done; stty rows 11 cols 22 < /dev/tty) &\n\
         sh {folder}/command.sh; status=$?\n\
         stty -g > {folder}/after; kill $!; exit $status\n"
    );
    std::fs::write(server.state_dir.join("outer.sh"), outer).unwrap();
    Terminal::start_behind("xterm", server, &format!("exec sh {folder}/outer.sh"))
}

fn is_restored(server: &Server) -> bool {
    let mode = |name: &str| std::fs::read_to_string(server.state_dir.join(name)).unwrap();
    mode("before") == mode("after")
}

#[test]
fn a_shell_on_a_terminal_has_its_size_its_signals_and_its_status() {
    let server = Server::start(users()[0], "tty");
    let id = server.open();
    server.said_by(&["sandbox", "exec", &id, "bash", "-c", "echo kept > note.txt"]);
    let mut terminal = on_terminal(&server, &format!("{id} bash --norc -i"));
    terminal.screen.wait_for("$ ");
    terminal.press("stty size; tty; cat note.txt; echo $TERM\r");
    for shown in ["30 100", "/dev/pts/", "kept", "xterm"] {
        terminal.screen.wait_for(shown);
    }
    std::fs::write(server.state_dir.join("resize"), "").unwrap();
    until(SOON, "the new size", || {
        terminal.press("stty size\r");
        std::thread::sleep(std::time::Duration::from_millis(100));
        terminal.screen.text().contains("11 22").then_some(())
    });
    // Ctrl-C reaches the program and does not end the command.
    terminal.press("sleep 600\r");
    terminal.screen.wait_for("sleep 600");
    terminal.press("\u{3}");
    terminal.press("echo st$?\r");
    terminal.screen.wait_for("st130");
    terminal.press("exit 7\r");
    assert_eq!(terminal.status(), Some(7), "{}", terminal.screen.text());
    assert!(is_restored(&server));
}

#[test]
fn full_screen_programs_work() {
    let server = Server::start(users()[0], "full-screen");
    let id = server.open();
    let has = |program: &str| std::path::Path::new("/usr/bin").join(program).exists();
    let mut python = on_terminal(&server, &format!("{id} python3 -q"));
    python.screen.wait_for(">>> ");
    python.press("6 * 7\r");
    python.screen.wait_for("42");
    let curses = "import curses; print(curses.wrapper(lambda screen: screen.getmaxyx()))";
    python.press(&format!("{curses}\r"));
    python.screen.wait_for("(30, 100)");
    python.press("exit()\r");
    assert_eq!(python.status(), Some(0), "{}", python.screen.text());
    if has("vi") {
        let mut vi = on_terminal(&server, &format!("{id} vi note.txt"));
        vi.screen.wait_for("~");
        vi.press("ihello\u{1b}:wq\r");
        assert_eq!(vi.status(), Some(0), "{}", vi.screen.text());
        assert_eq!(server.said_by(&["sandbox", "exec", &id, "bash", "-c", "cat note.txt"]), "hello");
    }
    server.said_by(&["sandbox", "exec", &id, "bash", "-c", "seq 1000 > lines"]);
    if has("less") {
        let mut less = on_terminal(&server, &format!("{id} less lines"));
        less.screen.wait_for("29");
        less.press("G");
        less.screen.wait_for("1000");
        less.press("q");
        assert_eq!(less.status(), Some(0), "{}", less.screen.text());
    }
    if has("top") {
        let mut top = on_terminal(&server, &format!("{id} top -d 1"));
        top.screen.wait_for("PID");
        top.press("q");
        assert_eq!(top.status(), Some(0), "{}", top.screen.text());
    }
    assert!(is_restored(&server));
}

#[test]
fn a_program_cannot_type_into_its_terminal_or_reach_another() {
    let server = Server::start(users()[0], "tiocsti");
    let id = server.open();
    let code = "import fcntl, os\n\
                for request in (0x5412, 0x541C, 0x5602, 0x540E):\n  \
                try: fcntl.ioctl(0, request, b'x'); print('done', hex(request))\n  \
                except OSError as error: print(hex(request), error.errno)\n\
                print(sorted(os.listdir('/dev/pts')), os.path.exists('/dev/console'))";
    server
        .palisade(&["sandbox", "exec", "-i", &id, "bash", "-c", "cat > try.py"])
        .stdin(code.as_bytes())
        .end();
    let mut terminal = on_terminal(&server, &format!("{id} python3 try.py"));
    assert_eq!(terminal.status(), Some(0), "{}", terminal.screen.text());
    let shown = terminal.screen.text();
    // TIOCSTI, TIOCLINUX and VT_ACTIVATE fail as unknown requests do. TIOCSCTTY of the terminal that it has is allowed.
    for refused in ["0x5412 25", "0x541c 25", "0x5602 25"] {
        assert!(shown.contains(refused), "{shown}");
    }
    assert!(shown.contains("['0', 'ptmx'] False"), "{shown}");
}

#[test]
fn a_terminal_shows_more_than_a_run_keeps_and_ends_with_its_time() {
    let server = Server::start(users()[0], "tty-limits");
    let id = server.open();
    let mut much =
        on_terminal(&server, &format!("{id} bash -c 'head -c 3000000 /dev/zero | tr \"\\\\0\" x; echo end'"));
    assert_eq!(much.status(), Some(0));
    assert!(much.screen.text().contains("end"));
    assert!(much.screen.text().matches('x').count() >= 3_000_000);
    let mut long = on_terminal(&server, &format!("--timeout 1s {id} sleep 600"));
    assert_eq!(long.status(), Some(124), "{}", long.screen.text());
    assert!(long.screen.text().contains("timed_out") && is_restored(&server));
}

#[test]
fn a_command_that_is_told_to_end_restores_the_terminal() {
    let server = Server::start(users()[0], "tty-term");
    let id = server.open();
    let mut terminal = on_terminal(&server, &format!("{id} bash -c 'echo ready; sleep 600'"));
    terminal.screen.wait_for("ready");
    let pid = std::fs::read_to_string(server.state_dir.join("pid")).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    assert_eq!(terminal.status(), Some(130), "{}", terminal.screen.text());
    assert!(is_restored(&server));
}

#[test]
fn a_terminal_needs_a_terminal_and_a_known_sandbox() {
    let server = Server::start(users()[0], "tty-none");
    let id = server.open();
    let ended = server.end(&["sandbox", "exec", "-t", &id, "bash"]);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("-t needs a terminal"), "{}", ended.stderr);
    let mut unknown = on_terminal(&server, "sbx_00000000000000000000000000000000 bash");
    assert_eq!(unknown.status(), Some(126), "{}", unknown.screen.text());
    let mut missing = on_terminal(&server, &format!("{id} no-such-command -x"));
    assert_eq!(missing.status(), Some(127), "{}", missing.screen.text());
}
