//! The next input of the shell, from lines of a pipe or a plain terminal, or from an editor.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::PathBuf;

use tokio::sync::mpsc;

use super::block::{Block, COMMAND_SIGN, Origin};
use super::editor::{Answer, Prompter};
use super::lines;

const CONTINUED: &str = "... ";

/// One input.
#[derive(Debug)]
pub(super) enum Typed {
    Command(String),
    Program(String),
    TooLong,
    /// No input yet, or no more input.
    Nothing,
    /// The input ended; holds the unfinished program.
    End(String),
}

/// The source of the input.
pub(super) enum Input {
    Lines { lines: mpsc::Receiver<io::Result<String>>, block: Block, origin: Origin },
    Editor { prompter: Prompter, waiting: VecDeque<Typed> },
}

impl Input {
    /// Input of that origin; an editor keeps its history in that file.
    pub(super) fn new(origin: Origin, history: Option<PathBuf>) -> Self {
        let prompter = if origin == Origin::Terminal { Prompter::new(history) } else { None };
        match prompter {
            Some(prompter) => Self::Editor { prompter, waiting: VecDeque::new() },
            None => Self::Lines { lines: lines::read(), block: Block::new(origin), origin },
        }
    }

    /// The next input. The future can be dropped and called again.
    pub(super) async fn next(&mut self, language: &str) -> io::Result<Typed> {
        match self {
            Self::Lines { lines, block, origin } => {
                if *origin == Origin::Terminal {
                    prompt(language, block);
                }
                let line = lines.recv().await.transpose()?;
                Ok(of_line(line, block, language))
            }
            Self::Editor { prompter, waiting } => {
                if waiting.is_empty() {
                    match prompter.ask(language).await? {
                        Answer::Text(text) => waiting.extend(of_text(&text)),
                        Answer::Forgotten => {}
                        Answer::End => waiting.push_back(Typed::End(String::new())),
                    }
                }
                Ok(waiting.pop_front().unwrap_or(Typed::Nothing))
            }
        }
    }

    /// The next line for a program that waits for input, or `None` at the end of the input. The future can be dropped and
    /// called again.
    pub(super) async fn line(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Lines { lines, .. } => {
                let line = lines.recv().await.and_then(Result::ok)?;
                Some(format!("{line}\n").into_bytes())
            }
            Self::Editor { .. } => lines::of_terminal().await,
        }
    }

    /// Discards the unfinished program after Ctrl-C at the prompt of a plain terminal. An editor does this
    /// itself.
    pub(super) fn forget_block(&mut self) {
        if let Self::Lines { block, .. } = self {
            block.take();
            // The terminal may be gone; the end of the input shows it.
            writeln!(io::stderr().lock()).ok();
        }
    }

    /// Discards input that was typed before Ctrl-C, as the terminal does.
    pub(super) fn forget_ahead(&mut self) {
        match self {
            Self::Lines { origin: Origin::Pipe, .. } => {}
            Self::Lines { lines, .. } => while lines.try_recv().is_ok() {},
            Self::Editor { prompter, waiting } => {
                prompter.forget();
                waiting.clear();
            }
        }
    }

    /// Whether output must end its line first, because an editor draws its prompt over the current line.
    pub(super) fn needs_own_line(&self) -> bool {
        matches!(self, Self::Editor { .. })
    }
}

fn prompt(language: &str, block: &Block) {
    let text = if block.is_empty() { format!("{language}> ") } else { CONTINUED.to_owned() };
    let mut error = io::stderr().lock();
    // The terminal may be gone; the end of the input shows it.
    error.write_all(text.as_bytes()).and_then(|()| error.flush()).ok();
}

fn of_line(line: Option<String>, block: &mut Block, language: &str) -> Typed {
    match line {
        None => Typed::End(block.take()),
        Some(line) if block.is_empty() && line.trim_start().starts_with(COMMAND_SIGN) => {
            Typed::Command(line.trim().to_owned())
        }
        Some(line) if block.size_bytes() + line.len() > engine::CODE_BYTES_MAX => {
            block.take();
            Typed::TooLong
        }
        Some(line) => block.add(language, &line).map_or(Typed::Nothing, Typed::Program),
    }
}

/// A text from an editor is one program, except for commands before it, because it may have been pasted.
fn of_text(text: &str) -> Vec<Typed> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        let (line, behind) = rest.split_once('\n').unwrap_or((rest, ""));
        if rest.trim().is_empty() {
            return all;
        }
        if line.trim_start().starts_with(COMMAND_SIGN) {
            all.push(Typed::Command(line.trim().to_owned()));
        } else if !line.trim().is_empty() {
            let is_long = rest.len() > engine::CODE_BYTES_MAX;
            all.push(if is_long { Typed::TooLong } else { Typed::Program(format!("{rest}\n")) });
            return all;
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edited_text_is_commands_and_then_one_program() {
        let all = of_text("\n%lang bash\n  %files\necho a\n%b\n");
        let [Typed::Command(one), Typed::Command(two), Typed::Program(program)] = &all[..] else {
            panic!("{all:?}");
        };
        assert_eq!(
            (one.as_str(), two.as_str(), program.as_str()),
            ("%lang bash", "%files", "echo a\n%b\n\n")
        );
        assert!(of_text(" \n").is_empty());
        assert!(matches!(of_text(&"x".repeat(engine::CODE_BYTES_MAX + 1))[..], [Typed::TooLong]));
    }
}
