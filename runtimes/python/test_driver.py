"""Plays the guest for driver.py (tests/drivers/player.py).

Run: `python3 -m unittest runtimes/python/test_driver.py`. Every interpreter found on this machine that
the runtime supports is tested; PALISADE_TEST_PYTHON (paths joined by ":") replaces the search.
"""

import base64
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
from player import DEADLINE_S  # noqa: E402

DRIVER = os.path.join(FOLDER, "driver.py")
PROBE = os.path.join(FOLDER, "probe.py")


def interpreters():
    given = os.environ.get("PALISADE_TEST_PYTHON")
    names = given.split(":") if given else [shutil.which("python3"), "/usr/bin/python3"]
    found = {}
    for name in names:
        if name and os.path.exists(name):
            ask = [name, "-c", "import sys; print(sys.executable, *sys.version_info[:2])"]
            path, major, minor = subprocess.check_output(ask, text=True).split()
            if (int(major), int(minor)) >= (3, 9):
                found[os.path.realpath(path)] = path
    return list(found.values())


class Guest(player.Player):
    def __init__(self, python, driver, workspace):
        command = [python, "-S", "-X", "utf8", driver]
        super().__init__(command, workspace, "main.py", {"PYTHONDONTWRITEBYTECODE": "1"})

    def run(self, code, variables=None, write=True, name="main.py", **more):
        self.source = os.path.join(self.workspace, name)
        if write:
            self.write(code)
        self.order(code, fields=player.as_json(variables), **more)


