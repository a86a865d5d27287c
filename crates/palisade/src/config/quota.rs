//! The settings of quotas: `[quota]` for every caller but the owner, `[[quota.for]]` for the callers that match.
//!
//! An amount is a whole number, or `"none"` for no limit.

use policy::{Amount, Quota, QuotaRule, Quotas};
use serde_json::{Value, json};

use super::settings::{Origin, Valued};
use super::value::Raw;

const MATCH: &str = "match";
const NO_LIMIT: &str = "none";
/// Only catches typing errors, such as bytes given for megabytes.
const AMOUNT_MAX: u64 = 1_000_000_000;
const RULES_MAX: usize = 1000;

/// A setting of quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QuotaKey {
    /// For every caller but the owner.
    Usual(Amount),
    /// For the callers that match.
    For,
}

impl QuotaKey {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Amount::ALL.into_iter().map(Self::Usual).chain([Self::For])
    }

    /// The last part of the setting's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Usual(amount) => amount.name(),
            Self::For => "for",
        }
    }

    /// Interprets the text of a variable. Rules are separated by commas, each `CALLERS=NAME:AMOUNT;NAME:AMOUNT`.
    pub(crate) fn raw(self, text: &str) -> Raw {
        match self {
            Self::Usual(_) => amount_from_text(text),
            Self::For => {
                Raw::List(text.split(',').filter(|_| text != NO_LIMIT).map(rule_from_text).collect())
            }
        }
    }
}

fn amount_from_text(text: &str) -> Raw {
    text.trim().parse().map(Raw::Integer).unwrap_or_else(|_| Raw::Text(text.trim().to_owned()))
}

fn rule_from_text(text: &str) -> Raw {
    // A claim in the pattern has an equals sign, too.
    let Some((callers, amounts)) = text.trim().rsplit_once('=') else { return Raw::Text(text.to_owned()) };
    let amount = |one: &str| {
        let (name, amount) = one.trim().split_once(':').unwrap_or((one, ""));
        (name.to_owned(), amount_from_text(amount))
    };
    let callers = (MATCH.to_owned(), Raw::Text(callers.to_owned()));
    Raw::Table(std::iter::once(callers).chain(amounts.split(';').map(amount)).collect())
}

/// A setting of quotas with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum QuotaSetting {
    Usual(Amount, Option<u64>),
    For(Vec<QuotaRule>),
}

impl QuotaSetting {
    /// Checks a value. The error says what is valid.
    pub(crate) fn parse(key: QuotaKey, raw: &Raw) -> Result<Self, String> {
        match key {
            QuotaKey::Usual(amount) => parse_amount(raw).map(|value| Self::Usual(amount, value)),
            QuotaKey::For => parse_rules(raw).map(Self::For),
        }
    }

    pub(crate) fn key(&self) -> QuotaKey {
        match self {
            Self::Usual(amount, _) => QuotaKey::Usual(*amount),
            Self::For(_) => QuotaKey::For,
        }
    }
}

fn parse_amount(raw: &Raw) -> Result<Option<u64>, String> {
    let amount = match raw {
        Raw::Text(text) if text == NO_LIMIT => return Ok(None),
        Raw::Integer(number) => u64::try_from(*number).ok().filter(|number| *number <= AMOUNT_MAX),
        _ => None,
    };
    let wrong = || {
        format!("it must be a whole number from 0 to {AMOUNT_MAX}, or \"{NO_LIMIT}\", not {}", raw.shown())
    };
    amount.map(Some).ok_or_else(wrong)
}

fn parse_rules(raw: &Raw) -> Result<Vec<QuotaRule>, String> {
    let wrong = |found: &Raw| {
        let found = found.shown();
        format!(
            "it must be tables with match and amounts, such as match = \"key:ci-*\", parallel_runs = 2, not {found}"
        )
    };
    let Raw::List(list) = raw else { return Err(wrong(raw)) };
    if list.len() > RULES_MAX {
        return Err(format!("it has more than {RULES_MAX} tables"));
    }
    let rule = |raw: &Raw| {
        let Raw::Table(fields) = raw else { return Err(wrong(raw)) };
        let callers = match fields.iter().find(|(name, _)| name == MATCH) {
            Some((_, Raw::Text(text))) if !text.is_empty() => text,
            Some((_, other)) => return Err(format!("{MATCH} must be a text, not {}", other.shown())),
            None => return Err(format!("{MATCH} is missing")),
        };
        let mut rule = QuotaRule::new(callers);
        for (name, raw) in fields.iter().filter(|(name, _)| name != MATCH) {
            let known = || Amount::ALL.map(Amount::name).join(", ");
            let amount = Amount::parse(name).ok_or_else(|| {
                format!("unknown key `{}`; allowed here: {MATCH}, {}", terminal::plain(name), known())
            })?;
            rule.set(amount, parse_amount(raw).map_err(|error| format!("{name}: {error}"))?);
        }
        Ok(rule)
    };
    list.iter().map(rule).collect()
}

/// The quotas in force.
#[derive(Debug, Clone)]
pub(crate) struct QuotaSettings {
    usual: [Valued<Option<u64>>; Amount::ALL.len()],
    rules: Valued<Vec<QuotaRule>>,
}

impl QuotaSettings {
    pub(crate) fn built_in() -> Self {
        Self { usual: Amount::ALL.map(|_| Valued::default(None)), rules: Valued::default(Vec::new()) }
    }

    pub(crate) fn apply(&mut self, setting: QuotaSetting, origin: Origin) {
        match setting {
            QuotaSetting::Usual(amount, value) => self.usual[amount as usize].set(value, origin),
            QuotaSetting::For(rules) => self.rules.set(rules, origin),
        }
    }

    /// A value for people, with its origin.
    pub(crate) fn shown(&self, key: QuotaKey) -> (Value, &Origin) {
        match key {
            QuotaKey::Usual(amount) => {
                let Valued { value, origin } = &self.usual[amount as usize];
                (json!(value), origin)
            }
            QuotaKey::For => {
                (json!(self.rules.value.iter().map(written).collect::<Vec<_>>()), &self.rules.origin)
            }
        }
    }

    /// All quotas.
    pub(crate) fn quotas(&self) -> Quotas {
        let mut usual = Quota::default();
        for amount in Amount::ALL {
            usual.set(amount, self.usual[amount as usize].value);
        }
        Quotas { usual, rules: self.rules.value.clone() }
    }
}

/// A rule as its variable has it.
fn written(rule: &QuotaRule) -> String {
    let amount = |amount: Amount| {
        let value = rule.get(amount)?.map_or_else(|| NO_LIMIT.to_owned(), |value| value.to_string());
        Some(format!("{}:{value}", amount.name()))
    };
    let amounts: Vec<String> = Amount::ALL.into_iter().filter_map(amount).collect();
    format!("{}={}", rule.callers, amounts.join(";"))
}
