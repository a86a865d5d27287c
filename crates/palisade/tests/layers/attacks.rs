//! What programs try with layers, and what is left when attaching is killed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::packages::Ecosystem;
use rustix::process::{Pid, Signal, kill_process};
use sandbox::{Layer, SandboxSpec};

use crate::book::FILTER;
use crate::stage::{Stage, program, told};

const TARGET: &str = "/palisade/packages/python";

/// Every way to change a layer fails with the error of a read-only file system, or of a call that is not allowed.
const WRITE: &str = r#"
import ctypes, errno, os
target = "/palisade/packages/python"
libc = ctypes.CDLL(None, use_errno=True)
def name(call):
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "DONE"
print(name(lambda: open(target + "/alpha/__init__.py", "a")))
print(name(lambda: os.unlink(target + "/alpha/__init__.py")))
print(name(lambda: os.mkdir(target + "/new")))
print(name(lambda: os.chmod(target, 0o777)))
print(name(lambda: os.utime(target + "/alpha/__init__.py")))
MS_REMOUNT, MS_BIND = 32, 4096
ctypes.set_errno(0)
print(libc.mount(b"none", target.encode(), None, MS_REMOUNT | MS_BIND, None), errno.errorcode.get(ctypes.get_errno()))
ctypes.set_errno(0)
print(libc.umount2(target.encode(), 2), errno.errorcode.get(ctypes.get_errno()))
"#;

pub(crate) async fn a_layer_cannot_be_written_or_remounted(stage: &Stage) {
    let id = stage.sandbox(&[]).await;
    told(&stage.run_in(&id, program("bash", "true", &[])).await);
    stage.install(&id, &["alpha==7"]).await.unwrap();
    let attached = told(&stage.run_in(&id, program("python", WRITE, &[])).await);
    let bound = stage.completes(program("python", WRITE, &["alpha==7"])).await;
    for said in [attached, bound] {
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[..5].iter().all(|line| ["EROFS", "EACCES"].contains(line)), "{lines:?}");
        assert!(lines[5..].iter().all(|line| *line == "-1 EPERM"), "{lines:?}");
    }
    let layer = stage.book.path(Ecosystem::Pypi, &["alpha==7".to_owned()]);
    assert_eq!(
        std::fs::read_to_string(layer.join("alpha/__init__.py")).unwrap(),
        format!("VERSION = '7'\n{FILTER}")
    );
}

pub(crate) async fn set_uid_files_of_a_layer_have_no_effect(stage: &Stage) {
    let id = stage.sandbox(&[]).await;
    told(&stage.run_in(&id, program("bash", "true", &[])).await);
    stage.install(&id, &["alpha==7"]).await.unwrap();
    let code =
        format!("[ -u {TARGET}/bin/set-uid ] && {TARGET}/bin/set-uid -u; {TARGET}/bin/set-uid -ru; id -u");
    let said = told(&stage.run_in(&id, program("bash", &code, &[])).await);
    assert_eq!(said, "1000\n1000\n1000");
}

pub(crate) async fn the_way_up_from_a_layer_stays_inside(stage: &Stage) {
    let id = stage.sandbox(&[]).await;
    told(&stage.run_in(&id, program("bash", "true", &[])).await);
    stage.install(&id, &["alpha==7", "npm:tiny==3"]).await.unwrap();
    let code = format!(
        "cd {TARGET} && pwd -P && ls .. && cd ../../.. && pwd -P && ls /proc/self/root{TARGET}/.. && \
         grep -c {TARGET} /proc/self/mountinfo; cd /node_modules/.. && pwd -P; ls -d /tmp/palisade-layers-* 2>/dev/null; true"
    );
    let said = told(&stage.run_in(&id, program("bash", &code, &[])).await);
    assert_eq!(said, format!("{TARGET}\npython\n/\npython\n1\n/"));
}

pub(crate) async fn another_sandbox_never_sees_an_attached_layer(stage: &Stage) {
    let (one, other) = (stage.sandbox(&[]).await, stage.sandbox(&[]).await);
    let look = || program("bash", "ls /palisade/packages/python /node_modules | grep -c alpha; true", &[]);
    assert_eq!(told(&stage.run_in(&one, look()).await), "0");
    assert_eq!(told(&stage.run_in(&other, look()).await), "0");
    stage.install(&one, &["alpha==7"]).await.unwrap();
    assert_eq!(told(&stage.run_in(&one, look()).await), "2");
    assert_eq!(told(&stage.run_in(&other, look()).await), "0");
    assert_eq!(told(&stage.run_in(&stage.sandbox(&[]).await, look()).await), "0");
}

fn children_of(pid: i32) -> BTreeSet<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// Kills the spawner's short-lived children at random moments while layers are attached.
pub(crate) async fn killing_what_attaches_leaves_nothing(stage: &Stage) {
    told(&crate::stage::run(&stage.engine, program("python", "import alpha", &["alpha==7"])).await);
    let point = Path::new(TARGET).to_owned();
    let spec = SandboxSpec { attach_points: vec![point.clone()], ..SandboxSpec::default() };
    let mut sandbox = stage.backend.create(&spec).await.unwrap();
    let path = stage.book.path(Ecosystem::Pypi, &["alpha==7".to_owned()]);
    let layer = Layer { digest: "alpha".to_owned(), path, target: point };
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count();
    let (before, spawner) = (mounts(), stage.spawner);
    let is_over = Arc::new(AtomicBool::new(false));
    let killer = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let known = children_of(spawner);
            let mut killed = 0;
            while !is_over.load(Ordering::SeqCst) {
                for pid in children_of(spawner).difference(&known) {
                    // Only what attaches: a sandbox of another test has other namespaces from its first moment on.
                    let pids = std::fs::read_link(format!("/proc/{pid}/ns/pid_for_children")).ok();
                    let own = std::fs::read_link("/proc/self/ns/pid").ok();
                    if pids.is_some() && pids == own && killed < 100 {
                        killed += i32::from(kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL).is_ok());
                    }
                }
            }
            killed
        }
    });
    let mut attached = 0;
    for _ in 0..200 {
        let answer = tokio::time::timeout(Duration::from_secs(10), sandbox.attach(&layer)).await.unwrap();
        attached += i32::from(answer.is_ok());
    }
    is_over.store(true, Ordering::SeqCst);
    let killed = killer.join().unwrap();
    println!("{attached} of 200 were attached, {killed} processes were killed");
    assert_eq!(mounts(), before, "nothing is mounted on the host");
    sandbox.attach(&layer).await.unwrap();
    sandbox.destroy().await.unwrap();
}
