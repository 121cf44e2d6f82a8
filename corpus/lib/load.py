"""Load: what others did on the machine during a sample."""

import os
import resource
import time
from pathlib import Path

NOISY_PERCENT = 10.0  # of one CPU; from here on a sample counts as noisy
TICK = os.sysconf("SC_CLK_TCK")


class Load:
    """CPU seconds of the machine and of the runner with all its ended children, at one moment."""

    def __init__(self):
        line = Path("/proc/stat").read_text().split("\n", 1)[0]
        self.busy = busy_ticks(line) / TICK
        usages = [resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        self.own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        self.clock = time.monotonic()

    def others_percent(self, before):
        """The others' share since `before`, in per cent of one CPU. The kernel counts in ticks, so short samples are coarse."""
        return others_percent(self.busy - before.busy, self.own - before.own, self.clock - before.clock)


def busy_ticks(line):
    """Of the first line of /proc/stat: all but idle and waiting, the hypervisor's share included."""
    numbers = [int(word) for word in line.split()[1:9]]
    return sum(numbers) - numbers[3] - numbers[4]


def others_percent(busy, own, seconds):
    return max(0.0, 100 * (busy - own) / seconds) if seconds > 0 else 0.0
