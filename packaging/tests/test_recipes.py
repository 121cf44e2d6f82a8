"""The recipes: each is read by its own tool where that is here, and otherwise by a parser."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import types
import unittest
from pathlib import Path

from .test_release import ADDRESS, ROOT

ACTION = ROOT / "packaging/action"


def run(*command, **named):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **named)


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Filled(Scratch):
    def setUp(self):
        super().setUp()
        for name in ("Cargo.toml", "scripts/recipes", "packaging/tree.py", "packaging/conda/recipe.yaml", "packaging/spack/package.py"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.folder / name)
        (self.folder / "packaging/repository").write_text(f"# it\n{ADDRESS}\n")
        self.source = self.folder / "source.tar.gz"
        self.source.write_bytes(b"source")
        self.digest = hashlib.sha256(b"source").hexdigest()
        self.version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]

    def recipe(self, name):
        done = run(sys.executable, "-B", self.folder / "scripts/recipes", "--source", self.source)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = (self.folder / "dist/recipes" / name).read_text()
        self.assertNotRegex(text, "@[A-Z]")
        return text

    def test_spacks_recipe_states_the_release(self):
        said, words = [], {}
        for name in ("license", "version", "depends_on", "requires", "run_after", "on_package_attributes"):
            def directive(*parts, name=name, **named):
                said.append((name, parts, named))
                return lambda function: function
            words[name] = directive
        stand_ins = {"spack": {}, "spack.package": words, "spack_repo": {}, "spack_repo.builtin": {}, "spack_repo.builtin.build_systems": {},
                     "spack_repo.builtin.build_systems.generic": {"Package": object}}
        for name, content in stand_ins.items():
            sys.modules[name] = types.ModuleType(name)
            self.addCleanup(sys.modules.pop, name)
            vars(sys.modules[name]).update(content)
        module = {}
        exec(compile(self.recipe("spack/trimtab/package.py"), "package.py", "exec"), module)
        self.assertIn(("version", (self.version,), {"sha256": self.digest}), said)
        oldest = re.search(r'^rust-version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
        self.assertIn(("depends_on", (f"rust@{oldest}:",), {"type": "build"}), said)
        self.assertEqual(module["Trimtab"].url, f"{ADDRESS}/releases/download/v{self.version}/trimtab-{self.version}.tar.gz")

    def test_condas_recipe_is_read_by_rattler_build(self):
        text = self.recipe("conda/recipe.yaml")
        self.assertIn(f"sha256: {self.digest}\n", text)
        try:
            from rattler_build import Stage0Recipe
        except ImportError:
            self.skipTest("rattler-build is not here (pip install py-rattler-build)")
        recipe = Stage0Recipe.from_yaml(text)
        self.assertIsNotNone(recipe.as_single_output())

    def test_without_an_address_no_recipe_is_written_and_that_is_said(self):
        (self.folder / "packaging/repository").write_text("# none\n")
        done = run(sys.executable, "-B", self.folder / "scripts/recipes")
        self.assertEqual((done.returncode, (self.folder / "dist").exists()), (0, False))
        self.assertIn("not written", done.stderr)

    def test_without_a_source_there_is_an_error(self):
        done = run(sys.executable, "-B", self.folder / "scripts/recipes")
        self.assertEqual(done.returncode, 1)
        self.assertIn("scripts/source", done.stderr)


class Nix(unittest.TestCase):
    def test_the_package_is_a_value_of_nix_with_this_version(self):
        if not shutil.which("nix-instantiate"):
            self.skipTest("Nix is not here (Debian: nix-bin)")
        # What Nixpkgs gives, as far as the recipe asks for it.
        package = f'''(import {ROOT}/packaging/nix/package.nix {{
            lib = {{ importTOML = file: builtins.fromTOML (builtins.readFile file); cleanSource = path: toString path;
                     licenses = {{ mit = 1; asl20 = 2; }}; platforms.linux = []; }};
            stdenv.hostPlatform.rust.rustcTarget = "x86_64-unknown-linux-gnu";
            rustPlatform.buildRustPackage = its: its; pkg-config = 1; hwloc = 2; udev = 3; }})'''
        flake = f'''((import {ROOT}/packaging/nix/flake.nix).outputs {{ nixpkgs = {{
            lib.genAttrs = names: of: builtins.listToAttrs (map (name: {{ inherit name; value = of name; }}) names);
            legacyPackages = {{ x86_64-linux.callPackage = file: _: baseNameOf file; aarch64-linux.callPackage = file: _: baseNameOf file; }};
        }}; }}).packages.aarch64-linux.default'''
        with tempfile.TemporaryDirectory() as state:
            environment = os.environ | {"NIX_STATE_DIR": state, "NIX_STORE_DIR": f"{state}/store", "HOME": state}
            done = run("nix-instantiate", "--eval", "--strict", "--expr", f"with {package}; [ pname version cargoLock installPhase {flake} ]",
                       env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
        self.assertRegex(done.stdout, rf'^\[ "trimtab" "{re.escape(version)}" \{{ lockFile = {ROOT}/Cargo.lock; \}} ".*scripts/install.*" "package.nix" \]')


class Arch(Scratch):
    def test_the_package_is_read_by_makepkg(self):
        if not shutil.which("makepkg"):
            self.skipTest("makepkg is not here (Debian: makepkg)")
        for name in ("Cargo.toml", "packaging/arch/PKGBUILD"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.folder / name)
        # It refuses to be root's, and wants to be able to write.
        other = {"user": 65534} if os.geteuid() == 0 else {}
        self.folder.chmod(0o755)
        (self.folder / "packaging/arch").chmod(0o777)
        done = run("makepkg", "--printsrcinfo", cwd=self.folder / "packaging/arch", **other)
        self.assertEqual(done.returncode, 0, done.stderr)
        version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
        said = done.stdout.split("\n")
        for line in ("pkgbase = trimtab", f"\tpkgver = {version.replace('-', '_')}", "\tarch = x86_64", "\tarch = aarch64", "\tdepends = hwloc"):
            self.assertIn(line, said)


class Action(Scratch):
    def release(self, version="1.2.3"):
        """Makes a release in a folder, and returns its archive."""
        top = f"trimtab-{version}-{os.uname().machine}-linux"
        program = self.folder / "program"
        program.write_text(f"#!/bin/sh\necho trimtab {version}\n")
        program.chmod(0o755)
        archive = self.folder / f"releases/v{version}/{top}.tar.gz"
        archive.parent.mkdir(parents=True)
        with tarfile.open(archive, "w:gz") as file:
            file.add(program, f"{top}/bin/trimtab")
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        archive.with_name(archive.name + ".sha256").write_text(f"{digest}  {archive.name}\n")
        return archive

    def setup_trimtab(self, **inputs):
        for name in ("path", "output"):
            (self.folder / name).write_text("")
        (self.folder / "temp").mkdir(exist_ok=True)
        environment = os.environ | {"RUNNER_TEMP": str(self.folder / "temp"), "GITHUB_PATH": str(self.folder / "path"),
                                    "GITHUB_OUTPUT": str(self.folder / "output"), "TRIMTAB_RELEASES": f"file://{self.folder}/releases"}
        environment |= {f"TRIMTAB_{name.upper()}": str(value) for name, value in inputs.items()}
        return run(ACTION / "setup", env=environment)

    def assert_installed(self, done, version="1.2.3"):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        folder = Path((self.folder / "path").read_text().strip())
        self.assertEqual(run(folder / "trimtab", "--version").stdout, f"trimtab {version}\n")
        self.assertEqual((self.folder / "output").read_text(), f"version={version}\npath={folder.parent}\n")

    def test_an_archive_of_the_runner_is_installed(self):
        self.assert_installed(self.setup_trimtab(archive=self.release()))

    @unittest.skipUnless(shutil.which("curl"), "curl is not here")
    def test_a_release_is_fetched(self):
        self.release()
        for version in ("1.2.3", "v1.2.3"):
            self.assert_installed(self.setup_trimtab(version=version))
        done = self.setup_trimtab(version="9.9.9")
        self.assertEqual(done.returncode, 1)
        self.assertIn("::error title=trimtab::", done.stdout)
        own = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
        self.release(own)
        self.assert_installed(self.setup_trimtab(), own)

    @unittest.skipUnless(shutil.which("curl"), "curl is not here")
    def test_another_file_than_the_released_one_is_refused(self):
        archive = self.release()
        archive.write_bytes(archive.read_bytes() + b"more")
        for inputs in ({"version": "1.2.3"}, {"archive": archive}, {"archive": self.release("2.0.0"), "sha256": "0" * 64}):
            done = self.setup_trimtab(**inputs)
            self.assertEqual((done.returncode, (self.folder / "path").read_text()), (1, ""), inputs)
            self.assertIn("does not have the checksum", done.stdout)
        archive.with_name(archive.name + ".sha256").unlink()
        self.assertEqual(self.setup_trimtab(version="1.2.3").returncode, 1, "a download without its checksum")

    def test_each_input_of_the_action_reaches_its_script(self):
        text, script = (ACTION / "action.yml").read_text(), (ACTION / "setup").read_text()
        inputs = re.findall(r"^  (\w+):\n", text.split("outputs:")[0].split("inputs:")[1], re.MULTILINE)
        self.assertEqual(inputs, ["version", "archive", "sha256"])
        for name in inputs:
            self.assertIn(f"TRIMTAB_{name.upper()}: ${{{{ inputs.{name} }}}}", text)
            self.assertIn(f"$TRIMTAB_{name.upper()}", script.replace("{", ""))


if __name__ == "__main__":
    unittest.main()
