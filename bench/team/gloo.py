#!/usr/bin/env python3
"""torch.distributed on CPUs, as used by PyTorch programs, with gloo or over a team (torch_trimtab.py). One computing thread per rank.

all_reduce works in place, and a repeated sum would soon be infinite: the input is copied first, as a program
that needs its input does.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist

import measure


class Distributed(measure.Peer):
    def __init__(self, cell, name):
        self.ranks, self.name = cell.ranks, name

    def prepare(self, rank):
        self.into, self.out = torch.from_numpy(rank.into), torch.from_numpy(rank.out)
        if rank.cell.op == "allreduce":
            self.into, self.out = self.into.view(torch.float64), self.out.view(torch.float64)

    def barrier(self, rank):
        dist.barrier()

    def bcast(self, rank):
        dist.broadcast(self.into, 0)

    def allreduce(self, rank):
        self.out.copy_(self.into)
        dist.all_reduce(self.out)

    def alltoall(self, rank):
        dist.all_to_all_single(self.out, self.into)

    def gather(self, numbers):
        mine = torch.tensor(numbers, dtype=torch.float64)
        rows = [torch.empty_like(mine) for _ in range(self.ranks)]
        dist.all_gather(rows, mine)
        return torch.stack(rows).numpy()


def main(program="gloo.py", name="gloo", backend="gloo"):
    cell = measure.read_cell(program)
    with tempfile.TemporaryDirectory() as folder:
        def start(me):
            torch.set_num_threads(1)
            store = "file://" + os.path.join(folder, "ranks")
            dist.init_process_group(backend, init_method=store, rank=me, world_size=cell.ranks)
            status = measure.Rank(Distributed(cell, name), cell, me).measure()
            dist.destroy_process_group()
            return status

        return measure.in_processes(cell, start)


if __name__ == "__main__":
    sys.exit(main())
