//! Verifies the files of an audit with public keys alone: all chains of a folder, and receipts and checkpoints that were
//! kept elsewhere.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use audit::{
    ChainReport, ChainState, ChainVerifier, Checkpoint, Flaw, Gap, Hash, KeyRing, Note, NoteError, Previous,
    Receipt, ReceiptError, Removal,
};
use serde::Serialize;
use serde_json::Value;

use super::files::{ChainFolder, Flow, KEYS, REMOVED, chains, read_lines, read_small};
use super::keys::KeyFolder;

/// What to verify.
#[derive(Debug, Clone)]
pub struct VerifyRequest<'a> {
    /// The folder of an audit, or of one chain.
    pub folder: &'a Path,
    /// Keys that are trusted.
    pub keys: KeyRing,
    /// Receipts whose place is looked up, as text.
    pub receipts: Vec<String>,
    /// Checkpoints that were kept elsewhere, as text.
    pub checkpoints: Vec<String>,
}

/// What a verification comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing was changed, and nothing is missing.
    Whole,
    /// Nothing was changed; something is missing, or cannot be proved to be all.
    Incomplete,
    /// Something was changed.
    Broken,
}

/// The findings about a receipt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReceiptReport {
    /// The receipt, if its signature is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// Why it is not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flaw: Option<String>,
    /// Whether its entry is in the chain; `None` if no chain was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_in_chain: Option<bool>,
}

/// The findings about an audit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditReport {
    /// What it comes to.
    pub verdict: Verdict,
    /// The chains, in the order in which they began.
    pub chains: Vec<ChainReport>,
    /// The receipts, as they were given.
    pub receipts: Vec<ReceiptReport>,
    /// Checkpoints that are not accepted, and why.
    pub false_checkpoints: Vec<String>,
}

/// Entries of a chain that something outside of it names.
type Named = Vec<(u64, Hash, String)>;

/// Verifies an audit. An error is one of reading; everything else is in the report.
pub fn verify(request: VerifyRequest<'_>) -> io::Result<AuditReport> {
    let VerifyRequest { folder, mut keys, receipts, checkpoints } = request;
    for text in KeyFolder::new(folder).rotations() {
        if let Ok(note) = Note::parse(&text) {
            keys.learn(&note);
        }
    }
    let found = chains(folder)?;
    let mut named: BTreeMap<String, Named> = BTreeMap::new();
    let mut name = |instance: &str, seq, hash, by: String| {
        named.entry(instance.to_owned()).or_default().push((seq, hash, by));
    };
    let mut receipts: Vec<ReceiptReport> = receipts.iter().map(|text| verify_receipt(text, &keys)).collect();
    for receipt in receipts.iter().filter_map(|report| report.receipt.as_ref()) {
        name(&receipt.instance, receipt.seq, receipt.hash, RECEIPT.to_owned());
    }
    let mut false_checkpoints = Vec::new();
    for text in &checkpoints {
        match Note::parse(text).and_then(|note| Checkpoint::open(&note, &keys)) {
            Ok(kept) => name(&kept.instance, kept.seq, kept.hash, "the kept checkpoint".to_owned()),
            Err(error) => false_checkpoints.push(error.to_string()),
        }
    }
    let mut orphans = Vec::new();
    let retired = retired(folder, &keys);
    for chain in &found {
        if let Some(previous) = chain.first_line().and_then(|line| Previous::read(&line)) {
            let is_there = found.iter().any(|other| other.instance == previous.instance);
            if !is_there && retired.as_ref().is_none_or(|last| previous.instance > *last) {
                orphans.push((chain.instance.clone(), previous.instance.clone()));
            }
            name(&previous.instance, previous.seq, previous.hash, format!("the chain {}", chain.instance));
        }
    }
    let is_single = found.len() == 1 && folder.join(KEYS).symlink_metadata().is_err();
    let mut reports = Vec::new();
    for chain in &found {
        let of_chain = named.remove(&chain.instance).unwrap_or_default();
        let mut report = verify_chain(chain, &keys, &of_chain, &mut receipts)?;
        // The folder of one chain says nothing about others.
        for (_, instance) in orphans.iter().filter(|(of, _)| !is_single && *of == chain.instance) {
            report.add_gap(Gap::NoPrevious { instance: instance.clone() });
        }
        reports.push(report);
    }
    for receipt in &mut receipts {
        let is_missing = receipt.receipt.is_some() && receipt.is_in_chain.is_none();
        if is_missing {
            receipt.is_in_chain = Some(false);
        }
    }
    let verdict = verdict_of(&reports, &receipts, &false_checkpoints, !named.is_empty());
    Ok(AuditReport { verdict, chains: reports, receipts, false_checkpoints })
}

