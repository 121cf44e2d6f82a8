"""One cell of the comparison, for peers in Python: the counterpart of measure.c.

The command line, the verification of results before and after every batch, the calibration, the timed part, the report and
the exit status are those of measure.h and measure.c, which give the reasons; keep them equal. The cost of Python in a
call is included in the times, as for its users.
"""

import argparse
import ctypes
import json
import multiprocessing
import os
import signal
import sys
import time
from multiprocessing import connection

import numpy as np

WARM_UP = 12
LATE_MAX = 8
LATE_SECONDS = 300e-6
WINDOW = 0.1

PR_SET_PDEATHSIG = 1  # linux/prctl.h

CANNOT_RUN, BAD_USAGE, WRONG_RESULT = 1, 2, 3


def count(least, most):
    """An option's value: a whole number within bounds."""

    def read(text):
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {least} to {most}")
        return int(text)

    return read


def milliseconds(text):
    """An option's value: milliseconds, or parts of one."""
    if not set(text) <= set("0123456789.") or not 1e-2 <= float(text) <= 3.6e6:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of milliseconds")
    return float(text)


class Parser(argparse.ArgumentParser):
    """Reports an invalid command line in one line; only one of many ranks does."""

    loud = True

    def error(self, message):
        if self.loud:
            print(f"{self.prog}: {message} ({self.prog} -h lists the options)", file=sys.stderr)
        sys.exit(BAD_USAGE)


def read_cell(program, loud=True):
    """Reads the command line. The result has `ranks`, `op`, `bytes`, `strict`, `batches`, `seconds` (of a batch) and `pinned`."""
    parser = Parser(prog=program)
    parser.loud = loud
    parser.add_argument("-n", dest="ranks", type=count(1, 512), default=2, metavar="RANKS")
    parser.add_argument("-o", dest="op", choices=["barrier", "bcast", "allreduce", "alltoall"], default="barrier")
    parser.add_argument("-z", dest="bytes", type=count(1, 1 << 30), default=8, metavar="BYTES",
                        help="of the array; for alltoall of the block from each rank to each; ignored for barrier")
    parser.add_argument("-m", dest="mode", choices=["stream", "strict"], default="stream",
                        help="one call after another, or with a barrier before and after each")
    parser.add_argument("-B", dest="batches", type=count(1, 1000000), default=12, metavar="BATCHES")
    parser.add_argument("-T", dest="ms", type=milliseconds, default=2.0, metavar="MS_PER_BATCH")
    parser.add_argument("-p", dest="pinned", action="store_true",
                        help="bind rank i to the CPU i modulo their number, of those allowed")
    cell = parser.parse_args()
    if cell.op == "allreduce" and cell.bytes % 8 != 0:
        parser.error("allreduce adds doubles of 8 bytes: -z must be a multiple of 8")
    if cell.op == "barrier":
        cell.bytes = 0
    cell.strict = cell.mode == "strict"
    cell.seconds = cell.ms / 1e3
    return cell


def buffer_bytes(cell):
    """Size of each of a rank's two buffers."""
    size = cell.bytes or 8
    return size * cell.ranks if cell.op == "alltoall" else size


class Peer:
    """A rank of the measured library: has `barrier`, `bcast`, `allreduce` and `alltoall`, each called with the `Rank`."""

    name = ""

    def prepare(self, rank):
        """Called when the buffers exist."""

    def gather(self, numbers):
        """Returns a row of these numbers for each rank."""
        raise NotImplementedError


