#!/usr/bin/env python3
"""Whether a change made fresh warm runs slower: two binaries, interleaved in pairs, over MCP stdio.

    benches/compare.py BEFORE AFTER [--pairs N] [--pause MS] [--out samples.json] [--most RATIO]

Each pair is one fresh `print(1)` on each side, in an order that alternates. Reported are both medians, their ratio, and
the 95 % interval of that ratio by bootstrap over pairs. With --most the exit status is 1 when the whole interval lies
above it.
"""

import argparse
import json
import random
import statistics
import sys
import time

import mcp_stdio

RESAMPLES = 2000
WARM_UP = 200


def interval(pairs):
    """The 95 % interval of the ratio of medians."""
    chance = random.Random(1)
    ratios = []
    for _ in range(RESAMPLES):
        chosen = chance.choices(pairs, k=len(pairs))
        ratios.append(statistics.median(a for _, a in chosen) / statistics.median(b for b, _ in chosen))
    ratios.sort()
    return ratios[int(RESAMPLES * 0.025)], ratios[int(RESAMPLES * 0.975)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--pause", type=float, default=10, help="milliseconds between two runs, for refills")
    parser.add_argument("--language", default="python")
    parser.add_argument("--code", default="print(1)")
    parser.add_argument("--out", help="where raw samples go, as JSON")
    parser.add_argument("--most", type=float, help="fail when the interval lies above this ratio")
    arguments = parser.parse_args()

    servers = [mcp_stdio.Server(arguments.before), mcp_stdio.Server(arguments.after)]
    pairs = []
    for number in range(WARM_UP + arguments.pairs):
        times = [0.0, 0.0]
        for side in (0, 1) if number % 2 else (1, 0):
            time.sleep(arguments.pause / 1000)
            times[side] = servers[side].timed_ms(arguments.code, language=arguments.language)
        if number >= WARM_UP:
            pairs.append(times)
    for server in servers:
        server.close()

    before, after = (statistics.median(side) for side in zip(*pairs))
    low, high = interval(pairs)
    print(f"before {before:.3f} ms, after {after:.3f} ms, ratio {after / before:.3f}, 95 % {low:.3f} to {high:.3f}, {len(pairs)} pairs")
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"before": before, "after": after, "low": low, "high": high, "pairs_ms": pairs}, file)
    return 1 if arguments.most is not None and low > arguments.most else 0


if __name__ == "__main__":
    sys.exit(main())
