//! Tells a person at a terminal how an installation goes on.

use std::io::{self, IsTerminal};

use terminal::complain;
use tokio::sync::mpsc;

/// Messages that wait to be shown.
const MESSAGES_MAX: usize = 16;

/// Shows what it is told on standard error; `None` if nobody sees it there.
pub(crate) fn told_progress() -> Option<mpsc::Sender<String>> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let (sender, mut told) = mpsc::channel::<String>(MESSAGES_MAX);
    tokio::spawn(async move {
        while let Some(line) = told.recv().await {
            complain(&terminal::plain(&line), None);
        }
    });
    Some(sender)
}
