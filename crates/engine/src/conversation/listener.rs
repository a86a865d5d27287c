//! The receivers of a conversation's events while the run is in progress.
//!
//! A [`Listener`] is called in the task that carries the conversation and returns at once. It can delay neither
//! the output nor the end of a run. The log of a run and its followers are a listener.
//!
//! A *pipe* is for a caller that prints a program's output as it arrives and must not lose any of it (`palisade
//! run`). While a pipe is full, the host reads nothing more from the guest. The clock, the limits and the stop
//! signals continue.

use tokio::sync::mpsc;
use wire::Stream;

/// An event of a run in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEvent {
    /// The program wrote output.
    Output {
        /// The stream.
        stream: Stream,
        /// The bytes.
        data: Vec<u8>,
    },
    /// The program waits for standard input. Only the pipe of a run whose input is prompted gets this.
    InputWanted,
}

/// Receives the events of a conversation.
pub(crate) trait Listener: Send {
    /// Takes an event. It must not wait.
    fn hear(&mut self, event: &RunEvent);
}

/// All receivers of one conversation's events.
#[derive(Default)]
pub(crate) struct Audience {
    listener: Option<Box<dyn Listener>>,
    pipe: Option<mpsc::Sender<RunEvent>>,
    /// The event that the pipe has not taken yet.
    untold: Option<RunEvent>,
}

impl Audience {
    pub(crate) fn listener(listener: Box<dyn Listener>) -> Self {
        Self { listener: Some(listener), ..Self::default() }
    }

    /// Adds a pipe to a listener.
    pub(crate) fn with_pipe(self, pipe: Option<mpsc::Sender<RunEvent>>) -> Self {
        Self { pipe, ..self }
    }

    pub(crate) fn pipe(pipe: Option<mpsc::Sender<RunEvent>>) -> Self {
        Self { pipe, ..Self::default() }
    }

    /// Delivers an event. The pipe must have taken the previous one.
    pub(super) fn tell(&mut self, event: RunEvent) {
        if let Some(listener) = &mut self.listener {
            listener.hear(&event);
        }
        if self.pipe.is_some() {
            self.untold = Some(event);
        }
    }

    /// Delivers output of a terminal: all of it to the pipe, but only the first `kept` bytes to the listener.
    pub(super) fn tell_terminal(&mut self, data: Vec<u8>, kept: usize) {
        let stream = Stream::Stdout;
        if let Some(listener) = self.listener.as_mut().filter(|_| kept > 0) {
            listener.hear(&RunEvent::Output { stream, data: data[..kept].to_vec() });
        }
        if self.pipe.is_some() {
            self.untold = Some(RunEvent::Output { stream, data });
        }
    }

    /// Whether the pipe has not yet taken an event.
    pub(super) fn is_behind(&self) -> bool {
        self.untold.is_some()
    }

    /// Waits until the pipe has taken everything. Cancel safe. A caller that stopped reading still gets the
    /// result.
    pub(super) async fn catch_up(&mut self) {
        let place = match &self.pipe {
            Some(sender) => sender.reserve().await.ok(),
            None => None,
        };
        if let (Some(news), Some(place)) = (self.untold.take(), place) {
            place.send(news);
        }
    }

    /// Drops what the pipe has not taken. The result contains that output.
    pub(super) fn give_up(&mut self) {
        self.untold = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(std::sync::Arc<std::sync::atomic::AtomicUsize>);

    impl Listener for Count {
        fn hear(&mut self, event: &RunEvent) {
            let RunEvent::Output { data, .. } = event else { return };
            self.0.fetch_add(data.len(), std::sync::atomic::Ordering::SeqCst);
        }
    }

    fn written(data: &[u8]) -> RunEvent {
        RunEvent::Output { stream: Stream::Stderr, data: data.to_vec() }
    }

    #[tokio::test]
    async fn a_listener_is_never_behind() {
        let count = std::sync::Arc::default();
        let mut audience = Audience::listener(Box::new(Count(std::sync::Arc::clone(&count))));
        for _ in 0..1000 {
            audience.tell(written(b"abc"));
            assert!(!audience.is_behind());
        }
        assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 3000);
    }

    #[tokio::test]
    async fn a_full_pipe_is_waited_for_and_a_closed_one_is_not() {
        let (sender, mut receiver) = mpsc::channel(1);
        let mut audience = Audience::pipe(Some(sender));
        audience.tell(written(b"a"));
        audience.catch_up().await;
        audience.tell(written(b"b"));
        let pause = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(pause, audience.catch_up()).await.is_err());
        assert!(audience.is_behind(), "a wait that is given up loses nothing");
        assert_eq!(receiver.recv().await, Some(written(b"a")));
        audience.catch_up().await;
        assert_eq!(receiver.recv().await, Some(written(b"b")));
        drop(receiver);
        audience.tell(written(b"c"));
        audience.catch_up().await;
        assert!(!audience.is_behind());
    }
}
