"""Plays the guest for a driver, without a sandbox: a socketpair on descriptor 3, files on 1 and 2.

Every runtimes/*/test_driver.py uses it. `Player` is one driver process and the far end of its channel; `Language` is what
a folder's runtime.toml says, for drivers that are started by it alone; `DriverTests` are the promises of docs/DRIVERS.md
that every driver keeps, told with a few words of each language.
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile

DEADLINE_S = 30
DONE_FIELDS = "id status exit_code message line column repr json mime near".split()
# Python ignores two signals that programs expect to be killed by; 3 is where a driver looks for its channel.
LAUNCH = (
    "import os,signal,sys; signal.signal(13, 0); signal.signal(25, 0); fd = int(sys.argv[1]); os.dup2(fd, 3); "
    "fd == 3 or os.close(fd); os.execv(sys.argv[2], sys.argv[2:])"
)
# What breaks out of quotes, of escapes and of encodings somewhere.
PIECES = ["a", '"', "'", "\\", "\n", "\r", "\t", " ", "ü", "é", "\u0300", "€", "😀", "\u2028", "\x01", "\x7f", "$x", "#{x}", "%s", "{", "}", "[", "]",
          "u0041", "\\u0041", "`id`", "</script>"]


class Player:
    """One driver process and the far end of its channel."""

    def __init__(self, command, workspace, name, env=None):
        self.workspace = workspace
        self.source = os.path.join(workspace, name)
        self.host, theirs = socket.socketpair()
        self.host.settimeout(DEADLINE_S)
        fd = theirs.detach()
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", LAUNCH, str(fd), *command],
            stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err, pass_fds=[fd], cwd=workspace,
            env={"HOME": workspace, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **(env or {})}, start_new_session=True,
        )
        os.close(fd)
        self.buffer = b""

    def send(self, *fields):
        data = b"".join(field.encode("utf-8", "surrogateescape") + b"\0" for field in fields)
        self.host.sendall(b"%d\0" % len(fields) + data)

    def receive(self):
        """The next message, or None at the end of the channel."""
        while True:
            head, _, rest = self.buffer.partition(b"\0")
            if head.isdigit() and rest.count(b"\0") >= int(head):
                *fields, self.buffer = rest.split(b"\0", int(head))
                return [field.decode() for field in fields]
            part = self.host.recv(1 << 16)
            if not part:
                return None
            self.buffer += part

    def write(self, code):
        with open(self.source, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(code)

    def order(self, code="", mode="last", run_id="r1", stdin="", fields=(), args=()):
        """Sends a run; without code the driver reads the file. `fields` are the variables as its runtime wants them."""
        self.send("run", run_id, mode, self.source, code, stdin, str(len(fields)), *fields, *args)

    def give(self, variables):
        """Sends the environment of the run that follows."""
        self.send("given", *(part for pair in variables.items() for part in pair))

    def done(self):
        """What the run said at its end; `shown` has what it showed until then."""
        self.shown = []
        message = self.receive()
        while message is not None and message[0] != "done":
            if message[0] == "display":
                self.shown.append(message[1:])
            message = self.receive()
        return None if message is None else dict(zip(DONE_FIELDS, message[1:]))

    def streams(self):
        texts = []
        for file in (self.out, self.err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
        return texts

    def end(self):
        """(exit status, stdout, stderr) once the process is gone."""
        try:
            return (self.process.wait(DEADLINE_S), *self.streams())
        finally:
            self.kill()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for end in (self.host, self.out, self.err):
            end.close()


def as_json(variables):
    """Variables for runtimes that want one JSON object."""
    return [] if variables is None else [json.dumps(variables, ensure_ascii=False)]


def as_shell(variables):
    """Variables for runtimes that want them flat."""
    fields = []
    for name, value in (variables or {}).items():
        if value is None:
            fields += [name, "u", "0"]
        elif isinstance(value, list) and not any(isinstance(item, (list, dict)) for item in value):
            fields += [name, "a", str(len(value)), *map(scalar, value)]
        elif isinstance(value, dict) and not any(isinstance(item, (list, dict)) for item in value.values()):
            pairs = [part for key, item in value.items() for part in (key, scalar(item))]
            fields += [name, "m", str(len(pairs)), *pairs]
        elif isinstance(value, (list, dict)):
            fields += [name, "j", "1", json.dumps(value)]
        else:
            fields += [name, "s", "1", scalar(value)]
    return fields


def scalar(value):
    return value if isinstance(value, str) else json.dumps(value)


class Language:
    """What a folder says, with the interpreter that is found here; `None` from `find` when there is none."""

    def __init__(self, folder, definition, interpreter):
        self.folder, self.definition = folder, definition
        fill = {"{interpreter}": interpreter, "{folder}": folder, "{out}": os.path.join(folder, "not-written")}
        self.probe = json.loads(subprocess.check_output(
            filled(definition["interpreter"]["probe"], fill), env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, cwd="/"))
        self.fill = {"{executable}": self.probe["executable"], "{driver}": os.path.join(folder, definition["drive"]["driver"]),
                     "{check}": os.path.join(folder, definition.get("check", {}).get("script", ""))}
        self.env = {**definition.get("env", {}), **self.probe["env"]}
        self.flatten = {"json": as_json, "shell": as_shell}[definition["drive"]["variables"]]

    @classmethod
    def find(cls, folder):
        import tomllib

        with open(os.path.join(folder, "runtime.toml"), "rb") as file:
            definition = tomllib.load(file)
        found = [path for path in map(shutil.which, definition["interpreter"]["commands"]) if path]
        return cls(folder, definition, found[0]) if found else None

    def takes_given(self):
        """Whether the driver sets what a run is given; else the interpreter is started with it."""
        return self.definition["environment"]["given"] == "message"

    def start(self, workspace, given=None):
        env = {**self.env, **({} if self.takes_given() else given or {})}
        return Player(filled(self.definition["drive"]["command"], self.fill), workspace, self.definition["source"], env)

    def check(self, source):
        """What the check says of a file: a list of messages."""
        command = filled(self.definition["check"]["command"], {**self.fill, "{source}": source})
        done = subprocess.run(command, capture_output=True, cwd=os.path.dirname(source), timeout=DEADLINE_S,
                              env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent", **self.env})
        assert done.returncode == 0, done
        words, messages = done.stdout.decode().split("\0"), []
        while len(words) > 1:
            count = int(words[0])
            messages.append(words[1:1 + count])
            del words[:1 + count]
        return messages


def filled(command, values):
    def fill(part):
        for name, value in values.items():
            part = part.replace(name, value)
        return part

    return [fill(part) for part in command]


class DriverTests:
    """The promises that every driver keeps in mode `last`. A language gives its folder and a few programs.

    hello, exit_7:  print 42; end with status 7.
    show_args:      print each argument on a line of its own.
    show_texts:     print each item of the list `texts`, each followed by a character 2 and a newline.
    show_numbers:   print each item of the list `numbers` on a line of its own, all digits of integers.
    show_given:     print the environment variable GIVEN, then what `printenv GIVEN` prints as a child process.
    fails:          (program, line, part of the message) of a program that fails while it runs.
    broken:         (program, line) of a program that cannot be read.
    speaks:         writes to every descriptor above 2 that it can, then ends with status 6; None if the language cannot.
    fails_status:   the exit status of a program that fails.
    broken_status:  the exit status of one that cannot be read, where it is another.
    """

    folder = None
    speaks = None
    fails_status = 1
    broken_status = None

    @classmethod
    def setUpClass(cls):
        cls.language = Language.find(cls.folder)

    def setUp(self):
        if self.language is None:
            self.skipTest("no interpreter for %s is installed" % os.path.basename(self.folder))

    def guest(self, given=None):
        workspace = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, workspace, True)
        guest = self.language.start(workspace, given)
        self.addCleanup(guest.kill)
        return guest

    def fresh(self, code, variables=None, args=(), given=None):
        """(status, stdout, stderr, done or None) of one run."""
        guest = self.guest(given)
        guest.write(code)
        if given and self.language.takes_given():
            guest.give(given)
        guest.order(fields=self.language.flatten(variables), args=args)
        status, out, err = guest.process.wait(DEADLINE_S), *guest.streams()
        guest.host.setblocking(False)
        try:
            done = guest.done()
        except BlockingIOError:
            done = None
        return status, out, err.replace(guest.workspace, "W"), done

    def test_prints_and_ends_with_zero(self):
        self.assertEqual(self.fresh(self.hello)[:3], (0, "42\n", ""))

    def test_exit_status_is_the_programs(self):
        self.assertEqual(self.fresh(self.exit_7)[:3], (7, "", ""))

    def test_arguments_arrive_as_they_are(self):
        args = ["a b", "ü€😀", "", "-x", "$HOME", "'\"\\"]
        self.assertEqual(self.fresh(self.show_args, args=args)[1].splitlines(), args)

    def test_what_is_given_is_in_the_environment_of_the_program_and_its_children(self):
        value = "ü€😀 '\"\\ $HOME `id` #{x} %s"
        given = {"EMPTY": "", "GIVEN": value, "PATH": "/nowhere:/usr/bin:/bin"}
        self.assertEqual(self.fresh(self.show_given, given=given)[:3], (0, (value + "\n") * 2, ""))

    def test_a_path_that_leads_nowhere_does_not_disturb_the_driver(self):
        code, line, _ = self.fails
        done = self.fresh(code, given={"PATH": "/nowhere"})[3]
        self.assertEqual((done["status"], done["line"]), ("error", str(line)))

    def test_hostile_text_arrives_as_it_is(self):
        chance = random.Random(7)
        texts = ["".join(chance.choice(PIECES) for _ in range(chance.randint(0, 12))) for _ in range(150)]
        status, out, err, done = self.fresh(self.show_texts, {"texts": texts})
        self.assertEqual((status, err, out.split("\x02\n")[:-1]), (0, "", texts))

    def test_integers_keep_their_digits(self):
        numbers = [sign * (1 << bits) + by for bits in (31, 32, 53, 62, 63, 64, 100) for sign in (1, -1) for by in (-1, 0, 1)]
        status, out, err, done = self.fresh(self.show_numbers, {"numbers": numbers})
        self.assertEqual((status, err, list(map(int, out.split()))), (0, "", numbers))

    def test_an_error_is_told_with_its_line(self):
        code, line, words = self.fails
        status, out, err, done = self.fresh(code)
        self.assertEqual((status, done["status"], done["line"]), (self.fails_status, "error", str(line)), (err, done))
        self.assertIn(words, done["message"])
        self.assertIn(words, err)
        self.assertNotIn("driver", err)

    def test_a_program_that_cannot_be_read_is_told_with_its_line(self):
        code, line = self.broken
        status, out, err, done = self.fresh(code)
        self.assertEqual((status, done["status"], done["line"]), (self.broken_status or self.fails_status, "error", str(line)), (err, done))

    def test_forged_messages_do_not_disturb_the_end(self):
        # A language that cannot name a descriptor cannot forge anything.
        if self.speaks is not None:
            self.assertEqual(self.fresh(self.speaks)[0], 6)

    def test_a_large_order_arrives_in_pieces(self):
        args = ["x" * 100_000, "end"]
        self.assertEqual(self.fresh(self.show_args, args=args)[1].splitlines(), args)

    def test_end_of_channel_ends_an_idle_driver(self):
        guest = self.guest()
        self.assertEqual(guest.receive(), ["ready"])
        guest.host.shutdown(socket.SHUT_WR)
        self.assertEqual(guest.end()[0], 0)

    def test_the_check_names_the_line_and_runs_nothing(self):
        workspace = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, workspace, True)
        source = os.path.join(workspace, self.language.definition["source"])
        for code, expected in ((self.hello, []), (self.exit_7, []), (self.broken[0], ["error", str(self.broken[1])])):
            with open(source, "w") as file:
                file.write(code)
            said = [message[:2] for message in self.language.check(source) if message[0] == "error"]
            self.assertEqual(said[0] if said else [], expected)

    def test_probe_names_only_what_the_interpreter_needs(self):
        self.assertTrue(os.access(self.language.probe["executable"], os.X_OK))
        self.assertRegex(self.language.probe["version"], r"^\d+\.\d+")
        for folder in self.language.probe["binds"]:
            self.assertTrue(os.path.exists(folder))
            self.assertNotIn(folder, ("/", "/home", "/root", "/etc", os.path.expanduser("~")))
