//! Chains that were changed or cut, each in one way.

use serde_json::json;

use crate::*;

const INSTANCE: &str = "20260101T000000Z-00000001";
const OTHER: &str = "20260101T000000Z-00000002";

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32]).unwrap()
}

fn ring(key: &SigningKey) -> KeyRing {
    KeyRing::new([key.public().clone()])
}

/// A chain in memory: lines, in segments.
struct Chain {
    instance: &'static str,
    key: SigningKey,
    lines: Vec<Vec<u8>>,
    head: Hash,
}

impl Chain {
    fn new(instance: &'static str, key: SigningKey) -> Self {
        let mut chain = Self { instance, key, lines: Vec::new(), head: Hash::beginning(instance) };
        chain.add(kind::STARTED, "{}");
        chain
    }

    fn add(&mut self, kind: &str, data: &str) {
        let mut written = Vec::new();
        let seq = self.lines.len() as u64 + 1;
        line(
            &mut written,
            &Head { seq, ms: 1000 + seq, instance: self.instance, kind, prev: &self.head },
            data,
        );
        self.head = Hash::of_entry(&self.head, &written);
        self.lines.push(written);
    }

    fn checkpoint(&mut self) {
        let seq = self.lines.len() as u64;
        let signed = Checkpoint { instance: self.instance.to_owned(), seq, hash: self.head, ms: 1 };
        let note = signed.sign(&self.key).to_string();
        self.add(kind::CHECKPOINT, &json!({ "note": note }).to_string());
    }

    fn decisions(mut self, count: usize) -> Self {
        for number in 0..count {
            self.add(kind::DECISION, &json!({ "tool": "run", "number": number }).to_string());
        }
        self
    }

    /// A chain of a server that ended as it should: 8 entries.
    fn whole() -> Self {
        let mut chain = Self::new(INSTANCE, key(1)).decisions(3);
        chain.checkpoint();
        let mut chain = chain.decisions(1);
        chain.add(kind::STOPPED, "{}");
        chain.checkpoint();
        chain
    }

    fn verify(&self, keys: &KeyRing) -> ChainReport {
        verify(&[(1, &self.lines)], keys)
    }
}

fn verify(segments: &[(u32, &[Vec<u8>])], keys: &KeyRing) -> ChainReport {
    let mut verifier = ChainVerifier::new(INSTANCE, keys.clone());
    for (number, lines) in segments {
        verifier.segment(*number);
        lines.iter().for_each(|line| verifier.line(line));
    }
    verifier.finish(ChainState::Ended)
}

#[test]
fn a_whole_chain_is_intact_and_complete() {
    let report = Chain::whole().verify(&ring(&key(1)));
    assert!(report.is_intact() && report.is_complete(), "{report:?}");
    assert_eq!((report.entries, report.checkpoints, report.last_seq), (8, 2, 8));
}

#[test]
fn a_truncated_chain_is_intact_but_not_complete() {
    let mut chain = Chain::whole();
    chain.lines.truncate(6);
    let report = chain.verify(&ring(&key(1)));
    assert!(report.is_intact(), "{report:?}");
    assert_eq!(report.gaps, [Gap::NotAnchored { entries: 1 }, Gap::NoEnd]);
    // A checkpoint or receipt that was kept elsewhere shows the cut for certain.
    chain.lines.truncate(3);
    let mut verifier = ChainVerifier::new(INSTANCE, ring(&key(1)));
    verifier.watch(4);
    verifier.segment(1);
    chain.lines.iter().for_each(|line| verifier.line(line));
    assert_eq!(verifier.found(4), None);
}

#[test]
fn a_reordered_chain_is_found() {
    let mut chain = Chain::whole();
    chain.lines.swap(2, 3);
    let report = chain.verify(&ring(&key(1)));
    assert!(report.flaws.contains(&Flaw::OutOfOrder { expected: 3, found: 4 }), "{report:?}");
}

#[test]
fn an_edited_entry_is_found() {
    let mut chain = Chain::whole();
    let edited = String::from_utf8(chain.lines[1].clone()).unwrap().replace("run", "rum");
    chain.lines[1] = edited.into_bytes();
    assert_eq!(chain.verify(&ring(&key(1))).flaws, [Flaw::BrokenLink { seq: 3 }]);
}

