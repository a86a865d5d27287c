"""TypeScript through the driver it shares with JavaScript, whose test_driver.py plays the guest.

Run: `python3 runtimes/typescript/test_driver.py` with PALISADE_BIN naming a built palisade, which takes the types out.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("guest", os.path.join(FOLDER, "..", "javascript", "test_driver.py"))
guest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(guest)


class TypeScriptCase:
    node = None

    def setUp(self):
        if not guest.PALISADE:
            self.skipTest("no palisade is built: set PALISADE_BIN")
        self.workspace = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.workspace, True)

    def fresh(self, code, files=None, **more):
        for name, text in (files or {}).items():
            with open(os.path.join(self.workspace, name), "w") as file:
                file.write(text)
        one = guest.Guest(self.node, self.workspace, "typescript")
        self.addCleanup(one.kill)
        one.run(code, **more)
        done = one.done()
        status, out, err = one.end()
        return status, out, err.replace(self.workspace, "W"), done

    def test_types_are_taken_out(self):
        status, out, err, done = self.fresh("interface A { x: number }\nconst a: A = { x: 1 };\nenum E { B = 4 }\nconsole.log(a.x as number, E[4])\nE.B")
        self.assertEqual((status, out, err, done["json"]), (0, "1 B\n", "", "4"))

    def test_errors_name_the_source(self):
        status, out, err, done = self.fresh("type T = {\n  a: 1\n}\nenum E { A }\nfunction f<X>(x: X): never {\n  throw new Error('e' + x)\n}\nf<number>(1)")
        self.assertEqual((status, done["line"], done["column"]), (1, "6", "9"))
        self.assertIn("W/main.ts:6:9", err)
        self.assertIn("W/main.ts:8:1", err)

    def test_files_beside_the_program(self):
        files = {"helper.ts": "export const v: number = 3; export { w } from './other.js'", "other.ts": "export const w: string = 'w'",
                 "wrong.ts": "const x: = 1", "unused.ts": "const x: = 1"}
        self.assertEqual(self.fresh("import { v, w } from './helper'\nconsole.log(v, w)", files)[:3], (0, "3 w\n", ""))
        status, out, err, done = self.fresh("import './wrong'", files)
        self.assertEqual(status, 1)
        self.assertIn("wrong.ts:1:10", done["message"])

    def test_a_program_that_does_not_compile_is_told_by_the_parser(self):
        source = os.path.join(self.workspace, "main.ts")
        with open(source, "w") as file:
            file.write("let a = 1\nlet ü: = 2")
        command = [guest.PALISADE, "__parse", "prepare", "typescript", "last", source, source + ".out"]
        done = subprocess.run(command, capture_output=True)
        count, *fields = done.stdout.decode().split("\0")[:-1]
        self.assertEqual((done.returncode, count, fields[0], fields[5:7]), (1, "10", "done", ["2", "8"]))
        self.assertFalse(os.path.exists(source + ".out"))

    def test_deep_nesting_ends_only_the_parser(self):
        source = os.path.join(self.workspace, "main.ts")
        with open(source, "w") as file:
            file.write("[" * 100000)
        for words in (["prepare", "typescript", "last", source, source + ".out"], ["check", "typescript", source]):
            done = subprocess.run([guest.PALISADE, "__parse", *words], capture_output=True)
            self.assertLess(done.returncode, 0)

    def test_the_check_lists_imports(self):
        source = os.path.join(self.workspace, "main.ts")
        with open(source, "w") as file:
            file.write("import a from 'a'\nimport type { B } from 'b'\n")
        done = subprocess.run([guest.PALISADE, "__parse", "check", "typescript", source], capture_output=True)
        self.assertEqual((done.returncode, done.stdout), (0, b"3\0import\0a\x001\0"))

    def test_variables_and_values_are_those_of_javascript(self):
        done = self.fresh("declare const big: bigint\n[typeof big, big > 2n ** 60n] as const", variables={"big": 2**62})[3]
        self.assertEqual(json.loads(done["json"]), ["bigint", True])


def load_tests(loader, tests, pattern):
    suite = unittest.TestSuite()
    for number, node in enumerate(guest.interpreters()):
        case = type("TypeScript%d" % number, (TypeScriptCase, unittest.TestCase), {"node": node})
        suite.addTests(loader.loadTestsFromTestCase(case))
    return suite


if __name__ == "__main__":
    unittest.main()
