#!/usr/bin/env python3
"""Compares the first installation of pandas, numpy and matplotlib with the same tool outside, in turns, and times a
recall of a set that is there.

    benches/packages.py [--palisade PATH] [--rounds N] [--out RESULTS.json] [PACKAGE...]

Both sides begin with an empty cache and use the same mirror and the same flags of uv. The resolver itself is fetched
before the clock starts. Prints one JSON line for each sample, then p50 of each and whether the ratio is within its target.
`--out` keeps every sample, in seconds. No round begins after eight minutes.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


# First installation inside, as a multiple of the same outside (docs/BENCHMARKS.md).
RATIO_MAX = 1.5
ROUNDS_UNTIL_S = 480


def timed(argv, **more):
    started = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{argv[0]} failed: {done.stdout}{done.stderr}")
    return time.monotonic() - started, done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--palisade", default="target/release/palisade")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out")
    parser.add_argument("packages", nargs="*", default=["pandas", "numpy", "matplotlib"])
    asked = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="palisade-bench-")
    os.chmod(folder, 0o755)
    first = os.path.join(folder, "first")
    environment = {**os.environ, "PALISADE_STATE_DIR": first, "PALISADE_LOG": "error"}
    prepare = [asked.palisade, "packages", "prepare", "--json", "--"]
    timed([*prepare, "six"], env=environment)
    layers = os.path.join(first, "packages", "layers")
    uv = next(os.path.join(layers, name, "files", "uv") for name in os.listdir(layers)
              if os.path.exists(os.path.join(layers, name, "files", "uv")))
    tool = {name: os.path.join(first, "packages", name) for name in ("layers", "sets")}
    samples = {"inside": [], "outside": [], "recall": []}
    began = time.monotonic()
    for number in range(asked.rounds):
        if time.monotonic() - began > ROUNDS_UNTIL_S:
            print(f"stopped after {number} rounds: the time is over", file=sys.stderr)
            break
        state = os.path.join(folder, f"state{number}")
        os.makedirs(os.path.join(state, "packages"), mode=0o700)
        for name, source in tool.items():
            shutil.copytree(source, os.path.join(state, "packages", name), symlinks=True)
        own = {**environment, "PALISADE_STATE_DIR": state}
        target, cache = os.path.join(folder, f"target{number}"), os.path.join(folder, f"cache{number}")
        outside = [uv, "pip", "install", "--target", target, "--cache-dir", cache, "--no-config", "--compile-bytecode",
                   "--link-mode", "hardlink", "--only-binary", ":all:", "--no-progress", *asked.packages]
        sides = [("inside", [*prepare, *asked.packages], own), ("outside", outside, os.environ.copy())]
        for name, argv, variables in sides if number % 2 == 0 else reversed(sides):
            seconds, _ = timed(argv, env=variables)
            samples[name].append(seconds)
            print(json.dumps({"what": name, "round": number, "s": round(seconds, 4)}), flush=True)
        seconds, said = timed([*prepare, *asked.packages], env=own)
        if not json.loads(said)["was_cached"]:
            sys.exit("the set was not recalled")
        samples["recall"].append(seconds)
        print(json.dumps({"what": "recall", "round": number, "s": round(seconds, 4)}), flush=True)
        for path in (state, target, cache):
            shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    medians = {name: round(statistics.median(values), 4) for name, values in samples.items()}
    if asked.out:
        with open(asked.out, "w", encoding="utf-8") as file:
            json.dump({"machine": platform.platform(), "packages": asked.packages, "target_ratio": RATIO_MAX, "samples_s": samples}, file)
    ratio = medians["inside"] / medians["outside"]
    for name, middle in medians.items():
        print(f"{name:8} p50 {middle:8.3f} s  {len(samples[name])} samples")
    print(f"ratio    p50 {ratio:8.3f}    target <= {RATIO_MAX}: {'held' if ratio <= RATIO_MAX else 'MISSED'}")


if __name__ == "__main__":
    main()
