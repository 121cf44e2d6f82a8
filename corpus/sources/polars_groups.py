"""Groups and a join; prints the size of the pool of threads."""

import polars

rows = 3_000_000
frame = polars.DataFrame({"key": range(rows)}).with_columns((polars.col("key") * 7919 % 1013).alias("group"))
sums = frame.group_by("group").agg(polars.col("key").sum().alias("sum")).sort("group")
joined = frame.join(sums, on="group").select((polars.col("sum") % 97).sum())
pool = getattr(polars, "thread_pool_size", None) or polars.threadpool_size
print(sums["sum"][5], joined.item(), "pool", pool())
