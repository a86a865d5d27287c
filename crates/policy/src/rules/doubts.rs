//! What a policy names, for `palisade policy check`: a name that no call has protects nothing.

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

impl Rules {
    /// The tools that the policy hides or has rules for, by name.
    pub fn tools_named(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.hidden.iter().chain(self.tools.keys()).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Examines the paths of arguments that rules look at. `doubt` gets the tool, or nothing for rules of all tools.
    pub fn doubted_paths(&self, doubt: impl Fn(Option<&str>, &str) -> Option<String>) -> Vec<Flaw> {
        let of_tools = self.tools.iter().map(|(name, rules)| (Some(name.as_str()), rules));
        let all = of_tools.chain([(None, &self.all)]);
        let named = all.flat_map(|(tool, rules)| predicates(rules).map(move |one| (tool, one)));
        let doubted = named.filter_map(|(tool, predicate)| {
            Some(Flaw::new(predicate.at, doubt(tool, &predicate.path.to_string())?))
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
