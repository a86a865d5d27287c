//! Every way a run can end, and that nothing of it is left: by itself, by the clock, by signals to palisade.

use std::fs::File;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use escape::bait::{Bait, Tidy};
use harness::{Build, Palisade, User, baseline, users};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(10);
/// Beyond the limit of a run: building, ending and a busy machine.
const GRACE: Duration = Duration::from_secs(5);

/// A program with a daemon that only its name tells apart, then `rest`.
fn daemon_then(name: &str, rest: &str) -> String {
    format!(
        "import os,sys,time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0: os.execv('/bin/sleep', ['{name}', '61'])\n os._exit(0)\n{rest}\n"
    )
}

/// A name no argument of palisade holds as one word: the program puts it together.
fn names(bait: &Bait) -> (String, String) {
    let (front, back) = bait.marker.split_at(8);
    (format!("sleep-{front}' + '{back}"), format!("sleep-{}", bait.marker))
}

fn start(user: User, options: &[&str], code: &str) -> Child {
    let palisade = Palisade::new(Build::Real, user, &["run", "python"]).args(options).args(&["-c", code]);
    palisade.into_command().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

fn wait_for(name: &str, is_there: impl Fn(usize) -> bool, patience: Duration) -> Result<(), String> {
    let deadline = Instant::now() + patience;
    loop {
        let found = baseline::look(name).processes;
        if is_there(found.len()) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{found:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn dies_with(signal: Signal, label: &str) {
    let _tidy = Tidy;
    for user in users() {
        let bait = Bait::lay(&format!("{label}-{user:?}").to_lowercase());
        let (written, seen) = names(&bait);
        let before = baseline::look(&seen);
        let mut palisade = start(user, &[], &daemon_then(&written, "time.sleep(60)"));
        wait_for(&seen, |count| count > 0, PATIENCE).unwrap();
        kill_process(Pid::from_child(&palisade), signal).unwrap();
        palisade.wait().unwrap();
        wait_for(&seen, |count| count == 0, PATIENCE).unwrap_or_else(|left| panic!("{user:?}: {left}"));
        // Groups of a server that was killed are swept by the next one.
        Palisade::new(Build::Real, user, &["run", "bash", "-c", "true"]).end();
        baseline::wait_until_back(&before, &seen, PATIENCE).unwrap_or_else(|left| panic!("{user:?}: {left}"));
    }
}

#[test]
fn everything_dies_when_palisade_is_killed() {
    dies_with(Signal::KILL, "killed");
}

#[test]
fn everything_dies_when_palisade_is_terminated() {
    dies_with(Signal::TERM, "terminated");
}

#[test]
fn everything_dies_when_palisade_is_interrupted() {
    dies_with(Signal::INT, "interrupted");
}

#[test]
fn everything_is_dead_when_the_clock_has_ended_a_run() {
    let _tidy = Tidy;
    for user in users() {
        let bait = Bait::lay(&format!("clock-{user:?}").to_lowercase());
        let (written, seen) = names(&bait);
        let mut palisade = start(user, &["--timeout", "1s"], &daemon_then(&written, "time.sleep(60)"));
        wait_for(&seen, |count| count > 0, PATIENCE).unwrap();
        assert_eq!(palisade.wait().unwrap().code(), Some(124), "{user:?}");
        assert_eq!(baseline::look(&seen).processes, Vec::<String>::new(), "{user:?}");
    }
}

/// Whoever reads palisade's output may stop: the limits of the run hold all the same.
#[test]
fn a_reader_that_stops_does_not_stop_the_clock() {
    let _tidy = Tidy;
    for user in users() {
        let bait = Bait::lay(&format!("reader-{user:?}").to_lowercase());
        let (written, seen) = names(&bait);
        let flood =
            daemon_then(&written, "sys.stdout.write('x' * 900_000); sys.stdout.flush(); time.sleep(60)");
        let mut palisade = start(user, &["--timeout", "1s"], &flood);
        wait_for(&seen, |count| count > 0, PATIENCE).unwrap();
        let died = wait_for(&seen, |count| count == 0, Duration::from_secs(1) + GRACE);
        palisade.kill().unwrap();
        palisade.wait().unwrap();
        assert_eq!(died, Ok(()), "{user:?}: alive {GRACE:?} after the limit");
    }
}

#[test]
fn endless_input_neither_fills_memory_nor_holds_the_run() {
    let _tidy = Tidy;
    for user in users() {
        for (code, status) in
            [("import sys; sys.stdin.buffer.read(10)", 0), ("import time; time.sleep(60)", 124)]
        {
            let started = Instant::now();
            let mut command =
                Palisade::new(Build::Real, user, &["run", "python", "--timeout", "2s", "-c", code])
                    .into_command();
            let mut palisade =
                command.stdin(File::open("/dev/zero").unwrap()).stdout(Stdio::null()).spawn().unwrap();
            assert_eq!(palisade.wait().unwrap().code(), Some(status), "{user:?}: {code}");
            assert!(started.elapsed() < Duration::from_secs(2) + GRACE, "{user:?}: {code}");
        }
    }
}

/// The files of a run are fetched while what it left behind still computes: that too has an end.
#[test]
fn fetching_files_is_bounded_by_the_clock() {
    const LEAVE: &str = "import os,time\nfor n in range(3900): open(f'f{n}','w').write('x')\n\
        for _ in range(50):\n if os.fork() == 0:\n  os.setsid()\n  os.closerange(0, 3)\n  end = time.time() + 40\n  while time.time() < end: pass\n  os._exit(0)";
    let _tidy = Tidy;
    let bait = Bait::lay("fetching");
    for user in users() {
        let out = bait.drop_folder().join(format!("{user:?}")).to_string_lossy().into_owned();
        let options = ["run", "python", "--timeout", "1s", "--output-dir", &out, "-c", LEAVE];
        let ended = Palisade::new(Build::Real, user, &options).end();
        assert!(ended.elapsed < Duration::from_secs(1) + GRACE, "{user:?}: {:?}", ended.elapsed);
    }
}
