"""Runs a client against a server of its own over HTTP: served.py BINARY COMMAND...

The command finds the address and the token in its environment (SERVER_URL, SERVER_TOKEN). Afterwards the server must
end by itself when it is told to.
"""

import json
import os
import subprocess
import sys
import threading

START_S = 30
END_S = 30


class Served:
    """`palisade serve` on a free port of this machine."""

    def __init__(self, binary, *arguments, log="info"):
        listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
        command = [binary, "serve", *listen, *arguments]
        environment = {**os.environ, "PALISADE_LOG": log}
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, text=True)
        self.pid = self.process.pid
        alarm = threading.Timer(START_S, self.process.kill)
        alarm.start()
        self.said = []
        self.url = next((found for line in self.process.stderr if (found := self.address(line))), None)
        alarm.cancel()
        assert self.url, "the server did not start: " + "".join(self.said)
        # Read on, so that the server is never held up by its log.
        threading.Thread(target=self.said.extend, args=(self.process.stderr,), daemon=True).start()
        state = os.environ["PALISADE_STATE_DIR"]
        with open(os.path.join(state, "token")) as file:
            self.token = file.read().strip()
        assert self.token not in "".join(self.said), "the token is in the log"

    def address(self, line):
        self.said.append(line)
        return json.loads(line).get("url") if line.startswith("{") else None

    def end(self):
        """Gives the server's exit status."""
        self.process.terminate()
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def main():
    server = Served(sys.argv[1])
    environment = {**os.environ, "SERVER_URL": server.url, "SERVER_TOKEN": server.token}
    status = subprocess.run(sys.argv[2:], env=environment).returncode
    ended = server.end()
    if ended != 0:
        sys.stderr.writelines(server.said[-20:])
        print(f"FAILED the server of {sys.argv[-1]}: it ended with {ended}", flush=True)
        status = max(status, 1)
    return status


if __name__ == "__main__":
    sys.exit(main())
