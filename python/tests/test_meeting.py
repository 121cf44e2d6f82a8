"""Processes that another launcher started: torchrun's variables, launchers of MPI, communicators."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import together
import trimtab_team
from trimtab_team import _meeting

SUM = """
import os, trimtab_team
found = []
for _ in range(2):
    team = trimtab_team.from_environment(gather=30, deadline=30)
    with team.join() as rank:
        out = bytearray(1)
        rank.allreduce(bytes([rank.rank + 1]), out)
    found.append(out[0])
os.write(1, b"rank %d of %d: %d %d\\n" % (rank.rank, rank.size, *found))
"""

COMM = """
import os, trimtab_team
from mpi4py import MPI
for comm in (MPI.COMM_WORLD, MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2, 0)):
    with trimtab_team.from_comm(comm).join() as rank:
        out = bytearray(1)
        rank.allreduce(bytes([MPI.COMM_WORLD.rank + 1]), out)
        os.write(1, b"rank %d: %d of %d\\n" % (MPI.COMM_WORLD.rank, out[0], rank.size))
"""

# Variables that launchers set, so that a launcher can run the tests.
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "OMPI_", "PMI_", "PMIX_", "MPI_", "TRIMTAB_TEAM")


def environment(**more):
    return {**{name: value for name, value in os.environ.items() if not name.startswith(LAUNCHED)}, **more}


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


def lines(words, env=None):
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env or environment())
    if done.returncode:
        raise AssertionError("%s: %s" % (words, done.stderr))
    return sorted(done.stdout.splitlines())


def job(ranks, variables):
    """Ranks as children of this process, the last first."""
    started = []
    for rank in reversed(range(ranks)):
        words = [sys.executable, "-c", SUM]
        started.append(subprocess.Popen(words, env=environment(**variables(rank)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        time.sleep(0.05)
    found = [child.communicate(timeout=120) for child in started]
    return sorted(out for out, _ in found), "".join(words for _, words in found)


class Variables(unittest.TestCase):
    def met(self, ranks, variables):
        found, words = job(ranks, variables)
        total = sum(range(1, ranks + 1))
        self.assertEqual(found, ["rank %d of %d: %d %d\n" % (rank, ranks, total, total) for rank in range(ranks)], words)

    def test_torchrun(self):
        port = free_port()

        def variables(rank):
            return dict(RANK=str(rank), WORLD_SIZE="3", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="3", MASTER_ADDR="localhost", MASTER_PORT=port)

        self.met(3, variables)

    def test_open_mpi(self):
        name = "a test's %d.1" % os.getpid()
        self.met(2, lambda rank: dict(OMPI_COMM_WORLD_RANK=str(rank), OMPI_COMM_WORLD_SIZE="2", PMIX_NAMESPACE=name))

    def test_mpich(self):
        """The variables name no job: ranks of one machine have one parent."""
        self.met(2, lambda rank: dict(PMI_RANK=str(rank), PMI_SIZE="2", MPI_LOCALNRANKS="2"))

    def test_one_rank(self):
        self.met(1, lambda rank: dict(RANK="0", WORLD_SIZE="1", MASTER_PORT=free_port()))

    def refused(self, wanted, **variables):
        words = [sys.executable, "-c", "import trimtab_team; trimtab_team.from_environment(gather=0.2)"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment(**variables))
        self.assertRegex(done.stderr.splitlines()[-1], wanted)

    def test_impossible_requests_are_refused(self):
        self.refused("NotATeam.*TRIMTAB_TEAM is not set .*torchrun")
        self.refused("NotATeam.*of one machine, and torchrun says that 2 of WORLD_SIZE=4", RANK="1", WORLD_SIZE="4", LOCAL_WORLD_SIZE="2", MASTER_PORT="1")
        self.refused("NotATeam.*of one machine, and Open MPI", OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_LOCAL_SIZE="2")
        self.refused("NotATeam.*set MASTER_PORT", RANK="1", WORLD_SIZE="2")
        self.refused("NotATeam.*RANK is a whole number.*'first'", RANK="first", WORLD_SIZE="2", MASTER_PORT="1")
        self.refused("NotATeam.*RANK=2 is not one of the WORLD_SIZE=2", RANK="2", WORLD_SIZE="2", MASTER_PORT="1")
        self.refused("Refused: of 3 ranks these did not come within 200ms: .1, 2.", RANK="0", WORLD_SIZE="3", MASTER_PORT=free_port())
        self.refused("Refused: rank 0 did not come within 200ms", RANK="1", WORLD_SIZE="3", MASTER_PORT=free_port())
        self.refused("NotATeam", TRIMTAB_TEAM="v1:999:0:2")

    def test_ctrl_c_while_meeting(self):
        for rank in range(2):
            thread = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            thread.start()
            try:
                with self.assertRaises(KeyboardInterrupt):
                    trimtab_team.Team.of_job(rank, 2, "nobody comes %d %d" % (os.getpid(), rank))
            finally:
                thread.join()

    def test_other_options(self):
        key, caught = "other options %d" % os.getpid(), []

        def second():
            try:
                trimtab_team.Team.of_job(1, 3, key)
            except trimtab_team.Refused as error:
                caught.append(str(error))

        thread = threading.Thread(target=second)
        thread.start()
        team = trimtab_team.Team.of_job(0, 2, key)
        thread.join()
        self.assertEqual((team.ranks, team.rank), (2, 0))
        self.assertIn("made a team of 2 ranks, and this rank asks for 3", caught[0])


class Launchers(unittest.TestCase):
    def launched(self, words, program=SUM, ranks=2, python=sys.executable):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as text:
            text.write(program)
            text.flush()
            return lines([*words, python, text.name])

    def launcher(self, *names):
        found = next((path for path in map(shutil.which, names) if path), None)
        if found is None:
            self.skipTest("none of %s here" % ", ".join(names))
        return found

    def test_open_mpi(self):
        words = [self.launcher("mpirun.openmpi", "orterun"), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "3"]
        self.assertEqual(self.launched(words), ["rank %d of 3: 6 6" % rank for rank in range(3)])

    def test_mpich(self):
        words = [self.launcher("mpiexec.hydra"), "-bind-to", "none", "-n", "3"]
        self.assertEqual(self.launched(words), ["rank %d of 3: 6 6" % rank for rank in range(3)])

    def test_communicators(self):
        try:
            import mpi4py  # noqa: F401
        except ImportError:
            self.skipTest("no mpi4py here")
        words = [self.launcher("mpirun.openmpi", "orterun"), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "3"]
        wanted = ["rank 0: 4 of 2", "rank 0: 6 of 3", "rank 1: 2 of 1", "rank 1: 6 of 3", "rank 2: 4 of 2", "rank 2: 6 of 3"]
        self.assertEqual(self.launched(words, COMM), wanted)


class Comm:
    """The part of a communicator that from_comm() uses, among threads."""

    def __init__(self, ranks):
        self.ranks, self.barrier, self.table = ranks, threading.Barrier(ranks), [None] * ranks

    def of(self, rank, place=None):
        comm, table, barrier = type("One", (), {})(), self.table, self.barrier

        def allgather(value):
            table[rank] = place or value
            barrier.wait()
            found = list(table)
            barrier.wait()
            return found

        comm.Get_rank, comm.Get_size = lambda: rank, lambda: self.ranks
        comm.allgather, comm.bcast = allgather, lambda value, root: allgather(value)[root]
        return comm


class Communicators(unittest.TestCase):
    def each(self, comms):
        import concurrent.futures

        def one(comm):
            try:
                with trimtab_team.from_comm(comm, gather=together.PATIENCE).join() as rank:
                    out = bytearray(1)
                    rank.allreduce(bytes([rank.rank + 1]), out)
                    return rank.rank, out[0]
            except trimtab_team.NotATeam as error:
                return str(error)

        with concurrent.futures.ThreadPoolExecutor(len(comms)) as threads:
            return list(threads.map(one, comms))

    def test_one_machine(self):
        comm = Comm(2)
        self.assertEqual(self.each([comm.of(rank) for rank in range(2)]), [(0, 3), (1, 3)])

    def test_two_machines(self):
        comm = Comm(2)
        for words in self.each([comm.of(0), comm.of(1, "elsewhere")]):
            self.assertIn("rank 1 is on another than rank 0", words)

    def test_machine(self):
        self.assertEqual(_meeting.machine(), _meeting.machine())
        self.assertTrue(_meeting.machine())


if __name__ == "__main__":
    unittest.main()
