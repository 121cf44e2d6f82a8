"""A test suite of eight tests, each of which multiplies and factorises matrices by NumPy's BLAS."""

import numpy
import pytest


@pytest.mark.parametrize("seed", range(8))
def test_products(seed):
    matrix = numpy.random.default_rng(seed).standard_normal((400, 400))
    for _ in range(15):
        product = matrix @ matrix.T
        numpy.linalg.cholesky(product + 400 * numpy.eye(400))
    assert numpy.isfinite(product).all()
