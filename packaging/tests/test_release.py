"""scripts/release: what it writes, what it refuses, and that a failure leaves nothing behind."""

import hashlib
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACEHOLDER = "# no address yet\n"
ADDRESS = "https://host.invalid/owner/trimtab"


def load(name):
    """Imports a script, whose name has no ending."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


release = load("release")


class Versions(unittest.TestCase):
    def test_versions_are_ordered_as_semver_says(self):
        # The example of https://semver.org, 11.4.
        row = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1",
               "1.0.0", "1.0.1", "1.2.0", "1.10.0", "2.0.0"]
        self.assertEqual(sorted(reversed(row), key=release.order), row)

    def test_other_texts_are_no_versions(self):
        for text in ["", "1", "1.2", "v1.2.3", "1.2.3.4", "01.2.3", "1.2.3-", "1.2.3-a..b", "1.2.3+5", "1.2.3\n4", "1.2.3\n", " 1.2.3"]:
            self.assertIsNone(release.VERSION.match(text), text)


class Texts(unittest.TestCase):
    def test_the_changelog_gets_a_heading_and_an_empty_section_before_it(self):
        text, section = release.changelog("# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.1.0 - 2026-01-01\n\n- Old.\n",
                                          "0.2.0", "2026-02-03")
        self.assertEqual(text, "# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2026-02-03\n\n### Added\n\n- A thing.\n\n"
                               "## 0.1.0 - 2026-01-01\n\n- Old.\n")
        self.assertEqual(section, "### Added\n\n- A thing.")

    def test_a_changelog_without_news_is_refused(self):
        for text in ["## Unreleased\n", "## Unreleased\n\n### Added\n\n## 0.1.0 - 2026-01-01\n\n- Old.\n", "# Changelog\n",
                     "## Unreleased\n\n- A thing.\n\n## 0.2.0 - 2026-01-01\n\n- The same.\n"]:
            with self.assertRaises(release.Refused, msg=text):
                release.changelog(text, "0.2.0", "2026-02-03")

    def test_addresses(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "packaging").mkdir()

            def address(text):
                (Path(folder) / "packaging/repository").write_text(text)
                return release.tree.address(Path(folder))

            self.assertIsNone(address(PLACEHOLDER))
            self.assertEqual(address(f"{PLACEHOLDER}{ADDRESS}\n"), ADDRESS)
            for text in ["http://host.invalid/a", "https://host.invalid", "https://host.invalid/a/", "https://host.invalid/a b", f"{ADDRESS}\n{ADDRESS}"]:
                with self.assertRaises(ValueError, msg=text):
                    address(text)

    def test_a_file_that_has_changed_its_form_is_an_error(self):
        with self.assertRaises(release.Refused):
            release.workspace_manifest('[workspace.package]\nedition = "2024"\nversion = "0.1.0"\n', "0.2.0", None)

    def test_crates_of_others_keep_their_versions_in_lock_files(self):
        ours = '[[package]]\nname = "trimtab-core"\nversion = "0.1.0"\ndependencies = [\n "serde",\n]\n\n'
        others = '[[package]]\nname = "trimtab-like"\nversion = "0.1.0"\nsource = "registry+x"\n\n[[package]]\nname = "serde"\nversion = "0.1.0"\n'
        self.assertEqual(release.lock_file("version = 4\n\n" + ours + others, "0.2.0"),
                         "version = 4\n\n" + ours.replace("0.1.0", "0.2.0") + others)


class OfTheTree(unittest.TestCase):
    """With the files as they are now."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        known = ["Cargo.toml", "Cargo.lock", "CITATION.cff", "CHANGELOG.md", "python/Cargo.toml", "python/Cargo.lock", "fuzz/Cargo.lock",
                 "packaging/preload/Cargo.toml", "packaging/preload/Cargo.lock", "packaging/repository", "packaging/tree.py", "scripts/release", "scripts/compatible", *(str(path.relative_to(ROOT)) for path in ROOT.glob("crates/*/Cargo.toml"))]
        for name in known:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        (self.root / "packaging/repository").write_text(PLACEHOLDER)
        # A release may have emptied the section.
        log = (self.root / "CHANGELOG.md").read_text()
        (self.root / "CHANGELOG.md").write_text(log.replace("## Unreleased\n", "## Unreleased\n\n- News.\n", 1))
        (self.root / ".gitignore").write_text("/dist/\n__pycache__/\n")
        # In place of cargo and of make.
        self.program("program", 'case $1 in metadata) echo "{\\"packages\\": []}";; semver-checks) ;; *) mkdir -p dist && printf "%s\\n" "$*" >dist/made;; esac')

    def program(self, name, script):
        (self.root / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.root / name).chmod(0o755)

    def commit(self):
        for words in [["init", "--quiet", "--initial-branch", "main"], ["add", "."], ["commit", "--quiet", "-m", "All"]]:
            self.git(*words)

    def git(self, *words):
        own = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        for role in ("AUTHOR", "COMMITTER"):
            own |= {f"GIT_{role}_NAME": "A tester", f"GIT_{role}_EMAIL": "tester@host.invalid"}
        self.environment = os.environ | own
        done = subprocess.run(["git", *words], cwd=self.root, env=self.environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def release(self, *words, make="program", cargo="program"):
        # The manifests have no crates here.
        environment = self.environment | {"CARGO": str(self.root / cargo), "MAKE": str(self.root / make)}
        return subprocess.run([sys.executable, "-B", self.root / "scripts/release", *words], cwd=self.root, env=environment,
                              capture_output=True, text=True, check=False)

    def state(self):
        return self.git("rev-parse", "HEAD"), self.git("tag", "--list"), self.git("status", "--porcelain"), self.git("worktree", "list")

    def test_a_release_is_a_commit_artefacts_and_a_tag(self):
        self.commit()
        done = self.release("--date", "2026-02-03", "--artefacts", "dist,deb", "9.8.7-rc.1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.git("log", "--format=%s"), "Release 9.8.7-rc.1\nAll")
        self.assertEqual(self.git("rev-parse", "v9.8.7-rc.1^{commit}"), self.git("rev-parse", "main"))
        self.assertIn("- News.", self.git("tag", "--list", "--format=%(contents)"))
        self.assertEqual(self.git("status", "--porcelain"), "")
        self.assertEqual(len(self.git("worktree", "list").splitlines()), 1)
        self.assertEqual((self.root / "dist/made").read_text(), "dist deb ARGS=--old-glibc\n", "its libraries run where its programs do")
        total = hashlib.sha256(b"dist deb ARGS=--old-glibc\n").hexdigest()
        self.assertEqual((self.root / "dist/trimtab-9.8.7-rc.1.sha256sums").read_text(), f"{total}  made\n")
        for name in ["Cargo.toml", "python/Cargo.toml", "packaging/preload/Cargo.toml", "packaging/preload/Cargo.lock", "CITATION.cff", "CHANGELOG.md"]:
            self.assertIn("9.8.7-rc.1", (self.root / name).read_text(), name)
        old = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
        self.assertNotIn(f'crates/core", version = "{old}"', (self.root / "Cargo.toml").read_text())
        self.assertNotIn(f'version = "{old}"', (self.root / "packaging/preload/Cargo.toml").read_text())
        self.assertEqual(self.release("--artefacts", "none", "9.8.7-rc.1").returncode, 1, "it has a tag")
        self.assertIn("not newer", self.release("--artefacts", "none", "9.8.6").stderr)

    def test_an_address_goes_into_the_metadata_once(self):
        (self.root / "packaging/repository").write_text(PLACEHOLDER + ADDRESS + "\n")
        self.commit()
        self.assertEqual(self.release("--artefacts", "none", "9.8.7").returncode, 0)
        log = self.root / "CHANGELOG.md"
        log.write_text(log.read_text().replace("## Unreleased\n", "## Unreleased\n\n- More.\n", 1))
        self.git("commit", "--all", "--quiet", "-m", "More")
        self.assertEqual(self.release("--artefacts", "none", "9.8.8").returncode, 0)
        workspace = (self.root / "Cargo.toml").read_text()
        self.assertIn(f'[workspace.package]\nversion = "9.8.8"\nrepository = "{ADDRESS}"\n', workspace)
        self.assertEqual(workspace.count(ADDRESS), 1)
        self.assertEqual((self.root / "crates/core/Cargo.toml").read_text().count("repository.workspace = true"), 1)
        self.assertEqual((self.root / "CITATION.cff").read_text().count(f"repository-code: {ADDRESS}"), 1)

    def test_a_release_that_fails_leaves_nothing(self):
        self.program("broken", "mkdir -p dist && echo half >dist/half\nexit 1")
        self.commit()
        before = self.state()
        done = self.release("--artefacts", "dist", "9.8.7", make="broken")
        self.assertEqual((done.returncode, self.state(), (self.root / "dist").exists()), (1, before, False), done.stderr)
        self.assertIn("broken dist ARGS=--old-glibc fails", done.stderr)

    def test_a_version_that_does_not_permit_the_changes_of_interfaces_is_refused(self):
        # cargo-semver-checks is there, and finds a change that the version does not permit.
        self.program("strict", 'case "$*" in metadata*) echo "{\\"packages\\": []}";; "semver-checks --version") ;; *) exit 1;; esac')
        self.commit()
        self.assertEqual(self.release("--artefacts", "none", "9.8.7", cargo="strict").returncode, 0, "there is no earlier release")
        log = self.root / "CHANGELOG.md"
        log.write_text(log.read_text().replace("## Unreleased\n", "## Unreleased\n\n- More.\n", 1))
        self.git("commit", "--all", "--quiet", "-m", "More")
        before = self.state()
        done = self.release("--artefacts", "none", "9.8.8", cargo="strict")
        self.assertEqual((done.returncode, self.state()), (1, before), done.stderr)
        self.assertIn("scripts/compatible interfaces fails", done.stderr)
        self.assertEqual(self.release("--artefacts", "none", "9.8.8").returncode, 0)

    def test_a_dry_run_shows_the_changes_and_makes_none(self):
        self.commit()
        before = self.state()
        done = self.release("--dry-run", "9.8.7")
        self.assertEqual((done.returncode, self.state(), (self.root / "dist").exists()), (0, before, False), done.stderr)
        self.assertIn('+version = "9.8.7"', done.stdout)
        self.assertIn("+## 9.8.7 - ", done.stdout)

    def test_what_cannot_be_released_is_refused(self):
        self.commit()
        before = self.state()
        for words, status, said in [(["1.2"], 1, "no version"), (["--date", "3.2.2026", "9.8.7"], 2, "no day"),
                                    (["--artefacts", "msi", "9.8.7"], 2, "unknown artefact"), ([], 2, "VERSION")]:
            done = self.release(*words)
            self.assertEqual((done.returncode, self.state()), (status, before), words)
            self.assertIn(said, done.stderr)
        (self.root / "new").touch()
        self.assertIn("not committed (new)", self.release("9.8.7").stderr)
        (self.root / "new").unlink()
        self.git("switch", "--quiet", "--detach")
        self.assertIn("no branch", self.release("9.8.7").stderr)


if __name__ == "__main__":
    unittest.main()
