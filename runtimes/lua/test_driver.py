"""Plays the guest for driver.lua; what every driver must do is in tests/drivers/player.py.

Run: `python3 runtimes/lua/test_driver.py`.
"""

import os
import sys
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "..", "..", "tests", "drivers"))

import player  # noqa: E402


class DriverTest(player.DriverTests, unittest.TestCase):
    folder = FOLDER
    show_given = 'print(os.getenv("GIVEN"))\nio.stdout:flush()\nos.execute("printenv GIVEN")'
    hello = "print(6 * 7)"
    exit_7 = "os.exit(7)"
    show_args = "for _, word in ipairs({...}) do print(word) end"
    show_texts = "for _, text in ipairs(texts) do io.write(text, '\\2\\n') end"
    show_numbers = "for _, number in ipairs(numbers) do print(number) end"
    fails = ("local function f()\n  error('boom')\nend\nf()", 2, "boom")
    broken = ("print(1)\nlocal x = (\nlocal y", 3)

    def test_variables_arrive_as_native_values(self):
        given = {"n": None, "t": True, "f": 1.5, "big": 10**40, "i": 2**62, "u": "ü\u2028🐍\n\"\\u", "l": [1, None, [2, {"k": "v"}]], "e": {}}
        code = "print(n, t, f, big, math.type(i), i, u, #l, l[2] == null, l[3][2].k, next(e))"
        out = 'nil\ttrue\t1.5\t1%s\tinteger\t4611686018427387904\tü\u2028🐍\n"\\u\t3\ttrue\tv\tnil\n' % ("0" * 40)
        self.assertEqual(self.fresh(code, given)[:3], (0, out, ""))

    def test_escapes_of_every_kind_are_understood(self):
        guest = self.guest()
        guest.write("io.write(s, '|', #o.a)")
        guest.order(fields=[r'{"s":"\u00fc\ud83d\ude00\n\t\"\\\/\u0041BC\\u0041", "o" : { "a" : [ ] } }'])
        self.assertEqual(guest.end()[1], 'ü😀\n\t"\\/ABC\\u0041|0')

    def test_a_program_is_a_script(self):
        self.assertEqual(self.fresh("print(arg[0]:match('[^/]+$'), #arg, ..., null)\nreturn 5", args=["x"])[:3], (0, "main.lua\t1\tx\tnil\n", ""))

    def test_errors_look_like_the_interpreters(self):
        err = self.fresh("error({})")[2]
        self.assertIn("lua: (error object is a table value)", err)
        status, out, err, done = self.fresh("local t = nil\nprint(t.x)")
        self.assertEqual((done["line"], err.splitlines()[-1]), ("2", "\t[C]: in ?"))


if __name__ == "__main__":
    unittest.main()
