"""Two workers of joblib: prints how many threads the BLAS of each may use, and what they computed."""

import sys

import joblib
import numpy
import threadpoolctl


def work(seed):
    matrix = numpy.random.default_rng(seed).integers(0, 9, (300, 300)).astype(float)
    for _ in range(20):
        matrix = matrix @ matrix.T % 97
    threads = sorted({pool["num_threads"] for pool in threadpoolctl.threadpool_info()})
    return threads, int(matrix.sum())


for threads, total in joblib.Parallel(n_jobs=2, backend=sys.argv[1])(joblib.delayed(work)(seed) for seed in range(8)):
    print("threads of a worker's BLAS", threads, "sum", total)
