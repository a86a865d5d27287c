"""Plays the guest for driver.awk; what every driver must do is in tests/drivers/player.py.

Run: `python3 runtimes/awk/test_driver.py`.
"""

import os
import sys
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "..", "..", "tests", "drivers"))

import player  # noqa: E402


class DriverTest(player.DriverTests, unittest.TestCase):
    folder = FOLDER
    hello = "BEGIN { print 6 * 7 }"
    exit_7 = "BEGIN { exit 7 }"
    show_args = "BEGIN { for (i = 1; i < ARGC; i++) print ARGV[i] }"
    show_given = 'BEGIN { print ENVIRON["GIVEN"]; system("printenv GIVEN") }'
    show_texts = "BEGIN { for (i = 1; i <= length(texts); i++) printf \"%s\\002\\n\", texts[i] }"
    show_numbers = "BEGIN { for (i = 1; i <= length(numbers); i++) print numbers[i] }"
    fails = ("function f(n) {\n  return 1 / n\n}\nBEGIN { f(0) }", 2, "division by zero")
    fails_status = 2
    broken = ("BEGIN {\n  x = (1\n}\n", 3)
    broken_status = 1
    speaks = 'BEGIN { system("for n in 3 4 5 6 7 8 9; do printf x >&$n; done 2>/dev/null"); exit 6 }'

    def test_variables_arrive_as_native_values(self):
        given = {"n": None, "t": True, "f": 1.5, "big": 10**40, "u": "ü\u2028🐍\n\"{[$x]}\\n", "l": [1, "a b"], "m": {"k": "v w"}, "j": [[1]], "e": []}
        code = 'BEGIN { print "[" n "]", t, f * 2, big; print u; print l[2] "|" m["k"] "|" j "|" length(e) "|" (l[1] < 10) }'
        out = '[] true 3 1%s\nü\u2028🐍\n"{[$x]}\\n\na b|v w|[[1]]|0|1\n' % ("0" * 40)
        self.assertEqual(self.fresh(code, given)[:3], (0, out, ""))

    def test_a_variable_that_the_program_does_not_name_does_no_harm(self):
        self.assertEqual(self.fresh("BEGIN { print NR RS RT }", {"other": "x", "more": [1]})[:3], (0, "0\n\n", ""))

    def test_the_program_has_neither_the_channel_nor_the_drivers_environment(self):
        code = 'BEGIN { system("for n in 3 4 5 6 7; do test -e /proc/self/fd/$n && readlink /proc/self/fd/$n; done; env | grep -E \'PRELOAD|STDBUF\'") }'
        self.assertEqual(self.fresh(code)[:3], (0, "", ""))

    def test_what_stays_in_the_background_does_not_delay_the_end(self):
        self.assertEqual(self.fresh('BEGIN { system("sleep 20 >/dev/null &"); printf "half" > "/dev/stderr" }')[:3], (0, "", "half"))


if __name__ == "__main__":
    unittest.main()
