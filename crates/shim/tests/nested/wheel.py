"""What compiled modules with their own OpenMP runtime compute, and where their threads are afterwards."""
import os
import sys
import numpy as np
from sklearn.cluster import KMeans
from sklearn.ensemble import HistGradientBoostingRegressor


def letters(thread):
    mask = os.sched_getaffinity(thread)
    return "".join(letter for letter in "AB" if int(os.environ["CPU_" + letter]) in mask) or "?"


numbers = np.random.default_rng(1).random((20000, 8))
means = KMeans(4, n_init=1, max_iter=5, random_state=1).fit(numbers)
trees = HistGradientBoostingRegressor(max_iter=2, random_state=1).fit(numbers, numbers[:, 0])
print(f"{means.inertia_:.6f} {trees.predict(numbers[:10]).sum():.6f}")

others = [letters(int(thread)) for thread in os.listdir("/proc/self/task") if int(thread) != os.getpid()]
print("initial", letters(os.getpid()), "narrow", *sorted(mask for mask in others if mask != "AB"))
