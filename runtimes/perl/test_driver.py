"""Plays the guest for driver.pl; what every driver must do is in tests/drivers/player.py.

Run: `python3 runtimes/perl/test_driver.py`.
"""

import os
import sys
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "..", "..", "tests", "drivers"))

import player  # noqa: E402


class DriverTest(player.DriverTests, unittest.TestCase):
    folder = FOLDER
    hello = "print 6 * 7, \"\\n\";"
    exit_7 = "exit 7;"
    show_args = "print \"$_\\n\" for @ARGV;"
    show_given = 'utf8::decode(my $text = $ENV{GIVEN});\nprint "$text\\n";\nsystem("printenv", "GIVEN");'
    show_texts = "print \"$_\\x02\\n\" for @texts;"
    show_numbers = "print \"$_\\n\" for @numbers;"
    fails = ("use strict;\nsub f {\n  die 'boom';\n}\nf();", 3, "boom")
    broken = ("print 1;\nmy $x = ;\n", 2)
    speaks = "for my $n (3 .. 128) { open(my $f, '>&=', $n) or next; binmode($f); syswrite($f, \"2\\0done\\0r1\\0\") }\nexit 6;"
    fails_status = 255

    def test_variables_arrive_as_native_values(self):
        given = {"n": None, "t": True, "f": 1.5, "big": 10**40, "i": 2**62, "u": "ü\u2028🐍\n\"", "l": [1, [2, {"k": None}]], "e": {}, "m": {"k": "v"}}
        code = ("use strict; use warnings; use JSON::PP;\nprint JSON::PP->new->canonical->encode([$n, $t, $f, $big, $i, $u, $l, $e]), \"\\n\";\n"
                "print length($u), \" $l[0] $$l[0] $m{k} $m->{k} \", scalar(@l), \"\\n\";")
        out = '[null,true,1.5,"1%s",4611686018427387904,"ü\u2028🐍\\n\\"",[1,[2,{"k":null}]],{}]\n5 1 1 v v 2\n' % ("0" * 40)
        self.assertEqual(self.fresh(code, given)[:3], (0, out, ""))

    def test_a_program_is_a_script(self):
        code = ("use strict; use warnings;\nprint 'top ' unless caller;\nprint __LINE__, ' ', $0 eq __FILE__ ? 'y' : 'n', ' ', length('ü'), \"\\n\";\n"
                "while (<DATA>) { print \"> $_\" }\nEND { print \"bye\\n\" }\n__END__\nöne\ntwo\n")
        self.assertEqual(self.fresh(code)[:3], (0, "top 3 y 1\n> öne\n> two\nbye\n", ""))
        self.assertEqual(self.fresh("package Other;\nprint <DATA>;\n__DATA__\nrest\n")[1], "rest\n")

    def test_the_channel_is_not_inherited_and_three_is_free(self):
        self.assertEqual(self.fresh("open(my $f, '<', '/dev/null'); print fileno($f) < 10 ? 'y' : 'n';\nmy $l = `ls -l /proc/self/fd`; print $l =~ /socket/ ? 1 : 0;")[1], "y0")

    def test_messages_name_no_handle_of_the_driver(self):
        self.assertEqual(self.fresh("warn 'w';\n")[2], "w at W/main.pl line 1.\n")

    def test_the_check_allows_for_variables_and_names_modules(self):
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "main.pl")
            for code, expected in (("use strict;\nprint $given;", "note"), ("use No::Such;\nprint 1;", "missing")):
                with open(source, "w") as file:
                    file.write(code)
                self.assertEqual(self.language.check(source)[0][0], expected)


if __name__ == "__main__":
    unittest.main()
