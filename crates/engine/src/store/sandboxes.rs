//! Persistent sandboxes as rows.

use rusqlite::{OptionalExtension, Row, params};

use super::keeper::Database;
use super::rows::{signed, sql};
use super::{Store, StoreError};
use crate::Principal;
use crate::packages::InstalledPackages;
use crate::sandboxes::{SandboxId, SandboxRecord};

const COLUMNS: &str = "id, principal, name, identity, limits, ttl_ms, created_ms, used_ms, runs, languages, disk_bytes, wall, access, packages";

/// What one more run changes in the record.
#[derive(Debug, Clone)]
pub(crate) struct SandboxUse {
    pub(crate) id: SandboxId,
    pub(crate) used_ms: u64,
    pub(crate) languages: Vec<String>,
    pub(crate) disk_bytes: u64,
}

/// The number and size of existing sandboxes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SandboxTotals {
    pub(crate) all: u64,
    pub(crate) own: u64,
    pub(crate) disk_bytes: u64,
    /// The part of the principal.
    pub(crate) own_disk_bytes: u64,
}

/// Whether a sandbox was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opened {
    /// It is on the disk.
    Yes,
    /// The principal has as many as it may.
    TooMany,
}

impl Store {
    /// Stores a sandbox, unless its principal has `own_max` already, counted over all servers.
    pub(crate) async fn open_sandbox(
        &self,
        record: SandboxRecord,
        own_max: Option<u64>,
    ) -> Result<Opened, StoreError> {
        self.ask(super::Kind::Write, 0, move |database| insert(database, &record, own_max)).await
    }

    /// Records the size of the files of a sandbox. It is written when this returns, because other servers hold the
    /// owner to a quota by it.
    pub(crate) async fn note_disk(&self, id: SandboxId, disk_bytes: u64) -> Result<(), StoreError> {
        self.ask(super::Kind::Write, 0, move |database| {
            let text = "UPDATE persistent_sandboxes SET disk_bytes = ?2 WHERE id = ?1";
            database.connection.prepare_cached(text)?.execute(params![id.as_str(), sql(disk_bytes)]).map(drop)
        })
        .await
    }

    /// Deletes a sandbox. Returns whether it existed.
    pub(crate) async fn close_sandbox(&self, id: SandboxId) -> Result<bool, StoreError> {
        self.ask(super::Kind::Write, 0, move |database| {
            let mut delete =
                database.connection.prepare_cached("DELETE FROM persistent_sandboxes WHERE id = ?1")?;
            Ok(delete.execute(params![id.as_str()])? > 0)
        })
        .await
    }

    /// Records that a sandbox was used. The write is deferred.
    pub(crate) async fn use_sandbox(&self, used: SandboxUse) -> Result<(), StoreError> {
        self.send(super::Kind::WriteLater, 0, move |database| update(database, &used)).await.map(drop)
    }

    /// Records that a sandbox was used. On success the record is on the disk.
    pub(crate) async fn use_sandbox_now(&self, used: SandboxUse) -> Result<(), StoreError> {
        self.ask(super::Kind::Write, 0, move |database| update(database, &used)).await
    }

    /// Records which interpreters had a state, after a context was removed. On success the record is on the disk.
    pub(crate) async fn keep_interpreters(
        &self,
        id: SandboxId,
        names: Vec<String>,
    ) -> Result<(), StoreError> {
        self.ask(super::Kind::Write, 0, move |database| {
            let text = "UPDATE persistent_sandboxes SET languages = ?2 WHERE id = ?1";
            let mut update = database.connection.prepare_cached(text)?;
            update.execute(params![id.as_str(), names.join(" ")]).map(drop)
        })
        .await
    }

    /// Records the packages of a sandbox. On success the record is on the disk.
    pub(crate) async fn keep_packages(
        &self,
        id: SandboxId,
        packages: Vec<InstalledPackages>,
    ) -> Result<(), StoreError> {
        self.ask(super::Kind::Write, 0, move |database| {
            let text = "UPDATE persistent_sandboxes SET packages = ?2 WHERE id = ?1";
            let mut update = database.connection.prepare_cached(text)?;
            update.execute(params![id.as_str(), json(&packages)?]).map(drop)
        })
        .await
    }

