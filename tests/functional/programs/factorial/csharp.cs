using System;
using System.Collections.Generic;
using System.Linq;

class Program
{
    static void Main()
    {
        var digits = new List<int> { 1 };
        for (int n = 2; n <= 30; n++)
        {
            int carry = 0;
            for (int i = 0; i < digits.Count; i++)
            {
                carry += digits[i] * n;
                digits[i] = carry % 10;
                carry /= 10;
            }
            for (; carry > 0; carry /= 10) digits.Add(carry % 10);
        }
        Console.WriteLine(string.Concat(Enumerable.Reverse(digits)));
        Console.WriteLine(digits.Sum());
    }
}
