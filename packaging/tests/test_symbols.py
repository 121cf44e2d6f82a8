"""The lists of symbols of the Debian packages name exactly the functions that the libraries export."""

import re
import unittest

from .test_release import ROOT

# Library, package, crate.
LIBRARIES = (("libtrimtab_team.so.0", "libtrimtab-team0", "team-c"), ("libtrimtab.so.0", "libtrimtab0", "hold-c"))
EXPORTED = re.compile(r'extern "C(?:-unwind)?" fn (trimtab_\w+)')


class Symbols(unittest.TestCase):
    def test_lists_name_what_the_sources_export(self):
        for library, package, crate in LIBRARIES:
            head, *lines = (ROOT / f"packaging/deb/{package}.symbols").read_text().splitlines()
            self.assertEqual(head, f"{library} {package} #MINVER#")
            listed = [line.strip().split("@")[0] for line in lines]
            exported = {name for path in (ROOT / f"crates/{crate}/src").rglob("*.rs") for name in EXPORTED.findall(path.read_text())}
            self.assertTrue(exported)
            self.assertEqual(listed, sorted(exported), f"packaging/deb/{package}.symbols")


if __name__ == "__main__":
    unittest.main()
