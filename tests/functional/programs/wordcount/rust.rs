//! Counting with a map.

use std::collections::BTreeMap;

fn main() {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for word in "the cat and the dog and the bird".split_whitespace() {
        *counts.entry(word).or_default() += 1;
    }
    let mut pairs: Vec<_> = counts.into_iter().collect();
    pairs.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (word, count) in pairs {
        println!("{word} {count}");
    }
}
