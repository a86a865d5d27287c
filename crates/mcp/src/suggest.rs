//! Finds the name that a caller probably meant.

/// Longer names are compared by their beginning only.
const COMPARED_CHARS_MAX: usize = 32;

/// The known name nearest to the given one, if one is near: a few letters apart, or one begins with the other.
pub(crate) fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given: Vec<char> = given.to_lowercase().chars().take(COMPARED_CHARS_MAX).collect();
    let near = |name: &'a str| {
        let letters: Vec<char> = name.chars().take(COMPARED_CHARS_MAX).collect();
        let distance = distance(&given, &letters);
        let most = given.len().max(letters.len()) / 3;
        let shorter = given.len().min(letters.len());
        let is_beginning = shorter >= 3 && given[..shorter] == letters[..shorter];
        (distance <= most || is_beginning).then_some((distance, name))
    };
    known.into_iter().filter_map(near).min().map(|(_, name)| name)
}

/// Number of letters to insert, remove or replace (Levenshtein distance).
fn distance(one: &[char], other: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, with) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != with);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["language", "code", "timeout_ms", "sandbox_id"];
        for (given, meant) in [
            ("lang", Some("language")),
            ("Code", Some("code")),
            ("timeout", Some("timeout_ms")),
            ("timeoutMs", Some("timeout_ms")),
            ("sandboxid", Some("sandbox_id")),
            ("x", None),
            ("", None),
            ("nonsense", None),
        ] {
            assert_eq!(nearest(given, known), meant, "{given}");
        }
        assert_eq!(nearest(&"é".repeat(10_000), known), None);
    }
}
