//! The languages of an image: each language's probe runs once in a container of that image, and the answer is kept by
//! the image's digest.
//!
//! A probe runs without network, capabilities or a writable root, as a user of its own. It sees its own files and one
//! directory in which it may leave a compiled driver.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::sandbox::{BackendError, BoxFuture, Inventory, InventoryError, Toolchain, ToolchainQuery};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::Engine;
use super::api::LABEL;
use super::home::Home;

/// Where a probe finds its files, and where it leaves a driver.
const FOLDER_AT: &str = "/.palisade-probe";
const OUT_AT: &str = "/.palisade-out";
/// Its user: `nobody`, by number.
const PROBE_ID: u32 = 65534;
const MEMORY_BYTES: u64 = 512 << 20;
const PROCESSES: u64 = 64;
/// Longest file that a probe may leave.
const DRIVER_BYTES_MAX: u64 = 16 << 20;
/// Where commands are looked for.
const PATH: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Probes at once: each is a container.
const PROBES_AT_ONCE: usize = 2;
/// Longest explanation of a probe that is passed on.
const WORDS_CHARS_MAX: usize = 300;

/// Finds interpreters in an image.
pub(super) struct ImageInventory {
    home: Arc<Home>,
    /// The kept answers.
    kept: PathBuf,
    asking: Semaphore,
    asked: AtomicU64,
}

impl ImageInventory {
    pub(super) fn new(home: &Arc<Home>, state_dir: &Path) -> Self {
        Self {
            home: Arc::clone(home),
            kept: state_dir.join("image-languages"),
            asking: Semaphore::new(PROBES_AT_ONCE),
            asked: AtomicU64::new(0),
        }
    }

    async fn image(&self) -> Result<String, InventoryError> {
        let opened = self.home.opened().await.map_err(|error| match error {
            // Only an operator can change that.
            BackendError::Unsupported { what, remedy } => broken(format!("{what}; {remedy}")),
            error => late(error.to_string()),
        })?;
        opened.image.clone().ok_or_else(|| late("no image is configured"))
    }

    async fn answer(&self, query: &ToolchainQuery) -> Result<Toolchain, InventoryError> {
        let image = self.image().await?;
        let key = key(&image, query);
        if let Some(found) = self.read(&key) {
            return Ok(found);
        }
        // The semaphore is never closed.
        let _turn = self.asking.acquire().await.ok();
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-probe-{number}", self.home.server);
        let opened = self.home.opened().await.map_err(|error| late(error.to_string()))?;
        let work = opened.folder.join(format!("probe-{number}"));
        let asked = self.ask(query, &image, &name, &work).await;
        self.home.client.remove(&name).await.ok();
        fs::remove_dir_all(&work).ok();
        let found = asked?;
        if let Err(error) = self.keep(&key, &found) {
            tracing::warn!(reason = %error, "probe_not_stored");
        }
        Ok(found)
    }

    async fn ask(
        &self,
        query: &ToolchainQuery,
        image: &str,
        name: &str,
        work: &Path,
    ) -> Result<Toolchain, InventoryError> {
        let client = &self.home.client;
        let busy = |error: super::http::CallError| late(error.to_string());
        prepare(query, work).map_err(|error| late(error.to_string()))?;
        // Not started: only its files are looked at.
        client.create(name, self.request(image, &["/".to_owned()], work)).await.map_err(busy)?;
        let interpreter = self.locate(query, name).await;
        client.remove(name).await.map_err(busy)?;
        let Some(interpreter) = interpreter else {
            let commands = format!("{} in the image", query.commands.join(", "));
            return Err(InventoryError::Missing { commands });
        };
        let fill = |part: &String| {
            part.replace("{interpreter}", &interpreter)
                .replace("{folder}", FOLDER_AT)
                .replace("{out}", &format!("{OUT_AT}/driver"))
        };
        let argv: Vec<String> = query.probe.iter().map(fill).collect();
        client.create(name, self.request(image, &argv, work)).await.map_err(busy)?;
        client.start(name).await.map_err(|error| broken(error.to_string()))?;
        let status = client.wait(name).await.map_err(busy)?;
        let [output, errors] = client.output(name).await.map_err(busy)?;
        if status != 0 {
            let said = String::from_utf8_lossy(&errors);
            let last: String =
                said.trim().lines().last().unwrap_or("").chars().take(WORDS_CHARS_MAX).collect();
            return Err(broken(format!("its probe failed ({status}): {last}")));
        }
        let found: Toolchain = serde_json::from_slice(&output)
            .map_err(|error| broken(format!("its probe answered nonsense: {error}")))?;
        Ok(of_image(found, read_driver(&work.join("out/driver"))))
    }

