//! Archives among the inputs: unpacked behind the wall when asked, whatever they contain.

use std::path::{Path, PathBuf};
use std::process::Command;

use functional::sandbox::{in_a_sandbox, stdout};
use functional::{completed, outcome, run_json};
use harness::mcp::Client;
use harness::{User, users};
use serde_json::{Value, json};

/// Makes an archive by a Python program that gets its path as `path`. Returns the path.
fn archive(name: &str, code: &str) -> PathBuf {
    let path = harness::shared_folder().join(name);
    let code = format!(
        "import io, sys, tarfile, zipfile\npath = sys.argv[1]\n\
         def add(tar, name, data=b'', **more):\n    info = tarfile.TarInfo(name)\n    info.size = len(data)\n\
         \x20   for key, value in more.items(): setattr(info, key, value)\n    tar.addfile(info, io.BytesIO(data))\n\
         {code}"
    );
    let made = Command::new("/usr/bin/python3").args(["-c", &code]).arg(&path).status().unwrap();
    assert!(made.success(), "{name}");
    path
}

/// The archive as an input of a tool call.
fn input(path: &Path, at: &str) -> Value {
    let encoded = Command::new("base64").arg("-w0").arg(path).output().unwrap().stdout;
    json!([{"path": at, "base64": String::from_utf8(encoded).unwrap(), "unpack": true}])
}

fn run_unpacking(user: User, language: &str, code: &str, path: &Path, more: &[&str]) -> Value {
    let path = path.display().to_string();
    let options: Vec<&str> = ["--input", &path, "--unpack"].into_iter().chain(more.iter().copied()).collect();
    run_json(user, language, code, &options)
}

const PROJECT: &str = "add(tar, 'p/a.txt', b'A\\n')\n    add(tar, 'p/run.sh', b'echo ran\\n', mode=0o755)\n    \
                       add(tar, 'p/link', type=tarfile.SYMTYPE, linkname='a.txt')";

#[test]
fn archives_of_all_kinds_are_unpacked_into_their_folder() {
    let mut made = Vec::new();
    for (name, mode) in [
        ("p.tar", "w"),
        ("p.tgz", "w:gz"),
        ("p.tar.gz", "w:gz"),
        ("p.tar.bz2", "w:bz2"),
        ("p.tar.xz", "w:xz"),
    ] {
        made.push(archive(name, &format!("with tarfile.open(path, '{mode}') as tar:\n    {PROJECT}")));
    }
    let zip = "with zipfile.ZipFile(path, 'w') as z:\n    z.writestr('p/a.txt', 'A\\n')\n    z.writestr('p/run.sh', 'echo ran\\n')\n    \
               z.writestr('p/link', 'A\\n')";
    made.push(archive("p.ZIP", zip));
    for user in users() {
        for path in &made {
            let result = run_unpacking(user, "bash", "ls; sh p/run.sh; cat p/link", path, &[]);
            assert_eq!(stdout(&result), "main.sh\np\nran\nA\n", "{}", path.display());
        }
        let at = format!("{}=deep/er/p.tgz", made[1].display());
        let listed = completed(user, "bash", "find deep | sort", &["--input", &at, "--unpack"]);
        assert_eq!(listed, "deep\ndeep/er\ndeep/er/p\ndeep/er/p/a.txt\ndeep/er/p/link\ndeep/er/p/run.sh\n");
        // Without being asked, an archive is a file.
        let path = made[1].display().to_string();
        assert_eq!(completed(user, "bash", "ls", &["--input", &path]), "main.sh\np.tgz\n");
    }
}

