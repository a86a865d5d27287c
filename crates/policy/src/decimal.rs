//! Exact decimal numbers, as policies and counters compare and add them.
//!
//! A JSON number is text. A policy that says "at most 100.10" must not depend on how close a binary fraction comes to
//! it, and an integer of twenty digits must not be rounded before it is compared.

use std::cmp::Ordering;
use std::fmt;

/// Most significant digits. More cannot be aligned in 128 bits.
const DIGITS_MAX: usize = 38;
/// So many digits fit in 64 bits.
const SHORT_DIGITS: usize = 18;
/// Furthest exponent. It is far beyond every real amount, and sums of exponents cannot overflow.
const EXPONENT_MAX: i64 = 100_000;
/// Exponents up to this one are written as zeros.
const ZEROS_MAX: i32 = 24;

/// A finite decimal number, exact. The last digit is not zero, so equal numbers are equal values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal {
    is_negative: bool,
    digits: u128,
    exponent: i32,
}

impl Decimal {
    /// Nothing.
    pub const ZERO: Self = Self { is_negative: false, digits: 0, exponent: 0 };
    /// One, which is what a call counts.
    pub const ONE: Self = Self { is_negative: false, digits: 1, exponent: 0 };

    /// Reads a number as JSON writes it. `None` if it is none, or has too many digits to be compared exactly.
    pub fn parse(text: &str) -> Option<Self> {
        // Most numbers are short and whole.
        if text.len() <= SHORT_DIGITS && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse::<u64>().ok().map(Self::from);
        }
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent_of(exponent)?),
            None => (text, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
            Some(_) => return None,
            None => (mantissa, ""),
        };
        if whole.is_empty() || !(whole.bytes().chain(fraction.bytes())).all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let written = [whole, fraction].concat();
        let significant = written.trim_start_matches('0').trim_end_matches('0');
        if significant.len() > DIGITS_MAX {
            return None;
        }
        if significant.is_empty() {
            return Some(Self::ZERO);
        }
        let dropped = written.len() - written.trim_end_matches('0').len();
        let exponent = exponent - i64::try_from(fraction.len()).ok()? + i64::try_from(dropped).ok()?;
        if exponent.abs() > EXPONENT_MAX {
            return None;
        }
        Some(Self { is_negative, digits: significant.parse().ok()?, exponent: i32::try_from(exponent).ok()? })
    }

    /// Whether it is below zero.
    pub fn is_negative(self) -> bool {
        self.is_negative
    }

    /// The sum, if it can be written exactly.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        if self.digits == 0 {
            return Some(other);
        }
        if other.digits == 0 {
            return Some(self);
        }
        let exponent = self.exponent.min(other.exponent);
        let (left, right) = (self.signed_at(exponent)?, other.signed_at(exponent)?);
        let sum = left.checked_add(right)?;
        Some(Self { is_negative: sum < 0, digits: sum.unsigned_abs(), exponent }.normal())
    }

    /// The same number with the other sign.
    pub fn negated(self) -> Self {
        Self { is_negative: !self.is_negative && self.digits != 0, ..self }
    }

    /// The digits at a smaller exponent.
    fn signed_at(self, exponent: i32) -> Option<i128> {
        let shift = u32::try_from(self.exponent - exponent).ok()?;
        let digits = i128::try_from(self.digits.checked_mul(10u128.checked_pow(shift)?)?).ok()?;
        Some(if self.is_negative { -digits } else { digits })
    }

    fn normal(mut self) -> Self {
        if self.digits == 0 {
            return Self::ZERO;
        }
        while self.digits.is_multiple_of(10) {
            self.digits /= 10;
            self.exponent += 1;
        }
        self
    }

    fn length(self) -> i32 {
        self.digits.checked_ilog10().map_or(0, |log| log as i32 + 1)
    }

    fn compare_magnitude(self, other: Self) -> Ordering {
        if self.digits == 0 || other.digits == 0 {
            return self.digits.cmp(&other.digits);
        }
        let order = |of: Self| of.length() + of.exponent;
        order(self).cmp(&order(other)).then_with(|| {
            // Of the same order: the shorter one is padded to the length of the longer one, which fits.
            let length = self.length().max(other.length());
            let padded = |of: Self| of.digits * 10u128.pow((length - of.length()) as u32);
            padded(self).cmp(&padded(other))
        })
    }
}

