//! Sandboxes that are built ahead: a run that takes one has its own limits, counts its own use, finds nothing of anybody
//! else, and never notices what became of the others.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use functional::{
    SOON, abandoned_cgroups, marked, marker, run_json, until, wait_for_no_new_abandoned_cgroups,
};
use harness::warm::{Warm, trivial};
use harness::{Build, Palisade, User, users};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

/// The promise: so long after the death of palisade nothing of it lives.
const AFTERLIFE: Duration = Duration::from_secs(2);

fn python(code: &str, limits: Value) -> Value {
    json!({"language": "python", "code": code, "limits": limits})
}

/// Process 1 of every sandbox of a server: the children of its spawner.
fn guests(server: u32) -> Vec<Pid> {
    let children = |pid: u32| -> Vec<u32> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        text.split_whitespace().map(|number| number.parse().unwrap()).collect()
    };
    let named = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "palisade-jail")
    };
    // Threads of the server have children of their own only if they fork, which they do not.
    let spawner = children(server).into_iter().find(named).expect("a spawner");
    children(spawner).into_iter().map(|pid| Pid::from_raw(pid as i32).unwrap()).collect()
}

fn is_alive(pid: Pid) -> bool {
    Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists()
}

fn stdout(result: &Value) -> &str {
    result["stdout"].as_str().unwrap_or_default().trim()
}

#[test]
fn a_run_after_another_takes_a_spare_in_every_language_that_is_here() {
    for user in users() {
        let warm = Warm::start(user);
        let offered = warm.server.call("get_capabilities", json!({}));
        let programs = [
            ("python", "print(6*7)"),
            ("bash", "echo $((6*7))"),
            ("javascript", "console.log(6*7)"),
            ("typescript", "const x: number = 6*7; console.log(x)"),
            ("ruby", "puts 6*7"),
            ("perl", "print 6*7, \"\\n\";"),
            ("lua", "print(6*7)"),
            ("tcl", "puts [expr {6*7}]"),
            ("awk", "BEGIN { print 6*7 }"),
            ("r", "cat(6*7, \"\\n\")"),
            ("php", "<?php echo 6*7, \"\\n\";"),
        ];
        let is_here = |name: &str| offered["languages"].to_string().contains(&format!("\"{name}\""));
        let here: Vec<_> = programs.into_iter().filter(|(language, _)| is_here(language)).collect();
        assert!(here.len() >= 2, "{offered:#}");
        for (language, code) in here {
            warm.warm_up(language, code);
            let result = warm.leased(json!({"language": language, "code": code}));
            assert_eq!(
                (result["outcome"].as_str(), stdout(&result)),
                (Some("completed"), "42"),
                "{result:#}"
            );
        }
    }
}

/// Tells every limit that a program can see.
const TELL: &str = "import os, resource\n\
for name in sorted(n for n in dir(resource) if n.startswith('RLIMIT_')):\n    try: print(name, resource.getrlimit(getattr(resource, name)))\n    except OSError as e: print(name, e)\n\
for place in ['/workspace', '/tmp', '/dev/shm', '/home/agent']:\n    s = os.statvfs(place)\n    print(place, s.f_blocks * s.f_frsize, s.f_files)\n\
print(len(os.listdir('/proc/self/fd')), os.getuid(), os.getgid(), os.getgroups(), os.getcwd())";