#[test]
fn every_kind_of_language_finds_the_files_before_it_begins() {
    let path = archive("early.tgz", &format!("with tarfile.open(path, 'w:gz') as tar:\n    {PROJECT}"));
    let c = "#include <stdio.h>\nint main(void) { char b[9]; puts(fgets(b, 2, fopen(\"p/a.txt\", \"r\"))); }";
    for user in users() {
        for (language, code) in [
            ("python", "print(open('p/a.txt').read(), end='')"),
            ("javascript", "console.log(require('fs').readFileSync('p/a.txt', 'utf8').trim())"),
            (
                "typescript",
                "import fs from 'fs'; const t: string = fs.readFileSync('p/a.txt', 'utf8'); console.log(t.trim())",
            ),
            ("perl", "open(F, 'p/a.txt'); print <F>;"),
            ("c", c),
        ] {
            let result = run_unpacking(user, language, code, &path, &[]);
            assert_eq!(stdout(&result), "A\n", "{language}");
        }
        // An environment that the interpreter reads when it starts.
        let more = ["--env", "PYTHONHASHSEED=1"];
        let code = "import os; print(os.environ['PYTHONHASHSEED'], open('p/a.txt').read(), end='')";
        assert_eq!(stdout(&run_unpacking(user, "python", code, &path, &more)), "1 A\n");
    }
}

#[test]
fn in_a_persistent_sandbox_archives_are_unpacked_and_state_is_kept() {
    let path = archive("kept.tgz", &format!("with tarfile.open(path, 'w:gz') as tar:\n    {PROJECT}"));
    let broken = archive("broken.tgz", "open(path, 'wb').write(b'no archive')");
    in_a_sandbox(json!({}), |client, sandbox| {
        let with = |language: &str, code: &str, inputs: Value| {
            client.run_with(sandbox, language, code, json!({"inputs": inputs}))
        };
        for (language, set, get) in [
            ("bash", "x=1", "echo $x; cat p/a.txt"),
            ("python", "x = 1", "print(x); print(open('p/a.txt').read(), end='')"),
            (
                "javascript",
                "let x = 1",
                "console.log(x); console.log(require('fs').readFileSync('p/a.txt', 'utf8').trim())",
            ),
            (
                "typescript",
                "let y: number = 1",
                "const t: string = require('fs').readFileSync('p/a.txt', 'utf8'); console.log(y + '\\n' + t.trim())",
            ),
        ] {
            stdout(&client.run(sandbox, language, set));
            let refused = with(language, get, input(&broken, "b.tgz"));
            assert_eq!(
                (outcome(&refused), &refused["error"]["code"]),
                ("refused", &"unpack_failed".into()),
                "{refused:#}"
            );
            assert_eq!(stdout(&with(language, get, input(&path, "p.tgz"))), "1\nA\n", "{language}");
            stdout(&client.run(sandbox, "bash", "rm -r p"));
        }
        assert_eq!(stdout(&client.run(sandbox, "bash", "rm -f b.tgz; ls -A")), "");
        assert_eq!(stdout(&with("perl", "open(F, 'p/a.txt'); print <F>;", input(&path, "p.tgz"))), "A\n");
    });
}

#[test]
fn what_cannot_be_unpacked_is_refused_with_a_stable_code() {
    let broken = archive(
        "cut.tar.gz",
        "data = __import__('gzip').compress(bytes(range(256)) * 400)\nopen(path, 'wb').write(data[:500])",
    );
    let zip = archive("cut.zip", "open(path, 'wb').write(b'PK\\x03\\x04 no more')");
    let text = archive("a.txt", "open(path, 'w').write('x')");
    for user in users() {
        for path in [&broken, &zip] {
            let result = run_unpacking(user, "bash", "echo ran", path, &[]);
            assert_eq!(
                (outcome(&result), &result["error"]["code"]),
                ("refused", &"unpack_failed".into()),
                "{result:#}"
            );
            assert!(result["stdout"].as_str().is_none_or(str::is_empty), "{result:#}");
            let message = result["error"]["message"].as_str().unwrap();
            assert!(message.contains("`cut.") && message.contains("could not be unpacked: "), "{message}");
        }
        let result = run_unpacking(user, "bash", "echo ran", &text, &[]);
        assert_eq!(result["error"]["code"], "bad_inputs", "{result:#}");
        let client = Client::new(user);
        let result = client.call("run", json!({"language": "bash", "code": ":", "inputs": [{"path": "a.txt", "text": "", "unpack": true}]}));
        assert_eq!(result["error"]["code"], "bad_inputs", "{result:#}");
        assert!(client.end().success());
    }
}

