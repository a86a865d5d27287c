//! Sandboxes that are clones of a warm interpreter: nothing is shared that must not be, and nobody can reach what they came
//! from.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use functional::{SOON, until};
use harness::warm::Warm;
use harness::{User, users};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

/// How often a run is tried until it comes from a zygote, which is started while the first ones are served.
const TRIES_MAX: usize = 400;
/// What an interpreter holds, and what it opens to look around.
const STREAMS_AND_CHANNEL: usize = 6;
/// A zygote has loaded what a program finds there only if it loads it itself.
const FROM_ZYGOTE: &str = "int('datetime' in __import__('sys').modules)";

fn python(code: &str) -> Value {
    json!({"language": "python", "code": code})
}

fn stdout(result: &Value) -> String {
    assert_eq!(result["outcome"], "completed", "{result:#}");
    result["stdout"].as_str().unwrap().trim().to_owned()
}

/// Runs programs until one is in a clone of a zygote.
fn until_zygote(warm: &Warm) {
    for _ in 0..TRIES_MAX {
        if stdout(&warm.run(python(&format!("print({FROM_ZYGOTE})")))) == "1" {
            return;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("as {:?}: no run came from a zygote", warm.user);
}

/// A run in a clone. Spares that were built before there was a zygote may still be left.
fn cloned(warm: &Warm, code: &str) -> String {
    for _ in 0..TRIES_MAX {
        let said = stdout(&warm.run(python(&format!("{code}\nprint({FROM_ZYGOTE})"))));
        let (said, from_zygote) = said.rsplit_once('\n').unwrap_or(("", &said));
        if from_zygote == "1" {
            return said.to_owned();
        }
    }
    panic!("as {:?}: no run came from a zygote", warm.user);
}

/// A sandbox that lasts whose interpreters are clones.
fn open_cloned(warm: &Warm) -> String {
    for _ in 0..TRIES_MAX {
        let opened = warm.server.call("sandbox_open", json!({}));
        let id = opened["sandbox_id"].as_str().expect("a sandbox").to_owned();
        if stdout(&run_in(warm, &id, &format!("print({FROM_ZYGOTE})"))) == "1" {
            return id;
        }
        warm.server.call("sandbox_close", json!({"sandbox_id": id}));
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("as {:?}: no sandbox came from a zygote", warm.user);
}

fn run_in(warm: &Warm, id: &str, code: &str) -> Value {
    warm.run(json!({"language": "python", "code": code, "sandbox_id": id}))
}

/// Children of a process, whichever of its threads made them.
fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children")));
    lists
        .flatten()
        .flat_map(|list| list.split_whitespace().map(|n| n.parse().unwrap()).collect::<Vec<u32>>())
        .collect()
}

/// The zygotes of a server: children of its spawner that were started as such.
fn zygotes(server: u32) -> Vec<u32> {
    let is_zygote = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.windows(8).any(|part| part == b"\0zygote\0"))
    };
    children(server).into_iter().flat_map(children).filter(is_zygote).collect()
}

#[test]
fn no_random_stream_name_or_number_is_shared_between_clones() {
    const DRAW: &str = "import random, os, uuid, tempfile, secrets\n\
        print(random.random(), random.getrandbits(64), os.urandom(8).hex(), uuid.uuid4(), \
        secrets.token_hex(8), os.path.basename(tempfile.mktemp()), open('/proc/sys/kernel/random/boot_id').read().strip())";
    for user in users() {
        let warm = Warm::start(user);
        until_zygote(&warm);
        let mut seen = BTreeSet::new();
        for _ in 0..20 {
            let drawn = cloned(&warm, DRAW);
            for (place, word) in drawn.split(' ').enumerate() {
                assert!(seen.insert((place, word.to_owned())), "as {user:?}: {word} came twice");
            }
        }
    }
}

#[test]
fn a_clone_has_the_descriptors_environment_and_names_of_a_program_that_was_started() {
    const TELL: &str = "import os, sys, signal\n\
        print(sorted(os.listdir('/proc/self/fd')), sorted(os.environ.items()), sys.argv, sys.flags, sys.orig_argv[-1])\n\
        print(sys.stdin.seekable(), sys.stdout.isatty(), sys.stdout.line_buffering, sys.stdout.encoding, __name__, __file__)\n\
        print([signal.getsignal(n) for n in (2, 13, 15, 17)], os.getcwd(), os.getpid(), os.getppid(), os.getuid(), os.getgid())\n\
        print(sorted(k for k in globals() if not k.startswith('__')), os.umask(0), os.nice(0), os.sched_getaffinity(0))\n\
        print([l.split()[4] for l in sorted(open('/proc/self/mountinfo'), key=lambda l: l.split()[4])])\n\
        print([l for l in open('/proc/self/status') if l[:3] in ('Cap', 'NoN', 'Sec', 'Sig', 'Shd')])";
    for user in users() {
        let warm = Warm::start(user);
        let started = functional::run_json(user, "python", TELL, &[]);
        until_zygote(&warm);
        assert_eq!(cloned(&warm, TELL), stdout(&started), "as {user:?}");
    }
}

