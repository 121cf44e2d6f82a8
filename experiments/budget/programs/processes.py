"""A pool of processes, as many as the argument says, each of which multiplies matrices by NumPy's BLAS."""

import multiprocessing
import sys

import numpy


def work(seed):
    matrix = numpy.random.default_rng(seed).standard_normal((500, 500))
    for _ in range(25):
        product = matrix @ matrix.T
    return float(product[3, 4])


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    with multiprocessing.Pool(int(sys.argv[1])) as pool:
        print(sum(pool.map(work, range(8))))
