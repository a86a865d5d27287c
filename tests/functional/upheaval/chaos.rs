//! Palisade, its spawner or its guest die at the worst moment; readers vanish; many start at once. Nothing may
//! survive, nobody else may be disturbed, and whoever asked gets an answer.
//!
//! The marker is in the command line of palisade itself, so it finds the spawner and the guest too.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use functional::{
    Chance, Live, SOON, abandoned_cgroups, is_quick, marked, marker, run_plain, until,
    wait_for_no_new_abandoned_cgroups,
};
use harness::{Build, Palisade, User, users};
use rustix::process::{Pid, Signal};

/// The promise: so long after the death of palisade nothing of it lives.
const AFTERLIFE: Duration = Duration::from_secs(2);
const INTERRUPTED: Option<i32> = Some(130);

/// Daemons of several kinds, then a word, then more work.
fn restless(word: &str) -> String {
    format!(
        "trap '' TERM INT HUP; for i in 1 2 3; do setsid bash -c 'trap \"\" TERM INT HUP; exec -a {word} sleep 1000' & done\n\
         (exec -a {word} sleep 1000 >/dev/null 2>&1 </dev/null) & echo ready; while :; do (exec -a {word} sleep 0.01); done"
    )
}

fn start(user: User, code: &str) -> Live {
    Live::start(Palisade::new(Build::Real, user, &["run", "bash", "-c", code]))
}

fn start_ready(user: User, word: &str) -> Live {
    let mut live = start(user, &restless(word));
    assert_eq!(live.line(), "ready");
    until(SOON, "its daemons run", || (marked(word).len() >= 6).then_some(()));
    live
}

fn all_dead(word: &str, patience: Duration) {
    let deadline = Instant::now() + patience;
    loop {
        let alive = marked(word);
        if alive.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "alive after {patience:?}: {alive:#?}");
        std::thread::yield_now();
    }
}

fn mounts() -> usize {
    harness::baseline::look("\u{0}").mounts
}

#[test]
fn nothing_survives_a_palisade_that_is_killed_at_any_moment() {
    let (mounts_before, abandoned) = (mounts(), abandoned_cgroups());
    let mut chance = Chance::new(0xc4a05);
    for user in users() {
        run_plain(user, "bash", "true", &[]);
        for round in 0..if is_quick() { 10 } else { 40 } {
            let word = marker("killed");
            let mut live = start(user, &restless(&word));
            // Not to wait for anything: the moment itself is the dice.
            std::thread::sleep(Duration::from_micros(chance.any() % 60_000));
            live.signal(Signal::KILL);
            live.wait(SOON);
            all_dead(&word, AFTERLIFE);
            assert!(mounts() <= mounts_before, "round {round} as {user:?} left a mount");
        }
    }
    // Later starts sweep what the killed ones left; a group made a moment ago may belong to one that is starting.
    until(SOON, "later starts sweep the cgroups of killed ones", || {
        for user in users() {
            assert_eq!(run_plain(user, "bash", "echo ok", &[]).stdout, "ok\n");
        }
        abandoned_cgroups().is_subset(&abandoned).then_some(())
    });
}

#[test]
fn a_killed_palisade_whose_daemons_run_takes_them_along() {
    for user in users() {
        let word = marker("daemons");
        let mut live = start_ready(user, &word);
        live.signal(Signal::KILL);
        live.wait(SOON);
        all_dead(&word, AFTERLIFE);
    }
}

#[test]
fn the_death_of_the_spawner_is_answered() {
    for user in users() {
        let word = marker("spawner");
        let live = start_ready(user, &word);
        let spawner = live.spawner().expect("a child named palisade-jail");
        rustix::process::kill_process(spawner, Signal::KILL).unwrap();
        let (status, stderr) = live.end(SOON);
        assert_eq!(status.code(), Some(125), "{stderr}");
        assert!(stderr.contains("palisade: "), "{stderr}");
        all_dead(&word, AFTERLIFE);
    }
}

#[test]
fn the_death_of_the_guest_is_answered() {
    for user in users() {
        let word = marker("guest");
        let live = start_ready(user, &word);
        let spawner = live.spawner().unwrap().as_raw_nonzero();
        let children = std::fs::read_to_string(format!("/proc/{spawner}/task/{spawner}/children")).unwrap();
        let guest =
            children.split_whitespace().next().and_then(|pid| Pid::from_raw(pid.parse().ok()?)).unwrap();
        rustix::process::kill_process(guest, Signal::KILL).unwrap();
        let (status, stderr) = live.end(SOON);
        assert_eq!(status.code(), Some(125), "{stderr}");
        assert!(stderr.contains("ended unexpectedly"), "{stderr}");
        all_dead(&word, AFTERLIFE);
    }
}

#[test]
fn a_signal_to_palisade_ends_the_run_and_everything_in_it() {
    let abandoned = abandoned_cgroups();
    for user in users() {
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let word = marker("signal");
            let live = start_ready(user, &word);
            live.signal(signal);
            let (status, stderr) = live.end(SOON);
            assert_eq!(status.code(), INTERRUPTED, "{signal:?}: {stderr}");
            assert!(stderr.contains("cancelled"), "{stderr}");
            assert_eq!(marked(&word), Vec::<String>::new(), "alive when the answer was given");
        }
    }
    wait_for_no_new_abandoned_cgroups(&abandoned);
}

