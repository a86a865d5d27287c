//! Tests with a hostile program in the workspace: nothing that it builds or swaps leads the host outside.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags};

use sandbox::workspace::{EntryKind, LIST_ENTRIES_MAX, READ_BYTES_MAX};

use super::tests::{TestPlace, path};
use super::*;

const SECRET: &[u8] = b"a secret of the host";
/// How many swaps the hostile program makes.
const ROUNDS: usize = 3000;

/// Signals that the host is done, even if it panicked.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `host` while the hostile program exchanges two names as fast as it can.
async fn while_swapping(one: &Path, other: &Path, host: impl AsyncFnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(host()));
    });
}

/// A directory `swapped` with a harmless `file`, and a link beside it that leads to the secret.
fn swapped() -> TestPlace {
    let place = TestPlace::with(Quota { bytes: 1 << 30, inodes: 1000 });
    place.put("swapped/file", "harmless");
    fs::write(place.outside("file"), SECRET).unwrap();
    symlink(place.outside(""), place.inside("link")).unwrap();
    place
}

/// Verified to fail (the secret was read) with the RESOLVE flags removed from `beneath`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_swapped_for_a_link_is_never_read_through() {
    let place = swapped();
    let (mut read, mut refused) = (0, 0);
    while_swapping(&place.inside("swapped"), &place.inside("link"), async || {
        for _ in 0..ROUNDS {
            match place.workspace.read(&path("swapped/file"), 0, 100).await {
                Ok(part) => {
                    assert_eq!(part.bytes, b"harmless");
                    read += 1;
                }
                Err(error) => {
                    assert!(["bad_path", "disturbed"].contains(&error.code()), "{error:?}");
                    refused += 1;
                }
            }
        }
    })
    .await;
    assert!(read > 0 && refused > 0, "the race was not run: {read} {refused}");
}

/// Verified to fail (the file outside grew) with the RESOLVE flags removed from `beneath`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_swapped_for_a_link_is_never_written_through() {
    let place = swapped();
    while_swapping(&place.inside("swapped"), &place.inside("link"), async || {
        for round in 0..ROUNDS / 10 {
            place.workspace.write(&path("swapped/new"), vec![1; 10]).await.ok();
            place.workspace.write(&path(&format!("swapped/deep{}/new", round % 20)), vec![1; 10]).await.ok();
            place.workspace.append(&path("swapped/file"), vec![b'!'; 1]).await.ok();
        }
    })
    .await;
    assert_eq!(fs::read(place.outside("file")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(place.outside("")).unwrap().count(), 1, "something was written outside");
}

/// Verified to fail (names of the host were listed) with the RESOLVE flags and O_NOFOLLOW removed from
/// `beneath`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_swapped_for_a_link_is_never_listed_through() {
    let place = swapped();
    fs::write(place.outside("name-of-the-host"), "").unwrap();
    while_swapping(&place.inside("swapped"), &place.inside("link"), async || {
        for _ in 0..ROUNDS / 5 {
            let mut found = place.workspace.list(None, Reach::Recursive).await.unwrap().entries;
            if let Ok(list) = place.workspace.list(Some(&path("swapped")), Reach::Flat).await {
                found.extend(list.entries);
            }
            assert!(!found.iter().any(|entry| entry.path.contains("name-of-the-host")));
        }
    })
    .await;
}

