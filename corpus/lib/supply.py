"""Supply: how programs come to this machine."""

import hashlib
import os
import re
import shutil
import subprocess
import sys

from .places import CORPUS, SOURCES

APT = ("apt-get", "-o", "DPkg::Lock::Timeout=600")
PREPARE_SECONDS = 900


class Missing(Exception):
    """Why a program cannot be had here, in one line."""


class Supply:
    """Sees to packages, wheels and what programs prepare. Nothing is fetched unless `install` is set."""

    def __init__(self, places, install, say):
        self.places, self.install, self.say = places, install, say
        self.updated = False
        self.refused = {}  # package -> why it cannot be installed

    def provide(self, program):
        """Makes a program ready to run, or says why it cannot be."""
        if program.unavailable:
            raise Missing(program.unavailable)
        if program.root and os.geteuid() != 0:
            raise Missing("it needs root")
        self.debian(program.debian)
        for package in program.unpacked:
            self.unpack(package)
        if program.python:
            self.wheels(program.venv, program.python)
        self.check(program)
        if program.prepare:
            self.prepare(program)

    def check(self, program):
        for name in program.programs:
            if shutil.which(name, path=search_path()) is None:
                raise Missing(f"{name} is not installed")
        for module in program.modules:
            if run(["/usr/bin/python3", "-c", f"import {module}"]).returncode != 0:
                raise Missing(f"/usr/bin/python3 has no {module}")

    def debian(self, packages):
        missing = [package for package in packages if not installed(package)]
        if not missing:
            return
        words = " ".join(missing)
        for package in missing:
            if package in self.refused:
                raise Missing(self.refused[package])
        if not (self.install and os.geteuid() == 0 and shutil.which("apt-get")):
            raise Missing(f"not installed: {words} (as root on Debian or Ubuntu, --install installs them)")
        self.update()
        self.say(f"installing {words}")
        # Nothing that is there is taken away for a program of the corpus.
        done = run([*APT, "install", "-y", "--no-install-recommends", "--no-remove", *missing], environment=apt_environment())
        if done.returncode != 0:
            reason = next((line for line in done.stdout.splitlines() if line.startswith("E:")), "apt-get failed")
            self.refused.update({package: f"{words} cannot be installed: {reason}" for package in missing})
            raise Missing(self.refused[missing[0]])

    def update(self):
        if not self.updated:
            self.updated = True
            run([*APT, "update"], environment=apt_environment())

    def unpack(self, package):
        """Unpacks a package without installing it."""
        folder = self.places.unpacked(package)
        if folder.exists():
            return
        if not self.install or not shutil.which("apt-get"):
            raise Missing(f"{package} is not unpacked here (--install fetches it)")
        self.update()
        self.say(f"unpacking {package}")
        fetched = self.places.root / "fetched" / package
        fetched.mkdir(parents=True, exist_ok=True)
        done = run([*APT, "download", package], folder=fetched)
        files = list(fetched.glob("*.deb"))
        if done.returncode != 0 or not files:
            raise Missing(f"{package} cannot be fetched: {last_line(done.stdout)}")
        part = folder.with_name(folder.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        if run(["dpkg", "-x", str(files[0]), str(part)]).returncode != 0:
            raise Missing(f"{package} cannot be unpacked")
        part.rename(folder)
        shutil.rmtree(fetched)

    def wheels(self, name, packages):
        """Installs pinned wheels into a virtual environment."""
        pins = requirements(CORPUS / f"requirements-{name}.txt")
        folder = self.places.environment(name)
        python = folder / "bin" / "python"
        if not python.exists():
            if not self.install:
                raise Missing("there is no environment of Python (--install makes it)")
            self.say(f"making {folder}")
            done = run([sys.executable, "-m", "venv", str(folder)])
            if done.returncode != 0:
                raise Missing(f"Python cannot make an environment: {last_line(done.stdout)}")
        there = set(run([str(python), "-m", "pip", "freeze", "--disable-pip-version-check"]).stdout.lower().split())
        wanted = [f"{package}=={pins[package]}" for package in packages]
        missing = [pin for pin in wanted if normal(pin) not in {normal(pin) for pin in there}]
        if not missing:
            return
        if not self.install:
            raise Missing(f"{' '.join(missing)} is not in {folder} (--install fetches it)")
        self.say(f"fetching {' '.join(missing)}")
        # All pins at once, so that what one of them needs does not replace another.
        constraint = CORPUS / f"requirements-{name}.txt"
        done = run([str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--only-binary", ":all:",
                    "--constraint", str(constraint), *missing])
        if done.returncode != 0:
            raise Missing(f"{' '.join(missing)} cannot be fetched: {last_line(done.stdout)}")

    def prepare(self, program):
        """Makes a program's inputs, once for each content of what makes them."""
        folder = self.places.work(program.name)
        commands = filled(program.prepare, words(self.places, program))
        stamp = folder / ".prepared"
        wanted = hashlib.sha256("\0".join([commands, *sources_of(program)]).encode()).hexdigest()
        if stamp.exists() and stamp.read_text() == wanted:
            return
        self.say(f"preparing {program.name}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        done = run(["bash", "-euo", "pipefail", "-c", commands], folder=folder, seconds=PREPARE_SECONDS,
                   environment={**os.environ, "PATH": search_path()})
        if done.returncode != 0:
            raise Missing(f"it cannot be prepared: {last_line(done.stdout)}")
        stamp.write_text(wanted)


def words(places, program):
    """What stands for the words in braces of a program's file."""
    return {
        "sources": str(SOURCES),
        "work": str(places.work(program.name)),
        "python": str(places.environment(program.venv) / "bin" / "python"),
        "venv": str(places.environment(program.venv)),
        "unpacked": str(places.root / "unpacked"),
    }


def filled(text, values):
    """The text with {word} replaced where the word is known; all else stays, as braces of the shell."""
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), text)


def sources_of(program):
    """The contents of the sources that a preparation names."""
    names = re.findall(r"\{sources\}/([\w./-]+)", program.prepare)
    return [(SOURCES / name).read_text() for name in names if (SOURCES / name).is_file()]


def requirements(path):
    """Name -> version of pinned requirements."""
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return dict(line.split("==") for line in lines if line)


def normal(pin):
    """A requirement in pip's canonical spelling."""
    name, _, version = pin.partition("==")
    return re.sub(r"[-_.]+", "-", name).lower() + "==" + version


def installed(package):
    done = run(["dpkg-query", "-W", "-f", "${db:Status-Status}", package])
    return done.returncode == 0 and done.stdout.strip() == "installed"


def apt_environment():
    # No service is started by its package: invoke-rc.d takes this for the level of a machine under repair.
    return {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}


def search_path():
    """PATH with the folders that packages use beside it."""
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/games"


def run(command, folder=None, environment=None, seconds=None):
    """Runs a command to its end; its output and errors are together."""
    try:
        return subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 127, str(error), None)


def last_line(text):
    lines = [line for line in (text or "").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no words"
