//! The end of what is in control groups.

use std::path::PathBuf;
use std::process::{Child, Command};

use super::*;
use crate::native::cgroup::Layout;

/// A directory that looks like a control group, with a process that it lists.
struct Fake {
    folder: PathBuf,
    process: Child,
}

impl Fake {
    fn make(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("palisade-members-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let process = Command::new("sleep").arg("60").spawn().unwrap();
        fs::write(folder.join("cgroup.procs"), format!("{}\n", process.id())).unwrap();
        Self { folder, process }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    fn is_alive(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// Whether it ends within a few seconds.
    fn ends(&mut self) -> bool {
        let began = Instant::now();
        while self.is_alive() {
            if began.elapsed() > Duration::from_secs(20) {
                return false;
            }
            std::thread::sleep(KILL_PAUSE);
        }
        true
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}

#[test]
fn calls_of_a_runtime_are_killed_by_the_directory_of_its_state() {
    let state = PathBuf::from(format!("/tmp/palisade-calls-{}/state", std::process::id()));
    let call = |state: &Path| {
        let mut command = Command::new("sh");
        command.args(["-c", "read line", "runtime", "--root"]).arg(state).stdin(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let (mut own, mut other) = (call(&state), call(&state.with_file_name("state-2")));
    // The words are there as soon as the program is executed.
    let began = Instant::now();
    while calls(&state).is_empty() && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(KILL_PAUSE);
    }
    kill_calls(&state, Instant::now() + Duration::from_secs(20));
    let (left, is_other_alive) = (calls(&state), other.try_wait().unwrap().is_none());
    for child in [&mut own, &mut other] {
        child.kill().ok();
        child.wait().unwrap();
    }
    assert!(left.is_empty() && is_other_alive, "{left:?}");
}

#[test]
fn a_server_that_has_not_locked_its_new_directory_yet_keeps_it() {
    let folder = std::env::temp_dir().join(format!("palisade-starting-{}", std::process::id()));
    create_private(&folder).unwrap();
    File::create(folder.join(LOCK)).unwrap();
    let looked = folder.clone();
    let sweep = std::thread::spawn(move || take_abandoned(&looked).is_some());
    // The sweep looks while the server is between these steps.
    std::thread::sleep(STARTING / 4);
    let lock = take(&folder).unwrap();
    assert!(!sweep.join().unwrap());
    drop(lock);
    let began = Instant::now();
    assert!(take_abandoned(&folder).is_some());
    assert!(began.elapsed() < STARTING / 2, "an old directory is taken at once");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_server_that_took_the_name_of_another_one_meanwhile_keeps_its_directory() {
    let folder = std::env::temp_dir().join(format!("palisade-renewed-{}", std::process::id()));
    let first = take(&folder).unwrap();
    let looked = folder.clone();
    let sweep = std::thread::spawn(move || take_abandoned(&looked).is_some());
    std::thread::sleep(STARTING / 4);
    fs::remove_dir_all(&folder).unwrap();
    drop(first);
    let second = take(&folder).unwrap();
    assert!(!sweep.join().unwrap());
    drop(second);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn members_of_version_1_are_killed_and_not_waited_for_beyond_the_given_moment() {
    let mut group = Fake::make("listed");
    let began = Instant::now();
    // The list never changes.
    kill_members(&group.folder, began);
    assert!(began.elapsed() < KILL_PAUSE * 50, "{:?}", began.elapsed());
    assert!(group.ends());
}

#[test]
fn a_process_whose_number_is_no_longer_listed_is_not_killed() {
    let mut group = Fake::make("reused");
    kill_listed(&[group.pid()], Vec::new);
    std::thread::sleep(KILL_PAUSE * 10);
    assert!(group.is_alive());
    kill_listed(&[group.pid()], || vec![group.pid()]);
    assert!(group.ends());
}

#[test]
fn the_kernel_kills_a_group_of_version_2() {
    let mut group = Fake::make("unified");
    fs::write(group.folder.join("cgroup.kill"), "").unwrap();
    kill_members(&group.folder, Instant::now());
    assert_eq!(fs::read_to_string(group.folder.join("cgroup.kill")).unwrap(), "1");
    // No number was used.
    assert!(group.is_alive());
}

/// A new group of a version 1 freezer, if this process may make one.
fn freezer() -> Option<PathBuf> {
    let layout = Layout::read(Path::new("/proc/self"));
    for (_, own, _) in layout.places() {
        let group = own.join(format!("palisade-frozen-{}", std::process::id()));
        if fs::create_dir(&group).is_ok() {
            if group.join("freezer.state").exists() {
                return Some(group);
            }
            fs::remove_dir(&group).unwrap();
        }
    }
    None
}

#[test]
fn what_version_1_has_frozen_ends() {
    let Some(group) = freezer() else {
        eprintln!("SKIPPED: no group of a version 1 freezer can be made here");
        return;
    };
    let mut fake = Fake::make("frozen");
    let inner = group.join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("cgroup.procs"), fake.process.id().to_string()).unwrap();
    let set = |state: &str| [&inner, &group].iter().all(|of| write(&of.join("freezer.state"), state).is_ok());
    assert!(set("FROZEN"));
    let began = Instant::now();
    while fs::read_to_string(inner.join("freezer.state")).unwrap() != "FROZEN\n" {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(KILL_PAUSE);
    }
    kill_members(&inner, Instant::now());
    std::thread::sleep(KILL_PAUSE * 10);
    let was_alive = fake.is_alive();
    thaw(&group);
    let ended = fake.ends();
    // However it went, nothing is left of this test.
    assert!(set("THAWED"));
    assert!(remove_groups(&group, Members::Kill { until: Instant::now() + Duration::from_secs(20) }));
    assert!(was_alive, "a frozen process has ended, so this test shows nothing");
    assert!(ended);
}
