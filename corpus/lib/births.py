"""Births: the threads and processes that a sample starts, from the kernel's own records.

Looks at /proc miss what lives shorter than the time between two of them. The kernel writes a record
for every thread and process that is born, and for every program that is executed, into a buffer of
each CPU (perf_event_open(2), PERF_RECORD_FORK and PERF_RECORD_COMM); nothing of the sample waits for
that. Root sees all processes. Others see what the runner's main thread starts, but not beyond the
execution of a set-user-id file.
"""

import ctypes
import mmap
import os
import platform
import struct
from dataclasses import dataclass

from .cpus import cpus_of

SYSTEM_CALL = {"x86_64": 298, "aarch64": 241}
SOFTWARE, DUMMY = 1, 9  # an event that counts nothing: only its records are wanted
SAMPLE_TIME = 1 << 2
INHERIT, EXCLUDE_KERNEL, COMM, TASK = 1 << 1, 1 << 5, 1 << 9, 1 << 13
SAMPLE_ID_ALL, COMM_EXEC, USE_CLOCKID = 1 << 18, 1 << 24, 1 << 25
CLOSE_ON_EXEC = 8
CLOCK_MONOTONIC = 1  # the same on all CPUs, so that records can be put in order
LOST_RECORD, COMM_RECORD, FORK_RECORD = 2, 3, 7
BY_EXEC = 1 << 13  # of a COMM_RECORD: an execution, and no thread that renames itself
DATA_PAGES = 128  # of each CPU's buffer, a power of two: what users may lock by default, some 8,000 records
HEAD, TAIL = 1024, 1032  # where the kernel's and the reader's positions are in the buffer's first page
ITSELF = "exe"  # the name of a file that is executed as /proc/self/exe
NAME_BYTES = 15  # of a program's name that the kernel keeps


class Refused(Exception):
    """The kernel does not let the runner count; the reason, in one line."""


@dataclass(frozen=True)
class Born:
    """A thread or a process is born."""

    time: int  # nanoseconds
    process: int
    thread: int
    parent: int  # the process that started it


@dataclass(frozen=True)
class Became:
    """A process executes a file."""

    time: int
    process: int
    name: str


class Births:
    """What is born from now on until it is closed."""

    def __init__(self):
        self.records, self.lost = [], 0
        self.buffers = []
        try:
            for cpu in online():
                self.buffers.append(Buffer(cpu))
        except BaseException:
            self.close()
            raise

    def gather(self):
        """Takes the records out of the buffers; to be called before these are full."""
        for buffer in self.buffers:
            for kind, flags, body in buffer.taken():
                if kind == LOST_RECORD:
                    self.lost += struct.unpack_from("QQ", body)[1]
                elif kind == FORK_RECORD:
                    process, parent, thread, _, time = struct.unpack_from("IIIIQ", body)
                    self.records.append(Born(time, process, thread, parent))
                elif kind == COMM_RECORD and flags & BY_EXEC:
                    process, _ = struct.unpack_from("II", body)
                    name = body[8:-8].split(b"\0")[0].decode(errors="replace")
                    self.records.append(Became(struct.unpack_from("Q", body, len(body) - 8)[0], process, name))

    def count(self, own):
        """The births below the runner, as `started` counts them; None where records were lost."""
        self.gather()
        return None if self.lost else started(self.records, os.getpid(), own)

    def close(self):
        for buffer in self.buffers:
            buffer.close()
        self.buffers = []


class Buffer:
    """The records of one CPU."""

    def __init__(self, cpu):
        self.file = opened(cpu)
        try:
            self.memory = mmap.mmap(self.file, (1 + DATA_PAGES) * mmap.PAGESIZE)
        except OSError as error:
            os.close(self.file)
            raise Refused(f"no memory for the kernel's records: {error.strerror}") from None

    def taken(self):
        """The records since the last call: kind, flags, and what stands behind these."""
        size = DATA_PAGES * mmap.PAGESIZE
        head, = struct.unpack_from("Q", self.memory, HEAD)
        tail, = struct.unpack_from("Q", self.memory, TAIL)
        found = []
        while tail < head:
            kind, flags, length = struct.unpack("IHH", self.part(tail, 8, size))
            found.append((kind, flags, self.part(tail + 8, length - 8, size)))
            tail += length
        struct.pack_into("Q", self.memory, TAIL, tail)
        return found

    def part(self, position, length, size):
        """Bytes of the ring, also around its end."""
        begin = position % size
        first = min(length, size - begin)
        at = mmap.PAGESIZE + begin
        return self.memory[at:at + first] + self.memory[mmap.PAGESIZE:mmap.PAGESIZE + length - first]

    def close(self):
        self.memory.close()
        os.close(self.file)


def refusal():
    """Why births cannot be counted here; empty where they can."""
    try:
        Births().close()
    except Refused as refused:
        return str(refused)
    return ""


def opened(cpu):
    """A descriptor of the records on a CPU: of all processes, or of what this thread starts."""
    number = SYSTEM_CALL.get(platform.machine())
    if number is None:
        raise Refused(f"perf_event_open has no number here for {platform.machine()}")
    library = ctypes.CDLL(None, use_errno=True)
    for process, more in ((-1, 0), (0, INHERIT | EXCLUDE_KERNEL)):
        flags = COMM | TASK | SAMPLE_ID_ALL | COMM_EXEC | USE_CLOCKID | more
        # Type, size, event, period, what samples hold, how counts are read, flags; what is 0; clock.
        wanted = struct.pack("IIQQQQQ44xi", SOFTWARE, 96, DUMMY, 0, SAMPLE_TIME, 0, flags, CLOCK_MONOTONIC)
        file = library.syscall(number, wanted, process, cpu, -1, ctypes.c_ulong(CLOSE_ON_EXEC))
        if file >= 0:
            return file
    raise Refused(f"perf_event_open: {os.strerror(ctypes.get_errno())}")


def online():
    with open("/sys/devices/system/cpu/online") as file:
        return sorted(cpus_of(file.read()))


def started(records, root, own):
    """How many threads and processes the programs below `root` start.

    `own` are the names of files whose processes do not count: trimtab's. Nor does the root. A process
    that becomes a program of another's counts then, and once, whatever it executes later; one that
    becomes trimtab counts no longer. One that executes itself remains what it is.
    """
    names = {name[:NAME_BYTES] for name in own}
    counts = {root: False}  # process -> whether it is a program's
    initial = set()  # processes whose initial thread counts, and may no longer if they become trimtab
    threads = 0  # all others
    for record in sorted(records, key=lambda record: record.time):
        process = record.process
        if isinstance(record, Became):
            if process not in counts or process == root or record.name == ITSELF:
                continue
            counts[process] = record.name not in names
            (initial.add if counts[process] else initial.discard)(process)
        elif record.parent in counts:
            if record.thread != process:
                threads += counts[record.parent]
                continue
            counts[process] = counts[record.parent]
            threads += process in initial  # one that had this number before, and is over
            (initial.add if counts[process] else initial.discard)(process)
    return threads + len(initial)
