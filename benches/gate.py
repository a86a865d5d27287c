"""What the gate costs a warm run: `palisade mcp` with a policy that has limits and with quotas, beside one without any.
A third server, again without any, shows how far two equal servers are apart.

Usage: gate.py BINARY RESULTS.json [SAMPLES]

All servers stay; the samples alternate, and the order rotates. Every sample is kept, in milliseconds.
"""

import json
import os
import platform
import statistics
import sys
import tempfile
import time

import mcp_stdio

RUNS = 400
WARM_UP = 30
# Between two samples, so that a spare is ready: the runs are warm ones.
PAUSE_S = 0.06
POLICY = {
    "version": "1",
    "default": "allow",
    "all_tools": {"limits": [{"counter": "calls", "window": "day", "max": 1000000}]},
    "tools": {
        "run": {
            "require": [{"path": "args.language", "op": "in", "value": ["python", "bash"]}],
            "limits": [{"counter": "runs", "window": "minute", "max": 100000}],
        }
    },
}
QUOTAS = "*=sandboxes:10;disk_mb:1000;parallel_runs:8;runs_per_minute:100000;cpu_s_per_day:100000"


def server(binary, settings):
    mcp_stdio.ENVIRONMENT = {"PATH": "/usr/bin:/bin", **settings}
    return mcp_stdio.Server(binary)


def quantiles(samples):
    ordered = sorted(samples)
    return {"p50": statistics.median(ordered), "p90": ordered[int(len(ordered) * 0.9)], "least": ordered[0]}


def main():
    binary, results = sys.argv[1], sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else RUNS
    with tempfile.TemporaryDirectory(prefix="palisade-bench-policies-") as folder:
        with open(os.path.join(folder, "measured.json"), "w", encoding="utf-8") as file:
            json.dump(POLICY, file)
        os.chmod(os.path.join(folder, "measured.json"), 0o644)
        bound = {"PALISADE_POLICY_FOLDER": folder, "PALISADE_POLICY_BIND": "*=measured", "PALISADE_QUOTA_FOR": QUOTAS}
        sides = {"none": server(binary, {}), "gate": server(binary, bound), "again": server(binary, {})}
        samples = {name: [] for name in sides}
        for number in range(WARM_UP + count):
            names = list(sides)
            first = number % len(names)
            for name in names[first:] + names[:first]:
                time.sleep(PAUSE_S)
                took = sides[name].timed_ms()
                if number >= WARM_UP:
                    samples[name].append(took)
        for side in sides.values():
            side.close()
    told = {name: quantiles(ones) for name, ones in samples.items()}
    gate_us = (told["gate"]["p50"] - told["none"]["p50"]) * 1000
    paired = [gate - none for gate, none in zip(samples["gate"], samples["none"])]
    control = [again - none for again, none in zip(samples["again"], samples["none"])]
    whole = {
        "machine": {"kernel": platform.release(), "cores": os.cpu_count()},
        "gate_us_p50": gate_us,
        "gate_us_p50_of_pairs": statistics.median(paired) * 1000,
        "control_us_p50": (told["again"]["p50"] - told["none"]["p50"]) * 1000,
        "control_us_p50_of_pairs": statistics.median(control) * 1000,
        "sides": told,
        "samples_ms": samples,
    }
    os.makedirs(os.path.dirname(results) or ".", exist_ok=True)
    with open(results, "w", encoding="utf-8") as file:
        json.dump(whole, file, indent=1)
        file.write("\n")
    for name, one in told.items():
        print(f"{name:5} p50 {one['p50']:.3f} ms, p90 {one['p90']:.3f} ms, least {one['least']:.3f} ms")
    print(f"gate: {gate_us:.0f} us at p50, {whole['gate_us_p50_of_pairs']:.0f} us in the middle pair")
    print(f"two equal servers: {whole['control_us_p50']:.0f} us, {whole['control_us_p50_of_pairs']:.0f} us")


if __name__ == "__main__":
    main()
