#!/usr/bin/env python3
"""What one sandbox can do to its neighbours: fresh runs of one server while another sandbox does its worst.

    benches/neighbours.py [--binary PATH] [--runs N] [--only NAME] [--out samples.json] [--budget RATIO]

For each attack of the exhaustion family (tests/escape/attacks/exhaust_*) another tenant's server measures fresh
`print(1)` runs, alternating between moments in which nothing else runs and moments in which the attack runs at
default limits, again and again. Reported is the ratio of the medians. With --budget the exit status is 1 when one is above.
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import mcp_stdio

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ATTACKS = os.path.join(ROOT, "tests/escape/attacks")
PAUSE_S = 0.01
ROUNDS = 4


class Aggressor:
    """Runs one attack again and again, at default limits, in a sandbox of a server of its own."""

    def __init__(self, binary, path):
        with open(path, encoding="utf-8") as file:
            self.code = file.read()
        self.server = mcp_stdio.Server(binary)
        with open(os.path.join(ROOT, "tests/escape/support/attack.py"), encoding="utf-8") as file:
            self.inputs = [{"path": "attack.py", "text": file.read()}]
        self.stop = threading.Event()
        self.runs = 0
        self.thread = None

    def start(self):
        self.stop.clear()
        self.thread = threading.Thread(target=self.attack)
        self.thread.start()

    def attack(self):
        while not self.stop.is_set():
            self.server.run(self.code, inputs=self.inputs, timeout_ms=5000)
            self.runs += 1

    def end(self):
        self.stop.set()
        self.thread.join()


def sample(server, runs):
    times = []
    for _ in range(runs):
        time.sleep(PAUSE_S)
        times.append(server.timed_ms())
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/release/palisade"))
    parser.add_argument("--runs", type=int, default=200, help="fresh runs with and without each attack")
    parser.add_argument("--only", default="", help="attacks whose name contains this")
    parser.add_argument("--out", help="where raw samples go, as JSON")
    parser.add_argument("--budget", type=float, help="fail when a ratio is above this")
    arguments = parser.parse_args()

    neighbour = mcp_stdio.Server(arguments.binary)
    sample(neighbour, 100)
    kept, worst = {}, 0.0
    print(f"{'attack':32} {'alone':>8} {'beside':>8} {'ratio':>6}   p50 in ms, {arguments.runs} fresh runs each")
    for path in sorted(glob.glob(os.path.join(ATTACKS, "exhaust_*.py"))):
        name = os.path.basename(path)[: -len(".py")]
        if arguments.only not in name:
            continue
        aggressor = Aggressor(arguments.binary, path)
        alone, beside = [], []
        for _ in range(ROUNDS):
            alone += sample(neighbour, arguments.runs // ROUNDS)
            aggressor.start()
            time.sleep(0.2)
            beside += sample(neighbour, arguments.runs // ROUNDS)
            aggressor.end()
            time.sleep(0.2)
        aggressor.server.close()
        ratio = statistics.median(beside) / statistics.median(alone)
        worst = max(worst, ratio)
        kept[name] = {"alone_ms": alone, "beside_ms": beside, "attacks": aggressor.runs}
        print(f"{name:32} {statistics.median(alone):8.2f} {statistics.median(beside):8.2f} {ratio:6.2f}", flush=True)
    neighbour.close()
    print(f"worst ratio {worst:.2f}")
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(kept, file)
    return 1 if arguments.budget is not None and worst > arguments.budget else 0


if __name__ == "__main__":
    sys.exit(main())
