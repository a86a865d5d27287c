#!/usr/bin/env python3
"""Two versions of gVisor behind Palisade: the distribution's runsc and a current one, in turns.

    benches/gvisor.py PALISADE [--samples N] [--out samples.json] [--current RUNSC]

The current one is built by tests/gvisor/build.sh unless it is given. Each round takes, on each side and in an order that
alternates, a cold fresh Python run, a warm one, and one that makes many system calls. Every sample is kept, in milliseconds.
Root is needed, as for every wall with an OCI runtime.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time

import mcp_stdio

# The server builds a new spare after each warm run.
PAUSE_S = 1.0
WARM_UP = 3
CALLS = "import os, time\nt = time.perf_counter()\nfor _ in range(2000): os.stat('/workspace')\nprint((time.perf_counter() - t) * 1000)"


class Wall(mcp_stdio.Server):
    """A server whose only wall is gVisor with that executable."""

    def __init__(self, binary, runsc, pool):
        settings = {"PALISADE_WALL_DEFAULT": "gvisor", "PALISADE_WALL_GVISOR_PROGRAM": runsc, "PALISADE_POOL_ENABLED": pool}
        before = dict(mcp_stdio.ENVIRONMENT)
        mcp_stdio.ENVIRONMENT.update(settings)
        try:
            super().__init__(binary)
        finally:
            mcp_stdio.ENVIRONMENT.clear()
            mcp_stdio.ENVIRONMENT.update(before)


def current():
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/gvisor/build.sh")
    built = subprocess.run(["bash", script], stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        sys.exit(built.returncode)
    return built.stdout.strip()


def version(runsc):
    said = subprocess.run([runsc, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return said.splitlines()[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("palisade")
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--out", help="where raw samples go, as JSON")
    parser.add_argument("--current", help="an executable, instead of building one")
    arguments = parser.parse_args()
    own = shutil.which("runsc")
    if own is None:
        print("!!!! SKIPPED: the distribution's runsc is not installed", file=sys.stderr)
        sys.exit(3)
    sides = {"distribution": own, "current": arguments.current or current()}
    servers = {side: (Wall(arguments.palisade, runsc, "false"), Wall(arguments.palisade, runsc, "true")) for side, runsc in sides.items()}
    taken = {f"{kind} {side}": [] for kind in ("cold", "warm", "2000 calls of stat") for side in sides}
    for number in range(WARM_UP + arguments.samples):
        order = list(sides) if number % 2 else list(reversed(sides))
        for side in order:
            cold, warm = servers[side]
            time.sleep(PAUSE_S)
            times = {"cold": cold.timed_ms(), "warm": warm.timed_ms()}
            time.sleep(PAUSE_S)
            times["2000 calls of stat"] = float(warm.run(CALLS)["stdout"])
            if number >= WARM_UP:
                for kind, sample in times.items():
                    taken[f"{kind} {side}"].append(sample)
    for pair in servers.values():
        for server in pair:
            server.close()
    for name, times in taken.items():
        print(f"{name:34} p50 {statistics.median(times):9.2f} ms  least {min(times):9.2f} ms  {len(times)} samples")
    if arguments.out:
        versions = {side: version(runsc) for side, runsc in sides.items()}
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"machine": platform.platform(), "versions": versions, "samples_ms": taken}, file)


if __name__ == "__main__":
    main()
