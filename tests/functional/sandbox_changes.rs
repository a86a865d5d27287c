//! Large workspaces of persistent sandboxes: every change is found, and a run does not list what it does not touch.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use functional::sandbox::stdout;
use functional::{SOON, outcome, until};
use harness::mcp::Client;
use harness::{User, state_dir, users};
use serde_json::{Value, json};

/// Files in many directories, more than a workspace that is walked each time.
const FILL: &str = "import os, time\nfor n in range(1200):\n    os.makedirs(f'data/d{n % 60}', exist_ok=True)\n    \
open(f'data/d{n % 60}/f{n}', 'w').write('content')\nos.makedirs('keep/one/inner')\nopen('keep/one/inner/file', 'w').write('x')";

/// How many directories the server watches.
fn watched(client: &Client) -> usize {
    let folder = fs::read_dir(format!("/proc/{}/fdinfo", client.pid())).unwrap();
    let infos = folder.flatten().map(|entry| fs::read_to_string(entry.path()).unwrap_or_default());
    infos.map(|info| info.lines().filter(|line| line.starts_with("inotify ")).count()).sum()
}

/// A sandbox with many files, whose changes the server follows.
fn large(client: &Client, fill: &str, directories: usize) -> String {
    let sandbox = client.open(json!({"limits": {"disk_mb": 512}}));
    stdout(&client.run(&sandbox, "python", fill));
    until(SOON, "the directories are watched", || (watched(client) >= directories).then_some(()));
    sandbox
}

