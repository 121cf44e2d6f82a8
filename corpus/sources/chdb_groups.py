"""Groups over generated numbers; prints how many threads there are."""

import chdb

GROUPS = "select number * 7919 % 1013 as g, sum(number) as s from numbers_mt(20000000) group by g"
print(chdb.query(f"select count(), sum(s % 97) from ({GROUPS})"))
print(chdb.query("select value from system.settings where name = 'max_threads'"))
