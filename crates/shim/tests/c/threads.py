"""Threads of an interpreter, its idea of the machine, and its children."""

import os
import subprocess
import sys
import threading

letters = {int(os.environ["CPU_" + letter]): letter for letter in "AB"}


def here():
    return "".join(letters[cpu] for cpu in sorted(os.sched_getaffinity(0)))


def born(masks, deeper):
    masks.append(here())
    if deeper:
        run(masks, deeper - 1)


def run(masks, deeper=0):
    thread = threading.Thread(target=born, args=(masks, deeper))
    thread.start()
    thread.join()


masks = []
run(masks, 2)
child = subprocess.run([sys.executable, "-c", "import os; print(os.cpu_count())"], capture_output=True, text=True)
print(here(), *masks, "cpus", os.cpu_count(), "child", child.stdout.strip())
