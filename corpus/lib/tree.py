"""The process tree below the runner: masks and variables by /proc, births by the kernel's records."""

import collections
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from .births import Births, Refused
from .cpus import cpus_of

LOOK_SECONDS = 0.01  # between two looks
# Looks in which a thread must have the same mask: hwloc, when it discovers a machine, visits every CPU for a moment.
STEADY_LOOKS = 5
# The same for a mask that the thread no longer has at its last look: UCX binds the thread to a CPU while it measures the clock,
# which takes up to 0.1 s beside a program that keeps that CPU busy, and then restores the mask.
LEFT_LOOKS = 20


@dataclass
class Seen:
    """What became visible of a sample's processes."""

    threads: int = None  # and processes that were started; None where they could not be counted
    masks: dict = field(default_factory=dict)  # set of CPUs that a thread had for some looks -> name of its process
    environments: dict = field(default_factory=dict)  # name of a process -> its variables at its start
    held: frozenset = None  # CPUs that the ledger said are held; None where no run was seen
    lost: int = 0  # records of births, without which threads cannot be counted


def parents():
    """Process id -> parent's, of all processes."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text(errors="replace")
            except OSError:
                continue
            found[int(entry)] = int(stat[stat.rindex(")") + 2:].split()[1])
    return found


def below(root, of):
    """All descendants of a process, given each one's parent."""
    children = {}
    for child, parent in of.items():
        children.setdefault(parent, []).append(child)
    found, todo = [], [root]
    while todo:
        for child in children.get(todo.pop(), ()):
            found.append(child)
            todo.append(child)
    return found


def steady(looks, last):
    """The masks that count, each with the name of a process: `looks` per thread and mask, and each thread's last mask and name."""
    for (task, mask), count in looks.items():
        final, name = last[task]
        if count >= (STEADY_LOOKS if mask == final else LEFT_LOOKS):
            yield mask, name


class Watch(threading.Thread):
    """Looks at the tree until it is told to stop. Processes of trimtab's own programs are left out.

    Made by the thread that starts the sample, before it does.
    """

    def __init__(self, trimtab, holds):
        super().__init__(daemon=True)
        self.own = {str(Path(trimtab).resolve()), str(Path(trimtab).resolve().with_name("trimtab-discover"))}
        self.words = Path("/proc/self/cmdline").read_bytes()  # what a child has, too, until it has become the program
        self.holds = holds  # a function that asks the ledger; called until it has an answer
        self.seen = Seen()
        self.looks = collections.Counter()  # (thread, mask) -> looks
        self.last = {}  # thread -> its mask at the last look, and the name of its process
        self.over = threading.Event()
        try:
            self.births = Births()
        except Refused:
            self.births = None  # the session has said so

    def run(self):
        there = False
        while not self.over.wait(LOOK_SECONDS):
            there = self.look() or there
            if self.births:
                self.births.gather()
            if self.seen.held is None and there and self.holds:
                self.seen.held = self.holds()

    def stop(self):
        """Ends the looks. Births are counted on until `counted`, for processes that are left behind."""
        self.over.set()
        self.join()
        for line, name in steady(self.looks, self.last):
            self.seen.masks.setdefault(cpus_of(line.partition(":")[2]), name)

    def counted(self):
        """What was seen, when all that the sample started has ended."""
        if self.births:
            self.seen.threads = self.births.count({os.path.basename(path) for path in self.own})
            self.seen.lost = self.births.lost
            self.births.close()
        return self.seen

    def look(self):
        """Whether a program was there."""
        there = False
        for process in below(os.getpid(), parents()):
            try:
                path = os.readlink(f"/proc/{process}/exe")
                if path in self.own or Path(f"/proc/{process}/cmdline").read_bytes() == self.words:
                    continue
                tasks = os.listdir(f"/proc/{process}/task")
            except OSError:
                continue
            name = os.path.basename(path)
            for task in tasks:
                self.look_at(process, task, name)
            self.environment_of(process, name)
            there = there or bool(tasks)
        return there

    def look_at(self, process, task, name):
        try:
            status = Path(f"/proc/{process}/task/{task}/status").read_text(errors="replace")
        except OSError:
            return
        for line in status.splitlines():
            if line.startswith("Cpus_allowed_list:"):
                self.looks[task, line] += 1
                self.last[task] = (line, name)

    def environment_of(self, process, name):
        if name in self.seen.environments:
            return
        try:
            content = Path(f"/proc/{process}/environ").read_bytes()
        except OSError:
            return
        if content:
            pairs = (entry.partition("=") for entry in content.decode(errors="replace").split("\0") if entry)
            self.seen.environments[name] = {key: value for key, _, value in pairs}