class DriverCase:
    python = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.pyc = os.path.join(cls.folder, "driver.pyc")
        env = {"HOME": cls.folder}
        cls.probe = json.loads(subprocess.check_output([cls.python, PROBE, DRIVER, cls.pyc], env=env))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def guest(self, driver=None):
        workspace = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, workspace, True)
        guest = Guest(self.python, driver or self.pyc, workspace)
        self.addCleanup(guest.kill)
        return guest

    def fresh(self, code, **more):
        guest = self.guest()
        guest.run(code, **more)
        done = guest.done()
        status, out, err = guest.end()
        return status, out, err, done

    def plain(self, code, *args):
        workspace = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, workspace, True)
        path = os.path.join(workspace, "main.py")
        with open(path, "w") as file:
            file.write(code)
        done = subprocess.run([self.python, "-X", "utf8", path, *args], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env={"HOME": workspace}, cwd=workspace)
        return done.returncode, done.stdout.replace(workspace, "W"), done.stderr.replace(workspace, "W")

    def same_as_plain(self, code, *args):
        guest = self.guest()
        guest.run(code, args=args)
        done = guest.done()
        status, out, err = guest.end()
        seen = (status, out.replace(guest.workspace, "W"), err.replace(guest.workspace, "W"))
        self.assertEqual(seen, self.plain(code, *args))
        return done

    def kept(self, guest, code, **more):
        guest.run(code, mode="keep", write=False, **more)
        return guest.done()

    # -- what people write in notebooks --

    def test_tracebacks_of_notebook_programs_are_those_of_the_program_as_written(self):
        for code, line, text in (
            ("x = 1\n%cd nowhere\n", "2", "%cd nowhere"),
            ("x = 1\nif x:\n    %unheard of\n", "3", "%unheard of"),
            ("%pip install no-such-package-here", "1", "%pip install no-such-package-here"),
            ("%matplotlib inline\ndef f():\n    return 1/0\n%time f()", "3", "return 1/0"),
            ("%%bash\nexit 3", "1", "%%bash"),
            ("   x = 1\n   y = x/0\n", "2", "y = x/0"),
            ("with open('m.py', 'w') as f: f.write('1/0')\n%run m.py", "2", "%run m.py"),
        ):
            for mode in ("last", "keep"):
                with self.subTest(code=code, mode=mode):
                    guest = self.guest()
                    guest.run(code, mode=mode)
                    done = guest.done()
                    err = guest.end()[2] if mode == "last" else guest.streams()[1]
                    self.assertEqual((done["status"], done["line"]), ("error", line))
                    self.assertIn(text, err)
                    for word in ("<notebook>", "<driver>", "<displays>", "__notebook__", "runpy"):
                        self.assertNotIn(word, err)

    def test_columns_of_an_indented_program_are_those_of_the_program_as_written(self):
        self.assertEqual(self.fresh("   x = 1\n   y = = 2")[3]["column"], "8")
        if sys.version_info >= (3, 11):
            self.assertEqual(self.fresh("   x = 1\n   y = x/0")[3]["column"], "8")

    def test_a_missing_module_brings_the_names_that_resemble_it(self):
        guest = self.guest()
        guest.run("import jsno")
        self.assertEqual((guest.done()["near"], guest.end()[0]), ("json", 1))
        for code, near in (("import qqqqqqqq", None), ("import concurrent.futurse", "concurrent.futures"), ("raise ImportError", None)):
            self.assertEqual(self.fresh(code)[3].get("near"), near)

    def test_a_plain_program_loads_nothing_of_this(self):
        code = "import sys\nprint([m for m in ('ast', 're', 'json', 'difflib', 'pkgutil') if m in sys.modules])"
        self.assertEqual(self.fresh(code)[1], "[]\n")

    def test_a_display_with_an_id_is_shown_once_as_it_was_at_the_end(self):
        code = (
            "class H:\n    def __init__(s, t): s.t = t\n    def _repr_html_(s): return s.t\n"
            "h = display(H('a'), display_id=True)\nh.update(H('b'))\ndisplay(H('c'), display_id='n')\n"
            "from IPython.display import update_display, Markdown, Latex, display as d\nupdate_display(H('d'), display_id='n')\n"
            "d(Markdown('# m')); d(Latex('$x$'))\n"
        )
        _, shown, _ = self.shown(code)
        self.assertEqual([(mime, content) for mime, content, *_ in shown],
                         [("text/markdown", "# m"), ("text/latex", "$x$"), ("text/html", "b"), ("text/html", "d")])

    def test_a_semicolon_hides_the_value(self):
        for code, value in (("5;", ""), ("5;  # five", ""), ("'a;#'", "'a;#'"), ("x = 1;\nx", "1"), ("5 # no;", "5")):
            with self.subTest(code=code):
                self.assertEqual(self.fresh(code)[3]["repr"], value)

    def test_notebook_lines_are_understood_and_keep_their_numbers(self):
        for code, output in [
            ("%matplotlib inline\n%config InlineBackend.figure_format = 'retina'\nprint(1)", "1\n"),
            ("x = 5\n!echo $x {x * 2} $((1+1))", "5 10 2\n"),
            ("if True:\n    !echo a \\\n  b\nprint('c')", "a b\nc\n"),
            ("lines = !printf 'a\\nb'\nprint(lines)", "['a', 'b']\n"),
            ("%%bash\nfor i in 1 2; do echo $i; done", "1\n2\n"),
            ("%cd /tmp\nimport os\nprint(os.getcwd())", "/tmp\n/tmp\n"),
            ("text = \'\'\'\n%not a magic\n\'\'\'\n!echo in\nprint(text)", "in\n\n%not a magic\n\n"),
            ("    a = 1\n    if a:\n        print('indented')", "indented\n"),
        ]:
            with self.subTest(code=code):
                status, out, err, done = self.fresh(code)
                self.assertEqual((status, out, err, done["status"]), (0, output, "", "ok"))

    def test_an_installation_of_what_is_there_says_so_as_pip_does(self):
        for code in ("%pip install pip", "x = 1\npip install -q pip", "!pip install 'pip>1' > /dev/null 2>&1"):
            with self.subTest(code=code):
                status, out, err, done = self.fresh(code)
                self.assertRegex(out, r"^Successfully installed pip-\d[\w.]*\n$")
                self.assertEqual((status, err, done["status"]), (0, "", "ok"))

    def test_notebook_commands_that_cannot_work_say_what_to_do(self):
        for code, line, words in [
            ("x = 1\n!pip install no-such-package", "2", "a sandbox has no network"),
            ("pip install no-such-package", "1", "a sandbox has no network"),
            ("!pip install -r requirements.txt", "1", "cannot take -r here"),
            ("\n\n%store x", "3", "not available here"),
            ("%%javascript\nalert(1)", "1", "not available here"),
        ]:
            with self.subTest(code=code):
                status, out, err, done = self.fresh(code)
                self.assertEqual((status, done["status"], done["line"]), (1, "error", line))
                self.assertIn(words, done["message"])

    def test_an_error_of_the_program_stays_what_it_is(self):
        for code in ("x = [\n1,", "%matplotlib inline\ndef f(:\n  pass", "print('a'"):
            status, out, err, done = self.fresh(code)
            self.assertEqual((status, done["status"]), (1, "error"))
            self.assertIn("SyntaxError", done["message"])
        _, _, _, done = self.fresh("%matplotlib inline\nprint(1)\ndef f(:\n  pass")
        self.assertEqual(done["line"], "3")

    def test_time_of_a_cell_is_told_after_its_value(self):
        status, out, err, done = self.fresh("%%time\nsum(range(10))")
        self.assertEqual((status, done["repr"]), (0, "45"))
        self.assertIn("wall time", out)

    def test_ipython_display_works_without_ipython(self):
        code = ("from IPython.display import display, HTML, Markdown, Latex\n"
                "display(HTML('<b>x</b>'))\nshown = display(Markdown('a'), display_id=True)\nshown.update(Markdown('b'))\n"
                "display(Latex('$x$'))")
        guest = self.guest()
        guest.run(code)
        guest.done()
        seen = [shown[:2] for shown in guest.shown]
        self.assertEqual(seen, [["text/html", "<b>x</b>"], ["text/latex", "$x$"], ["text/markdown", "b"]])

    def test_a_semicolon_hides_the_value_and_an_underscore_is_the_last_one(self):
        _, _, _, done = self.fresh("6 * 7;")
        self.assertEqual(done["repr"], "")
        guest = self.guest()
        self.kept(guest, "6 * 7")
        self.assertEqual(self.kept(guest, "_ + 1")["repr"], "43")
        self.kept(guest, "_ = 'mine'\n5")
        self.assertEqual(self.kept(guest, "_")["repr"], "'mine'")

    # -- a fresh run --

    def test_prints_and_ends_with_zero(self):
        status, out, err, done = self.fresh("print(6*7)")
        self.assertEqual((status, out, err), (0, "42\n", ""))
        self.assertEqual((done["status"], done["repr"], done["json"]), ("ok", "", ""))

    def test_a_rehearsal_says_nothing_and_leaves_nothing(self):
        code = "import os, sys\nprint(sorted(globals()), sys.modules['__main__'].__dict__ is globals(), sorted(os.listdir('/proc/self/fd')), list(os.environ), [line.partition('=')[0] for line in os.popen('env')])\n7"
        plain = self.fresh(code)
        guest = self.guest()
        for _ in range(3):
            guest.send("rehearse")
        guest.run(code)
        done = guest.done()
        self.assertEqual((*guest.end(), done), plain)
        kept = self.guest()
        kept.send("rehearse")
        self.assertEqual(self.kept(kept, "x = 5\nx")["repr"], "5")
        self.assertEqual(self.kept(kept, "x + 1")["repr"], "6")

    def test_runs_from_source_as_well_as_compiled(self):
        guest = self.guest(DRIVER)
        guest.run("print(__name__)")
        self.assertEqual(guest.end()[:2], (0, "__main__\n"))

    def test_empty_code_field_means_the_file(self):
        guest = self.guest()
        source = os.path.join(guest.workspace, "main.py")
        with open(source, "w") as file:
            file.write("print('from file')\n1")
        guest.send("run", "r", "last", source, "", "", "0")
        self.assertEqual(guest.done()["repr"], "1")
        self.assertEqual(guest.end()[1], "from file\n")

    def test_imports_nothing_for_a_plain_program(self):
        plain = self.plain("import sys; print(*sorted(sys.modules))")[1]
        status, out, err, done = self.fresh("import sys; print(*sorted(sys.modules))")
        self.assertEqual(set(out.split()) - set(plain.split()), set())

    def test_namespace_is_that_of_a_script(self):
        code = (
            "import sys\n"
            "names = {k: v for k, v in globals().items() if k not in ('__builtins__', '__loader__', '__file__', 'names')}\n"
            "print(sorted(names.items(), key=str), type(__builtins__), type(__loader__), __file__ == sys.argv[0])\n"
            "print(list(globals()), sys.argv[1:], sys.path[0] == __file__.rpartition('/')[0])\n"
            "print(sys.modules['__main__'].__dict__ is globals(), sys.exc_info(), __spec__)\n"
        )
        self.same_as_plain(code, "a b", "", "ü")

    def test_docstring_future_and_annotations(self):
        self.same_as_plain('"""doc"""\nfrom __future__ import annotations\nx: nope = 1\nprint(__doc__, __annotations__)\n')
        self.same_as_plain("def f(x: int): pass\nprint(f.__annotations__)\n")
        done = self.same_as_plain("'only a docstring'")
        self.assertEqual(done["json"], '"only a docstring"')

    def test_inspection_pickle_dataclasses_and_hints(self):
        self.same_as_plain(
            "import inspect, pickle, dataclasses, typing\n"
            "def f(a: 'C') -> int:\n    return 1\n"
            "@dataclasses.dataclass\nclass C:\n    x: 'int' = 1\n"
            "print(inspect.getsource(f), inspect.getsource(C))\n"
            "print(pickle.loads(pickle.dumps(C(3))), pickle.loads(pickle.dumps(f)) is f, typing.get_type_hints(f))\n"
        )

    def test_multiprocessing_by_every_start_method(self):
        for method in ("fork", "spawn", "forkserver"):
            status, out, err, done = self.fresh(
                "import multiprocessing as mp\n"
                "def double(x): return x * 2\n"
                "if __name__ == '__main__':\n"
                "    with mp.get_context(%r).Pool(2) as pool:\n"
                "        print(pool.map(double, [1, 2, 3]))\n" % method
            )
            self.assertEqual((status, out), (0, "[2, 4, 6]\n"), (method, err))

    def test_threads_and_atexit_end_as_in_a_script(self):
        self.same_as_plain(
            "import threading, time, atexit, sys\n"
            "atexit.register(lambda: print('bye'))\n"
            "def late():\n    time.sleep(0.2); print('late')\n"
            "threading.Thread(target=late).start()\n"
            "class D:\n    def __del__(self): print('del')\n"
            "d = D()\nprint('end')\nsys.exit(3)\n"
        )

    def test_what_runs_at_the_end_finds_the_names_of_the_program(self):
        for code in (
            "import os\nclass A:\n    def __del__(self): os.write(1, b'del ' + word)\nword = b'w'\na = A()\nprint('end')\n",
            "class A:\n    def __del__(self): print(len(kept), name)\nkept = [A()]\nkept.append(kept)\nname = 'n'\n",
            "import sys\nclass A:\n    def __del__(self): print('held elsewhere')\nsys.held = A()\n",
            "import random\nclass A:\n    def __del__(self): print('by a module', random is not None)\nrandom.held = A()\na = random.held\n"
            "del random.held\nx = [[i] for i in range(5000)]\n",
        ):
            status, out, err = self.plain(code)
            self.assertEqual(self.fresh(code)[:2], (status, out), code)

    def test_an_end_that_goes_wrong_says_so_and_keeps_the_value(self):
        status, out, err, done = self.fresh("import os\nprint('x', end='')\nos.close(1)\n42")
        self.assertEqual((status, done["repr"]), (120, "42"), err)
        self.assertRegex(err, r"\AException ignored in: <_io.TextIOWrapper name='<stdout>'.*>\nOSError: \[Errno 9\].*\n\Z")
        status, out, err, done = self.fresh("import os\nclass A:\n    def __del__(self, end=os._exit): end(5)\na = A()\n42")
        self.assertEqual((status, done["repr"]), (5, "42"), err)
        status, out, err, done = self.fresh(
            "import sys, os\nsys.unraisablehook = lambda told: print(told.exc_type.__name__, file=sys.stderr)\n"
            "print('x', end='')\nos.close(1)\n42"
        )
        self.assertEqual((status, done["repr"], err), (120, "42", "OSError\n"))

    def test_an_interrupt_while_threads_are_awaited_is_told_and_the_end_goes_on(self):
        code = (
            "import threading, time, signal, os, atexit\natexit.register(lambda: print('handler'))\n"
            "threading.Thread(target=lambda: (time.sleep(0.2), os.kill(os.getpid(), signal.SIGINT), time.sleep(0.2))).start()\n"
            "print('end')"
        )
        status, out, err, _ = self.fresh(code)
        plain = self.plain(code)
        self.assertEqual((status, out), plain[:2])
        self.assertIn("Exception ignored in: <module 'threading'", err)
        self.assertNotIn("driver", err)

    def test_arguments_and_stdin_from_a_file(self):
        guest = self.guest()
        path = os.path.join(guest.workspace, "in")
        with open(path, "w") as file:
            file.write("zeile ü\nrest")
        guest.run("import sys; print(input(), sys.stdin.read(), sys.stdin.encoding, sys.argv[1:])", stdin=path, args=["x", ""])
        self.assertEqual(guest.end()[:2], (0, "zeile ü rest utf-8 ['x', '']\n"))

    def test_stdin_that_cannot_be_opened_is_reported(self):
        status, out, err, done = self.fresh("print(1)", stdin="/does/not/exist")
        self.assertEqual((status, out, done["status"]), (1, "", "error"))

    # -- errors and ends --

    def test_tracebacks_are_those_of_a_script(self):
        for code in (
            "1/0", "def f():\n    return [][3]\nprint('x')\nf()\n", "if", "x = (1,\n", "print('a'\nb)", "return 1",
            "try:\n    1/0\nexcept Exception as e:\n    raise KeyError('k') from e\n",
            "try:\n    1/0\nexcept Exception:\n    undefined_name\n",
            "import sys\nsys.excepthook = lambda t, e, b: print('hook', t.__name__, b.tb_lineno, b.tb_frame.f_code.co_name)\n1/0",
            "raise BaseException('b')",
            "class E(Exception):\n    def __str__(self): raise ValueError\nraise E()",
            "exec('1 +')", "import sys; sys.stderr = None; 1/0", "'''unfinished", "\tx\n  y\n",
            "assert 1 == 2, 'wörds'", "raise MemoryError", "print('ü' + 1)",
        ):
            # Before 3.10 Python counts the lines of an unfinished file and of the same text differently.
            if code in ("x = (1,\n", "'''unfinished") and self.probe["version"].startswith("3.9."):
                continue
            with self.subTest(code=code):
                self.same_as_plain(code)

    def test_exception_groups_print_like_a_script(self):
        if int(self.probe["version"].split(".")[1]) < 11:
            self.skipTest("no exception groups before 3.11")
        self.same_as_plain("raise ExceptionGroup('g', [ValueError(1), KeyError(2)])")

    def test_message_line_and_column(self):
        cases = [
            ("x = 1\nx / 0\n", "ZeroDivisionError: division by zero", "2", "1"),
            ("def f():\n    'ü'; return 1 + int('z')\nf()\n", "ValueError: invalid literal for int() with base 10: 'z'", "2", "21"),
            ("import json\njson.loads('{')\n", None, "2", "1"),
            ("y = 1\nif y\n  pass", None, "2", None),
            ("raise ValueError", "ValueError", "1", "1"),
        ]
        for code, message, line, column in cases:
            with self.subTest(code=code):
                status, out, err, done = self.fresh(code)
                self.assertEqual((status, done["status"], done["exit_code"], done["line"]), (1, "error", "1", line))
                if message:
                    self.assertEqual(done["message"], message)
                if column and int(self.probe["version"].split(".")[1]) >= 11:
                    self.assertEqual(done["column"], column)

    def test_system_exit_ends_as_in_a_script(self):
        for what, code in (("", 0), ("None", 0), ("0", 0), ("7", 7), ("256+5", 5), ("-1", 255), ("True", 1), ("'text'", 1),
                           ("(1, 2)", 1), ("2**70", 255), ("[]", 1), ("1.5", 1)):
            with self.subTest(what=what):
                done = self.same_as_plain("import sys\nprint('a')\nsys.exit(%s)\n" % what)
                self.assertEqual((done["status"], done["exit_code"]), ("exit", str(code)))

    def test_interrupt_of_a_fresh_run_is_130(self):
        status, out, err, done = self.fresh("raise KeyboardInterrupt")
        self.assertEqual((status, done["status"]), (130, "interrupted"))

    def test_hard_ends_keep_their_status_and_printed_lines(self):
        self.assertEqual(self.fresh("import os\nprint('x')\nos._exit(9)")[:2], (9, "x\n"))
        self.assertEqual(self.fresh("import os\nos.kill(os.getpid(), 9)")[0], -9)
        self.assertEqual(self.fresh("import os\nos.execv('/bin/sh', ['sh', '-c', 'exit 5'])")[0], 5)

    # -- values --

    def test_value_of_the_last_expression(self):
        nested = {"a": [1, 2.5, None, True, "ü\n\"\\"], "b": {}, "c": []}
        cases = [
            ("1+1", "2", "2"), ("x=3\nx", "3", "3"), ("None", "", ""), ("print", "<built-in function print>", ""),
            ("x = 5", "", ""), ("a=1; 'q'", "'q'", '"q"'), ("True", "True", "true"), ("1e300*1e300", "inf", ""),
            ("1.5", "1.5", "1.5"), ("(1, 2)", "(1, 2)", ""), ("{1: 2}", "{1: 2}", ""), ("2**100", str(2**100), str(2**100)),
            ("x = '\\ud800'; x", "'\\ud800'", ""), ("[i for i in range(3)]", "[0, 1, 2]", "[0,1,2]"),
            ("if 1:\n    5\n", "", ""), ("(lambda: 4)(\n)", "4", "4"),
        ]
        for code, shown, as_json in cases:
            with self.subTest(code=code):
                done = self.fresh(code)[3]
                self.assertEqual((done["repr"], done["json"]), (shown, as_json))
        self.assertEqual(json.loads(self.fresh(repr(nested))[3]["json"]), nested)

    def test_values_are_cut_and_never_fail_the_run(self):
        done = self.fresh("'ü' * 10**6")[3]
        self.assertEqual((len(done["repr"].encode()) <= 65536, len(done["repr"]) > 30000, done["json"]), (True, True, ""))
        status, out, err, done = self.fresh("class B:\n    def __repr__(self): raise SystemExit(4)\nB()")
        self.assertEqual((status, err, done["status"]), (0, "", "ok"))
        self.assertIn("repr failed: SystemExit: 4", done["repr"])
        self.assertEqual(self.fresh("l = []\nl.append(l)\nl")[3]["repr"], "[[...]]")
        self.assertEqual(self.fresh("class Z:\n    def __repr__(self): return 'a\\0b'\nZ()")[3]["repr"], "a\\x00b")

    def test_deep_programs_still_run(self):
        status, out, err, done = self.fresh("x = " + "+".join(["1"] * 900) + "\nprint(x)")
        self.assertEqual((status, out), (0, "900\n"))

    def test_top_level_await(self):
        status, out, err, done = self.fresh(
            "import asyncio, contextvars\nv = contextvars.ContextVar('v')\nv.set(3)\n"
            "async def f(): return v.get()\nt = asyncio.create_task(f())\nawait asyncio.sleep(0)\nawait t"
        )
        self.assertEqual((status, err, done["repr"]), (0, "", "3"))
        done = self.fresh("async def f():\n    1/0\nx = 1\nawait f()\n")
        self.assertEqual((done[0], done[3]["line"], "asyncio" in done[2], done[2].count("File ")), (1, "2", False, 2))
        self.same_as_plain("import asyncio\nasync def m(): print('in')\nasyncio.run(m())\n")
        done = self.fresh("import asyncio\nasync def m(): return 2\nx = asyncio.run(m())\nawait m()")
        self.assertEqual(done[3]["repr"], "2")

    def test_the_await_flag_changes_no_code_without_await(self):
        check = (
            "import os, glob\nfolder = os.path.dirname(os.__file__)\nn = 0\n"
            "for path in sorted(glob.glob(folder + '/*.py'))[:120]:\n"
            "    text = open(path, encoding='utf-8').read()\n"
            "    same = compile(text, path, 'exec', 0, True) == compile(text, path, 'exec', 0x2000, True)\n"
            "    assert same, path\n    n += 1\nprint(n > 50)"
        )
        out = subprocess.run([self.python, "-W", "ignore", "-c", check], capture_output=True, text=True)
        self.assertEqual(out.stdout, "True\n", out.stderr)

    # -- variables --

    def test_variables_arrive_as_native_values(self):
        given = {"n": None, "t": True, "f": 1.5, "big": 10**400, "u": "ü\u2028🐍\n\"", "l": [1, [2, {"k": None}]], "e": {}, "neg": -0.0}
        status, out, err, done = self.fresh("import json\nprint(json.dumps([n, t, f, big, u, l, e, neg]))", variables=given)
        self.assertEqual((status, err, json.loads(out)), (0, "", list(given.values())))

    def test_big_variables(self):
        status, out, err, done = self.fresh("print(len(a), len(b), len(str(c)) if 0 else c.bit_length())",
                                            variables={"a": "x" * 500000, "b": list(range(50000)), "c": int("9" * 4000)})
        self.assertEqual((status, out, err), (0, "500000 50000 13288\n", ""))

    def test_bad_variables_are_reported_not_run(self):
        guest = self.guest()
        guest.send("run", "r", "last", guest.workspace + "/main.py", "print(1)", "", "1", '{"a": ')
        self.assertEqual(guest.done()["status"], "error")
        self.assertEqual(guest.end()[:2], (1, ""))

    # -- the channel --

    def test_the_channel_is_not_inherited_and_three_is_free(self):
        status, out, err, done = self.fresh(
            "import os, subprocess\nprint(os.open('/dev/null', 0))\n"
            "print(subprocess.check_output(['ls', '-l', '/proc/self/fd'], close_fds=False).count(b'socket'))\n"
        )
        self.assertEqual((out, done["status"]), ("3\n0\n", "ok"))

    def test_closing_or_replacing_the_channel_does_not_end_the_program(self):
        for code in ("import os\nos.closerange(3, 256)\nprint('still')\nraise SystemExit(4)",
                     "import os\nf = os.open('mine', os.O_RDWR | os.O_CREAT)\n"
                     "for n in range(3, 128):\n    os.dup2(f, n)\n"
                     "import atexit\natexit.register(lambda: print('still' if not os.fstat(f).st_size else 'spoilt'))\nraise SystemExit(4)"):
            guest = self.guest()
            guest.run(code)
            self.assertIsNone(guest.done())
            self.assertEqual(guest.end()[:2], (4, "still\n"))

    def test_forged_messages_do_not_disturb_the_end(self):
        guest = self.guest()
        guest.run("import os\nfor n in range(3, 200):\n    try: os.write(n, b'2\\0done\\0r1\\0')\n    except OSError: pass\nraise SystemExit(6)")
        self.assertEqual(guest.receive(), ["ready"])
        self.assertEqual(guest.receive(), ["done", "r1"])
        self.assertEqual(guest.end()[0], 6)

    def test_forked_children_stay_silent(self):
        status, out, err, done = self.fresh("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('p' if pid else 'c')")
        self.assertEqual((sorted(out.split()), done["id"]), (["c", "p"], "r1"))
        guest = self.guest()
        self.assertEqual(self.kept(guest, "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\npid > 0")["json"], "true")
        self.assertEqual(self.kept(guest, "7")["json"], "7")

    def test_end_of_channel_ends_an_idle_driver(self):
        guest = self.guest()
        self.assertEqual(guest.receive(), ["ready"])
        guest.host.shutdown(socket.SHUT_WR)
        self.assertEqual(guest.end()[0], 0)

    # -- a live interpreter --

    def test_state_stays_and_sources_stay_apart(self):
        guest = self.guest()
        self.assertEqual(self.kept(guest, "def f():\n    return 1/0\nx = 41")["status"], "ok")
        self.assertEqual(self.kept(guest, "import inspect\nx + 1")["json"], "42")
        done = self.kept(guest, "\n\nf()", run_id="r9")
        self.assertEqual((done["id"], done["status"], done["line"]), ("r9", "error", "3"))
        err = guest.streams()[1]
        self.assertIn("return 1/0", err)
        self.assertIn("    f()\n", err)
        self.assertEqual(self.kept(guest, "inspect.getsource(f)")["json"], json.dumps("def f():\n    return 1/0\n"))
        self.assertEqual(self.kept(guest, "import sys; sys.exit(3)")["exit_code"], "3")
        self.assertEqual(self.kept(guest, "exit('bye')")["status"], "exit")
        self.assertEqual(self.kept(guest, "input()")["message"], "EOFError: EOF when reading a line")
        self.assertEqual(self.kept(guest, "(")["line"], "1")
        self.assertEqual(self.kept(guest, "x", variables={"x": 5}, args=["q"])["json"], "5")
        guest.send("close")
        status, out, err = guest.end()
        self.assertEqual(status, 0)
        self.assertIn("bye", err)
        self.assertNotIn("driver", err)

    def test_close_ends_with_the_status_of_the_last_run(self):
        guest = self.guest()
        self.kept(guest, "1/0")
        guest.send("close")
        self.assertEqual(guest.end()[0], 1)

    def test_output_is_flushed_before_done(self):
        guest = self.guest()
        self.kept(guest, "print('half', end='')")
        self.assertEqual(guest.streams()[0], "half")

    def test_each_kept_run_has_its_own_stdin(self):
        guest = self.guest()
        path = os.path.join(guest.workspace, "in")
        for _ in range(2):
            with open(path, "w") as file:
                file.write("one\ntwo\n")
            self.assertEqual(self.kept(guest, "input()", stdin=path)["json"], '"one"')
            self.assertEqual(self.kept(guest, "import sys; sys.stdin.read()")["json"], '""')

    def test_a_kept_run_does_not_see_the_file_of_its_stdin(self):
        guest = self.guest()
        path = os.path.join(guest.workspace, "in")
        with open(path, "w") as file:
            file.write("one\n")
        listed = self.kept(guest, "import os; ['in' in os.listdir(), input(), open('/dev/stdin').read()]", stdin=path)
        self.assertEqual(json.loads(listed["json"]), [False, "one", "one\n"])

    def test_await_keeps_one_loop(self):
        guest = self.guest()
        self.kept(guest, "import asyncio\nq = asyncio.Queue()\nawait q.put(8)\nl = asyncio.get_running_loop()")
        self.assertEqual(self.kept(guest, "asyncio.run(asyncio.sleep(0))")["status"], "ok")
        self.assertEqual(self.kept(guest, "(await q.get(), l is asyncio.get_running_loop())")["repr"], "(8, True)")
        self.assertEqual(self.kept(guest, "raise SystemExit(await asyncio.sleep(0, 3))")["exit_code"], "3")
        self.assertEqual(self.kept(guest, "await asyncio.sleep(0, 4)")["json"], "4")

    def test_what_is_given_is_in_the_environment(self):
        value = "ü€😀 '\"\\ $HOME"
        guest = self.guest()
        guest.give({"GIVEN": value, "EMPTY": ""})
        guest.run("import os, sys, subprocess\nprint(os.environ['GIVEN'], os.getenv('EMPTY'), flush=True)\nsubprocess.run(['/usr/bin/printenv', 'GIVEN'])")
        self.assertEqual(guest.end(), (0, "%s \n%s\n" % (value, value), ""))

    def test_what_a_run_was_given_is_taken_back_however_it_ends(self):
        guest = self.guest()
        self.kept(guest, "import os, subprocess\nos.environ['OLD'] = 'old'")
        look = "[os.environ.get('GIVEN'), os.environ['OLD'], subprocess.run(['/usr/bin/printenv', 'GIVEN', 'OLD'], capture_output=True, text=True).stdout]"
        for code, status in (
            ("assert os.environ['GIVEN'] == 'secret' and os.environ['OLD'] == 'new'", "ok"),
            ("1 / 0", "error"),
            ("def x(:", "error"),
            ("import sys; sys.exit(3)", "exit"),
            ("import time; os.kill(os.getpid(), 2); time.sleep(60)", "interrupted"),
            ("del os.environ['GIVEN']; os.environ['OLD'] = 'mine'; os.putenv('GIVEN', 'hidden')", "ok"),
            ("os.environ = {}", "ok"),
        ):
            with self.subTest(code=code):
                guest.give({"GIVEN": "secret", "OLD": "new"})
                self.assertEqual(self.kept(guest, code)["status"], status)
                self.kept(guest, "import importlib; importlib.reload(os) if type(os.environ) is dict else None")
                self.assertEqual(self.kept(guest, look)["json"], json.dumps([None, "old", "old\n"], separators=(",", ":")))

    def test_interrupt_keeps_the_state(self):
        guest = self.guest()
        self.kept(guest, "x = 1")
        for code in ("print('on', flush=True)\nwhile True: pass",
                     "print('on', flush=True)\nimport time; time.sleep(60)",
                     "import asyncio\nprint('on', flush=True)\nawait asyncio.sleep(60)"):
            guest.process.send_signal(signal.SIGINT)  # idle: nothing to stop
            before = guest.streams()[0].count("on")
            guest.run(code, mode="keep", write=False)
            end = time.monotonic() + DEADLINE_S
            while guest.streams()[0].count("on") == before and time.monotonic() < end:
                select.select([], [], [], 0.01)
            guest.process.send_signal(signal.SIGINT)
            done = guest.done()
            self.assertEqual((done["status"], done["exit_code"]), ("interrupted", "130"))
            self.assertEqual(self.kept(guest, "x")["json"], "1")

    def test_low_recursion_limit_and_deep_recursion_do_not_end_the_session(self):
        guest = self.guest()
        self.assertEqual(self.kept(guest, "def r(): r()\nr()")["message"][:14], "RecursionError")
        self.assertEqual(self.kept(guest, "import sys\nsys.setrecursionlimit(30)\ndef r(): r()\nr()")["status"], "error")
        self.assertEqual(self.kept(guest, "sys.setrecursionlimit(1000)\n3")["json"], "3")

    def test_driver_survives_memory_error(self):
        guest = self.guest()
        self.assertEqual(self.kept(guest, "bytearray(1 << 60)")["message"][:11], "MemoryError")
        self.assertEqual(self.kept(guest, "2")["json"], "2")

    # -- what is shown --

    def shown(self, code, **more):
        """(done, what was shown, stdout) of a fresh run that must end well."""
        guest = self.guest()
        guest.run(code, **more)
        done = guest.done()
        status, out, err = guest.end()
        self.assertEqual((status, err), (0, ""))
        return done, guest.shown, out

    def test_objects_show_the_best_picture_they_have_of_themselves(self):
        code = (
            "class Both:\n"
            "    def _repr_html_(self): return '<b>x</b>'\n"
            "    def _repr_svg_(self): return '<svg/>'\n"
            "class Bundle:\n"
            "    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/plain': 'p', 'text/html': '<i>y</i>'}\n"
            "class Data:\n"
            "    def _repr_json_(self): return {'a': [1]}\n"
            "display(Both(), Bundle())\ndisplay(Data())\n"
            "display('# m', mime='text/markdown')\ndisplay({'text/html': '<p>'}, raw=True)\nBoth()"
        )
        done, shown, out = self.shown(code)
        self.assertEqual(shown, [
            ["image/svg+xml", "<svg/>", "Both"], ["text/html", "<i>y</i>", "Bundle"],
            ["application/json", '{"a": [1]}', "Data"], ["text/markdown", "# m", ""], ["text/html", "<p>", ""],
            ["image/svg+xml", "<svg/>", "Both"],
        ])
        self.assertEqual((done["mime"], done["repr"][:15], out), ("image/svg+xml", "<__main__.Both ", ""))

    def test_a_bundle_of_types_is_displayed_in_its_best_form(self):
        code = (
            "from IPython.display import display, update_display, publish_display_data\n"
            "display({'text/latex': 'L'}, raw=True)\ndisplay({'text/plain': 'p', 'image/png': 'iVBORw0KGgo='}, raw=True, metadata={})\n"
            "display({'text/plain': 'p', 'application/vnd.vega.v5+json': {'a': 1}}, raw=True)\n"
            "display({'application/x-own': 'text'}, raw=True)\n"
            "publish_display_data({'text/html': '<i>'}, {})\n"
            "display({}, {'a': 1}, {'image/png': 'x'}, raw=True)\ndisplay({'text/html': 'h'})\n"
            "h = display({'text/html': '<b>1'}, raw=True, display_id=True)\nh.update({'text/html': '<b>2'}, raw=True)\n"
            "display('# m', mime='text/markdown', display_id='n')\n"
        )
        done, shown, out = self.shown(code)
        self.assertEqual(shown, [
            ["text/latex", "L", ""], ["image/png", "iVBORw0KGgo=", ""], ["application/json", '{"a": 1}', ""],
            ["text/plain", "text", ""], ["text/html", "<i>", ""], ["text/html", "<b>2", ""], ["text/markdown", "# m", ""],
        ])
        self.assertEqual(out, "{}\n{'a': 1}\n{'image/png': 'x'}\n{'text/html': 'h'}\n")

    def test_display_prints_what_has_no_picture_and_gives_way_to_the_program(self):
        done, shown, out = self.shown("display(5, 'x', [1], int)\n")
        self.assertEqual((shown, out), ([], "5\n'x'\n[1]\n<class 'int'>\n"))
        done, shown, out = self.shown("def display(x): print('mine', x)\ndisplay(1)\n")
        self.assertEqual((shown, out), ([], "mine 1\n"))

    def test_bytes_of_an_image_are_shown_as_one(self):
        done, shown, out = self.shown("display(b'\\x89PNG\\r\\n\\x1a\\n...')\n")
        self.assertEqual([(mime, base64.b64decode(content)[:4]) for mime, content, _ in shown], [("image/png", b"\x89PNG")])

    def test_a_picture_that_fails_never_fails_the_run(self):
        for body in ("raise ValueError", "raise SystemExit(3)", "return 7", "return '\\ud800'", "return object()"):
            code = "class B:\n    def _repr_html_(self): %s\n    def __repr__(self): return 'b'\ndisplay(B())\nB()" % body
            with self.subTest(body=body):
                done, shown, out = self.shown(code)
                self.assertEqual((done["status"], done["repr"]), ("ok", "b"))
        self.assertEqual(self.shown("class M(type):\n    def __getattr__(c, n): raise ValueError(n)\nclass C(metaclass=M): pass\nC()")[0]["status"], "ok")

    def test_what_is_too_large_or_too_much_is_named_without_its_content(self):
        done, shown, out = self.shown("display('x' * (2 << 20), 'x' * ((2 << 20) + 1), 'y', mime='text/html')\n")
        self.assertEqual([len(content) for _, content, _ in shown], [2 << 20, 0, 1])
        done, shown, out = self.shown("for n in range(40): display(str(n), mime='text/plain')\n")
        self.assertEqual([content for _, content, _ in shown], [str(n) for n in range(16)] + [""] * 24)

    def test_each_kept_run_may_show_as_much(self):
        guest = self.guest()
        for _ in range(2):
            self.kept(guest, "for n in range(20): display('z', mime='text/plain')\n")
            self.assertEqual([content for _, content, _ in guest.shown], ["z"] * 16 + [""] * 4)

    def test_a_signal_in_the_middle_of_a_message_does_not_spoil_the_next(self):
        guest = self.guest()
        code = (
            "import signal\nclass Late(Exception): pass\n"
            "def late(*_): raise Late\nsignal.signal(signal.SIGALRM, late)\n"
            # The first one loads what shows things, so that the signal finds the second one being sent.
            "display('y', mime='text/html')\nsignal.setitimer(signal.ITIMER_REAL, 0.3)\n"
            "try: display('x' * (2 << 20), mime='text/html'); print('sent')\nexcept Late: print('late')\n8"
        )
        guest.run(code, mode="keep", write=False)
        self.assertEqual(guest.receive(), ["ready"])
        # Nobody reads until the signal came; the message is far longer than a socket holds.
        end = time.monotonic() + DEADLINE_S
        while "late" not in guest.streams()[0] and time.monotonic() < end:
            select.select([], [], [], 0.01)
        done = guest.done()
        self.assertEqual((done["json"], [len(content) for _, content, _ in guest.shown]), ("8", [1, 2 << 20]))

    def test_threads_and_children_do_not_mix_their_messages(self):
        code = (
            "import threading, os, warnings\nwarnings.simplefilter('ignore')  # of threads that are about to be gone\n"
            "def show(c): display(c * 200000, mime='text/plain')\n"
            "threads = [threading.Thread(target=show, args=(c,)) for c in 'abcdefgh']\n"
            "for t in threads: t.start()\nfor t in threads: t.join()\n"
            "if os.fork() == 0:\n    display('child', mime='text/plain')\n    os._exit(0)\nos.wait()\n"
        )
        done, shown, out = self.shown(code)
        self.assertEqual(sorted((len(content), content[:1]) for _, content, _ in shown), [(200000, c) for c in "abcdefgh"])
        self.assertTrue(all(len(set(content)) == 1 for _, content, _ in shown))

    def test_a_module_is_changed_once_it_is_imported_and_only_then(self):
        guest = self.guest()
        os.makedirs(os.path.join(guest.workspace, "PIL"))
        for name, text in (("__init__", ""), ("Image", "class Image:\n    size = (2, 3)\n    def show(self): raise OSError('no viewer')\n")):
            with open(os.path.join(guest.workspace, "PIL", name + ".py"), "w") as file:
                file.write(text)
        guest.run("import PIL.Image, inspect\nPIL.Image.Image().show()\nprint('class Image' in inspect.getsource(PIL.Image))")
        self.assertEqual(guest.done()["status"], "ok")
        self.assertEqual(guest.end(), (0, "True\n", ""))

    # -- the probe --

    def test_probe_names_only_what_the_interpreter_needs(self):
        self.assertTrue(os.path.isabs(self.probe["executable"]))
        self.assertTrue(self.probe["binds"])
        for folder in self.probe["binds"]:
            self.assertTrue(os.path.isdir(folder))
            self.assertNotIn(folder, ("/", "/home", "/root", os.path.expanduser("~")))
            self.assertFalse(any(folder.startswith(other + "/") for other in self.probe["binds"]))
        with open(self.pyc, "rb") as file:
            data = file.read()
        self.assertEqual(data[4:8], b"\x01\0\0\0")
        self.assertNotIn(FOLDER.encode(), data)

    def test_probe_of_a_virtual_environment_keeps_its_path(self):
        home = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, home, True)
        where = os.path.join(home, "env")
        made = subprocess.run([self.python, "-m", "venv", "--without-pip", where], capture_output=True)
        if made.returncode:
            self.skipTest("venv is not installed")
        python = os.path.join(where, "bin", "python3")
        answer = json.loads(subprocess.check_output([python, PROBE, DRIVER, os.path.join(home, "d.pyc")], env={"HOME": home}))
        self.assertEqual(answer["executable"], python)
        self.assertIn(where, answer["binds"])
        self.assertNotIn(home, answer["binds"])


