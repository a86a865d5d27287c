//! Attacks on sandboxes that last, over MCP as a client would: what a program does out of sight, at once, or between
//! runs; what it leaves for its own removal; what another server of the same state directory may do to it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use functional::{files_beneath, outcome, own_folder, until};
use harness::{Build, Palisade, User};
use serde_json::{Value, json};

const DISK_MB: u64 = 16;
const PATIENCE: Duration = Duration::from_secs(30);

/// `palisade mcp` over a state directory.
struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    asked: u64,
}

impl Client {
    fn start(user: User, state_dir: &Path) -> Self {
        let state = state_dir.to_str().unwrap();
        let mut command = Palisade::new(Build::Real, user, &["--state-dir", state, "mcp"]).into_command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("palisade starts");
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Self { child, stdin, stdout, asked: 0 };
        let who = json!({"name": "attacker", "version": "1"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": who});
        client.ask("initialize", &hello);
        client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "palisade ended");
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id {
                return answer["result"].clone();
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))["structuredContent"].clone()
    }

    fn open(&mut self) -> String {
        let opened = self.call("sandbox_open", &json!({"limits": {"disk_mb": DISK_MB}}));
        opened["sandbox_id"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned()
    }

    fn run(&mut self, sandbox: &str, code: &str) -> Value {
        let asked =
            json!({"language": "python", "code": code, "sandbox_id": sandbox, "timeout_ms": 20_000_u64});
        self.call("run", &asked)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn workspace(state_dir: &Path, sandbox: &str) -> PathBuf {
    state_dir.join("sandboxes").join(sandbox).join("workspace")
}

/// A folder for the state, and a client.
fn fresh(user: User, name: &str) -> (PathBuf, Client) {
    let state_dir = own_folder(user, name);
    let client = Client::start(user, &state_dir);
    (state_dir, client)
}

/// Writes 10 MB at a time, slowly enough to be noticed, until ended.
const FILL: &str = "
import os, time
def fill(place):
    for number in range(100):
        descriptor = place(number)
        os.posix_fallocate(descriptor, 0, 10 << 20)
        time.sleep(0.2)
";

#[test]
fn space_cannot_be_taken_quicker_than_it_is_watched() {
    let (state_dir, mut client) = fresh(User::Root, "attack-quick");
    let sandbox = client.open();
    assert_eq!(outcome(&client.run(&sandbox, "import ctypes, os")), "completed");
    let code = "
library = ctypes.CDLL(None, use_errno=True)
for number in range(100):
    descriptor = os.open(f'f{number}', os.O_CREAT | os.O_RDWR)
    if library.fallocate(descriptor, 0, ctypes.c_long(0), ctypes.c_long(10 << 20)) != 0:
        print(os.strerror(ctypes.get_errno()))
        break
os.posix_fallocate(descriptor, 0, 1 << 20)
print(os.stat(descriptor).st_size)";
    let result = client.run(&sandbox, code);
    assert_eq!(result["stdout"], "Operation not supported\n1048576\n", "{result:#}");
    assert!(fs::metadata(workspace(&state_dir, &sandbox).join("f0")).unwrap().len() == 1 << 20);
}

#[test]
fn directories_beyond_count_hide_nothing_from_the_disk_limit() {
    let (_, mut client) = fresh(User::Root, "attack-wide");
    let sandbox = client.open();
    let code = format!(
        "{FILL}
for number in range(1500): os.mkdir(f'd{{number}}')
late = [name for name in os.listdir('.') if name.startswith('d')][700:]
fill(lambda number: os.open(late[number] + '/f', os.O_CREAT | os.O_RDWR))"
    );
    let result = client.run(&sandbox, &code);
    assert_eq!(outcome(&result), "disk_full", "{result:#}");
}

#[test]
fn files_without_a_name_count_for_the_disk_limit() {
    for user in harness::users() {
        let (_, mut client) = fresh(user, "attack-nameless");
        let sandbox = client.open();
        let code = format!(
            "{FILL}
def nameless(number):
    descriptor = os.open('f', os.O_CREAT | os.O_RDWR)
    os.unlink('f')
    return descriptor
fill(nameless)"
        );
        let result = client.run(&sandbox, &code);
        assert_eq!(outcome(&result), "disk_full", "as {user:?}: {result:#}");
    }
}

/// Keeps three quarters of the allowed space of a deleted file by a message that waits in a socket.
const HIDE: &str = "
import array, os, socket
kept = globals().get('kept', [])
descriptor = os.open('f', os.O_CREAT | os.O_RDWR)
os.unlink('f')
for _ in range(SIZE_MB):
    os.write(descriptor, b'x' * (1 << 20))
pair = socket.socketpair()
pair[0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [descriptor]))])
os.close(descriptor)
kept.append(pair)
";

