//! Line editing at a terminal, with history and completion, by rustyline.
//!
//! ```text
//! shell -- question: prompt, language --> thread: readline -- answer: text, Ctrl-C, end --> shell
//! ```
//! The terminal is in raw mode only between a question and its answer, so Ctrl-C is a signal while a program
//! runs. A blocking read cannot be cancelled. When the shell ends during a read, [`Restored`] resets the
//! terminal.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{FileHistory, History};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Behavior, CompletionType, Config, Context, Editor, Helper};
use tokio::sync::mpsc;

use super::block;

const HISTORY_FILE: &str = "shell_history";
const HISTORY_ENTRIES_MAX: usize = 500;
/// A longer entry is run but not stored in the history.
const HISTORY_ENTRY_BYTES_MAX: usize = 8 << 10;
/// Tab at the beginning of a line indents to the next multiple of this.
const INDENT: usize = 4;
/// Terminals without cursor control.
const PLAIN_TERMINALS: [&str; 4] = ["", "dumb", "cons25", "emacs"];

/// The answer to a question.
#[derive(Debug)]
pub(super) enum Answer {
    Text(String),
    /// Ctrl-C: the typed text is discarded.
    Forgotten,
    End,
}

struct Question {
    prompt: String,
    language: String,
    /// Whether lines that were typed ahead are discarded.
    is_anew: bool,
}

/// A terminal with line editing.
pub(super) struct Prompter {
    questions: SyncSender<Question>,
    answers: mpsc::Receiver<io::Result<Answer>>,
    is_asked: bool,
    is_anew: bool,
    terminal: Restored,
}

impl Prompter {
    /// Line editing for the terminal at standard input; `None` if it is no terminal, or one without cursor
    /// control.
    pub(super) fn new(history: Option<PathBuf>) -> Option<Self> {
        let kind = std::env::var("TERM").unwrap_or_default();
        if PLAIN_TERMINALS.contains(&kind.to_ascii_lowercase().as_str()) {
            return None;
        }
        let terminal = Restored(tcgetattr(io::stdin()).ok()?);
        let mut kept = FileHistory::with_config(&settings());
        if let Some(path) = &history {
            // There may be no history yet.
            kept.load(path).ok();
        }
        let editor = editor(kept).ok()?;
        let (questions, asked) = sync_channel(1);
        let (sender, answers) = mpsc::channel(1);
        std::thread::spawn(move || answer(editor, history.as_deref(), &asked, &sender));
        Some(Self { questions, answers, is_asked: false, is_anew: false, terminal })
    }

    /// Asks, unless a question is already open. The future can be dropped and called again.
    pub(super) async fn ask(&mut self, language: &str) -> io::Result<Answer> {
        if !self.is_asked {
            let (prompt, language) = (format!("{language}> "), language.to_owned());
            let question = Question { prompt, language, is_anew: std::mem::take(&mut self.is_anew) };
            self.questions.send(question).map_err(|_| io::Error::other("the terminal cannot be read"))?;
            self.is_asked = true;
        }
        let answer = self.answers.recv().await;
        self.is_asked = false;
        answer.unwrap_or(Ok(Answer::End))
    }

    /// Discards input that was typed ahead.
    pub(super) fn forget(&mut self) {
        self.is_anew = true;
    }
}

impl Drop for Prompter {
    fn drop(&mut self) {
        if self.is_asked {
            self.terminal.restore();
        }
    }
}

/// The saved mode of the terminal.
struct Restored(Termios);

impl Restored {
    fn restore(&self) {
        const NO_BRACKETED_PASTE: &[u8] = b"\x1b[?2004l\n";
        // The terminal may be gone.
        tcsetattr(io::stdin(), OptionalActions::Now, &self.0).ok();
        io::stderr().lock().write_all(NO_BRACKETED_PASTE).ok();
    }
}

fn answer(
    mut editor: Editor<Assistant, FileHistory>,
    history: Option<&Path>,
    questions: &Receiver<Question>,
    answers: &mpsc::Sender<io::Result<Answer>>,
) {
    while let Ok(question) = questions.recv() {
        if question.is_anew {
            let kept = std::mem::take(editor.history_mut());
            match self::editor(kept) {
                Ok(anew) => editor = anew,
                Err(error) => {
                    answers.blocking_send(Err(io::Error::other(error))).ok();
                    return;
                }
            }
        }
        if let Some(assistant) = editor.helper_mut() {
            assistant.language = question.language;
        }
        let answer = loop {
            match editor.readline(&question.prompt) {
                Ok(text) => break Ok(Answer::Text(text)),
                Err(ReadlineError::Eof) => break Ok(Answer::End),
                Err(ReadlineError::Interrupted) => break Ok(Answer::Forgotten),
                Err(ReadlineError::Signal(_)) => {}
                Err(ReadlineError::Io(error)) => break Err(error),
                Err(error) => break Err(io::Error::other(error)),
            }
        };
        if let Ok(Answer::Text(text)) = &answer {
            remember(&mut editor, history, text);
        }
        if answers.blocking_send(answer).is_err() {
            return;
        }
    }
}