#[test]
fn a_clone_can_neither_see_nor_signal_nor_trace_nor_read_what_it_came_from() {
    const REACH: &str = "import os, ctypes\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        pids = sorted(int(p) for p in os.listdir('/proc') if p.isdigit())\n\
        status = dict(l.split(':', 1) for l in open('/proc/1/status'))\n\
        def tried(name, work):\n    try: work(); print('REACHED', name)\n    except OSError as e: pass\n\
        print('pids', pids == [1, os.getpid()], 'parent', status['PPid'].strip())\n\
        for name in ('mem', 'maps', 'environ', 'fd/3', 'exe', 'root', 'ns/user'):\n    \
            tried('/proc/1/' + name, lambda: os.readlink('/proc/1/' + name) if name[:2] in ('fd', 'ex', 'ro', 'ns') else open('/proc/1/' + name, 'rb').read(1))\n\
        for pid in range(1, 5000):\n    \
            if pid not in pids: tried('kill %d' % pid, lambda: os.kill(pid, 0))\n\
        for call, args in ((101, (16, 1, 0, 0)), (310, (1, 0, 0, 0, 0, 0)), (308, (3, 0)), (438, (3, 3, 0)), (312, (1, 1, 0, 0, 0))):\n    \
            if libc.syscall(call, *args) != -1: print('REACHED call', call)\n\
        print(*(len(os.listdir(p)) if os.path.exists(p) else 0 for p in ('/.staging', '/.workspaces')))";
    for user in users() {
        let warm = Warm::start(user);
        until_zygote(&warm);
        assert_eq!(cloned(&warm, REACH), "pids True parent 0\n0 0", "as {user:?}");
    }
}

#[test]
fn a_zygote_that_dies_takes_its_clones_along_and_nobody_who_comes_later_notices() {
    for user in users() {
        let warm = Warm::start(user);
        until_zygote(&warm);
        let zygote = zygotes(warm.server.pid()).pop().expect("a zygote");
        let clones = children(zygote);
        rustix::process::kill_process(Pid::from_raw(zygote as i32).unwrap(), Signal::KILL).unwrap();
        until(SOON, "the clones are gone", || {
            clones.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
        });
        for _ in 0..5 {
            assert_eq!(stdout(&warm.run(python("print(6*7)"))), "42");
        }
    }
}

#[test]
fn a_zygote_has_no_privilege_network_or_secret_of_the_host() {
    for user in users() {
        let warm = Warm::start(user);
        until_zygote(&warm);
        let zygote = zygotes(warm.server.pid()).pop().expect("a zygote");
        let read = |name: &str| fs::read_to_string(format!("/proc/{zygote}/{name}")).unwrap();
        let status = read("status");
        let line =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        assert_eq!((line("NoNewPrivs:").as_str(), line("Threads:").as_str()), ("1", "1"));
        assert!(!line("Uid:").split_whitespace().any(|id| id == "0"), "it is root outside");
        for namespace in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
            let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{namespace}")).unwrap();
            assert_ne!(of(&zygote.to_string()), of("self"), "{namespace}");
        }
        let interfaces = read("net/dev")
            .lines()
            .skip(2)
            .filter(|line| !line.contains(": ") || !line.contains(" 0 "))
            .count();
        assert_eq!(interfaces, 0, "{}", read("net/dev"));
        let writable: Vec<String> = read("mountinfo")
            .lines()
            .map(|line| line.split(' ').skip(4).take(2).map(str::to_owned).collect::<Vec<_>>())
            .filter(|mount| !mount[1].split(',').any(|option| option == "ro"))
            .map(|mount| mount[0].clone())
            .collect();
        let own = ["/proc", "/tmp", "/home/agent", "/dev/shm", "/workspace", "/.workspaces"];
        assert!(writable.iter().all(|point| own.contains(&point.as_str())), "{writable:?}");
        let names = read("environ");
        assert!(!names.contains("PALISADE") && !names.contains("SECRET"), "{names:?}");
        // It has those of a copy for the moment in which it makes one.
        let descriptors = || fs::read_dir(format!("/proc/{zygote}/fd")).unwrap().count();
        until(SOON, "only its streams and its requests are open", || (descriptors() <= 4).then_some(()));
    }
}

