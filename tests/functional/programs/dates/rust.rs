//! Days between dates, by counting them.

const NAMES: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && year % 100 != 0 || year % 400 == 0
}

fn month_days(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let years: i64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    years + (1..month).map(|month| month_days(year, month)).sum::<i64>() + day - 1
}

fn main() {
    let day = days(2024, 2, 29);
    println!("{}", day - days(2000, 1, 1));
    println!("{}", NAMES[day as usize % 7]);
    let (mut year, mut month, mut rest) = (2024, 2, 29 + 100);
    while rest > month_days(year, month) {
        rest -= month_days(year, month);
        (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    }
    println!("{year}-{month:02}-{rest:02}");
    let words = [1900, 2000, 2023, 2024].map(|year| format!("{year} {}", if is_leap(year) { "yes" } else { "no" }));
    println!("{}", words.join(" "));
}