fn remember(editor: &mut Editor<Assistant, FileHistory>, history: Option<&Path>, text: &str) {
    if text.trim().is_empty() || text.len() > HISTORY_ENTRY_BYTES_MAX {
        return;
    }
    // A failure to store the history does not prevent the run.
    editor.add_history_entry(text).ok();
    if let Some(path) = history {
        editor.append_history(path).ok();
    }
}

fn settings() -> Config {
    let settings = Config::builder()
        .behavior(Behavior::PreferTerm)
        .completion_type(CompletionType::List)
        .history_ignore_space(true);
    // This only fails for another kind of history.
    let settings = settings.max_history_size(HISTORY_ENTRIES_MAX).unwrap_or_default();
    settings.build()
}

fn editor(history: FileHistory) -> rustyline::Result<Editor<Assistant, FileHistory>> {
    let mut editor = Editor::with_history(settings(), history)?;
    editor.set_helper(Some(Assistant { language: String::new() }));
    Ok(editor)
}

/// The history file in the state directory. It is used only if no other user can write to the directory,
/// because another user could replace the file with a link.
pub(super) fn history_file(state_dir: &Path) -> Option<PathBuf> {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let own = rustix::process::geteuid().as_raw();
    let folder = std::fs::metadata(state_dir).ok()?;
    if !folder.is_dir() || folder.uid() != own || folder.mode() & WRITABLE_BY_OTHERS != 0 {
        return None;
    }
    let path = state_dir.join(HISTORY_FILE);
    match std::fs::symlink_metadata(&path) {
        Ok(found) => (found.is_file() && found.uid() == own).then_some(path),
        Err(error) => (error.kind() == io::ErrorKind::NotFound).then_some(path),
    }
}

/// Answers the editor's queries while the user types.
struct Assistant {
    language: String,
}

impl Helper for Assistant {}

impl Highlighter for Assistant {}

impl Hinter for Assistant {
    type Hint = String;
}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match block::is_whole(&self.language, context.input()) {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(complete(&line[..at]))
    }
}

/// The start of the word before the cursor, and its completions.
fn complete(before: &str) -> (usize, Vec<String>) {
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = &before[line_start..];
    if line.trim().is_empty() {
        let width = INDENT - line.chars().count() % INDENT;
        return (before.len(), vec![" ".repeat(width)]);
    }
    if line_start > 0 || !line.starts_with(block::COMMAND_SIGN) {
        return (before.len(), Vec::new());
    }
    let word_start = line.rfind(' ').map_or(0, |space| space + 1);
    let word = &line[word_start..];
    let names: Vec<&str> = match line[..word_start].trim() {
        "" => super::COMMAND_NAMES.to_vec(),
        "%lang" => engine::runtimes::languages().collect(),
        _ => Vec::new(),
    };
    (word_start, names.into_iter().filter(|name| name.starts_with(word)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use harness::TestFolder;

    use super::*;

    #[test]
    fn commands_and_languages_are_completed() {
        assert_eq!(complete("%l"), (0, vec!["%lang".to_owned()]));
        assert_eq!(complete("%").1.len(), super::super::COMMAND_NAMES.len());
        assert_eq!(complete("%lang ba"), (6, vec!["bash".to_owned()]));
        assert!(complete("%lang ").1.len() > 3);
        assert!(complete("%files p").1.is_empty() && complete("pri").1.is_empty());
    }

    #[test]
    fn tab_indents_at_the_begin_of_a_line() {
        assert_eq!(complete("def f():\n"), (9, vec!["    ".to_owned()]));
        assert_eq!(complete("  "), (2, vec!["  ".to_owned()]));
    }

    #[test]
    fn lines_are_kept_only_where_no_other_user_writes() {
        let folder = TestFolder::new();
        let mode = |mode| std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
        mode(0o700);
        let path = history_file(folder.path()).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert_eq!(history_file(folder.path()), None, "a link");
        std::fs::remove_file(&path).unwrap();
        mode(0o770);
        assert_eq!(history_file(folder.path()), None, "a folder of a group");
        assert_eq!(history_file(&folder.path().join("none")), None);
    }

    #[test]
    fn the_history_is_private_and_bounded() {
        let folder = TestFolder::new();
        let path = folder.path().join(HISTORY_FILE);
        let mut editor = editor(FileHistory::with_config(&settings())).unwrap();
        for number in 0..HISTORY_ENTRIES_MAX + 20 {
            remember(&mut editor, Some(&path), &format!("x = {number}\ny"));
        }
        remember(&mut editor, Some(&path), &"z".repeat(HISTORY_ENTRY_BYTES_MAX + 1));
        remember(&mut editor, Some(&path), " hidden");
        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(kept.lines().count() <= HISTORY_ENTRIES_MAX + 1, "{}", kept.lines().count());
        assert!(kept.contains("x = 519") && !kept.contains("zz") && !kept.contains("hidden"));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}
