//! The store of layers: several servers, killed servers, full disks, air gaps.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use functional::files_beneath;
use harness::{Build, binary};

use super::environment::{Supply, files, good, refusal, versions};

#[test]
fn two_installations_of_one_set_share_one_build() {
    let Some(supply) = Supply::new("twice") else { return };
    let sets: Vec<_> = std::thread::scope(|scope| {
        let both: Vec<_> =
            (0..2).map(|_| scope.spawn(|| supply.installed("pypi", &["good"])["digest"].clone())).collect();
        both.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(sets[0], sets[1]);
    assert_eq!(supply.requests("/files/good-2.0"), 1);
    assert_eq!(supply.layers().len(), 2, "the resolver and one layer: {:?}", supply.layers());
}

#[test]
fn a_server_that_is_killed_while_it_installs_leaves_nothing_half() {
    let Some(supply) = Supply::new("killed") else { return };
    let before = supply.layers();
    let mut command = supply.prepare("pypi", &["stalling"]).into_command();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + harness::patience(Duration::from_secs(60));
    while supply.requests("/files/stalling") == 0 {
        assert!(Instant::now() < until, "the mirror was not asked");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let finished: Vec<_> = supply.layers().into_iter().filter(|name| !name.starts_with("new-")).collect();
    assert_eq!(finished, before);
    assert_eq!(versions(&supply.installed("pypi", &["stalling"])), ["stalling 1.0"]);
    assert_eq!(supply.layers().len(), before.len() + 1, "nothing unfinished stays: {:?}", supply.layers());
    let blobs = fs::read_dir(supply.state_dir.join("packages/blobs")).unwrap();
    let drafts =
        blobs.filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("new-"));
    assert_eq!(drafts.count(), 0);
}

#[test]
fn packages_are_carried_to_a_machine_without_a_network() {
    let Some(mut supply) = Supply::new("air-gap") else { return };
    let set = supply.installed("pypi", &["good"]);
    let archive = supply.beside("packages.tar");
    let path = archive.to_str().unwrap();
    let export = |supply: &Supply| supply.palisade(&["packages", "export", path]).end();
    assert!(export(&supply).status.success());
    let first = fs::read(&archive).unwrap();
    assert!(export(&supply).status.success());
    assert!(first == fs::read(&archive).unwrap(), "the same content gives the same archive");
    fs::remove_dir_all(supply.state_dir.join("packages")).unwrap();
    let imported = supply.palisade(&["packages", "import", path]).end();
    assert!(imported.status.success(), "{}", imported.stderr);
    supply.end_mirror();
    let again = supply.installed("pypi", &["good"]);
    assert_eq!((&again["digest"], &again["was_cached"]), (&set["digest"], &serde_json::json!(true)));
    assert_eq!(versions(&supply.installed("pypi", &["good==2.0"])), ["good 2.0"], "built from the blobs");
}

#[test]
fn an_archive_that_was_changed_is_refused() {
    let Some(supply) = Supply::new("changed") else { return };
    supply.installed("pypi", &["good"]);
    let archive = supply.beside("packages.tar");
    assert!(supply.palisade(&["packages", "export", archive.to_str().unwrap()]).end().status.success());
    let mut bytes = fs::read(&archive).unwrap();
    let at =
        bytes.windows(11).rposition(|part| part == b"VALUE = 42\n").expect("the module is in the archive");
    bytes[at] = b'X';
    fs::write(&archive, bytes).unwrap();
    fs::remove_dir_all(supply.state_dir.join("packages")).unwrap();
    let ended = supply.palisade(&["packages", "import", archive.to_str().unwrap()]).end();
    assert!(!ended.status.success());
    assert!(ended.stderr.contains("digest"), "{}", ended.stderr);
}

#[test]
fn a_stored_file_that_was_damaged_is_fetched_again() {
    let Some(supply) = Supply::new("damaged") else { return };
    supply.installed("pypi", &["good"]);
    let blobs = supply.state_dir.join("packages/blobs");
    for path in files_beneath(&blobs).into_iter().filter(|path| blobs.join(path).is_file()) {
        fs::write(blobs.join(path), "damaged").unwrap();
    }
    assert_eq!(supply.requests("/files/good-2.0"), 1);
    assert_eq!(versions(&supply.installed("pypi", &["good==2.0"])), ["good 2.0"]);
    assert_eq!(supply.requests("/files/good-2.0"), 2);
}

#[test]
fn a_layer_that_was_not_used_is_removed_and_installed_again() {
    let Some(supply) = Supply::new("gc") else { return };
    let set = supply.installed("pypi", &["good"]);
    let listed = good(supply.palisade(&["packages", "list", "--json"]).end());
    assert!(listed.to_string().contains(set["digest"].as_str().unwrap()), "{listed}");
    assert!(supply.palisade(&["packages", "gc"]).end().status.success());
    assert!(files(&set).is_dir(), "it was used lately");
    let gone = supply.palisade(&["packages", "gc", "--unused-days", "0"]).end();
    assert!(gone.stdout.contains("removed 2 layers"), "{}{}", gone.stdout, gone.stderr);
    assert!(!files(&set).exists());
}

#[test]
fn failed_installations_leave_no_more_than_the_store_may_hold() {
    let supply = Supply::without_resolver("go-failed");
    let stored = || {
        let folder = supply.state_dir.join("packages");
        let files = files_beneath(&folder).into_iter().map(|path| fs::metadata(folder.join(path)).unwrap());
        files.filter(fs::Metadata::is_file).map(|meta| meta.len()).sum::<u64>()
    };
    let failed = |megabytes: &str| {
        let ended = supply.prepare("go", &["mod.example/bulky"]).env("PALISADE_PACKAGES_STORE_MB", megabytes);
        refusal(ended.end(), "package_hash_mismatch");
        let locks = fs::read_dir(supply.state_dir.join("packages/locks")).unwrap();
        assert_eq!(locks.count(), 0, "no lock stays");
    };
    failed("100");
    assert!(stored() > 8 << 20, "what was fetched is kept: {}", stored());
    failed("4");
    assert!(stored() <= 4 << 20, "{}", stored());
    supply.installed("go", &["mod.example/good"]);
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    let Some(supply) = Supply::new("full") else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can mount a small file system");
        return;
    }
    let prepare = supply.prepare("pypi", &["large"]).into_command();
    let variables: Vec<_> = prepare.get_envs().filter_map(|(name, value)| Some((name, value?))).collect();
    let state = supply.state_dir.to_str().unwrap();
    let script = "set -e; cp -a \"$1\" \"$1.kept\"; mount -t tmpfs -o size=110m none \"$1\"; cp -a \"$1.kept/.\" \"$1\"; \
                  chmod 700 \"$1\"; exec \"$2\" packages prepare --json large";
    let ended = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh", state])
        .arg(binary(Build::Real))
        .env_clear()
        .envs(variables)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && told.contains("(packages_disk_full)"), "{told}");
}