fn artifacts(result: &Value) -> Vec<&str> {
    assert_eq!(outcome(result), "completed", "{result:#}");
    result["artifacts"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect()
}

/// Programs that run one after another in the same interpreter, and the artifacts of each.
const STEPS: &[(&str, &[&str])] = &[
    ("open('new', 'w').write('x')", &["new"]),
    ("os.makedirs('a/b/c'); open('a/b/c/new', 'w').write('x')", &["a/b/c/new"]),
    ("open('data/d1/f1', 'a').write('more')", &["data/d1/f1"]),
    ("open('data/d2/f2', 'w').write('CONTENT')", &["data/d2/f2"]),
    (
        "before = os.stat('data/d3/f3'); open('data/d3/f3', 'w').write('CONTENT')\n\
         os.utime('data/d3/f3', ns=(before.st_atime_ns, before.st_mtime_ns))",
        &["data/d3/f3"],
    ),
    ("os.truncate('data/d4/f4', 2)", &["data/d4/f4"]),
    ("os.rename('data/d5/f5', 'data/d6/renamed')", &["data/d6/renamed"]),
    ("os.rename('keep/one', 'keep/two')", &["keep/two/inner/file"]),
    ("open('keep/two/inner/file', 'a').write('in the moved one')", &["keep/two/inner/file"]),
    (
        "import shutil; shutil.rmtree('keep/two'); os.makedirs('keep/two/inner'); open('keep/two/inner/file', 'w').write('y')",
        &["keep/two/inner/file"],
    ),
    ("os.link('data/d7/f7', 'linked')", &["data/d7/f7", "linked"]),
    ("open('linked', 'a').write('by one name')", &["data/d7/f7", "linked"]),
    ("os.unlink('data/d8/f8')", &[]),
    ("os.symlink('data/d9/f9', 'symbolic')", &[]),
    ("open('data/d9/f9').read(); os.listdir('data')", &[]),
    (
        "import mmap\nwith open('data/d10/f10', 'r+b') as f, mmap.mmap(f.fileno(), 0) as m: m[:4] = b'NEW!'",
        &["data/d10/f10"],
    ),
    ("with open('data/d11/f11', 'r+b') as f: kept = mmap.mmap(f.fileno(), 0)", &["data/d11/f11"]),
    ("kept[:4] = b'NEW!'", &["data/d11/f11"]),
    ("kept.close()", &[]),
    ("still_open = open('data/d12/f12', 'r+b', buffering=0)", &[]),
    ("still_open.write(b'NEW!')", &["data/d12/f12"]),
    ("with mmap.mmap(still_open.fileno(), 0) as m: m[:4] = b'MAP!'", &["data/d12/f12"]),
    ("os.unlink('data/d12/f12'); still_open.write(b'nameless')", &[]),
    ("still_open.close()", &[]),
    (
        "import ctypes; t = os.open('.', os.O_TMPFILE | os.O_RDWR)\n\
         assert ctypes.CDLL(None).linkat(-100, b'/proc/self/fd/%d' % t, -100, b'named', 0x400) == 0",
        &["named"],
    ),
    ("os.write(t, b'after it was named')", &["named"]),
    ("os.close(t)", &[]),
    ("import subprocess; subprocess.run(['sh', '-c', 'echo x > child'], check=True)", &["child"]),
];

#[test]
fn every_kind_of_change_in_a_large_workspace_is_an_artifact() {
    for user in users() {
        let client = Client::new(user);
        let sandbox = large(&client, FILL, 62);
        for (code, expected) in STEPS {
            // Opening a file for writing changes nothing, but a mapping of it may have.
            let result = client.run(&sandbox, "python", code);
            let found = artifacts(&result);
            let may_be_none = code.contains("kept = ") && found.is_empty();
            assert!(found == *expected || may_be_none, "as {user:?}: {code}\n{found:?}");
        }
        assert!(watched(&client) >= 62, "as {user:?}: the server follows the changes to the end");
        let by_bash = client.run(&sandbox, "bash", "echo x > by-bash");
        assert_eq!(artifacts(&by_bash), ["by-bash"], "as {user:?}");
        let other_wall = client.run(&sandbox, "perl", "open(my $f, '>', 'by-perl'); print $f 'x'");
        if other_wall["error"]["code"] != "language_unavailable" {
            assert_eq!(artifacts(&other_wall), ["by-perl"], "as {user:?}");
        }
        assert!(client.end().success());
    }
}

#[test]
fn changes_between_two_runs_are_not_those_of_the_next_run() {
    const BACKGROUND: &str = "import subprocess\n\
        subprocess.Popen(['sh', '-c', 'until [ -e go ]; do sleep 0.01; done; echo x > between; until [ -e go2 ]; do sleep 0.01; done; echo x > during'])\n0";
    for user in users() {
        let client = Client::new(user);
        let sandbox = large(&client, FILL, 62);
        let write = |path: &str| {
            client.call("write_file", json!({"sandbox_id": sandbox, "path": path, "text": "from outside"}));
        };
        write("data/d1/f1");
        assert_eq!(artifacts(&client.run(&sandbox, "python", "1")), [""; 0], "as {user:?}");
        assert_eq!(artifacts(&client.run(&sandbox, "python", BACKGROUND)), [""; 0], "as {user:?}");
        write("go");
        until(SOON, "the process in the background wrote", || {
            let found = client.call("read_file", json!({"sandbox_id": sandbox, "path": "between"}));
            (found["text"] == "x\n").then_some(())
        });
        assert_eq!(artifacts(&client.run(&sandbox, "python", "1")), [""; 0], "as {user:?}");
        let waits = "open('go2', 'w').close()\nimport os, time\nwhile not (os.path.exists('during') and os.stat('during').st_size): time.sleep(0.01)";
        assert_eq!(artifacts(&client.run(&sandbox, "python", waits)), ["during", "go2"], "as {user:?}");
        assert!(client.end().success());
        let client = Client::new(user);
        let after = client.run(&sandbox, "python", "open('data/d1/f1', 'w').write('after the restart')");
        assert_eq!(artifacts(&after), ["data/d1/f1"], "as {user:?}");
        assert!(client.end().success());
    }
}

fn workspace(user: User, sandbox: &str) -> PathBuf {
    state_dir(user).join("sandboxes").join(sandbox).join("workspace")
}

/// A directory whose time of access is older than its last change is marked when it is listed (`relatime` in mount(8)).
#[test]
fn a_run_lists_none_of_ten_thousand_files() {
    const MANY: &str = "import os, time\nos.mkdir('all')\nfor n in range(10_000): open(f'all/{n}', 'w').close()\n\
        for n in range(2000): os.makedirs(f'deep/{n % 20}/{n}')";
    const LONG_AGO_S: i64 = 1000;
    // Other programs may take much of the device at the same time, which makes the server walk.
    const TRIES: usize = 20;
    for user in users() {
        let client = Client::new(user);
        let sandbox = large(&client, MANY, 2000);
        let directory = workspace(user, &sandbox).join("all");
        let accessed = || fs::metadata(&directory).unwrap().atime();
        let age = format!("os.utime('all', ({LONG_AGO_S}, time.time()))");
        let is_left_alone = (0..TRIES).any(|_| {
            client.run(&sandbox, "python", &age);
            let changed = client.run(&sandbox, "python", "open('all/77', 'w').write('x')");
            assert_eq!(artifacts(&changed), ["all/77"], "as {user:?}");
            accessed() == LONG_AGO_S
        });
        assert!(is_left_alone, "as {user:?}: every run listed the directory");
        fs::read_dir(&directory).unwrap().count();
        assert_ne!(accessed(), LONG_AGO_S, "a list shows in the time of access");
        assert!(client.end().success());
    }
}

/// Ways to write to a file that has a name, without an event that the server could see.
const UNSEEN: [(&str, &str); 2] = [
    (
        "descriptors from a directory that is gone",
        "os.mkdir('gone')\nheld = []\nfor n in range(12):\n    held.append(os.open(f'gone/{n}', os.O_CREAT | os.O_RDWR))\n    \
         os.link(f'gone/{n}', f'kept{n}')\n    os.unlink(f'gone/{n}')\nos.rmdir('gone')\ntime.sleep(1)\n\
         for f in held:\n    os.posix_fallocate(f, 0, 10 << 20)\n    time.sleep(0.2)",
    ),
    (
        "mappings",
        "import mmap\nheld = []\nfor n in range(12):\n    f = os.open(f'mapped{n}', os.O_CREAT | os.O_RDWR)\n    \
         os.ftruncate(f, 10 << 20)\n    held.append(mmap.mmap(f, 0))\n    os.close(f)\ntime.sleep(1)\n\
         for m in held:\n    for at in range(0, len(m), 4096): m[at] = 1\n    time.sleep(0.2)",
    ),
];

#[test]
fn growth_without_events_counts_for_the_disk_limit_of_a_large_workspace() {
    for user in users() {
        let client = Client::new(user);
        for (way, code) in UNSEEN {
            let sandbox = client.open(json!({"limits": {"disk_mb": 64}}));
            let before = watched(&client);
            stdout(&client.run(&sandbox, "python", FILL));
            until(SOON, "the directories are watched", || (watched(&client) >= before + 62).then_some(()));
            let result = client.run_with(&sandbox, "python", code, json!({"timeout_ms": 40_000}));
            assert_eq!(outcome(&result), "disk_full", "as {user:?}, by {way}: {result:#}");
        }
        assert!(client.end().success());
    }
}
