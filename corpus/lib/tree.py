"""The process tree below the runner, as /proc shows it."""

import collections
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

LOOK_SECONDS = 0.01  # between two looks
STEADY_LOOKS = 5  # that a thread must have the same mask in: hwloc, when it discovers a machine, visits every CPU for a moment


@dataclass
class Seen:
    """What became visible of a sample's processes."""

    threads: int = 0  # the most at one moment
    masks: dict = field(default_factory=dict)  # set of CPUs that a thread had for some looks -> name of its process
    environments: dict = field(default_factory=dict)  # name of a process -> its variables at its start
    held: frozenset = None  # CPUs that the ledger said are held; None where no run was seen


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


def cpus_of(words):
    """The CPUs of a kernel's list, as 0-3,8."""
    cpus = set()
    for part in words.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def list_of(cpus):
    """The kernel's list of CPUs, for messages."""
    return ",".join(str(cpu) for cpu in sorted(cpus))


class Watch(threading.Thread):
    """Looks at the tree until it is told to stop. Processes of trimtab's own programs are left out."""

    def __init__(self, trimtab, holds):
        super().__init__(daemon=True)
        self.own = {str(Path(trimtab).resolve()), str(Path(trimtab).resolve().with_name("trimtab-discover"))}
        self.words = Path("/proc/self/cmdline").read_bytes()  # what a child has, too, until it has become the program
        self.holds = holds  # a function that asks the ledger; called until it has an answer
        self.seen = Seen()
        self.looks = collections.Counter()  # (thread, mask) -> looks
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(LOOK_SECONDS):
            self.look()
            if self.seen.held is None and self.seen.threads and self.holds:
                self.seen.held = self.holds()

    def stop(self):
        self.over.set()
        self.join()
        return self.seen

    def look(self):
        threads = 0
        for process in below(os.getpid(), parents()):
            try:
                path = os.readlink(f"/proc/{process}/exe")
                if path in self.own or Path(f"/proc/{process}/cmdline").read_bytes() == self.words:
                    continue
                tasks = os.listdir(f"/proc/{process}/task")
            except OSError:
                continue
            name = os.path.basename(path)
            threads += sum(self.look_at(process, task, name) for task in tasks)
            self.environment_of(process, name)
        self.seen.threads = max(self.seen.threads, threads)

    def look_at(self, process, task, name):
        """1 if the thread is there."""
        try:
            status = Path(f"/proc/{process}/task/{task}/status").read_text(errors="replace")
        except OSError:
            return 0
        for line in status.splitlines():
            if line.startswith("Cpus_allowed_list:"):
                self.looks[task, line] += 1
                if self.looks[task, line] == STEADY_LOOKS:
                    self.seen.masks.setdefault(cpus_of(line.partition(":")[2]), name)
        return 1

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
