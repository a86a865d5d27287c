//! Which host identity each sandbox gets: unused ids if the server is root, otherwise subordinate ids or the
//! user's own id.

use std::fs;
use std::path::{Path, PathBuf};

use jail::{IdMap, ZYGOTE_ID, ZygoteIds};

/// Start of a range that no distribution assigns. Each server uses 256 numbers of it.
const UNUSED_BASE: u32 = 0x3000_0000;
const PER_SERVER: u32 = 256;
/// A process number is less than this (PID_MAX_LIMIT, proc(5) on pid_max).
const SERVERS_MAX: u32 = 1 << 22;
/// The last number is that of zygote processes.
const PER_SERVER_OF_SANDBOXES: u32 = PER_SERVER - 1;
/// Another such range, for workspaces that outlive their server.
const LASTING_BASE: u32 = 0x7000_0000;
const LASTING_MASK: u32 = 0x0fff_ffff;

pub(super) enum Identities {
    Unused { base: u32 },
    Subordinate { uids: (u32, u32), gids: (u32, u32), newuidmap: PathBuf, newgidmap: PathBuf },
    Own { uid: u32, gid: u32 },
}

impl Identities {
    pub(super) fn detect() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        if uid == 0 {
            let server = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
            return Self::Unused { base: base_of(server) };
        }
        Self::subordinate(uid).unwrap_or(Self::Own { uid, gid })
    }

    fn subordinate(uid: u32) -> Option<Self> {
        let name = user_name(uid)?;
        Some(Self::Subordinate {
            uids: range(&fs::read_to_string("/etc/subuid").ok()?, &name, uid)?,
            gids: range(&fs::read_to_string("/etc/subgid").ok()?, &name, uid)?,
            newuidmap: tool("newuidmap")?,
            newgidmap: tool("newgidmap")?,
        })
    }

    pub(super) fn next(&self, number: u64) -> IdMap {
        let pick = |(start, count): (u32, u32)| start + u32::try_from(number % u64::from(count)).unwrap_or(0);
        match self {
            Self::Unused { base } => IdMap::Unused { id: pick((*base, PER_SERVER_OF_SANDBOXES)) },
            Self::Subordinate { uids, gids, newuidmap, newgidmap } => IdMap::Subordinate {
                uid: pick(*uids),
                gid: pick(*gids),
                newuidmap: newuidmap.clone(),
                newgidmap: newgidmap.clone(),
            },
            Self::Own { uid, gid } => IdMap::Own { uid: *uid, gid: *gid },
        }
    }

    /// For a persistent workspace: the same each time. Files written by the host must belong to it too, which
    /// an ordinary user can achieve only with their own identity.
    pub(super) fn lasting(&self, identity: u32) -> IdMap {
        match self {
            Self::Unused { .. } => IdMap::Unused { id: LASTING_BASE + (identity & LASTING_MASK) },
            Self::Subordinate { .. } | Self::Own { .. } => {
                let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
                IdMap::Own { uid: uid.as_raw(), gid: gid.as_raw() }
            }
        }
    }

    /// The identities of a zygote process: its own, and those of its sandboxes. For persistent workspaces an
    /// ordinary user has only their own id.
    pub(super) fn of_zygote(&self, lasts: bool) -> ZygoteIds {
        match self {
            Self::Unused { base } => {
                let own = base + PER_SERVER_OF_SANDBOXES;
                let ranges = vec![
                    (ZYGOTE_ID, own, own, 1),
                    (ZYGOTE_ID + 1, *base, *base, PER_SERVER_OF_SANDBOXES),
                    (LASTING_BASE, LASTING_BASE, LASTING_BASE, LASTING_MASK + 1),
                ];
                ZygoteIds { ranges, tools: None }
            }
            Self::Subordinate { uids, gids, newuidmap, newgidmap } if !lasts => {
                let others = uids.1.min(gids.1) - 1;
                let ranges = vec![
                    (ZYGOTE_ID, uids.0 + others, gids.0 + others, 1),
                    (ZYGOTE_ID + 1, uids.0, gids.0, others),
                ];
                ZygoteIds { ranges, tools: Some((newuidmap.clone(), newgidmap.clone())) }
            }
            Self::Subordinate { .. } | Self::Own { .. } => {
                let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
                ZygoteIds { ranges: vec![(ZYGOTE_ID, uid.as_raw(), gid.as_raw(), 1)], tools: None }
            }
        }
    }

    /// Whether the server is root and sandboxes have unused ids.
    pub(super) fn are_unused(&self) -> bool {
        matches!(self, Self::Unused { .. })
    }

    pub(super) fn are_own(&self) -> bool {
        matches!(self, Self::Own { .. })
    }
}

