//! Primes by crossing out.

fn primes_below(limit: usize) -> Vec<usize> {
    let mut crossed = vec![false; limit];
    let mut primes = Vec::new();
    for n in 2..limit {
        if crossed[n] {
            continue;
        }
        primes.push(n);
        (n * n..limit).step_by(n).for_each(|m| crossed[m] = true);
    }
    primes
}

fn main() {
    let words: Vec<String> = primes_below(50).iter().map(ToString::to_string).collect();
    println!("{}\n{}", words.join(" "), primes_below(10_000).len());
}