#[test]
fn the_limits_that_a_program_sees_are_those_of_one_that_had_its_sandbox_built() {
    let asked: [&[(&str, &str)]; 4] = [
        &[],
        &[("open-files", "64"), ("processes", "48"), ("timeout", "5s"), ("memory-mb", "128")],
        &[("open-files", "1024"), ("processes", "300"), ("timeout", "120s"), ("memory-mb", "1024")],
        &[("cpus", "0.5"), ("timeout", "1s")],
    ];
    for user in users() {
        let warm = Warm::start(user);
        for options in asked {
            let flags: Vec<String> =
                options.iter().flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()]).collect();
            let cold = run_json(user, "python", TELL, &flags.iter().map(String::as_str).collect::<Vec<_>>());
            let mut arguments = python(TELL, json!({}));
            for (name, value) in options {
                match *name {
                    "timeout" => {
                        arguments["timeout_ms"] =
                            json!(value.trim_end_matches('s').parse::<u64>().unwrap() * 1000);
                    }
                    name => {
                        let number: Value = serde_json::from_str(value).unwrap();
                        arguments["limits"][name.replace('-', "_")] = number;
                    }
                }
            }
            let leased = warm.leased(arguments);
            assert!(stdout(&cold).contains("RLIMIT_NOFILE"), "{cold:#}");
            assert_eq!(stdout(&leased), stdout(&cold), "as {user:?} with {options:?}");
        }
    }
}

/// The process that has this word for its name.
fn running(word: &str) -> Option<String> {
    marked(word)
        .iter()
        .find_map(|line| line.split_once(' ').filter(|(_, name)| name.starts_with(word))?.0.parse().ok())
}

/// What the host's control groups say about the sandbox of a process, by the names of either version.
fn group_limits(word: &str) -> [u64; 3] {
    let pid = until(SOON, "it runs", || running(word));
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let folder_of = |controller: &str| -> Option<PathBuf> {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (names, path) = (parts.next()?, parts.next()?);
            let mount = if names.is_empty() {
                "/sys/fs/cgroup".to_owned()
            } else {
                format!("/sys/fs/cgroup/{names}")
            };
            let is_meant = names.is_empty() && groups.lines().count() == 1
                || names.split(',').any(|name| name == controller);
            is_meant.then(|| Path::new(&mount).join(path.trim_start_matches('/')))
        })
    };
    let read = |controller: &str, files: [&str; 2]| -> u64 {
        let folder = folder_of(controller).unwrap_or_else(|| panic!("{controller}: {groups}"));
        let text = files.iter().find_map(|file| fs::read_to_string(folder.join(file)).ok()).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    };
    [
        read("memory", ["memory.limit_in_bytes", "memory.max"]) >> 20,
        read("pids", ["pids.max", "pids.max"]),
        read("cpu", ["cpu.cfs_quota_us", "cpu.max"]),
    ]
}

#[test]
fn control_groups_of_a_spare_get_the_limits_of_the_run_smaller_and_larger() {
    // An ordinary user has none here.
    for user in users().into_iter().filter(|user| *user == User::Root) {
        let warm = Warm::start(user);
        for (limits, expected) in [
            (json!({}), [512 + 256, 65, 100_000]),
            (json!({"memory_mb": 64, "processes": 16, "cpus": 0.25, "disk_mb": 8}), [72, 17, 25_000]),
            (json!({"memory_mb": 2048, "processes": 400, "cpus": 0.5, "disk_mb": 512}), [2560, 401, 50_000]),
        ] {
            warm.warm_up("bash", ":");
            let (word, before) = (marker("groups"), warm.hits());
            let code = format!("exec -a {word} sleep 3");
            std::thread::scope(|scope| {
                scope.spawn(|| warm.run(json!({"language": "bash", "code": code, "limits": limits.clone()})));
                assert_eq!(group_limits(&word), expected, "{limits}");
            });
            assert_eq!(warm.hits(), before + 1, "{limits}");
        }
        // The environment of a spare names one core, so a run with a larger share gets a sandbox of its own.
        let before = warm.hits();
        let result =
            warm.run(json!({"language": "bash", "code": "echo $OMP_NUM_THREADS", "limits": {"cpus": 2}}));
        assert_eq!((&result["stdout"], warm.hits()), (&json!("2\n"), before));
    }
}

