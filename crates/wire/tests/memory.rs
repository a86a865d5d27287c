//! Measures the memory that a hostile peer can make a process allocate. The measurement covers the whole
//! process, so this test is a separate program.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use harness::is_quick;
use wire::{FrameBuffer, FromGuest, ToGuest};

/// A count inside a message may claim billions of elements. Decoding must not allocate for elements that have
/// not arrived.
#[test]
fn a_count_that_lies_takes_no_memory() {
    let before = peak_bytes();
    // Variant, number, then a length of nearly 2^64 (or 2^32) as a varint.
    for claim in
        [&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]]
    {
        for variant in 0..24_u8 {
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

/// The buffer never holds more than one frame and one read, however much the peer sends.
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

/// The peak memory of this process.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