const RECEIPT: &str = "the receipt";

fn verdict_of(
    chains: &[ChainReport],
    receipts: &[ReceiptReport],
    notes: &[String],
    is_named: bool,
) -> Verdict {
    let is_broken = chains.iter().any(|chain| !chain.is_intact())
        || receipts.iter().any(|receipt| receipt.flaw.is_some())
        || !notes.is_empty();
    let is_absent = receipts.iter().any(|receipt| receipt.is_in_chain == Some(false));
    match (is_broken, is_absent || is_named && chains.is_empty()) {
        (true, _) => Verdict::Broken,
        (false, true) => Verdict::Incomplete,
        (false, false) if chains.is_empty() || !chains.iter().all(ChainReport::is_complete) => {
            Verdict::Incomplete
        }
        (false, false) => Verdict::Whole,
    }
}

/// Verifies a receipt alone, without the chain.
pub fn verify_receipt(text: &str, keys: &KeyRing) -> ReceiptReport {
    let opened = Note::parse(text).map_err(ReceiptError::from).and_then(|note| Receipt::open(&note, keys));
    match opened {
        Ok(receipt) => ReceiptReport { receipt: Some(receipt), flaw: None, is_in_chain: None },
        Err(error) => ReceiptReport { receipt: None, flaw: Some(error.to_string()), is_in_chain: None },
    }
}

/// The last chain that retention removed as a whole.
fn retired(folder: &Path, keys: &KeyRing) -> Option<String> {
    let note = Note::parse(&read_small(&folder.join(REMOVED)).ok()?).ok()?;
    let removal: Result<Removal, NoteError> = Removal::open(&note, keys);
    removal.ok().map(|removal| removal.instance)
}

fn verify_chain(
    chain: &ChainFolder,
    keys: &KeyRing,
    named: &Named,
    receipts: &mut [ReceiptReport],
) -> io::Result<ChainReport> {
    // Asked first: a server that ends meanwhile leaves a chain with an end.
    let state = if chain.is_running() { ChainState::Running } else { ChainState::Ended };
    let mut verifier = ChainVerifier::new(&chain.instance, keys.clone());
    named.iter().for_each(|(seq, ..)| verifier.watch(*seq));
    if let Some(note) = chain.removed() {
        verifier.removal(&note);
    }
    for number in chain.segments()? {
        verifier.segment(number);
        let end = read_lines(&chain.segment(number), 0, &mut |line| {
            verifier.line(line);
            Ok(Flow::More)
        })?;
        if end.has_fragment {
            verifier.fragment();
        }
    }
    let mut report = verifier.finish(state);
    for (seq, hash, by) in named {
        match verifier.found(*seq) {
            Some(found) if found == *hash => {}
            Some(_) => report.add_flaw(Flaw::Contradicted { seq: *seq, by: by.clone() }),
            None if *seq < report.first_seq => {}
            None => report.add_gap(Gap::Cut { seq: *seq, by: by.clone() }),
        }
    }
    for receipt in receipts.iter_mut() {
        let Some(kept) = receipt.receipt.as_ref().filter(|kept| kept.instance == chain.instance) else {
            continue;
        };
        let found = verifier.found(kept.seq);
        receipt.flaw = found.and_then(|hash| kept.check_place(&hash).err()).map(|error| error.to_string());
        receipt.is_in_chain = Some(found == Some(kept.hash));
    }
    Ok(report)
}

impl AuditReport {
    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        // Serializing text and numbers does not fail.
        serde_json::to_value(self).unwrap_or_default()
    }
}
