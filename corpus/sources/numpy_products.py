"""Products and eigenvalues by the BLAS of numpy; prints how many threads it has."""

import numpy
import threadpoolctl

matrix = numpy.random.default_rng(7).standard_normal((900, 900))
for _ in range(12):
    matrix = matrix @ matrix
    matrix /= numpy.abs(matrix).max()
print("threads", [pool["num_threads"] for pool in threadpoolctl.threadpool_info()])
print(f"norm {numpy.linalg.norm(matrix):.6e}")