#[test]
fn limits_of_the_call_end_a_leased_run_and_leave_room_where_more_was_asked_for() {
    let fill =
        "with open('/tmp/big', 'wb') as f:\n    for _ in range(MB): f.write(bytes(1 << 20))\nprint('ok')";
    let allocate = "x = bytearray(MB << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('ok')";
    let children = "import subprocess\nfor _ in range(N): subprocess.Popen(['sleep', '5'])\nprint('ok')";
    let files = "f = [open('/dev/null') for _ in range(N)]\nprint('ok')";
    let with = |code: &str, number: u64| {
        code.replace("MB", &number.to_string()).replace("(N)", &format!("({number})"))
    };
    let cases = [
        ("memory_mb", 64, with(allocate, 400), "out_of_memory"),
        ("memory_mb", 1024, with(allocate, 700), "completed"),
        ("processes", 8, with(children, 40), "process_limit"),
        ("processes", 200, with(children, 150), "completed"),
        ("disk_mb", 8, with(fill, 20), "disk_full"),
        ("disk_mb", 512, with(fill, 300), "completed"),
        ("open_files", 64, with(files, 100), "failed"),
        ("open_files", 1024, with(files, 600), "completed"),
    ];
    for user in users() {
        let warm = Warm::start(user);
        for (name, value, code, outcome) in &cases {
            // Memory that is not touched by files: without groups the kernel counts both apart.
            let mut limits = json!({*name: value});
            if *outcome == "out_of_memory" && user == User::Root {
                limits["disk_mb"] = json!(8);
            }
            warm.warm_up("python", trivial("python"));
            let before = warm.hits();
            let result = warm.run(python(code, limits));
            assert_eq!(result["outcome"], *outcome, "{name} {value} as {user:?}: {result:#}");
            // An ordinary user cannot give a sandbox that stands another disk; that run has its own built.
            let is_leased = warm.hits() == before + 1;
            assert_eq!(is_leased, user == User::Root || *name != "disk_mb", "{name} {value} as {user:?}");
        }
        let mut slow = python("import time\ntime.sleep(30)", json!({}));
        slow["timeout_ms"] = json!(300);
        assert_eq!(warm.leased(slow)["outcome"], "timed_out", "as {user:?}");
        let mut busy = python("while True: pass", json!({"cpus": 0.5}));
        busy["timeout_ms"] = json!(1000);
        let result = warm.leased(busy);
        assert_eq!(result["outcome"], "timed_out", "as {user:?}: {result:#}");
        let cpu_ms = result["usage"]["cpu_ms"].as_f64().unwrap();
        assert!(user == User::Ordinary || cpu_ms < 800.0, "{cpu_ms} ms of half a core in a second");
    }
}

#[test]
fn use_is_counted_from_the_lease_on() {
    for user in users() {
        let warm = Warm::start(user);
        let greedy = "import time\nx = bytearray(150 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\n\
                      t = time.process_time()\nwhile time.process_time() - t < 0.4: pass\nprint('ok')";
        let first = warm.leased(python(greedy, json!({})));
        let usage = |result: &Value, name: &str| result["usage"][name].as_f64().unwrap();
        assert!(usage(&first, "cpu_ms") > 350.0, "as {user:?}: {first:#}");
        assert!(usage(&first, "memory_peak_bytes") > 150e6, "as {user:?}: {first:#}");
        let next = warm.leased(python("print('ok')", json!({})));
        assert!(usage(&next, "cpu_ms") < 300.0, "as {user:?}: {next:#}");
        assert!(usage(&next, "memory_peak_bytes") < 100e6, "as {user:?}: {next:#}");
    }
}

/// Leaves traces of every kind.
const LEAVE: &str = "import ctypes, os, subprocess\n\
for place in ['/workspace', '/tmp', '/dev/shm', '/home/agent']: open(place + '/trace', 'w').write(WORD)\n\
libc = ctypes.CDLL(None)\nlibc.shmget(0x7654, 4096, 0o1666)\nlibc.msgget(0x7654, 0o1666)\nlibc.semget(0x7654, 1, 0o1666)\n\
subprocess.Popen(['sleep', '300'], start_new_session=True)\nprint('left')";

