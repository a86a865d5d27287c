//! Palisade inside a container that imitates a pod: a user namespace with 65,536 ids, the image's system-call filter, no
//! capability, a read-only root with the host's `/usr`. runc builds it, so no image and no daemon is needed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use functional::marker;
use harness::{Build, TestFolder};
use serde_json::{Value, json};

/// Who the server is in its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// Root of a user namespace.
    Root,
    /// The user of the image.
    Ordinary,
}

/// What the runtime covers in /proc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Procfs {
    Whole,
    /// As container engines do it.
    Masked,
}

/// The system-call filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    /// deploy/docker/seccomp.json.
    OfImage,
    /// Refuses new namespaces, as the usual filter of engines does.
    Strict,
}

/// Of those that engines give to root, what a server needs that gives ids of the namespace to its sandboxes. Without them the
/// kernel lets root map no id at all, see user_namespaces(7).
const CAPABILITIES_OF_ROOT: [&str; 5] =
    ["CAP_CHOWN", "CAP_FOWNER", "CAP_SETUID", "CAP_SETGID", "CAP_SETFCAP"];
const IMAGE_USER: u32 = 10_001;
const FIRST_ID: u32 = 100_000;
const IDS: u32 = 65_536;

/// A bundle of a container with this palisade.
struct Pod {
    folder: TestFolder,
    id: String,
}

impl Pod {
    /// `None`, loudly, where no container can be made.
    fn new((user, procfs, filter): (Inside, Procfs, Filter), arguments: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED palisade in a container: the suite does not run as root");
            return None;
        }
        if Command::new("runc").arg("--version").output().is_err() {
            eprintln!("SKIPPED palisade in a container: runc is not installed (scripts/setup-tests.sh)");
            return None;
        }
        let folder = TestFolder::new();
        let pod = Self { folder, id: marker("pod") };
        pod.lay_out(user);
        let config = config(user, procfs, filter, arguments);
        fs::write(pod.path("config.json"), config.to_string()).unwrap();
        Some(pod)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn lay_out(&self, user: Inside) {
        let root = self.path("rootfs");
        for name in ["usr", "proc", "dev", "sys", "tmp", "etc", "opt", "state"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            if let Ok(target) = fs::read_link(Path::new("/").join(name)) {
                symlink(target, root.join(name)).unwrap();
            }
        }
        // The user of the image has no account here, as in a pod with an arbitrary user.
        fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
        fs::write(root.join("opt/palisade"), "").unwrap();
        let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for path in [self.folder.path(), &root] {
            open(path, 0o755);
        }
        open(&root.join("tmp"), 0o1777);
        open(&root.join("state"), 0o700);
        let owner = Some(FIRST_ID + id_of(user));
        std::os::unix::fs::chown(root.join("state"), owner, owner).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "100", "runc", "--root"]).arg(self.path("runc"));
        command.args(["run", "--bundle"]).arg(self.folder.path()).arg(&self.id);
        command
    }

    fn end(&self) -> Output {
        self.command().stdin(Stdio::null()).output().unwrap()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // Usually runc has removed it already.
        let delete = Command::new("runc")
            .arg("--root")
            .arg(self.path("runc"))
            .args(["delete", "--force", &self.id])
            .output();
        assert!(delete.is_ok());
    }
}

fn id_of(user: Inside) -> u32 {
    if user == Inside::Root { 0 } else { IMAGE_USER }
}

fn config(user: Inside, procfs: Procfs, filter: Filter, arguments: &[&str]) -> Value {
    let id = id_of(user);
    let binary = harness::binary(Build::Real);
    let args: Vec<&str> = std::iter::once("/opt/palisade").chain(arguments.iter().copied()).collect();
    let tmpfs = |at: &str, mode: &str, owner: u32| {
        let options = [
            "nosuid".to_owned(),
            "nodev".to_owned(),
            format!("mode={mode}"),
            format!("uid={owner}"),
            format!("gid={owner}"),
        ];
        json!({ "destination": at, "type": "tmpfs", "source": "tmpfs", "options": options })
    };
    let bind = |at: &str, from: &Path| json!({ "destination": at, "type": "none", "source": from, "options": ["bind", "ro"] });
    let capabilities = if user == Inside::Root { json!(CAPABILITIES_OF_ROOT) } else { json!([]) };
    let map = json!([{ "containerID": 0, "hostID": FIRST_ID, "size": IDS }]);
    let (masked, readonly) = match procfs {
        Procfs::Whole => (json!([]), json!([])),
        Procfs::Masked => {
            (json!(["/proc/acpi", "/proc/kcore", "/proc/keys"]), json!(["/proc/bus", "/proc/sys"]))
        }
    };
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": { "uid": id, "gid": id },
            "args": args,
            "env": ["PATH=/usr/bin:/bin", "HOME=/state", "PALISADE_STATE_DIR=/state"],
            "cwd": "/",
            "capabilities": { "bounding": capabilities, "effective": capabilities, "permitted": capabilities },
            "noNewPrivileges": true
        },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": "pod",
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            tmpfs("/dev", "755", 0), tmpfs("/tmp", "1777", 0), tmpfs("/state", "700", id),
            bind("/usr", Path::new("/usr")), bind("/opt/palisade", binary)
        ],
        "linux": {
            "namespaces": (["user", "pid", "ipc", "uts", "mount", "network"].map(|kind| json!({ "type": kind }))),
            "uidMappings": map, "gidMappings": map,
            "maskedPaths": masked, "readonlyPaths": readonly,
            "seccomp": seccomp(filter)
        }
    })
}

