"""A product of matrices on the threads of a BLAS."""

import numpy

a = numpy.ones((700, 700))
print(int((a @ a)[3, 4]))
