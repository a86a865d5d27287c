"""Plays the guest for driver.tcl; what every driver must do is in tests/drivers/player.py.

Run: `python3 runtimes/tcl/test_driver.py`.
"""

import os
import sys
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "..", "..", "tests", "drivers"))

import player  # noqa: E402


class DriverTest(player.DriverTests, unittest.TestCase):
    folder = FOLDER
    hello = "puts [expr {6 * 7}]"
    exit_7 = "exit 7"
    show_args = "foreach word $argv { puts $word }"
    show_given = 'puts $env(GIVEN)\nputs [exec printenv GIVEN]'
    show_texts = "foreach text $texts { puts \"$text\\x02\" }"
    show_numbers = "foreach number $numbers { puts $number }"
    fails = ("proc f {} {\n  error boom\n}\nf", 4, "boom")
    broken = ("puts 1\nproc f {} {\nputs 2\n", 2)

    def test_variables_arrive_as_native_values(self):
        given = {"n": None, "t": True, "f": 1.5, "big": 10**40, "u": "ü\u2028🐍\n\"{[$x]}", "l": [1, "a b"], "m": {"k": "v w"}, "j": [[1]]}
        code = "puts [list $n $t $f [expr {$big + 1}]]\nputs $u\nputs [lindex $l 1]|[dict get $m k]|$j"
        out = '{} true 1.5 1%s1\nü\u2028🐍\n"{[$x]}\na b|v w|[[1]]\n' % ("0" * 39)
        self.assertEqual(self.fresh(code, given)[:3], (0, out, ""))

    def test_a_program_is_a_script(self):
        self.assertEqual(self.fresh("puts [expr {$argv0 eq [info script]}]\nputs [namespace current]\nputs [info level]")[:3], (0, "1\n::\n0\n", ""))


if __name__ == "__main__":
    unittest.main()
