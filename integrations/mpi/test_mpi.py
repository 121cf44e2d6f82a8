"""Programs of each MPI that is installed, with collectives carried out by teams and with MPI's own (test_mpi.c). `make test-mpi` runs it.

TRIMTAB_MPI_SEED is the seed of the random calls.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target")).resolve()
SEED = int(os.environ.get("TRIMTAB_MPI_SEED", random.randrange(1 << 30)))
ROUNDS = 200
LIMIT = 100


class Mpi:
    """An MPI: its compiler, its launcher, and how both are used."""

    def __init__(self, name, compiler, launcher, options=(), environment=None):
        self.name, self.compiler, self.launcher = name, compiler, launcher
        self.options, self.environment = list(options), environment or {}

    def is_there(self):
        return bool(shutil.which(self.compiler) and shutil.which(self.launcher))

    def preload(self, library):
        return ["-genv", "LD_PRELOAD", library] if "mpich" in self.name else ["-x", f"LD_PRELOAD={library}"]


ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# As in containers that forbid reading other processes: a large message then needs its sender's progress.
ALONE = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
OPEN_MPI = ["--oversubscribe", "--bind-to", "none"]


def wheel(name):
    """The folder of a wheel of PyPI that scripts/wheels unpacked."""
    found = sorted((TARGET / "wheels" / name).glob("*.data/data"))
    return found[0] if found else Path("/nonexistent")


MPI4PY = TARGET / "wheels/mpi4py"
ALL = [
    Mpi("openmpi-4", "mpicc.openmpi", "mpirun.openmpi", OPEN_MPI, ROOT | ALONE),
    Mpi("mpich-4", "mpicc.mpich", "mpiexec.mpich"),
    Mpi("openmpi-5", str(wheel("openmpi") / "bin/mpicc"), str(wheel("openmpi") / "bin/mpirun"), OPEN_MPI,
        ROOT | {"PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OPAL_PREFIX": str(wheel("openmpi"))}),
    Mpi("mpich-5", str(wheel("mpich") / "bin/mpicc"), str(wheel("mpich") / "bin/mpiexec")),
]


class WithTeams:
    """The tests of one MPI."""

    mpi: Mpi

    @classmethod
    def setUpClass(cls):
        if not cls.mpi.is_there():
            raise unittest.SkipTest(f"{cls.mpi.name} is not installed: scripts/packages test, scripts/wheels")
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        folder = cls.folder.name
        cls.environment = os.environ | cls.mpi.environment
        build = ["make", "-s", "-C", HERE, f"MPICC={cls.mpi.compiler}", f"BUILD={folder}", f"TEAM={TARGET}/debug", "CFLAGS=-O1 -g -Werror"]
        compile = [cls.mpi.compiler, "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", HERE / "test_mpi.c", "-o", f"{folder}/test"]
        for command in (build, compile):
            done = subprocess.run(command, env=cls.environment, capture_output=True, text=True, timeout=LIMIT)
            if done.returncode:
                raise RuntimeError(done.stdout + done.stderr)
        cls.library, cls.program = f"{folder}/libtrimtab_mpi.so", f"{folder}/test"

    def start(self, ranks, *words, teams=True, **variables):
        """Runs the test program. Returns its status and its output; a hang is a failure."""
        preload = self.mpi.preload(self.library) if teams else []
        command = [self.mpi.launcher, *self.mpi.options, *preload, "-n", str(ranks), self.program, *map(str, words)]
        environment = self.environment | {"TRIMTAB_MPI_AFTER": "2", "TRIMTAB_MPI_REPORT": "1"} | variables
        with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              start_new_session=True) as process:
            try:
                output, _ = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                self.fail(f"{words} of {ranks} ranks hangs: {process.communicate()[0]}")
        return process.returncode, output

    def counts(self, ranks, *words, **variables):
        """Runs the test program well. Returns how many collectives teams carried out, and how many MPI did."""
        status, output = self.start(ranks, *words, **variables)
        self.assertEqual(status, 0, f"TRIMTAB_MPI_SEED={SEED}: {output}")
        told = re.search(r"collectives of rank 0: (\d+) by teams, (\d+) by MPI", output)
        self.assertTrue(told, output)
        return int(told[1]), int(told[2])

    def test_results_equal_those_of_the_mpi_underneath(self):
        for ranks in (2, 3, 4):
            by_team, by_mpi = self.counts(ranks, "same", SEED + ranks, ROUNDS)
            self.assertEqual(by_team + by_mpi, ROUNDS)
            # A quarter of the calls of two ranks is of a communicator of one.
            self.assertGreater(by_team, ROUNDS // 2)

    def test_ranks_may_name_the_same_data_by_different_types(self):
        for ranks in (2, 3):
            by_team, _ = self.counts(ranks, "mixed")
            self.assertGreater(by_team, 150)

    def test_a_message_arrives_while_all_others_wait_in_a_team(self):
        for ranks in (2, 3):
            by_team, _ = self.counts(ranks, "sends")
            self.assertEqual(by_team, 3)

    def test_errors_and_everything_else_are_those_of_mpi(self):
        for ranks in (1, 2, 3):
            by_team, by_mpi = self.counts(ranks, "errors")
            self.assertGreater(by_mpi, 10)
            self.assertEqual(by_team > 0, ranks > 1)

    def test_communicators_come_and_go(self):
        by_team, _ = self.counts(2, "many", TRIMTAB_MPI_AFTER="3")
        self.assertGreater(by_team, 20)

    def test_a_team_is_made_when_mpi_has_taken_as_long_as_that_takes(self):
        # The others wait for the late rank for 5 ms a call. The first look is at the 16th call.
        self.assertEqual(self.counts(2, "late", TRIMTAB_MPI_AFTER="5ms"), (5, 15))
        self.assertEqual(self.counts(3, "late", TRIMTAB_MPI_AFTER="1000000000ms"), (0, 20))
        self.assertEqual(self.counts(2, "late", TRIMTAB_MPI_AFTER="0ms"), (5, 15))

    def test_a_time_that_cannot_be_read_is_named_and_the_usual_one_is_used(self):
        for said in ("soon", "5s", "-3", "ms"):
            status, output = self.start(2, "late", TRIMTAB_MPI_AFTER=said)
            self.assertEqual(status, 0, output)
            self.assertIn(f"not `{said}`: 5ms is used", output)
            self.assertIn("rank 0: 5 by teams, 15 by MPI", output)

    def test_ranks_may_end_before_others_have_the_data(self):
        by_team, _ = self.counts(3, "early")
        self.assertGreater(by_team, 2)

    def test_threads_that_call_one_after_the_other(self):
        for ranks in (2, 3):
            by_team, _ = self.counts(ranks, "serialized")
            self.assertGreater(by_team, 590)

    def test_threads_that_call_at_the_same_time(self):
        for ranks in (2, 3):
            by_team, _ = self.counts(ranks, "multiple")
            self.assertGreater(by_team, 1700)

    def test_mpi4py(self):
        """It asks for threads that call at the same time, and uses the functions with large counts where there are some."""
        if not MPI4PY.is_dir():
            self.skipTest("the wheel of mpi4py is not here: scripts/wheels")
        linked = subprocess.run(["ldd", self.library], check=True, capture_output=True, text=True).stdout
        mpi = Path(re.search(r"libmpi\S* => (\S+)", linked)[1])
        # Debian's MPICH has another name than the wheel looks for.
        names = Path(self.folder.name) / "names"
        names.mkdir()
        if "libmpich" in mpi.name:
            (names / "libmpi.so.12").symlink_to(mpi)
        with mock.patch.object(type(self), "program", sys.executable):
            by_team, by_mpi = self.counts(3, HERE / "mpi4py_program.py", PYTHONPATH=str(MPI4PY), MPI4PY_LIBMPI=str(mpi),
                                          LD_LIBRARY_PATH=f"{names}:{os.environ.get('LD_LIBRARY_PATH', '')}", PYTHONDONTWRITEBYTECODE="1")
        self.assertGreater(by_team, 500)
        self.assertLess(by_mpi, 60)

    def test_a_killed_rank_ends_the_program(self):
        status, output = self.start(3, "dies")
        self.assertNotEqual(status, 0)
        self.assertNotIn("a barrier without the last rank returned", output)

    def test_fortran(self):
        compiler = self.mpi.compiler.replace("mpicc", "mpif90")
        if not shutil.which(compiler) or not shutil.which("gfortran"):
            self.skipTest(f"{compiler} or gfortran is not installed")
        for module in ("USE_MPI", "F08"):
            program = f"{self.folder.name}/fortran-{module}"
            build = [compiler, "-cpp", f"-D{module}", "-O1", HERE / "test_fortran.f90", "-o", program]
            done = subprocess.run(build, env=self.environment, capture_output=True, text=True, timeout=LIMIT, cwd=self.folder.name)
            if "f08" in done.stderr and "Cannot open module file" in done.stderr:
                continue
            self.assertEqual(done.returncode, 0, done.stderr)
            with mock.patch.object(type(self), "program", program):
                by_team, by_mpi = self.counts(3)
            self.assertEqual((by_team, by_mpi), (20 * 9 - 1, 1), module)

    def test_one_word_leaves_everything_to_mpi(self):
        by_team, by_mpi = self.counts(2, "mixed", TRIMTAB_MPI="off")
        self.assertEqual((by_team, by_mpi), (0, 0))


for mpi in ALL:
    name = "With" + mpi.name.title().replace("-", "")
    globals()[name] = type(name, (WithTeams, unittest.TestCase), {"mpi": mpi})


class Started(unittest.TestCase):
    """`trimtab run --teams`, which finds the MPI of a program and compiles the library for it."""

    @classmethod
    def setUpClass(cls):
        cls.mpis = [mpi for mpi in ALL[:2] if mpi.is_there()]
        if not cls.mpis:
            raise unittest.SkipTest("neither Open MPI nor MPICH is installed: scripts/packages test")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        # As scripts/install puts it.
        for part, place in (
            (TARGET / "debug/trimtab", "bin/trimtab"),
            (TARGET / "debug/trimtab-discover", "libexec/trimtab/trimtab-discover"),
            (TARGET / "debug/libtrimtab_team_c.so", "lib/libtrimtab_team.so.0"),
            *((file, f"lib/trimtab/mpi/src/{file.name}") for file in (HERE / "src").iterdir()),
            (HERE / "trimtab-teams", "lib/trimtab/mpi/trimtab-teams"),
            (HERE / "../../include/trimtab/team.h", "include/trimtab/team.h"),
        ):
            to = cls.folder / place
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(part, to)
        (cls.folder / "ledger").mkdir()
        for mpi in cls.mpis:
            build = [mpi.compiler, "-std=gnu11", "-O1", "-pthread", HERE / "test_mpi.c", "-o", cls.folder / f"test-{mpi.name}"]
            subprocess.run(build, check=True, timeout=LIMIT)

    def run_teams(self, mpi, *options, words=("mixed",), **variables):
        command = [self.folder / "bin/trimtab", "run", "-c", "1", "--share", *options, mpi.launcher, *mpi.options, "-n", "2", self.folder / f"test-{mpi.name}", *words]
        environment = os.environ | mpi.environment | {
            "XDG_CACHE_HOME": str(self.folder / "cache"), "TRIMTAB_LEDGER": str(self.folder / "ledger"),
            "TRIMTAB_MPI_AFTER": "2", "TRIMTAB_MPI_REPORT": "1"} | variables
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)

    def test_the_library_is_compiled_once_for_each_mpi(self):
        for mpi in self.mpis:
            for _ in range(2):
                done = self.run_teams(mpi, "--teams")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, r"trimtab-teams: teams carry out collectives of ranks on this machine \(/.*/libmpi")
                self.assertRegex(done.stderr, r"collectives of rank 0: 160 by teams, 1 by MPI")
        built = list((self.folder / "cache/trimtab/mpi").glob("*/libtrimtab_mpi.so"))
        self.assertEqual(len(built), len(self.mpis))

    def test_if_nothing_can_be_compiled_the_program_runs_with_mpi_alone(self):
        header = self.folder / "include/trimtab/team.h"
        header.rename(self.folder / "team.h")
        self.addCleanup((self.folder / "team.h").rename, header)
        cache = str(self.folder / "empty")
        done = self.run_teams(self.mpis[0], "--teams", XDG_CACHE_HOME=cache)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "trimtab-teams: .*mpicc.* fails: .*team.h.*; MPI carries out all collectives")
        self.assertNotIn("by teams", done.stderr)
        done = self.run_teams(self.mpis[0], "--teams", "--strict", XDG_CACHE_HOME=cache)
        self.assertEqual(done.returncode, 125, done.stderr)

    def test_a_library_is_loaded_from_a_folder_of_the_users_own_alone(self):
        # Others could put a library of theirs into a folder that they may write.
        cache = self.folder / "open"
        (cache / "trimtab/mpi").mkdir(parents=True)
        (cache / "trimtab/mpi").chmod(0o777)
        done = self.run_teams(self.mpis[0], "--teams", XDG_CACHE_HOME=str(cache))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("others may write there; MPI carries out all collectives", done.stderr)
        done = self.run_teams(self.mpis[0], "--teams", XDG_CACHE_HOME="", HOME="")
        self.assertIn("neither HOME nor XDG_CACHE_HOME names a folder", done.stderr)

    def test_another_mpi_than_the_programs_is_refused(self):
        if len(self.mpis) < 2:
            self.skipTest("both Open MPI and MPICH are needed")
        done = self.run_teams(self.mpis[0], "--teams", MPICC=self.mpis[1].compiler)
        self.assertEqual(done.returncode, 0, done.stderr)
        # The compiler that fits is found after the one that does not.
        self.assertIn("160 by teams", done.stderr)


if __name__ == "__main__":
    unittest.main()
