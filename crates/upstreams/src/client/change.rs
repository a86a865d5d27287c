//! A change of tools that a server announced and that is being listed.

use super::Connection;

/// From the beginning of a listing to its end. A listing that fails, or that is given up, leaves the change to the next one.
pub(crate) struct Change<'a>(Option<&'a Connection>);

impl<'a> Change<'a> {
    /// Takes a change before the first page is asked for: one that is announced meanwhile is another one.
    pub(crate) fn take(connection: &'a Connection) -> Self {
        connection.take_changed();
        Self(Some(connection))
    }

    /// The tools are listed.
    pub(crate) fn listed(mut self) {
        self.0 = None;
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.0 {
            connection.set_changed();
        }
    }
}
