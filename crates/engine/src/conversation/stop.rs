//! Signals that end a conversation from outside. They tell why the run was stopped, and do not end any process.

use tokio::sync::{oneshot, watch};

use crate::sandboxes::{Closing, ContextName};

/// The reason for which a run was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The caller cancelled it.
    Cancelled,
    /// An operator, the close of the sandbox or of its context, or a shutdown ended it.
    Killed,
}

/// The two ways in which a run can be ended from outside.
#[derive(Default)]
pub(crate) struct StopSignals {
    /// The signal of the caller or of an operator. `None` once its sender is gone.
    stop: Option<oneshot::Receiver<Stop>>,
    /// The signal that the sandbox or this context of it is being closed.
    closing: Option<(watch::Receiver<Closing>, Option<ContextName>)>,
}

impl StopSignals {
    pub(crate) fn new(stop: oneshot::Receiver<Stop>) -> Self {
        // A receiver that already delivered its signal delivers no other.
        Self { stop: Some(stop).filter(|stop| !stop.is_terminated()), closing: None }
    }

    /// Adds the signal that the sandbox, or this context of it, is being closed.
    pub(crate) fn or_closing(self, closing: watch::Receiver<Closing>, context: Option<ContextName>) -> Self {
        Self { closing: Some((closing, context)), ..self }
    }

    /// Completes when the run must end. Cancel safe.
    pub(crate) async fn stopped(&mut self) -> Stop {
        let Self { stop, closing } = self;
        let stopped = async {
            if let Some(receiver) = stop {
                let heard = receiver.await;
                *stop = None;
                if let Ok(why) = heard {
                    return why;
                }
            }
            std::future::pending().await
        };
        let closed = async {
            match closing {
                Some((closing, context)) => {
                    closing.wait_for(|closing| closing.ends(context.as_ref())).await.ok();
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            why = stopped => why,
            () = closed => Stop::Killed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sender_that_is_gone_stops_nothing_and_a_close_does() {
        let (sender, receiver) = oneshot::channel();
        let closing = watch::Sender::<Closing>::default();
        let mut signals = StopSignals::new(receiver).or_closing(closing.subscribe(), None);
        drop(sender);
        let pause = std::time::Duration::from_millis(20);
        for _ in 0..2 {
            assert!(tokio::time::timeout(pause, signals.stopped()).await.is_err());
        }
        closing.send_replace(Closing::whole());
        assert_eq!(signals.stopped().await, Stop::Killed);
    }
}
