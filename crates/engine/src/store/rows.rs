//! Runs and their logs as rows: every statement of the store except those for retention and sandboxes.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};
use sandbox::Outcome;
use wire::Stream;

use super::keeper::Database;
use super::record::{Record, record_lost, server_restarted};
use crate::Principal;
use crate::clock;
use crate::display::{Display, DisplayKind};
use crate::result::{Artifact, Execution, RunPhase};
use crate::runs::{
    FinishedRun, LOG_READ_BYTES_MAX, ListedRun, LogBlock, LogPart, LogPlace, LogRange, RunId, part,
};

/// A run that began.
#[derive(Debug, Clone)]
pub(crate) struct NewRun {
    pub(crate) id: RunId,
    pub(crate) principal: Principal,
    pub(crate) language: String,
    pub(crate) created_ms: u64,
}

/// A run as the store knows it.
#[derive(Debug)]
pub(crate) enum StoredRun {
    /// The run is in progress in another server.
    Elsewhere(NewRun),
    /// The run has ended.
    Finished(Box<FinishedRun>),
}

/// Reads a number that was stored as non-negative.
pub(super) fn signed(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or(0))
}

pub(super) fn sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Records that a run is in progress. A run that has already ended stays unchanged.
pub(super) fn begin(database: &Database, run: &NewRun) -> rusqlite::Result<()> {
    database
        .connection
        .prepare_cached(
            "INSERT INTO runs (id, principal, server, language, outcome, created_ms)
             VALUES (?1, ?2, ?3, ?4, 'running', ?5) ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            run.id.as_str(),
            run.principal.as_str(),
            database.servers.own(),
            run.language,
            sql(run.created_ms)
        ])
        .map(drop)
}

/// Records how a run ended, with the part of its log that is not stored yet.
pub(super) fn finish(
    database: &Database,
    run: &FinishedRun,
    blocks: &[Arc<LogBlock>],
) -> rusqlite::Result<()> {
    let record = serde_json::to_string(&Record::of(&run.result).with_proof(run.proof.as_deref()))
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    let connection = &database.connection;
    let mut insert = connection.prepare_cached(
        "INSERT INTO runs (id, principal, server, language, outcome, created_ms, ended_ms, record)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (id) DO UPDATE
         SET outcome = excluded.outcome, ended_ms = excluded.ended_ms, record = excluded.record
         RETURNING number",
    )?;
    let values = params![
        run.id.as_str(),
        run.principal.as_str(),
        database.servers.own(),
        run.language,
        run.result.outcome.name(),
        sql(run.created_ms),
        sql(run.ended_ms),
        record
    ];
    let number = insert.query_row(values, |row| row.get(0))?;
    put_blocks(connection, number, blocks)?;
    put_artifacts(connection, number, &run.result.execution().artifacts)?;
    put_displays(connection, number, &run.result.execution().displays)
}

/// Appends to the log of a stored run.
pub(super) fn append(database: &Database, id: &RunId, blocks: &[Arc<LogBlock>]) -> rusqlite::Result<()> {
    let connection = &database.connection;
    let number = connection
        .prepare_cached("SELECT number FROM runs WHERE id = ?1")?
        .query_row(params![id.as_str()], |row| row.get(0))?;
    put_blocks(connection, number, blocks)
}

fn put_blocks(connection: &Connection, number: i64, blocks: &[Arc<LogBlock>]) -> rusqlite::Result<()> {
    let Some(last) = blocks.last() else { return Ok(()) };
    let mut insert = connection.prepare_cached(
        "INSERT INTO log (run, seq, both_end, stdout_end, stderr_end, marks, data)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (run, seq) DO NOTHING",
    )?;
    let mut added = 0;
    for block in blocks {
        let LogPlace { both, stdout, stderr } = block.end;
        let (marks, data) = (block.all_marks(), &block.data);
        let rows = insert.execute(params![
            number,
            sql(block.seq),
            sql(both),
            sql(stdout),
            sql(stderr),
            marks,
            data
        ])?;
        added += if rows > 0 { data.len() as u64 } else { 0 };
    }
    connection
        .prepare_cached(
            "UPDATE runs SET stdout_bytes = max(stdout_bytes, ?2), stderr_bytes = max(stderr_bytes, ?3),
                             kept_bytes = kept_bytes + ?4 WHERE number = ?1",
        )?
        .execute(params![number, sql(last.end.stdout), sql(last.end.stderr), sql(added)])
        .map(drop)
}

fn put_artifacts(connection: &Connection, number: i64, artifacts: &[Artifact]) -> rusqlite::Result<()> {
    for (seq, artifact) in artifacts.iter().enumerate() {
        let rows = connection
            .prepare_cached(
                "INSERT INTO artifacts (run, seq, path, content) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (run, seq) DO NOTHING",
            )?
            .execute(params![number, sql(seq as u64), artifact.path, artifact.content])?;
        count_bytes(connection, number, rows, &artifact.content)?;
    }
    Ok(())
}

