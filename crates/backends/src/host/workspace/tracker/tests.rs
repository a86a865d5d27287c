//! Tests of the tracker: it finds what a walk finds, and examines little.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use sandbox::workspace::{Changes, Quota, Snapshot, Workspace};

use super::super::changes::HostSnapshot;
use super::super::tests::TestPlace;
use super::*;

const QUOTA: Quota = Quota { bytes: 1 << 30, inodes: 1 << 20 };
/// What a look examines beside the changes themselves: the directories above them, and their previous names.
const FEW: u64 = 8;

fn root(place: &TestPlace) -> Arc<Root> {
    Arc::clone(&place.workspace.root)
}

/// Files that were last changed long ago, so that every change shows in their time.
fn fill(place: &TestPlace, files: usize) {
    for number in 0..files {
        old(place, &format!("data/d{}/f{number}", number % 40), "content");
    }
}

fn old(place: &TestPlace, path: &str, content: &str) {
    place.put(path, content);
    let file = File::options().write(true).open(place.inside(path)).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(1000)).unwrap();
}

fn tracked(place: &TestPlace) -> Arc<Tracked> {
    track(&root(place)).expect("it can be tracked")
}

/// What a walk and the tracker find after the same work. They must agree.
fn changes(place: &TestPlace, tracked: &Arc<Tracked>, work: impl FnOnce()) -> Changes {
    let by_walk = HostSnapshot::take(&root(place)).unwrap();
    let by_mark = TrackedSnapshot::take(Arc::clone(tracked)).expect("no doubt");
    assert_eq!(by_mark.used(), by_walk.used());
    work();
    let found = by_mark.changes_now().unwrap();
    assert_eq!(found, by_walk.compared().unwrap());
    found
}

fn names(changes: &Changes) -> Vec<&str> {
    changes.files.iter().map(|file| file.path.as_str()).collect()
}

fn is_tracked(place: &TestPlace) -> bool {
    find(&root(place)).is_some()
}

