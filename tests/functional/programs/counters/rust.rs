//! Closures that count, and shapes behind a trait.

trait Shape {
    fn name(&self) -> &'static str;
    fn area(&self) -> u32;
}

struct Rectangle(u32, u32);
struct Square(u32);

impl Shape for Rectangle {
    fn name(&self) -> &'static str {
        "rectangle"
    }
    fn area(&self) -> u32 {
        self.0 * self.1
    }
}

impl Shape for Square {
    fn name(&self) -> &'static str {
        "square"
    }
    fn area(&self) -> u32 {
        self.0.pow(2)
    }
}

fn counter(step: u32) -> impl FnMut() -> u32 {
    let mut count = 0;
    move || {
        count += step;
        count
    }
}

fn main() {
    let (mut ones, mut tens) = (counter(1), counter(10));
    println!("{} {} {} {} {}", ones(), ones(), tens(), ones(), tens());
    let shapes: Vec<Box<dyn Shape>> = vec![Box::new(Square(3)), Box::new(Rectangle(2, 5))];
    for shape in shapes {
        println!("{} {}", shape.name(), shape.area());
    }
}
