#!/usr/bin/env python3
"""Masks after SIGKILL: kills balancers at random moments, and counts threads that are left narrow.

    kills.py TRIMTAB SPINS [KILLS [SEED]]      (SPINS: crates/cli/tests/program/c/spins.c, compiled)

Unit: threads with fewer CPUs than before the balancing, 10 ms, 100 ms and 1 s after the kill.

Three kills in four are of `trimtab attach` to a program of three computing threads, the others of
the parent of `trimtab run --balance`. The policy and the moment of the kill are drawn from the seed;
the moment lies within 150 ms after the start of the balancer, or within 60 ms after the first
narrow mask. Prints one line a policy and kind, and a last line for all kills.
"""
import os
import random
import signal
import subprocess
import sys
import time

LOOKS = (0.010, 0.100, 1.0)
POLICIES = ("pinned", "exchange", "speed", "nudge", "auto")


def masks(pid):
    """The masks of a process's threads, by thread."""
    found = {}
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            try:
                found[tid] = os.sched_getaffinity(int(tid))
            except OSError:
                pass
    except OSError:
        pass
    return found


def narrow(pid, whole):
    return sum(1 for mask in masks(pid).values() if mask < whole)


def wait_narrow(pid, whole, limit):
    end = time.monotonic() + limit
    while time.monotonic() < end and not narrow(pid, whole):
        time.sleep(0.001)


class Tally:
    def __init__(self):
        self.kills = self.narrowed = 0
        self.left = [0] * len(LOOKS)
        self.times = []

    def line(self):
        times = sorted(self.times)
        back = f"{1e3 * times[len(times) // 2]:.1f} ms (median), " \
               f"{1e3 * times[int(0.99 * (len(times) - 1))]:.1f} (99 %), {1e3 * times[-1]:.1f} (last)" if times else "-"
        left = ", ".join(f"{n} after {1e3 * look:.0f} ms" for n, look in zip(self.left, LOOKS))
        return f"{self.kills} kills, {self.narrowed} with narrow masks; threads left narrow: {left}; back after {back}"


def kill_and_look(balancer, pid, whole, tallies):
    before = narrow(pid, whole)
    os.kill(balancer, signal.SIGKILL)
    begin = time.monotonic()
    back, left = None, []
    for look in LOOKS:
        while time.monotonic() - begin < look:
            if not narrow(pid, whole):
                back = back or time.monotonic() - begin
                break
            time.sleep(0.0005)
        left.append(narrow(pid, whole))
        if left[-1] == 0:
            back = back or time.monotonic() - begin
    for tally in tallies:
        tally.kills += 1
        tally.narrowed += before > 0
        tally.left = [a + b for a, b in zip(tally.left, left)]
        if before and back:
            tally.times.append(back)


def begin(words):
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            start_new_session=True)


def main():
    trimtab, spins = sys.argv[1:3]
    kills = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    draw = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    whole = os.sched_getaffinity(0)
    program = begin([spins, "3"])
    program.stdout.readline()
    all_kills, kinds = Tally(), {}
    for at in range(kills):
        policy, of_run = draw.choice(POLICIES), at % 4 == 3
        early = draw.random() < 0.3
        options = ["--interval", "5ms"]
        if of_run:
            balancer = begin([trimtab, "run", "-c", str(len(whole)), "--share", f"--balance={policy}", *options, "--",
                              "sh", "-c", f'echo $$; exec "{spins}" 3'])
            pid = int(balancer.stdout.readline())
            balancer.stdout.readline()
        else:
            pid = program.pid
            balancer = begin([trimtab, "attach", str(pid), "--balance", policy, *options])
        if early:
            time.sleep(draw.uniform(0, 0.15))
        else:
            wait_narrow(pid, whole, 2.0 if policy in ("pinned", "exchange", "speed") else 0.5)
            time.sleep(draw.uniform(0, 0.06))
        kill_and_look(balancer.pid, pid, whole, (all_kills, kinds.setdefault((policy, of_run), Tally())))
        balancer.stdin.close()
        balancer.wait()
        if of_run:
            while os.path.exists(f"/proc/{pid}") and masks(pid):
                time.sleep(0.002)
    for (policy, of_run), tally in sorted(kinds.items()):
        print(f"{'run' if of_run else 'attach'} {policy}: {tally.line()}")
    print(f"all: {all_kills.line()}")
    program.stdin.close()
    program.wait()


main()
