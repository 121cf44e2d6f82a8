"""scripts/packages: versions count, not presence alone."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def ask(programs, *tasks):
    """Runs the script with stand-ins of these programs first in PATH; returns status and messages."""
    with tempfile.TemporaryDirectory() as folder:
        for name, script in programs.items():
            path = Path(folder, name)
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TRIMTAB_INSTALL": "no"}
        done = subprocess.run([ROOT / "scripts/packages", *tasks], env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr


class Versions(unittest.TestCase):
    # As pkg-config answers for a library of this version.
    PKG_CONFIG = """case $1 in
--atleast-version) [ "$(printf '%s\\n' "$2" {found} | sort -V | head -n 1)" = "$2" ] ;;
esac"""

    def test_a_library_that_is_too_old_is_missing(self):
        for found, missing in [("2.7.0", True), ("2.8.0", False), ("2.12.2", False)]:
            status, said = ask({"pkg-config": self.PKG_CONFIG.format(found=found)}, "build")
            self.assertEqual("hwloc 2.8 or later" in said, missing, said)
            if missing:
                self.assertEqual(status, 1, said)

    def test_a_compiler_that_is_too_old_is_refused(self):
        status, said = ask({"cargo": "echo cargo 1.60.0"}, "build")
        self.assertEqual((status, "is needed, here is 1.60.0" in said), (1, True), said)

    def test_an_old_python_is_missing(self):
        status, said = ask({"python3": "exit 1"}, "demo")
        self.assertEqual((status, "the demonstration itself" in said), (1, True), said)


if __name__ == "__main__":
    unittest.main()
