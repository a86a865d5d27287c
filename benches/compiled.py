#!/usr/bin/env python3
"""What the build cache is worth: the first run of a program, which compiles it, against the second, which does not.

    benches/compiled.py [--binary PATH] [--runs N] [--out samples.json] [--budget RATIO]

Each round has a program that was never seen before, run twice; languages are interleaved. Both runs are whole commands
(`palisade run`), start of palisade included. That the first compiles and the second does not is read from their results.
Prints medians and the ratio second / first; raw samples are kept as JSON.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = {
    "rust": 'use std::collections::BTreeMap;\nfn main() { let mut m = BTreeMap::new(); m.insert("a", 42); println!("{}", m["a"]); } //',
    "go": 'package main\nimport ("fmt"; "sort")\nfunc main() { a := []int{3, 42, 1}; sort.Ints(a); fmt.Println(a[2]) } //',
    "cpp": "#include <iostream>\n#include <map>\nint main() { std::map<int, int> m{{1, 42}}; std::cout << m[1] << std::endl; } //",
    "java": "import java.util.*;\npublic class Main { public static void main(String[] a) { System.out.println(List.of(42).get(0)); } } //",
    "c": '#include <stdio.h>\nint main(void) { printf("%d\\n", 42); } //',
    "csharp": "class P { static void Main() { System.Console.WriteLine(42); } } //",
}
# Those that the target is about: second <= 0.2 x first.
BUDGETED = ["rust", "go", "cpp", "java"]


def environment():
    """A plain environment; Rust is often installed for one user only."""
    path = "/usr/local/bin:/usr/bin:/bin"
    rustc = shutil.which("rustc")
    return {"PATH": f"{path}:{os.path.dirname(rustc)}" if rustc else path, "HOME": os.environ.get("HOME", "/")}


def timed_run(binary, state, language, code):
    """One run: milliseconds, and whether an earlier compilation was used. None where the language is not installed."""
    command = [binary, "--state-dir", state, "run", language, "--json", "-c", code]
    started = time.perf_counter()
    said = subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    taken = (time.perf_counter() - started) * 1000
    result = json.loads(said.stdout)
    if result.get("error", {}).get("code") == "language_missing":
        return None
    if result["stdout"] != "42\n":
        sys.exit(f"{language}: {result}")
    return taken, result["compile"]["cached"]


def measure(binary, state, runs):
    """Samples of all languages, interleaved."""
    samples = {}
    for turn in range(-1, runs):
        for language, program in PROGRAMS.items():
            code = f"{program} {turn}"
            first = timed_run(binary, state, language, code)
            if first is None:
                print(f"SKIPPED {language}: not installed", file=sys.stderr)
                continue
            second = timed_run(binary, state, language, code)
            if first[1] or not second[1]:
                sys.exit(f"{language}: the first must compile and the second must not")
            # The first round also asks the toolchain what it needs.
            if turn >= 0:
                sides = samples.setdefault(language, {"first_ms": [], "second_ms": []})
                sides["first_ms"].append(round(first[0], 3))
                sides["second_ms"].append(round(second[0], 3))
    return samples


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/release/palisade"))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", default=os.path.join(ROOT, "benches/results/compiled.json"))
    parser.add_argument("--budget", type=float, help="fail when a ratio is above this")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as state:
        samples = measure(arguments.binary, state, arguments.runs)
    worst = 0.0
    print(f"{'language':<10} {'first ms':>10} {'second ms':>10} {'ratio':>7}")
    for language, sides in samples.items():
        first, second = statistics.median(sides["first_ms"]), statistics.median(sides["second_ms"])
        sides["ratio"] = round(second / first, 4)
        worst = max(worst, sides["ratio"]) if language in BUDGETED else worst
        print(f"{language:<10} {first:>10.1f} {second:>10.1f} {sides['ratio']:>7.3f}")
    with open(arguments.out, "w", encoding="utf-8") as out:
        json.dump({"runs": arguments.runs, "samples": samples}, out, indent=1)
        out.write("\n")
    if arguments.budget is not None and worst > arguments.budget:
        sys.exit(f"the second run costs {worst:.3f} of the first, and {arguments.budget} is the most")


if __name__ == "__main__":
    main()