fn exponent_of(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: i64 = digits.parse().ok()?;
    Some(if text.starts_with('-') { -value } else { value })
}

impl From<u64> for Decimal {
    fn from(number: u64) -> Self {
        Self { is_negative: false, digits: u128::from(number), exponent: 0 }.normal()
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.compare_magnitude(*other),
            (true, true) => other.compare_magnitude(*self),
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_negative { "-" } else { "" };
        let (digits, exponent) = (self.digits, self.exponent);
        if (0..=ZEROS_MAX).contains(&exponent) {
            return write!(f, "{sign}{digits}{}", "0".repeat(exponent.unsigned_abs() as usize));
        }
        if (-ZEROS_MAX..0).contains(&exponent) {
            let places = exponent.unsigned_abs() as usize;
            let text = format!("{digits:0>width$}", width = places + 1);
            let (whole, fraction) = text.split_at(text.len() - places);
            return write!(f, "{sign}{whole}.{fraction}");
        }
        write!(f, "{sign}{digits}e{exponent}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn the_same_number_is_the_same_value_however_it_is_written() {
        for same in [
            ["1", "1.0", "10e-1"],
            ["100", "1e2", "1E+2"],
            ["0", "-0", "0.000e99"],
            ["-2.50", "-25e-1", "-0.25e1"],
        ] {
            assert!(same.iter().all(|text| decimal(text) == decimal(same[0])), "{same:?}");
        }
    }

    #[test]
    fn numbers_that_a_binary_fraction_confuses_are_told_apart() {
        assert!(decimal("9007199254740993") > decimal("9007199254740992"));
        assert!(decimal("0.1000000000000000000001") > decimal("0.1"));
        assert!(decimal("18446744073709551617") > decimal("18446744073709551616"));
        let sum = decimal("0.1").checked_add(decimal("0.2")).unwrap();
        assert_eq!(sum, decimal("0.3"));
        assert!(decimal("1e308") > decimal("10000") && decimal("-1e308") < decimal("-10000"));
        assert!(decimal("1e-300") > Decimal::ZERO && decimal("-1e-300") < Decimal::ZERO);
    }

    #[test]
    fn what_is_no_number_or_cannot_be_compared_exactly_is_nothing() {
        for text in [
            "",
            "-",
            "+1",
            "1.",
            ".5",
            "1e",
            "1e+",
            "0x10",
            "NaN",
            "Infinity",
            "1_000",
            " 1",
            "1 ",
            "１",
            "1e999999999999",
            "1e200000",
            "--1",
            "1.2.3",
            "123456789012345678901234567890123456789",
        ] {
            assert_eq!(Decimal::parse(text), None, "{text:?}");
        }
        assert!(decimal("1e90000").checked_add(Decimal::ONE).is_none(), "it would have 90,000 digits");
    }

    proptest! {
        #[test]
        fn order_and_sum_are_those_of_integers(a in -1_000_000_000i64..1_000_000_000, b in -1_000_000_000i64..1_000_000_000, scale in 0u32..12) {
            let text = |number: i64| format!("{number}e-{scale}");
            let (left, right) = (decimal(&text(a)), decimal(&text(b)));
            prop_assert_eq!(left.cmp(&right), a.cmp(&b));
            prop_assert_eq!(left.checked_add(right), Some(decimal(&text(a + b))));
            prop_assert_eq!(decimal(&left.to_string()), left);
            prop_assert_eq!(left.checked_add(left.negated()), Some(Decimal::ZERO));
        }
    }
}
