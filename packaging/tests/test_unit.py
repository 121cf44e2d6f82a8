"""The systemd unit, as far as it can be judged without a booted systemd (make test-systemd boots one)."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

UNIT = Path(__file__).resolve().parent.parent / "trimtab.service"
# The highest exposure that systemd-analyze may find, from 0 to 10.
EXPOSURE_MAX = 2.5


def settings():
    """The unit's settings by section: all values of each name."""
    found, section = {}, None
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, value = line.split("=", 1)
            found.setdefault((section, name), []).append(value)
    return found


class Unit(unittest.TestCase):
    def analyze(self, *words):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        with tempfile.TemporaryDirectory() as folder:
            unit = Path(folder) / "trimtab.service"
            # A program that exists everywhere, so that only the unit is judged.
            unit.write_text(UNIT.read_text().replace('"@BINDIR@/trimtab"', "/bin/true"))
            return subprocess.run(["systemd-analyze", *words, unit], capture_output=True, text=True, timeout=120)

    def test_the_exposure_is_low(self):
        done = self.analyze("security", "--offline=true", "--no-pager")
        if "offline" in done.stderr:
            self.skipTest(f"this systemd-analyze cannot judge a file: {done.stderr.strip()}")
        found = re.search(r"Overall exposure level for trimtab.service: ([0-9.]+)", done.stdout)
        self.assertIsNotNone(found, done.stdout + done.stderr)
        self.assertLessEqual(float(found.group(1)), EXPOSURE_MAX, done.stdout)

    def test_an_error_of_usage_does_not_restart_it_and_starts_are_limited(self):
        unit = settings()
        self.assertEqual(unit["Service", "Restart"], ["on-failure"])
        self.assertIn("2", unit["Service", "RestartPreventExitStatus"][0].split())
        restart, interval = float(unit["Service", "RestartSec"][0]), float(unit["Unit", "StartLimitIntervalSec"][0])
        # Otherwise the limit would never be reached.
        self.assertLess(restart * int(unit["Unit", "StartLimitBurst"][0]), interval)

    def test_what_the_service_offers_is_allowed(self):
        unit = settings()
        families = unit["Service", "RestrictAddressFamilies"][0].split()
        self.assertEqual(families, ["AF_UNIX", "AF_VSOCK"])
        self.assertEqual(unit["Service", "LogsDirectory"], ["trimtab"])
        self.assertIn("perf_event_open", unit["Service", "SystemCallFilter"][0].split())
        self.assertTrue(unit["Service", "ExecReload"][0].endswith("/trimtab\" reload"))
        self.assertTrue(unit["Service", "ExecStart"][0].endswith("serve --policy auto --verbose"))


if __name__ == "__main__":
    unittest.main()
