# Compiles a program: $1 mono, $2 the compiler, $3 `exe` or `library`, $4 the product, $5 the program, then other sources.
set -eu
mono=$1 mcs=$2 target=$3 product=$4 program=$5
shift 5

compile() {
    "$mono" "$mcs" -target:"$target" -debug -define:DEBUG -define:TRACE -langversion:latest -nologo -warn:0 -codepage:utf8 \
        -r:System.Numerics.dll -r:System.Core.dll -out:"$product" "$@" 2>&1
}

# Mono ignores an assertion that fails, unless a listener throws. A program that names no class with assertions starts
# without the configuration, which takes time to read.
if [ "$target" = exe ] && grep -Eqs 'Debug|Trace' -- "$program" "$@"; then
    cat > "$product.config" << 'END'
<configuration><system.diagnostics><trace><listeners>
<clear/><add name="assertions" type="__PalisadeAssertions, program"/>
</listeners></trace></system.diagnostics></configuration>
END
    cat > .palisade-assertions.cs << 'END'
internal sealed class __PalisadeAssertions : System.Diagnostics.TraceListener
{
    public override void Write(string text) { }
    public override void WriteLine(string text) { }
    public override void Fail(string message) { Fail(message, null); }
    public override void Fail(string message, string detail)
    {
        string text = string.IsNullOrEmpty(detail) ? message : message + ": " + detail;
        throw new System.Exception(string.IsNullOrEmpty(text) ? "assertion failed" : "assertion failed: " + text);
    }
}
END
    set -- "$@" .palisade-assertions.cs
fi

if said=$(compile "$program" "$@"); then exit 0; fi

# Names that are not there: the program may rely on the using directives that .NET has implied since version 6. They come
# second, because they can make a name ambiguous in a program that states its own.
if printf %s "$said" | grep -Eq 'error CS(0103|0234|0246|0305|0308|1061|1935)'; then
    {
        printf 'using System; using System.Collections.Generic; using System.IO; using System.Linq; '
        printf 'using System.Threading; using System.Threading.Tasks;\n#line 1 "%s"\n' "$program"
        cat -- "$program"
    } > .palisade-program.cs
    if again=$(compile .palisade-program.cs "$@"); then exit 0; fi
    # Unless the directives themselves are in the way: before `#define` or `extern alias`, or of an ambiguous name.
    if ! printf %s "$again" | grep -Eq 'error CS(0104|0439|1032)'; then said=$again; fi
fi
printf '%s\n' "$said" >&2
exit 1
