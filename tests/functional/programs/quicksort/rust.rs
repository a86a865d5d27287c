//! Sorting by recursion.

fn quicksort<T: PartialOrd + Copy>(items: &[T]) -> Vec<T> {
    let Some((&pivot, rest)) = items.split_first() else { return Vec::new() };
    let (below, above): (Vec<T>, Vec<T>) = rest.iter().copied().partition(|x| *x < pivot);
    let mut sorted = quicksort(&below);
    sorted.push(pivot);
    sorted.extend(quicksort(&above));
    sorted
}

fn main() {
    let sorted = quicksort(&[33, -4, 15, 0, 99, 7, 7, -21, 58, 2, 41, 13]);
    let words: Vec<String> = sorted.iter().map(|x| x.to_string()).collect();
    println!("{}", words.join(" "));
}
