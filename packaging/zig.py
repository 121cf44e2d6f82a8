"""Programs and libraries that run from glibc 2.17 on, whatever this machine has: zig is their linker.

cargo-zigbuild, maturin and zig come from PyPI (90 MB) into target/wheel, once.
"""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("maturin>=1.8,<2", "cargo-zigbuild", "ziglang", "auditwheel>=6")
# The oldest version of glibc with which the results run: that of manylinux_2_17.
GLIBC = "2.17"


class Missing(Exception):
    """What is missing, or cannot be built, and what helps."""


def tools():
    """Returns the folder of the tools, which are fetched if they are not there."""
    folder = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve() / "wheel" / "tools"
    python = folder / "bin/python"
    look = "import maturin, ziglang, auditwheel, importlib.metadata as found; found.version('cargo-zigbuild')"
    if python.exists() and subprocess.run([python, "-c", look], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        return folder
    if os.environ.get("TRIMTAB_INSTALL") == "no":
        raise Missing(f"{', '.join(TOOLS)} are not in {folder}, and nothing is to be fetched (TRIMTAB_INSTALL)")
    venv.create(folder, clear=True, with_pip=True)
    fetch = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *TOOLS]
    if subprocess.run(fetch, stdout=sys.stderr, check=False).returncode != 0:
        raise Missing(f"{', '.join(TOOLS)} cannot be fetched: see pip's message above")
    return folder


def linked(folder):
    """Returns what zig links into libraries, for the list of components: NAME|VERSION|LICENCE|COPYRIGHT FILE."""
    look = "import importlib.metadata as found, ziglang, os; print(found.version('ziglang'), os.path.dirname(ziglang.__file__))"
    done = subprocess.run([folder / "bin/python", "-c", look], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"zig does not say its version: {done.stderr.strip()}")
    version, place = done.stdout.strip().split(" ", 1)
    return [f"llvm-libunwind|zig-{version}|Apache-2.0 WITH LLVM-exception|{place}/lib/libunwind/LICENSE.TXT",
            f"zig-compiler-rt|{version}|MIT|{place}/LICENSE"]


def of_others(name):
    """Returns whether a variable names tools for another linker, as scripts/cross sets them: they would take zig's place."""
    return re.match(r"CARGO_TARGET_|CARGO_BUILD_TARGET$|(CC|CXX|AR|CFLAGS|LDFLAGS)(_|$)|PKG_CONFIG|RUSTFLAGS$", name) is not None


def build(folder, target, *command):
    """Runs a command that builds into a folder, with the tools, and without the paths of this machine in the result."""
    home = os.environ.get("CARGO_HOME") or Path.home() / ".cargo"
    flags = [f"--remap-path-prefix={old}={new}" for old, new in ((home, "/cargo"), (ROOT, "/trimtab"), (target, "/trimtab/target"))]
    own = {name: value for name, value in os.environ.items() if not of_others(name) or name == "CARGO_TARGET_DIR"}
    environment = own | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "CARGO_TARGET_DIR": str(target),
                                "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags)}
    if subprocess.run(command, env=environment, cwd=ROOT, stdout=sys.stderr, check=False).returncode != 0:
        raise Missing(f"{Path(command[0]).name} fails: see its message above (for another processor: rustup target add TRIPLE)")


def libraries(folder, processor):
    """Builds the libraries for C, and returns their folder; without symbols that only debuggers read."""
    target, triple = folder.parent / "library", f"{processor}-unknown-linux-gnu"
    build(folder, target, folder / "bin/cargo-zigbuild", "zigbuild", "--locked", "--release", "--package", "trimtab-hold-c",
          "--package", "trimtab-team-c", "--target", f"{triple}.{GLIBC}", "--config", "profile.release.strip=true")
    return target / triple / "release"
