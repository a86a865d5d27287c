//! Tests of the host's inventory over small shell scripts that stand for interpreters.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A state directory that is removed with the test.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("palisade-inventory-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    fn inventory(&self, named: &[(&str, &Path)]) -> HostInventory {
        let interpreters =
            named.iter().map(|(name, path)| ((*name).to_owned(), path.to_path_buf())).collect();
        let parts = HostParts { state_dir: self.0.clone(), interpreters, ..HostParts::default() };
        HostInventory::new(&parts)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// A language whose probe is a script of its folder, run by the interpreter.
fn query(language: &str, probe: &str) -> ToolchainQuery {
    ToolchainQuery {
        language: language.to_owned(),
        commands: vec!["no-such-command".to_owned(), "sh".to_owned()],
        probe: ["{interpreter}", "{folder}/probe.sh", "{out}"].map(str::to_owned).to_vec(),
        files: vec![("probe.sh".to_owned(), Arc::from(probe.as_bytes()))],
        settings: Vec::new(),
    }
}

const ANSWER: &str = r#"echo '{"version": "1", "executable": "/bin/sh", "binds": ["/usr", "/home"]}'"#;

#[tokio::test]
async fn an_interpreter_that_the_operator_named_is_used_and_never_replaced() {
    let place = Place::new();
    let own = place.script("own", r#"exec sh "$@""#);
    assert!(place.inventory(&[("x", &own)]).find(&query("x", ANSWER)).await.is_ok());
    for path in [place.0.join("nothing"), place.0.clone()] {
        let refused = place.inventory(&[("x", &path)]).find(&query("x", ANSWER)).await;
        assert!(matches!(refused, Err(InventoryError::Broken { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn the_first_command_on_the_path_is_probed_once_and_remembered() {
    let place = Place::new();
    let count = place.0.join("count");
    let probe = format!("echo asked >> {}\n{ANSWER}", count.display());
    let found = place.inventory(&[]).find(&query("x", &probe)).await.unwrap();
    assert_eq!((found.version.as_str(), found.executable.as_str()), ("1", "/bin/sh"));
    // A probe cannot make a home directory visible.
    assert_eq!(found.binds, [PathBuf::from("/usr")]);
    // A second server finds the answer; another probe is another question.
    assert_eq!(place.inventory(&[]).find(&query("x", &probe)).await, Ok(found));
    assert_eq!(fs::read_to_string(&count).unwrap(), "asked\n");
    place.inventory(&[]).find(&query("x", &format!("{probe}\n"))).await.unwrap();
    assert_eq!(fs::read_to_string(&count).unwrap(), "asked\nasked\n");
}

#[tokio::test]
async fn an_answer_of_the_version_before_is_still_read() {
    let place = Place::new();
    let asked = query("x", ANSWER);
    let command = locate::on_path(&asked.commands, &std::env::var_os("PATH").unwrap()).unwrap();
    place.inventory(&[]).find(&asked).await.unwrap();
    let folder = place.0.join("runtimes");
    let is_answer = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    let file = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).find(is_answer).unwrap();
    let old = r#"{"version":"old","executable":"/bin/sh","binds":["/usr"],"run_binds":[],"programs":{},"watch":[],
        "env":{"A":"b"},"packages":{"p":"1"},"modules":[],"compiled":true}"#;
    fs::write(&file, old).unwrap();
    assert_eq!(cache::recall(&asked, &command, &place.0), None, "its driver is missing");
    fs::write(file.with_extension("driver"), b"compiled").unwrap();
    let found = place.inventory(&[]).find(&asked).await.unwrap();
    assert_eq!((found.version.as_str(), found.driver.as_deref()), ("old", Some(&b"compiled"[..])));
}

#[tokio::test]
async fn a_driver_that_the_probe_compiled_comes_with_the_answer() {
    let place = Place::new();
    let probe = format!("printf compiled > \"$1\"\n{ANSWER}");
    for _ in 0..2 {
        let found = place.inventory(&[]).find(&query("x", &probe)).await.unwrap();
        assert_eq!(found.driver.as_deref(), Some(&b"compiled"[..]));
    }
}

#[tokio::test]
async fn what_is_missing_broken_or_late_is_told_apart() {
    let place = Place::new();
    let missing = ToolchainQuery { commands: vec!["no-such-command".to_owned()], ..query("x", ANSWER) };
    let told = place.inventory(&[]).find(&missing).await.unwrap_err().to_string();
    assert!(told.starts_with("none of no-such-command is on the PATH"), "{told}");
    let broken = place.inventory(&[]).find(&query("x", "echo oh no >&2; exit 3")).await;
    let told = broken.clone().unwrap_err().to_string();
    assert!(matches!(broken, Err(InventoryError::Broken { .. })) && told.ends_with("oh no"), "{told}");
    let mut slow = place.inventory(&[]);
    slow.patience = Duration::from_millis(50);
    let late = slow.find(&query("x", "exec sleep 1000")).await;
    assert!(matches!(late, Err(InventoryError::Late { .. })), "{late:?}");
    let leftovers = fs::read_dir(place.0.join("runtimes")).unwrap().count();
    assert_eq!(leftovers, 0, "a probe without an answer leaves nothing");
}

#[tokio::test]
async fn a_slow_probe_holds_up_no_other_language() {
    let place = Place::new();
    // The script runs until its own file is removed.
    let slow = place.script("slow", r#"while [ -e "$0" ]; do sleep 0.01; done"#);
    let inventory = place.inventory(&[("slow", &slow)]);
    let (slow_query, other_query) = (query("slow", ANSWER), query("other", ANSWER));
    let first = tokio::select! {
        biased;
        _ = inventory.find(&slow_query) => "the slow one",
        found = async {
            tokio::task::yield_now().await;
            inventory.find(&other_query).await
        } => if found.is_ok() { "the other" } else { "neither" },
    };
    fs::remove_file(&slow).unwrap();
    // On a machine with one core there is one probe at a time.
    let is_alone = std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
    assert!(is_alone || first == "the other", "{first}");
}

#[tokio::test]
async fn a_toolchain_with_a_changed_file_is_another_one() {
    let place = Place::new();
    let file = place.script("compiler", "true");
    let watched = place.0.join("library");
    fs::write(&watched, "one").unwrap();
    let toolchain = Toolchain {
        executable: file.to_string_lossy().into_owned(),
        watch: vec![watched.clone()],
        ..Toolchain::default()
    };
    let inventory = place.inventory(&[]);
    let first = inventory.identity(&toolchain).await.unwrap();
    assert_eq!(inventory.identity(&toolchain).await.unwrap(), first);
    fs::write(&watched, "other").unwrap();
    let second = inventory.identity(&toolchain).await.unwrap();
    assert_ne!(first, second);
    let newer = Toolchain { version: "2".to_owned(), ..toolchain };
    assert_ne!(inventory.identity(&newer).await.unwrap(), second);
}
