"""Judges what the conformance suite wrote: judge.py FOLDER SCENARIOS LABEL [BASELINE]

One verdict per scenario. Without a baseline nothing may fail or warn. With one, exactly the checks it lists must fail
or warn, no more and no fewer, also in scenarios that the suite runs without scoring them.
"""

import json
import pathlib
import re
import sys

BAD = ("FAILURE", "WARNING")
ENTRY = re.compile(r"^  - ([a-z0-9-]+):(\S+)\s+# \S")


def read_baseline(path):
    expected = {}
    for line in path.read_text().splitlines():
        if not line.strip() or line.lstrip().startswith("#") or line == "server:":
            continue
        entry = ENTRY.match(line)
        if not entry:
            sys.exit(f"{path.name}: not `  - scenario:check # why`: {line}")
        expected.setdefault(entry[1], set()).add(entry[2])
    return expected


def read_results(folder):
    """Checks by scenario; the suite names folders server-SCENARIO-TIME."""
    found = {}
    for file in sorted(folder.glob("server-*/checks.json")):
        name = re.fullmatch(r"server-(.+?)-\d{4}-\d\d-\d\dT.*", file.parent.name)[1]
        found[name] = json.loads(file.read_text())
    return found


def faults(checks, expected):
    bad = {}
    for check in checks:
        if check["status"] in BAD:
            bad.setdefault(check["id"], f"{check['status'].lower()}: {check.get('errorMessage', 'no reason given')}")
    for name, reason in bad.items():
        if name not in expected:
            yield f"{name}: {reason}"
    for name in sorted(expected - bad.keys()):
        yield f"{name}: is in the baseline but does not fail: remove the line"


def main():
    folder, scenarios, label = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    expected = read_baseline(pathlib.Path(sys.argv[4])) if len(sys.argv) > 4 else {}
    found = read_results(folder)
    counts = {}
    for name, checks in found.items():
        for check in checks:
            counts[check["status"]] = counts.get(check["status"], 0) + 1
        wrong = list(faults(checks, expected.get(name, set())))
        for fault in wrong:
            print(f"FAILED {label}: {name}: {fault}")
        if not wrong:
            print(f"ok {label}: {name}")
    for name in sorted(expected.keys() - found.keys()):
        print(f"FAILED {label}: {name} is in the baseline but was not run")
    if len(found) != scenarios:
        print(f"FAILED {label}: {len(found)} scenarios were run instead of {scenarios}")
    told = ", ".join(f"{counts.get(status, 0)} {word}" for status, word in (
        ("SUCCESS", "passed"), ("FAILURE", "failed"), ("WARNING", "warned"), ("SKIPPED", "skipped")))
    listed = sum(map(len, expected.values()))
    print(f"==== {label}: checks: {told}; {len(found)} scenarios; {listed} lines in the baseline")


main()