#[test]
fn a_hostile_archive_writes_nothing_outside_its_folder() {
    let up = archive(
        "up.tar",
        "with tarfile.open(path, 'w') as tar:\n    add(tar, 'in/ok', b'x')\n    add(tar, '../../tmp/hit', b'x')",
    );
    let absolute =
        archive("absolute.tar", "with tarfile.open(path, 'w') as tar:\n    add(tar, '/tmp/hit', b'x')");
    let link = archive(
        "link.tar",
        "with tarfile.open(path, 'w') as tar:\n    add(tar, 'out', type=tarfile.SYMTYPE, linkname='/tmp')\n    add(tar, 'out/hit', b'x')",
    );
    let hard = archive(
        "hard.tar",
        "with tarfile.open(path, 'w') as tar:\n    add(tar, 'out', type=tarfile.LNKTYPE, linkname='/workspace/mine')\n    add(tar, 'out', b'x')",
    );
    let device = archive(
        "device.tar",
        "with tarfile.open(path, 'w') as tar:\n    add(tar, 'sda', type=tarfile.BLKTYPE, devmajor=8, devminor=0)",
    );
    let zip = archive(
        "up.zip",
        "with zipfile.ZipFile(path, 'w') as z:\n    z.writestr('../../tmp/hit', 'x')\n    z.writestr('/tmp/hit2', 'x')",
    );
    for user in users() {
        for path in [&up, &absolute, &link, &hard, &device, &zip] {
            let at = format!(
                "{}=sub/a{}",
                path.display(),
                &path.display().to_string()[path.display().to_string().rfind('.').unwrap()..]
            );
            let code = "ls -A /tmp | grep hit; ls -A; find . -type b; cat mine";
            let mine = functional::readable_file("mine", b"kept\n").display().to_string();
            let result = run_json(user, "bash", code, &["--input", &mine, "--input", &at, "--unpack"]);
            match outcome(&result) {
                "completed" => assert_eq!(
                    result["stdout"],
                    "main.sh\nmine\nsub\nkept\n",
                    "{}: {result:#}",
                    path.display()
                ),
                _ => assert_eq!(result["error"]["code"], "unpack_failed", "{}: {result:#}", path.display()),
            }
        }
    }
}

#[test]
fn what_is_unpacked_counts_as_disk_and_is_stopped_like_the_program() {
    let bomb = archive(
        "bomb.tgz",
        "with tarfile.open(path, 'w:gz') as tar:\n    add(tar, 'zeros', bytes(64 << 20))",
    );
    let many = archive(
        "many.tgz",
        "with tarfile.open(path, 'w:gz') as tar:\n    for i in range(30000): add(tar, str(i))",
    );
    for user in users() {
        for path in [&bomb, &many] {
            let result = run_unpacking(user, "bash", "echo ran", path, &["--disk-mb", "8"]);
            assert_eq!(
                (outcome(&result), &result["error"]["code"]),
                ("refused", &"inputs_do_not_fit".into()),
                "{result:#}"
            );
        }
        let result = run_unpacking(user, "bash", "stat -c %s zeros", &bomb, &["--disk-mb", "128"]);
        assert_eq!(stdout(&result), "67108864\n");
        let result = run_unpacking(user, "bash", "echo ran", &bomb, &["--timeout", "1ms"]);
        assert_eq!(outcome(&result), "timed_out", "{result:#}");
    }
    in_a_sandbox(json!({}), |client, sandbox| {
        stdout(&client.run(sandbox, "bash", "x=1"));
        let result = client.run_with(
            sandbox,
            "bash",
            "echo ran",
            json!({"inputs": input(&bomb, "a.tgz"), "timeout_ms": 1}),
        );
        assert_eq!(outcome(&result), "timed_out", "{result:#}");
        assert_eq!(stdout(&client.run(sandbox, "bash", "echo $x")), "1\n");
    });
}
