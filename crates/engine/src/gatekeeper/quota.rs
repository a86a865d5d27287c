//! Quotas in the ledger: leases of runs in progress, runs of a minute, processor time of a day.
//!
//! A lease is a row with the name of its server. A server holds a locked file for as long as it lives, so the rows of a
//! dead one are recognised and removed by any other server, and those of a living one never are. A run that was killed
//! with its server is charged what was last reported of it.

use std::fmt;
use std::sync::PoisonError;
use std::time::Duration;

use policy::{Amount, NamedRules, Principal, Quota, Reservation, Window};
use rusqlite::{OptionalExtension, Transaction, params};

use super::ledger::{Ledger, NotReserved, Reserved, failed, reserve_in};
use crate::store::{Servers, StoreError};

/// When a place among the parallel runs may be free again.
const PLACE_RETRY: Duration = Duration::from_secs(1);
const US_PER_S: u64 = 1_000_000;

const READ: &str = "SELECT started, value FROM quota_use WHERE principal = ?1 AND amount = ?2";
const WRITE: &str = "INSERT INTO quota_use (principal, amount, started, value) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT DO UPDATE SET started = excluded.started, value = excluded.value";

/// A quota that a caller has used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(crate) amount: Amount,
    pub(crate) limit: u64,
    pub(crate) used: u64,
    /// When the same request may succeed without anything else being done.
    pub(crate) retry_after: Option<Duration>,
}

/// A run in progress that is counted: whose, and a random number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseId(String, i64);

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndedLease {
    pub(crate) id: LeaseId,
    pub(crate) cpu_us: u64,
    /// The minute in which the run was counted, if it did not begin and is not counted after all.
    pub(crate) unbegun: Option<u64>,
}

/// What a principal uses now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct InUse {
    pub(crate) parallel_runs: u64,
    pub(crate) runs_this_minute: u64,
    pub(crate) cpu_us_today: u64,
}

/// A counter of a window.
#[derive(Clone, Copy)]
struct Counted {
    started: u64,
    value: u64,
}

impl Ledger {
    /// Counts a run that is about to begin, if the quota has room for it. Returns the lease and the minute that it
    /// counts in.
    pub(crate) fn begin_run(
        &self,
        principal: &Principal,
        quota: &Quota,
        unix_s: u64,
    ) -> Result<(LeaseId, u64), NotReserved> {
        let servers = self.roll.servers()?;
        let id = random_id()?;
        self.settling(unix_s, |change| begin_in(change, servers, (principal, quota, id), unix_s))
    }

    /// Raises the counters of a call and counts the run that it starts: both, or none.
    pub(crate) fn reserve_run(
        &self,
        rules: &NamedRules,
        (principal, wanted): (&Principal, &[Reservation]),
        quota: &Quota,
        unix_s: u64,
    ) -> Result<(Reserved, LeaseId, u64), NotReserved> {
        let servers = self.roll.servers()?;
        let id = random_id()?;
        self.settling(unix_s, |change| {
            let reserved = reserve_in(change, rules, (principal, wanted), unix_s)?;
            let (id, minute) = begin_in(change, servers, (principal, quota, id), unix_s)?;
            Ok((reserved, id, minute))
        })
    }

