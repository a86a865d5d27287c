//! Bytes of a hostile peer through the frame buffer: random, mutated and cut, in both directions.
//!
//! Must hold for every stream: no panic, memory bounded by one frame plus one read, and messages before the
//! first damage come out whole.

use functional::{Chance, is_quick};
use std::fmt::Debug;
use wire::{
    Exit, FRAME_BYTES_MAX, FailureKind, FileEntry, FileKind, FrameBuffer, FromGuest, OpenProcess, Stream,
    ToGuest, WireError,
};

const HEADER_BYTES: usize = 4;

fn streams() -> usize {
    if is_quick() { 20_000 } else { 200_000 }
}

fn bytes(chance: &mut Chance, most: usize) -> Vec<u8> {
    let length = chance.below(most + 1);
    (0..length).map(|_| chance.any().to_le_bytes()[3]).collect()
}

fn text(chance: &mut Chance, most: usize) -> String {
    String::from_utf8_lossy(&bytes(chance, most)).into_owned()
}

fn number(chance: &mut Chance) -> u32 {
    u32::from_le_bytes(chance.any().to_le_bytes()[..4].try_into().unwrap())
}

fn to_guest(chance: &mut Chance) -> ToGuest {
    let (process, request) = (number(chance), number(chance));
    match chance.below(10) {
        0 => ToGuest::Open(OpenProcess {
            process,
            after: number(chance),
            argv: (0..chance.below(4)).map(|_| text(chance, 20)).collect(),
            env: (0..chance.below(4)).map(|_| (text(chance, 8), text(chance, 8))).collect(),
            cwd: text(chance, 10),
            has_channel: chance.below(2) == 0,
            fork: [wire::Fork::Never, wire::Fork::Once, wire::Fork::Again][chance.below(3)],
        }),
        1 => ToGuest::Control { process, after: number(chance), data: bytes(chance, 200) },
        2 => ToGuest::Stdin { process, after: number(chance), data: bytes(chance, 200) },
        3 => ToGuest::StdinEnd { process },
        4 => ToGuest::Signal { process, signal: number(chance).cast_signed() },
        5 => ToGuest::PutFile {
            request,
            path: text(chance, 30),
            append: chance.below(2) == 0,
            data: bytes(chance, 100),
        },
        6 => {
            ToGuest::ReadFile { request, path: text(chance, 30), offset: chance.any(), bytes: number(chance) }
        }
        7 => ToGuest::ListFiles { request, entries_max: number(chance) },
        8 => ToGuest::Hears { request, process },
        _ => ToGuest::Shutdown,
    }
}

fn from_guest(chance: &mut Chance) -> FromGuest {
    let (process, request) = (number(chance), number(chance));
    let entry = |chance: &mut Chance| FileEntry {
        path: text(chance, 20),
        kind: [FileKind::Regular, FileKind::Directory, FileKind::Symlink, FileKind::Other][chance.below(4)],
        size_bytes: chance.any(),
        modified_ns: chance.any().cast_signed(),
    };
    match chance.below(9) {
        0 => FromGuest::Hello { version: number(chance) },
        1 => FromGuest::Output {
            process,
            stream: [Stream::Stdout, Stream::Stderr][chance.below(2)],
            data: bytes(chance, 200),
        },
        2 => FromGuest::Control { process, data: bytes(chance, 200) },
        3 => FromGuest::StdinTaken { process, bytes: number(chance) },
        4 => FromGuest::Exited { process, exit: Exit::Code(number(chance).cast_signed()) },
        5 => FromGuest::FileData { request, data: bytes(chance, 200) },
        6 => FromGuest::Files { request, entries: (0..chance.below(5)).map(|_| entry(chance)).collect() },
        7 => FromGuest::Done { request },
        _ => FromGuest::Failed { request, kind: FailureKind::File, errno: number(chance).cast_signed() },
    }
}

/// Damages a stream in one of the ways that a peer might; says from which byte on it is damaged.
fn damage(chance: &mut Chance, stream: &mut Vec<u8>) -> usize {
    let place = chance.below(stream.len());
    match chance.below(6) {
        0 => stream[place] ^= 1 << chance.below(8),
        1 => stream.truncate(place),
        2 => {
            let extra = bytes(chance, 16);
            stream.splice(place..place, extra);
        }
        3 => {
            let end = (place + 1 + chance.below(16)).min(stream.len());
            stream.drain(place..end);
        }
        4 => {
            // A length that lies.
            let lie = [0_u32, 1, 0xffff, FRAME_BYTES_MAX as u32, FRAME_BYTES_MAX as u32 + 1, u32::MAX]
                [chance.below(6)];
            stream.splice(place..(place + 4).min(stream.len()), lie.to_le_bytes());
        }
        _ => {
            let noise = bytes(chance, 64);
            stream.truncate(place);
            stream.extend(noise);
        }
    }
    place
}

