"""Plays the guest for driver.php; what every driver must do is in tests/drivers/player.py.

Run: `python3 runtimes/php/test_driver.py`.
"""

import os
import sys
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "..", "..", "tests", "drivers"))

import player  # noqa: E402


class DriverTest(player.DriverTests, unittest.TestCase):
    folder = FOLDER
    hello = "<?php echo 6 * 7, PHP_EOL;"
    exit_7 = "<?php exit(7);"
    show_args = "<?php foreach (array_slice($argv, 1) as $word) { echo $word, PHP_EOL; }"
    show_given = '<?php echo getenv("GIVEN") === $_ENV["GIVEN"] ? $_SERVER["GIVEN"] : "differs", "\\n"; system("printenv GIVEN");'
    show_texts = "<?php foreach ($texts as $text) { echo $text, \"\\x02\\n\"; }"
    show_numbers = "<?php foreach ($numbers as $number) { echo $number, PHP_EOL; }"
    fails = ("<?php\nfunction f() {\n  throw new Exception('boom');\n}\nf();", 3, "boom")
    broken = ("<?php\necho 1;\n$x = (;\n", 3)
    speaks = "<?php for ($n = 3; $n < 128; $n++) { @file_put_contents(\"php://fd/$n\", \"2\\0done\\0r1\\0\"); } exit(6);"
    fails_status = 255

    def test_variables_arrive_as_native_values(self):
        given = {"n": None, "t": True, "f": 1.5, "big": 10**40, "i": 2**62, "u": "ü\u2028🐍\n\"", "l": [1, [2, {"k": None}]], "e": {}}
        code = "<?php foreach ([$n, $t, $f, $big, $i, $u, $l, $e] as $value) { echo json_encode($value, 320 | JSON_UNESCAPED_LINE_TERMINATORS), PHP_EOL; }\necho gettype($big), isset($message) ? 1 : 0;"
        out = 'null\ntrue\n1.5\n"1%s"\n4611686018427387904\n"ü\u2028🐍\\n\\""\n[1,[2,{"k":null}]]\n[]\nstring0' % ("0" * 40)
        self.assertEqual(self.fresh(code, given)[:3], (0, out, ""))

    def test_a_program_is_a_script(self):
        code = "<?php\ndeclare(strict_types=1);\nnamespace A;\n$x = 1;\nfunction f() { global $x; return $x; }\necho f(), count(get_included_files()), realpath($_SERVER['SCRIPT_FILENAME']) === __FILE__ ? 'y' : 'n', __LINE__;\nregister_shutdown_function(fn () => print('bye'));\nreturn;"
        self.assertEqual(self.fresh(code)[:3], (0, "12y6bye", ""))

    def test_the_channel_is_not_inherited_where_ffi_is_there(self):
        if "FFI" not in self.language.probe["packages"]:
            self.skipTest("this PHP has no FFI")
        self.assertEqual(self.fresh("<?php echo substr_count(shell_exec('ls -l /proc/self/fd'), 'socket');")[1], "0")

    def test_an_error_of_every_kind_is_told(self):
        for code, words in (("<?php\n\nnosuch();", "undefined function nosuch"), ("<?php\n\ntrigger_error('boom', E_USER_ERROR);", "boom"), ("<?php\n\nintdiv(1, 0);", "DivisionByZeroError")):
            status, out, err, done = self.fresh(code)
            self.assertEqual((status, out, done["line"]), (255, "", "3"))
            self.assertIn(words, done["message"])


if __name__ == "__main__":
    unittest.main()
