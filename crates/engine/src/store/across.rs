//! Lookups across principals, for operators (`crate::admin`).

use rusqlite::{OptionalExtension, Row, params};
use sandbox::Outcome;

use super::rows::{signed, sql};
use super::{Kind, Store, StoreError};
use crate::Principal;
use crate::runs::{ListedRun, RunId};

const LIST: &str = "SELECT id, principal, language, outcome, created_ms, ended_ms FROM runs
    WHERE (?1 IS NULL OR principal = ?1) AND created_ms <= ?2 ORDER BY created_ms DESC, id LIMIT ?3";
/// Runs that began in one millisecond. A page that begins among them must find all of them.
const AT_ONCE: &str = "SELECT count(*) FROM runs WHERE created_ms = ?1";

impl Store {
    /// The newest runs of one principal or of all that began at that time or before, with their owners: `limit` of them,
    /// and as many more as began at exactly that time.
    pub(crate) async fn list_across(
        &self,
        principal: Option<&Principal>,
        until_ms: u64,
        limit: usize,
    ) -> Result<Vec<(Principal, ListedRun)>, StoreError> {
        let principal = principal.map(|principal| principal.as_str().to_owned());
        self.ask(Kind::Read, 0, move |database| {
            let connection = &database.connection;
            let at_once: i64 =
                connection.prepare_cached(AT_ONCE)?.query_row(params![sql(until_ms)], |row| row.get(0))?;
            let most = sql(limit as u64).saturating_add(at_once);
            let mut select = connection.prepare_cached(LIST)?;
            let rows = select.query_map(params![principal, sql(until_ms), most], listed)?;
            rows.filter_map(Result::transpose).collect()
        })
        .await
    }

    /// The principal of a run.
    pub(crate) async fn owner_of(&self, id: &RunId) -> Result<Option<Principal>, StoreError> {
        let id = id.clone();
        self.ask(Kind::Read, 0, move |database| {
            let mut select =
                database.connection.prepare_cached("SELECT principal FROM runs WHERE id = ?1")?;
            let found = select.query_row(params![id.as_str()], |row| row.get::<_, String>(0)).optional()?;
            Ok(found.and_then(|name| Principal::new(&name)))
        })
        .await
    }
}

/// A row, unless it is not readable.
fn listed(row: &Row<'_>) -> rusqlite::Result<Option<(Principal, ListedRun)>> {
    let (id, principal, outcome): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(3)?);
    let (Some(id), Some(principal)) = (RunId::parse(&id), Principal::new(&principal)) else {
        return Ok(None);
    };
    let run = ListedRun {
        id,
        language: row.get(2)?,
        outcome: Outcome::from_name(&outcome).unwrap_or(Outcome::Killed),
        created_ms: signed(row, 4)?,
        ended_ms: row.get::<_, Option<i64>>(5)?.map(i64::cast_unsigned),
    };
    Ok(Some((principal, run)))
}
