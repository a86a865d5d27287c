/// Variables of the run: Vars.name. Their values are read when the first is used. docs/COMPILED.md
static class Vars
{
    // @declare@

    static Vars()
    {
        // @bind@
    }
}

/// Apart, so that no name of a variable is in scope. The format: docs/DRIVERS.md, "Values".
static class __PalisadeInput
{
    static readonly byte[] all = System.IO.File.ReadAllBytes("/palisade/variables");
    static int next;

    static string Line()
    {
        int start = next;
        while (all[next] != (byte)'\n') next++;
        return System.Text.Encoding.UTF8.GetString(all, start, next++ - start);
    }

    internal static object Value()
    {
        string told = Line(), rest = told.Substring(1);
        var plain = System.Globalization.CultureInfo.InvariantCulture;
        switch (told[0])
        {
            case 't': return true;
            case 'f': return false;
            case 'i': return long.Parse(rest, plain);
            case 'I': return System.Numerics.BigInteger.Parse(rest, plain);
            case 'd': return double.Parse(rest, plain);
            case 's':
                int length = int.Parse(rest, plain);
                string text = System.Text.Encoding.UTF8.GetString(all, next, length);
                next += length + 1;
                return text;
            case '[':
                var list = new System.Collections.Generic.List<object>();
                for (int left = int.Parse(rest, plain); left > 0; left--) list.Add(Value());
                return list;
            case '{':
                var map = new System.Collections.Generic.Dictionary<string, object>();
                for (int left = int.Parse(rest, plain); left > 0; left--)
                {
                    string key = (string)Value();
                    map[key] = Value();
                }
                return map;
            default: return null;
        }
    }

    internal static double Float()
    {
        return System.Convert.ToDouble(Value());
    }

    internal static T[] List<T>(System.Func<T> read)
    {
        var list = new T[int.Parse(Line().Substring(1), System.Globalization.CultureInfo.InvariantCulture)];
        for (int i = 0; i < list.Length; i++) list[i] = read();
        return list;
    }
}
