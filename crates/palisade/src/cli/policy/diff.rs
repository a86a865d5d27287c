//! The difference of two short texts, line by line.

/// Longer texts are not compared, but shown one after the other.
const LINES_MAX: usize = 3000;

/// All lines, each with ` `, `-` or `+` before it, below the names of both texts.
pub(super) fn diff((old_name, old): (&str, &str), (new_name, new): (&str, &str)) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let mut text = format!("--- {old_name}\n+++ {new_name}\n");
    let common = if old.len().max(new.len()) > LINES_MAX { Vec::new() } else { common(&old, &new) };
    let (mut left, mut right) = (0, 0);
    for (in_old, in_new) in common.into_iter().chain([(old.len(), new.len())]) {
        old[left..in_old].iter().for_each(|line| text.push_str(&format!("-{line}\n")));
        new[right..in_new].iter().for_each(|line| text.push_str(&format!("+{line}\n")));
        if let Some(line) = old.get(in_old) {
            text.push_str(&format!(" {line}\n"));
        }
        (left, right) = ((in_old + 1).min(old.len()), (in_new + 1).min(new.len()));
    }
    text
}

/// Places of a longest common subsequence in both.
fn common(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    // lengths[i][j] is the length for the rest of both from i and j on.
    let width = new.len() + 1;
    let mut lengths = vec![0u16; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            lengths[i * width + j] = match old[i] == new[j] {
                true => lengths[(i + 1) * width + j + 1] + 1,
                false => lengths[(i + 1) * width + j].max(lengths[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut places) = (0, 0, Vec::new());
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            places.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_lines_stay_and_the_others_are_marked() {
        let shown = diff(("a", "1\n2\n3\n"), ("b", "1\n3\n4\n"));
        assert_eq!(shown, "--- a\n+++ b\n 1\n-2\n 3\n+4\n");
        assert_eq!(diff(("a", ""), ("b", "x\n")), "--- a\n+++ b\n+x\n");
        assert_eq!(diff(("a", "x\n"), ("b", "")), "--- a\n+++ b\n-x\n");
        assert_eq!(diff(("a", "x\n"), ("b", "x\n")), "--- a\n+++ b\n x\n");
    }
}
