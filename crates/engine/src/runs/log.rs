//! The output of a run, in the order of its arrival: blocks in memory until the store has them.
//!
//! A block holds up to 64 KiB of both streams interleaved, and marks that assign each part to a stream:
//! alternating lengths, standard output first. A program that switches streams at every byte therefore costs
//! one extra byte per switch, and no list of pieces grows with it. The run's output limit bounds the total.

use std::collections::VecDeque;
use std::sync::Arc;

use wire::Stream;

/// The most bytes that one read returns.
pub const LOG_READ_BYTES_MAX: usize = 1 << 20;
/// The largest block.
pub(crate) const BLOCK_BYTES_MAX: usize = 64 << 10;

/// A requested range of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRange {
    /// One stream, or both in the order in which they were written.
    pub stream: Option<Stream>,
    /// The first byte, counted within the chosen stream or streams.
    pub offset: u64,
    /// The number of bytes, at most [`LOG_READ_BYTES_MAX`].
    pub limit: usize,
}

/// A part of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPart {
    /// The bytes. Empty only if there are none at that offset; may be fewer than requested.
    pub bytes: Vec<u8>,
    /// The total size of the chosen stream or streams so far.
    pub total: u64,
    /// Whether these bytes are the last ones at present.
    pub at_end: bool,
    /// Whether the run may still write more.
    pub is_running: bool,
}

/// A position in a log: an offset in standard output, in standard error, and in both together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogPlace {
    pub(crate) both: u64,
    pub(crate) stdout: u64,
    pub(crate) stderr: u64,
}

impl LogPlace {
    pub(crate) fn of(self, stream: Option<Stream>) -> u64 {
        match stream {
            None => self.both,
            Some(Stream::Stdout) => self.stdout,
            Some(Stream::Stderr) => self.stderr,
        }
    }

    fn advance(&mut self, stream: Stream, bytes: u64) {
        let place = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        // Numbers read from a damaged file may have any value.
        *place = place.saturating_add(bytes);
        self.both = self.both.saturating_add(bytes);
    }
}

/// A block of output of both streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogBlock {
    pub(crate) seq: u64,
    /// Where this block begins.
    pub(crate) begin: LogPlace,
    /// Where the next block begins.
    pub(crate) end: LogPlace,
    pub(crate) data: Vec<u8>,
    /// Lengths of all pieces except the last one.
    marks: Vec<u8>,
    last: (Stream, u64),
}

impl LogBlock {
    fn new(seq: u64, begin: LogPlace) -> Self {
        let last = (Stream::Stdout, 0);
        Self { seq, begin, end: begin, data: Vec::new(), marks: Vec::new(), last }
    }

    /// A block as the store holds it.
    pub(crate) fn load(seq: u64, end: LogPlace, data: Vec<u8>, marks: Vec<u8>) -> Self {
        let mut inside = LogPlace::default();
        for (stream, bytes) in Pieces::of(&marks) {
            inside.advance(stream, bytes);
        }
        let begin = LogPlace {
            both: end.both.saturating_sub(inside.both),
            stdout: end.stdout.saturating_sub(inside.stdout),
            stderr: end.stderr.saturating_sub(inside.stderr),
        };
        Self { seq, begin, end, data, marks, last: (Stream::Stdout, 0) }
    }

    /// All lengths, including the last one.
    pub(crate) fn all_marks(&self) -> Vec<u8> {
        let mut marks = self.marks.clone();
        put_number(&mut marks, self.last.1);
        marks
    }

    /// Takes the bytes that fit and returns the rest.
    fn take<'a>(&mut self, stream: Stream, data: &'a [u8]) -> &'a [u8] {
        let (fits, rest) = data.split_at(data.len().min(BLOCK_BYTES_MAX - self.data.len()));
        if self.last.0 != stream {
            put_number(&mut self.marks, self.last.1);
            self.last = (stream, 0);
        }
        self.last.1 += fits.len() as u64;
        self.data.extend_from_slice(fits);
        self.end.advance(stream, fits.len() as u64);
        rest
    }

    /// Appends the chosen bytes from `offset` on, until `bytes` has the length `limit`.
    pub(crate) fn copy(&self, stream: Option<Stream>, offset: u64, limit: usize, bytes: &mut Vec<u8>) {
        let mut skip = usize::try_from(offset.saturating_sub(self.begin.of(stream))).unwrap_or(usize::MAX);
        let mut at = 0_usize;
        let last = Some(self.last).filter(|last| last.1 > 0);
        for (whose, length) in Pieces::of(&self.marks).chain(last) {
            let piece = self.data.get(at..).unwrap_or_default();
            let piece = &piece[..piece.len().min(usize::try_from(length).unwrap_or(usize::MAX))];
            at += piece.len();
            if stream.is_some_and(|stream| stream != whose) {
                continue;
            }
            let wanted = &piece[skip.min(piece.len())..];
            skip -= piece.len() - wanted.len();
            bytes.extend_from_slice(&wanted[..wanted.len().min(limit.saturating_sub(bytes.len()))]);
            if bytes.len() >= limit {
                return;
            }
        }
    }
}

