using System;
using System.Globalization;

class Program
{
    static void Main()
    {
        CultureInfo.CurrentCulture = CultureInfo.InvariantCulture;
        var rows = new (string Name, double Price, int Count)[] { ("apple", 1.5, 10), ("pear", 0.25, 4), ("watermelon", 12, 1) };
        double total = 0;
        foreach (var row in rows)
        {
            Console.WriteLine($"{row.Name,-12}|{row.Price,8:F2}|{row.Count,4}");
            total += row.Price * row.Count;
        }
        Console.WriteLine("{0,-12} {1,7:F2}", "total", total);
        Console.WriteLine($"{255:D7} {255:x}");
    }
}
