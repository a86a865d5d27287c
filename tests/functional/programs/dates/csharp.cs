using System;
using System.Linq;

class Program
{
    static void Main()
    {
        var day = new DateTime(2024, 2, 29);
        Console.WriteLine((day - new DateTime(2000, 1, 1)).Days);
        Console.WriteLine(day.DayOfWeek);
        Console.WriteLine(day.AddDays(100).ToString("yyyy-MM-dd"));
        Console.WriteLine(string.Join(" ", new[] { 1900, 2000, 2023, 2024 }.Select(year => year + (DateTime.IsLeapYear(year) ? " yes" : " no"))));
    }
}