fn put_displays(connection: &Connection, number: i64, displays: &[Display]) -> rusqlite::Result<()> {
    for (seq, display) in displays.iter().enumerate() {
        let rows = connection
            .prepare_cached(
                "INSERT INTO displays (run, seq, mime, text, content, json) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (run, seq) DO NOTHING",
            )?
            .execute(params![
                number,
                sql(seq as u64),
                display.kind.mime(),
                display.text,
                display.data,
                display.json
            ])?;
        count_bytes(connection, number, rows, &display.data)?;
        count_bytes(connection, number, rows, display.json.as_deref().unwrap_or_default().as_bytes())?;
    }
    Ok(())
}

/// Adds newly inserted content to the size that retention counts.
fn count_bytes(connection: &Connection, number: i64, rows: usize, content: &[u8]) -> rusqlite::Result<()> {
    if rows == 0 {
        return Ok(());
    }
    connection
        .prepare_cached("UPDATE runs SET kept_bytes = kept_bytes + ?2 WHERE number = ?1")?
        .execute(params![number, sql(content.len() as u64)])
        .map(drop)
}

/// A row of a run of that principal.
struct RunRow {
    number: i64,
    run: NewRun,
    server: String,
    outcome: String,
    ended_ms: u64,
    end: LogPlace,
    record: Option<String>,
}

fn look(connection: &Connection, principal: &Principal, id: &RunId) -> rusqlite::Result<Option<RunRow>> {
    connection
        .prepare_cached(
            "SELECT number, server, language, outcome, created_ms, coalesce(ended_ms, 0), stdout_bytes,
                    stderr_bytes, record
             FROM runs WHERE id = ?1 AND principal = ?2",
        )?
        .query_row(params![id.as_str(), principal.as_str()], |row| {
            let (stdout, stderr) = (signed(row, 6)?, signed(row, 7)?);
            Ok(RunRow {
                number: row.get(0)?,
                run: NewRun {
                    id: id.clone(),
                    principal: principal.clone(),
                    language: row.get(2)?,
                    created_ms: signed(row, 4)?,
                },
                server: row.get(1)?,
                outcome: row.get(3)?,
                ended_ms: signed(row, 5)?,
                end: LogPlace { both: stdout + stderr, stdout, stderr },
                record: row.get(8)?,
            })
        })
        .optional()
}

/// Finds a run of that principal. Runs of other principals are not found.
pub(super) fn find(
    database: &Database,
    principal: &Principal,
    id: &RunId,
) -> rusqlite::Result<Option<StoredRun>> {
    let Some(mut found) = look(&database.connection, principal, id)? else { return Ok(None) };
    if found.outcome == Outcome::Running.name() {
        if found.server != database.servers.own() && database.servers.is_alive(&found.server) {
            return Ok(Some(StoredRun::Elsewhere(found.run)));
        }
        if found.server != database.servers.own() {
            close_runs_of(&database.connection, &found.server)?;
            let Some(closed) = look(&database.connection, principal, id)? else { return Ok(None) };
            found = closed;
        }
    }
    load(&database.connection, found).map(|run| Some(StoredRun::Finished(Box::new(run))))
}

fn load(connection: &Connection, found: RunRow) -> rusqlite::Result<FinishedRun> {
    let outcome = Outcome::from_name(&found.outcome).filter(|outcome| *outcome != Outcome::Running);
    let record = found.record.as_deref().and_then(|text| serde_json::from_str::<Record>(text).ok());
    let mut record = record.unwrap_or_else(|| Record::lost(record_lost()));
    let proof = record.take_proof().map(Arc::new);
    let mut result = record.into_result(outcome.unwrap_or(Outcome::Killed));
    if let RunPhase::Finished(execution) = &mut result.phase {
        load_streams(connection, &found, execution)?;
        execution.artifacts = load_artifacts(connection, found.number)?;
        execution.displays = load_displays(connection, found.number)?;
    }
    let NewRun { id, principal, language, created_ms } = found.run;
    Ok(FinishedRun { id, principal, language, created_ms, ended_ms: found.ended_ms, result, proof })
}

fn load_artifacts(connection: &Connection, number: i64) -> rusqlite::Result<Vec<Artifact>> {
    let mut select =
        connection.prepare_cached("SELECT path, content FROM artifacts WHERE run = ?1 ORDER BY seq")?;
    let rows =
        select.query_map(params![number], |row| Ok(Artifact { path: row.get(0)?, content: row.get(1)? }))?;
    rows.collect()
}

fn load_displays(connection: &Connection, number: i64) -> rusqlite::Result<Vec<Display>> {
    let mut select = connection
        .prepare_cached("SELECT mime, text, content, json FROM displays WHERE run = ?1 ORDER BY seq")?;
    let rows = select.query_map(params![number], |row| {
        let mime: String = row.get(0)?;
        // Only kinds of the list were ever inserted.
        let kind = DisplayKind::from_mime(&mime).unwrap_or(DisplayKind::Plain);
        Ok(Display { kind, text: row.get(1)?, data: row.get(2)?, json: row.get(3)? })
    })?;
    rows.collect()
}

