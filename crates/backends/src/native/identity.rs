//! Which host identity each sandbox gets: unused ids if the server is root, otherwise subordinate ids or the
//! user's own id.
//!
//! Only ids that the server's user namespace maps can be given. On a host it maps all of them. Inside a container
//! with a user namespace it maps some (often 65,536), and the ids come from their upper half ([`id_space`]).

use std::fs;
use std::path::{Path, PathBuf};

use jail::{IdMap, ZYGOTE_ID, ZygoteIds};

use super::id_space::{Drawn, IdSpace, Span};

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

pub(crate) enum Identities {
    /// Ids of fresh sandboxes and of their zygote process, and those of persistent sandboxes.
    Unused {
        server: Span,
        lasting: Span,
    },
    Subordinate {
        uids: (u32, u32),
        gids: (u32, u32),
        newuidmap: PathBuf,
        newgidmap: PathBuf,
    },
    Own {
        uid: u32,
        gid: u32,
    },
}

impl Identities {
    pub(super) fn detect() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let space = IdSpace::own();
        if uid == 0 {
            let server = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
            return Self::of_root(server, gid, &space);
        }
        Self::subordinate(uid, &space).unwrap_or(Self::Own { uid, gid })
    }

    /// The identities that root can give, by the ids that its user namespace maps.
    fn of_root(server: u32, gid: u32, space: &IdSpace) -> Self {
        let server_span = Span { first: base_of(server), count: PER_SERVER };
        let lasting = Span { first: LASTING_BASE, count: LASTING_MASK + 1 };
        if space.has(server_span) && space.has(lasting) {
            return Self::Unused { server: server_span, lasting };
        }
        match space.draw(server, PER_SERVER) {
            Some(Drawn { server, lasting }) => Self::Unused { server, lasting },
            // The build fails then, and `plan::explain` says why.
            None if space.root_is_real() => Self::Unused { server: server_span, lasting },
            // This root is an ordinary user of the host.
            None => Self::Own { uid: 0, gid },
        }
    }

    fn subordinate(uid: u32, space: &IdSpace) -> Option<Self> {
        let name = user_name(uid)?;
        let uids = range(&fs::read_to_string("/etc/subuid").ok()?, &name, uid)?;
        let gids = range(&fs::read_to_string("/etc/subgid").ok()?, &name, uid)?;
        let is_mapped =
            [uids, gids].iter().all(|(first, count)| space.has(Span { first: *first, count: *count }));
        is_mapped.then_some(())?;
        Some(Self::Subordinate { uids, gids, newuidmap: tool("newuidmap")?, newgidmap: tool("newgidmap")? })
    }

    pub(crate) fn next(&self, number: u64) -> IdMap {
        let pick = |(start, count): (u32, u32)| start + u32::try_from(number % u64::from(count)).unwrap_or(0);
        match self {
            Self::Unused { server, .. } => {
                IdMap::Unused { id: pick((server.first, PER_SERVER_OF_SANDBOXES)) }
            }
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
    pub(crate) fn lasting(&self, identity: u32) -> IdMap {
        match self {
            Self::Unused { lasting, .. } => IdMap::Unused { id: lasting.pick(identity) },
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
            Self::Unused { server, lasting } => {
                let own = server.first + PER_SERVER_OF_SANDBOXES;
                let ranges = vec![
                    (ZYGOTE_ID, own, own, 1),
                    (ZYGOTE_ID + 1, server.first, server.first, PER_SERVER_OF_SANDBOXES),
                    (LASTING_BASE, lasting.first, lasting.first, lasting.count),
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
    pub(crate) fn are_unused(&self) -> bool {
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
        let identities = Identities::of_root(1, 0, &IdSpace::parse("0 0 4294967295", "0 0 4294967295"));
        for number in [0, 1, 255, 256, u64::MAX] {
            assert!(matches!(identities.next(number), IdMap::Unused { id } if id >= UNUSED_BASE));
        }
        assert_eq!(identities.lasting(u32::MAX), IdMap::Unused { id: LASTING_BASE + LASTING_MASK });
    }

    #[test]
    fn root_of_a_container_gives_ids_that_the_container_maps() {
        let space = IdSpace::parse("0 100000 65536", "0 100000 65536");
        for server in [1, 63, 64, 4_000_000] {
            let identities = Identities::of_root(server, 0, &space);
            let maps = [
                identities.next(0),
                identities.next(254),
                identities.lasting(0),
                identities.lasting(u32::MAX),
            ];
            for map in maps {
                assert!(matches!(map, IdMap::Unused { id } if (32_768..65_534).contains(&id)), "{map:?}");
            }
            let zygote = identities.of_zygote(false);
            let inside = within_zygote(&zygote, identities.lasting(77));
            assert!(inside.is_some(), "a zygote process can clone persistent sandboxes");
        }
    }

    #[test]
    fn root_of_a_namespace_with_one_id_is_an_ordinary_user_of_the_host() {
        let identities = Identities::of_root(7, 0, &IdSpace::parse("0 1000 1", "0 1000 1"));
        assert_eq!(identities.next(3), IdMap::Own { uid: 0, gid: 0 });
        // The real root is never mapped into a sandbox, even if nothing else is mapped here.
        let real = Identities::of_root(7, 0, &IdSpace::parse("0 0 1", "0 0 1"));
        assert!(real.are_unused());
    }
}
