//! A number of 33 digits.

fn main() {
    // 30! needs 108 bits.
    let product: u128 = (1..=30).product();
    let sum: u32 = product.to_string().chars().filter_map(|digit| digit.to_digit(10)).sum();
    println!("{product}\n{sum}");
}