class Rank:
    """A rank's buffers and its part of the measurement."""

    def __init__(self, peer, cell, me):
        self.peer, self.cell, self.me = peer, cell, me
        if cell.pinned:
            allowed = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {allowed[me % len(allowed)]})
        # Written at once, so that no first touch is timed.
        self.into = np.full(buffer_bytes(cell), 0, np.uint8)
        self.out = np.full(buffer_bytes(cell), 0, np.uint8)
        peer.prepare(self)
        self.operate = getattr(peer, cell.op)

    # Values that differ between successive batches. Sums are of small integers, exact in any order.

    def pattern(self, seed, sender, receiver):
        i = np.arange(self.cell.bytes, dtype=np.uint32)
        return (seed * 59 + sender * 31 + receiver * 17 + (i + (i >> 8)) * 3).astype(np.uint8)

    def numbers(self, seed):
        return (np.arange(self.cell.bytes // 8) + seed) % 17.0

    def fill(self, seed):
        """Rewrites all buffers: the data to send, and values that cannot be the result."""
        cell = self.cell
        self.out[:] = 0xFF
        if cell.op == "bcast":
            self.into[:] = self.pattern(seed if self.me == 0 else seed + 1, 0, 0)
        elif cell.op == "allreduce":
            self.into.view(np.float64)[:] = self.numbers(seed) + self.me
        elif cell.op == "alltoall":
            for to in range(cell.ranks):
                self.into[to * cell.bytes:(to + 1) * cell.bytes] = self.pattern(seed, self.me, to)

    def is_right(self, seed):
        cell = self.cell
        if cell.op == "bcast":
            return np.array_equal(self.into, self.pattern(seed, 0, 0))
        if cell.op == "allreduce":
            expected = cell.ranks * self.numbers(seed) + cell.ranks * (cell.ranks - 1) / 2
            return np.array_equal(self.out.view(np.float64), expected)
        if cell.op == "alltoall":
            return all(np.array_equal(self.out[sender * cell.bytes:(sender + 1) * cell.bytes],
                                      self.pattern(seed, sender, self.me)) for sender in range(cell.ranks))
        return True

    def all_say(self, so):
        return bool((self.peer.gather([float(so)]) > 0).all())

    def barrier_holds(self):
        """Verifies that no rank leaves a barrier before the last one has arrived, whichever is last."""
        holds = True
        for late in range(min(self.cell.ranks, LATE_MAX)):
            if self.me == self.cell.ranks - 1 - late:
                time.sleep(LATE_SECONDS)
            came = time.perf_counter()
            self.peer.barrier(self)
            times = self.peer.gather([came, time.perf_counter()])
            holds &= bool(times[:, 0].max() <= times[:, 1].min())
        return holds

    def warm_up(self):
        right = self.barrier_holds()
        for seed in range(WARM_UP):
            self.fill(seed)
            self.operate(self)
            right &= self.is_right(seed)
        return self.all_say(right)

    def call(self, calls):
        operate, barrier = self.operate, self.peer.barrier
        if not self.cell.strict or self.cell.op == "barrier":
            for _ in range(calls):
                operate(self)
            return
        for _ in range(calls):
            barrier(self)
            operate(self)
            barrier(self)

    def timed(self, calls):
        """Returns the slowest rank's seconds, the CPU seconds of all ranks, and their total CPU seconds so far."""
        self.peer.barrier(self)
        cpu_began, began = time.process_time(), time.perf_counter()
        self.call(calls)
        ended, cpu_ended = time.perf_counter(), time.process_time()
        times = self.peer.gather([ended - began, cpu_ended - cpu_began, cpu_ended])
        return times[:, 0].max(), times[:, 1].sum(), times[:, 2].sum()

    def calibrate(self):
        """Returns the calls in a batch: the same in every rank, because all know the slowest one's time."""
        wanted, calls = self.cell.seconds, 1
        while True:
            least = wanted
            for run in range(3):
                seconds = self.timed(calls)[0]
                least = seconds if run == 0 else min(least, seconds)
                if least < wanted / 2:
                    break
            if least >= wanted / 2:
                return max(1, round(calls * wanted / least))
            calls *= 2

    def measure(self):
        """Measures the cell; rank 0 prints. Returns the exit status, the same in every rank."""
        report = Report(self)
        report.moment(self.timed(0)[2])
        right = self.warm_up()
        if right:
            calls = self.calibrate()
            report.moment(self.timed(0)[2])
            for batch in range(self.cell.batches):
                seed = WARM_UP + batch
                self.fill(seed)
                began = time.perf_counter()
                seconds, cpu, own = self.timed(calls)
                report.batch(began, seconds / calls, cpu / calls, own)
                right = self.all_say(self.is_right(seed))
                if not right:
                    break
                report.print_known()
        if right:
            report.print_known(everything=True)
        elif self.me == 0:
            cell = self.cell
            print(f"{self.peer.name}: wrong result of {cell.op} with {cell.ranks} ranks, {cell.bytes} bytes", file=sys.stderr)
        self.peer.barrier(self)
        return 0 if right else WRONG_RESULT


class Report:
    """Report of rank 0. A batch is printed when its neighbours are known: see `foreign`."""

    def __init__(self, rank):
        self.rank = rank
        self.moments = []  # (at, busy, own): before the first call, before the first batch, after each
        self.batches = []
        self.printed = 0

    def moment(self, own):
        if self.rank.me == 0:
            self.moments.append((time.perf_counter(), machine_busy(), own))

    def batch(self, began, seconds, cpu, own):
        self.batches.append((began, time.perf_counter(), seconds * 1e6, cpu * 1e6))
        self.moment(own)

    def foreign(self, batch):
        """Share of the machine that other processes used over a batch and enough neighbours: the kernel counts in 10 ms."""
        began, ended = self.batches[batch][:2]
        spare = (WINDOW - (ended - began)) / 2
        before, after = batch + 1, batch + 2
        while before > 0 and self.moments[before][0] > began - spare:
            before -= 1
        while after < len(self.moments) - 1 and self.moments[after][0] < ended + spare:
            after += 1
        first, last = self.moments[before], self.moments[after]
        if first[1] is None or last[1] is None:
            return None
        others = last[1] - first[1] - (last[2] - first[2])
        return min(1.0, max(0.0, others / ((last[0] - first[0]) * os.cpu_count())))

    def print_known(self, everything=False):
        if self.rank.me != 0:
            return
        cell = self.rank.cell
        while self.printed < len(self.batches):
            _, ended, us, cpu_us = self.batches[self.printed]
            if not everything and time.perf_counter() < ended + WINDOW / 2:
                return
            share = self.foreign(self.printed)
            line = {"peer": self.rank.peer.name, "kind": "process", "ranks": cell.ranks, "op": cell.op, "bytes": cell.bytes,
                    "mode": cell.mode, "us": round(us, 4), "cpu_us": round(cpu_us, 4),
                    "foreign": share if share is None else round(share, 3)}
            print(json.dumps(line, separators=(",", ":")), flush=True)
            self.printed += 1


def machine_busy():
    """Returns the CPU seconds of the whole machine, or None."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:8]]
        return (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def in_processes(cell, start):
    """Forks the ranks, including rank 0, each running `start(me)`; returns their common exit status."""
    context = multiprocessing.get_context("fork")
    parent = os.getpid()

    def run(me):
        # Without the program a rank would wait without end.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            sys.exit(start(me))

    ranks = [context.Process(target=run, args=(me,), daemon=True) for me in range(cell.ranks)]
    for rank in ranks:
        rank.start()
    left = {rank.sentinel: rank for rank in ranks}
    worst = 0
    while left:
        for sentinel in connection.wait(left):
            rank = left.pop(sentinel)
            rank.join()
            if rank.exitcode not in (0, WRONG_RESULT):
                # The others may wait for this one: they end with the program.
                print(f"a rank ended early ({rank.exitcode})", file=sys.stderr)
                sys.exit(CANNOT_RUN)
            worst = max(worst, rank.exitcode)
    return worst
