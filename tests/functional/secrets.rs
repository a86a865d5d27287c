//! Secrets: one run has them, and nothing that comes back or stays behind does.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use functional::gate::Gate;
use functional::{SOON, files_beneath, outcome, until};
use harness::mcp::Client;
use harness::{User, state_dir, users};
use serde_json::{Value, json};

const VALUE: &str = "pl-S3cret/v+lue&0123456789";
const CONFIG: &str = "[access.token]\nabout = \"a token\"\nsecrets = { API_TOKEN = \"api\" }\n\
    [access.gone]\nsecrets = { GONE_TOKEN = \"gone\" }\n\
    [access.bound]\negress = [\"origin.example:@TLS loopback\"]\nsecrets = { BOUND_TOKEN = { secret = \"api\", hosts = [\"origin.example:@TLS loopback\"] } }\n";

fn set(gate: &Gate, user: User) {
    set_as(gate, user, "api");
}

fn set_as(gate: &Gate, user: User, name: &str) {
    let ended = gate.palisade(user, &["secret", "set", name]).stdin(format!("{VALUE}\n").as_bytes()).end();
    assert!(ended.status.success(), "{ended:?}");
    let listed = gate.palisade(user, &["secret", "list"]).end();
    assert!(listed.stdout.lines().any(|line| line == name), "{listed:?}");
}

/// Every form of the value that is searched for. Of base64, the part that does not depend on the bytes around it.
fn forms() -> Vec<String> {
    let hex: String = VALUE.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut forms: Vec<String> = [
        VALUE,
        "cGwtUzNjcmV0L3YrbHVl",
        "wtUzNjcmV0L3YrbHVlJj",
        "bC1TM2NyZXQvditsdWUm",
        "pl-S3cret%2Fv%2Blue%26",
        "pl-S3cret%2fv%2blue%26",
        "pl-S3cret/v%2Blue%26",
        "pl-S3cret\\/v+lue",
    ]
    .map(str::to_owned)
    .to_vec();
    forms.extend([hex.to_uppercase(), hex]);
    forms
}

fn is_clean(text: &str) -> bool {
    forms().iter().all(|form| !text.contains(form))
}

/// A program that tells its secret in every form, in pieces of a few bytes, on both streams.
const TELLS: &str = r#"
import os, sys, base64, json, urllib.parse, time
value = os.environ["API_TOKEN"]
said = [value, json.dumps({"a": value}), json.dumps(value).replace("/", "\/"), value.encode().hex(), value.encode().hex().upper(),
        urllib.parse.quote(value), urllib.parse.quote(value, safe=""), urllib.parse.quote_plus(value)]
said += [base64.b64encode(b"x" * n + value.encode() + b"y").decode() for n in range(3)]
said += [base64.urlsafe_b64encode(b"x" * n + value.encode()).decode() for n in range(3)]
for text in said:
    for at in range(0, len(text), 5):
        for stream in (sys.stdout, sys.stderr):
            stream.write(text[at:at + 5]); stream.flush()
        time.sleep(0.012)
    for stream in (sys.stdout, sys.stderr): stream.write(" said\n"); stream.flush()
"#;

#[test]
fn a_secret_is_given_to_the_run_that_asks_for_it() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    for user in users() {
        set(&gate, user);
        let client = gate.client(user);
        let code = "import os, subprocess\nvalue = os.environ.get('API_TOKEN', '')\nprint(len(value), value[:3], len(subprocess.run(['sh', '-c', 'echo \"$API_TOKEN\"'], capture_output=True).stdout))";
        let run =
            |access: Value| client.call("run", json!({"language": "python", "code": code, "access": access}));
        let with = run(json!(["token"]));
        assert_eq!(with["stdout"], format!("{} pl- {}\n", VALUE.len(), VALUE.len() + 1), "{with:#}");
        assert_eq!(run(json!([]))["stdout"], "0  1\n");
        let note = with["isolation"]["guarantees"]["network_none"]["note"].as_str().unwrap();
        assert_eq!(note, "none but the gate: no host");
    }
}

