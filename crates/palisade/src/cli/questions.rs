//! Tells a person that a call of a tool waits for an answer. `palisade run` shows it while the program waits.

use std::collections::HashSet;
use std::io::Write;

use engine::{Gatekeeper, NO_HANDLE};

/// Shows every question about a call of a tool of this process, once. Does not end.
pub(crate) async fn tell(gatekeeper: &Gatekeeper) {
    let mut changes = gatekeeper.question_changes();
    let mut told = HashSet::new();
    loop {
        for id in gatekeeper.open_questions(NO_HANDLE) {
            if told.insert(id.to_string()) {
                let line = format!(
                    "palisade: a call of a tool waits for an answer: palisade approvals approve {id}"
                );
                // A reader that has gone wants no more.
                writeln!(std::io::stderr().lock(), "{line}").ok();
            }
        }
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}
