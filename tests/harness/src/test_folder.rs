//! A folder for one test, removed when the test ends.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder for one test.
pub struct TestFolder(PathBuf);

impl TestFolder {
    /// Creates the folder; it is removed when dropped.
    #[expect(clippy::new_without_default, reason = "making a folder is no default")]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let path = loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("palisade-test-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                // A test process of the same number was killed before it could remove its own.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => {
                    made.unwrap();
                    break path;
                }
            }
        };
        // Symbolic links in the path of the temporary directory would make paths look different.
        Self(path.canonicalize().unwrap())
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file and creates its parent folders.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}