    /// Finds a sandbox by its id, whichever principal owns it.
    pub(crate) async fn find_sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        let id = id.clone();
        self.ask(super::Kind::Read, 0, move |database| {
            let text = format!("SELECT {COLUMNS} FROM persistent_sandboxes WHERE id = ?1");
            database.connection.prepare_cached(&text)?.query_row(params![id.as_str()], record).optional()
        })
        .await
    }

    /// Lists the sandboxes of one principal or of all, newest first.
    pub(crate) async fn list_sandboxes(
        &self,
        principal: Option<&Principal>,
    ) -> Result<Vec<SandboxRecord>, StoreError> {
        let principal = principal.map(|principal| principal.as_str().to_owned());
        self.ask(super::Kind::Read, 0, move |database| {
            let text = format!(
                "SELECT {COLUMNS} FROM persistent_sandboxes WHERE ?1 IS NULL OR principal = ?1 ORDER BY created_ms DESC"
            );
            let mut select = database.connection.prepare_cached(&text)?;
            select.query_map(params![principal], record)?.collect()
        })
        .await
    }

    /// How many sandboxes exist and how large they are.
    pub(crate) async fn sandbox_totals(&self, principal: &Principal) -> Result<SandboxTotals, StoreError> {
        let principal = principal.as_str().to_owned();
        self.ask(super::Kind::Read, 0, move |database| {
            let mut select = database.connection.prepare_cached(
                "SELECT count(*), coalesce(sum(principal = ?1), 0), coalesce(sum(disk_bytes), 0),
                    coalesce(sum(disk_bytes * (principal = ?1)), 0) FROM persistent_sandboxes",
            )?;
            select.query_row(params![principal], |row| {
                let (all, own) = (signed(row, 0)?, signed(row, 1)?);
                Ok(SandboxTotals { all, own, disk_bytes: signed(row, 2)?, own_disk_bytes: signed(row, 3)? })
            })
        })
        .await
    }
}

fn insert(database: &Database, record: &SandboxRecord, own_max: Option<u64>) -> rusqlite::Result<Opened> {
    let (limits, packages) = (json(&record.limits)?, json(&record.packages)?);
    let text = format!(
        "INSERT INTO persistent_sandboxes ({COLUMNS}) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, '', 0, ?9, ?11, ?12
            WHERE ?10 IS NULL OR (SELECT count(*) FROM persistent_sandboxes WHERE principal = ?2) < ?10"
    );
    let added = database.connection.prepare_cached(&text)?.execute(params![
        record.id.as_str(),
        record.principal.as_str(),
        record.name,
        record.identity,
        limits,
        sql(record.ttl_ms),
        sql(record.created_ms),
        sql(record.used_ms),
        record.wall,
        own_max.map(sql),
        record.access.join(" "),
        packages,
    ])?;
    Ok(if added == 0 { Opened::TooMany } else { Opened::Yes })
}

fn json(value: &impl serde::Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

fn update(database: &Database, used: &SandboxUse) -> rusqlite::Result<()> {
    database
        .connection
        .prepare_cached(
            "UPDATE persistent_sandboxes SET used_ms = ?2, runs = runs + 1, languages = ?3, disk_bytes = ?4 WHERE id = ?1",
        )?
        .execute(params![used.id.as_str(), sql(used.used_ms), used.languages.join(" "), sql(used.disk_bytes)])
        .map(drop)
}

fn record(row: &Row<'_>) -> rusqlite::Result<SandboxRecord> {
    let text = |column: usize| row.get::<_, String>(column);
    let malformed = |column: usize, what: &str| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, what.into())
    };
    let languages = text(9)?;
    Ok(SandboxRecord {
        id: SandboxId::parse(&text(0)?).ok_or_else(|| malformed(0, "no handle"))?,
        principal: Principal::new(&text(1)?).ok_or_else(|| malformed(1, "no principal"))?,
        name: text(2)?,
        identity: row.get(3)?,
        limits: serde_json::from_str(&text(4)?).map_err(|error| malformed(4, &error.to_string()))?,
        ttl_ms: signed(row, 5)?,
        created_ms: signed(row, 6)?,
        used_ms: signed(row, 7)?,
        runs: signed(row, 8)?,
        languages: languages.split_whitespace().map(str::to_owned).collect(),
        disk_bytes: signed(row, 10)?,
        wall: text(11)?,
        access: text(12)?.split_whitespace().map(str::to_owned).collect(),
        packages: serde_json::from_str(&text(13)?).map_err(|error| malformed(13, &error.to_string()))?,
    })
}
