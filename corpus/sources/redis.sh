#!/bin/sh
# A server of Redis at a socket in this folder, some requests, and its end.
redis-server --port 0 --unixsocket ./socket --save '' --io-threads 2 --daemonize no --logfile log --dir . &
until redis-cli -s ./socket ping 2>/dev/null | grep -q PONG; do sleep 0.02; done
redis-benchmark -q -s ./socket -n 40000 -c 20 -t set,incr >/dev/null
redis-cli -s ./socket get counter:__rand_int__
redis-cli -s ./socket config get io-threads
redis-cli -s ./socket shutdown nosave
wait
echo "status $?"