#[test]
fn a_secret_is_taken_out_of_everything_that_a_program_reports() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    set(&gate, User::Root);
    let client = gate.client(User::Root);
    let code = r#"
import os, sys, base64, json, urllib.parse, time
value = os.environ["API_TOKEN"]
for n in range(len(value)):
    sys.stdout.write(value[n]); sys.stdout.flush(); time.sleep(0.002)
print(); print(value, file=sys.stderr); print(json.dumps({"a": value})); print(value.encode().hex()); print(value.encode().hex().upper())
for n in range(3): print(base64.b64encode(b"x" * n + value.encode()).decode())
print(urllib.parse.quote(value, safe="")); print(urllib.parse.quote_plus(value)); print(value * 3)
os.write(1, b"." * 65530 + value.encode())
"#;
    for tail in [
        "\nvalue",
        "\nraise ValueError(value)",
        "\nclass Shown:\n  def _repr_html_(self): return '<b>' + value + '</b>'\nShown()",
    ] {
        let arguments = json!({"language": "python", "code": format!("{code}{tail}"), "access": ["token"]});
        let result = client.call("run", arguments);
        let text = result.to_string();
        assert!(is_clean(&text), "{tail}: {text}");
        assert!(text.matches("[redacted:API_TOKEN]").count() >= 10, "{tail}: {text}");
    }
}

#[test]
fn progress_notifications_and_the_log_do_not_have_a_secret() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    set(&gate, User::Root);
    let client = gate.client(User::Root);
    let arguments = json!({"language": "python", "code": TELLS, "access": ["token"]});
    let params = json!({"name": "run", "arguments": arguments, "_meta": {"progressToken": "t"}});
    let result = client.send("tools/call", params).result();
    assert_eq!(outcome(&result), "completed", "{result:#}");
    let told = client.notifications();
    let messages: Vec<&str> = told.iter().filter_map(|note| note["params"]["message"].as_str()).collect();
    let together = messages.concat();
    assert!(messages.len() > 3 && together.contains(" said\n"), "{messages:?}");
    assert!(together.matches("[redacted:API_TOKEN]").count() >= 10, "{together}");
    // A secret between two notifications is one for a client that joins them.
    assert!(is_clean(&together) && told.iter().all(|note| is_clean(&note.to_string())), "{messages:?}");
    for stream in ["", "?stream=stdout", "?stream=stderr"] {
        let uri = format!("palisade://runs/{}/log{stream}", result["run_id"].as_str().unwrap());
        let log = client.send("resources/read", json!({ "uri": uri })).answer().unwrap().to_string();
        assert!(log.contains("[redacted:API_TOKEN]") && is_clean(&log), "{stream}: {log}");
    }
}

#[test]
fn output_that_ends_like_a_secret_begins_is_told_whole() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    set(&gate, User::Root);
    let code = "import os, sys\nprint('a', end=''); print(os.environ['API_TOKEN'][:7], end='')\nprint('b', os.environ['API_TOKEN'][:3], end='', file=sys.stderr)";
    let ended = gate.palisade(User::Root, &["run", "python", "--access", "token", "-c", code]).end();
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("apl-S3cr", "b pl-"), "{ended:?}");
    let client = gate.client(User::Root);
    let sandbox = client.open(json!({"access": ["token"]}));
    let result = client.run_with(&sandbox, "python", code, json!({"access": ["token"]}));
    assert_eq!((&result["stdout"], &result["stderr"]), (&json!("apl-S3cr"), &json!("b pl-")), "{result:#}");
}