/// Looks for them.
const LOOK: &str = "import ctypes, os\nfound = []\n\
for place in ['/workspace', '/tmp', '/dev/shm', '/home/agent']: found += [n for n in os.listdir(place) if n != 'main.py']\n\
libc = ctypes.CDLL(None)\n\
if libc.shmget(0x7654, 4096, 0) >= 0: found.append('memory')\nif libc.msgget(0x7654, 0) >= 0: found.append('queue')\n\
if libc.semget(0x7654, 1, 0) >= 0: found.append('semaphore')\n\
found += [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())]\nprint(found)";

#[test]
fn one_run_leaves_nothing_to_the_next() {
    for user in users() {
        let warm = Warm::start(user);
        let with_word = |code: &str| {
            let mut arguments = python(code, json!({}));
            arguments["variables"] = json!({"WORD": "trace"});
            arguments
        };
        for _ in 0..3 {
            assert_eq!(stdout(&warm.leased(with_word(LEAVE))), "left");
            let looked = warm.leased(with_word(LOOK));
            assert_eq!(stdout(&looked), "[]", "as {user:?}: {looked:#}");
        }
    }
}

#[test]
fn spares_that_were_killed_are_replaced_and_nobody_notices() {
    for user in users() {
        let warm = Warm::start(user);
        warm.warm_up("bash", ":");
        until(SOON, "two are ready", || (warm.spares("bash") >= 2).then_some(()));
        for guest in guests(warm.server.pid()) {
            rustix::process::kill_process(guest, Signal::KILL).unwrap();
        }
        let result = warm.run(json!({"language": "bash", "code": "echo ok"}));
        assert_eq!(stdout(&result), "ok", "as {user:?}: {result:#}");
        // One of them may have been taken while it died.
        until(SOON, "the dead are swept", || (warm.discards("dead") >= 1).then_some(()));
        until(SOON, "others are ready", || (warm.spares("bash") >= 2).then_some(()));
        assert_eq!(stdout(&warm.leased(json!({"language": "bash", "code": "echo ok"}))), "ok");
    }
}

/// The interpreters of all spares, and their guests.
fn everybody(server: u32) -> Vec<Pid> {
    let mut found: Vec<Pid> = guests(server);
    let mut next = 0;
    while next < found.len() {
        let pid = found[next].as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        found.extend(children.split_whitespace().filter_map(|number| Pid::from_raw(number.parse().ok()?)));
        next += 1;
    }
    found
}

fn all_gone(pids: &[Pid]) {
    until(AFTERLIFE, "a spare lives after its server", || {
        pids.iter().all(|pid| !is_alive(*pid)).then_some(())
    });
}

#[test]
fn a_server_that_is_killed_or_ends_takes_its_spares_along() {
    for user in users() {
        let abandoned = abandoned_cgroups();
        for is_killed in [true, false] {
            let mut warm = Warm::start(user);
            for language in ["python", "bash"] {
                warm.warm_up(language, trivial(language));
            }
            let spares = everybody(warm.server.pid());
            assert!(spares.len() >= 4, "{spares:?}");
            if is_killed {
                warm.server.kill()
            } else {
                warm.server.end()
            }
            all_gone(&spares);
        }
        assert_eq!(run_json(user, "bash", "echo ok", &[])["stdout"], "ok\n");
        wait_for_no_new_abandoned_cgroups(&abandoned);
    }
}

#[test]
fn a_client_that_leaves_takes_its_spares_along() {
    for user in users() {
        let client = harness::mcp::Client::new(user);
        client.call("run", json!({"language": "bash", "code": ":"}));
        let server = client.pid();
        until(SOON, "spares are there", || (guests(server).len() >= 2).then_some(()));
        let spares = everybody(server);
        assert!(client.end().success());
        all_gone(&spares);
    }
}

