"""A pool of two processes, by the method that is named: prints what they computed and what they may use."""

import multiprocessing
import os
import sys


def cpus():
    """CPUs that this process may use, where Python can say it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def work(number):
    return sum(i * number % 7 for i in range(1_000_000)), cpus(), os.environ.get("OMP_NUM_THREADS")


if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    with multiprocessing.Pool(2) as pool:
        for line in pool.map(work, range(1, 21)):
            print(*line)
