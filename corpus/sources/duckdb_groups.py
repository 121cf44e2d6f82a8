"""Groups over a generated table; prints how many threads there are."""

import duckdb

base = duckdb.connect()
base.sql("create table t as select i, i * 7919 % 1013 as g from range(6000000) r(i)")
print(base.sql("select count(*), sum(s % 97) from (select g, sum(i) s from t group by g)").fetchall())
print("threads", base.sql("select current_setting('threads')").fetchall())