/// Alternating lengths, standard output first.
struct Pieces<'a> {
    marks: &'a [u8],
    stream: Stream,
}

impl<'a> Pieces<'a> {
    fn of(marks: &'a [u8]) -> Self {
        Self { marks, stream: Stream::Stdout }
    }
}

impl Iterator for Pieces<'_> {
    type Item = (Stream, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let mut number = 0_u64;
        for shift in (0..).step_by(7).take(10) {
            let (byte, rest) = self.marks.split_first()?;
            self.marks = rest;
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                break;
            }
        }
        let stream = self.stream;
        self.stream = match stream {
            Stream::Stdout => Stream::Stderr,
            Stream::Stderr => Stream::Stdout,
        };
        Some((stream, number))
    }
}

/// Encodes a number with seven bits per byte, lowest bits first.
fn put_number(marks: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        marks.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    marks.push(number as u8);
}

/// The part of a run's log that the store does not have.
#[derive(Debug, Default)]
pub(crate) struct RunLog {
    blocks: VecDeque<Arc<LogBlock>>,
    end: LogPlace,
    /// The store has everything before this position.
    stored: LogPlace,
    next_seq: u64,
    /// Blocks before this one are on their way to the store and no longer grow.
    sealed_seq: u64,
}

impl RunLog {
    pub(crate) fn end(&self) -> LogPlace {
        self.end
    }

    pub(crate) fn append(&mut self, stream: Stream, mut data: &[u8]) {
        while !data.is_empty() {
            let open = self
                .blocks
                .back_mut()
                .filter(|block| block.seq >= self.sealed_seq && block.data.len() < BLOCK_BYTES_MAX);
            if let Some(block) = open.and_then(Arc::get_mut) {
                data = block.take(stream, data);
                self.end = block.end;
            } else {
                self.blocks.push_back(Arc::new(LogBlock::new(self.next_seq, self.end)));
                self.next_seq += 1;
            }
        }
    }

    /// Adds the bytes of a stream that no event delivered.
    pub(crate) fn complete(&mut self, stream: Stream, whole: &[u8]) {
        let told = usize::try_from(self.end.of(Some(stream))).unwrap_or(usize::MAX);
        self.append(stream, whole.get(told..).unwrap_or_default());
    }

    /// Returns the blocks that the store does not have. They no longer grow.
    pub(crate) fn seal(&mut self) -> Vec<Arc<LogBlock>> {
        self.sealed_seq = self.next_seq;
        self.blocks.iter().cloned().collect()
    }

    /// The number of bytes that the store does not have.
    pub(crate) fn unstored_bytes(&self) -> u64 {
        self.end.both - self.stored.both
    }

    /// Drops these blocks, which the store now has.
    pub(crate) fn forget(&mut self, stored: &[Arc<LogBlock>]) {
        let Some(last) = stored.last() else { return };
        self.blocks.retain(|block| block.seq > last.seq);
        if last.end.both > self.stored.both {
            self.stored = last.end;
        }
    }

    /// Reads from memory. Returns `None` when the range begins in the part that the store has.
    pub(crate) fn read(&self, range: LogRange) -> Option<Vec<u8>> {
        if range.offset < self.stored.of(range.stream) {
            return None;
        }
        let mut bytes = Vec::new();
        let limit = range.limit.min(LOG_READ_BYTES_MAX);
        for block in self.blocks.iter().filter(|block| block.end.of(range.stream) > range.offset) {
            if bytes.len() >= limit {
                break;
            }
            block.copy(range.stream, range.offset, limit, &mut bytes);
        }
        Some(bytes)
    }
}