fn seccomp(filter: Filter) -> Value {
    if filter == Filter::Strict {
        return json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            { "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38 },
            { "names": ["unshare", "mount", "setns"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1 }
        ] });
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/docker/seccomp.json");
    let mut profile: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    for rule in profile["syscalls"].as_array_mut().unwrap() {
        // The format of engines has comments, that of runtimes has not.
        rule.as_object_mut().unwrap().remove("comment");
    }
    profile
}

fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_program_runs_in_a_container_as_its_root_and_as_an_ordinary_user() {
    for user in [Inside::Root, Inside::Ordinary] {
        let run = ["run", "python", "-c", "import os; print(6*7, os.getuid())"];
        let Some(pod) = Pod::new((user, Procfs::Whole, Filter::OfImage), &run) else { return };
        let ended = pod.end();
        assert_eq!(String::from_utf8_lossy(&ended.stdout), "42 1000\n", "as {user:?}: {}", words(&ended));
    }
}

#[test]
fn a_covered_procfs_and_a_strict_filter_are_told_with_the_setting_that_helps() {
    let run = ["run", "python", "-c", "print(1)"];
    for (procfs, filter, expected) in [
        (Procfs::Masked, Filter::OfImage, "systempaths=unconfined"),
        (Procfs::Whole, Filter::Strict, "seccomp=deploy/docker/seccomp.json"),
    ] {
        let Some(pod) = Pod::new((Inside::Ordinary, procfs, filter), &run) else { return };
        let ended = pod.end();
        assert_eq!(ended.status.code(), Some(125), "{}", words(&ended));
        assert!(words(&ended).contains(expected), "{procfs:?} {filter:?}: {}", words(&ended));
    }
}

#[test]
fn doctor_says_what_is_around_the_server_and_what_keeps_the_limits() {
    let Some(pod) = Pod::new((Inside::Ordinary, Procfs::Whole, Filter::OfImage), &["doctor", "--json"])
    else {
        return;
    };
    let ended = pod.end();
    let found: Value =
        serde_json::from_slice(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", words(&ended)));
    let told = found["container"].as_str().unwrap();
    assert!(
        told.contains("a user namespace, a system-call filter, /proc whole, no control groups"),
        "{told}"
    );
    let guarantees = found["guarantees"].as_array().unwrap();
    assert!(guarantees.iter().all(|one| one["holds"] == true), "{guarantees:#?}");
    let by = |name: &str| guarantees.iter().find(|one| one["name"] == name).unwrap()["by"].clone();
    assert_eq!(by("memory_limited"), json!(["watchdog"]));
    let remedies = found["remedies"].to_string();
    assert!(remedies.contains("docs/CONTAINERS.md") && !remedies.contains("systemd-run"), "{remedies}");
    let javascript =
        found["languages"].as_array().unwrap().iter().find(|one| one["name"] == "javascript").unwrap();
    assert_eq!(javascript["works"], true, "a user without an account: {javascript}");
}

#[test]
fn an_mcp_client_talks_to_a_server_in_a_container() {
    let Some(pod) = Pod::new((Inside::Ordinary, Procfs::Whole, Filter::OfImage), &["mcp"]) else { return };
    let mut server =
        pod.command().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let (mut input, mut output) =
        (server.stdin.take().unwrap(), BufReader::new(server.stdout.take().unwrap()));
    let mut answer = |message: Value| -> Value {
        writeln!(input, "{message}").unwrap();
        loop {
            let mut line = String::new();
            assert!(output.read_line(&mut line).unwrap() > 0, "the server has ended");
            let said: Value = serde_json::from_str(&line).unwrap();
            if said["id"] == message["id"] {
                return said;
            }
        }
    };
    let client = json!({ "name": "test", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    answer(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }));
    let run = |id: u32, code: &str| {
        let arguments = json!({ "language": "python", "code": code });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "run", "arguments": arguments } })
    };
    // The second is likely to be a clone of a warm interpreter, with ids of the container's namespace.
    for (id, code, expected) in [(2, "print(6*7)", "42\n"), (3, "print(6*8)", "48\n")] {
        let result = answer(run(id, code));
        let content = &result["result"]["structuredContent"];
        assert_eq!(content["stdout"], expected, "{result:#}");
        assert_eq!(content["isolation"], json!({ "backend": "native", "kernel": "shared" }));
    }
    drop(input);
    assert!(server.wait().unwrap().success());
}
