"""scripts/wheel: the files of a wheel, their list, and what is refused."""

import base64
import csv
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

from .test_release import ROOT, load

wheel = load("wheel")
TOP = "trimtab-1.2.3-x86_64-linux"
PROGRAMS = ("bin/trimtab", "bin/trimtab-lab", "libexec/trimtab/trimtab-discover", "lib/trimtab/mpi/trimtab-teams")
# What `trimtab run --teams` compiles.
SOURCES = tuple(f"lib/trimtab/mpi/src/{path.name}" for path in sorted((ROOT / "integrations/mpi/src").iterdir()))
FILES = SOURCES + ("lib/trimtab/libtrimtab_shim.so", "lib/trimtab/libtrimtab_shim_blas.so", "lib/libtrimtab_team.so.0", "lib/systemd/system/trimtab.service", "include/trimtab/team.h", "include/trimtab/trimtab.h",
         "share/man/man1/trimtab.1", "share/doc/trimtab/LICENSE-MIT", "share/doc/trimtab/third-party-licences.txt",
         "share/doc/trimtab/sbom.cdx.json", "share/doc/trimtab/README.md")


class Wheels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def archive(self, names=PROGRAMS + FILES):
        path = self.folder / f"{TOP}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name in names:
                entry = tarfile.TarInfo(f"{TOP}/{name}")
                content = f"content of {name}".encode()
                entry.size, entry.mtime, entry.mode = len(content), 1_700_000_000, 0o755 if name in PROGRAMS else 0o644
                archive.addfile(entry, io.BytesIO(content))
        return path

    def module(self, *names):
        path = self.folder / "module.whl"
        with zipfile.ZipFile(path, "w") as module:
            for name in names or ("trimtab_team/__init__.py", "trimtab_team/_native.abi3.so", "x.dist-info/METADATA", "x.dist-info/sboms/a.json"):
                module.writestr(name, name)
        return path

    def written(self):
        files, newest = wheel.of_archive(self.archive(), TOP, "1.2.3")
        files |= wheel.of_module(self.module(), "1.2.3")
        path = self.folder / "a.whl"
        wheel.write(path, files, newest, "trimtab-1.2.3.dist-info")
        return path

    def test_the_archives_files_are_where_pip_puts_programs_and_data(self):
        with zipfile.ZipFile(self.written()) as written:
            modes = {entry.filename: entry.external_attr >> 16 for entry in written.infolist()}
            times = {entry.date_time for entry in written.infolist()}
        data, info = "trimtab-1.2.3.data", "trimtab-1.2.3.dist-info"
        self.assertEqual({name for name, mode in modes.items() if mode == 0o100755},
                         {f"{data}/scripts/trimtab", f"{data}/scripts/trimtab-lab", f"{data}/data/libexec/trimtab/trimtab-discover",
                          f"{data}/data/lib/trimtab/mpi/trimtab-teams"})
        self.assertIn("lib/trimtab/mpi/src/trimtab_mpi.h", SOURCES)
        self.assertEqual({name for name, mode in modes.items() if mode == 0o100644},
                         {f"{data}/data/{name}" for name in SOURCES} |
                         {f"{data}/data/lib/trimtab/libtrimtab_shim.so", f"{data}/data/lib/trimtab/libtrimtab_shim_blas.so", f"{data}/data/share/man/man1/trimtab.1", f"{data}/data/include/trimtab/team.h", "trimtab_team/__init__.py",
                          "trimtab_team/_native.abi3.so", f"{info}/licenses/LICENSE-MIT", f"{info}/licenses/third-party-licences.txt",
                          f"{info}/sboms/trimtab.cdx.json", f"{info}/sboms/trimtab_team.cdx.json", f"{info}/RECORD"})
        self.assertEqual(times, {(2023, 11, 14, 22, 13, 20)})

    def test_the_record_lists_each_file_with_its_digest(self):
        with zipfile.ZipFile(self.written()) as written:
            rows = list(csv.reader(written.read("trimtab-1.2.3.dist-info/RECORD").decode().splitlines()))
            self.assertEqual(sorted(row[0] for row in rows), sorted(written.namelist()))
            for name, digest, size in rows[:-1]:
                content = written.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                self.assertEqual((digest, int(size)), (f"sha256={expected}", len(content)), name)
        self.assertEqual(rows[-1], ["trimtab-1.2.3.dist-info/RECORD", "", ""])

    def test_equal_archives_and_modules_give_equal_bytes(self):
        self.assertEqual(self.written().read_bytes(), self.written().read_bytes())

    def test_the_module_for_cores_is_there(self):
        files = wheel.of_cores()
        expected = {str(path.relative_to(ROOT / "python")) for path in (ROOT / "python/trimtab").glob("*") if path.is_file()}
        self.assertEqual(set(files), expected)
        self.assertIn("trimtab/__init__.py", files)
        section, entry = wheel.ENTRY_POINTS.splitlines()
        self.assertEqual(section, "[pytest11]")
        module = entry.removeprefix("trimtab = ").replace(".", "/") + ".py"
        self.assertIn(module, files)

    def test_libraries_are_where_the_module_and_trimtab_teams_look_for_them(self):
        for name in wheel.LIBRARIES:
            (self.folder / name).write_bytes(name.encode())
        self.assertEqual(wheel.of_libraries(self.folder, "1.2.3"), {
            "trimtab-1.2.3.data/data/lib/trimtab/libtrimtab.so.0": (b"libtrimtab_hold_c.so", False),
            "trimtab-1.2.3.data/data/lib/libtrimtab_team.so.0": (b"libtrimtab_team_c.so", False)})
        # The name that the module looks for, and those that the libraries get when they are built.
        self.assertIn(f'"{wheel.LIBRARY}"', (ROOT / "python/trimtab/_library.py").read_text())
        for crate in ("hold-c", "team-c"):
            self.assertIn("const SOVERSION: u32 = 0;", (ROOT / f"crates/{crate}/build.rs").read_text())
        # From lib/trimtab/mpi, as scripts/install puts the program there.
        program = (ROOT / "integrations/mpi/trimtab-teams").read_text()
        self.assertIn('[ -f "$source/../../libtrimtab_team.so.0" ]', program)
        self.assertIn('include=$(readlink -f "$source/../../../include")', program)

    def test_versions_are_those_of_python(self):
        for version, expected in [("1.2.3", "1.2.3"), ("1.2.3-rc.4", "1.2.3rc4"), ("1.2.3-alpha.1", "1.2.3a1"), ("1.2.3-beta1", "1.2.3b1")]:
            self.assertEqual(wheel.python_version(version), expected)
        with self.assertRaises(SystemExit):
            wheel.python_version("1.2.3-nightly")

    def test_archives_without_a_part_and_other_modules_are_refused(self):
        for part in ("bin/trimtab", "lib/trimtab/libtrimtab_shim.so", "lib/trimtab/libtrimtab_shim_blas.so", "lib/trimtab/mpi/trimtab-teams",
                     "include/trimtab/team.h"):
            with self.assertRaises(SystemExit) as refusal:
                wheel.of_archive(self.archive([name for name in PROGRAMS + FILES if name != part]), TOP, "1.2.3")
            self.assertIn(part.rsplit("/", 1)[-1], str(refusal.exception))
        with self.assertRaises(SystemExit):
            wheel.of_module(self.module("trimtab_team/__init__.py", "trimtab_team/_native.cpython-311.so"), "1.2.3")

    def test_words_that_are_no_archive_are_refused(self):
        (self.folder / "trimtab-1.2.3-x86_64-linux.tar.gz").write_bytes(b"no archive")
        for name, said in [("trimtab-1.2.3-x86_64-linux.tar.gz", "cannot read"), ("trimtab-1.2.3.tar.gz", "not the name"),
                           ("trimtab-1.2.3-sparc-linux.tar.gz", "not the name")]:
            done = subprocess.run([sys.executable, "-B", ROOT / "scripts/wheel", self.folder / name], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, name)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
