"""Plays the guest for driver.js (tests/drivers/player.py).

Run: `python3 runtimes/javascript/test_driver.py`. Programs are made ready by the palisade that PALISADE_BIN names
(or the last release build), as in a sandbox; without one, only what needs no preparation is tested.
PALISADE_TEST_NODE (paths joined by ":") replaces the search for interpreters.
"""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "..", "..", "tests", "drivers"))

import player  # noqa: E402
import proxies  # noqa: E402
from player import DEADLINE_S  # noqa: E402

DRIVER = os.path.join(FOLDER, "driver.js")
PROBE = os.path.join(FOLDER, "probe.js")
BUILT = os.path.join(FOLDER, "..", "..", "target", "release", "palisade")
PALISADE = os.environ.get("PALISADE_BIN") or (BUILT if os.path.exists(BUILT) else None)


def interpreters():
    given = os.environ.get("PALISADE_TEST_NODE")
    names = given.split(":") if given else [shutil.which("node"), "/usr/bin/node"]
    found = {}
    for name in names:
        if name and os.path.exists(name):
            path, major = subprocess.check_output(
                [name, "-p", "process.execPath + ' ' + process.versions.node.split('.')[0]"], text=True
            ).split()
            if int(major) >= 18:
                found[os.path.realpath(path)] = path
    return list(found.values())


class Guest(player.Player):
    def __init__(self, node, workspace, language="javascript"):
        self.language = language
        self.prepared = os.path.join(workspace, ".prepared")
        command = [node, "--experimental-vm-modules", DRIVER, self.prepared]
        super().__init__(command, workspace, "main.ts" if language == "typescript" else "main.js")

    def run(self, code, mode="last", variables=None, prepare=True, **more):
        self.write(code)
        if prepare and PALISADE:
            command = [PALISADE, "__parse", "prepare", self.language, mode, self.source, self.prepared]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.order(mode=mode, fields=player.as_json(variables), **more)


