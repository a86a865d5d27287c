"""Schemathesis against the admin API of a server given by served.py: requests made from its OpenAPI document, valid and
invalid ones. Every answer must be documented, and nothing that the document forbids may be accepted.

The requests are the same at each run. PALISADE_SEED=NUMBER makes others."""

import os
import subprocess
import sys
from urllib.parse import urlsplit

EXAMPLES_MAX = 20
SEED = os.environ.get("PALISADE_SEED", "1")
TIME_S_MAX = 240
# A well-formed cursor or name need not be one that exists, and such a request is refused with 400.
LEFT_OUT = "positive_data_acceptance"

address = urlsplit(os.environ["SERVER_URL"])
document = f"http://{address.netloc}/admin/v1/openapi.json"
command = [
    os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run", document,
    "-H", f"Authorization: Bearer {os.environ['SERVER_TOKEN']}",
    "--max-examples", str(EXAMPLES_MAX), "--phases", "examples,coverage,fuzzing", "--exclude-checks", LEFT_OUT,
    "--seed", SEED, "--request-timeout", "20", "--max-failures", "10", "--no-color",
]
done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIME_S_MAX)
tested = next((line.strip() for line in done.stdout.splitlines() if " generated" in line and line.strip()[:1].isdigit()), "no request was made")
if done.returncode == 0 and tested[:1].isdigit():
    print(f"ok admin API by schemathesis: {tested}")
else:
    print(done.stdout[-6000:], done.stderr[-2000:], file=sys.stderr)
    print(f"FAILED admin API by schemathesis: exit status {done.returncode}, {tested}")
    sys.exit(1)