#[test]
fn programs_that_bring_a_module_of_the_name_of_a_package_get_their_own() {
    for user in users() {
        let warm = Warm::start(user);
        for _ in 0..3 {
            let input = json!([{"path": "numpy.py", "text": "mine = 6 * 7"}]);
            let result = warm.run(
                json!({"language": "python", "code": "import numpy\nprint(numpy.mine)", "inputs": input}),
            );
            assert_eq!(stdout(&result), "42", "as {user:?}");
        }
    }
}

/// An environment beneath /tmp with a package of its own, and the PATH that selects it. `None` where the system's
/// Python cannot make one.
fn environment_beneath_tmp(user: User) -> Option<String> {
    let place = functional::own_folder(user, "venv");
    assert!(place.starts_with("/tmp"), "{}", place.display());
    let make = ["-m", "venv", "--without-pip", "--clear", place.to_str().unwrap()];
    let made = std::process::Command::new("/usr/bin/python3").args(make).output();
    if !made.is_ok_and(|made| made.status.success()) {
        eprintln!("SKIPPED: /usr/bin/python3 makes no virtual environment");
        return None;
    }
    let library = fs::read_dir(place.join("lib")).unwrap().next().unwrap().unwrap().path();
    fs::write(library.join("site-packages/only_there.py"), "answer = 42").unwrap();
    Some(format!("{}:/usr/local/bin:/usr/bin:/bin", place.join("bin").display()))
}

#[test]
fn packages_of_an_interpreter_beneath_tmp_stay_visible() {
    const USE: &str = "import only_there; print(only_there.answer)";
    // A zygote would be ready long before the last one.
    const RUNS: usize = 80;
    for user in users() {
        let Some(path) = environment_beneath_tmp(user) else { return };
        let warm = Warm::start_with(user, &[("PATH", path.as_str())]);
        for number in 0..RUNS {
            let result = warm.run(python(USE));
            assert_eq!(result["stdout"], "42\n", "as {user:?}, run {number}: {result:#}");
            if number % 8 == 0 {
                let opened = warm.server.call("sandbox_open", json!({}));
                let id = opened["sandbox_id"].as_str().expect("a sandbox").to_owned();
                let result = run_in(&warm, &id, USE);
                assert_eq!(result["stdout"], "42\n", "as {user:?}, sandbox {number}: {result:#}");
                warm.server.call("sandbox_close", json!({"sandbox_id": id}));
            }
            std::thread::sleep(Duration::from_millis(25));
        }
    }
}

/// A process that an earlier run left behind looks at every new copy of the interpreter, as early as it can be seen.
const LIE_IN_WAIT: &str = "import os, sys\n\
open('/workspace/most', 'w').write('0')\n\
if os.fork() == 0:\n    \
    os.setsid(); most = 0\n    \
    deadline = __import__('time').time() + 8\n    \
    while __import__('time').time() < deadline:\n        \
        for pid in os.listdir('/proc'):\n            \
            if pid.isdigit() and int(pid) not in (1, os.getpid(), os.getppid()):\n                \
                try:\n                    \
                    held = os.listdir('/proc/%s/fd' % pid)\n                    \
                    if len(held) > most:\n                        \
                        most = len(held); open('/workspace/new', 'w').write(str(most)); os.replace('/workspace/new', '/workspace/most')\n                \
                except OSError: pass\n    \
    os._exit(0)\n\
print('waiting')";

#[test]
fn a_copy_shows_nothing_of_the_guest_to_who_lies_in_wait() {
    const STARTED: usize = 5;
    for user in users() {
        let warm = Warm::start(user);
        let id = open_cloned(&warm);
        assert_eq!(stdout(&run_in(&warm, &id, LIE_IN_WAIT)), "waiting");
        // Each end of the interpreter is followed by a new copy.
        for _ in 0..STARTED {
            run_in(&warm, &id, "import os; os._exit(3)");
            assert_eq!(stdout(&run_in(&warm, &id, "print(1)")), "1", "as {user:?}");
        }
        let seen = stdout(&run_in(&warm, &id, "print(open('/workspace/most').read())"));
        let seen: usize = seen.parse().expect("it looked");
        assert!(seen <= STREAMS_AND_CHANNEL, "as {user:?}: a copy was seen with {seen} descriptors");
    }
}