#[test]
fn nothing_of_a_secret_stays_in_the_state_directory() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    for user in users() {
        set(&gate, user);
        let log = gate.folder().join("server-log");
        let server = gate.palisade(user, &["mcp", "--log-level", "trace"]);
        let client = Client::start_logging(server, fs::File::create(&log).unwrap());
        let sandbox = client.open(json!({"access": ["token"]}));
        let tells = format!(
            "{TELLS}\nclass Shown:\n  def _repr_html_(self): return '<b>' + value + '</b>'\ndisplay(Shown())\nraise ValueError(value)"
        );
        let code = "import os; print(os.environ['API_TOKEN']); len(os.environ['API_TOKEN'])";
        for access in [json!(["token"]), json!([])] {
            let result = client.run_with(&sandbox, "python", code, json!({ "access": access }));
            let expected = if access == json!([]) { "failed" } else { "completed" };
            assert_eq!(outcome(&result), expected, "what a run was given is taken back: {result:#}");
            client.call("run", json!({"language": "bash", "code": "echo $API_TOKEN", "access": access}));
            let told = client.call("run", json!({"language": "python", "code": tells, "access": access}));
            assert!(is_clean(&told.to_string()), "{told:#}");
        }
        client.end();
        let top = state_dir(user);
        let mut looked = 0;
        for path in files_beneath(&top) {
            let Ok(bytes) = fs::read(top.join(&path)) else { continue };
            looked += 1;
            let found = forms().into_iter().find(|form| contains(&bytes, form.as_bytes()));
            assert_eq!(found.is_some(), path.starts_with("secrets"), "{found:?} in {}", path.display());
        }
        assert!(
            looked >= 4,
            "the store, the audit and the secret were looked at, and {looked} files are not those"
        );
        assert!(is_clean(&fs::read_to_string(&log).unwrap()));
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn processes_that_wait_for_runs_never_have_a_secret() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    set(&gate, User::Root);
    let client = gate.client(User::Root);
    for _ in 0..6 {
        let code = "import os; print(len(os.environ['API_TOKEN']))";
        let access = json!({"language": "python", "code": code, "access": ["token"]});
        assert_eq!(client.call("run", access)["stdout"], format!("{}\n", VALUE.len()));
    }
    let waits = json!({"language": "python", "code": "import os, time; value = os.environ['API_TOKEN']; time.sleep(6)", "access": ["token"]});
    let waiting = client.begin("run", waits);
    until(SOON, "the look finds the secret in the process that has it", || {
        (having(client.pid()).1 > 0).then_some(())
    });
    assert_eq!(outcome(&waiting.result()), "completed");
    // The server itself has had the value. Sandboxes of ended runs are destroyed; what remains waits for a run.
    let looked = until(SOON, "no process but the server has the secret", || {
        let (looked, found) = having(client.pid());
        (found == 0).then_some(looked)
    });
    assert!(looked >= 3, "the spawner, a zygote or a spare with its interpreter");
}

#[test]
fn a_run_without_the_access_finds_no_secret_while_another_run_has_it() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    for user in users() {
        set(&gate, user);
        let client = gate.client(user);
        let holder = client.open(json!({"access": ["token"]}));
        let holds =
            "import os, time; value = os.environ['API_TOKEN']; open('held', 'w').close(); time.sleep(4)";
        let holding = client.begin_run(&holder, "python", holds, json!({"access": ["token"]}));
        let code = r#"
import os
found = []
def look(path):
    try:
        with open(path, "rb") as file: data = file.read(1 << 20)
    except OSError: return
    if PART in data: found.append(path)
PART = bytes.fromhex("706c2d533363726574")
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline", "stat"): look(f"/proc/{pid}/{name}")
    try:
        maps = open(f"/proc/{pid}/maps").read().splitlines()
        memory = open(f"/proc/{pid}/mem", "rb", 0)
    except OSError: continue
    for line in maps if int(pid) != os.getpid() else ():
        if " rw" not in line: continue
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        try: memory.seek(begin); data = memory.read(end - begin)
        except (OSError, OverflowError): continue
        if PART in data: found.append(line)
look("@STATE/secrets/api"); look("/proc/self/root@STATE/secrets/api"); look("/run/credentials/api")
print(found, [name for name in os.environ if "TOKEN" in name])
"#;
        let code = code.replace("@STATE", state_dir(user).to_str().unwrap());
        for _ in 0..3 {
            let result = client.call("run", json!({"language": "python", "code": code}));
            assert_eq!(result["stdout"], "[] []\n", "{result:#}");
        }
        assert_eq!(outcome(&holding.result()), "completed");
    }
}

