//! Palisade dies, or is asked to end, while it asks an interpreter what it needs: the probe runs outside any
//! sandbox, so nothing but palisade itself can see to its end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use functional::{Live, SOON, files_beneath, marked, marker, own_folder, until};
use harness::{Build, Palisade, User, users};
use rustix::process::{Pid, Signal};

/// An interpreter that never answers, in a folder named by the marker; a palisade that waits for it.
struct Probing {
    live: Live,
    state: PathBuf,
    word: String,
}

impl Probing {
    fn start(user: User, label: &str) -> Self {
        let word = marker(label);
        let (bin, state) = (own_folder(user, &word), own_folder(user, &format!("state-{label}")));
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        let fake = bin.join("python3");
        fs::write(&fake, "#!/bin/sh\nwhile :; do sleep 0.05; done\n").unwrap();
        fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", bin.display());
        let palisade = Palisade::new(Build::Real, user, &["run", "python", "-c", "1"]).env("PATH", &path);
        let live = Live::start(palisade.env("PALISADE_STATE_DIR", state.to_str().unwrap()));
        until(SOON, "the interpreter is asked", || (!marked(&word).is_empty()).then_some(()));
        Self { live, state, word }
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        for process in marked(&self.word) {
            let pid = process.split(' ').next().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
            pid.map(|pid| rustix::process::kill_process(pid, Signal::KILL).ok());
        }
    }
}

fn run_once(user: User, state: &Path) {
    let palisade = Palisade::new(Build::Real, user, &["run", "python", "-c", "print('ok')"]);
    let ended = palisade.env("PALISADE_STATE_DIR", state.to_str().unwrap()).end();
    assert_eq!(ended.stdout, "ok\n", "{}", ended.stderr);
}

#[test]
fn a_probe_does_not_survive_a_killed_palisade() {
    for user in users() {
        let mut probing = Probing::start(user, "orphan");
        probing.live.signal(Signal::KILL);
        probing.live.wait(SOON);
        until(Duration::from_secs(2), "the interpreter that was asked is gone", || {
            marked(&probing.word).is_empty().then_some(())
        });
    }
}

#[test]
fn files_of_a_killed_palisade_are_swept_by_a_later_start() {
    for user in users() {
        let mut probing = Probing::start(user, "swept");
        probing.live.signal(Signal::KILL);
        probing.live.wait(SOON);
        run_once(user, &probing.state);
        let left: Vec<_> = files_beneath(&probing.state)
            .into_iter()
            .filter(|path| probing.state.join(path).is_dir())
            .collect();
        assert_eq!(left, [Path::new("runtimes")], "as {user:?}");
    }
}

#[test]
fn a_signal_ends_palisade_while_it_prepares() {
    for user in users() {
        let mut probing = Probing::start(user, "prepares");
        probing.live.signal(Signal::TERM);
        let status = probing.live.wait(Duration::from_secs(5));
        assert_eq!(status.code(), Some(130));
        until(Duration::from_secs(2), "the interpreter that was asked is gone", || {
            marked(&probing.word).is_empty().then_some(())
        });
    }
}
