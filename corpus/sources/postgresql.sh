#!/bin/sh
# A server of PostgreSQL over a prepared cluster, as its own user; queries, and its end.   postgresql.sh FOLDER
bin=/usr/lib/postgresql/15/bin
chmod a+rwx .
as() { runuser -u postgres -- "$@"; }
as $bin/pg_ctl -D "$1/data" -w -s -l "$PWD/log" -o "-c listen_addresses= -c unix_socket_directories=$PWD -c fsync=off" start || exit 1
as $bin/pgbench -h "$PWD" -i -q -s 2 postgres >/dev/null 2>&1
as $bin/pgbench -h "$PWD" -n -c 2 -j 2 -t 300 postgres 2>/dev/null | grep -E '^number of (clients|threads|transactions actually)'
as psql -h "$PWD" -At postgres -c "set max_parallel_workers_per_gather = 2; select count(*), sum(abalance) = (select sum(delta) from pgbench_history) from pgbench_accounts"
as $bin/pg_ctl -D "$1/data" -w -s -m fast stop
