using System;
using System.Collections.Generic;
using System.Linq;

class Program
{
    static IEnumerable<int> PrimesBelow(int limit)
    {
        var crossed = new bool[limit];
        for (int n = 2; n < limit; n++)
        {
            if (crossed[n]) continue;
            yield return n;
            for (int m = n * n; m < limit; m += n) crossed[m] = true;
        }
    }

    static void Main()
    {
        Console.WriteLine(string.Join(" ", PrimesBelow(50)));
        Console.WriteLine(PrimesBelow(10000).Count());
    }
}
