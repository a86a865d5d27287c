//! Bytes of a hostile peer through the frame buffer: random, mutated and cut, in both directions.
//!
//! [`checks::stream`] holds for every stream; the fuzz targets call it too. The tests here also require that
//! the messages before the first damaged byte come out whole.

use std::fmt::Debug;

use harness::{Chance, is_quick};

use crate::{
    Exit, FRAME_BYTES_MAX, FailureKind, FileEntry, FileKind, Fork, FrameBuffer, FromGuest, ListenAt,
    OpenProcess, Stream, ToGuest, WindowSize, WireError, checks,
};

const HEADER_BYTES: usize = 4;

fn streams() -> usize {
    if is_quick() { 20_000 } else { 200_000 }
}

fn text(chance: &mut Chance, most: usize) -> String {
    String::from_utf8_lossy(&chance.bytes(most)).into_owned()
}

fn number(chance: &mut Chance) -> u32 {
    u32::from_le_bytes(chance.any().to_le_bytes()[..4].try_into().unwrap())
}

fn size(chance: &mut Chance) -> WindowSize {
    let number = number(chance);
    WindowSize { rows: number as u16, columns: (number >> 16) as u16 }
}

fn to_guest(chance: &mut Chance) -> ToGuest {
    let (process, request) = (number(chance), number(chance));
    match chance.below(21) {
        0 => ToGuest::Open(OpenProcess {
            process,
            after: number(chance),
            argv: (0..chance.below(4)).map(|_| text(chance, 20)).collect(),
            env: (0..chance.below(4)).map(|_| (text(chance, 8), text(chance, 8))).collect(),
            cwd: text(chance, 10),
            has_channel: chance.below(2) == 0,
            fork: [Fork::Never, Fork::Once, Fork::Again][chance.below(3)],
            terminal: (chance.below(2) == 0).then(|| size(chance)),
        }),
        1 => ToGuest::Control { process, after: number(chance), data: chance.bytes(200) },
        2 => ToGuest::Stdin { process, after: number(chance), data: chance.bytes(200) },
        3 => ToGuest::StdinEnd { process },
        4 => ToGuest::Signal { process, signal: number(chance).cast_signed() },
        5 => ToGuest::PutFile {
            request,
            path: text(chance, 30),
            append: chance.below(2) == 0,
            data: chance.bytes(100),
        },
        6 => {
            ToGuest::ReadFile { request, path: text(chance, 30), offset: chance.any(), bytes: number(chance) }
        }
        7 => ToGuest::ListFiles { request, entries_max: number(chance) },
        8 => ToGuest::Hears { request, process },
        9 => ToGuest::AwaitIdle { request, process },
        10 => ToGuest::Listen {
            request,
            listener: number(chance),
            at: if chance.below(2) == 0 {
                ListenAt::Socket(text(chance, 30))
            } else {
                ListenAt::Loopback(u16::from_le_bytes([chance.any() as u8, chance.any() as u8]))
            },
        },
        11 => ToGuest::EndLinks { request },
        12 => ToGuest::Link { link: number(chance), data: chance.bytes(200) },
        13 => ToGuest::LinkTaken { link: number(chance), bytes: number(chance) },
        14 => ToGuest::LinkEnd { link: number(chance) },
        15 => ToGuest::LinkClosed { link: number(chance) },
        16 => ToGuest::OpenInput { request, process, path: text(chance, 30) },
        17 => ToGuest::CloseInput { process },
        18 => ToGuest::AwaitRead { request, process },
        19 => ToGuest::Resize { process, size: size(chance) },
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
    match chance.below(15) {
        0 => FromGuest::Hello { version: number(chance) },
        1 => FromGuest::Output {
            process,
            stream: [Stream::Stdout, Stream::Stderr][chance.below(2)],
            data: chance.bytes(200),
        },
        2 => FromGuest::Control { process, data: chance.bytes(200) },
        3 => FromGuest::StdinTaken { process, bytes: number(chance) },
        4 => FromGuest::Exited { process, exit: Exit::Code(number(chance).cast_signed()) },
        5 => FromGuest::FileData { request, data: chance.bytes(200) },
        6 => FromGuest::Files { request, entries: (0..chance.below(5)).map(|_| entry(chance)).collect() },
        7 => FromGuest::Done { request },
        8 => FromGuest::Listening { request, listener: number(chance) },
        9 => FromGuest::LinkOpened { link: number(chance), listener: number(chance) },
        10 => FromGuest::Link { link: number(chance), data: chance.bytes(200) },
        11 => FromGuest::LinkTaken { link: number(chance), bytes: number(chance) },
        12 => FromGuest::LinkEnd { link: number(chance) },
        13 => FromGuest::LinkClosed { link: number(chance) },
        _ => FromGuest::Failed { request, kind: FailureKind::File, errno: number(chance).cast_signed() },
    }
}

/// Damages a stream in one of the ways that a peer might. Returns the position of the first damaged byte.
fn damage(chance: &mut Chance, stream: &mut Vec<u8>) -> usize {
    let place = chance.below(stream.len());
    match chance.below(6) {
        0 => stream[place] ^= 1 << chance.below(8),
        1 => stream.truncate(place),
        2 => {
            let extra = chance.bytes(16);
            stream.splice(place..place, extra);
        }
        3 => {
            let end = (place + 1 + chance.below(16)).min(stream.len());
            stream.drain(place..end);
        }
        4 => {
            // A false length.
            let lie = [0_u32, 1, 0xffff, FRAME_BYTES_MAX as u32, FRAME_BYTES_MAX as u32 + 1, u32::MAX]
                [chance.below(6)];
            stream.splice(place..(place + 4).min(stream.len()), lie.to_le_bytes());
        }
        _ => {
            let noise = chance.bytes(64);
            stream.truncate(place);
            stream.extend(noise);
        }
    }
    place
}

fn survives<M>(seed: u64, make: fn(&mut Chance) -> M)
where
    M: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug,
{
    let mut chance = Chance::new(seed);
    for round in 0..streams() / 2 {
        let sent: Vec<M> = (0..=chance.below(4)).map(|_| make(&mut chance)).collect();
        let frames: Vec<Vec<u8>> = sent.iter().map(|message| crate::encode(message).unwrap()).collect();
        let mut stream = frames.concat();
        let whole_until = if round % 8 == 0 { stream.len() } else { damage(&mut chance, &mut stream) };
        let ends = frames.iter().scan(0, |sum, frame| {
            *sum += frame.len();
            Some(*sum)
        });
        let whole = ends.take_while(|end| *end <= whole_until).count();
        let (got, error) = checks::stream::<M>(&stream, 1 + chance.below(48));
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
        let mut noise = chance.bytes(300);
        if chance.below(2) == 0 && noise.len() > HEADER_BYTES {
            // A correct length in front, so that the noise reaches the decoder.
            let length = u32::try_from(noise.len() - HEADER_BYTES).unwrap();
            noise[..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
        }
        checks::stream::<FromGuest>(&noise, 1 + chance.below(48));
        checks::stream::<ToGuest>(&noise, 1 + chance.below(48));
    }
}

#[test]
fn a_frame_that_is_announced_too_long_is_refused_at_its_header() {
    for announced in [FRAME_BYTES_MAX as u32 + 1, 1 << 24, u32::MAX] {
        let mut buffer = FrameBuffer::default();
        buffer.extend(&announced.to_le_bytes());
        assert!(matches!(buffer.next::<FromGuest>(), Err(WireError::TooLong { .. })), "{announced}");
    }
}
