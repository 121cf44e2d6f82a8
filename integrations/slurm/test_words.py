"""The words of the plug-in: its options and lists, with made-up texts, under the checks of the compiler. Needs Slurm's headers alone."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Words(unittest.TestCase):
    def test_made_up_texts_are_read_or_refused(self):
        if not os.access("/usr/include/slurm/spank.h", os.R_OK):
            self.skipTest("Slurm's headers are not installed: scripts/packages slurm")
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "words"
            checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
            command = ["cc", "-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Wno-format-truncation", *checks]
            command += ["-I", HERE.parent.parent / "include", "-o", program, HERE / "test_words.c", "-ldl"]
            built = subprocess.run(command, text=True, capture_output=True, check=False)
            self.assertEqual((built.returncode, built.stderr), (0, ""))
            ended = subprocess.run([program], text=True, capture_output=True, check=False, timeout=120)
            self.assertEqual((ended.returncode, ended.stdout), (0, "all hold\n"), ended.stderr)


if __name__ == "__main__":
    unittest.main()
