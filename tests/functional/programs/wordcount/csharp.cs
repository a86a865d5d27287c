using System;
using System.Linq;

class Program
{
    static void Main()
    {
        var counts = "the cat and the dog and the bird".Split(' ').GroupBy(word => word);
        foreach (var group in counts.OrderByDescending(group => group.Count()).ThenBy(group => group.Key, StringComparer.Ordinal))
            Console.WriteLine($"{group.Key} {group.Count()}");
    }
}
