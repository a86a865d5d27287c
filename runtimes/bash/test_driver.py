"""Plays the guest for driver.sh (tests/drivers/player.py).

Run: `python3 -m unittest runtimes/bash/test_driver.py`.
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
from player import DEADLINE_S  # noqa: E402

DRIVER = os.path.join(FOLDER, "driver.sh")
BASH = os.environ.get("PALISADE_TEST_BASH") or shutil.which("bash")
ENV = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


class Guest(player.Player):
    def __init__(self, workspace, mode):
        super().__init__([BASH, "--norc", "--noprofile", DRIVER, mode], workspace, "main.sh", ENV)

    def run(self, code, variables=None, by_file=True, **more):
        if by_file:
            self.write(code)
        self.order("" if by_file else code, fields=player.as_shell(variables), **more)

    def keep(self, code, **more):
        self.run(code, mode="keep", **more)
        return self.done()

    def done(self):
        done = super().done()
        return done and (done["status"], done["exit_code"])


class DriverTest(unittest.TestCase):
    def guest(self, mode="keep"):
        workspace = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, workspace, True)
        guest = Guest(workspace, mode)
        self.addCleanup(guest.kill)
        return guest

    def fresh(self, code, **more):
        guest = self.guest("last")
        guest.run(code, **more)
        return guest.end()

    def same_as_plain(self, code, *args):
        guest = self.guest("last")
        guest.run(code, args=args)
        seen = guest.end()
        plain = subprocess.run([BASH, guest.source, *args], capture_output=True, text=True, cwd=guest.workspace,
                               stdin=subprocess.DEVNULL, env=ENV)
        self.assertEqual(seen, (plain.returncode, plain.stdout, plain.stderr))

    def test_fresh_programs_behave_like_a_script(self):
        for code in (
            "echo $((6*7))", "exit 7", "false", "set -e\nfalse\necho no", "echo $0 $# \"$1\" \"$2\" \"$*\"; shift; echo $1",
            "echo $LINENO ${BASH_SOURCE[0]}\nnosuchcommand\n", "if", "echo a\nfi\n", "trap 'echo bye $?' EXIT\nexit 4",
            "trap 'echo err' ERR\nfalse\ntrue\nfalse", "exec echo replaced", "set -u\necho $nope\necho no",
            "f() { local x=1; return 5; }\nf; echo $?", "[[ ${BASH_SOURCE[0]} == \"$0\" ]] && echo main",
            "declare -a x=(1 2); declare -A m=([k]=v); echo ${x[1]} ${m[k]}", "cat; read x; echo $?", "kill -TERM $$",
            "echo $-; shopt -p extglob; trap -p; set +o | md5sum", "compgen -A function; compgen -v | grep -i palisade",
            "ls /proc/self/fd | wc -l; ls -l /proc/$$/fd | grep -c socket", "x=${y:?gone}", "set -o pipefail; false | true; echo $?",
            "printf 'ü%.0s' 1 2; s=ü; echo ${#s}", "(exit 3) & wait $!; echo $?", "diff <(echo a) <(echo a) && echo same", "",
        ):
            with self.subTest(code=code):
                self.same_as_plain(code, "a b", "*")

    def test_code_field_is_not_needed_and_not_harmful(self):
        guest = self.guest("last")
        with open(guest.source, "w") as file:
            file.write("echo x")
        guest.send("run", "r", "last", guest.source, "echo x", "", "0")
        self.assertEqual(guest.end()[:2], (0, "x\n"))

    def test_variables_are_native_and_never_evaluated(self):
        evil = "$(touch hit)`touch hit`\\ \"'\n;*"
        status, out, err = self.fresh(
            'printf "<%s>" "$s" "$n" "$t" "${z-unset}" "${l[@]}" "${#l[@]}" "${m[$k]}" "${m[b]}" "$j" "${#e[@]}" "$u"; ls; declare -p l m',
            variables={"s": evil, "n": 12345678901234567890123, "t": True, "z": None, "l": ["a b", evil, 3, False],
                       "k": evil, "m": {evil: "v", "b": "w", "@": "at", "]": "br"}, "j": [[1]], "e": [], "u": "ü🐍"},
        )
        expected = [evil, "12345678901234567890123", "true", "", "a b", evil, "3", "false", "4", "v", "w", "[[1]]", "0", "ü🐍"]
        self.assertEqual((status, err), (0, ""))
        self.assertTrue(out.startswith("".join("<%s>" % item for item in expected)), out)
        self.assertNotIn("hit\n", out.split("main.sh")[0][-20:])
        self.assertIn('["@"]="at"', out)

    def test_names_that_are_no_names_are_not_bound(self):
        status, out, err = self.fresh("ls; echo $ok", variables={"a[$(touch hit)]": "x", "ok": "1"})
        self.assertEqual((status, out), (0, "main.sh\n1\n"))

    def test_what_is_given_is_exported_and_never_evaluated(self):
        evil = "$(touch hit)`touch hit`\\ \"'\n;* ü🐍"
        guest = self.guest("last")
        guest.give({"GIVEN": evil, "EMPTY": "", "PATH": "/nowhere:/usr/bin:/bin", "a[$(touch hit)]": "x"})
        guest.run('printf "<%s>" "$GIVEN" "${EMPTY-unset}"; printenv GIVEN; ls; compgen -v | grep -i palisade')
        self.assertEqual(guest.end(), (1, "<%s><>%s\nmain.sh\n" % (evil, evil), ""))

    def test_stdin_from_a_file(self):
        guest = self.guest("last")
        path = os.path.join(guest.workspace, "in")
        with open(path, "w") as file:
            file.write("one\ntwo\n")
        guest.run("read a; cat; echo $a", stdin=path)
        self.assertEqual(guest.end()[:2], (0, "two\none\n"))

    # -- a live shell --

    def test_what_a_run_was_given_is_taken_back_however_it_ends(self):
        guest = self.guest()
        guest.keep("export OLD=old; plain=p; declare -ai list=(1 2)")
        look = 'echo "${GIVEN-unset} ${OLD-unset} $(declare -p plain list)"; printenv GIVEN OLD plain'
        for code, end in (
            ("printenv GIVEN OLD plain list >&2", ("ok", "0")),
            ("GIVEN=mine; unset OLD; f() { local GIVEN=inner; exit 3; }; f", ("exit", "3")),
            ("set -e; false", ("error", "1")),
            ("set +e; kill -INT $$; sleep 60", ("interrupted", "130")),
            ("unset GIVEN", ("ok", "0")),
            ("break", ("exit", "0")),
        ):
            with self.subTest(code=code):
                guest.give({"GIVEN": "secret", "OLD": "new", "plain": "P", "list": "a[$(touch hit)]"})
                self.assertEqual(guest.keep(code), end)
                before = len(guest.streams()[0])
                self.assertEqual(guest.keep(look), ("error", "1"))
                self.assertEqual(guest.streams()[0][before:], 'unset old declare -- plain="p"\ndeclare -ai list=([0]="1" [1]="2")\nold\n')
        self.assertEqual(guest.streams()[1], "secret\nnew\nP\na[$(touch hit)]\n")
        self.assertEqual(os.listdir(guest.workspace), ["main.sh"])

    def test_a_shell_that_cannot_forget_what_it_was_given_ends(self):
        guest = self.guest()
        guest.give({"GIVEN": "secret"})
        self.assertEqual(guest.keep("readonly GIVEN"), None)
        self.assertEqual(guest.end(), (0, "", ""))

    def test_state_stays(self):
        for by_file in (True, False):
            guest = self.guest()
            more = {"by_file": by_file}
            self.assertEqual(guest.keep("x=1; f() { echo f$1; }; cd /; declare -a l=(a b); export E=e; shopt -s nullglob", **more), ("ok", "0"))
            self.assertEqual(guest.keep("f $x; pwd; echo ${l[1]} $(printenv E); shopt -q nullglob && echo on; echo $1", args=["arg"], **more), ("ok", "0"))
            self.assertEqual(guest.keep("(exit 3)", **more), ("error", "3"))
            self.assertEqual(guest.keep("if", **more)[0], "error")
            self.assertEqual(guest.keep("echo $v ${#m[@]}", variables={"v": "w", "m": {"a": 1}}, **more), ("ok", "0"))
            guest.send("close")
            self.assertEqual(guest.end()[:2], (0, "f1\n/\nb e\non\narg\nw 1\n"))

    def test_errors_name_the_lines_of_the_program(self):
        for code, line in (
            ("echo a\nnosuch\n", 2), ("\n\nx=$((1/0))", 3), ("f() {\n  nosuch\n}\nf", 2), ("(\nnosuch)", 2),
            ("echo 'a\nb'\nnosuch | cat", 3), ("echo\n\nfi\n", 3), ("echo\nif true; then\n", 3), ("\necho ${u?gone}", 2),
            ("\n\necho line $LINENO >&2", 3), ("trap 'echo line $LINENO >&2' ERR\nfalse", 2),
        ):
            for before in ("", "exit 3", "set -e"):
                with self.subTest(code=code, before=before):
                    guest = self.guest()
                    if before:
                        guest.keep(before, by_file=False)
                    guest.keep(code, by_file=False)
                    err = guest.streams()[1]
                    self.assertRegex(err, r"\bline %d\b" % line)
                    self.assertNotIn("driver", err)
                    self.assertEqual(guest.keep("nosuch", by_file=False)[1], "127")
                    self.assertIn("main.sh: line 1: nosuch", guest.streams()[1][len(err):])

    def test_exit_and_errexit_keep_the_session(self):
        guest = self.guest()
        setup = "x='a\nb'; f() { echo f; }; declare -A m=([k]='v w'); declare -r ro=1; cd /; set -o pipefail"
        self.assertEqual(guest.keep(setup), ("ok", "0"))
        for _ in range(3):
            self.assertEqual(guest.keep("exit 7"), ("exit", "7"))
        self.assertEqual(guest.keep("g() { exit 4; }; g"), ("exit", "4"))
        self.assertEqual(guest.keep("echo ${nope:?gone}")[0], "exit")
        self.assertEqual(guest.keep("break; echo after"), ("exit", "0"))
        self.assertEqual(guest.keep("for i in 1; do break 5; done", by_file=False), ("exit", "0"))
        self.assertEqual(guest.keep("set -e; false; echo no"), ("error", "1"))
        self.assertEqual(guest.keep("set +e; false | true; echo $? \"$x\" ${m[k]} $ro $PWD; f"), ("ok", "0"))
        guest.send("close")
        status, out, err = guest.end()
        self.assertEqual((status, out), (0, "1 a\nb v w 1 /\nf\n"))

    def test_options_of_the_program_do_not_reach_the_driver(self):
        guest = self.guest()
        self.assertEqual(guest.keep("set -eux; IFS=0; read() { :; }; printf() { :; }"), ("ok", "0"))
        self.assertEqual(guest.keep("echo hi"), ("ok", "0"))
        self.assertEqual(guest.keep("set +x; echo $-"), ("ok", "0"))
        guest.send("close")
        status, out, err = guest.end()
        self.assertEqual(status, 0)
        self.assertIn("+ echo hi", err)
        self.assertNotIn("finish", err)
        self.assertIn("e", out.split("\n")[1])

    def test_the_channel_is_closed_for_the_program(self):
        guest = self.guest()
        guest.keep("ls -l /proc/self/fd | grep -c socket; exec 3>mine; echo kept >&3")
        guest.keep("exit 1")
        guest.keep("ls -l /proc/self/fd | grep -c socket; echo more >&3; cat mine")
        guest.send("close")
        self.assertEqual(guest.end()[1], "0\n0\nkept\nmore\n")

    def test_each_kept_run_has_its_own_stdin(self):
        guest = self.guest()
        path = os.path.join(guest.workspace, "in")
        with open(path, "w") as file:
            file.write("one\ntwo\n")
        guest.keep("read a; echo $a", stdin=path)
        guest.keep("read a; echo eof $?")
        guest.send("close")
        self.assertEqual(guest.end()[1], "one\neof 1\n")

    def test_a_kept_run_does_not_see_the_file_of_its_stdin(self):
        guest = self.guest()
        path = os.path.join(guest.workspace, "in")
        with open(path, "w") as file:
            file.write("one\n")
        guest.keep("ls; cat", stdin=path)
        guest.send("close")
        self.assertEqual(guest.end(), (0, "main.sh\none\n", ""))

    def test_a_signal_that_ends_the_shell_is_its_end(self):
        for name in ("SEGV", "TERM", "HUP", "ABRT", "PIPE", "USR1", "ALRM", "XCPU", "KILL"):
            number = getattr(signal, f"SIG{name}")
            for code in (f"kill -{name} $$; echo no", f"f() {{ kill -{name} $$; }}; f", f"sh -c 'kill -{name} $PPID'"):
                guest = self.guest()
                # A new shell after an exit has the same traps.
                self.assertEqual(guest.keep("exit 3"), ("exit", "3"))
                self.assertEqual(guest.keep(code), None, (name, code))
                self.assertEqual(guest.end()[0], -number, (name, code))

    def test_signals_that_a_program_handles_are_its_own(self):
        guest = self.guest()
        self.assertEqual(guest.keep("trap 'echo caught' TERM USR1; trap '' HUP"), ("ok", "0"))
        self.assertEqual(guest.keep("kill $$; kill -USR1 $$; kill -HUP $$; (kill $BASHPID); echo $?"), ("ok", "0"))
        guest.send("close")
        self.assertEqual(guest.end()[:2], (0, "caught\ncaught\n143\n"))

    def test_interrupt_keeps_the_state(self):
        guest = self.guest()
        guest.keep("x=1")
        for code in ("echo on; while :; do :; done", "echo on; sleep 60", "f() { while :; do sleep 1; done; }; echo on; f"):
            os.killpg(guest.process.pid, signal.SIGINT)  # idle: nothing to stop
            before = guest.streams()[0].count("on")
            guest.run(code, mode="keep")
            end = time.monotonic() + DEADLINE_S
            while guest.streams()[0].count("on") == before and time.monotonic() < end:
                select.select([], [], [], 0.01)
            os.killpg(guest.process.pid, signal.SIGINT)
            self.assertEqual(guest.done(), ("interrupted", "130"))
            self.assertEqual(guest.keep("[ $x = 1 ]"), ("ok", "0"))

    def test_close_ends_with_the_status_of_the_last_run(self):
        guest = self.guest()
        guest.keep("(exit 9)")
        guest.host.shutdown(socket.SHUT_WR)
        self.assertEqual(guest.end()[0], 9)

    def test_end_of_channel_ends_an_idle_driver(self):
        guest = self.guest()
        self.assertEqual(guest.receive(), ["ready"])
        guest.host.shutdown(socket.SHUT_WR)
        self.assertEqual(guest.end()[0], 0)

    def test_probe(self):
        answer = json.loads(subprocess.check_output([BASH, os.path.join(FOLDER, "probe.sh")], env=ENV))
        self.assertEqual(sorted(answer), ["binds", "env", "executable", "packages", "version"])
        self.assertTrue(os.access(answer["executable"], os.X_OK))


if __name__ == "__main__":
    unittest.main()
