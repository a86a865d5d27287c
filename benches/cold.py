#!/usr/bin/env python3
"""What one cold run costs: palisade without any pool against the plain interpreter, interleaved in one run.

    benches/cold.py [--binary PATH] [--runs N] [--out samples.json] [--budget RATIO]

Prints medians, the ratio, and the parts of one run (clone, mounts, interpreter, teardown ...) as palisade
itself times them. The environment is cleared for both sides; raw samples are kept as JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def timed_ms(command):
    """Runs a command to its end and gives back the milliseconds it took."""
    started = time.perf_counter()
    subprocess.run(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - started) * 1000


def phases_us(binary):
    """The parts of one run, in microseconds."""
    command = [binary, "run", "python", "--phases", "-c", "print(1)"]
    said = subprocess.run(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    parts = {}
    for line in said.stderr.splitlines():
        words = line.split()
        if len(words) >= 3 and words[-1] == "us":
            parts[" ".join(words[:-2])] = int(words[-2])
    return parts


def quantile(values, share):
    """The value below which that share of the samples lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/release/palisade"))
    parser.add_argument("--python", default="/usr/bin/python3", help="the plain interpreter to compare with")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--out", help="where raw samples go, as JSON")
    parser.add_argument("--budget", type=float, help="fail when the ratio is above this")
    arguments = parser.parse_args()

    sides = {
        "plain python": [arguments.python, "-c", "print(1)"],
        "palisade python": [arguments.binary, "run", "python", "-c", "print(1)"],
        "plain bash": ["/bin/bash", "-c", "echo 1"],
        "palisade bash": [arguments.binary, "run", "bash", "-c", "echo 1"],
    }
    for command in sides.values():
        timed_ms(command)
    samples = {name: [] for name in sides}
    for _ in range(arguments.runs):
        for name, command in sides.items():
            samples[name].append(timed_ms(command))
    parts = [phases_us(arguments.binary) for _ in range(max(5, arguments.runs // 5))]

    print(f"{'':18} {'p50':>8} {'p95':>8} {'min':>8}   ms, {arguments.runs} runs each, interleaved")
    for name, values in samples.items():
        print(f"{name:18} {statistics.median(values):8.2f} {quantile(values, 0.95):8.2f} {min(values):8.2f}")
    ratio = statistics.median(samples["palisade python"]) / statistics.median(samples["plain python"])
    print(f"\npython: palisade / plain = {ratio:.2f}\n\nparts of one python run, p50 in microseconds")
    names = [name for name in parts[0] if all(name in part for part in parts)]
    medians = {name: statistics.median(part[name] for part in parts) for name in names}
    for name, value in medians.items():
        print(f"  {name:14} {value:8.0f}")
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"samples_ms": samples, "parts_us": parts, "ratio": ratio}, file, indent=1)
    if arguments.budget and ratio > arguments.budget:
        print(f"above the budget of {arguments.budget}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
