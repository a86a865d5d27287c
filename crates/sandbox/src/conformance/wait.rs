//! Waiting without a runtime: time limits, whichever of two futures is first, and blocking work on a thread.
//!
//! A backend's stream may be pumped by the runtime of the test, so no clause may block that runtime.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::patience;

/// Which of two futures was first.
pub(super) enum First<A, B> {
    One(A),
    Other(B),
}

/// Completes with whichever is first. The other one is dropped.
pub(super) async fn first<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> First<A, B> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| {
        if let Poll::Ready(done) = one.as_mut().poll(context) {
            return Poll::Ready(First::One(done));
        }
        other.as_mut().poll(context).map(First::Other)
    })
    .await
}

/// What the future returns. It must not take longer than the patience of the suite.
pub(super) async fn within<T>(clause: &str, future: impl Future<Output = T>) -> Result<T, String> {
    let patience = patience();
    match first(future, pause(patience)).await {
        First::One(done) => Ok(done),
        First::Other(()) => Err(format!("{clause}; it did not within {} s", patience.as_secs())),
    }
}

/// Completes after that time.
pub(super) async fn pause(time: Duration) {
    let cancel = Arc::new((Mutex::new(false), Condvar::new()));
    let _cancelled_when_dropped = Cancel(Arc::clone(&cancel));
    aside(move || {
        let (is_cancelled, told) = &*cancel;
        let guard = is_cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        drop(told.wait_timeout_while(guard, time, |is_cancelled| !*is_cancelled));
    })
    .await;
}

/// Ends the thread of a pause that is no longer needed.
struct Cancel(Arc<(Mutex<bool>, Condvar)>);

impl Drop for Cancel {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }
}

/// Does blocking work on a thread.
pub(super) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let shared = Arc::new(Mutex::new((None::<T>, None::<Waker>)));
    let done = Arc::clone(&shared);
    std::thread::spawn(move || {
        let value = work();
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        done.0 = Some(value);
        if let Some(waker) = done.1.take() {
            waker.wake();
        }
    });
    poll_fn(move |context| {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        match shared.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                shared.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}
