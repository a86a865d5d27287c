#!/usr/bin/env python3
"""Checks the licences and sources of all dependencies against deny.toml: scripts/check-licences.py

A part of what cargo-deny checks, for machines without it: every licence expression is satisfied by the allow-list
(with the exceptions of deny.toml), and every package comes from this repository or the default registry.
"""

import json
import re
import subprocess
import sys
import tomllib


def satisfied(expression, allowed):
    """Whether an SPDX expression is true when exactly the allowed licences are."""
    # Old manifests separate alternatives by a slash.
    text = expression.replace("/", " OR ")
    tokens = re.findall(r"\(|\)|[^\s()]+(?:\s+WITH\s+[^\s()]+)?", text)
    words = {"OR": "or", "AND": "and", "(": "(", ")": ")"}
    return bool(eval(" ".join(words.get(token, str(token in allowed)) for token in tokens), {"__builtins__": {}}))


def main():
    with open("deny.toml", "rb") as file:
        rules = tomllib.load(file)
    licences = rules["licenses"]
    exceptions = {one.get("crate", one.get("name")): one["allow"] for one in licences.get("exceptions", [])}
    platforms = [word for target in rules["graph"]["targets"] for word in ("--filter-platform", target)]
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features", *platforms]
    listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    known = {None} | {f"registry+{url}" for url in rules["sources"]["allow-registry"]}
    wrong = []
    packages = json.loads(listed.stdout)["packages"]
    for package in packages:
        name = f"{package['name']} {package['version']}"
        allowed = set(licences["allow"]) | set(exceptions.get(package["name"], []))
        # Packages of this repository are its own.
        if package["source"] and not satisfied(package["license"] or "none", allowed):
            wrong.append(f"{name}: licence {package['license']!r} is not allowed by deny.toml")
        if package["source"] not in known:
            wrong.append(f"{name}: comes from {package['source']}")
    print("\n".join(wrong) or f"{len(packages)} packages, all allowed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
