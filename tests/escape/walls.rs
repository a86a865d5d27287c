//! What a program finds when it looks around: descriptors, environment, mounts, identity, neighbours.

use escape::bait::{Bait, Tidy};
use harness::{Build, Palisade, User, run_json, users};
use serde_json::Value;

/// The only places a program may write to.
const WRITABLE: [&str; 4] = ["/workspace", "/tmp", "/home/agent", "/dev/shm"];

fn stdout(user: User, code: &str) -> String {
    let result = run_json(user, "python", code, &[]);
    assert_eq!(result["outcome"], "completed", "{user:?}: {result}");
    result["stdout"].as_str().unwrap().to_owned()
}

#[test]
fn only_the_programs_own_descriptors_are_open() {
    let _tidy = Tidy;
    // Lays an inherited descriptor of the host's root.
    let _bait = Bait::lay("descriptors");
    let code = "import os\nfor n in os.listdir('/proc/self/fd'):\n try: print(n, os.readlink('/proc/self/fd/'+n))\n except OSError: pass";
    for user in users() {
        for line in stdout(user, code).lines() {
            let target = line.split(' ').nth(1).unwrap();
            let is_own = ["pipe:", "socket:", "/proc/"].iter().any(|kind| target.starts_with(kind));
            assert!(is_own, "{user:?}: {line}");
        }
        let shell = run_json(user, "bash", "for n in /proc/$$/fd/*; do readlink $n; done", &[]);
        let links = shell["stdout"].as_str().unwrap();
        let own = ["pipe:", "/workspace/main.sh", "/palisade/driver.sh"];
        let others = links.lines().filter(|link| !own.iter().any(|start| link.starts_with(start)));
        assert_eq!(others.count(), 0, "{user:?}: {links}");
    }
}

#[test]
fn no_variable_of_the_host_is_inside() {
    const SECRET: &str = "a-word-that-is-only-in-the-environment";
    let _tidy = Tidy;
    let code = "import os,glob\nprint(sorted(os.environ))\nfor f in glob.glob('/proc/*/environ'):\n try: print(open(f).read())\n except OSError: pass";
    for user in users() {
        let ended = Palisade::new(Build::Real, user, &["run", "python", "-c", code])
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("LD_PRELOAD_NOTE", SECRET)
            .env("PYTHONSTARTUP", SECRET)
            .end();
        assert!(ended.status.success(), "{user:?}: {}", ended.stderr);
        for word in [SECRET, "AWS_", "PALISADE_", "LD_PRELOAD", "PYTHONSTARTUP"] {
            assert!(!ended.stdout.contains(word), "{user:?}: {word} in {}", ended.stdout);
        }
    }
}

#[test]
fn nothing_else_can_be_written() {
    const WALK: &str = r#"
import os
allowed = ("/workspace", "/tmp", "/home/agent", "/dev/shm")
devices = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/pts/ptmx", "/dev/ptmx")
found = []
for top, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if os.path.join(top, f) not in allowed and not (top == "/proc" and f.isdigit())
                  and not os.path.islink(os.path.join(top, f))]
    if os.access(top, os.W_OK):
        found.append(top)
    try:
        os.close(os.open(os.path.join(top, ".planted"), os.O_CREAT | os.O_WRONLY))
        found.append(top + " (made a file)")
    except OSError:
        pass
    if top.startswith("/usr/"):
        continue
    for name in files:
        path = os.path.join(top, name)
        if path not in devices and not os.path.islink(path) and os.access(path, os.W_OK):
            found.append(path)
print("\n".join(found))
"#;
    let _tidy = Tidy;
    for user in users() {
        let found = stdout(user, WALK);
        assert_eq!(found.trim(), "", "{user:?}");
    }
}

#[test]
fn every_other_mount_is_read_only_and_none_honours_set_uid() {
    let _tidy = Tidy;
    for user in users() {
        let mounts = stdout(user, "print(open('/proc/self/mountinfo').read())");
        for line in mounts.lines().filter(|line| !line.is_empty()) {
            let fields: Vec<&str> = line.split(' ').collect();
            let (point, options) = (fields[4], fields[5]);
            let may_be_written = WRITABLE.contains(&point) || point == "/proc" || point.starts_with("/dev/");
            assert!(may_be_written || options.starts_with("ro"), "{user:?}: {line}");
            assert!(point.starts_with("/dev/") || options.contains("nosuid"), "{user:?}: {line}");
        }
    }
}

#[test]
fn identity_inside_is_the_same_everywhere() {
    let _tidy = Tidy;
    let code = "import os,socket\nprint(os.getresuid(), os.getresgid(), socket.gethostname(), os.getpid() < 10)\n\
                print([l.split(':')[0] for l in open('/etc/passwd')], os.listdir('/home'), os.listdir('/dev/pts'))";
    for user in users() {
        let text = stdout(user, code);
        let expected =
            "(1000, 1000, 1000) (1000, 1000, 1000) palisade True\n['agent', 'nobody'] ['agent'] ['ptmx']\n";
        assert_eq!(text, expected, "{user:?}");
    }
}

#[test]
fn no_name_server_and_no_privilege_is_there() {
    let _tidy = Tidy;
    let code = "print(open('/etc/resolv.conf').read().count('nameserver'))\n\
                print({l.split(':')[0]: l.split()[1] for l in open('/proc/self/status') if l[:3] in ('Cap','NoN') or l.startswith('Seccomp:')})";
    for user in users() {
        let text = stdout(user, code);
        let none = "0000000000000000";
        assert!(text.starts_with("0\n"), "{user:?}: {text}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(text.contains(&format!("'{set}': '{none}'")), "{user:?}: {text}");
        }
        assert!(text.contains("'NoNewPrivs': '1'") && text.contains("'Seccomp': '2'"), "{user:?}: {text}");
    }
}

/// Every promise is reported with what keeps it, as root and as an ordinary user.
#[test]
fn every_guarantee_is_reported_with_its_mechanism() {
    let _tidy = Tidy;
    for user in users() {
        let result = run_json(user, "python", "print(1)", &[]);
        let guarantees = result["isolation"]["guarantees"].as_object().unwrap().clone();
        assert_eq!(guarantees.len(), 14, "{user:?}: {guarantees:?}");
        let is_kept = |kept: &Value| kept["by"].as_array().is_some_and(|list| !list.is_empty());
        assert!(guarantees.values().all(is_kept), "{user:?}: {guarantees:?}");
    }
}

/// The switches of the test build are not in the product: its walls stand whatever the environment says.
#[test]
fn the_product_has_no_switch() {
    let _tidy = Tidy;
    let code = "import ctypes\nprint(ctypes.CDLL(None).unshare(0x10000000), open('/proc/self/status').read().count('Seccomp:\\t2'))";
    for user in users() {
        let ended = Palisade::new(Build::Real, user, &["run", "python", "-c", code])
            .env("PALISADE_WALLS_OFF", "seccomp,landlock,root,network,verify")
            .end();
        assert_eq!(ended.stdout, "-1 1\n", "{user:?}: {}", ended.stderr);
    }
}
