//! Standard input that arrives while the program runs: `palisade run`, `palisade sandbox exec -i`, `palisade shell`.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use functional::serving::{Said, Server, Terminal};
use functional::{SOON, until};
use harness::users;

/// A command whose standard input stays open.
struct Talk {
    child: Child,
    keys: Option<ChildStdin>,
    said: Said,
}

impl Talk {
    fn start(server: &Server, args: &[&str]) -> Self {
        let mut command = server.palisade(args).into_command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let said = Said::listen(child.stdout.take().unwrap());
        Self { keys: child.stdin.take(), child, said }
    }

    fn say(&mut self, text: &str) {
        self.keys.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn status(&mut self) -> Option<i32> {
        until(SOON, "the command ends", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

const PYTHON: &str = "a = input('first? ')\nb = input('second? ')\nprint(f'<{a}{b}>')\n\
                      import sys\nprint(repr(sys.stdin.read()))";
const BASH: &str = "printf 'first? '; read a; printf 'second? '; read b; echo \"<$a$b>\"; cat";
const JAVASCRIPT: &str = "const lines = require('readline').createInterface({ input: process.stdin });\n\
    const each = lines[Symbol.asyncIterator]();\n\
    process.stdout.write('first? '); const a = (await each.next()).value;\n\
    process.stdout.write('second? '); const b = (await each.next()).value;\n\
    console.log(`<${a}${b}>`); lines.close()";

/// Answers both questions and ends the input.
fn answer(mut talk: Talk) -> String {
    talk.said.wait_for("first? ");
    talk.say("one\n");
    talk.said.wait_for("second? ");
    talk.say("two\nrest");
    talk.said.wait_for("<onetwo>");
    talk.keys = None;
    assert_eq!(talk.status(), Some(0), "{}", talk.said.text());
    talk.said.whole()
}

#[test]
fn a_program_gets_its_input_as_it_comes_and_learns_of_its_end() {
    for user in users() {
        let server = Server::start(user, "attached");
        let id = server.open();
        for (language, code) in [("python", PYTHON), ("bash", BASH), ("javascript", JAVASCRIPT)] {
            let said = answer(Talk::start(&server, &["sandbox", "exec", "-i", &id, language, "-c", code]));
            assert!(language == "javascript" || said.contains("rest"), "{said}");
        }
        // Each run has its own input, and a language without a live interpreter has it as well.
        answer(Talk::start(&server, &["sandbox", "exec", "-i", &id, "python", "-c", PYTHON]));
        let perl =
            "$|=1; print 'first? '; $a=<STDIN>; print 'second? '; $b=<STDIN>; chomp($a,$b); print \"<$a$b>\"";
        answer(Talk::start(&server, &["sandbox", "exec", "-i", &id, "perl", "-c", perl]));
        assert!(server.end(&["sandbox", "exec", &id, "python", "-c", "input()"]).stderr.contains("EOFError"));
        answer(Talk::start(&server, &["run", "python", "-c", PYTHON]));
    }
}

#[test]
fn a_program_that_ends_without_reading_ends_the_command() {
    let server = Server::start(users()[0], "unread");
    let id = server.open();
    for args in [&["sandbox", "exec", "-i", &id][..], &["run"]] {
        let mut talk = Talk::start(&server, &[args, &["python", "-c", "print('over')"]].concat());
        assert_eq!(talk.status(), Some(0));
        assert_eq!(talk.said.whole(), "over\n");
    }
}

#[test]
fn input_for_a_program_that_does_not_read_stays_with_the_command() {
    const OFFERED: usize = 64 << 20;
    let server = Server::start(users()[0], "window");
    let id = server.open();
    let code = "import os, sys, time\nprint('ready', flush=True)\n\
                while not os.path.exists('go'): time.sleep(0.01)\n\
                print(sum(len(piece) for piece in iter(lambda: sys.stdin.buffer.read(1 << 16), b'')))";
    let mut talk = Talk::start(&server, &["sandbox", "exec", "-i", &id, "python", "-c", code]);
    talk.said.wait_for("ready");
    let accepted = Arc::new(AtomicUsize::new(0));
    let (mut keys, count) = (talk.keys.take().unwrap(), Arc::clone(&accepted));
    let writer = std::thread::spawn(move || {
        let piece = vec![7; 1 << 16];
        for _ in 0..OFFERED / piece.len() {
            keys.write_all(&piece).unwrap();
            count.fetch_add(piece.len(), Ordering::SeqCst);
        }
    });
    // Nothing more is accepted once all windows are full.
    let mut last = usize::MAX;
    let full = until(SOON, "the windows are full", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = accepted.load(Ordering::SeqCst);
        (now > 0 && std::mem::replace(&mut last, now) == now).then_some(now)
    });
    assert!(full < 4 << 20, "{full} bytes are under way to a program that does not read");
    std::fs::write(server.state_dir.join("go"), "go").unwrap();
    server.said_by(&["sandbox", "cp", server.state_dir.join("go").to_str().unwrap(), &format!("{id}:go")]);
    writer.join().unwrap();
    assert_eq!(talk.status(), Some(0));
    let said = talk.said.whole();
    assert!(said.ends_with(&format!("{OFFERED}\n")), "{said}");
}

#[test]
fn bytes_pass_unchanged_in_both_directions() {
    let server = Server::start(users()[0], "bytes");
    let id = server.open();
    let mut command = server.palisade(&["sandbox", "exec", "-i", &id, "bash", "-c", "cat"]).into_command();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let sent: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    let (mut keys, copy) = (child.stdin.take().unwrap(), sent.clone());
    let writer = std::thread::spawn(move || keys.write_all(&copy).unwrap());
    let mut got = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut got).unwrap();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(got == sent, "{} bytes of {}", got.len(), sent.len());
}

#[test]
fn a_command_that_is_gone_ends_its_run() {
    let server = Server::start(users()[0], "gone");
    let id = server.open();
    let talk = Talk::start(
        &server,
        &["sandbox", "exec", "-i", &id, "python", "-c", "print('begun', flush=True); input()"],
    );
    talk.said.wait_for("begun");
    drop(talk);
    // The sandbox has one run at a time, so this one waits for the end of the other.
    assert_eq!(server.said_by(&["sandbox", "exec", &id, "python", "-c", "print(6*7)"]), "42");
}

#[test]
fn only_the_control_socket_attaches_commands() {
    use std::os::unix::net::UnixStream;
    let server = Server::start(users()[0], "attach-route");
    let ask = |mut stream: Box<dyn ReadWrite>, upgrade: &str| {
        let token = std::fs::read_to_string(server.state_dir.join("token")).unwrap();
        write!(
            stream,
            "POST /attach HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n{upgrade}content-length: 0\r\n\r\n",
            token.trim()
        )
        .unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        String::from_utf8_lossy(&status).into_owned()
    };
    let text = server.said.text();
    let address = text.split("\"url\":\"http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let upgrade = "connection: upgrade\r\nupgrade: palisade-attach\r\n";
    let tcp = || Box::new(std::net::TcpStream::connect(&address).unwrap());
    assert_eq!(ask(tcp(), upgrade), "HTTP/1.1 403");
    let control = || Box::new(UnixStream::connect(server.socket()).unwrap());
    assert_eq!(ask(control(), "connection: close\r\n"), "HTTP/1.1 426");
    assert_eq!(ask(control(), upgrade), "HTTP/1.1 101");
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

#[test]
fn in_a_shell_a_program_that_waits_for_input_gets_the_line_that_is_typed() {
    for kind in ["xterm", "dumb"] {
        let server = Server::start(users()[0], &format!("shell-input-{kind}"));
        let mut terminal = Terminal::start_on(kind, &server, "shell");
        terminal.prompt_behind("here");
        terminal.press("x = input('na' + 'me? ')\r");
        terminal.screen.wait_for("name? ");
        terminal.press("Ada\r");
        terminal.prompt_behind("Ada");
        terminal.press("'<' + x + '>'\r");
        terminal.prompt_behind("<Ada>");
        terminal.press("%lang bash\r");
        terminal.prompt_behind("bash");
        terminal.press("printf 'wo''rd? '; read w; echo \"<$w>\"\r");
        terminal.screen.wait_for("word? ");
        terminal.press("given\r");
        terminal.prompt_behind("<given>");
        terminal.press("%lang javascript\r");
        terminal.prompt_behind("javascript");
        let code = "process.stdout.write('j' + 's? '); await new Promise((done) => process.stdin.once('data', done)) + '!'";
        terminal.press(&format!("{code}\r"));
        terminal.screen.wait_for("js? ");
        terminal.press("typed\r");
        terminal.prompt_behind("'typed\\n!'");
        terminal.press("%lang python\r");
        terminal.prompt_behind("%lang python");
        // What is typed while no program waits is for the prompt.
        terminal.press("import time; print('be' + 'gun', flush=True); time.sleep(1)\r");
        terminal.screen.wait_for("begun");
        terminal.press("6 * 7\r");
        terminal.prompt_behind("42\r");
        // Ctrl-C ends a program that waits for input.
        terminal.press("x = input('a' + 'gain? ')\r");
        terminal.screen.wait_for("again? ");
        terminal.press("\u{3}");
        terminal.prompt_behind("cancelled");
        terminal.press("x + '!'\r");
        terminal.prompt_behind("'Ada!'");
    }
}