#[test]
fn a_single_run_and_a_pool_that_is_off_build_nothing_ahead() {
    for user in users() {
        let word = marker("single");
        let code = format!("exec -a {word} sleep 2");
        let mut child =
            Palisade::new(Build::Real, user, &["run", "bash", "-c", &code]).into_command().spawn().unwrap();
        until(SOON, "it runs", || running(&word));
        assert_eq!(guests(child.id()).len(), 1, "as {user:?}");
        child.wait().unwrap();
        let warm = Warm::start_with(user, &[("PALISADE_POOL_ENABLED", "false")]);
        for _ in 0..3 {
            assert_eq!(stdout(&warm.run(json!({"language": "bash", "code": "echo ok"}))), "ok");
        }
        // The sandbox of the last run is taken down behind its answer.
        until(SOON, "no sandbox is left", || guests(warm.server.pid()).is_empty().then_some(()));
        assert_eq!(warm.hits(), 0, "as {user:?}");
    }
}

#[test]
fn groups_that_are_used_again_count_and_limit_anew() {
    const LARGE: &str =
        "x = bytearray(90 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nsum(range(3000000))";
    const BEYOND: &str = "x = bytearray(700 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1";
    for user in users() {
        let warm = Warm::start(user);
        warm.warm_up("python", "print(1)");
        for _ in 0..6 {
            let large = warm.leased(python(LARGE, json!({"memory_mb": 512})));
            assert_eq!(large["outcome"], "completed", "{large:#}");
            assert!(large["usage"]["memory_peak_bytes"].as_u64().unwrap() > 90 << 20, "{large:#}");
            for _ in 0..3 {
                let small = warm.leased(python("print(1)", json!({})));
                let peak = small["usage"]["memory_peak_bytes"].as_u64().unwrap();
                assert!(peak < 60 << 20, "as {user:?}: an earlier program's memory is counted: {small:#}");
                let cpu_ms = small["usage"]["cpu_ms"].as_f64().unwrap();
                let large_ms = large["usage"]["cpu_ms"].as_f64().unwrap();
                assert!(cpu_ms < large_ms, "as {user:?}: an earlier program's time is counted: {small:#}");
            }
            let beyond = warm.leased(python(BEYOND, json!({"memory_mb": 64})));
            assert_ne!(beyond["outcome"], "completed", "as {user:?}: an earlier limit holds: {beyond:#}");
        }
    }
}

/// What is counted for a session as a whole must not be counted for whoever has its groups next.
#[test]
fn what_was_killed_in_a_session_is_not_told_to_strangers() {
    const FAIL: &str = "raise SystemExit(3)";
    for user in users() {
        let warm = Warm::start(user);
        warm.warm_up("python", "print(1)");
        for _ in 0..3 {
            let opened = warm.server.call("sandbox_open", json!({"limits": {"memory_mb": 64, "disk_mb": 8}}));
            let id = opened["sandbox_id"].as_str().expect("a sandbox").to_owned();
            for code in ["x = bytearray(300 << 20)", "print(2)"] {
                warm.run(json!({"language": "python", "code": code, "sandbox_id": id}));
            }
            warm.server.call("sandbox_close", json!({"sandbox_id": id}));
            for _ in 0..8 {
                let result = warm.run(python(FAIL, json!({})));
                assert_eq!(result["outcome"], "failed", "as {user:?}: {result:#}");
            }
        }
    }
}

#[test]
fn runs_leave_no_descriptors_in_the_server() {
    let warm = Warm::start(users()[0]);
    warm.warm_up("python", "print(1)");
    let open = || fs::read_dir(format!("/proc/{}/fd", warm.server.pid())).unwrap().count();
    let run = |count: usize| (0..count).for_each(|_| drop(warm.run(python("print(1)", json!({})))));
    // Each spare has some two dozen, and they are built again after the runs: counted when that is over.
    let settled = || {
        let mut seen = (0, 0);
        until(SOON, "the descriptors stay as many", || {
            let now = open();
            seen = if now == seen.0 { (now, seen.1 + 1) } else { (now, 0) };
            (seen.1 > 50).then_some(now)
        })
    };
    // How many spares are kept follows the demand, which has to become steady first.
    let counts = [(); 6].map(|()| {
        run(200);
        settled()
    });
    // One descriptor left by each run would be 200 more; on a busy machine some more spares are kept.
    let most = counts[..5].iter().max().unwrap();
    assert!(counts[5] < most + 150, "{counts:?} descriptors after each 200 runs");
}
