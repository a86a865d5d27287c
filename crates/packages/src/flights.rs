//! One build for all who wait for the same set, in this process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use engine::RunError;
use tokio::sync::watch;

/// The result of a build: the digest of a layer.
type Landed = Option<Result<String, RunError>>;

/// Builds in progress, by the key of their set.
#[derive(Default)]
pub(crate) struct Flights(Mutex<HashMap<String, watch::Receiver<Landed>>>);

/// Whether a caller builds or waits.
pub(crate) enum Boarding {
    /// The caller must build and tell the result.
    Pilot(watch::Sender<Landed>),
    /// Another caller builds.
    Passenger(watch::Receiver<Landed>),
}

impl Flights {
    pub(crate) fn board(&self, key: &str) -> Boarding {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(key) {
            return Boarding::Passenger(flight.clone());
        }
        let (pilot, passenger) = watch::channel(None);
        flights.insert(key.to_owned(), passenger);
        Boarding::Pilot(pilot)
    }

    /// Ends a build. Later callers begin a new one.
    pub(crate) fn land(&self, key: &str, pilot: &watch::Sender<Landed>, result: Result<String, RunError>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        pilot.send_replace(Some(result));
    }
}

/// Waits for a build.
pub(crate) async fn landed(mut passenger: watch::Receiver<Landed>) -> Result<String, RunError> {
    let gone = || crate::errors::failed("the installation was given up");
    match passenger.wait_for(Option::is_some).await {
        Ok(result) => result.clone().unwrap_or_else(|| Err(gone())),
        Err(_) => Err(gone()),
    }
}