/// A kind of change, and the artifacts that it makes.
type Case = (&'static str, fn(&TestPlace), &'static [&'static str]);

const CASES: [Case; 17] = [
    ("create", |place| place.put("new", "x"), &["new"]),
    ("create in a new directory", |place| place.put("a/b/c/new", "x"), &["a/b/c/new"]),
    (
        "append",
        |place| {
            let mut file = File::options().append(true).open(place.inside("data/d1/f1")).unwrap();
            file.write_all(b"more").unwrap();
        },
        &["data/d1/f1"],
    ),
    ("rewrite with the same size", |place| place.put("data/d9/f9", "CONTENT"), &["data/d9/f9"]),
    (
        "rewrite and reset the time",
        |place| {
            let before = fs::metadata(place.inside("data/d8/f8")).unwrap().modified().unwrap();
            place.put("data/d8/f8", "CONTENT");
            let file = File::options().write(true).open(place.inside("data/d8/f8")).unwrap();
            file.set_modified(before).unwrap();
        },
        &["data/d8/f8"],
    ),
    (
        "truncate by name",
        |place| File::options().write(true).open(place.inside("data/d2/f2")).unwrap().set_len(2).unwrap(),
        &["data/d2/f2"],
    ),
    (
        "permissions",
        |place| {
            let closed = fs::Permissions::from_mode(0o600);
            fs::set_permissions(place.inside("data/d10/f10"), closed).unwrap();
        },
        &["data/d10/f10"],
    ),
    (
        "rename",
        |place| fs::rename(place.inside("data/d3/f3"), place.inside("data/d4/renamed")).unwrap(),
        &["data/d4/renamed"],
    ),
    (
        "replace by rename",
        |place| {
            place.put("draft", "x");
            fs::rename(place.inside("draft"), place.inside("data/d3/f3")).unwrap();
        },
        &["data/d3/f3"],
    ),
    (
        "rename a directory",
        |place| fs::rename(place.inside("keep/one"), place.inside("keep/two")).unwrap(),
        &["keep/two/file", "keep/two/inner/file"],
    ),
    (
        "rename a directory and write in it",
        |place| {
            fs::rename(place.inside("keep/one"), place.inside("keep/two")).unwrap();
            place.put("keep/two/inner/new", "x");
        },
        &["keep/two/file", "keep/two/inner/file", "keep/two/inner/new"],
    ),
    (
        "replace a directory",
        |place| {
            fs::remove_dir_all(place.inside("keep/one")).unwrap();
            place.put("keep/one/inner/file", "other");
        },
        &["keep/one/inner/file"],
    ),
    (
        "hard link",
        |place| fs::hard_link(place.inside("data/d5/f5"), place.inside("linked")).unwrap(),
        &["data/d5/f5", "linked"],
    ),
    ("delete", |place| fs::remove_file(place.inside("data/d6/f6")).unwrap(), &[]),
    ("delete a directory", |place| fs::remove_dir_all(place.inside("data/d7")).unwrap(), &[]),
    ("symbolic link", |place| symlink("data/d1/f1", place.inside("link")).unwrap(), &[]),
    ("in a directory that is set aside", |place| place.put(".cache/x/file", "x"), &[]),
];

#[test]
fn every_kind_of_change_is_found_and_little_is_examined() {
    let place = TestPlace::with(QUOTA);
    fill(&place, 800);
    let tracked = tracked(&place);
    for (kind, work, expected) in CASES {
        fs::remove_dir_all(place.inside("keep")).ok();
        old(&place, "keep/one/file", "x");
        old(&place, "keep/one/inner/file", "x");
        tracked.used(None).unwrap();
        let before = tracked.examined();
        let found = changes(&place, &tracked, || work(&place));
        assert_eq!(names(&found), expected, "{kind}");
        let examined = tracked.examined() - before;
        // The directory that was removed had twenty files.
        assert!(examined <= 24 + FEW, "{kind}: {examined} entries were examined");
        assert!(is_tracked(&place), "{kind}");
        assert_eq!(names(&changes(&place, &tracked, || ())), [""; 0], "{kind}: nothing more");
    }
}

#[test]
fn ten_thousand_files_in_one_directory_are_not_examined() {
    let place = TestPlace::with(QUOTA);
    for number in 0..10_000 {
        place.put(&format!("all/{number}"), "");
    }
    let tracked = tracked(&place);
    assert!(tracked.examined() > 10_000, "the first listing");
    let before = tracked.examined();
    let found = changes(&place, &tracked, || {
        place.put("all/77", "changed");
        place.put("all/new", "new");
        fs::remove_file(place.inside("all/78")).unwrap();
    });
    assert_eq!(names(&found), ["all/77", "all/new"]);
    let examined = tracked.examined() - before;
    assert!(examined <= FEW, "{examined} entries were examined");
    assert!(is_tracked(&place));
}

#[test]
fn two_thousand_directories_are_watched_and_not_examined() {
    let place = TestPlace::with(QUOTA);
    for number in 0..2000 {
        place.put(&format!("d{}/{number}/file", number % 10), "x");
    }
    let tracked = tracked(&place);
    let before = tracked.examined();
    let found = changes(&place, &tracked, || place.put("d7/1997/file", "changed"));
    assert_eq!(names(&found), ["d7/1997/file"]);
    assert!(tracked.examined() - before <= FEW);
}

#[test]
fn more_directories_than_may_be_watched_are_walked() {
    let place = TestPlace::with(QUOTA);
    for number in 0..5000 {
        fs::create_dir_all(place.inside(&format!("d{}/{number}", number % 10))).unwrap();
    }
    assert!(track(&root(&place)).is_none());
}

#[test]
fn changes_beyond_the_event_queue_are_found_by_a_walk() {
    let place = TestPlace::with(QUOTA);
    fill(&place, 600);
    let tracked = tracked(&place);
    let found = changes(&place, &tracked, || {
        let mut files = ["one", "two"].map(|name| File::create(place.inside(name)).unwrap());
        // Events for two files in turn are not merged.
        for _ in 0..20_000 {
            files.iter_mut().for_each(|file| file.write_all(b"x").unwrap());
        }
        place.put("data/d1/f1", "changed");
    });
    assert_eq!(names(&found), ["data/d1/f1", "one", "two"]);
    assert!(!is_tracked(&place), "the tracking has ended");
}

#[test]
fn a_file_with_several_names_changes_by_each_of_them() {
    let place = TestPlace::with(QUOTA);
    fill(&place, 600);
    fs::create_dir(place.inside("gone")).unwrap();
    old(&place, "gone/name", "content");
    fs::hard_link(place.inside("gone/name"), place.inside("data/other")).unwrap();
    let tracked = tracked(&place);
    let found = changes(&place, &tracked, || place.put("data/other", "changed"));
    assert_eq!(names(&found), ["data/other", "gone/name"]);
    // Its directory, and with it every event of this descriptor, goes.
    let mut file = File::options().append(true).open(place.inside("gone/name")).unwrap();
    fs::remove_dir_all(place.inside("gone")).unwrap();
    let found = changes(&place, &tracked, || file.write_all(b"unseen").unwrap());
    assert_eq!(names(&found), ["data/other"]);
}

#[test]
fn what_a_process_has_open_is_examined_even_without_an_event() {
    let place = TestPlace::with(QUOTA);
    fill(&place, 600);
    old(&place, "gone/name", "content");
    fs::hard_link(place.inside("gone/name"), place.inside("data/other")).unwrap();
    let mut file = File::options().append(true).open(place.inside("gone/name")).unwrap();
    fs::remove_dir_all(place.inside("gone")).unwrap();
    let tracked = tracked(&place);
    let inode = file.metadata().unwrap().ino();
    let open = OpenFiles { mapped: [inode].into(), is_certain: true, ..OpenFiles::default() };
    let tenancy = move_in(&place.inside(""), move || open.clone()).unwrap();
    let found = changes(&place, &tracked, || file.write_all(b"unseen").unwrap());
    assert_eq!(names(&found), ["data/other"]);
    drop(tenancy);
    assert!(is_tracked(&place));
    let uncertain = move_in(&place.inside(""), OpenFiles::default).unwrap();
    let taken = TrackedSnapshot::take(Arc::clone(&tracked));
    assert_eq!(taken.map(drop), Err(Doubt::Processes), "a process cannot be inspected");
    assert!(!is_tracked(&place));
    drop(uncertain);
}

#[test]
fn an_open_file_that_is_not_in_the_index_ends_the_tracking() {
    let place = TestPlace::with(QUOTA);
    fill(&place, 600);
    let tracked = tracked(&place);
    let stranger = OpenFiles { writable: [u64::MAX].into(), is_certain: true, ..OpenFiles::default() };
    let tenancy = move_in(&place.inside(""), move || stranger.clone()).unwrap();
    assert_eq!(tracked.used(None), Err(Doubt::Hidden));
    drop(tenancy);
}

#[test]
fn blocks_that_the_index_does_not_explain_are_counted_from_the_best_moment() {
    const MB: u64 = 1 << 20;
    let place = TestPlace::with(QUOTA);
    fill(&place, 600);
    let tracked = tracked(&place);
    let used = tracked.used(None).unwrap();
    tracked.confirm(&used, (used.bytes, used.inodes), 100 * MB);
    let unexplained = |held, free| tracked.unexplained_bytes(used.bytes + held, free);
    assert_eq!(unexplained(0, 100 * MB), 0);
    assert_eq!(unexplained(20 * MB, 80 * MB), 0, "the index knows of it");
    assert_eq!(unexplained(0, 80 * MB), 20 * MB, "it does not");
    assert_eq!(unexplained(0, 150 * MB), 0, "another program released space");
    assert_eq!(unexplained(0, 100 * MB), 50 * MB, "which does not cover what comes later");
    tracked.confirm(&used, (used.bytes + 20 * MB, used.inodes), 100 * MB);
    assert!(!is_tracked(&place), "a walk found what the index does not know");
}

#[test]
fn random_work_is_found_as_by_a_walk() {
    const ROUNDS: usize = 60;
    let place = TestPlace::with(QUOTA);
    fill(&place, 600);
    let tracked = tracked(&place);
    let mut seed = std::env::var("PALISADE_TEST_SEED").map_or(7, |seed| seed.parse::<u64>().unwrap());
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..ROUNDS {
        let steps: Vec<(u64, String, String)> =
            (0..1 + draw(12)).map(|_| (draw(10), some_path(&mut draw), some_path(&mut draw))).collect();
        changes(&place, &tracked, || {
            for (kind, one, other) in &steps {
                match kind {
                    // A look at the disk in the middle of the work.
                    9 => drop(tracked.used(None).unwrap()),
                    kind => step(&place, *kind, one, other),
                }
            }
        });
        assert!(is_tracked(&place));
    }
}

fn some_path(draw: &mut impl FnMut(u64) -> u64) -> String {
    let parts = ["a", "b", "c", ".cache", "data", "d1"];
    (0..1 + draw(3)).map(|_| parts[draw(parts.len() as u64) as usize]).collect::<Vec<_>>().join("/")
}

/// One step of random work. Whatever is not possible is left out.
fn step(place: &TestPlace, kind: u64, one: &str, other: &str) {
    let (from, to) = (place.inside(one), place.inside(other));
    match kind {
        0..=2 => {
            fs::create_dir_all(from.parent().unwrap()).ok();
            fs::write(&from, other).ok();
        }
        3 => drop(fs::create_dir_all(&from)),
        4 => drop(fs::rename(&from, &to)),
        5 => drop(fs::hard_link(&from, &to)),
        6 => drop(fs::remove_file(&from)),
        7 if one != "data" => drop(fs::remove_dir_all(&from)),
        _ => drop(symlink(other, &from)),
    }
}

#[tokio::test]
async fn a_large_workspace_is_tracked_after_its_first_run_and_writes_of_the_host_are_found() {
    let place = TestPlace::with(QUOTA);
    fill(&place, 600);
    let workspace = &place.workspace;
    let first = workspace.snapshot(sandbox::workspace::Pace::Aside).await.unwrap();
    first.changes(sandbox::workspace::Pace::Aside).await.unwrap();
    while !is_tracked(&place) {
        tokio::task::yield_now().await;
    }
    let tracked = find(&root(&place)).unwrap();
    let before = workspace.snapshot(sandbox::workspace::Pace::Aside).await.unwrap();
    let examined = tracked.examined();
    let path = super::super::tests::path("made/by/host");
    workspace.write(&path, b"content".to_vec()).await.unwrap();
    let found = before.changes(sandbox::workspace::Pace::Aside).await.unwrap();
    assert_eq!(names(&found), ["made/by/host"]);
    assert!(tracked.examined() - examined <= 2 * FEW, "neither the write nor the snapshot walked");
    let used = workspace.usage().await.unwrap();
    assert_eq!(used, HostSnapshot::take(&root(&place)).unwrap().used());
}
