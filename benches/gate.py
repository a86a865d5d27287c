"""What the gate and the audit cost a warm run through `palisade mcp`, beside a server without either.

Usage: gate.py BINARY RESULTS.json [SAMPLES]

    plain   neither policy nor quotas nor audit
    audit   the audit alone
    gate    a policy with limits, and quotas
    rules   a policy of 200 rules, and the audit
    whole   the same with limits and quotas
    again   as plain: how far two equal servers are apart

All servers stay; the samples alternate, and the order rotates. Every sample is kept, in milliseconds.
"""

import json
import os
import platform
import statistics
import sys
import tempfile

import mcp_stdio

RUNS = 400
WARM_UP = 30
PAUSE_S = 0.05
LIMITS = {"all_tools": [{"counter": "calls", "window": "day", "max": 1000000}],
          "run": [{"counter": "runs", "window": "minute", "max": 100000}]}
QUOTAS = "*=sandboxes:10;disk_mb:1000;parallel_runs:8;runs_per_minute:100000;cpu_s_per_day:100000"
AUDIT_OFF = {"PALISADE_AUDIT_ENABLED": "false"}


def policy(rules, is_counted):
    """A policy with that many rules about `run`, and with limits."""
    require = [{"path": "args.language", "op": "in", "value": ["python", "bash"]}]
    deny = [{"path": "args.code", "op": "contains", "value": f"forbidden word {number}"} for number in range(rules - 1)]
    run, every = {"require": require, "deny_if": deny}, {}
    if is_counted:
        run["limits"], every["limits"] = LIMITS["run"], LIMITS["all_tools"]
    return {"version": "1", "default": "allow", "all_tools": every, "tools": {"run": run}}


def server(binary, settings):
    mcp_stdio.ENVIRONMENT = {"PATH": "/usr/bin:/bin", **settings}
    return mcp_stdio.Server(binary)


def bound(folder, name, rules, is_counted=True):
    path = os.path.join(folder, f"{name}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(policy(rules, is_counted), file)
    os.chmod(path, 0o644)
    settings = {"PALISADE_POLICY_FOLDER": folder, "PALISADE_POLICY_BIND": f"*={name}"}
    return {**settings, "PALISADE_QUOTA_FOR": QUOTAS} if is_counted else settings


def quantiles(samples):
    ordered = sorted(samples)
    return {"p50": statistics.median(ordered), "p90": ordered[int(len(ordered) * 0.9)], "least": ordered[0]}


def main():
    binary, results = sys.argv[1], sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else RUNS
    with tempfile.TemporaryDirectory(prefix="palisade-bench-policies-") as folder:
        sides = {
            "plain": server(binary, AUDIT_OFF),
            "audit": server(binary, {}),
            "gate": server(binary, {**AUDIT_OFF, **bound(folder, "small", 2)}),
            "rules": server(binary, bound(folder, "uncounted", 200, is_counted=False)),
            "whole": server(binary, bound(folder, "large", 200)),
            "again": server(binary, AUDIT_OFF),
        }
        runs = {name: side.timed_ms for name, side in sides.items()}
        samples = mcp_stdio.in_turns(runs, count, WARM_UP, PAUSE_S)
        for side in sides.values():
            side.close()
    told = {name: quantiles(ones) for name, ones in samples.items()}
    more = {}
    for name in sides:
        pairs = [one - plain for one, plain in zip(samples[name], samples["plain"])]
        at_p50 = (told[name]["p50"] - told["plain"]["p50"]) * 1000
        more[name] = {"us_at_p50": at_p50, "us_of_pairs_p50": statistics.median(pairs) * 1000}
    machine = {"kernel": platform.release(), "cores": os.cpu_count()}
    whole = {"machine": machine, "more_than_plain": more, "sides": told, "samples_ms": samples}
    os.makedirs(os.path.dirname(results) or ".", exist_ok=True)
    with open(results, "w", encoding="utf-8") as file:
        json.dump(whole, file, indent=1)
        file.write("\n")
    for name, one in told.items():
        cost = more[name]
        print(
            f"{name:6} p50 {one['p50']:.3f} ms, p90 {one['p90']:.3f} ms, least {one['least']:.3f} ms;"
            f" beside plain {cost['us_at_p50']:.0f} us, {cost['us_of_pairs_p50']:.0f} us in the middle pair"
        )


if __name__ == "__main__":
    main()
