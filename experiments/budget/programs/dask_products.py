"""Products of blocks over dask's threads, each by NumPy's BLAS."""

import dask.array

blocks = dask.array.random.default_rng(1).standard_normal((3000, 3000), chunks=(500, 500))
print(float((blocks @ blocks.T).sum().compute(scheduler="threads")))
