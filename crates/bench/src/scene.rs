//! The environment of one benchmark: a temporary folder, the languages found, and how to start servers.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::server::Recipe;
use crate::Surroundings;

/// The folder in a state directory where a server stores its findings about languages.
const KNOWN_LANGUAGES: &str = "runtimes";
const FOLDER_PREFIX: &str = "palisade-bench-";

/// Languages that are always measured if they are available.
pub(super) const MAIN_LANGUAGES: [&str; 4] = ["python", "javascript", "typescript", "bash"];

/// A language that works here.
#[derive(Debug, Clone)]
pub struct Language {
    /// Its name.
    pub name: String,
    /// Version of its interpreter or compiler.
    pub version: String,
    /// The interpreter's own file, with shims resolved: the file that the server starts.
    pub interpreter: PathBuf,
    /// Its smallest complete program and the expected output.
    pub canary: (String, String),
}

/// Everything that scenarios need.
pub(super) struct Scene {
    pub(super) folder: Folder,
    pub(super) recipe: Recipe,
    pub(super) languages: Vec<Language>,
    /// Languages that are not available: name and reason.
    pub(super) missing: Vec<(String, String)>,
}

impl Scene {
    /// Creates the folder and finds languages. Call it before any thread exists.
    pub(super) fn set(surroundings: &Surroundings<'_>, wanted: &[&'static str]) -> io::Result<Self> {
        let folder = Folder::new(surroundings.state_dir)?;
        let recipe = Recipe {
            // Always the running binary, even if another file has replaced it meanwhile.
            binary: PathBuf::from("/proc/self/exe"),
            state_dir: folder.within("state")?,
            log: folder.path().join("server.log"),
            flags: surroundings.flags.clone(),
            env: Vec::new(),
        };
        let found = (surroundings.find_languages)(&recipe.state_dir, wanted)?;
        let (mut languages, mut missing) = (Vec::new(), Vec::new());
        for (name, language) in found {
            match language {
                Ok(language) => languages.push(language),
                Err(reason) => missing.push((name.to_owned(), reason)),
            }
        }
        Ok(Self { folder, recipe, languages, missing })
    }

    /// The same servers over a separate state directory, with a copy of the findings about languages.
    pub(super) fn recipe_in(&self, name: &str) -> Result<Recipe, String> {
        let said = |error: io::Error| format!("a state directory: {error}");
        let state_dir = self.folder.within(name).map_err(said)?;
        let known = self.folder.within(&format!("{name}/{KNOWN_LANGUAGES}")).map_err(said)?;
        let files = fs::read_dir(self.recipe.state_dir.join(KNOWN_LANGUAGES));
        for file in files.into_iter().flatten().flatten() {
            // The server makes missing findings again.
            fs::copy(file.path(), known.join(file.file_name())).ok();
        }
        Ok(Recipe { state_dir, ..self.recipe.clone() })
    }

    pub(super) fn language(&self, name: &str) -> Option<&Language> {
        self.languages.iter().find(|language| language.name == name)
    }
}

/// A private folder that is removed when dropped. The next benchmark removes the folders of killed ones.
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Beneath the requested state directory, so that its disk is measured; otherwise in the system's
    /// temporary directory.
    fn new(beneath: Option<&Path>) -> io::Result<Self> {
        let above = beneath.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let above = std::path::absolute(above)?;
        remove_leftovers(&above);
        let path = above.join(format!("{FOLDER_PREFIX}{}", std::process::id()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A private subfolder.
    pub(super) fn within(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            terminal::complain(&format!("{} is left behind: {error}", self.path.display()), None);
        }
    }
}

fn remove_leftovers(above: &Path) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(FOLDER_PREFIX).and_then(|number| number.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Folders of other users cannot be removed and stay.
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}
