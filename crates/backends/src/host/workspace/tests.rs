//! Tests of a workspace in ordinary use.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use sandbox::workspace::{CHANGED_FILES_MAX, EntryKind, HASH_BYTES_MAX};

use super::*;

const MB: u64 = 1 << 20;

/// A workspace beside a directory that it must not reach. Both are removed when the test ends.
pub(super) struct TestPlace {
    folder: PathBuf,
    pub(super) workspace: HostWorkspace,
}

impl TestPlace {
    pub(super) fn new() -> Self {
        Self::with(Quota { bytes: 16 * MB, inodes: 200 })
    }

    pub(super) fn with(quota: Quota) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("palisade-workspace-{}-{number}", std::process::id()));
        fs::create_dir_all(folder.join("inside")).unwrap();
        fs::create_dir_all(folder.join("outside")).unwrap();
        let workspace = HostWorkspace::open(&folder.join("inside"), quota, None).unwrap();
        Self { folder, workspace }
    }

    pub(super) fn inside(&self, path: &str) -> PathBuf {
        self.folder.join("inside").join(path)
    }

    pub(super) fn outside(&self, path: &str) -> PathBuf {
        self.folder.join("outside").join(path)
    }

    pub(super) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.inside(path).parent().unwrap()).unwrap();
        fs::write(self.inside(path), content).unwrap();
    }

    pub(super) fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.inside("")).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for TestPlace {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}

pub(super) fn path(text: &str) -> FilePath {
    FilePath::parse(text).unwrap()
}

#[tokio::test]
async fn a_file_is_read_in_parts() {
    let place = TestPlace::new();
    place.put("a.csv", "0123456789");
    let part = place.workspace.read(&path("a.csv"), 2, 3).await.unwrap();
    assert_eq!((part.bytes.as_slice(), part.size_bytes, part.at_end), (b"234".as_slice(), 10, false));
    assert_eq!(part.media_type, "text/csv");
    let rest = place.workspace.read(&path("a.csv"), 8, 100).await.unwrap();
    assert_eq!((rest.bytes.as_slice(), rest.at_end), (b"89".as_slice(), true));
    let beyond = place.workspace.read(&path("a.csv"), u64::MAX, 100).await.unwrap();
    assert_eq!((beyond.bytes.len(), beyond.at_end), (0, true));
}

#[tokio::test]
async fn a_file_is_written_whole_with_its_folders_and_keeps_its_permissions() {
    let place = TestPlace::new();
    let written = place.workspace.write(&path("a/b/run.sh"), b"one".to_vec()).await.unwrap();
    assert_eq!(written.size_bytes, 3);
    let file = place.inside("a/b/run.sh");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    place.workspace.write(&path("a/b/run.sh"), b"two".to_vec()).await.unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"two");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(place.names(), ["a"], "no draft is left");
}

#[tokio::test]
async fn appending_adds_or_makes() {
    let place = TestPlace::new();
    for (content, size) in [("one", 3), ("two", 6)] {
        let written = place.workspace.append(&path("log"), content.into()).await.unwrap();
        assert_eq!(written.size_bytes, size);
    }
    assert_eq!(fs::read(place.inside("log")).unwrap(), b"onetwo");
}

#[tokio::test]
async fn new_files_and_folders_belong_to_the_program() {
    let place = TestPlace::new();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let owner = Owner { uid: 4_000_001, gid: 4_000_002 };
    let workspace = HostWorkspace::open(&place.inside(""), place.workspace.quota(), Some(owner)).unwrap();
    workspace.write(&path("made/file"), b"x".to_vec()).await.unwrap();
    for made in ["made", "made/file"] {
        let found = fs::metadata(place.inside(made)).unwrap();
        assert_eq!((found.uid(), found.gid()), (owner.uid, owner.gid), "{made}");
    }
}

