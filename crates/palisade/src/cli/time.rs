//! Durations on the command line. Every command reads them here.

/// Units of a duration and their length in milliseconds. A number without a unit is seconds.
const UNITS: [(&str, f64); 5] =
    [("ms", 1.0), ("s", 1000.0), ("m", 60_000.0), ("h", 3_600_000.0), ("", 1000.0)];

/// A duration in milliseconds, above zero.
pub(crate) fn parse_time_ms(text: &str) -> Result<u64, String> {
    let found = UNITS.iter().find_map(|(unit, factor)| {
        let number = text.strip_suffix(unit)?.parse::<f64>().ok()?;
        (number.is_finite() && number > 0.0).then_some(number * factor)
    });
    let wanted = "give a time such as 500ms, 5s, 2m or 1h; a number without a unit is seconds";
    found.map(|ms| ms.ceil() as u64).ok_or_else(|| wanted.to_owned())
}

/// A duration in whole seconds, above zero.
pub(crate) fn parse_time_s(text: &str) -> Result<u64, String> {
    parse_time_ms(text).map(|ms| ms.div_ceil(1000))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time_ms("500ms"), Ok(500));
        assert_eq!(parse_time_ms("1.5s"), Ok(1500));
        assert_eq!(parse_time_ms("2m"), Ok(120_000));
        assert_eq!(parse_time_ms("1h"), Ok(3_600_000));
        assert_eq!(parse_time_ms("3"), Ok(3000));
        assert_eq!(parse_time_s("600"), Ok(600));
        assert_eq!(parse_time_s("1ms"), Ok(1));
        for bad in ["", "x", "-1s", "0s", "NaN", "infs", "5 s", "h"] {
            assert!(parse_time_ms(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(harness::properties())]

        #[test]
        fn a_time_means_the_same_in_every_unit(seconds in 1..1_000_000_u64) {
            let ms = seconds * 1000;
            prop_assert_eq!(parse_time_ms(&format!("{ms}ms")), Ok(ms));
            prop_assert_eq!(parse_time_ms(&format!("{seconds}s")), Ok(ms));
            prop_assert_eq!(parse_time_ms(&seconds.to_string()), Ok(ms));
            prop_assert_eq!(parse_time_ms(&format!("{seconds}m")), Ok(60 * ms));
            prop_assert_eq!(parse_time_ms(&format!("{seconds}h")), Ok(3600 * ms));
        }

        #[test]
        fn any_text_is_a_time_above_zero_or_refused(text in "[0-9a-z.+-]{0,8}(ms|s|m|h)?") {
            prop_assert!(parse_time_ms(&text).is_err() || parse_time_ms(&text).is_ok_and(|ms| ms > 0));
        }
    }
}
