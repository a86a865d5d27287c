using System;
using System.Collections.Generic;
using System.Linq;

class Program
{
    static IEnumerable<int> Quicksort(List<int> items)
    {
        if (items.Count < 2) return items;
        int pivot = items[0];
        var rest = items.Skip(1).ToList();
        return Quicksort(rest.Where(x => x < pivot).ToList()).Append(pivot).Concat(Quicksort(rest.Where(x => x >= pivot).ToList()));
    }

    static void Main()
    {
        var sorted = Quicksort(new List<int> { 33, -4, 15, 0, 99, 7, 7, -21, 58, 2, 41, 13 });
        Console.WriteLine(string.Join(" ", sorted));
    }
}
