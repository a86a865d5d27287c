"""Plays the guest for driver.R; what every driver must do is in tests/drivers/player.py.

Run: `python3 runtimes/r/test_driver.py`.
"""

import os
import sys
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "..", "..", "tests", "drivers"))

import player  # noqa: E402


class DriverTest(player.DriverTests, unittest.TestCase):
    folder = FOLDER
    hello = "cat(6 * 7, '\\n', sep = '')"
    exit_7 = "quit(status = 7)"
    show_args = "for (word in commandArgs(TRUE)) cat(word, '\\n', sep = '')"
    show_given = 'cat(Sys.getenv("GIVEN"), "\\n", sep = "")\nsystem("printenv GIVEN")'
    show_texts = "for (text in texts) cat(text, '\\x02\\n', sep = '')"
    show_numbers = "for (number in numbers) cat(if (is.character(number)) number else format(number, digits = 17), '\\n')"
    fails = ("f <- function() {\n  stop('boom')\n}\nf()", 2, "boom")
    broken = ("print(1)\nx <- )\n", 2)

    def test_variables_arrive_as_native_values(self):
        given = {"n": None, "t": True, "f": 1.5, "big": 10**40, "u": "ü\u2028🐍\n\"\\", "l": [1, 2, None], "m": [1, "a"], "e": {"k": [True, False], "z": None}}
        code = "cat(is.null(n), t, f, big, u, sum(l, na.rm = TRUE), class(m), e$k, names(e), is.null(e$z), ls(), sep = '|')"
        out = 'TRUE|TRUE|1.5|1%s|ü\u2028🐍\n"\\|3|list|TRUE|FALSE|k|z|TRUE|big|e|f|l|m|n|t|u' % ("0" * 40)
        self.assertEqual(self.fresh(code, given)[:3], (0, out, ""))

    def test_escapes_of_every_kind_are_understood(self):
        guest = self.guest()
        guest.write("cat(s, length(o$a))")
        guest.order(fields=[r'{"s":"\u00fc\ud83d\ude00\n\t\"\\\/\u0041BC\\u0041", "o" : { "a" : [ ] } }'])
        self.assertEqual(guest.end()[1], 'ü😀\n\t"\\/ABC\\u0041 0')

    def test_a_program_is_a_script(self):
        code = "if (sys.nframe() == 0L) cat('main\\n')\n1 + 1\nx <- 3\ninvisible(4)\nls()\nwarning('w')"
        status, out, err, done = self.fresh(code)
        self.assertEqual((status, out), (0, 'main\n[1] 2\n[1] "x"\n'))
        self.assertIn("w", err)

    def test_errors_look_like_the_interpreters(self):
        self.assertEqual(self.fresh("stop('boom')")[2], "Error: boom\nExecution halted\n")
        status, out, err, done = self.fresh("f <- function(x) log(x)\n\nf('a')")
        self.assertEqual((err.splitlines()[0], done["line"]), ("Error in log(x) : non-numeric argument to mathematical function", "1"))
        self.assertEqual(self.fresh("tryCatch(stop('x'), error = function(e) cat('caught'))")[:3], (0, "caught", ""))


if __name__ == "__main__":
    unittest.main()
