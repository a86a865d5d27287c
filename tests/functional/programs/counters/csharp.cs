using System;
using System.Linq;

abstract class Shape
{
    public abstract int Area { get; }
    public override string ToString() => $"{GetType().Name.ToLowerInvariant()} {Area}";
}

class Rectangle : Shape
{
    readonly int width, height;
    public Rectangle(int width, int height) { this.width = width; this.height = height; }
    public override int Area => width * height;
}

class Square : Rectangle
{
    public Square(int side) : base(side, side) { }
}

class Program
{
    static Func<int> Counter(int step)
    {
        int count = 0;
        return () => count += step;
    }

    static void Main()
    {
        Func<int> ones = Counter(1), tens = Counter(10);
        Console.WriteLine(string.Join(" ", new[] { ones, ones, tens, ones, tens }.Select(each => each())));
        foreach (var shape in new Shape[] { new Square(3), new Rectangle(2, 5) }) Console.WriteLine(shape);
    }
}
