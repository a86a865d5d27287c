"""Plays the guest for driver.rb; what every driver must do is in tests/drivers/player.py.

Run: `python3 runtimes/ruby/test_driver.py`.
"""

import os
import sys
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "..", "..", "tests", "drivers"))

import player  # noqa: E402


class DriverTest(player.DriverTests, unittest.TestCase):
    folder = FOLDER
    hello = "puts 6 * 7"
    exit_7 = "exit 7"
    show_args = "puts ARGV"
    show_given = 'puts ENV["GIVEN"]\nsystem("printenv", "GIVEN")'
    show_texts = "texts.each { |text| print text, \"\\x02\\n\" }"
    show_numbers = "puts numbers"
    fails = ("def f\n  raise ArgumentError, 'boom'\nend\nf", 2, "boom")
    broken = ("puts 1\nx = (\n", 2)
    speaks = "(3..128).each { |n| begin; IO.for_fd(n, 'w', autoclose: false).syswrite(\"2\\0done\\0r1\\0\"); rescue SystemCallError, ArgumentError; end }\nexit 6"

    def test_variables_arrive_as_native_values(self):
        given = {"n": None, "t": True, "f": 1.5, "big": 10**40, "u": "ü\u2028🐍\n\"", "l": [1, [2, {"k": None}]], "e": {}}
        code = "p n, t, f, big, u, l, e\ndef m = $big\np m == big"
        out = 'nil\ntrue\n1.5\n1%s\n"ü\\u2028🐍\\n\\""\n[1, [2, {"k"=>nil}]]\n{}\ntrue\n' % ("0" * 40)
        self.assertEqual(self.fresh(code, given)[:3], (0, out, ""))

    def test_the_last_expression_is_the_value(self):
        done = self.fresh("x = [1, nil, 'ü']\nx")[3]
        self.assertEqual((done["status"], done["repr"], done["json"]), ("ok", '[1, nil, "ü"]', '[1,null,"ü"]'))
        self.assertEqual(self.fresh("puts 1")[3]["repr"], "")
        self.assertEqual(self.fresh(":a")[3]["json"], "")

    def test_a_program_is_a_script(self):
        code = "p __FILE__ == $0, __dir__ == Dir.pwd, DATA.read, self.to_s, caller.length < 5\nat_exit { puts 'bye' }\nreturn\nputs 'no'\n__END__\nrest\n"
        self.assertEqual(self.fresh(code)[:3], (0, 'true\ntrue\n"rest\\n"\n"main"\ntrue\nbye\n', ""))

    def test_the_channel_is_not_inherited_and_three_is_free(self):
        out = self.fresh("puts `ls -l /proc/self/fd`.scan('socket').length\nputs File.open('/dev/null').fileno < 10")[1]
        self.assertEqual(out, "0\ntrue\n")

    def test_libraries_and_gems_are_found(self):
        code = "require 'json'; require 'set'; require 'date'; require 'time'; puts Set[1].size, Gem::VERSION.length > 2\nrequire 'nosuch'"
        status, out, err, done = self.fresh(code)
        self.assertEqual((status, out), (1, "1\ntrue\n"))
        self.assertIn("cannot load such file -- nosuch", done["message"])


if __name__ == "__main__":
    unittest.main()
