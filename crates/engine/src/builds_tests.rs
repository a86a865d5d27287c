//! Tests of the build cache: products are stored whole, found again, and never used without verification.

use super::*;

struct TestPlace(PathBuf);

impl TestPlace {
    fn new(label: &str) -> Self {
        let path = std::env::temp_dir().join(format!("palisade-builds-{label}-{}", std::process::id()));
        fs::remove_dir_all(&path).ok();
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn builds(&self) -> Builds {
        Builds::new(&self.0, &Default::default())
    }

    fn entry(&self, key: &Key) -> PathBuf {
        self.0.join(FOLDER).join(&key.0)
    }
}

impl Drop for TestPlace {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn key(text: &str) -> Key {
    let mut maker = KeyMaker::new();
    maker.add("code", text.as_bytes());
    maker.key()
}

fn product(text: &str) -> Vec<BuildFile> {
    let file = |path: &str| BuildFile { path: path.to_owned(), content: text.as_bytes().to_vec() };
    vec![file("program"), file("a/b.class")]
}

#[test]
fn what_was_stored_is_found_again_and_nothing_else() {
    let place = TestPlace::new("found");
    let builds = place.builds();
    assert!(builds.recall(&key("one")).is_none());
    builds.store(&key("one"), &product("x")).unwrap();
    let build = builds.recall(&key("one")).unwrap();
    assert_eq!(fs::read(build.files.join("a/b.class")).unwrap(), b"x");
    assert!(builds.recall(&key("other")).is_none());
}

#[test]
fn fields_of_a_key_cannot_pass_for_each_other() {
    let of = |fields: &[(&str, &str)]| {
        let mut maker = KeyMaker::new();
        fields.iter().for_each(|(what, content)| maker.add(what, content.as_bytes()));
        maker.key()
    };
    let keys = [
        of(&[("code", "ab"), ("input", "c")]),
        of(&[("code", "a"), ("input", "bc")]),
        of(&[("code", "abinputc")]),
        of(&[("codea", "b"), ("input", "c")]),
        of(&[("input", "c"), ("code", "ab")]),
    ];
    for (at, one) in keys.iter().enumerate() {
        assert!(keys[at + 1..].iter().all(|other| other != one), "{at}");
    }
}

#[test]
fn a_damaged_entry_is_not_used_and_can_be_replaced() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 6] = [
        ("changed", |entry| rewrite(&entry.join("files/program"), b"y")),
        ("longer", |entry| rewrite(&entry.join("files/program"), b"xx")),
        ("missing", |entry| fs::remove_file(entry.join("files/a/b.class")).unwrap()),
        ("added", |entry| fs::write(entry.join("files/a/more.class"), b"z").unwrap()),
        ("manifest", |entry| rewrite(&entry.join("manifest"), b"nonsense")),
        ("link", |entry| {
            fs::remove_file(entry.join("files/program")).unwrap();
            std::os::unix::fs::symlink("/bin/true", entry.join("files/program")).unwrap();
        }),
    ];
    for (label, damage) in damages {
        let place = TestPlace::new(label);
        let builds = place.builds();
        builds.store(&key("one"), &product("x")).unwrap();
        damage(&place.entry(&key("one")));
        assert!(builds.recall(&key("one")).is_none(), "{label}");
        builds.store(&key("one"), &product("x")).unwrap();
        assert!(builds.recall(&key("one")).is_some(), "{label}");
    }
}

fn rewrite(path: &Path, content: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn an_entry_of_another_key_is_not_believed() {
    let place = TestPlace::new("moved");
    let builds = place.builds();
    builds.store(&key("one"), &product("x")).unwrap();
    fs::rename(place.entry(&key("one")), place.entry(&key("two"))).unwrap();
    assert!(builds.recall(&key("two")).is_none());
}

#[test]
fn the_oldest_make_room_but_never_those_in_use() {
    let place = TestPlace::new("room");
    let builds = Builds { kept_bytes_max: 3000, ..place.builds() };
    let used = builds.store(&key("used"), &product(&"u".repeat(500))).unwrap();
    for number in 0..6 {
        builds.store(&key(&number.to_string()), &product(&"x".repeat(500))).unwrap();
    }
    assert!(used.files.join("program").exists(), "it is in use");
    assert!(builds.recall(&key("0")).is_none() && builds.recall(&key("5")).is_some());
    assert!(bytes_beneath(&place.0) < 6000);
}

#[test]
fn what_a_killed_server_left_is_swept() {
    let place = TestPlace::new("swept");
    let builds = place.builds();
    let left = place.0.join(FOLDER).join("new-1-1");
    fs::create_dir_all(left.join("files")).unwrap();
    fs::write(left.join("files/half"), b"x").unwrap();
    builds.store(&key("one"), &product("x")).unwrap();
    assert!(!left.exists());
}

#[test]
fn many_servers_at_once_agree() {
    let place = TestPlace::new("many");
    let builds = place.builds();
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let builds = builds.clone();
            std::thread::spawn(move || {
                for turn in 0..20 {
                    let shared = key(&(turn % 3).to_string());
                    let found = match builds.recall(&shared) {
                        Some(found) => found,
                        None => builds.store(&shared, &product("same")).unwrap(),
                    };
                    let read = fs::read(found.files.join("program"));
                    assert_eq!(read.unwrap(), b"same", "server {number}");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn paths_that_lead_out_are_refused() {
    let place = TestPlace::new("paths");
    for path in ["../x", "/etc/x", "a/../../x", "a\nb"] {
        let file = BuildFile { path: path.to_owned(), content: Vec::new() };
        assert!(place.builds().store(&key(path), &[file]).is_err(), "{path:?}");
    }
}