/// Feeds a stream in small pieces as the callers do: until nothing more comes, then the next piece.
fn feed<M: serde::de::DeserializeOwned>(chance: &mut Chance, stream: &[u8]) -> (Vec<M>, Option<WireError>) {
    let mut buffer = FrameBuffer::default();
    let mut messages = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((1 + chance.below(48)).min(rest.len()));
        buffer.extend(piece);
        rest = after;
        loop {
            match buffer.next::<M>() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

fn survives<M>(seed: u64, make: fn(&mut Chance) -> M)
where
    M: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug,
{
    let mut chance = Chance::new(seed);
    for round in 0..streams() / 2 {
        let sent: Vec<M> = (0..=chance.below(4)).map(|_| make(&mut chance)).collect();
        let frames: Vec<Vec<u8>> = sent.iter().map(|message| wire::encode(message).unwrap()).collect();
        let mut stream = frames.concat();
        let whole_until = if round % 8 == 0 { stream.len() } else { damage(&mut chance, &mut stream) };
        let ends = frames.iter().scan(0, |sum, frame| {
            *sum += frame.len();
            Some(*sum)
        });
        let whole = ends.take_while(|end| *end <= whole_until).count();
        let (got, error) = feed::<M>(&mut chance, &stream);
        assert!(got.len() >= whole, "round {round}: {} of {whole} whole messages, {error:?}", got.len());
        assert_eq!(got[..whole], sent[..whole], "round {round}");
        if round % 8 == 0 {
            assert_eq!((got.len(), error), (sent.len(), None), "round {round}");
        }
    }
}

#[test]
fn damaged_streams_to_the_guest_never_panic_and_keep_what_came_before() {
    survives(0x5eed_0001, to_guest);
}

#[test]
fn damaged_streams_from_the_guest_never_panic_and_keep_what_came_before() {
    survives(0x5eed_0002, from_guest);
}

#[test]
fn noise_never_panics() {
    let mut chance = Chance::new(0x5eed_0003);
    for _ in 0..streams() / 4 {
        let mut noise = bytes(&mut chance, 300);
        if chance.below(2) == 0 && noise.len() > HEADER_BYTES {
            // A true length in front, so that the noise reaches the decoder.
            let length = u32::try_from(noise.len() - HEADER_BYTES).unwrap();
            noise[..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
        }
        feed::<FromGuest>(&mut chance, &noise);
        feed::<ToGuest>(&mut chance, &noise);
    }
}

/// A count inside a message may claim billions of elements: decoding must not believe it before it has them.
#[test]
fn a_count_that_lies_takes_no_memory() {
    let before = peak_bytes();
    // Variant, number, then a length of nearly 2^64 (or 2^32) as a varint.
    for claim in
        [&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]]
    {
        for variant in 0..12_u8 {
            for fields in 0..4 {
                let mut payload = vec![variant];
                payload.extend(vec![0; fields]);
                payload.extend(claim);
                payload.extend([0; 64]);
                assert!(wire::decode::<FromGuest>(&payload).is_err() || variant > 0);
                wire::decode::<ToGuest>(&payload).ok();
            }
        }
    }
    let grown = peak_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "grew by {grown} bytes");
}

/// Never more than one frame and one read is held, however long the peer talks.
#[test]
fn a_buffer_holds_one_frame_and_one_read() {
    let frame = wire::encode(&FromGuest::FileData { request: 1, data: vec![7; 200 * 1024] }).unwrap();
    let mut buffer = FrameBuffer::default();
    buffer.extend(&frame);
    assert!(matches!(buffer.next::<FromGuest>(), Ok(Some(FromGuest::FileData { .. }))));
    let before = peak_bytes();
    let rounds = if is_quick() { 100 } else { 400 };
    for _ in 0..rounds {
        for piece in frame.chunks(4096) {
            buffer.extend(piece);
            while buffer.next::<FromGuest>().unwrap().is_some() {}
        }
    }
    let grown = peak_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{rounds} frames of 200 kB made the process grow by {grown} bytes");
}

#[test]
fn a_frame_that_is_announced_too_long_is_refused_at_its_header() {
    for announced in [FRAME_BYTES_MAX as u32 + 1, 1 << 24, u32::MAX] {
        let mut buffer = FrameBuffer::default();
        buffer.extend(&announced.to_le_bytes());
        assert!(matches!(buffer.next::<FromGuest>(), Err(WireError::TooLong { .. })), "{announced}");
    }
}

/// The most memory this process ever had.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
