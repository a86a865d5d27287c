//! What comes back from a program that lies: its status, its output, its files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use escape::attack;
use escape::bait::{Bait, Tidy};
use escape::trial;
use harness::{Build, Palisade, run_json, users};

#[test]
fn a_forged_result_is_only_output() {
    let _tidy = Tidy;
    let bait = Bait::lay("forged");
    for user in users() {
        let shown = trial::run(&attack::named("deception_result.sh"), Build::Real, user, &bait);
        assert_eq!((shown.outcome.as_str(), &shown.result["exit_code"]), ("failed", &9.into()), "{user:?}");
        let text = shown.result["stdout"].as_str().unwrap();
        assert!(
            text.contains("\u{1b}]52;c;")
                && text.contains("\"outcome\":\"completed\"")
                && text.contains("\\xff")
        );
        let shown = trial::run(&attack::named("deception_driver.py"), Build::Real, user, &bait);
        assert_eq!((shown.outcome.as_str(), &shown.result["exit_code"]), ("failed", &7.into()), "{user:?}");
    }
}

#[test]
fn exit_codes_are_the_programs_own() {
    let _tidy = Tidy;
    let cases = [
        ("import os; os._exit(256 & 255)", "completed", 0),
        ("import sys; sys.exit(256)", "completed", 0),
        ("import sys; sys.exit(-1)", "failed", 255),
        ("import os; os.closerange(0, 4096); os._exit(3)", "failed", 3),
        ("import os; os._exit(124)", "failed", 124),
        ("import os\nif os.fork(): os._exit(5)\nos.setsid()\nimport time; time.sleep(30)", "failed", 5),
        ("raise SystemExit('words')", "failed", 1),
    ];
    for user in users() {
        for (code, outcome, status) in cases {
            let result = run_json(user, "python", code, &["--timeout", "10s"]);
            assert_eq!(
                (result["outcome"].as_str(), &result["exit_code"]),
                (Some(outcome), &status.into()),
                "{user:?} {code}"
            );
        }
    }
}

#[test]
fn a_signal_of_its_own_is_never_a_limit() {
    const IGNORED_OR_STOPPING: [i32; 9] = [17, 18, 19, 20, 21, 22, 23, 28, 13];
    let _tidy = Tidy;
    for user in users() {
        for signal in (1..32).filter(|signal| !IGNORED_OR_STOPPING.contains(signal)) {
            let code = format!(
                "import os,signal,resource\ntry: signal.signal({signal}, signal.SIG_DFL)\nexcept OSError: pass\nos.kill(os.getpid(), {signal})"
            );
            let result = run_json(user, "python", &code, &["--timeout", "10s"]);
            assert_eq!(
                (result["outcome"].as_str(), &result["signal"]),
                (Some("failed"), &signal.into()),
                "{user:?} {result}"
            );
        }
    }
}

#[test]
fn a_daemon_with_the_output_open_does_not_hold_the_run() {
    let _tidy = Tidy;
    let code = "import os,time\nif os.fork() == 0:\n os.setsid()\n while True:\n  print('still here', flush=True); time.sleep(0.01)\ntime.sleep(0.1)";
    for user in users() {
        let ended =
            Palisade::new(Build::Real, user, &["run", "python", "--timeout", "20s", "-c", code]).end();
        assert!(ended.status.success() && ended.elapsed.as_secs() < 5, "{user:?}: {ended:?}");
    }
}

/// Links, pipes, sockets and odd names among the files a program leaves: only plain files come out.
#[test]
fn artifacts_are_plain_files_beneath_their_folder() {
    const LEAVE: &str = r#"
import os, socket
os.symlink("/etc/passwd", "link"); os.symlink("/", "rootlink"); os.symlink("../../../..", "up")
os.mkfifo("pipe"); s = socket.socket(socket.AF_UNIX); s.bind("sock")
os.makedirs("/".join(["d"] * 40)); open("/".join(["d"] * 40) + "/deep", "w").write("deep")
for name in ("...", "..x", "-rf", "a\nb", "a\\b", "~", "%2e%2e", "plain", " ", "\u202etxt"):
    open(name, "w").write("x")
open(b"bad\xff", "w").write("x")
os.link("plain", "hard")
os.chmod("plain", 0o6777)
os.mkdir("closed"); open("closed/file", "w").write("x"); os.chmod("closed", 0)
"#;
    let _tidy = Tidy;
    let bait = Bait::lay("artifacts");
    for user in users() {
        let out = bait.drop_folder().join(format!("{user:?}"));
        fs::create_dir(&out).unwrap();
        fs::set_permissions(&out, fs::Permissions::from_mode(0o777)).unwrap();
        let path = out.to_string_lossy().into_owned();
        let ended =
            Palisade::new(Build::Real, user, &["run", "python", "--output-dir", &path, "-c", LEAVE]).end();
        assert!(ended.status.success(), "{user:?}: {}", ended.stderr);
        let mut files = Vec::new();
        walk(&out, &mut files);
        assert!(files.iter().any(|file| file.ends_with("plain")), "{files:?}");
        assert!(
            !files.iter().any(|file| ["link", "up", "pipe", "sock"].iter().any(|name| file.ends_with(name))),
            "{files:?}"
        );
        for file in &files {
            let data = fs::symlink_metadata(file).unwrap();
            assert!(
                data.is_file() && data.permissions().mode() & 0o7111 == 0,
                "{user:?}: {}",
                file.display()
            );
            assert!(!fs::read_to_string(file).unwrap().contains("root:"), "{}", file.display());
        }
    }
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), files);
        } else {
            files.push(entry.path());
        }
    }
}