#[test]
fn files_that_earlier_runs_hid_count_for_the_disk_limit() {
    for user in harness::users() {
        let (_, mut client) = fresh(user, "attack-hidden");
        let sandbox = client.open();
        let hide = format!("SIZE_MB = {}\n{HIDE}", DISK_MB * 3 / 4);
        assert_eq!(outcome(&client.run(&sandbox, &hide)), "completed", "as {user:?}");
        // Longer than any look at a sandbox in which nothing runs.
        std::thread::sleep(std::time::Duration::from_secs(3));
        let result = client.run(&sandbox, &format!("{hide}\nimport time\ntime.sleep(5)"));
        assert_eq!(outcome(&result), "disk_full", "as {user:?}: {result:#}");
    }
}

#[test]
fn a_closed_directory_hides_nothing_from_the_disk_limit() {
    for user in harness::users() {
        let (_, mut client) = fresh(user, "attack-closed");
        let sandbox = client.open();
        let code = format!(
            "{FILL}
os.mkdir('d')
held = [os.open(f'd/{{number}}', os.O_CREAT | os.O_RDWR) for number in range(100)]
os.chmod('d', 0)
fill(lambda number: held[number])"
        );
        let result = client.run(&sandbox, &code);
        assert_eq!(outcome(&result), "disk_full", "as {user:?}: {result:#}");
    }
}

#[test]
fn what_is_left_running_cannot_fill_the_disk_between_runs() {
    let (_, mut client) = fresh(User::Root, "attack-between");
    let sandbox = client.open();
    let code = "
import os, sys, time
kept = 7
if os.fork() == 0:
    os.setsid()
    time.sleep(0.5)
    for number in range(1000):
        descriptor = os.open(f'f{number}', os.O_CREAT | os.O_RDWR)
        os.posix_fallocate(descriptor, 0, 10 << 20)
        os.close(descriptor)
        time.sleep(0.3)
    os._exit(0)";
    assert_eq!(outcome(&client.run(&sandbox, code)), "completed");
    until(PATIENCE, "the sandbox is put to sleep", || {
        let listed = client.call("sandbox_list", &json!({}));
        listed["sandboxes"][0]["interpreters"].as_array().is_some_and(Vec::is_empty).then_some(())
    });
    let result = client.run(&sandbox, "print(len(__import__('os').listdir('.')))");
    assert!(
        result["warnings"][0].as_str().is_some_and(|text| text.contains("between two runs")),
        "{result:#}"
    );
}

#[test]
fn a_closed_sandbox_leaves_nothing_whatever_its_permissions_were() {
    for user in harness::users() {
        let (state_dir, mut client) = fresh(user, "attack-removal");
        let sandbox = client.open();
        let code = "
import os
os.makedirs('a/b/c'); os.makedirs('d/e')
open('a/b/c/f', 'w').close()
for name in ('a/b/c', 'a/b', 'a', 'd/e'): os.chmod(name, 0)";
        assert_eq!(outcome(&client.run(&sandbox, code)), "completed");
        assert_eq!(client.call("sandbox_close", &json!({"sandbox_id": sandbox}))["closed"], true);
        until(PATIENCE, "the folder of the sandbox is gone", || {
            files_beneath(&state_dir.join("sandboxes")).is_empty().then_some(())
        });
    }
}

