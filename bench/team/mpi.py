#!/usr/bin/env python3
"""MPI from Python, by mpi4py's calls on buffers (capitalised names). Started by an MPI launcher: see `peer`."""

import os
import sys

import numpy as np

import measure

# Before MPI is initialised, which its import does: for a launcher, a process that ends after that without finalising has failed.
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
CELL = measure.read_cell("mpi.py", loud=next((os.environ[name] for name in RANKS if name in os.environ), "0") == "0")

from mpi4py import MPI  # noqa: E402


class Mpi4py(measure.Peer):
    name = "mpi4py"

    def __init__(self):
        self.world = MPI.COMM_WORLD

    def prepare(self, rank):
        if rank.cell.op == "allreduce":
            self.numbers = rank.into.view(np.float64), rank.out.view(np.float64)

    def barrier(self, rank):
        self.world.Barrier()

    def bcast(self, rank):
        self.world.Bcast(rank.into)

    def allreduce(self, rank):
        self.world.Allreduce(*self.numbers)

    def alltoall(self, rank):
        size = rank.cell.bytes
        self.world.Alltoall([rank.into, size, MPI.BYTE], [rank.out, size, MPI.BYTE])

    def gather(self, numbers):
        mine = np.array(numbers)
        all_numbers = np.empty((self.world.size, len(mine)))
        self.world.Allgather(mine, all_numbers)
        return all_numbers


def main():
    if CELL.ranks != MPI.COMM_WORLD.size:
        if MPI.COMM_WORLD.rank == 0:
            print(f"mpi.py: {CELL.ranks} ranks asked for, {MPI.COMM_WORLD.size} started", file=sys.stderr)
        return measure.BAD_USAGE
    return measure.Rank(Mpi4py(), CELL, MPI.COMM_WORLD.rank).measure()


if __name__ == "__main__":
    sys.exit(main())
