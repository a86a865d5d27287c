"""Fetches an address and prints what came back.

    palisade run python --access NAME examples/fetch.py https://api.example.com/status

`[access.NAME]` of the configuration must allow the host: `egress = ["api.example.com:443"]`. Python takes the proxy from its
environment, so the program is the same as outside of a sandbox.
"""

import sys
import urllib.request

with urllib.request.urlopen(sys.argv[1], timeout=20) as answer:
    print(answer.status, answer.read(1000).decode().strip())
