//! The part of a conversation that takes secrets out of its output, and tells at the end what was held back for that.

use std::sync::Arc;

use wire::Stream;

use super::{Conversation, Ended, catch_up};
use crate::access::{Redaction, Redactor};

impl Conversation<'_> {
    /// Takes these secrets out of the output from now on.
    pub(crate) fn redact(&mut self, redactor: Option<&Arc<Redactor>>) {
        self.redaction = redactor.map(|redactor| Redaction::new(Arc::clone(redactor)));
    }

    pub(super) fn keep(&mut self, stream: Stream, data: Vec<u8>) -> Option<Ended> {
        match &mut self.redaction {
            None => self.keep_redacted(stream, data),
            Some(redaction) => {
                let shown = redaction.pass(stream, &data);
                self.keep_redacted(stream, shown)
            }
        }
    }

    /// Keeps and tells what was held back, because it could have been the beginning of a secret. Cancel safe.
    pub(super) async fn release_held(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let Some(redaction) = &mut self.redaction else { return };
            if redaction.holds(stream) {
                catch_up(&mut self.audience).await;
                let rest = self.redaction.as_mut().map(|redaction| redaction.rest(stream));
                // The run is over, and no limit ends it any more.
                self.keep_redacted(stream, rest.unwrap_or_default());
            }
        }
        catch_up(&mut self.audience).await;
    }

    /// Keeps what was held back and could not be told.
    pub(super) fn keep_held(&mut self) {
        let Some(mut redaction) = self.redaction.take() else { return };
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.output.keep(stream, &redaction.rest(stream));
        }
    }
}
