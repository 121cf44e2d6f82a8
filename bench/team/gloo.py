#!/usr/bin/env python3
"""torch.distributed with gloo: what a program in PyTorch has on CPUs. One thread of computation a rank.

all_reduce works in place, and a sum that is summed again would soon be infinite: the input is copied first, as by anyone
who wants to keep it.
"""

import os
import sys
import tempfile

import numpy as np
import torch
import torch.distributed as dist

import measure


class Gloo(measure.Peer):
    name = "gloo"

    def __init__(self, cell):
        self.ranks = cell.ranks

    def prepare(self, rank):
        size = rank.cell.bytes
        self.into, self.out = torch.from_numpy(rank.into), torch.from_numpy(rank.out)
        self.sent = self.into[:size]
        self.numbers = torch.from_numpy(rank.into.view(np.float64)), torch.from_numpy(rank.out.view(np.float64))
        if rank.cell.op == "alltoall":
            self.to = list(self.into.split(size))
            self.of = list(self.out.split(size))

    def barrier(self, rank):
        dist.barrier()

    def bcast(self, rank):
        dist.broadcast(self.sent, 0)

    def allreduce(self, rank):
        into, out = self.numbers
        out.copy_(into)
        dist.all_reduce(out)

    def alltoall(self, rank):
        size = rank.cell.bytes * self.ranks
        dist.all_to_all_single(self.out[:size], self.into[:size])

    def gather(self, numbers):
        mine = torch.tensor(numbers, dtype=torch.float64)
        rows = [torch.empty_like(mine) for _ in range(self.ranks)]
        dist.all_gather(rows, mine)
        return torch.stack(rows).numpy()


def main():
    cell = measure.read_cell("gloo.py")
    with tempfile.TemporaryDirectory() as folder:
        def start(me):
            torch.set_num_threads(1)
            store = "file://" + os.path.join(folder, "ranks")
            dist.init_process_group("gloo", init_method=store, rank=me, world_size=cell.ranks)
            status = measure.Rank(Gloo(cell), cell, me).measure()
            dist.destroy_process_group()
            return status

        return measure.in_processes(cell, start)


if __name__ == "__main__":
    sys.exit(main())
