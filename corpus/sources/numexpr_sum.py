"""An expression over long arrays; prints how many threads compute it."""

import numexpr
import numpy

a = numpy.arange(4_000_000, dtype="int64")
print("total", sum(int(numexpr.evaluate("a * b % 1013").sum()) for b in range(1, 20)), "threads", numexpr.get_num_threads(),
      "at most", numexpr.MAX_THREADS)