    /// The first of the commands that the image has.
    async fn locate(&self, query: &ToolchainQuery, name: &str) -> Option<String> {
        for command in &query.commands {
            for folder in PATH {
                let path = format!("{folder}/{command}");
                if self.home.client.has_file(name, &path).await {
                    return Some(path);
                }
            }
        }
        None
    }

    fn request(&self, image: &str, argv: &[String], work: &Path) -> Value {
        let mount = |source: PathBuf, target: &str, read_only: bool| json!({ "Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only });
        let log = if self.home.engine() == Engine::Docker { "json-file" } else { "k8s-file" };
        json!({
            "Image": image,
            "User": format!("{PROBE_ID}:{PROBE_ID}"),
            "Entrypoint": argv.first().into_iter().collect::<Vec<_>>(),
            "Cmd": argv.iter().skip(1).collect::<Vec<_>>(),
            "Env": [format!("PATH={}", PATH.join(":")), "LANG=C.UTF-8", "HOME=/tmp"],
            "WorkingDir": "/",
            "NetworkDisabled": true,
            "Labels": { LABEL: self.home.server },
            "HostConfig": {
                "NetworkMode": "none",
                "ReadonlyRootfs": true,
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"],
                "Memory": MEMORY_BYTES,
                "MemorySwap": MEMORY_BYTES,
                "PidsLimit": PROCESSES,
                "Ulimits": [
                    { "Name": "fsize", "Soft": DRIVER_BYTES_MAX, "Hard": DRIVER_BYTES_MAX },
                    { "Name": "nofile", "Soft": 256, "Hard": 256 },
                    { "Name": "nproc", "Soft": 4096, "Hard": 4096 },
                ],
                "LogConfig": { "Type": log },
                "Tmpfs": { "/tmp": "size=64m,mode=1777" },
                "Mounts": [
                    mount(work.join("files"), FOLDER_AT, true),
                    mount(work.join("out"), OUT_AT, false),
                ],
            },
        })
    }

    fn read(&self, key: &str) -> Option<Toolchain> {
        serde_json::from_slice(&fs::read(self.kept.join(key)).ok()?).ok()
    }

    fn keep(&self, key: &str, found: &Toolchain) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.kept)?;
        let part = self.kept.join(format!("{key}.{}", std::process::id()));
        fs::write(&part, serde_json::to_vec(found)?)?;
        fs::rename(part, self.kept.join(key))
    }
}

impl Inventory for ImageInventory {
    fn find<'a>(&'a self, query: &'a ToolchainQuery) -> BoxFuture<'a, Result<Toolchain, InventoryError>> {
        Box::pin(self.answer(query))
    }

    fn identity<'a>(&'a self, toolchain: &'a Toolchain) -> BoxFuture<'a, Result<String, InventoryError>> {
        Box::pin(async move {
            let image = self.image().await?;
            Ok(format!("{image} {} {}", toolchain.executable, toolchain.version))
        })
    }
}

/// The files of a probe, and the directory for its driver.
fn prepare(query: &ToolchainQuery, work: &Path) -> io::Result<()> {
    for name in ["files", "out"] {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(work.join(name))?;
    }
    chown(work.join("out"), Some(PROBE_ID), Some(PROBE_ID))?;
    for (name, content) in &query.files {
        let path = work.join("files").join(name);
        fs::write(&path, content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444))?;
    }
    Ok(())
}

/// The whole image is in every sandbox, so nothing need be shown in addition.
fn of_image(mut found: Toolchain, driver: Option<Arc<[u8]>>) -> Toolchain {
    found.binds.clear();
    found.run_binds.clear();
    found.tools.binds.clear();
    let is_usual = |name: &str, path: &str| {
        ::sandbox::PROGRAM_PATH.split(':').any(|folder| path == format!("{folder}/{name}"))
    };
    found.tools.commands.retain(|name, path| !is_usual(name, path));
    found.driver = driver;
    found
}

fn read_driver(path: &Path) -> Option<Arc<[u8]>> {
    if !fs::symlink_metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(DRIVER_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes.into())
}

/// Changes with the image, the question and this program.
fn key(image: &str, query: &ToolchainQuery) -> String {
    let mut hash = Sha256::new();
    for part in [image, env!("CARGO_PKG_VERSION"), &serde_json::to_string(query).unwrap_or_default()] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{hex}", query.language)
}

fn late(reason: impl Into<String>) -> InventoryError {
    InventoryError::Late { reason: reason.into() }
}

fn broken(reason: impl Into<String>) -> InventoryError {
    InventoryError::Broken { reason: reason.into() }
}
