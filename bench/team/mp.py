#!/usr/bin/env python3
"""Python's standard library: processes of `multiprocessing`, its Barrier, a shared_memory block for each rank, sums by NumPy.

Data go into the sender's block, and after a barrier every rank reads the other ranks' blocks. After a second
barrier the blocks are not needed any more.
"""

import multiprocessing
import sys
from multiprocessing import shared_memory

import numpy as np

import measure


class Multiprocessing(measure.Peer):
    name = "multiprocessing"

    def __init__(self, cell, me, meeting, block, table):
        size = measure.buffer_bytes(cell)
        self.me, self.meeting = me, meeting
        self.slots = np.frombuffer(block.buf, np.uint8, cell.ranks * size).reshape(cell.ranks, size)
        self.table = np.frombuffer(table.buf, np.float64, cell.ranks * 4).reshape(cell.ranks, 4)

    def prepare(self, rank):
        self.slots[self.me] = 0
        if rank.cell.op == "allreduce":
            self.numbers = [array.view(np.float64) for array in (rank.into, rank.out, self.slots)]

    def barrier(self, rank):
        self.meeting.wait()

    def bcast(self, rank):
        if self.me == 0:
            self.slots[0] = rank.into
        self.meeting.wait()
        if self.me != 0:
            rank.into[:] = self.slots[0]
        self.meeting.wait()

    def allreduce(self, rank):
        into, out, slots = self.numbers
        slots[self.me] = into
        self.meeting.wait()
        np.sum(slots, axis=0, out=out)
        self.meeting.wait()

    def alltoall(self, rank):
        size = rank.cell.bytes
        self.slots[self.me] = rank.into
        self.meeting.wait()
        rank.out.reshape(-1, size)[:] = self.slots[:, self.me * size:(self.me + 1) * size]
        self.meeting.wait()

    def gather(self, numbers):
        self.table[self.me, :len(numbers)] = numbers
        self.meeting.wait()
        all_numbers = self.table[:, :len(numbers)].copy()
        self.meeting.wait()
        return all_numbers


def main():
    cell = measure.read_cell("mp.py")
    context = multiprocessing.get_context("fork")
    meeting = context.Barrier(cell.ranks)
    block = shared_memory.SharedMemory(create=True, size=cell.ranks * measure.buffer_bytes(cell))
    table = shared_memory.SharedMemory(create=True, size=cell.ranks * 4 * 8)
    try:
        def start(me):
            return measure.Rank(Multiprocessing(cell, me, meeting, block, table), cell, me).measure()

        return measure.in_processes(cell, start)
    finally:
        for shared in (block, table):
            shared.close()
            shared.unlink()


if __name__ == "__main__":
    sys.exit(main())