#[test]
fn a_sandbox_in_use_is_not_closed_by_another_server() {
    let (state_dir, mut client) = fresh(User::Root, "attack-two");
    let sandbox = client.open();
    assert_eq!(outcome(&client.run(&sandbox, "kept = 7; open('file', 'w').close()")), "completed");
    let mut other = Client::start(User::Root, &state_dir);
    let refused = other.call("sandbox_close", &json!({"sandbox_id": sandbox}));
    assert_eq!(refused["error"]["code"], "busy", "{refused:#}");
    assert!(fs::exists(workspace(&state_dir, &sandbox).join("file")).unwrap());
    assert_eq!(client.run(&sandbox, "kept")["value"]["json"], 7);
}

#[test]
fn a_thread_of_an_earlier_run_cannot_guess_the_end_of_a_later_one() {
    let (_, mut client) = fresh(User::Root, "attack-done");
    let sandbox = client.open();
    let code = r"
import os, stat, threading, time
def speak():
    for round in range(100):
        for name in os.listdir('/proc/self/fd'):
            place = '/proc/self/fd/' + name
            if os.path.exists(place) and stat.S_ISSOCK(os.stat(place).st_mode):
                for number in range(1, 9):
                    os.write(int(name), b'10\0done\0%d\0ok\0%d\0\0\0\x00666\x00666\0\0' % (number, 0))
        time.sleep(0.05)
threading.Timer(0.2, speak).start()";
    assert_eq!(outcome(&client.run(&sandbox, code)), "completed");
    let result = client.run(&sandbox, "import time; time.sleep(1); 42");
    assert_eq!(result["value"]["json"], 42, "{result:#}");
}

#[test]
fn an_interpreter_that_was_stopped_between_runs_goes_on_with_the_next() {
    for language in ["python", "bash", "javascript"] {
        let (state_dir, mut client) = fresh(User::Root, &format!("attack-stopped-{language}"));
        let sandbox = client.open();
        let run = |client: &mut Client, code: &str| {
            let asked =
                json!({"language": language, "code": code, "sandbox_id": sandbox, "timeout_ms": 20_000_u64});
            client.call("run", &asked)
        };
        let stopper = "(while [ ! -e go ]; do sleep 0.01; done; kill -STOP $0; : > stopped)";
        let (first, second) = match language {
            "python" => (
                format!(
                    "import os, subprocess; kept = 7\n\
                     subprocess.Popen(['bash', '-c', '{stopper}', str(os.getpid())], start_new_session=True)\nNone"
                ),
                "print(kept)",
            ),
            "bash" => (format!("kept=7; setsid bash -c '{stopper}' $$ > /dev/null 2>&1 &"), "echo $kept"),
            _ => (
                format!(
                    "var kept = 7; require('child_process').spawn('bash', ['-c', '{stopper}', String(process.pid)], \
                     {{detached: true, stdio: 'ignore'}}).unref(); undefined"
                ),
                "console.log(kept)",
            ),
        };
        let began = run(&mut client, &first);
        assert_eq!(outcome(&began), "completed", "{language}: {began:#}");
        client.call("write_file", &json!({"sandbox_id": sandbox, "path": "go", "text": ""}));
        let stopped = workspace(&state_dir, &sandbox).join("stopped");
        until(PATIENCE, "the interpreter is stopped", || stopped.exists().then_some(()));
        let result = run(&mut client, second);
        assert_eq!(
            (outcome(&result), &result["stdout"]),
            ("completed", &json!("7\n")),
            "{language}: {result:#}"
        );
    }
}
