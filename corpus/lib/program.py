"""A program of the corpus, as its file says it."""

import re
from dataclasses import dataclass, field, fields
from pathlib import Path

STANDARD = ("plain", "run", "balance", "report", "nest", "attach", "profile")
ON_REQUEST = ("budget", "limit", "hand")  # named by --variant: what multiplies threads, and its cures
VARIANTS = STANDARD + ON_REQUEST
STATED = ("nest", "hand")  # variants of those programs alone whose file has the key
PLACE = "{under}"  # the word of a command at which trimtab is put; at the front if the command has none
MODES = ("exact", "lines", "numbers", "ignored")


class Fault(Exception):
    """A mistake in a program's file, in one line."""


# Variables by which runtimes count their threads (`trimtab_core::place::THREAD_COUNTS`).
COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
          "NUMEXPR_MAX_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS", "JULIA_NUM_THREADS", "POLARS_MAX_THREADS", "GOMAXPROCS",
          "JAVA_TOOL_OPTIONS")


@dataclass(frozen=True)
class Same:
    """What is compared, and how exactly."""

    status: int = 0  # of the plain run; minus the signal's number where one ends it
    stdout: str = "exact"
    stderr: str = "exact"
    files: tuple = ()  # files below the sample's folder whose bytes are compared
    tolerance: float = 0.0  # of numbers, relative to the larger one
    keep: tuple = ()  # patterns of lines that are compared; without any, all are
    drop: tuple = ()  # patterns of lines that are left out
    mask: tuple = ()  # patterns of words that differ from run to run: times, process ids, addresses
    threads: str = "same"  # or ignored: how many threads and processes are started
    masks: str = "hold"  # or ignored: no thread's mask reaches beyond the hold
    counts: str = "same"  # or ignored: the variables of thread counts (COUNTS) that its processes see
    environment: tuple = ()  # more variables that the program must see as they are plainly, or not at all


@dataclass(frozen=True)
class Program:
    """How a program is had, run and compared."""

    name: str
    about: str
    kind: str
    command: tuple
    part: str = "all"
    debian: tuple = ()  # packages that are installed
    unpacked: tuple = ()  # packages that are only unpacked, as they conflict with installed ones
    python: tuple = ()  # names in the requirements
    venv: str = "new"  # which environment of Python: that of requirements-NAME.txt
    programs: tuple = ()  # names that must then be found in PATH
    modules: tuple = ()  # modules that /usr/bin/python3 must then find
    root: bool = False
    unavailable: str = ""  # why no registry has it
    prepare: str = ""  # commands of the shell, run once
    version: tuple = ()  # a command that prints it
    environment: dict = field(default_factory=dict)
    limit: float = 60.0  # seconds until a sample is stopped and counts as hanging
    plain: tuple = ()  # what stands before the plain command, as taskset -c 0
    options: tuple = ()  # of trimtab run, balance, report, nest
    nest: str = ""  # the teams of --nest, where they fit
    hand: dict = field(default_factory=dict)  # variables by which an expert would bound its threads
    without: dict = field(default_factory=dict)  # variants that make no sense, with reasons
    attach_after: float = 0.1  # seconds
    note: str = ""
    same: Same = Same()

    def variants(self, wanted):
        """Those of the wanted variants that fit this program."""
        return [name for name in VARIANTS
                if name in wanted and name not in self.without and (name not in STATED or getattr(self, name))]


def load(path):
    """The program in a file."""
    try:
        return make(path.stem, read(path))
    except Fault as fault:
        raise Fault(f"{path}: {fault}") from None


def read(path):
    """The file as nested dictionaries."""
    reader = toml_reader()
    try:
        return reader.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Fault(str(error)) from None


def toml_reader():
    """A module that reads TOML: Python has one from 3.11 on, and pip brings one before."""
    for name in ("tomllib", "tomli", "pip._vendor.tomli"):
        try:
            return __import__(name, fromlist=["loads"])
        except ImportError:
            continue
    raise Fault("this Python reads no TOML: use Python 3.11 or newer, or pip install tomli")


def make(name, table):
    """The program that a file's table describes; a mistake in it is a Fault."""
    table = dict(table)
    same = checked(Same, table.pop("same", {}))
    for missing in {"about", "kind"} - table.keys():
        raise Fault(f"{missing} is missing")
    if "command" not in table and "unavailable" not in table:
        raise Fault("command is missing")
    program = Program(name=name, same=same, **checked_fields(Program, {"command": [], **table}))
    for key in ("stdout", "stderr"):
        if getattr(same, key) not in MODES:
            raise Fault(f"same.{key} is {getattr(same, key)!r}, and not one of {', '.join(MODES)}")
    for pattern in (*same.keep, *same.drop, *same.mask):
        try:
            re.compile(pattern)
        except re.error as error:
            raise Fault(f"the pattern {pattern!r}: {error}") from None
    for variant in program.without:
        if variant not in VARIANTS:
            raise Fault(f"without.{variant}: there is no such variant")
    return program


def checked(kind, table):
    return kind(**checked_fields(kind, table))


def checked_fields(kind, table):
    """The table with lists as tuples, after unknown keys and values of wrong types are refused."""
    known = {entry.name: entry for entry in fields(kind)}
    made = {}
    for key, value in table.items():
        if key not in known or key in ("name", "same"):
            raise Fault(f"{key} is no key; known are {', '.join(sorted(known.keys() - {'name', 'same'}))}")
        wanted = known[key].type
        if wanted is tuple and isinstance(value, list) and all(isinstance(item, str) for item in value):
            made[key] = tuple(value)
        elif wanted is float and isinstance(value, (int, float)) and not isinstance(value, bool):
            made[key] = float(value)
        elif wanted in (str, int, bool, dict) and type(value) is wanted:
            made[key] = value
        else:
            raise Fault(f"{key} is to be {'a list of strings' if wanted is tuple else wanted.__name__}")
    return made


def every(folder):
    """All programs of a folder, by name."""
    return [load(path) for path in sorted(Path(folder).glob("*.toml"))]