/// Prints the processes whose memory could be looked at, and those of them whose writable memory has the text on standard
/// input.
const LOOK: &str = r#"
import sys
text, looked, found = sys.stdin.buffer.read(), [], []
for pid in sys.argv[1:]:
    try:
        maps, memory = open(f"/proc/{pid}/maps").read().splitlines(), open(f"/proc/{pid}/mem", "rb", 0)
        for line in maps:
            if " rw" not in line: continue
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            memory.seek(begin)
            data = memory.read(end - begin) or b""
            if data and pid not in looked: looked.append(pid)
            if text in data and pid not in found: found.append(pid)
    except OSError: pass
print(len(looked), len(found))
"#;

/// How many processes of a server could be looked at, and how many of them have the secret in their memory.
fn having(server: u32) -> (usize, usize) {
    let pids: Vec<String> = descendants(server).iter().map(u32::to_string).collect();
    let mut look = Command::new("python3");
    look.args(["-c", LOOK]).args(pids).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = look.spawn().unwrap();
    child.stdin.take().unwrap().write_all(VALUE.as_bytes()).unwrap();
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let (looked, found) = said.trim().split_once(' ').unwrap();
    (looked.parse().unwrap(), found.parse().unwrap())
}

/// All processes below one.
fn descendants(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> = children
        .flat_map(|line| line.split_whitespace().filter_map(|one| one.parse().ok()).collect::<Vec<_>>())
        .collect();
    children.iter().flat_map(|child| [vec![*child], descendants(*child)].concat()).collect()
}

#[test]
fn a_secret_with_hosts_is_given_only_to_a_run_that_reaches_nothing_else() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    set(&gate, User::Root);
    let client = gate.client(User::Root);
    let run = |access: Value| {
        client.call("run", json!({"language": "python", "code": "import os; print(len(os.environ['BOUND_TOKEN']))", "access": access}))
    };
    assert_eq!(run(json!(["bound"]))["stdout"], format!("{}\n", VALUE.len()));
    let result = run(json!(["bound", "web"]));
    assert_eq!(
        (outcome(&result), result["error"]["code"].as_str()),
        ("refused", Some("secret_hosts")),
        "{result:#}"
    );
}

#[test]
fn a_missing_secret_refuses_the_run_and_a_removed_one_is_gone() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    set_as(&gate, User::Root, "gone");
    assert!(gate.palisade(User::Root, &["secret", "rm", "gone"]).end().status.success());
    assert!(!gate.palisade(User::Root, &["secret", "rm", "gone"]).end().status.success());
    let listed = gate.palisade(User::Root, &["access", "list"]).end();
    assert!(listed.stdout.contains("gives GONE_TOKEN (MISSING"), "{listed:?}");
    let client = gate.client(User::Root);
    let result = client.call("run", json!({"language": "python", "code": "1", "access": ["gone"]}));
    assert_eq!((outcome(&result), result["error"]["code"].as_str()), ("refused", Some("secret_unavailable")));
}

#[test]
fn a_program_cannot_keep_a_secret_in_the_environment_of_its_sandbox() {
    let Some(gate) = Gate::start(CONFIG) else { return };
    set(&gate, User::Root);
    let client = gate.client(User::Root);
    let sandbox = client.open(json!({"access": ["token"]}));
    // What a program can replace only pretends to take the variable away.
    let keep = r#"
import os
class Kept(dict):
    def pop(self, *rest): return None
    def __delitem__(self, name): pass
    def __setitem__(self, name, value): pass
print(len(os.environ["API_TOKEN"]))
os.environ = Kept(os.environ)
os.unsetenv = os.putenv = lambda *rest: None
"#;
    let result = client.run_with(&sandbox, "python", keep, json!({"access": ["token"]}));
    assert_eq!(result["stdout"], format!("{}\n", VALUE.len()), "{result:#}");
    let look = "import subprocess\nprint(subprocess.run(['sh', '-c', 'echo ${API_TOKEN-none}'], capture_output=True, text=True).stdout)";
    let result = client.run_with(&sandbox, "python", look, json!({}));
    assert_eq!(result["stdout"], "none\n\n", "{result:#}");
}