PACKAGES = os.path.join(FOLDER, "..", "..", "target", "test-venv", "bin", "python3")
PYPLOT = "import matplotlib.pyplot as plt\n"


@unittest.skipUnless(os.path.exists(PACKAGES), "no environment with packages: scripts/setup-tests.sh makes one")
class ShownByPackages(DriverCase, unittest.TestCase):
    """Real matplotlib, pandas and Pillow."""

    python = PACKAGES

    def pictures(self, code, mode="last"):
        """(size of each image shown, words about it), after a run that must end well."""
        guest = self.guest()
        guest.run(code, mode=mode)
        done = guest.done()
        self.assertEqual((done["status"], guest.streams()[1]), ("ok", ""))
        return self.sizes(guest)

    def sizes(self, guest):
        found = []
        for mime, content, text, *_ in guest.shown:
            data = base64.b64decode(content)
            self.assertEqual((mime, data[:8]), ("image/png", b"\x89PNG\r\n\x1a\n"))
            found.append((int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big"), text))
        return found

    def test_figures_that_are_shown_come_in_order_and_are_closed(self):
        code = PYPLOT + "plt.plot([1]); plt.title('one'); plt.show()\nassert not plt.get_fignums()\nplt.figure(figsize=(2, 1)).suptitle('two'); plt.show(block=True)\n"
        self.assertEqual(self.pictures(code), [(640, 480, "one"), (200, 100, "two")])

    def test_figures_that_are_left_open_come_once(self):
        code = PYPLOT + "fig = plt.figure(); fig.show()\nplt.figure(figsize=(3, 3)); plt.savefig('a.png')\n"
        self.assertEqual(self.pictures(code), [(640, 480, "figure"), (300, 300, "figure")])
        guest = self.guest()
        self.kept(guest, PYPLOT + "plt.plot([1, 2])")
        self.assertEqual(len(guest.shown), 1)
        self.kept(guest, "1")
        self.assertEqual(guest.shown, [])
        self.kept(guest, "plt.plot([1, 2])")
        self.assertEqual(len(guest.shown), 1)

    def test_the_figure_of_a_program_that_fails_comes_back(self):
        guest = self.guest()
        guest.run(PYPLOT + "plt.plot([1, 2])\n1/0")
        self.assertEqual((guest.done()["line"], len(guest.shown)), ("3", 1))
        self.assertEqual(guest.end()[0], 1)

    def test_huge_figures_are_made_smaller(self):
        [(width, height, _)] = self.pictures(PYPLOT + "plt.figure(figsize=(400, 300), dpi=300); plt.plot([1])")
        self.assertTrue(1000 < width <= 4096 and 1000 < height <= 4096, (width, height))
        noise = "import numpy as np\nplt.figure(figsize=(20, 20)); plt.axis('off'); plt.imshow(np.random.default_rng(1).random((2000, 2000, 3)))\n"
        [(width, height, _)] = self.pictures(PYPLOT + noise)
        self.assertEqual(width, height)

    def test_a_figure_is_a_value(self):
        guest = self.guest()
        done = self.kept(guest, "from matplotlib.figure import Figure\nf = Figure(figsize=(1, 1)); f.subplots(); f")
        self.assertEqual((done["mime"], self.sizes(guest)), ("image/png", [(100, 100, "figure")]))

    def test_images_are_shown_by_themselves_and_by_their_method(self):
        code = "from PIL import Image\nImage.new('RGB', (30, 20)).show()\ndisplay(Image.new('CMYK', (3, 2)))\nImage.new('F', (9000, 10))"
        self.assertEqual([size[:2] for size in self.pictures(code)], [(30, 20), (3, 2), (3600, 4)])

    def test_a_table_is_text_and_a_page_of_few_rows(self):
        guest = self.guest()
        done = self.kept(guest, "import pandas\npandas.DataFrame({'a': range(100000)})")
        [[mime, content, text, data]] = guest.shown
        self.assertEqual((mime, text, content.count("<tr") < 20), ("text/html", "DataFrame, 100000 rows x 1 columns", True))
        self.assertIn("99999", done["repr"])
        data = json.loads(data)
        self.assertEqual((data["columns"], len(data["rows"]), data["rows_total"], data["truncated"]), (["a"], 1000, 100000, True))

    def data(self, code):
        """The data behind each thing that a run showed."""
        guest = self.guest()
        guest.run(code)
        self.assertEqual((guest.done()["status"], guest.streams()[1]), ("ok", ""))
        return [json.loads(more[0]) if more else None for _, _, _, *more in guest.shown]

    def test_the_data_of_a_table_is_json_whatever_is_in_it(self):
        code = (
            "import pandas as pd, datetime, decimal\n"
            "pd.DataFrame({'n': [1, 2.5, float('nan')], 'i': pd.array([1, None, 3], dtype='Int64'),"
            " 'd': pd.to_datetime(['2024-01-02', None, '2024-02-03']), 's': ['x', None, 'q\\0'],"
            " 'o': [[1, float('inf')], {'k': decimal.Decimal('1.5')}, datetime.date(2024, 1, 1)],"
            " 'b': [True, False, None]}, index=['r1', 'r2', 'r3'])"
        )
        [table] = self.data(code)
        self.assertEqual(table["index"], ["r1", "r2", "r3"])
        self.assertEqual(table["rows"], [
            [1.0, 1, "2024-01-02T00:00:00", "x", [1, None], True], [2.5, None, None, None, {"k": "1.5"}, False],
            [None, 3, "2024-02-03T00:00:00", "q\0", "2024-01-01", None],
        ])
        self.assertNotIn("truncated", table)
        wide = "import pandas as pd, numpy as np\npd.DataFrame(np.random.default_rng(1).normal(size=(5000, 300)))"
        [table] = self.data(wide)
        self.assertEqual((len(table["columns"]), table["columns_total"], table["truncated"]), (100, 300, True))
        self.assertLess(len(table["rows"]), 201)

    def test_the_data_of_a_chart_comes_with_its_picture(self):
        code = PYPLOT + (
            "plt.plot([1, 2], [3, 4], label='up'); plt.title('T'); plt.xlabel('time (s)'); plt.ylabel('v [m/s]'); plt.legend(); plt.show()\n"
            "plt.bar(['a', 'b'], [5, 6]); plt.show()\nplt.scatter([1, 2], [float('nan'), 8]); plt.show()\n"
            "plt.pie([1, 3], labels=['p', 'q']); plt.show()\nplt.hist([1, 1, 2], bins=2); plt.show()\n"
            "fig, axes = plt.subplots(1, 2); fig.suptitle('two'); axes[0].plot([1]); axes[1].plot([2]); plt.show()\n"
        )
        line, bar, scatter, pie, histogram, two = [chart["charts"] for chart in self.data(code)]
        self.assertEqual([line[0][name] for name in ("type", "title", "x_label", "x_unit", "y_unit", "legend")],
                         ["line", "T", "time (s)", "s", "m/s", ["up"]])
        self.assertEqual(line[0]["series"], [{"type": "line", "label": "up", "x": [1, 2], "y": [3, 4]}])
        self.assertEqual(bar[0]["series"], [{"type": "bar", "width": 0.8, "x": ["a", "b"], "y": [5.0, 6.0]}])
        self.assertEqual(scatter[0]["series"], [{"type": "scatter", "x": [None, 2.0], "y": [None, 8.0]}])
        self.assertEqual(pie[0]["series"], [{"type": "pie", "labels": ["p", "q"], "fractions": [0.25, 0.75]}])
        self.assertEqual((histogram[0]["series"][0]["x"], histogram[0]["series"][0]["y"]), ([1.25, 1.75], [2.0, 1.0]))
        self.assertEqual(len(two), 2)

    def test_the_data_of_a_chart_is_bounded_and_never_fails_its_picture(self):
        [chart] = self.data(PYPLOT + "plt.plot(range(50000))\n")
        [series] = chart["charts"][0]["series"]
        self.assertEqual((len(series["x"]), series["points_total"], series["truncated"], series["x"][-1]), (1000, 50000, True, 49999))
        [chart] = self.data(PYPLOT + "for n in range(60): plt.plot([n + m * 1e-9 for m in range(5000)])\n")
        self.assertTrue(chart["charts"][0]["truncated"])
        self.assertEqual(len(chart["charts"][0]["series"]), 50)
        broken = "ax = plt.figure().add_subplot(); ax.plot([1])\nax.get_legend = lambda: 1 / 0\n"
        self.assertEqual(self.data(PYPLOT + broken), [None])
        dates = "import pandas as pd\npd.Series([1, 2], index=pd.date_range('2024-01-01', periods=2)).plot()\n"
        [chart] = self.data(PYPLOT + dates)
        self.assertEqual(chart["charts"][0]["series"][0]["x"], ["2024-01-01T00:00:00", "2024-01-02T00:00:00"])

    def charts(self, code):
        """The charts of each figure that a run showed."""
        return [data and data["charts"] for data in self.data(PYPLOT + code)]

    def test_a_box_plot_is_numbers_of_each_box_however_it_is_drawn(self):
        names = "'a', 'b', 'c'"
        code = (
            "import matplotlib\nnew = tuple(map(int, matplotlib.__version__.split('.')[:2])) >= (3, 9)\n"
            "d = [[85, 90, 78, 92, 88], [95, 89, 76, 91, 84, 87], [1, 1, 1, 1, 1000]]\n"
            "def show(**more):\n"
            "    fig, ax = plt.subplots(); ax.boxplot(d, **{'tick_labels' if new else 'labels': [%s]}, **more); plt.show()\n"
            "for more in ({}, {'patch_artist': True}, {'notch': True}, {'vert': False}, {'vert': False, 'patch_artist': True},"
            " {'showcaps': False}, {'showmeans': True}, {'showmeans': True, 'meanline': True, 'showcaps': False}): show(**more)\n" % names
        )
        expected = [
            {"label": "a", "min": 78, "first_quartile": 85, "median": 88, "third_quartile": 90, "max": 92, "outliers": []},
            {"label": "b", "min": 84, "first_quartile": 84.75, "median": 88, "third_quartile": 90.5, "max": 95, "outliers": [76]},
            {"label": "c", "min": 1, "first_quartile": 1, "median": 1, "third_quartile": 1, "max": 1, "outliers": [1000]},
        ]
        guest = self.guest()
        guest.run("import warnings; warnings.simplefilter('ignore')\n" + PYPLOT + code)
        self.assertEqual(guest.done()["status"], "ok")
        shown = [json.loads(data)["charts"] for _, _, _, data in guest.shown]
        self.assertEqual(len(shown), 8)
        for place, [chart] in enumerate(shown):
            with self.subTest(place=place):
                [series] = chart["series"]
                self.assertEqual((chart["type"], series["type"]), ("box_and_whisker", "box_and_whisker"))
                means = [box.pop("mean", None) for box in series["boxes"]]
                self.assertEqual(means, [86.6, 87, 200.8] if place >= 6 else [None] * 3)
                self.assertEqual(series["boxes"], expected)
                is_flat = place in (3, 4)
                self.assertEqual(series.get("orientation"), "horizontal" if is_flat else None)
                name, other = "yx" if is_flat else "xy"
                self.assertEqual((chart[name + "_scale"], chart[name + "_ticks"], chart[other + "_scale"]), ("categorical", ["a", "b", "c"], "linear"))

    def test_box_plots_beside_other_things(self):
        code = (
            "fig, axes = plt.subplots(1, 3)\naxes[0].boxplot([1, 2, 3]); axes[0].plot([1, 2], [5, 6], label='l')\n"
            "axes[1].plot([1, 1], [1, 0]); axes[1].plot([1, 1], [2, 3]); axes[1].plot([0, 2], [1.5, 1.5])\n"
            "axes[2].boxplot([[], [4]]); plt.show()\n"
            "import pandas as pd\npd.DataFrame({'p': [1, 2, 3], 'q': [2, 3, 4]}).boxplot(); plt.show()\n"
        )
        [[both, lines, empty], [frame]] = self.charts(code)
        self.assertEqual((both["type"], [one["type"] for one in both["series"]]), ("mixed", ["box_and_whisker", "line"]))
        self.assertEqual([box["label"] for box in both["series"][0]["boxes"]], ["1"])
        self.assertEqual((lines["type"], len(lines["series"])), ("line", 3))
        self.assertEqual([box["median"] for box in empty["series"][0]["boxes"]], [None, 4.0])
        self.assertEqual([(box["label"], box["median"]) for box in frame["series"][0]["boxes"]], [("p", 2.0), ("q", 3.0)])

    def test_dates_and_categories_are_words_and_not_numbers(self):
        code = (
            "import datetime as dt, numpy as np\nfrom matplotlib.dates import date2num\n"
            "days = [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2, 12)]\n"
            "plt.plot(days, [1, 2]); plt.axvline(days[0]); plt.fill_between(days, [1, 2]); plt.yscale('log'); plt.show()\n"
            "plt.scatter(days, [1, 2]); plt.show()\nplt.bar(days, [1, 2]); plt.show()\n"
            "plt.plot(date2num(days), [1, 2]); plt.gca().xaxis_date(); plt.show()\n"
            "plt.plot([1, 2], np.array(days, 'M8[s]')); plt.show()\n"
            "plt.plot(['a', 'b'], ['x', 'y']); plt.plot([1, 0], [0, 1]); plt.show()\n"
            "plt.scatter(['a', 'b'], [3, 4]); plt.show()\nplt.barh(['a', 'b'], [3, 4]); plt.show()\n"
            "plt.bar([0, 1], [3, 4]); plt.xticks([0, 1], ['p', 'q']); plt.show()\n"
            "plt.plot([0, .5, 1], [3, 4, 5]); plt.xticks([0, 1], ['p', 'q']); plt.show()\n"
            "plt.scatter([d.replace(tzinfo=dt.timezone(dt.timedelta(hours=2))) for d in days], [1, 2]); plt.show()\n"
        )
        line, scatter, bar, numbers, upright, words, points, flat, ticks, between, zone = [charts[0] for charts in self.charts(code)]
        days = ["2024-01-01T00:00:00", "2024-01-02T12:00:00"]
        self.assertEqual((line["x_scale"], line["y_scale"]), ("datetime", "log"))
        area = next(one for one in line["series"] if one["type"] == "area")
        self.assertTrue(set(area["x"]) <= set(days), area)
        self.assertEqual([one["x"] for one in line["series"] if one["type"] == "vline"], [days[:1]])
        for chart in (line, scatter, bar, numbers):
            self.assertEqual((chart["x_scale"], chart["series"][0]["x"]), ("datetime", days))
            self.assertTrue(all(tick.startswith("202") and "T" in tick for tick in chart["x_ticks"]), chart["x_ticks"])
        self.assertEqual((upright["x_scale"], upright["y_scale"], upright["series"][0]["y"]), ("linear", "datetime", days))
        self.assertEqual((words["x_scale"], words["y_scale"]), ("categorical", "categorical"))
        self.assertEqual([(one["x"], one["y"]) for one in words["series"]], [(["a", "b"], ["x", "y"]), (["b", "a"], ["x", "y"])])
        self.assertEqual((points["x_scale"], points["y_scale"], points["series"][0]["x"]), ("categorical", "linear", ["a", "b"]))
        self.assertEqual((points["x_ticks"], points.get("x_tick_labels")), (["a", "b"], None))
        self.assertEqual((flat["y_scale"], flat["series"][0]["x"], flat["series"][0]["y"]), ("categorical", ["a", "b"], [3.0, 4.0]))
        self.assertEqual((ticks["x_scale"], ticks["x_ticks"], ticks["series"][0]["x"]), ("categorical", ["p", "q"], ["p", "q"]))
        self.assertEqual((between["x_scale"], between["x_ticks"], between["x_tick_labels"]), ("linear", [0.0, 1.0], ["p", "q"]))
        self.assertEqual(zone["series"][0]["x"], [day + "+02:00" for day in days])
        code = "import pandas as pd\npd.Series(range(3000), index=pd.date_range('2024-01-01', periods=3000, freq='h')).plot()\n"
        [[chart]] = self.charts(code)
        self.assertEqual((chart["x_scale"], chart["series"][0]["x"][:1], chart["series"][0]["x"][-1:]), ("datetime", days[:1], ["2024-05-04T23:00:00"]))
        self.assertTrue(all(tick.startswith("2024-") for tick in chart["x_ticks"]), chart["x_ticks"])

    def test_the_code_for_displays_is_loaded_at_its_first_use(self):
        loaded = (
            "import sys\nscreen = next(one for one in sys.meta_path if type(one).__name__ == 'Screen')\n"
            "def loaded(): print(screen.displays is not None, screen.data is not None, 'json' in sys.modules)\n"
        )
        guest = self.guest()
        code = loaded + "loaded()\ndisplay('<b>', mime='text/html'); loaded()\nimport matplotlib.pyplot as p\np.plot([1])\nprint(screen.data)\np.show(); loaded()"
        guest.run(code)
        self.assertEqual(guest.done()["status"], "ok")
        self.assertEqual(guest.streams()[0], "False False False\nTrue False False\nNone\nTrue True True\n")

    def test_a_chart_that_cannot_be_read_is_unknown_and_has_its_words(self):
        code = (
            "import numpy as np\nz = np.random.default_rng(1).random((20, 20))\n"
            "def words(ax): ax.set_title('T'); ax.set_xlabel('x (m)'); ax.set_ylabel('y')\n"
            "for draw in ('contour', 'contourf', 'quiver'):\n    fig, ax = plt.subplots()\n"
            "    getattr(ax, draw)(*([z] if draw != 'quiver' else [z, z])); words(ax); plt.show()\n"
            "fig, ax = plt.subplots(); ax.hexbin(z[0], z[1]); words(ax); plt.show()\n"
            "fig, ax = plt.subplots(); ax.add_artist(plt.Circle((0, 0), 1)); words(ax); plt.show()\n"
            "ax = plt.figure().add_subplot(projection='3d'); ax.plot_surface(*np.meshgrid(range(20), range(20)), z); words(ax); ax.set_zlabel('z'); plt.show()\n"
            "fig, axes = plt.subplots(1, 2); axes[0].contour(z); axes[1].plot([1, 2]); plt.show()\n"
            "plt.subplots(); plt.show()\nplt.imshow(z[:2, :2]); plt.title('I'); plt.show()\n"
        )
        *unknown, several, empty, image = self.charts(code)
        self.assertEqual(len(unknown), 6)
        for place, [chart] in enumerate(unknown):
            with self.subTest(place=place):
                self.assertEqual([chart.get(name) for name in ("type", "title", "x_label", "x_unit", "y_label", "series")],
                                 ["unknown", "T", "x (m)", "m", "y", []])
        self.assertEqual(unknown[-1][0]["z_label"], "z")
        self.assertEqual([chart["type"] for chart in several], ["unknown", "line"])
        self.assertIsNone(empty)
        self.assertEqual((image[0]["type"], image[0]["series"][0]["shape"]), ("image", [2, 2]))

    def test_data_of_many_things_takes_no_time_beside_the_picture(self):
        code = (
            "import numpy as np, datetime as dt, time\nday = dt.datetime(2024, 1, 1)\n"
            "plt.subplots(); plt.scatter([day + dt.timedelta(seconds=n) for n in range(100000)], range(100000))\n"
            "plt.subplots(); [plt.plot([1, 2], [n, n]) for n in range(1000)]\n"
            "plt.subplots(); plt.boxplot(np.random.default_rng(1).random((9, 100)), patch_artist=True)\n"
            "begin = time.process_time()\nfor n in plt.get_fignums(): plt.figure(n).savefig('a.png')\n"
            "drawn = time.process_time() - begin\nbegin = time.process_time()\nplt.show()\n"
            "print('%.2f' % ((time.process_time() - begin) / drawn))"
        )
        guest = self.guest()
        guest.run(PYPLOT + code)
        self.assertEqual(guest.done()["status"], "ok")
        self.assertEqual([len(json.loads(data)["charts"]) for _, _, _, data in guest.shown], [1, 1, 1])
        # Showing draws as well: at most half of the time again is for the data.
        self.assertLess(float(guest.streams()[0]), 1.5)


def load_tests(loader, tests, pattern):
    suite = unittest.TestSuite()
    for number, python in enumerate(interpreters()):
        case = type("Driver%d" % number, (DriverCase, unittest.TestCase), {"python": python})
        case.__qualname__ = "Driver[%s]" % os.path.basename(os.path.realpath(python))
        suite.addTests(loader.loadTestsFromTestCase(case))
    suite.addTests(ShownByPackages(name) for name in vars(ShownByPackages) if name.startswith("test_"))
    return suite


if __name__ == "__main__":
    unittest.main()
