"""Products of matrices in a pool of threads; the numbers of threads of the BLAS afterwards."""

from concurrent.futures import ThreadPoolExecutor

import numpy
import threadpoolctl

a = numpy.ones((500, 500))


def product(_):
    return float((a @ a)[3, 4])


def numbers():
    return [entry["num_threads"] for entry in threadpoolctl.threadpool_info() if entry["user_api"] == "blas"]


before = numbers()
with ThreadPoolExecutor(2) as pool:
    values = set(pool.map(product, range(40)))
solved = numpy.linalg.solve(numpy.eye(200), numpy.ones(200))
print(*values, float(solved[7]), numbers() == before, *before)