/// The first id of a server, by its process number. All ranges end before [`LASTING_BASE`].
fn base_of(server: u32) -> u32 {
    UNUSED_BASE + (server % SERVERS_MAX) * PER_SERVER
}

/// That identity as seen inside a zygote process with these ids; `None` if it is not one of the zygote's.
pub(super) fn within_zygote(ids: &ZygoteIds, outside: IdMap) -> Option<IdMap> {
    let (uid, gid) = outside.numbers();
    let id = ids.ranges.iter().find_map(|(first, first_uid, first_gid, count)| {
        let offset = uid.checked_sub(*first_uid).filter(|offset| offset < count)?;
        (gid.checked_sub(*first_gid) == Some(offset)).then_some(first + offset)
    })?;
    Some(IdMap::OfZygote { id, outside: Box::new(outside) })
}

fn user_name(uid: u32) -> Option<String> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&uid.to_string()))?;
    line.split(':').next().map(str::to_owned)
}

/// A range `name:start:count` of /etc/subuid; see subuid(5).
fn range(table: &str, name: &str, uid: u32) -> Option<(u32, u32)> {
    table.lines().find_map(|line| {
        let mut parts = line.split(':');
        let owner = parts.next()?;
        let start = parts.next()?.trim().parse::<u32>().ok()?;
        let count = parts.next()?.trim().parse::<u32>().ok()?;
        (count > 0 && (owner == name || owner == uid.to_string())).then_some((start, count))
    })
}

fn tool(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin", "/usr/local/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_name_and_by_number() {
        let table = "root:1:0\nother:7:9\nagent:100000:65536\n1001:300000:65536\n";
        assert_eq!(range(table, "agent", 55), Some((100_000, 65_536)));
        assert_eq!(range(table, "nobody", 1001), Some((300_000, 65_536)));
        assert_eq!(range(table, "root", 0), None);
    }

    #[test]
    fn ids_of_fresh_and_of_persistent_sandboxes_are_disjoint_for_every_server() {
        // The numbers at which the first bits beyond the range are reached, and the largest that a kernel
        // assigns.
        for server in [1, 3_145_727, 3_145_728, 3_145_729, SERVERS_MAX - 1, SERVERS_MAX, u32::MAX] {
            let base = base_of(server);
            assert!(base >= UNUSED_BASE && base + (PER_SERVER - 1) < LASTING_BASE, "{server}: {base:#x}");
        }
        assert!(base_of(2) - base_of(1) == PER_SERVER, "no two servers share an id");
        const { assert!(UNUSED_BASE as u64 + SERVERS_MAX as u64 * PER_SERVER as u64 <= LASTING_BASE as u64) };
        const { assert!(LASTING_BASE.checked_add(LASTING_MASK).is_some()) };
    }

    #[test]
    fn root_never_maps_itself() {
        let identities = Identities::Unused { base: UNUSED_BASE };
        for number in [0, 1, 255, 256, u64::MAX] {
            assert!(matches!(identities.next(number), IdMap::Unused { id } if id >= UNUSED_BASE));
        }
    }
}
