//! Every attack of `attacks/` inside sandboxes that last, and sandboxes of one server against each other.

use escape::attack;
use escape::bait::{Bait, Tidy};
use escape::lasting;
use harness::mcp::Client;
use serde_json::{Value, json};

/// The attacks are dealt out to tests that run side by side.
fn part_is_held(families: &[&str]) {
    if std::env::consts::ARCH != "x86_64" {
        eprintln!("SKIPPED {families:?}: the attacks are written for x86_64");
        return;
    }
    let _tidy = Tidy;
    let mut problems = Vec::new();
    for user in harness::users() {
        let bait = Bait::lay(&format!("lasting-{}-{user:?}", families[0].replace(' ', "-")).to_lowercase());
        let client = Client::new(user);
        let mut count = 0;
        for attack in attack::chosen(families) {
            count += 1;
            problems.extend(lasting::judge(&attack, user, &client, &bait).err());
        }
        let escaped = problems.iter().filter(|problem| problem.contains("ESCAPED behind")).count();
        println!("{user:?}: {count} attacks, {escaped} escaped ({families:?}, in sandboxes that last)");
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn files_of_the_host_are_out_of_reach_of_a_live_interpreter() {
    part_is_held(&["file reads", "writes", "network"]);
}

#[test]
fn processes_and_kernel_are_out_of_reach_of_a_live_interpreter() {
    part_is_held(&["process", "kernel surface"]);
}

#[test]
fn a_live_interpreter_exhausts_nothing_but_itself() {
    part_is_held(&["exhaustion"]);
}

#[test]
fn a_live_interpreter_deceives_nobody_and_leaves_nothing_to_another() {
    part_is_held(&["deception", "persistence", "resurrection"]);
}

/// Leaves traces of every kind and stays awake.
const LEAVE: &str = "import ctypes, os, socket, subprocess\n\
open('/workspace/trace', 'w').write(WORD)\nopen('/tmp/trace', 'w').write(WORD)\nopen('/dev/shm/trace', 'w').write(WORD)\n\
listener = socket.create_server(('127.0.0.1', 7654))\n\
abstract = socket.socket(socket.AF_UNIX); abstract.bind('\\0' + WORD); abstract.listen()\n\
libc = ctypes.CDLL(None, use_errno=True)\nshm = libc.shmget(0x7654, 4096, 0o1666)\nqueue = libc.msgget(0x7654, 0o1666)\n\
child = subprocess.Popen(['sleep', '300'], env={'WORD': WORD})\nprint('left', shm >= 0, queue >= 0)";

/// Looks for them; says what it found.
const LOOK: &str = "import ctypes, os, socket\nfound = []\n\
for path in ['/workspace/trace', '/tmp/trace', '/dev/shm/trace']:\n    if os.path.exists(path): found.append(path)\n\
for top in ['/workspace', '/tmp', '/dev/shm', '/palisade']:\n    for folder, _, names in os.walk(top):\n        for name in names:\n            \
try: text = open(os.path.join(folder, name), errors='replace').read(4096)\n            except OSError: continue\n            if WORD in text: found.append(name)\n\
for pid in filter(str.isdigit, os.listdir('/proc')):\n    if int(pid) == os.getpid(): continue\n    for part in ['cmdline', 'environ']:\n        \
try: text = open(f'/proc/{pid}/{part}').read()\n        except OSError: continue\n        if WORD in text or 'sleep' in text: found.append(f'process {pid}')\n\
def reach(family, address):\n    with socket.socket(family) as s:\n        s.settimeout(1)\n        try: s.connect(address)\n        except OSError: return\n        found.append(repr(address))\n\
reach(socket.AF_INET, ('127.0.0.1', 7654))\nreach(socket.AF_UNIX, '\\0' + WORD)\n\
libc = ctypes.CDLL(None, use_errno=True)\n\
if libc.shmget(0x7654, 4096, 0) >= 0: found.append('shared memory')\nif libc.msgget(0x7654, 0) >= 0: found.append('queue')\n\
if WORD in open('/proc/net/unix').read(): found.append('name of a socket')\nprint(found)";

#[test]
fn sandboxes_of_one_server_see_nothing_of_each_other() {
    let _tidy = Tidy;
    for user in harness::users() {
        let client = Client::new(user);
        let (one, other) = (client.open(json!({})), client.open(json!({})));
        let word = format!("trace-{}-{user:?}", std::process::id());
        let more = json!({"variables": {"WORD": word}});
        let said = |result: &Value| result["stdout"].as_str().unwrap_or_default().trim().to_owned();
        client.run(&other, "python", "1");
        let left = client.run_with(&one, "python", LEAVE, more.clone());
        assert!(said(&left).starts_with("left"), "{left:#}");
        let looked = client.run_with(&other, "python", LOOK, more.clone());
        assert_eq!(said(&looked), "[]", "a sandbox that was open before: {looked:#}");
        let later = client.open(json!({}));
        let looked = client.run_with(&later, "python", LOOK, more.clone());
        assert_eq!(said(&looked), "[]", "a sandbox that was opened later: {looked:#}");
        // The same look finds them where they are: it is not blind.
        let own = client.run_with(&one, "python", LOOK, more);
        for trace in ["/workspace/trace", "/dev/shm/trace", "7654", "name of a socket", "process"] {
            assert!(said(&own).contains(trace), "{trace}: {own:#}");
        }
    }
}
