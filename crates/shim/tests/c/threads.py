"""Threads of an interpreter, its idea of the machine, and its children."""

import os
import subprocess
import sys
import threading

letters = {int(os.environ["CPU_" + letter]): letter for letter in "AB"}


def here():
    """Where the kernel has the calling thread; the C library tells a thread on a slot otherwise."""
    with open("/proc/thread-self/status") as status:
        words = next(line for line in status if line.startswith("Cpus_allowed_list:")).split()[1]
    first, _, last = words.replace(",", "-").partition("-")
    return "".join(letters[int(cpu)] for cpu in (first, last) if cpu)


def born(masks, deeper):
    masks.append(here())
    told.append(len(os.sched_getaffinity(0)))
    if deeper:
        run(masks, deeper - 1)


def run(masks, deeper=0):
    thread = threading.Thread(target=born, args=(masks, deeper))
    thread.start()
    thread.join()


masks, told = [], []
run(masks, 2)
child = subprocess.run([sys.executable, "-c", "import os; print(os.cpu_count())"], capture_output=True, text=True)
print(here(), *masks, "cpus", os.cpu_count(), "child", child.stdout.strip(), "told", *told)