#[test]
fn sandboxes_of_one_zygote_have_no_stream_in_common() {
    for user in users() {
        let warm = Warm::start(user);
        until_zygote(&warm);
        let zygote = zygotes(warm.server.pid()).pop().expect("a zygote");
        let clones = until(SOON, "there are spares", || {
            // Each run takes a spare, and the next one is a clone.
            warm.run(python("1"));
            let is_complete = |pid: &u32| {
                fs::read_to_string(format!("/proc/{pid}/status"))
                    .is_ok_and(|status| status.contains("Seccomp:\t2"))
            };
            let clones: Vec<u32> = children(zygote).into_iter().filter(is_complete).collect();
            (clones.len() >= 2).then_some(clones)
        });
        for clone in clones {
            for number in 0..=2 {
                let Ok(stream) = fs::read_link(format!("/proc/{clone}/fd/{number}")) else { continue };
                assert_eq!(stream, std::path::Path::new("/dev/null"), "as {user:?}, stream {number}");
            }
        }
    }
}

#[test]
fn a_zygote_that_does_not_answer_is_done_without() {
    for user in users() {
        let warm = Warm::start(user);
        until_zygote(&warm);
        for zygote in zygotes(warm.server.pid()) {
            rustix::process::kill_process(Pid::from_raw(zygote as i32).unwrap(), Signal::STOP).unwrap();
        }
        for _ in 0..4 {
            assert_eq!(stdout(&warm.run(python("print(6*7)"))), "42", "as {user:?}");
        }
    }
}

/// What a program sees of its network before it uses it, and how it then uses it.
const LOOK_AROUND: &str = "import os, socket, zlib\n\
def shown(name): return open('/proc/net/' + name).read()\n\
print(os.readlink('/proc/self/ns/net'), zlib.crc32((shown('dev') + shown('snmp') + shown('snmp6') + shown('netstat') + shown('ip6_flowlabel')).encode()), \
shown('unix').count('@') + shown('unix').count('/'), len(shown('tcp').split('\\n')), len(shown('udp').split('\\n')))\n";
/// Whether a port is free, of every kind; nothing is sent.
const BIND: &str = "def is_free(family, kind):\n    s = socket.socket(family, kind)\n    try: s.bind(('::' if family == 10 else '0.0.0.0', 8080)); return 1\n\
\x20   except OSError: return 0\n    finally: s.close()\n\
print([is_free(family, kind) for family in (2, 10) for kind in (1, 2)])\n";
/// A socket with a port at the end of a chain of others, each on its way through the next: the kernel frees one after the other.
const CHAIN: &str = "import array\n\
def send(over, *what): over.sendmsg([b'x'], [(1, 1, array.array('i', [w.fileno() for w in what]))])\n\
x = socket.socket(10, 1); x.bind(('::', 8080)); x.listen(5)\n\
a, b = socket.socketpair()\n\
try:\n    for i in range(100): p, q = socket.socketpair(); send(p, x); p.close(); x.close(); x = q\n\
\x20   send(a, a, b, x); send(b, a, b); x.close()\n\
except OSError: pass  # as many as a user may have on their way";
const USES: [&str; 6] = [
    CHAIN,
    "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('127.0.0.1', 9))",
    "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ntry: s.sendto(b'x', ('192.0.2.1', 9))\nexcept OSError: pass",
    "s = socket.socket(socket.AF_UNIX); s.bind('\\0trace'); s.listen()",
    "a = socket.create_server(('127.0.0.1', 7654)); b = socket.create_connection(('127.0.0.1', 7654)); a.accept()[0].close(); b.close()",
    "try:\n    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.sendto(b'x', ('2001:db8::1', 9))\nexcept OSError: pass",
];

/// The namespace, and everything that could tell what happened in it.
fn network(warm: &Warm, then: &str) -> (String, String) {
    let said = cloned(warm, &format!("{LOOK_AROUND}{BIND}{then}"));
    let (namespace, traces) = said.split_once(' ').unwrap();
    (namespace.to_owned(), traces.to_owned())
}

#[test]
fn a_network_is_used_again_only_if_nothing_happened_in_it() {
    for user in users() {
        let warm = Warm::start(user);
        until_zygote(&warm);
        let unused: Vec<_> = (0..40).map(|_| network(&warm, "")).collect();
        let namespaces: BTreeSet<_> = unused.iter().map(|(namespace, _)| namespace).collect();
        assert!(namespaces.len() < unused.len(), "as {user:?}: none was used again");
        let new = &unused[0].1;
        assert!(new.contains("[1, 1, 1, 1]"), "{new}");
        for round in 0..8 {
            for how in USES {
                let (_, traces) = network(&warm, how);
                assert_eq!(
                    &traces, new,
                    "as {user:?}, round {round}: something is left of an earlier program"
                );
            }
        }
        let (_, traces) = network(&warm, "");
        assert_eq!(&traces, new, "as {user:?}");
    }
}
