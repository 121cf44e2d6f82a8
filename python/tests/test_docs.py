"""The programs of the guide are run; the stubs name exactly the existing functions."""

import ast
import inspect
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import together
import trimtab_team


class Guide(unittest.TestCase):
    @unittest.skipUnless(together.GUIDE.exists(), "no guide beside these tests")
    def test_programs(self):
        """Except those that torchrun starts, which are among the tests of torch."""
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("no numpy here")
        run = 0
        for program, command, lines in together.examples():
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "example.py")
                pathlib.Path(path).write_text(program)
                words = [sys.executable, path]
                if command and (command[0] == "torchrun" or not shutil.which(command[0])):
                    continue
                if command:
                    words = [command[0], "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", *command[1:-2], *words]
                done = subprocess.run(words, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            # print may write a text and the end of its line apart, and a line of another rank between them.
            rest = done.stdout
            for line in lines:
                self.assertIn(line, rest, done.stdout)
                rest = rest.replace(line, "", 1)
            self.assertEqual(rest, "\n" * len(lines), done.stdout)
            run += 1
        self.assertGreaterEqual(run, 2)


def parameters(node):
    """Returns names, kinds and defaults in the form of inspect.signature; a default that a stub leaves open is Ellipsis."""
    told, arguments = [], node.args
    plain = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    for kind, names, values in (("positional", plain, defaults), ("keyword", arguments.kwonlyargs, arguments.kw_defaults)):
        told += [(name.arg, kind, (ast.literal_eval(value),) if value else ()) for name, value in zip(names, values)]
    return [one for one in told if one[0] not in ("self", "cls")]


def found_parameters(function):
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind = "keyword" if parameter.kind is parameter.KEYWORD_ONLY else "positional"
        found.append((name, kind, () if parameter.default is parameter.empty else (parameter.default,)))
    return [one for one in found if one[0] != "self"]


class Stubs(unittest.TestCase):
    def setUp(self):
        self.tree = ast.parse(pathlib.Path(trimtab_team.__file__).with_name("__init__.pyi").read_text())

    def test_stubs_name_all_public_members(self):
        told = {}
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef):
                told[node.name] = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            elif isinstance(node, ast.FunctionDef):
                told[node.name] = set()
        self.assertEqual(set(told), set(trimtab_team.__all__))
        for name in ("Team", "Rank", "Request", "Block", "View"):
            found = {word for word in vars(getattr(trimtab_team, name)) if not word.startswith("_")}
            self.assertEqual({word for word in told[name] if not word.startswith("_")}, found, name)
            for word in found:
                self.assertTrue(getattr(getattr(trimtab_team, name), word).__doc__, "%s.%s" % (name, word))

    def test_say_how_it_is_called(self):
        functions = [("", node) for node in self.tree.body if isinstance(node, ast.FunctionDef)]
        for place in self.tree.body:
            if isinstance(place, ast.ClassDef):
                functions += [(place.name, node) for node in place.body if isinstance(node, ast.FunctionDef)]
        seen = 0
        for place, node in functions:
            owner = getattr(trimtab_team, place) if place else trimtab_team
            if node.name == "__new__":
                function = owner
            elif node.name.startswith("__") or any(getattr(one, "id", "") == "property" for one in node.decorator_list):
                continue
            else:
                function = getattr(owner, node.name)
            told, found = parameters(node), found_parameters(function)
            self.assertEqual([one[:2] for one in told], [one[:2] for one in found], node.name)
            for (name, _, stub), (_, _, real) in zip(told, found):
                self.assertTrue(stub == real or (stub == (...,) and real), "%s(%s=%s), not %s" % (node.name, name, real, stub))
            seen += 1
        self.assertGreater(seen, 35)

    def test_are_marked_as_such(self):
        self.assertTrue(pathlib.Path(trimtab_team.__file__).with_name("py.typed").exists())