#[tokio::test]
async fn links_lead_nowhere_wherever_they_stand() {
    let place = TestPlace::new();
    fs::write(place.outside("file"), SECRET).unwrap();
    fs::create_dir(place.inside("folder")).unwrap();
    symlink(place.outside("file"), place.inside("last")).unwrap();
    symlink(place.outside(""), place.inside("above")).unwrap();
    symlink("../../outside", place.inside("folder/relative")).unwrap();
    symlink("/proc/self/root", place.inside("magic")).unwrap();
    symlink(".", place.inside("itself")).unwrap();
    for asked in ["last", "above/file", "folder/relative/file", "magic/etc/passwd", "itself/itself/last"] {
        let error = place.workspace.read(&path(asked), 0, 100).await.unwrap_err();
        assert_eq!(error.code(), "bad_path", "{asked}");
        assert!(place.workspace.append(&path(asked), b"x".to_vec()).await.is_err(), "{asked}");
    }
    for asked in ["above/file", "folder/relative/new"] {
        assert_eq!(place.workspace.write(&path(asked), b"x".to_vec()).await.unwrap_err().code(), "bad_path");
    }
    let list = place.workspace.list(Some(&path("above")), Reach::Recursive).await.unwrap();
    assert_eq!((list.entries.len(), list.entries[0].kind), (1, EntryKind::Link), "a link lists itself");
    // A write replaces the link and leaves its target alone.
    place.workspace.write(&path("last"), b"new".to_vec()).await.unwrap();
    assert_eq!(fs::read(place.inside("last")).unwrap(), b"new");
    assert_eq!(fs::read(place.outside("file")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(place.outside("")).unwrap().count(), 1);
}

#[tokio::test]
async fn pipes_sockets_and_devices_are_not_opened_and_nothing_waits_for_them() {
    let place = TestPlace::new();
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(CWD, place.inside("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.inside("socket")).unwrap();
    // The null device; only root can make one.
    let device = rustix::fs::makedev(1, 3);
    let kind = rustix::fs::FileType::CharacterDevice;
    let has_device = rustix::fs::mknodat(CWD, place.inside("device"), kind, mode, device).is_ok();
    for asked in ["pipe", "socket", "device"] {
        if asked == "device" && !has_device {
            continue;
        }
        let asked = path(asked);
        let reading = tokio::time::timeout(Duration::from_secs(5), place.workspace.read(&asked, 0, 1));
        assert_eq!(reading.await.unwrap().unwrap_err().code(), "not_a_file", "{asked}");
        let appending = tokio::time::timeout(Duration::from_secs(5), place.workspace.append(&asked, vec![1]));
        assert_eq!(appending.await.unwrap().unwrap_err().code(), "not_a_file", "{asked}");
    }
    let before = place.workspace.snapshot(Pace::Aside).await.unwrap();
    assert!(before.changes(Pace::Aside).await.unwrap().files.is_empty());
}

#[tokio::test]
async fn a_file_with_another_name_is_not_written_through() {
    let place = TestPlace::new();
    place.put("kept", "kept");
    fs::hard_link(place.inside("kept"), place.inside("other")).unwrap();
    let appended = place.workspace.append(&path("other"), b"!".to_vec()).await;
    assert_eq!(appended.unwrap_err().code(), "bad_path");
    place.workspace.write(&path("other"), b"new".to_vec()).await.unwrap();
    assert_eq!(fs::read(place.inside("kept")).unwrap(), b"kept");
}

#[tokio::test]
async fn a_huge_directory_is_cut() {
    let place = TestPlace::with(Quota { bytes: 1 << 30, inodes: 500 });
    for number in 0..LIST_ENTRIES_MAX + 100 {
        fs::write(place.inside(&format!("{number}")), "").unwrap();
    }
    let list = place.workspace.list(None, Reach::Flat).await.unwrap();
    assert_eq!((list.entries.len(), list.is_complete), (LIST_ENTRIES_MAX, false));
    let used = place.workspace.usage().await.unwrap();
    assert_eq!((used.inodes, used.is_complete), (501, false), "counted further than the quota needs");
    assert_eq!(place.workspace.write(&path("more"), Vec::new()).await.unwrap_err().code(), "disk_full");
}

#[tokio::test]
async fn a_tree_too_deep_to_walk_is_noticed_and_not_followed() {
    let place = TestPlace::with(Quota { bytes: 1 << 30, inodes: 100_000 });
    let mut current = rustix::fs::openat(CWD, place.inside(""), OFlags::RDONLY, Mode::empty()).unwrap();
    for _ in 0..200 {
        rustix::fs::mkdirat(&current, "d", Mode::RWXU).unwrap();
        current = rustix::fs::openat(&current, "d", OFlags::RDONLY, Mode::empty()).unwrap();
    }
    let list = place.workspace.list(None, Reach::Recursive).await.unwrap();
    assert!(!list.is_complete && list.entries.len() < 100);
    assert!(!place.workspace.usage().await.unwrap().is_complete);
    assert_eq!(place.workspace.write(&path("more"), Vec::new()).await.unwrap_err().code(), "disk_full");
}

#[tokio::test]
async fn names_that_are_not_text_are_shown_and_lead_nowhere() {
    let place = TestPlace::new();
    let before = place.workspace.snapshot(Pace::Aside).await.unwrap();
    fs::write(place.inside("").join(std::ffi::OsStr::from_bytes(b"a\xff\n")), "x").unwrap();
    let list = place.workspace.list(None, Reach::Flat).await.unwrap();
    assert_eq!((list.entries[0].path.as_str(), list.entries[0].is_nameless), ("a\\xff\n", true));
    let changes = before.changes(Pace::Aside).await.unwrap();
    assert!(changes.files.is_empty() && changes.notes[0].contains("not text"), "{changes:?}");
}

#[tokio::test]
async fn a_file_of_holes_costs_neither_memory_nor_time() {
    let place = TestPlace::with(Quota { bytes: 10 << 20, inodes: 100 });
    let before = place.workspace.snapshot(Pace::Aside).await.unwrap();
    let began = Instant::now();
    fs::File::create(place.inside("holes")).unwrap().set_len(1 << 42).unwrap();
    let part = place.workspace.read(&path("holes"), 1 << 41, usize::MAX).await.unwrap();
    assert_eq!((part.bytes.len(), part.size_bytes), (READ_BYTES_MAX, 1 << 42));
    assert!(place.workspace.usage().await.unwrap().bytes < 1 << 20);
    let changes = before.changes(Pace::Aside).await.unwrap();
    assert_eq!((changes.files[0].size_bytes, &changes.files[0].sha256), (1 << 42, &None));
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_read_ends_there() {
    let place = TestPlace::new();
    place.put("file", vec![1; 1000]);
    let file = place.workspace.file(&path("file")).await.unwrap();
    fs::File::options().write(true).open(place.inside("file")).unwrap().set_len(10).unwrap();
    let part = file.read(0, 1000).await.unwrap();
    assert_eq!((part.bytes.len(), part.at_end), (10, true));
    assert!(file.read(500, 10).await.unwrap().bytes.is_empty());
}

#[tokio::test]
async fn a_draft_that_the_program_takes_away_is_told_and_harms_nobody() {
    let place = TestPlace::new();
    fs::write(place.outside("file"), SECRET).unwrap();
    let mut upload = place.workspace.upload(&path("new"), 1000, None).await.unwrap();
    let draft = place.names().pop().unwrap();
    fs::remove_file(place.inside(&draft)).unwrap();
    upload.write(vec![1; 10]).await.unwrap();
    assert_eq!(upload.finish().await.unwrap_err().code(), "disturbed");
    let mut upload = place.workspace.upload(&path("new"), 1000, None).await.unwrap();
    let draft = place.names().pop().unwrap();
    fs::remove_file(place.inside(&draft)).unwrap();
    symlink(place.outside("file"), place.inside(&draft)).unwrap();
    upload.write(vec![1; 10]).await.unwrap();
    upload.finish().await.unwrap();
    assert_eq!(fs::read(place.outside("file")).unwrap(), SECRET);
    assert_eq!(place.workspace.read(&path("new"), 0, 1).await.unwrap_err().code(), "bad_path");
}
