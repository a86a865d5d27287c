//! The ids that the server's user namespace maps, from `/proc/self/uid_map` and `gid_map`; see user_namespaces(7).
//!
//! On a host every id is mapped. Inside a container with a user namespace only some are, and an id map that names
//! another one is refused by the kernel with EPERM.

use std::fs;

/// Ids from this one on are not given: 65534 is `nobody`, and 65535 means "no id" to 16-bit calls.
const OVERFLOW_FIRST: u32 = 65_534;
const OVERFLOW_LAST: u32 = 65_535;
/// A container's own accounts are below this number.
const ACCOUNTS_END: u32 = 2000;
/// Fewer ids than this are not divided among sandboxes.
const DIVIDED_MIN: u32 = 1024;

/// Consecutive ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Span {
    fn end(self) -> u64 {
        u64::from(self.first) + u64::from(self.count)
    }

    /// One of the ids, always the same for the same number.
    pub(super) fn pick(self, number: u32) -> u32 {
        self.first + number % self.count.max(1)
    }

    fn meet(self, other: Self) -> Option<Self> {
        let first = self.first.max(other.first);
        let count = u32::try_from(self.end().min(other.end()).checked_sub(u64::from(first))?).ok()?;
        (count > 0).then_some(Self { first, count })
    }
}

/// Ids for the sandboxes of one server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) server: Span,
    pub(super) lasting: Span,
}

/// The ids that are mapped both as users and as groups.
#[derive(Debug)]
pub(super) struct IdSpace {
    spans: Vec<Span>,
    /// The number of this namespace's root in the namespace around it.
    root_outside: Option<u32>,
}

impl IdSpace {
    /// The ids of this process's own user namespace. If the files cannot be read, all ids.
    pub(super) fn own() -> Self {
        const ALL: &str = "0 0 4294967295";
        let read = |name| fs::read_to_string(name).unwrap_or_else(|_| ALL.to_owned());
        Self::parse(&read("/proc/self/uid_map"), &read("/proc/self/gid_map"))
    }

    pub(super) fn parse(users: &str, groups: &str) -> Self {
        let (users, groups) = (lines(users), lines(groups));
        let mut spans: Vec<Span> = users
            .iter()
            .flat_map(|(user, _)| groups.iter().filter_map(|(group, _)| user.meet(*group)))
            .collect();
        spans.sort_unstable_by_key(|span| span.first);
        let root_outside = users.iter().find(|(span, _)| span.first == 0).map(|(_, outside)| *outside);
        Self { spans, root_outside }
    }

    /// Whether all these ids are mapped.
    pub(super) fn has(&self, wanted: Span) -> bool {
        let mut from = u64::from(wanted.first);
        for span in &self.spans {
            if u64::from(span.first) <= from && from < span.end() {
                from = span.end();
            }
        }
        from >= wanted.end()
    }

    /// Whether root here may be root of the machine.
    pub(super) fn root_is_real(&self) -> bool {
        self.root_outside.is_none_or(|outside| outside == 0)
    }

    /// Takes ids from the upper half of the largest mapped range: a block of `block` ids for the server with that
    /// number, and a quarter of the range for persistent sandboxes. Servers of one container whose numbers are equal
    /// modulo the number of blocks share a block.
    pub(super) fn draw(&self, server: u32, block: u32) -> Option<Drawn> {
        let usable = self.spans.iter().flat_map(|span| without_reserved(*span));
        let largest =
            usable.max_by_key(|span| span.count).filter(|span| span.count >= DIVIDED_MIN.max(4 * block))?;
        let (quarter, end) = (largest.count / 4, largest.first + (largest.count - 1));
        let lasting = Span { first: end - (quarter - 1), count: quarter };
        let blocks = Span { first: lasting.first - quarter, count: quarter / block };
        let first = blocks.first + (server % blocks.count.max(1)) * block;
        Some(Drawn { server: Span { first, count: block }, lasting })
    }
}

/// The parts of a range that can be given to sandboxes.
fn without_reserved(span: Span) -> impl Iterator<Item = Span> {
    let below = Span { first: ACCOUNTS_END, count: OVERFLOW_FIRST - ACCOUNTS_END };
    let above = Span { first: OVERFLOW_LAST + 1, count: u32::MAX - OVERFLOW_LAST - 1 };
    [below, above].into_iter().filter_map(move |part| part.meet(span))
}

/// Ids inside with the first number outside, line by line.
fn lines(map: &str) -> Vec<(Span, u32)> {
    map.lines()
        .filter_map(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u32>);
            let (first, outside, count) =
                (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
            (count > 0).then_some((Span { first, count }, outside))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_maps_every_id_and_a_container_some() {
        let host = IdSpace::parse("         0          0 4294967295\n", "0 0 4294967295\n");
        assert!(host.has(Span { first: 0x7000_0000, count: 0x1000_0000 }) && host.root_is_real());
        let container = IdSpace::parse("0 100000 65536\n", "0 100000 65536\n");
        assert!(container.has(Span { first: 60_000, count: 5536 }));
        assert!(!container.has(Span { first: 60_000, count: 5537 }) && !container.root_is_real());
        let two = IdSpace::parse("0 1000 1\n1 100000 65535", "0 1000 1\n1 100000 65535");
        assert!(two.has(Span { first: 0, count: 65_536 }), "adjacent lines are one range");
        assert!(!IdSpace::parse("0 100000 65536", "0 100000 10").has(Span { first: 0, count: 11 }));
    }

    #[test]
    fn drawn_ids_are_mapped_disjoint_and_no_account() {
        let space = IdSpace::parse("0 100000 65536", "0 100000 65536");
        for server in [0, 1, 62, 63, u32::MAX] {
            let Drawn { server, lasting } = space.draw(server, 256).unwrap();
            assert!(space.has(server) && space.has(lasting));
            assert!(server.end() <= u64::from(lasting.first) && lasting.end() <= u64::from(OVERFLOW_FIRST));
            assert!(server.first >= ACCOUNTS_END);
        }
        assert_ne!(space.draw(1, 256).unwrap().server, space.draw(2, 256).unwrap().server);
        assert_eq!(IdSpace::parse("0 1000 1", "0 1000 1").draw(1, 256), None);
        assert_eq!(IdSpace::parse("", "").draw(1, 256), None);
    }

    #[test]
    fn hostile_maps_do_not_overflow() {
        for map in ["4294967295 0 4294967295", "0 0 0", "x y z", "1 2", "4294967290 0 6"] {
            let space = IdSpace::parse(map, map);
            space.draw(u32::MAX, 256);
            space.has(Span { first: u32::MAX, count: u32::MAX });
        }
    }
}