#[test]
fn a_signal_at_any_moment_ends_palisade_soon() {
    let mut chance = Chance::new(0x51641);
    for user in users() {
        for _ in 0..if is_quick() { 5 } else { 20 } {
            let word = marker("any-moment");
            let mut live = start(user, &restless(&word));
            std::thread::sleep(Duration::from_micros(chance.any() % 30_000));
            live.signal(Signal::TERM);
            // Before it listens for signals the kernel's own rule applies, and there is nothing to tidy yet.
            let status = live.wait(Duration::from_secs(5));
            let by_rule = std::os::unix::process::ExitStatusExt::signal(&status) == Some(15);
            assert!(by_rule || status.code() == INTERRUPTED, "{status}");
            all_dead(&word, AFTERLIFE);
        }
    }
}

#[test]
fn a_signal_ends_a_palisade_whose_reader_stands_still() {
    for user in users() {
        let word = marker("still");
        let mut live = Live::start(Palisade::new(
            Build::Real,
            user,
            &["run", "bash", "--output-kb", "16000", "-c", &format!("yes {word}")],
        ));
        assert_eq!(live.line(), word);
        // Until nothing moves any more: the pipe is full.
        let pid = live.pid().as_raw_nonzero();
        until(SOON, "it waits for its reader", || {
            // One of its threads writes.
            let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            let mut places = threads.map(|thread| std::fs::read_to_string(thread.path().join("wchan")));
            places.any(|place| place.is_ok_and(|name| name.contains("pipe"))).then_some(())
        });
        live.signal(Signal::TERM);
        let status = live.wait(Duration::from_secs(10));
        assert_eq!(status.code(), INTERRUPTED);
        all_dead(&word, AFTERLIFE);
    }
}

#[test]
fn a_reader_that_leaves_does_not_break_palisade() {
    for user in users() {
        let word = marker("leaves");
        let code = format!("while :; do echo line; done # {word}");
        let mut live =
            Live::start(Palisade::new(Build::Real, user, &["run", "bash", "--timeout", "5s", "-c", &code]));
        assert_eq!(live.line(), "line");
        live.close_stdout();
        let (status, stderr) = live.end(SOON);
        // Ended by a limit, or as a pipe's writer customarily is.
        assert!(matches!(status.code(), Some(122 | 124 | 141)), "{status} {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        all_dead(&word, AFTERLIFE);
    }
}

#[test]
fn closed_standard_streams_do_no_harm() {
    for user in users() {
        let folder = functional::own_folder(user, "closed");
        for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
            let palisade = Palisade::new(
                Build::Real,
                user,
                &[
                    "run",
                    "bash",
                    "--output-dir",
                    folder.to_str().unwrap(),
                    "-c",
                    "cat; echo out; echo err >&2; echo made > file",
                ],
            );
            let inner = palisade.into_command();
            let mut outer = Command::new("/bin/sh");
            outer
                .arg("-c")
                .arg(format!("exec \"$0\" \"$@\" {closed}"))
                .arg(inner.get_program())
                .args(inner.get_args())
                .env_clear();
            for (name, value) in inner.get_envs() {
                outer.env(name, value.unwrap_or_default());
            }
            outer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = outer.current_dir("/").spawn().unwrap();
            let status = until(SOON, "it ends", || child.try_wait().unwrap());
            assert_eq!(status.code(), Some(0), "{closed}");
            assert_eq!(std::fs::read_to_string(folder.join("file")).unwrap(), "made\n");
            std::fs::remove_file(folder.join("file")).unwrap();
        }
    }
}

#[test]
fn many_that_start_at_once_all_succeed() {
    let rounds = if is_quick() { 5 } else { 50 };
    let wrong = Mutex::new(Vec::new());
    for user in users() {
        // Made once, before many threads want it at the same time.
        harness::state_dir(user);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let ended = run_plain(user, "bash", "echo ok", &[]);
                        if ended.stdout != "ok\n" {
                            wrong
                                .lock()
                                .unwrap()
                                .push(format!("as {user:?}: {:?} {}", ended.status, ended.stderr));
                        }
                    }
                });
            }
        });
    }
    let wrong = wrong.into_inner().unwrap();
    let kinds: BTreeSet<&String> = wrong.iter().collect();
    assert!(wrong.is_empty(), "{} of {} starts failed: {kinds:#?}", wrong.len(), rounds * 8 * users().len());
}

#[test]
fn a_live_run_is_not_disturbed_by_others_that_start_and_die() {
    for user in users() {
        let word = marker("undisturbed");
        let code = format!(
            "import sys\nprint('ready', flush=True)\nx = bytearray(8 << 20)\nsys.stdin.read()\nprint('{word}'.upper())"
        );
        let mut command =
            Palisade::new(Build::Real, user, &["run", "python", "--timeout", "100s", "-c", &code])
                .into_command();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        until(SOON, "it runs", || (!marked(&word).is_empty()).then_some(()));
        for _ in 0..if is_quick() { 3 } else { 10 } {
            assert_eq!(run_plain(user, "bash", "echo ok", &[]).stdout, "ok\n");
            let mut other = start(user, "sleep 100");
            other.signal(Signal::KILL);
            other.wait(SOON);
        }
        drop(child.stdin.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("ready\n{}\n", word.to_uppercase()));
        assert!(output.status.success());
    }
}
