"""The programs of the guide, as programs; and stubs that name what there is."""

import ast
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import trimtab_team

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "teams-python.md"


class Guide(unittest.TestCase):
    @unittest.skipUnless(GUIDE.exists(), "no guide beside these tests")
    def test_programs(self):
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("no numpy here")
        examples = re.findall(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", GUIDE.read_text(), re.S)
        self.assertEqual(len(examples), 2)
        for program, words in examples:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "example.py")
                pathlib.Path(path).write_text(program)
                done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout.split()), (0, words.split()), done.stderr)


class Stubs(unittest.TestCase):
    def test_name_what_there_is(self):
        path = pathlib.Path(trimtab_team.__file__).with_name("__init__.pyi")
        told = {}
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                told[node.name] = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            elif isinstance(node, ast.FunctionDef):
                told[node.name] = set()
        self.assertEqual(set(told), set(trimtab_team.__all__))
        for name in ("Team", "Rank", "Request", "Block"):
            found = {word for word in vars(getattr(trimtab_team, name)) if not word.startswith("_")}
            self.assertEqual({word for word in told[name] if not word.startswith("_")}, found, name)
            for word in found:
                self.assertTrue(getattr(getattr(trimtab_team, name), word).__doc__, "%s.%s" % (name, word))
