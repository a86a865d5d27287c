using System;
using System.Collections.Generic;
using System.Linq;

class Program
{
    static readonly Dictionary<int, long> Known = new Dictionary<int, long> { [0] = 0, [1] = 1 };

    static long Fibonacci(int n)
    {
        if (!Known.TryGetValue(n, out long value))
        {
            value = Fibonacci(n - 1) + Fibonacci(n - 2);
            Known[n] = value;
        }
        return value;
    }

    static void Main()
    {
        Console.WriteLine(string.Join(" ", Enumerable.Range(0, 11).Select(Fibonacci)));
        Console.WriteLine(Fibonacci(70));
    }
}
