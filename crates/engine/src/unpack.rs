//! Archives among the inputs of a run: which names are archives, and the command that unpacks them in the sandbox.
//!
//! The host never reads an archive. A process of the sandbox unpacks it, with the limits of the sandbox, so a hostile
//! archive can do no more than the program itself. `conversation::unpacking` runs the command.

use crate::InputFile;
use crate::result::RunError;

/// The names of archives that can be unpacked end in one of these, in any case.
pub const ARCHIVE_SUFFIXES: [&str; 10] =
    [".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst"];
const SCRIPT: &str = include_str!("unpack.sh");
/// The longest report that callers are shown.
const REPORT_CHARS_MAX: usize = 300;

/// Whether a file of that name can be unpacked.
pub fn is_archive(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    ARCHIVE_SUFFIXES.iter().any(|suffix| name.len() > suffix.len() && name.ends_with(suffix))
}

/// Refuses an input that is to be unpacked and cannot be, by its name.
pub(crate) fn check(input: &InputFile) -> Result<(), RunError> {
    if !input.unpack || is_archive(&input.path) {
        return Ok(());
    }
    let message =
        format!("`{}` cannot be unpacked: its name does not end like that of an archive", input.path);
    let remedy = format!("archives end in one of {}", ARCHIVE_SUFFIXES.join(" "));
    Err(RunError::bad("inputs", &message, &remedy))
}

/// The command that unpacks the archives among the inputs. `None` if there are none.
pub(crate) fn command(inputs: &[InputFile]) -> Option<Vec<String>> {
    let archives: Vec<String> =
        inputs.iter().filter(|input| input.unpack).map(|input| format!("./{}", input.path)).collect();
    let start = ["/bin/sh", "-c", SCRIPT, "unpack"].map(str::to_owned);
    (!archives.is_empty()).then(|| start.into_iter().chain(archives).collect())
}

/// The report about a failure, from what the command printed. Both texts come from the sandbox.
pub(crate) fn report(stdout: &[u8], stderr: &[u8]) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(stdout), text(stderr));
    let archive = stdout.lines().last().unwrap_or_default().trim_start_matches("./");
    let lines: Vec<&str> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let words =
        if lines.is_empty() { "the program that unpacks was ended".to_owned() } else { lines.join("; ") };
    let plain =
        |text: &str, most| text.chars().filter(|letter| !letter.is_control()).take(most).collect::<String>();
    format!(
        "`{}` could not be unpacked: {}",
        plain(archive, REPORT_CHARS_MAX),
        plain(&words, REPORT_CHARS_MAX)
    )
}

/// Whether that report is about a full disk. GNU tar says nothing else about a write that was cut short.
pub(crate) fn is_disk_full(report: &str) -> bool {
    const WORDS: [&str; 5] =
        ["No space left on device", "disk full", "File too large", "File size limit", "Wrote only"];
    WORDS.iter().any(|words| report.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_known_by_its_suffix() {
        for path in ["a.zip", "d/a.TAR.GZ", "a.tgz", "a.tar.zst", "a.b.tar"] {
            assert!(is_archive(path), "{path}");
        }
        for path in ["a.gz", "zip", ".zip", "d.zip/a", "a.zip.txt", ""] {
            assert!(!is_archive(path), "{path}");
        }
    }

    #[test]
    fn a_report_is_one_short_line() {
        let said = report(b"./a.zip\n./d/b.tgz\n", b"gzip: bad\x1b[31m\n\ntar: Child\n");
        assert_eq!(said, "`d/b.tgz` could not be unpacked: gzip: bad[31m; tar: Child");
        assert!(report(b"", &[b'x'; 5000]).len() < 400);
    }
}