    /// Writes the ends of leases that have not been written yet.
    pub(crate) fn settle_ended(&self, unix_s: u64) -> Result<(), NotReserved> {
        let _alone = match self.database.is_hasty() {
            true => self.settling.try_lock().map_err(|_| StoreError::Busy("ends of runs".to_owned()))?,
            false => self.settling.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let ended = std::mem::take(&mut *self.ended());
        if ended.is_empty() {
            return Ok(());
        }
        let settled =
            self.database.change(|change| ended.iter().try_for_each(|one| end(change, one, unix_s)));
        if settled.is_err() {
            self.ended().extend(ended);
        }
        settled
    }

    /// Notes the processor time of a run in progress, for the case that this server is killed.
    pub(crate) fn report(&self, id: &LeaseId, cpu_us: u64) -> Result<(), NotReserved> {
        self.database.change(|change| {
            let update = "UPDATE leases SET cpu_us = max(cpu_us, ?3) WHERE principal = ?1 AND id = ?2";
            let updated = change
                .prepare_cached(update)
                .and_then(|mut update| update.execute(params![id.0, id.1, sql(cpu_us)]));
            updated.map(drop).map_err(failed)
        })
    }

    /// Charges processor time that no run is charged.
    pub(crate) fn charge(&self, principal: &Principal, cpu_us: u64, unix_s: u64) -> Result<(), NotReserved> {
        self.database.change(|change| charge(change, principal.as_str(), cpu_us, unix_s))
    }

    /// What a principal uses now.
    pub(crate) fn in_use(&self, principal: &Principal, unix_s: u64) -> Result<InUse, NotReserved> {
        let servers = self.roll.servers()?;
        self.settling(unix_s, |change| {
            clear_dead(change, servers, Some(principal), unix_s)?;
            let today = read(change, principal, Amount::CpuSPerDay, unix_s)?;
            Ok(InUse {
                parallel_runs: places(change, principal)?,
                runs_this_minute: read(change, principal, Amount::RunsPerMinute, unix_s)?.value,
                cpu_us_today: today.value.saturating_add(cpu_of_leases(change, principal)?),
            })
        })
    }

    /// A transaction that first writes the ends of leases. If it fails, they are written by the next one.
    fn settling<T>(
        &self,
        unix_s: u64,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, NotReserved>,
    ) -> Result<T, NotReserved> {
        // A transaction of its own, because a refusal rolls the other one back.
        self.settle_ended(unix_s)?;
        self.database.change(work)
    }
}

/// Counts a run in a transaction, if the quota has room for it.
fn begin_in(
    change: &Transaction<'_>,
    servers: &Servers,
    (principal, quota, id): (&Principal, &Quota, i64),
    unix_s: u64,
) -> Result<(LeaseId, u64), NotReserved> {
    if let Some(limit) = quota.get(Amount::ParallelRuns) {
        check_places(change, servers, (principal, limit), unix_s)?;
    }
    if let Some(limit) = quota.get(Amount::CpuSPerDay) {
        let today = read(change, principal, Amount::CpuSPerDay, unix_s)?;
        let used = today.value.saturating_add(cpu_of_leases(change, principal)?);
        if used >= limit.saturating_mul(US_PER_S) {
            return Err(today.exceeded(Amount::CpuSPerDay, limit, used / US_PER_S, unix_s));
        }
    }
    let mut minute = read(change, principal, Amount::RunsPerMinute, unix_s)?;
    if let Some(limit) = quota.get(Amount::RunsPerMinute) {
        if minute.value >= limit {
            return Err(minute.exceeded(Amount::RunsPerMinute, limit, minute.value, unix_s));
        }
        minute.value += 1;
        write(change, principal, Amount::RunsPerMinute, minute)?;
    }
    let insert = "INSERT INTO leases (principal, id, server, cpu_us) VALUES (?1, ?2, ?3, 0)";
    let inserted = change
        .prepare_cached(insert)
        .and_then(|mut insert| insert.execute(params![principal.as_str(), id, servers.own()]));
    inserted.map_err(failed)?;
    Ok((LeaseId(principal.as_str().to_owned(), id), minute.started))
}

impl Counted {
    fn exceeded(self, amount: Amount, limit: u64, used: u64, unix_s: u64) -> NotReserved {
        let ends = self.started.saturating_add(window(amount).seconds());
        let retry_after = Some(Duration::from_secs(ends.saturating_sub(unix_s)));
        NotReserved::Quota(Exceeded { amount, limit, used, retry_after })
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { amount, limit, used, retry_after } = self;
        write!(f, "the quota {} is used up: {used} of {limit}", amount.name())?;
        match (amount, retry_after) {
            (Amount::ParallelRuns, _) => f.write_str("; a place is free when one of the runs has ended"),
            (_, Some(wait)) => write!(f, "; it is free again in {} s", wait.as_secs().max(1)),
            (Amount::Sandboxes, None) => f.write_str("; it is free again when a sandbox is closed"),
            (_, None) => f.write_str("; it is free again when files are removed or a sandbox is closed"),
        }
    }
}

fn window(amount: Amount) -> Window {
    match amount {
        Amount::CpuSPerDay => Window::Day,
        _ => Window::Minute,
    }
}

/// Refuses when all places are taken by runs of living servers.
fn check_places(
    change: &Transaction<'_>,
    servers: &Servers,
    (principal, limit): (&Principal, u64),
    unix_s: u64,
) -> Result<(), NotReserved> {
    if places(change, principal)? < limit {
        return Ok(());
    }
    clear_dead(change, servers, Some(principal), unix_s)?;
    let used = places(change, principal)?;
    if used < limit {
        return Ok(());
    }
    let retry_after = Some(PLACE_RETRY);
    Err(NotReserved::Quota(Exceeded { amount: Amount::ParallelRuns, limit, used, retry_after }))
}

/// Removes the leases of dead servers, of one principal or of all, and charges what was reported of them.
fn clear_dead(
    change: &Transaction<'_>,
    servers: &Servers,
    principal: Option<&Principal>,
    unix_s: u64,
) -> Result<(), NotReserved> {
    let of = principal.map(Principal::as_str);
    let select = "SELECT id, principal, server, cpu_us FROM leases WHERE ?1 IS NULL OR principal = ?1";
    let rows = change.prepare_cached(select).and_then(|mut select| {
        let row = |row: &rusqlite::Row<'_>| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, i64>(3)?,
            ))
        };
        select.query_map(params![of], row)?.collect::<Result<Vec<_>, _>>()
    });
    let mut known: Vec<(String, bool)> = Vec::new();
    for (id, principal, server, cpu_us) in rows.map_err(failed)? {
        let is_alive = match known.iter().find(|(name, _)| *name == server) {
            Some((_, is_alive)) => *is_alive,
            None => {
                let is_alive = servers.is_alive(&server);
                known.push((server, is_alive));
                is_alive
            }
        };
        if !is_alive {
            remove(change, &LeaseId(principal.clone(), id))?;
            charge(change, &principal, u64::try_from(cpu_us).unwrap_or(0), unix_s)?;
        }
    }
    Ok(())
}