#[tokio::test]
async fn an_upload_appears_when_it_is_complete_and_not_before() {
    let place = TestPlace::new();
    place.put("big", "old");
    let mut upload = place.workspace.upload(&path("big"), MB, Some(2000)).await.unwrap();
    upload.write(vec![b'n'; 1000]).await.unwrap();
    assert_eq!(fs::read(place.inside("big")).unwrap(), b"old");
    upload.write(vec![b'n'; 1000]).await.unwrap();
    assert_eq!(upload.finish().await.unwrap().size_bytes, 2000);
    assert_eq!(fs::read(place.inside("big")).unwrap(), [b'n'; 2000]);
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_nothing() {
    let place = TestPlace::new();
    let mut upload = place.workspace.upload(&path("big"), MB, None).await.unwrap();
    upload.write(vec![0; 1000]).await.unwrap();
    drop(upload);
    assert_eq!(place.names(), Vec::<String>::new());
}

#[tokio::test]
async fn drafts_are_no_artifacts_and_abandoned_ones_are_removed() {
    let place = TestPlace::new();
    let before = place.workspace.snapshot(Pace::Aside).await.unwrap();
    let mut upload = place.workspace.upload(&path("a/big"), MB, None).await.unwrap();
    upload.write(vec![0; 1000]).await.unwrap();
    assert!(before.changes(Pace::Aside).await.unwrap().files.is_empty());
    assert_eq!(place.workspace.remove_abandoned_drafts().await.unwrap(), 0, "it is being written");
    upload.write(vec![0; 1000]).await.unwrap();
    assert_eq!(upload.finish().await.unwrap().size_bytes, 2000);
    abandon(&place, 1000);
    assert_eq!(fs::read_dir(place.inside("a")).unwrap().count(), 2);
    assert_eq!(place.workspace.remove_abandoned_drafts().await.unwrap(), 1);
    assert_eq!(fs::read_dir(place.inside("a")).unwrap().count(), 1);
}

/// A draft as a killed server leaves it: without a lock.
fn abandon(place: &TestPlace, bytes: usize) {
    fs::create_dir_all(place.inside("a")).unwrap();
    fs::write(place.inside("a/.palisade-draft-0011223344556677"), vec![0; bytes]).unwrap();
}

#[tokio::test]
async fn an_abandoned_draft_takes_no_room_from_a_new_file() {
    let place = TestPlace::new();
    let room = usize::try_from(place.workspace.quota().bytes).unwrap();
    abandon(&place, room * 3 / 4);
    let announced = room as u64 / 2;
    assert!(place.workspace.upload(&path("new"), announced, Some(announced)).await.is_ok());
    assert_eq!(fs::read_dir(place.inside("a")).unwrap().count(), 0);
}

#[tokio::test]
async fn more_than_the_link_allows_is_too_large_announced_or_not() {
    let place = TestPlace::new();
    let announced = place.workspace.upload(&path("big"), 10, Some(11)).await;
    assert_eq!(announced.unwrap_err().code(), "too_large");
    let mut upload = place.workspace.upload(&path("big"), 10, None).await.unwrap();
    upload.write(vec![0; 10]).await.unwrap();
    assert_eq!(upload.write(vec![0; 1]).await.unwrap_err().code(), "too_large");
    assert!(upload.write(vec![0; 1]).await.is_err(), "a failed upload does not go on");
    assert_eq!(place.names(), Vec::<String>::new());
}

#[tokio::test]
async fn the_quota_of_bytes_holds_at_once_and_while_it_comes() {
    let place = TestPlace::with(Quota { bytes: MB, inodes: 100 });
    place.put("there", vec![1; 900_000]);
    let whole = place.workspace.write(&path("new"), vec![1; 300_000]).await;
    assert_eq!(whole.unwrap_err().code(), "disk_full");
    let append = place.workspace.append(&path("there"), vec![1; 300_000]).await;
    assert_eq!(append.unwrap_err().code(), "disk_full");
    let mut upload = place.workspace.upload(&path("new"), 100 * MB, None).await.unwrap();
    upload.write(vec![1; 100_000]).await.unwrap();
    assert_eq!(upload.write(vec![1; 100_000]).await.unwrap_err().code(), "disk_full");
    assert_eq!(place.names(), ["there"]);
    place.workspace.write(&path("new"), vec![1; 10_000]).await.unwrap();
}

#[tokio::test]
async fn an_upload_notices_what_the_program_writes_meanwhile() {
    let place = TestPlace::with(Quota { bytes: 40 * MB, inodes: 100 });
    let mut upload = place.workspace.upload(&path("new"), 100 * MB, None).await.unwrap();
    upload.write(vec![1; 10 << 20]).await.unwrap();
    place.put("meanwhile", vec![1; 35 << 20]);
    assert_eq!(upload.write(vec![1; 10 << 20]).await.unwrap_err().code(), "disk_full");
}

#[tokio::test]
async fn the_quota_of_names_holds() {
    let place = TestPlace::with(Quota { bytes: MB, inodes: 4 });
    place.workspace.write(&path("a/b"), Vec::new()).await.unwrap();
    let folders = place.workspace.write(&path("c/d/e"), Vec::new()).await;
    assert_eq!(folders.unwrap_err().code(), "disk_full");
    place.workspace.write(&path("c/d"), Vec::new()).await.unwrap();
    assert_eq!(place.workspace.write(&path("e"), Vec::new()).await.unwrap_err().code(), "disk_full");
    let used = place.workspace.usage().await.unwrap();
    assert_eq!((used.inodes, used.is_complete), (4, true));
}

#[tokio::test]
async fn what_is_wrong_has_a_name() {
    let place = TestPlace::new();
    place.put("folder/file", "x");
    for (asked, code) in
        [("gone", "not_found"), ("folder", "is_directory"), ("folder/file/deeper", "not_found")]
    {
        let error = place.workspace.read(&path(asked), 0, 1).await.unwrap_err();
        assert_eq!(error.code(), code, "{asked}");
    }
    for (asked, code) in [("folder", "is_directory"), ("folder/file/deeper", "bad_path")] {
        assert_eq!(
            place.workspace.write(&path(asked), Vec::new()).await.unwrap_err().code(),
            code,
            "{asked}"
        );
    }
    assert_eq!(place.workspace.list(Some(&path("gone")), Reach::Flat).await.unwrap_err().code(), "not_found");
}

#[tokio::test]
async fn lists_show_kinds_and_do_not_enter_what_is_set_aside() {
    let place = TestPlace::new();
    for file in ["b.txt", "a/c.txt", "a/__pycache__/d", ".git/config", "node_modules/x/y"] {
        place.put(file, "12345");
    }
    symlink("/etc/passwd", place.inside("link")).unwrap();
    let shown = async |asked: Option<&str>, reach| {
        let asked = asked.map(path);
        let list = place.workspace.list(asked.as_ref(), reach).await.unwrap();
        assert!(list.is_complete);
        list.entries.into_iter().map(|entry| (entry.path, entry.kind, entry.is_unopened)).collect::<Vec<_>>()
    };
    let (file, folder, link) = (EntryKind::File, EntryKind::Directory, EntryKind::Link);
    let row = |path: &str, kind, is_unopened| (path.to_owned(), kind, is_unopened);
    let flat = ["a", "node_modules"].map(|name| row(name, folder, false));
    let found = shown(None, Reach::Flat).await;
    assert!(flat.iter().all(|wanted| found.contains(wanted)) && found.len() == 5, "{found:?}");
    let wanted = [
        row(".git", folder, true),
        row("a", folder, false),
        row("a/__pycache__", folder, true),
        row("a/c.txt", file, false),
        row("b.txt", file, false),
        row("link", link, false),
        row("node_modules", folder, true),
    ];
    assert_eq!(shown(None, Reach::Recursive).await, wanted);
    assert_eq!(shown(Some(".git"), Reach::Flat).await, [row(".git/config", file, false)]);
    assert_eq!(shown(Some("b.txt"), Reach::Flat).await, [row("b.txt", file, false)], "a file lists itself");
}

#[tokio::test]
async fn changes_are_what_was_made_or_changed() {
    let place = TestPlace::new();
    for file in ["same", "changed", "removed", "touched"] {
        place.put(file, "old");
    }
    let before = place.workspace.snapshot(Pace::Aside).await.unwrap();
    place.put("changed", "new");
    place.put("sub/made.csv", "a,b\n");
    place.put("__pycache__/cached", "x");
    place.put(".hidden/kept", "x");
    fs::remove_file(place.inside("removed")).unwrap();
    // A program can forge the modification time, but not the change time.
    let old = fs::metadata(place.inside("touched")).unwrap().modified().unwrap();
    place.put("touched", "NEW");
    fs::File::options().write(true).open(place.inside("touched")).unwrap().set_modified(old).unwrap();
    let changes = before.changes(Pace::Aside).await.unwrap();
    let paths: Vec<&str> = changes.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["changed", "sub/made.csv", "touched"]);
    assert_eq!(changes.files[1].media_type, "text/csv");
    let digest = "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437";
    assert_eq!(changes.files[0].sha256.as_deref(), Some(digest));
    assert_eq!(changes.notes, Vec::<String>::new());
}

#[tokio::test]
async fn many_and_large_changes_are_summed_up() {
    let place = TestPlace::with(Quota { bytes: 1 << 40, inodes: 10_000 });
    let before = place.workspace.snapshot(Pace::Aside).await.unwrap();
    for number in 0..CHANGED_FILES_MAX + 5 {
        place.put(&format!("file{number:03}"), "x");
    }
    let large = fs::File::create(place.inside("a-large")).unwrap();
    large.set_len(HASH_BYTES_MAX + 1).unwrap();
    let changes = before.changes(Pace::Aside).await.unwrap();
    assert_eq!(changes.files.len(), CHANGED_FILES_MAX);
    assert_eq!(changes.files[0].sha256, None);
    assert!(changes.notes[0].starts_with("6 more files"), "{:?}", changes.notes);
    assert!(changes.notes[1].contains("no sha256"), "{:?}", changes.notes);
}
