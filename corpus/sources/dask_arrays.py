"""Blocks of an array over dask's threads; prints how many CPUs it counts."""

import dask.array
import dask.system

blocks = dask.array.ones((6000, 6000), chunks=(1000, 1000), dtype="int64").cumsum(axis=0)
print("total", int((blocks @ blocks.T[:, :10] % 1013).sum().compute(scheduler="threads")), "CPUs", dask.system.CPU_COUNT)
