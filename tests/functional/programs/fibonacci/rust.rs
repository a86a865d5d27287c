//! Recursion that remembers.

use std::collections::HashMap;

fn fibonacci(n: u64, known: &mut HashMap<u64, u64>) -> u64 {
    if n < 2 {
        return n;
    }
    if let Some(value) = known.get(&n) {
        return *value;
    }
    let value = fibonacci(n - 1, known) + fibonacci(n - 2, known);
    known.insert(n, value);
    value
}

fn main() {
    let mut known = HashMap::new();
    let first: Vec<String> = (0..=10).map(|n| fibonacci(n, &mut known).to_string()).collect();
    println!("{}\n{}", first.join(" "), fibonacci(70, &mut known));
}