/// The answer for a range of which these bytes were found.
pub(crate) fn part(range: LogRange, bytes: Vec<u8>, total: u64, is_running: bool) -> LogPart {
    let at_end = range.offset.saturating_add(bytes.len() as u64) >= total;
    LogPart { bytes, total, at_end, is_running }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use Stream::{Stderr, Stdout};

    fn range(stream: Option<Stream>, offset: u64, limit: usize) -> LogRange {
        LogRange { stream, offset, limit }
    }

    fn reloaded(block: &LogBlock) -> LogBlock {
        LogBlock::load(block.seq, block.end, block.data.clone(), block.all_marks())
    }

    #[test]
    fn streams_are_read_together_and_apart() {
        let mut log = RunLog::default();
        for (stream, data) in [(Stderr, "e1"), (Stdout, "o1"), (Stdout, "o2"), (Stderr, "é2")] {
            log.append(stream, data.as_bytes());
        }
        let read = |stream, offset, limit| log.read(range(stream, offset, limit)).unwrap();
        assert_eq!(read(None, 0, 100), "e1o1o2é2".as_bytes());
        assert_eq!(read(None, 1, 3), b"1o1");
        assert_eq!(read(Some(Stdout), 1, 2), b"1o");
        assert_eq!(read(Some(Stderr), 3, 9), [0xa9, b'2']);
        assert_eq!(read(Some(Stderr), 99, 9), b"");
    }

    #[test]
    fn blocks_come_back_from_the_store_as_they_were() {
        let mut log = RunLog::default();
        for number in 0..70_000_u32 {
            let stream = if number % 3 == 0 { Stderr } else { Stdout };
            log.append(stream, &number.to_le_bytes()[..1 + (number % 2) as usize]);
        }
        let blocks = log.seal();
        assert!(blocks.len() > 1 && blocks.iter().all(|block| block.data.len() <= BLOCK_BYTES_MAX));
        for block in &blocks {
            let again = reloaded(block);
            assert_eq!((again.begin, again.end), (block.begin, block.end));
            for stream in [None, Some(Stdout), Some(Stderr)] {
                let (mut first, mut second) = (Vec::new(), Vec::new());
                block.copy(stream, 0, usize::MAX, &mut first);
                again.copy(stream, 0, usize::MAX, &mut second);
                assert_eq!(first, second);
                assert_eq!(first.len() as u64, block.end.of(stream) - block.begin.of(stream));
            }
        }
    }

    #[test]
    fn what_is_on_its_way_to_the_store_grows_no_more() {
        let mut log = RunLog::default();
        log.append(Stdout, b"ab");
        let sealed = log.seal();
        log.append(Stdout, b"cd");
        assert_eq!(sealed[0].data, b"ab");
        log.forget(&sealed);
        assert_eq!(log.read(range(None, 0, 9)), None);
        assert_eq!(log.read(range(None, 3, 9)).unwrap(), b"d");
        assert_eq!(log.unstored_bytes(), 2);
    }

    #[test]
    fn hostile_marks_read_as_something() {
        let block = LogBlock::load(0, LogPlace::default(), b"abc".to_vec(), std::vec![0xff; 30]);
        let mut bytes = Vec::new();
        block.copy(None, 0, 10, &mut bytes);
        assert!(bytes.len() <= 3);
    }

    /// One operation on a log.
    #[derive(Debug, Clone)]
    enum Deed {
        Append(Stream, Vec<u8>),
        Store,
    }

    fn deeds() -> impl Strategy<Value = Vec<Deed>> {
        let stream = || prop_oneof![Just(Stdout), Just(Stderr)];
        let small = (stream(), vec(any::<u8>(), 0..9)).prop_map(|(stream, data)| Deed::Append(stream, data));
        let large = (stream(), any::<u8>(), 0..2 * BLOCK_BYTES_MAX)
            .prop_map(|(stream, byte, count)| Deed::Append(stream, std::vec![byte; count]));
        vec(prop_oneof![8 => small, 1 => large, 1 => Just(Deed::Store)], 0..40)
    }

    proptest! {
        #![proptest_config(harness::properties())]

        /// Compares the log with a plain list of bytes and their streams.
        #[test]
        fn a_range_is_what_was_written_there(
            deeds in deeds(),
            stream in prop_oneof![Just(None), Just(Some(Stdout)), Just(Some(Stderr))],
            place in 0.0..1.1_f64,
            limit in 0..3 * BLOCK_BYTES_MAX,
        ) {
            let (mut log, mut written, mut stored) = (RunLog::default(), Vec::new(), 0);
            for deed in deeds {
                match deed {
                    Deed::Append(stream, data) => {
                        log.append(stream, &data);
                        written.extend(data.into_iter().map(|byte| (stream, byte)));
                    }
                    Deed::Store => {
                        let sealed = log.seal();
                        log.forget(&sealed);
                        stored = written.len();
                    }
                }
            }
            let chosen = |all: &[(Stream, u8)]| -> Vec<u8> {
                let ours = all.iter().filter(|(whose, _)| stream.is_none_or(|stream| stream == *whose));
                ours.map(|(_, byte)| *byte).collect()
            };
            let (all, before) = (chosen(&written), chosen(&written[..stored]).len());
            let offset = (all.len() as f64 * place) as usize;
            let wanted = all.get(offset..).unwrap_or_default();
            let wanted = &wanted[..wanted.len().min(limit)];
            let read = log.read(range(stream, offset as u64, limit));
            prop_assert_eq!(log.end().of(stream), all.len() as u64);
            prop_assert_eq!(log.unstored_bytes(), (written.len() - stored) as u64);
            prop_assert_eq!(read.as_deref(), (offset >= before).then_some(wanted));
            let part = part(range(stream, offset as u64, limit), wanted.to_vec(), all.len() as u64, false);
            prop_assert_eq!(part.at_end, offset + wanted.len() >= all.len());
        }
    }
}