class DriverCase:
    node = None

    def guest(self, language="javascript"):
        workspace = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, workspace, True)
        guest = Guest(self.node, workspace, language)
        self.addCleanup(guest.kill)
        return guest

    def fresh(self, code, **more):
        guest = self.guest()
        guest.run(code, **more)
        done = guest.done()
        status, out, err = guest.end()
        return status, out, err.replace(guest.workspace, "W"), done

    def kept(self, guest, code, **more):
        guest.run(code, mode="keep", **more)
        return guest.done()

    def needs_palisade(self):
        if not PALISADE:
            self.skipTest("no palisade is built: set PALISADE_BIN")

    # -- what is shown --

    def test_display_shows_images_and_text_and_prints_the_rest(self):
        code = (
            "display(Buffer.from('89504e470d0a1a0a00', 'hex')); display(new Uint8Array([0xff, 0xd8, 0xff]));"
            "display('<svg/>x', 'image/svg+xml'); display('<svg ></svg>'); display('<b>x</b>'); display({ a: [1] }, 'application/json');"
            "display('words'); display({ a: 1 }); display(Buffer.from('x'))"
        )
        guest = self.guest()
        guest.run(code)
        guest.done()
        self.assertEqual(guest.shown, [
            ["image/png", "iVBORw0KGgoA", ""], ["image/jpeg", "/9j/", ""], ["image/svg+xml", "<svg/>x", ""],
            ["image/svg+xml", "<svg ></svg>", ""], ["text/html", "<b>x</b>", ""], ["application/json", '{"a":[1]}', ""],
        ])
        self.assertEqual(guest.end(), (0, "words\n{ a: 1 }\n<Buffer 78>\n", ""))

    def test_a_value_that_knows_how_displays_itself(self):
        make = "const own = (bundle) => ({ [Symbol.for('Jupyter.display')]() { return bundle } });\n"
        late = "new Promise((done) => setTimeout(done, 50, { 'text/html': '<i>' }))"
        cases = [
            ("own({ 'text/plain': 'p', 'text/html': '<b>' })", ["text/html", "<b>", ""]),
            ("own({ 'text/plain': 'p', 'application/vnd.x+json': { a: 1 } })", ["application/json", '{"a":1}', ""]),
            ("own({ 'image/png': 'iVBORw0KGgo=' })", ["image/png", "iVBORw0KGgo=", ""]),
            ("own({ 'image/png': Buffer.from('89504e470d0a1a0a', 'hex') })", ["image/png", "iVBORw0KGgo=", ""]),
            ("own(%s)" % late, ["text/html", "<i>", ""]),
            ("new (class { async [Symbol.for('Jupyter.display')]() { return { 'text/markdown': '#' } } })()", ["text/markdown", "#", ""]),
        ]
        for code, expected in cases:
            with self.subTest(code=code):
                guest = self.guest()
                done = self.kept(guest, make + code)
                self.assertEqual((done["status"], guest.shown, done["mime"]), ("ok", [expected], expected[0]))
                self.assertTrue(done["repr"])
                done = self.kept(guest, make + "display(%s)" % code)
                self.assertEqual((done["status"], guest.shown, done["repr"]), ("ok", [expected], ""))
                guest = self.guest()
                guest.run(make + "display(%s)" % code)
                self.assertEqual((guest.done()["status"], guest.shown), ("ok", [expected]))

    def test_a_value_that_fails_to_display_itself_is_only_a_value(self):
        guest = self.guest()
        bodies = ("throw 1", "return 7", "return null", "return {}", "return Promise.reject(1)", "return { then: 1 }", "return { 'text/html': 5 }")
        for body in bodies:
            with self.subTest(body=body):
                done = self.kept(guest, "var x = { a: 1, get [Symbol.for('Jupyter.display')]() { return () => { %s } } }; display(x); x" % body)
                self.assertEqual((done["status"], guest.shown, done["mime"]), ("ok", [], ""))
                self.assertIn("a: 1", done["repr"])
        self.assertEqual(guest.streams()[0].count("a: 1"), len(bodies))
        guest = self.guest()
        guest.run("({ [Symbol.for('Jupyter.display')]: () => new Promise(() => {}) })", mode="keep")
        time.sleep(0.3)
        guest.process.send_signal(signal.SIGINT)
        self.assertEqual(guest.done()["status"], "interrupted")
        self.assertEqual(self.kept(guest, "1")["repr"], "1")

    def test_displays_are_bounded_run_by_run_and_the_name_is_the_programs(self):
        guest = self.guest()
        for _ in range(2):
            self.kept(guest, "display('x'.repeat((2 << 20) + 1), 'text/html'); for (let n = 0; n < 20; n++) display(`<b>${n}</b>`)")
            self.assertEqual([content == "" for _, content, _ in guest.shown], [True] + [False] * 16 + [True] * 4)
        self.assertEqual(self.fresh("const display = (x) => console.log('mine', x); display(1)")[1], "mine 1\n")

    # -- a fresh run --

    def test_a_program_runs_with_and_without_preparation(self):
        for prepare in (True, False):
            status, out, err, done = self.fresh("console.log(6*7)", prepare=prepare)
            self.assertEqual((status, out, err, done["status"]), (0, "42\n", "", "ok"))
            status, out, err, done = self.fresh("import fs from 'fs'; await 1; console.log(typeof fs, typeof require)", prepare=prepare)
            self.assertEqual((status, out, err), (0, "object function\n", ""))
            status, out, err, done = self.fresh("return console.log(typeof module)", prepare=prepare)
            self.assertEqual((status, out), (0, "object\n"))

    def test_what_was_made_ready_is_taken_away(self):
        guest = self.guest()
        guest.run("console.log(require('fs').readdirSync('.'))")
        self.assertEqual(guest.end()[1], "[ 'main.js' ]\n")

    def test_errors_are_told_without_the_driver(self):
        cases = [
            ("\n  boom()", "ReferenceError: boom is not defined", "2", "3"),
            ("function f() {\n  throw new TypeError('t')\n}\nf()", "TypeError: t", "2", "9"),
            ("await 0\nnull.x", "TypeError: Cannot read properties of null (reading 'x')", "2", "6"),
            ("Promise.reject(new Error('r'))", "Error: r", "1", "16"),
            ("let a = (", "SyntaxError: Unexpected end of input", "1", "10"),
            ("const 'x' = 1", None, "1", "7"),
        ]
        for code, message, line, column in cases:
            for prepare in (True, False):
                with self.subTest(code=code, prepare=prepare):
                    status, out, err, done = self.fresh(code, prepare=prepare)
                    self.assertEqual((status, done["status"], done["line"], done["column"]), (1, "error", line, column))
                    self.assertIn(message or "SyntaxError", done["message"])
                    self.assertIn("W/main.js:" + line, err)
                    self.assertNotIn("driver", err)
                    self.assertNotIn("node:internal", err)

    def test_causes_and_properties_of_errors_are_shown(self):
        err = self.fresh("const e = new Error('outer', { cause: new Error('inner') }); e.code = 'E_X'; throw e")[2]
        self.assertIn("[cause]: Error: inner", err)
        self.assertIn("code: 'E_X'", err)
        self.assertTrue(err.endswith("}\n"), err)

    def test_thrown_values_that_are_no_errors(self):
        status, out, err, done = self.fresh("throw { a: 1 }")
        self.assertEqual((status, done["message"], done["line"]), (1, "Uncaught { a: 1 }", ""))

    def test_exit_codes(self):
        for code, status, kind in (("process.exit(5)", 5, "exit"), ("process.exitCode = 3", 3, "exit"), ("process.exit()", 0, "ok"),
                                   ("await new Promise(() => {})", 13, "exit")):
            found = self.fresh(code)
            self.assertEqual((found[0], found[3]["status"], found[3]["exit_code"]), (status, kind, str(status)), code)

    def test_listeners_of_the_program_are_obeyed(self):
        status, out, err, done = self.fresh("process.on('uncaughtException', (e) => console.log('caught', e.message)); setTimeout(() => console.log('on'), 5); throw new Error('m')")
        self.assertEqual((status, out), (0, "caught m\non\n"), err)
        status, out, err, done = self.fresh("process.on('exit', (c) => console.log('bye', c)); throw new Error('m')")
        self.assertEqual((status, out), (1, "bye 1\n"))

    def test_values(self):
        self.needs_palisade()
        cases = [
            ("1+1", "2", "2"), ("x = 3\nx;", "3", "3"), ("undefined", "", ""), ("let y = 2", "", ""), ("[1, 'ü', null, { k: true }]", "[ 1, 'ü', null, { k: true } ]", '[1,"ü",null,{"k":true}]'),
            ("NaN", "NaN", ""), ("(-0)", "-0", ""), ("10n", "10n", ""), ("new Date(0)", "1970-01-01T00:00:00.000Z", ""), ("[,1]", "[ <1 empty item>, 1 ]", ""),
            ("[undefined]", "[ undefined ]", ""), ("'\\ud800'", "'\\ud800'", ""), ("a = [1]; a.x = 1; a", "[ 1, x: 1 ]", ""), ("await 5", "5", "5"),
            ("(1, 2)", "2", "2"), ("({ get a() { return 1 } })", "{ a: [Getter] }", ""), ("const o = {}; o.o = o; o", "<ref *1> { o: [Circular *1] }", ""),
        ]
        for code, shown, as_json in cases:
            with self.subTest(code=code):
                done = self.fresh(code)[3]
                self.assertEqual((done["repr"], done["json"]), (shown, as_json))
        done = self.fresh("'ü'.repeat(1e6)")[3]
        self.assertTrue(9000 < len(done["repr"]) and len(done["repr"].encode()) <= 65536 and done["json"] == "")

    def test_variables(self):
        given = {"n": None, "t": True, "f": 1.5, "big": 2**64, "neg": -(2**60), "safe": 2**53 - 1, "u": "ü\u2028🐍\n\"\\", "l": [1, {"k": [2**70]}], "s": "99999999999999999999"}
        code = "console.log(n, t, f, big, neg, safe, u === 'ü\\u2028🐍\\n\"\\\\', l[1].k[0] === 2n ** 70n, s)"
        status, out, err, done = self.fresh(code, variables=given)
        self.assertEqual(out, "null true 1.5 18446744073709551616n -1152921504606846976n 9007199254740991 true true 99999999999999999999\n", err)

    def test_arguments_and_stdin(self):
        guest = self.guest()
        path = os.path.join(guest.workspace, "in")
        with open(path, "w") as file:
            file.write("zeile")
        guest.run("console.log(process.argv.slice(2), require('fs').readFileSync(0, 'utf8'))", stdin=path, args=["a b", ""])
        self.assertEqual(guest.end()[1], "[ 'a b', '' ] zeile\n")

    # -- the channel --

    def test_the_channel_is_not_inherited(self):
        code = "console.log(require('child_process').execSync('readlink /proc/self/fd/3; true', { stdio: ['ignore', 'pipe', 'ignore'] }).toString().includes('socket'))"
        self.assertEqual(self.fresh(code)[1], "false\n")

    def test_closing_or_replacing_the_channel_does_not_end_the_program(self):
        for code in ("require('fs').closeSync(3); console.log('still'); process.exit(4)",
                     "const fs = require('fs'); fs.closeSync(3); const f = fs.openSync('mine', 'w+'); console.log(fs.fstatSync(f).size ? 'spoilt' : 'still'); process.exit(4)"):
            guest = self.guest()
            guest.run(code)
            self.assertIsNone(guest.done())
            self.assertEqual(guest.end()[:2], (4, "still\n"))

    def test_end_of_channel_ends_an_idle_driver(self):
        guest = self.guest()
        self.assertEqual(guest.receive(), ["ready"])
        guest.host.shutdown(socket.SHUT_WR)
        self.assertEqual(guest.end()[0], 0)

    # -- a live interpreter --

    def test_state_stays(self):
        self.needs_palisade()
        guest = self.guest()
        self.assertEqual(self.kept(guest, "const x = 41; let f = () => x; class A { n = 1 }\nfunction g() { return 2 }")["status"], "ok")
        self.assertEqual(self.kept(guest, "x + 1")["json"], "42")
        self.assertEqual(self.kept(guest, "const x = 5; class A { n = 2 }; new A().n + x")["json"], "7")
        self.assertEqual(self.kept(guest, "import path, { sep as s } from 'path'; import * as os from 'node:os'\npath.sep + s + typeof os.cpus")["json"], '"//function"')
        self.assertEqual(self.kept(guest, "const { sep: q } = await import('path'); q + s")["json"], '"//"')
        self.assertEqual(self.kept(guest, "const late = await new Promise((r) => setTimeout(r, 5, 9)); late")["json"], "9")
        self.assertEqual(self.kept(guest, "export const e = late + 1; e")["json"], "10")
        self.assertEqual(self.kept(guest, "require('fs') && import.meta.url.slice(-7)")["json"], '"main.js"')
        self.assertEqual(self.kept(guest, "let nothing = 1")["repr"], "")
        self.assertEqual(self.kept(guest, "x", variables={"v": 3})["json"], "5")
        self.assertEqual(self.kept(guest, "v", variables={})["json"], "3")

    def test_errors_keep_the_state_and_name_their_place(self):
        self.needs_palisade()
        guest = self.guest()
        self.kept(guest, "let x = 1; function f() {\n  return boom\n}")
        done = self.kept(guest, "\n\n  f()", run_id="r9")
        self.assertEqual((done["id"], done["status"], done["message"], done["line"]), ("r9", "error", "ReferenceError: boom is not defined", "2"))
        done = self.kept(guest, "let y = 2;\n  null.z")
        self.assertEqual((done["status"], done["line"], done["column"]), ("error", "2", "8"))
        self.assertEqual(self.kept(guest, "await 0; throw new Error('late')")["message"], "Error: late")
        self.assertEqual(self.kept(guest, "let z = (")["line"], "1")
        self.assertEqual(self.kept(guest, "[x, y]")["json"], "[1,2]")
        self.assertEqual(self.kept(guest, "setTimeout(() => { throw new Error('stray') }, 1); await new Promise((r) => setTimeout(r, 50)); 3")["message"], "Error: stray")
        self.assertEqual(self.kept(guest, "x")["json"], "1")
        err = guest.streams()[1]
        self.assertNotIn("driver", err)
        self.assertNotIn("evalmachine", err)

    def test_exit_ends_the_run_and_not_the_session(self):
        guest = self.guest()
        done = self.kept(guest, "globalThis.x = 1; process.exit(4)")
        self.assertEqual((done["status"], done["exit_code"]), ("exit", "4"))
        self.assertEqual(self.kept(guest, "x")["json"], "1")
        self.kept(guest, "process.exitCode = 6")
        guest.send("close")
        self.assertEqual(guest.end()[0], 6)

    def test_each_kept_run_has_its_own_stdin(self):
        guest = self.guest()
        path = os.path.join(guest.workspace, "in")
        read = "let all = ''; for await (const part of process.stdin) all += part; all"
        for code in ("require('fs').readFileSync(0, 'utf8')", read):
            with open(path, "w") as file:
                file.write("one")
            self.assertEqual(self.kept(guest, code, stdin=path)["json"], '"one"')
        self.assertEqual(self.kept(guest, "require('fs').readFileSync(0, 'utf8')")["json"], '""')

    def test_a_kept_run_does_not_see_the_file_of_its_stdin(self):
        guest = self.guest()
        path = os.path.join(guest.workspace, "in")
        with open(path, "w") as file:
            file.write("one")
        code = "const fs = require('fs'); [fs.readdirSync('.').includes('in'), fs.readFileSync(0, 'utf8')]"
        self.assertEqual(self.kept(guest, code, stdin=path)["json"], '[false,"one"]')

    def test_a_failed_import_has_its_place_and_no_warning_of_node(self):
        for code, line, column in (
            ("let x = 1;\nimport { a } from './missing';\na;", "2", "19"),
            ("import {\n  a,\n} from 'no-such-package';\na;", "3", "8"),
            ("// é 😀\nimport 'no-such-package';", "2", "8"),
            ("let x = 1;\nconst m = await import('./missing.js');", "2", None),
            ("let x = 1;\nconst m = await import('no-such-package');", "2", None),
            ("let x = 1;\nconst m = require('no-such-package');", "2", "11"),
        ):
            guest = self.guest()
            guest.run(code)
            done = guest.done()
            self.assertEqual(done["line"], line, (code, done))
            if column:
                self.assertEqual(done["column"], column, (code, done))
            err = guest.end()[2]
            self.assertIn(f"main.js:{line}\n", err)
            self.assertNotIn("Warning", err)

    def test_a_failed_import_of_a_session_has_its_line(self):
        guest = self.guest()
        for code in ("let x = 1;\nimport './missing';", "let y = 1;\nimport 'no-such-package';", "\nawait import('no-such-package')"):
            self.assertEqual(self.kept(guest, code)["line"], "2", code)
        self.assertNotIn("Warning", guest.streams()[1])

    def test_the_place_of_a_failed_import_is_in_the_module_that_has_it(self):
        guest = self.guest()
        with open(os.path.join(guest.workspace, "helper.mjs"), "w") as file:
            file.write("export const a = 1;\nimport './gone.js';\n")
        guest.run("import { a } from './helper.mjs';\na;")
        self.assertEqual(guest.done()["line"], "")
        self.assertIn("helper.mjs:2\n", guest.end()[2])

    def test_what_is_given_is_in_the_environment(self):
        value = "ü€😀 '\"\\ $HOME"
        guest = self.guest()
        guest.give({"GIVEN": value, "EMPTY": ""})
        guest.run("const { GIVEN, EMPTY } = process.env; console.log(GIVEN, EMPTY); process.stdout.write(require('child_process').execFileSync('/usr/bin/printenv', ['GIVEN']))")
        self.assertEqual(guest.end(), (0, "%s \n%s\n" % (value, value), ""))

    def test_requests_go_through_the_proxies_that_a_run_was_given(self):
        if not shutil.which("openssl"):
            self.skipTest("no openssl makes a certificate")
        with proxies.Web() as web:
            guest = self.guest()
            given = {**web.variables(), "NODE_TLS_REJECT_UNAUTHORIZED": "0", "NODE_NO_WARNINGS": "1"}
            guest.give(given)
            guest.run(
                "const of = (name, url) => new Promise((resolve, reject) => require(name).get(url, (answer) => {"
                " let text = ''; answer.on('data', (part) => { text += part; }).on('end', () => resolve(text)); }).on('error', reject));"
                "(async () => { for (const scheme of ['http', 'https']) {"
                " console.log(await of(scheme, `${scheme}://origin.test/a?b`)); console.log(await (await fetch(`${scheme}://origin.test/c`)).text());"
                " await of(scheme, `${scheme}://exempt.test/`).catch((error) => console.log(error.code)); }"
                " await fetch('https://refused.test/').catch((error) => console.log(error.cause.message)); process.exit() })()"
            )
            status, out, err = guest.end()
        words = ["plain /a?b", "plain /c", "ENOTFOUND", "tls /a?b", "tls /c", "ENOTFOUND"]
        refused = "the proxy refused the connection to refused.test:443 with status 403"
        self.assertEqual((status, [line.replace("EAI_AGAIN", "ENOTFOUND") for line in out.splitlines()]), (0, [*words, refused]), err)
        seen = ["GET http://origin.test/a?b", "GET http://origin.test/c", "CONNECT origin.test:443", "CONNECT origin.test:443", "CONNECT refused.test:443"]
        self.assertEqual(web.seen, seen)

    def test_what_a_run_was_given_is_taken_back_however_it_ends(self):
        guest = self.guest()
        self.kept(guest, "process.env.OLD = 'old'; const run = require('child_process').spawnSync")
        look = "[process.env.GIVEN ?? null, process.env.OLD, run('/usr/bin/printenv', ['GIVEN', 'OLD']).stdout.toString()]"
        for code, status in (
            ("if (process.env.GIVEN !== 'secret' || process.env.OLD !== 'new') throw 1", "ok"),
            ("throw new Error('x')", "error"),
            ("let (", "error"),
            ("process.exit(3)", "exit"),
            ("console.log('on'); for (;;) {}", "interrupted"),
            ("delete process.env.GIVEN; process.env.OLD = 'mine'", "ok"),
            ("process.env = {}", "ok"),
        ):
            with self.subTest(code=code):
                guest.give({"GIVEN": "secret", "OLD": "new"})
                guest.run(code, mode="keep")
                end = time.monotonic() + DEADLINE_S
                while status == "interrupted" and "on" not in guest.streams()[0] and time.monotonic() < end:
                    select.select([], [], [], 0.01)
                if status == "interrupted":
                    guest.process.send_signal(signal.SIGINT)
                self.assertEqual(guest.done()["status"], status)
                if code != "process.env = {}":
                    self.assertEqual(self.kept(guest, look)["json"], '[null,"old","old\\n"]')
                with open("/proc/%d/environ" % guest.process.pid) as file:
                    self.assertNotIn("secret", file.read())

    def test_interrupt_keeps_the_state(self):
        guest = self.guest()
        self.kept(guest, "globalThis.x = 1")
        # The second says so in a later turn: Node drops a signal in the instant in which the first one ends.
        for code in ("console.log('on'); for (;;) {}",
                     "await new Promise((r) => setTimeout(r, 50)); console.log('on'); await new Promise(() => {})"):
            guest.process.send_signal(signal.SIGINT)  # idle: nothing to stop
            before = guest.streams()[0].count("on")
            guest.run(code, mode="keep")
            end = time.monotonic() + DEADLINE_S
            while guest.streams()[0].count("on") == before and time.monotonic() < end:
                select.select([], [], [], 0.01)
            guest.process.send_signal(signal.SIGINT)
            done = guest.done()
            self.assertEqual((done["status"], done["exit_code"]), ("interrupted", "130"))
            self.assertEqual(self.kept(guest, "x")["json"], "1")

    def test_a_last_run_may_follow(self):
        guest = self.guest()
        self.kept(guest, "globalThis.x = 8")
        guest.run("console.log(x); process.exitCode = 2")
        self.assertEqual(guest.end()[:2], (2, "8\n"))

    def test_typescript_stays_alive_too(self):
        self.needs_palisade()
        guest = self.guest("typescript")
        self.assertEqual(self.kept(guest, "enum E { A = 3 }\nconst x: number = E.A; interface I { a: 1 }")["status"], "ok")
        self.assertEqual(self.kept(guest, "import type { T } from 'nope'; (x as number) + E.A")["json"], "6")
        self.assertEqual(self.kept(guest, "let y: string = null!;\n  y.length")["column"], "5")

    def test_a_function_that_captures_errors_gets_them(self):
        capture = "process.setUncaughtExceptionCaptureCallback((error) => console.log('captured', error.message));"
        for end in ("throw new Error('q')", "setTimeout(() => { throw new Error('q'); })", "await null; throw new Error('q')"):
            if end.startswith("await") and not PALISADE:
                continue
            self.assertEqual(self.fresh(f"{capture} {end}")[:2], (0, "captured q\n"), end)

    # -- the probe --

    def test_probe(self):
        answer = json.loads(subprocess.check_output([self.node, PROBE], env={"HOME": "/root"}))
        self.assertEqual(answer["executable"], os.path.realpath(self.node))
        self.assertIn("fs", answer["modules"])
        for folder in answer["binds"]:
            self.assertNotIn(folder, ("/", "/home", "/root"))


def load_tests(loader, tests, pattern):
    suite = unittest.TestSuite()
    for number, node in enumerate(interpreters()):
        case = type("Driver%d" % number, (DriverCase, unittest.TestCase), {"node": node})
        suite.addTests(loader.loadTestsFromTestCase(case))
    return suite


if __name__ == "__main__":
    unittest.main()
