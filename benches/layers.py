#!/usr/bin/env python3
"""What packages in a layer cost: attaching a cached layer, and a fresh warm run that imports pandas from one.

Usage: layers.py RESULTS.json [SAMPLES]    (60 samples: about 7 minutes, besides the build)

    attach                a layer that is there, attached to an open sandbox with a live Python
    import from a layer   a fresh warm run: import pandas, from a layer
    import from the host  the same from the packages of the interpreter
    print                 a fresh warm run without packages

An interpreter with pandas is made (venv), and a layer with the same pandas (`pip install --target`). The samples of the last
three alternate, and the order rotates. They are taken over the engine, without a client. Every sample is kept, in milliseconds.
Prints p50 and p99 of each beside its target; the run from a layer has that from the host beside it.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile

PACKAGES = ["pandas"]
# p50, in milliseconds (docs/BENCHMARKS.md).
TARGETS_MS = {"attach": 5.0, "import from a layer": 5.0}
TEST = ["cargo", "test", "--release", "--quiet", "-p", "palisade", "--test", "layers"]


def made(folder):
    venv, layer = os.path.join(folder, "venv"), os.path.join(folder, "layer")
    subprocess.run(["/usr/bin/python3", "-m", "venv", venv], check=True)
    pip = [os.path.join(venv, "bin/python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *PACKAGES], check=True)
    subprocess.run([*pip, "--target", layer, *PACKAGES], check=True)
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
    return os.path.join(venv, "bin/python"), layer


def main():
    out, samples = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "60"
    # Not in /tmp: an interpreter beneath a writable directory of sandboxes has no zygote.
    target = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../target")
    with tempfile.TemporaryDirectory(prefix="bench-layers-", dir=os.path.realpath(target)) as folder:
        os.chmod(folder, 0o755)
        python, layer = made(folder)
        subprocess.run([*TEST, "--no-run"], check=True)
        raw = os.path.join(folder, "samples.json")
        settings = {"PALISADE_LAYERS_OUT": raw, "PALISADE_LAYER": layer, "PALISADE_PYTHON": python, "PALISADE_SAMPLES": samples}
        subprocess.run(TEST, check=True, env={**os.environ, **settings})
        with open(raw, encoding="utf-8") as file:
            taken = json.load(file)
    for name, times in taken.items():
        times = sorted(times)
        middle, target = statistics.median(times), TARGETS_MS.get(name)
        verdict = f"target p50 <= {target} ms: {'held' if middle <= target else 'MISSED'}" if target else ""
        last = times[min(len(times) - 1, int(len(times) * 0.99))]
        print(f"{name:22} p50 {middle:8.3f} ms  p99 {last:8.3f} ms  {len(times)} samples  {verdict}".rstrip())
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"machine": platform.platform(), "targets_p50_ms": TARGETS_MS, "samples_ms": taken}, file)


if __name__ == "__main__":
    main()
