"""A sparse system by conjugate gradients, and a transform by two workers."""

import numpy
import scipy.fft
import scipy.sparse
import scipy.sparse.linalg

n = 300
line = scipy.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n))
unit = scipy.sparse.eye(n)
matrix = (scipy.sparse.kron(line, unit) + scipy.sparse.kron(unit, line)).tocsr()
x, info = scipy.sparse.linalg.cg(matrix, numpy.ones(n * n), maxiter=300)
print("info", info, f"norm {numpy.linalg.norm(x):.6e}")
waves = scipy.fft.fft2(numpy.random.default_rng(7).standard_normal((1500, 1500)), workers=2)
print(f"spectrum {numpy.abs(waves).sum():.6e}")
