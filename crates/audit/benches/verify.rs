//! How long the verification of a million entries takes: `cargo bench -p audit --bench verify -- --json FILE`.
//! Prints one sample per round, in milliseconds.

use std::time::Instant;

use audit::{ChainState, ChainVerifier, Checkpoint, Hash, Head, KeyRing, SigningKey, kind, line};

const ENTRIES: u64 = 1_000_000;
const CHECKPOINT_EVERY: u64 = 256;
const ROUNDS: usize = 5;
const INSTANCE: &str = "20260101T000000Z-00000001";
/// As large as the entry of an allowed `run`.
const DATA: &str = r#"{"principal":"key:0123456789abcdef","label":"ci","tool":"run","arguments":["language","code","timeout_ms"],"digest":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","language":"python","policy":"ci","verdict":"allowed","rule":""}"#;

fn main() {
    #[allow(clippy::expect_used, reason = "a benchmark without a key cannot go on")]
    let key = SigningKey::from_seed(&[1; 32]).expect("a key");
    let mut text = Vec::new();
    let (mut head, mut buffer) = (Hash::beginning(INSTANCE), Vec::new());
    for seq in 1..=ENTRIES {
        buffer.clear();
        let is_checkpoint = seq % CHECKPOINT_EVERY == 0 || seq == ENTRIES;
        let signed = Checkpoint { instance: INSTANCE.to_owned(), seq: seq - 1, hash: head, ms: seq };
        let note =
            is_checkpoint.then(|| serde_json::json!({ "note": signed.sign(&key).to_string() }).to_string());
        let name = if is_checkpoint { kind::CHECKPOINT } else { kind::DECISION };
        let data = note.as_deref().unwrap_or(DATA);
        line(&mut buffer, &Head { seq, ms: seq, instance: INSTANCE, kind: name, prev: &head }, data);
        head = Hash::of_entry(&head, &buffer);
        text.extend_from_slice(&buffer);
        text.push(b'\n');
    }
    let mut samples = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let mut verifier = ChainVerifier::new(INSTANCE, KeyRing::new([key.public().clone()]));
        verifier.segment(1);
        text.split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .for_each(|line| verifier.line(line));
        let report = verifier.finish(ChainState::Running);
        assert!(report.is_intact() && report.entries == ENTRIES, "{report:?}");
        samples.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    println!("{}", serde_json::json!({ "entries": ENTRIES, "bytes": text.len(), "verify_ms": samples }));
}
