//! Texts of a policy that no call can have, for `palisade policy check`.

use super::predicate::Predicate;
use super::{Approval, CheckKind, Rules, ToolRules};
use crate::document::Flaw;

impl Rules {
    /// Examines the texts that rules compare with an argument. `doubt` says what is wrong with a text.
    pub fn doubts(&self, path: &str, doubt: impl Fn(&str) -> Option<String>) -> Vec<Flaw> {
        let all = self.tools.values().chain([&self.all]).flat_map(predicates);
        let compared = all.filter(|predicate| predicate.path.to_string() == path);
        let doubted = compared.flat_map(|predicate| {
            let texts = predicate.texts().into_iter();
            texts.filter_map(|text| Some(Flaw::new(predicate.at, doubt(text)?))).collect::<Vec<_>>()
        });
        let mut flaws: Vec<Flaw> = doubted.collect();
        flaws.sort_by_key(|flaw| (flaw.at.line, flaw.at.column));
        flaws
    }
}

fn predicates(rules: &ToolRules) -> impl Iterator<Item = &Predicate> {
    let of_checks = rules.checks.iter().flat_map(|check| match &check.kind {
        CheckKind::Require(all) => all.as_slice(),
        CheckKind::DenyIf(one) => std::slice::from_ref(one),
        CheckKind::Deny => &[],
    });
    of_checks.chain(rules.approvals.iter().flat_map(|Approval { when, .. }| when))
}
