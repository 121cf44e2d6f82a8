"""A parallel loop of Numba's; prints its layer and threads."""

import numba


@numba.njit(parallel=True)
def total(count, by):
    found = 0
    for i in numba.prange(count):
        found += (i ^ (i >> 7)) * by % 1013
    return found


print("total", sum(total(30_000_000, by) for by in range(1, 9)), numba.threading_layer(), numba.get_num_threads())
