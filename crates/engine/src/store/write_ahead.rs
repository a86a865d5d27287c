//! Write-ahead logging in a database that several servers open at once.

use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

const PAUSE: Duration = Duration::from_millis(5);

/// Turns write-ahead logging on, and tries again while other connections are in the way. Two servers that made the same file
/// at once were answered `store_busy` now and then, long before the busy timeout; SQLite does not wait for a lock in every
/// case (<https://sqlite.org/wal.html>), and this is the step that changes the lock.
pub(crate) fn write_ahead(connection: &Connection, patience: Duration) -> rusqlite::Result<()> {
    let until = Instant::now() + patience;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if is_busy(&error) && Instant::now() < until => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

#[cfg(test)]
mod tests {
    use harness::TestFolder;

    use super::*;

    #[test]
    fn many_connections_to_a_new_file_turn_it_on_at_once() {
        for _ in 0..20 {
            let folder = TestFolder::new();
            let path = folder.path().join("new.db");
            let turn_on = || {
                let connection = Connection::open(&path).unwrap();
                connection.busy_timeout(Duration::from_secs(5)).unwrap();
                write_ahead(&connection, Duration::from_secs(5)).unwrap();
                connection
                    .execute_batch("CREATE TABLE IF NOT EXISTS rows (a); INSERT INTO rows VALUES (1)")
                    .unwrap();
            };
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(turn_on);
                }
            });
        }
    }
}
