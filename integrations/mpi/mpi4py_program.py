"""Collectives of mpi4py with known results: of objects and of buffers, and of two threads in two communicators. test_mpi.py runs it."""

import threading
from array import array

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
ME, ALL = WORLD.rank, WORLD.size
ROUNDS = 40


def same(found, expected):
    if found != expected:
        print(f"rank {ME}: {found} instead of {expected}", flush=True)
        WORLD.Abort(3)


def work(comm):
    for turn in range(ROUNDS):
        root = turn % ALL
        same(comm.bcast({"turn": turn} if ME == root else None, root), {"turn": turn})
        same(comm.allgather((ME, turn)), [(rank, turn) for rank in range(ALL)])
        same(comm.alltoall([ME * 10 + rank for rank in range(ALL)]), [rank * 10 + ME for rank in range(ALL)])
        total = array("d", [0, 0])
        comm.Allreduce(array("d", [ME, turn]), total, MPI.SUM)
        same(list(total), [ALL * (ALL - 1) / 2, ALL * turn])
        before = array("i", [-1])
        comm.Exscan(array("i", [ME + 1]), before, MPI.SUM)
        same(before[0], ME * (ME + 1) // 2 if ME else -1)
        counts = [rank + 1 for rank in range(ALL)]
        found = array("i", [0] * sum(counts))
        comm.Allgatherv(array("i", [ME] * (ME + 1)), (found, counts))
        same(list(found), [rank for rank in range(ALL) for _ in range(rank + 1)])
        comm.Barrier()


same(MPI.Query_thread(), MPI.THREAD_MULTIPLE)
threads = [threading.Thread(target=work, args=(WORLD.Dup(),)) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
