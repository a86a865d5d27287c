//! Columns and padding.

fn main() {
    let rows = [("apple", 1.5, 10), ("pear", 0.25, 4), ("watermelon", 12.0, 1)];
    for (name, price, count) in rows {
        println!("{name:<12}|{price:8.2}|{count:4}");
    }
    let total: f64 = rows.iter().map(|(_, price, count)| price * f64::from(*count)).sum();
    println!("{:<12} {:7.2}", "total", total);
    println!("{:07} {:x}", 255, 255);
}