/// The links alone would not show it: an attacker computes them again. The checkpoint does.
#[test]
fn an_edited_entry_with_new_hashes_after_it_is_found_by_the_next_checkpoint() {
    let original = Chain::whole();
    let mut forged = Chain::new(INSTANCE, key(1)).decisions(2);
    forged.add(kind::DECISION, r#"{"tool":"other"}"#);
    let note =
        Envelope::read(&original.lines[4]).map(|_| String::from_utf8(original.lines[4].clone()).unwrap());
    let data = note.unwrap().split_once(r#""data":"#).unwrap().1.to_owned();
    forged.add(kind::CHECKPOINT, data.strip_suffix('}').unwrap());
    assert_eq!(forged.verify(&ring(&key(1))).flaws, [Flaw::OtherHash { seq: 5 }]);
}

#[test]
fn a_removed_entry_is_found() {
    let mut chain = Chain::whole();
    chain.lines.remove(2);
    assert_eq!(chain.verify(&ring(&key(1))).flaws, [Flaw::OutOfOrder { expected: 3, found: 4 }]);
}

#[test]
fn entries_of_another_chain_are_found() {
    let (mut chain, other) = (Chain::whole(), Chain::new(OTHER, key(1)).decisions(3));
    chain.lines[2] = other.lines[2].clone();
    let report = chain.verify(&ring(&key(1)));
    assert!(report.flaws.contains(&Flaw::Foreign { seq: 3 }), "{report:?}");
    // The same under the name of this chain: the link is broken.
    let mut chain = Chain::whole();
    chain.lines[2] = String::from_utf8(other.lines[2].clone()).unwrap().replace(OTHER, INSTANCE).into_bytes();
    assert!(!chain.verify(&ring(&key(1))).is_intact());
}

#[test]
fn a_removed_segment_is_a_gap_and_the_rest_is_verified() {
    let chain = Chain::whole();
    let report = verify(&[(1, &chain.lines[..2]), (3, &chain.lines[4..])], &ring(&key(1)));
    assert!(report.is_intact() && !report.is_complete(), "{report:?}");
    assert_eq!(report.gaps, [Gap::NoSegments { from: 2, to: 2 }]);
    let report = verify(&[(2, &chain.lines[2..])], &ring(&key(1)));
    assert_eq!(report.gaps, [Gap::NoBeginning { first_seq: 3 }]);
}

#[test]
fn segments_removed_by_retention_are_explained_by_a_signed_statement() {
    let chain = Chain::whole();
    let hash = Envelope::read(&chain.lines[2]).unwrap().prev;
    let removal = Removal { instance: INSTANCE.to_owned(), through_seq: 2, hash, ms: 1 };
    let verify = |removal: &Removal, signer: u8| {
        let mut verifier = ChainVerifier::new(INSTANCE, ring(&key(1)));
        verifier.removal(&removal.sign(&key(signer)).to_string());
        verifier.segment(2);
        chain.lines[2..].iter().for_each(|line| verifier.line(line));
        verifier.finish(ChainState::Ended)
    };
    let report = verify(&removal, 1);
    assert!(report.is_intact() && report.is_complete(), "{report:?}");
    assert_eq!(report.gaps, [Gap::Retired { through_seq: 2 }]);
    assert_eq!(verify(&removal, 2).flaws, [Flaw::FalseRemoval], "signed by another key");
    let other = Removal { through_seq: 1, ..removal };
    assert_eq!(verify(&other, 1).gaps, [Gap::NoBeginning { first_seq: 3 }]);
}

#[test]
fn a_replaced_key_is_found() {
    let forged = {
        let mut chain = Chain::new(INSTANCE, key(2)).decisions(3);
        chain.checkpoint();
        chain
    };
    let report = forged.verify(&ring(&key(1)));
    assert_eq!(report.flaws, [Flaw::UnknownKey { seq: 5, key: key(2).public().id_text() }]);
}

#[test]
fn a_forged_checkpoint_is_found() {
    let mut chain = Chain::whole();
    let text = String::from_utf8(chain.lines[4].clone()).unwrap();
    // The time is signed too.
    chain.lines[4] = text.replace("\\nms 1\\n", "\\nms 2\\n").into_bytes();
    let flaws = chain.verify(&ring(&key(1))).flaws;
    assert_eq!(flaws, [Flaw::BadSignature { seq: 5 }, Flaw::BrokenLink { seq: 6 }]);
}

#[test]
fn a_half_written_last_line_is_no_flaw() {
    let chain = Chain::whole();
    let mut verifier = ChainVerifier::new(INSTANCE, ring(&key(1)));
    verifier.segment(1);
    chain.lines[..5].iter().for_each(|line| verifier.line(line));
    verifier.fragment();
    let report = verifier.finish(ChainState::Ended);
    assert!(report.is_intact(), "{report:?}");
    assert_eq!(report.gaps, [Gap::HalfLine, Gap::NoEnd]);
}

#[test]
fn a_segment_that_ends_within_a_line_is_a_flaw_if_others_follow() {
    let chain = Chain::whole();
    let mut verifier = ChainVerifier::new(INSTANCE, ring(&key(1)));
    verifier.segment(1);
    verifier.line(&chain.lines[0]);
    verifier.fragment();
    verifier.segment(2);
    assert_eq!(verifier.finish(ChainState::Ended).flaws, [Flaw::CutLine { segment: 1 }]);
}

#[test]
fn a_key_trusts_the_successor_that_it_named_and_no_other() {
    let rotate = |signer: u8| {
        let mut chain = Chain::new(INSTANCE, key(1));
        chain.checkpoint();
        let note = Rotation { new: key(3).public().clone(), ms: 1 }.sign(&key(signer));
        chain.add(kind::KEY_ROTATED, &json!({ "note": note.to_string() }).to_string());
        chain.key = key(3);
        chain.add(kind::STOPPED, "{}");
        chain.checkpoint();
        chain.verify(&ring(&key(1)))
    };
    let report = rotate(1);
    assert!(report.is_intact() && report.is_complete(), "{report:?}");
    assert!(rotate(2).flaws.contains(&Flaw::UnknownKey { seq: 3, key: key(2).public().id_text() }));
}

#[test]
fn what_the_server_could_not_write_is_a_gap() {
    let mut chain = Chain::new(INSTANCE, key(1));
    chain.add(kind::LOST, r#"{"entries":7}"#);
    chain.add(kind::STOPPED, "{}");
    chain.checkpoint();
    assert_eq!(chain.verify(&ring(&key(1))).gaps, [Gap::Lost { entries: 7 }]);
}

fn receipt() -> (Chain, Receipt) {
    let claims = json!({ "run_id": "run_1", "outcome": "completed", "number": 1.50 });
    let nonce = Hash([9; 32]);
    let mut chain = Chain::new(INSTANCE, key(1));
    let commitment = Claims::commitment(&claims, &nonce);
    chain.add(kind::RUN, &json!({ "run_id": "run_1", "commitment": commitment }).to_string());
    let entry = String::from_utf8(chain.lines[1].clone()).unwrap();
    let receipt = Receipt::of(&entry, Some((claims, nonce))).unwrap();
    (chain, receipt)
}

#[test]
fn a_receipt_is_verified_with_the_public_key_alone() {
    let (chain, receipt) = receipt();
    let written = receipt.sign(&key(1)).to_string();
    let opened = Receipt::open(&Note::parse(&written).unwrap(), &ring(&key(1))).unwrap();
    assert_eq!(opened, receipt);
    assert_eq!(opened.check_place(&chain.head), Ok(()));
}

#[test]
fn an_edited_receipt_is_found() {
    let (_, receipt) = receipt();
    let written = receipt.sign(&key(1)).to_string().replace("\"completed\"", "\"failed\"");
    let opened = Receipt::open(&Note::parse(&written).unwrap(), &ring(&key(1)));
    assert_eq!(opened, Err(NoteError::BadSignature.into()));
    // Signed again by somebody who has the key: the commitment in the entry shows it.
    let mut forged = receipt;
    forged.claims = Some(json!({ "run_id": "run_1", "outcome": "failed", "number": 1.50 }));
    assert_eq!(Receipt::open(&forged.sign(&key(1)), &ring(&key(1))), Err(ReceiptError::Contradiction));
}

#[test]
fn a_receipt_of_another_chain_is_found() {
    let (_, receipt) = receipt();
    let other = Chain::new(OTHER, key(1)).decisions(1);
    assert_eq!(receipt.check_place(&other.head), Err(ReceiptError::OtherEntry));
    let moved = Receipt { instance: OTHER.to_owned(), ..receipt };
    assert_eq!(Receipt::open(&moved.sign(&key(1)), &ring(&key(1))), Err(ReceiptError::Contradiction));
}
