"""Products in a pool of four processes, each with the threads that its BLAS starts by itself."""
from multiprocessing import get_context

import numpy


def work(seed):
    numbers = numpy.random.default_rng(seed).random((500, 500))
    for _ in range(12):
        numbers = numbers @ numbers
        numbers /= numpy.abs(numbers).max()
    return float(numbers.sum())


if __name__ == "__main__":
    with get_context("spawn").Pool(4) as pool:
        print(len(pool.map(work, range(8))))
