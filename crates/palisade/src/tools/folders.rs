//! The operator's directories that a tool server sees: `read` and `write` of the configuration, checked.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sandbox::SharedFolder;

/// The most directories of one server.
const FOLDERS_MAX: usize = 32;
/// Places that belong to every sandbox. Nothing of the operator is shown there or above.
const OWN: [&str; 7] = ["/tmp", "/usr", "/etc", "/home/agent", "/dev/shm", "/workspace", "/palisade"];
/// Nothing beneath these is shown.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// What a server sees.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) folders: Vec<SharedFolder>,
    /// Names of the configuration that lead to another path.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
}

type Refusal = (String, &'static str);

/// Resolves and checks the directories.
pub(super) fn open(read: &[PathBuf], write: &[PathBuf], state_dir: &Path) -> Result<Shown, Refusal> {
    if read.len() + write.len() > FOLDERS_MAX {
        return Err((format!("more than {FOLDERS_MAX} directories"), "name the directory above them"));
    }
    let mut shown = Shown::default();
    let named = read.iter().map(|path| (path, false)).chain(write.iter().map(|path| (path, true)));
    for (path, is_writable) in named {
        let real = std::fs::canonicalize(path).map_err(|error| {
            let message = format!("{} cannot be shown to the server: {error}", path.display());
            (message, "create it, or change `read` and `write` of the server")
        })?;
        check(&real, state_dir)?;
        if is_writable {
            check_owner(&real)?;
        }
        match shown.folders.iter_mut().find(|known| known.path == real) {
            Some(known) => known.is_writable |= is_writable,
            None => shown.folders.push(SharedFolder { path: real.clone(), is_writable }),
        }
        if real != *path && !shown.links.iter().any(|(name, _)| name == path) {
            shown.links.push((path.clone(), real));
        }
    }
    Ok(shown)
}

fn check(real: &Path, state_dir: &Path) -> Result<(), Refusal> {
    let refuse = |why: &str| {
        let remedy = "name the directories that the server works with, in `read` and `write`";
        Err((format!("{} cannot be shown to a server: {why}", real.display()), remedy))
    };
    if OWN.iter().any(|own| Path::new(own).starts_with(real)) {
        return refuse("every sandbox has its own there");
    }
    if KERNEL.iter().any(|own| real.starts_with(own)) {
        return refuse("it belongs to the kernel");
    }
    let state_dir = std::fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
    if state_dir.starts_with(real) || real.starts_with(&state_dir) {
        return refuse("it has credentials of Palisade");
    }
    Ok(())
}

/// A server of root writes with the id of the directory's owner, and never as root.
fn check_owner(real: &Path) -> Result<(), Refusal> {
    let is_root = rustix::process::geteuid().is_root();
    if is_root && std::fs::metadata(real).is_ok_and(|found| found.uid() == 0) {
        let message = format!("{} belongs to root, and a sandbox never writes as root", real.display());
        return Err((message, "give the directory to another user (chown), or run Palisade as that user"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_system_and_of_palisade_are_not_shown() {
        let kept = harness::TestFolder::new();
        let folder = kept.path().to_owned();
        let state = folder.join("state");
        std::fs::create_dir_all(state.join("tools")).unwrap();
        for refused in ["/", "/usr", "/home", "/proc/self", "/dev"].map(PathBuf::from) {
            if refused.exists() {
                assert!(open(std::slice::from_ref(&refused), &[], &state).is_err(), "{}", refused.display());
            }
        }
        assert!(open(std::slice::from_ref(&folder), &[], &state).unwrap_err().0.contains("credentials"));
        assert!(open(&[state.join("tools")], &[], &state).is_err());
        assert!(open(&[folder.join("none")], &[], &state).unwrap_err().0.contains("cannot be shown"));
    }

    #[test]
    fn a_link_is_shown_with_what_it_leads_to() {
        let kept = harness::TestFolder::new();
        let folder = std::fs::canonicalize(kept.path()).unwrap();
        let (data, link) = (folder.join("data"), folder.join("link"));
        std::fs::create_dir_all(&data).unwrap();
        std::os::unix::fs::symlink(&data, &link).unwrap();
        let shown = open(std::slice::from_ref(&link), &[], Path::new("/nowhere")).unwrap();
        assert_eq!(shown.folders, [SharedFolder { path: data.clone(), is_writable: false }]);
        assert_eq!(shown.links, [(link, data)]);
    }
}
