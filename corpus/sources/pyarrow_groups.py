"""Groups of a table; prints the size of the pool of threads."""

import pyarrow
import pyarrow.compute

keys = pyarrow.array(range(3_000_000))
groups = pyarrow.compute.bit_wise_and(pyarrow.compute.multiply(keys, 7919), 1023)
table = pyarrow.table({"key": keys, "group": groups}).group_by("group").aggregate([("key", "sum")])
print(table.num_rows, pyarrow.compute.sum(table["key_sum"]), "pool", pyarrow.cpu_count())
