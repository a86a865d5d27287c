//! `--input`: files and folders of the user that are placed in the workspace.

use std::fs;
use std::path::Path;

use engine::{INPUT_BYTES_MAX, INPUTS_MAX, InputFile, RunError};

use super::program::unreadable;
use super::tree::{self, Leave, TreeBounds};

const CODE: &str = "bad_inputs";
/// The workspace itself as a target.
const HERE: &str = ".";

/// Files to place, and what was left out.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    pub(crate) files: Vec<InputFile>,
    /// The paths of those that an option names, in contrast to files of a folder.
    named: Vec<String>,
    /// Messages about files that were left out.
    pub(crate) notes: Vec<String>,
}

/// Reads the files of all `--input PATH[=NAME]`. The script itself is left out of folders: it is placed as the
/// program.
pub(crate) fn read(options: &[String], script: Option<&Path>) -> Result<Inputs, RunError> {
    let script = script.and_then(|script| fs::canonicalize(script).ok());
    let mut inputs = Inputs::default();
    for option in options {
        inputs.add(option, script.as_deref())?;
    }
    Ok(inputs)
}

/// Marks the archives that were named themselves, not those in a folder.
pub(crate) fn unpack(inputs: &mut Inputs) -> Result<(), RunError> {
    let Inputs { files, named, .. } = inputs;
    let mut archives = files
        .iter_mut()
        .filter(|file| named.contains(&file.path) && engine::is_archive(&file.path))
        .peekable();
    if archives.peek().is_none() {
        let remedy =
            format!("name an archive with --input; it ends in one of {}", engine::ARCHIVE_SUFFIXES.join(" "));
        return Err(RunError::new(CODE, "--unpack finds no archive among the inputs").remedy(remedy));
    }
    archives.for_each(|file| file.unpack = true);
    Ok(())
}

impl Inputs {
    fn add(&mut self, option: &str, script: Option<&Path>) -> Result<(), RunError> {
        let (path, name) = split(option);
        let found = fs::metadata(path).map_err(|error| unreadable(CODE, path, &error))?;
        let own_name = || Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = name.map_or_else(own_name, str::to_owned);
        if found.is_dir() {
            return self.add_folder(path, &name, script);
        }
        let content = fs::read(path).map_err(|error| unreadable(CODE, path, &error))?;
        self.named.push(name.clone());
        self.files.push(InputFile { path: name, content, unpack: false });
        Ok(())
    }

    /// A folder without a name, such as `.`, and the name `.` mean the workspace itself.
    fn add_folder(&mut self, path: &str, name: &str, script: Option<&Path>) -> Result<(), RunError> {
        let bounds = TreeBounds { files_max: INPUTS_MAX, bytes_max: INPUT_BYTES_MAX as u64 };
        let found = tree::find(Path::new(path), Leave::HiddenAndJunk, bounds).map_err(|error| {
            let remedy = "name single files or a smaller folder; `palisade sandbox cp` copies large folders";
            RunError::new(CODE, error.to_string()).remedy(remedy)
        })?;
        let name = name.trim_end_matches('/');
        let prefix = if matches!(name, "" | HERE) { String::new() } else { format!("{name}/") };
        let is_script = |path: &Path| script.is_some() && fs::canonicalize(path).ok().as_deref() == script;
        for file in found.files.into_iter().filter(|file| !is_script(&file.path)) {
            let content = file.read(bounds.bytes_max);
            let content = content.map_err(|error| unreadable(CODE, &file.path.to_string_lossy(), &error))?;
            self.files.push(InputFile { path: format!("{prefix}{}", file.name), content, unpack: false });
        }
        if found.left_out > 0 {
            let count = found.left_out;
            self.notes.push(format!("{path}: {count} symbolic links or special files were left out"));
        }
        Ok(())
    }
}

/// The path and the name in the workspace. The path may contain `=` if it names something as a whole.
fn split(option: &str) -> (&str, Option<&str>) {
    if Path::new(option).exists() {
        return (option, None);
    }
    match option.split_once('=') {
        Some((path, "")) => (path, None),
        Some((path, name)) => (path, Some(name)),
        None => (option, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness::TestFolder;

    fn paths(options: &[String]) -> Vec<String> {
        read(options, None).unwrap().files.into_iter().map(|file| file.path).collect()
    }

    #[test]
    fn files_and_folders_keep_their_names_or_get_another() {
        let folder = TestFolder::new();
        let file = folder.file("lib/helper.py", "1").to_string_lossy().into_owned();
        folder.file("lib/deep/data.csv", "2");
        folder.file("lib/.env", "secret");
        let lib = folder.path().join("lib").to_string_lossy().into_owned();
        assert_eq!(paths(std::slice::from_ref(&file)), ["helper.py"]);
        assert_eq!(paths(&[format!("{file}=other.py")]), ["other.py"]);
        assert_eq!(paths(std::slice::from_ref(&lib)), ["lib/deep/data.csv", "lib/helper.py"]);
        assert_eq!(paths(&[format!("{lib}/")]), ["lib/deep/data.csv", "lib/helper.py"]);
        assert_eq!(paths(&[format!("{lib}=.")]), ["deep/data.csv", "helper.py"]);
        assert_eq!(paths(&[format!("{lib}=a/b")]), ["a/b/deep/data.csv", "a/b/helper.py"]);
        assert_eq!(paths(&[format!("{lib}/.")]), ["lib/deep/data.csv", "lib/helper.py"]);
    }

    #[test]
    fn only_archives_that_are_named_are_unpacked() {
        let folder = TestFolder::new();
        let named = folder.file("project.tgz", "1").to_string_lossy().into_owned();
        folder.file("lib/other.zip", "2");
        let lib = folder.path().join("lib").to_string_lossy().into_owned();
        let mut found = read(&[named, lib.clone()], None).unwrap();
        unpack(&mut found).unwrap();
        let marked: Vec<_> =
            found.files.iter().filter(|file| file.unpack).map(|file| file.path.as_str()).collect();
        assert_eq!(marked, ["project.tgz"]);
        assert_eq!(unpack(&mut read(&[lib], None).unwrap()).unwrap_err().code, CODE);
    }

    #[test]
    fn the_script_itself_is_left_out_of_its_folder() {
        let folder = TestFolder::new();
        let script = folder.file("a.py", "1");
        folder.file("helper.py", "2");
        let found = read(&[format!("{}=.", folder.path().display())], Some(&script)).unwrap();
        assert_eq!(found.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["helper.py"]);
    }

    #[test]
    fn a_path_with_an_equals_sign_is_found_as_it_is() {
        let folder = TestFolder::new();
        let file = folder.file("a=b.txt", "1").to_string_lossy().into_owned();
        assert_eq!(paths(&[file]), ["a=b.txt"]);
    }

    #[test]
    fn links_are_counted_and_missing_files_are_refused() {
        let folder = TestFolder::new();
        folder.file("d/a", "1");
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("d/link")).unwrap();
        let read_all = read(&[folder.path().join("d").to_string_lossy().into_owned()], None).unwrap();
        assert_eq!((read_all.files.len(), read_all.notes.len()), (1, 1));
        assert_eq!(read(&["/does/not/exist".to_owned()], None).unwrap_err().code, CODE);
    }
}