fn end(change: &Transaction<'_>, ended: &EndedLease, unix_s: u64) -> Result<(), NotReserved> {
    let EndedLease { id, cpu_us, unbegun } = ended;
    if !remove(change, id)? {
        return Ok(());
    }
    if let Some(minute) = unbegun {
        give_back(change, &id.0, *minute)?;
    }
    charge(change, &id.0, *cpu_us, unix_s)
}

/// Removes a lease; returns whether it was there.
fn remove(change: &Transaction<'_>, id: &LeaseId) -> Result<bool, NotReserved> {
    let delete = "DELETE FROM leases WHERE principal = ?1 AND id = ?2";
    let removed = change.prepare_cached(delete).and_then(|mut delete| delete.execute(params![id.0, id.1]));
    Ok(removed.map_err(failed)? > 0)
}

/// A number that no other lease of any server has.
fn random_id() -> Result<i64, StoreError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| StoreError::io("name a lease")(error.into()))?;
    Ok(i64::from_ne_bytes(bytes))
}

/// A run that did not begin is not counted, unless another minute has begun since.
fn give_back(change: &Transaction<'_>, principal: &str, minute: u64) -> Result<(), NotReserved> {
    let update = "UPDATE quota_use SET value = value - 1
        WHERE principal = ?1 AND amount = ?2 AND started = ?3 AND value > 0";
    let name = Amount::RunsPerMinute.name();
    let updated = change
        .prepare_cached(update)
        .and_then(|mut update| update.execute(params![principal, name, sql(minute)]));
    updated.map(drop).map_err(failed)
}

fn charge(change: &Transaction<'_>, principal: &str, cpu_us: u64, unix_s: u64) -> Result<(), NotReserved> {
    let Some(principal) = Principal::new(principal).filter(|_| cpu_us > 0) else { return Ok(()) };
    let mut today = read(change, &principal, Amount::CpuSPerDay, unix_s)?;
    today.value = today.value.saturating_add(cpu_us);
    write(change, &principal, Amount::CpuSPerDay, today)
}

fn places(change: &Transaction<'_>, principal: &Principal) -> Result<u64, NotReserved> {
    one(change, "SELECT count(*) FROM leases WHERE principal = ?1", principal)
}

fn cpu_of_leases(change: &Transaction<'_>, principal: &Principal) -> Result<u64, NotReserved> {
    one(change, "SELECT coalesce(sum(cpu_us), 0) FROM leases WHERE principal = ?1", principal)
}

fn one(change: &Transaction<'_>, text: &str, principal: &Principal) -> Result<u64, NotReserved> {
    let found = change
        .prepare_cached(text)
        .and_then(|mut select| select.query_row(params![principal.as_str()], |row| row.get::<_, i64>(0)));
    Ok(u64::try_from(found.map_err(failed)?).unwrap_or(0))
}

/// The counter of the window now. A clock that goes back does not open an earlier window again.
fn read(
    change: &Transaction<'_>,
    principal: &Principal,
    amount: Amount,
    unix_s: u64,
) -> Result<Counted, NotReserved> {
    let now = window(amount).start(unix_s);
    let row = change.prepare_cached(READ).and_then(|mut read| {
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        read.query_row(params![principal.as_str(), amount.name()], row).optional()
    });
    let known = match row.map_err(failed)? {
        None => None,
        Some((started, value)) => match (u64::try_from(started), u64::try_from(value)) {
            (Ok(started), Ok(value)) => Some(Counted { started, value }),
            _ => return Err(StoreError::Corrupt("a quota is negative".to_owned()).into()),
        },
    };
    Ok(known.filter(|known| known.started >= now).unwrap_or(Counted { started: now, value: 0 }))
}

fn write(
    change: &Transaction<'_>,
    principal: &Principal,
    amount: Amount,
    counted: Counted,
) -> Result<(), NotReserved> {
    let Counted { started, value } = counted;
    let written = change.prepare_cached(WRITE).and_then(|mut write| {
        write.execute(params![principal.as_str(), amount.name(), sql(started), sql(value)])
    });
    written.map(drop).map_err(failed)
}

fn sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