fn load_streams(connection: &Connection, found: &RunRow, execution: &mut Execution) -> rusqlite::Result<()> {
    each_block(connection, found.number, None, 0, |block| {
        block.copy(Some(Stream::Stdout), 0, usize::MAX, &mut execution.stdout);
        block.copy(Some(Stream::Stderr), 0, usize::MAX, &mut execution.stderr);
        true
    })
}

/// Passes the blocks that end after `offset` to a callback, one at a time, until it stops.
fn each_block(
    connection: &Connection,
    number: i64,
    stream: Option<Stream>,
    offset: u64,
    mut take: impl FnMut(&LogBlock) -> bool,
) -> rusqlite::Result<()> {
    let statement = match stream {
        None => {
            "SELECT seq, both_end, stdout_end, stderr_end, data, marks FROM log
                 WHERE run = ?1 AND both_end > ?2 ORDER BY seq"
        }
        Some(Stream::Stdout) => {
            "SELECT seq, both_end, stdout_end, stderr_end, data, marks FROM log
             WHERE run = ?1 AND stdout_end > ?2 ORDER BY seq"
        }
        Some(Stream::Stderr) => {
            "SELECT seq, both_end, stdout_end, stderr_end, data, marks FROM log
             WHERE run = ?1 AND stderr_end > ?2 ORDER BY seq"
        }
    };
    let mut select = connection.prepare_cached(statement)?;
    let mut rows = select.query(params![number, sql(offset)])?;
    while let Some(row) = rows.next()? {
        let end = LogPlace { both: signed(row, 1)?, stdout: signed(row, 2)?, stderr: signed(row, 3)? };
        if !take(&LogBlock::load(signed(row, 0)?, end, row.get(4)?, row.get(5)?)) {
            break;
        }
    }
    Ok(())
}

/// Reads a range of the log of a run of that principal.
pub(super) fn log(
    database: &Database,
    principal: &Principal,
    id: &RunId,
    range: LogRange,
) -> rusqlite::Result<Option<LogPart>> {
    let connection = &database.connection;
    let Some(found) = look(connection, principal, id)? else { return Ok(None) };
    let limit = range.limit.min(LOG_READ_BYTES_MAX);
    let mut bytes = Vec::new();
    each_block(connection, found.number, range.stream, range.offset, |block| {
        if bytes.len() < limit {
            block.copy(range.stream, range.offset, limit, &mut bytes);
        }
        bytes.len() < limit
    })?;
    let is_running = found.outcome == Outcome::Running.name() && database.servers.is_alive(&found.server);
    Ok(Some(part(range, bytes, found.end.of(range.stream), is_running)))
}

/// Lists the newest runs of that principal, newest first.
pub(super) fn list(
    database: &Database,
    principal: &Principal,
    limit: usize,
) -> rusqlite::Result<Vec<ListedRun>> {
    let mut select = database.connection.prepare_cached(
        "SELECT id, language, outcome, created_ms, ended_ms FROM runs
         WHERE principal = ?1 ORDER BY created_ms DESC LIMIT ?2",
    )?;
    let rows = select.query_map(params![principal.as_str(), sql(limit as u64)], |row| {
        let id: String = row.get(0)?;
        let outcome: String = row.get(2)?;
        Ok(RunId::parse(&id).map(|id| ListedRun {
            id,
            language: row.get(1).unwrap_or_default(),
            outcome: Outcome::from_name(&outcome).unwrap_or(Outcome::Killed),
            created_ms: signed(row, 3).unwrap_or(0),
            ended_ms: row.get::<_, Option<i64>>(4).ok().flatten().map(i64::cast_unsigned),
        }))
    })?;
    rows.filter_map(Result::transpose).collect()
}

/// Records the end of runs whose server has died.
pub(super) fn close_runs_of_the_dead(database: &Database) -> rusqlite::Result<()> {
    let servers: Vec<String> = {
        let mut select = database
            .connection
            .prepare_cached("SELECT DISTINCT server FROM runs WHERE outcome = 'running'")?;
        select.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?
    };
    for server in servers.iter().filter(|server| !database.servers.is_alive(server)) {
        close_runs_of(&database.connection, server)?;
    }
    Ok(())
}

/// Records the end of runs that this server has not ended.
pub(super) fn close_own_runs(database: &Database) -> rusqlite::Result<()> {
    close_runs_of(&database.connection, database.servers.own())
}

fn close_runs_of(connection: &Connection, server: &str) -> rusqlite::Result<()> {
    let record = serde_json::to_string(&Record::lost(server_restarted()))
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    connection
        .prepare_cached(
            "UPDATE runs SET outcome = 'killed', ended_ms = ?2, record = ?3
             WHERE server = ?1 AND outcome = 'running'",
        )?
        .execute(params![server, sql(clock::unix_ms()), record])
        .map(drop)
}
