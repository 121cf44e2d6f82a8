"""Four workers of joblib of the named kind, each of which multiplies matrices by NumPy's BLAS."""

import sys

import joblib
import numpy


def work(seed):
    matrix = numpy.random.default_rng(seed).standard_normal((500, 500))
    for _ in range(25):
        product = matrix @ matrix.T
    return float(product[3, 4])


if __name__ == "__main__":
    print(sum(joblib.Parallel(n_jobs=4, backend=sys.argv[1])(joblib.delayed(work)(seed) for seed in range(8))))
