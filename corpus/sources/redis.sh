#!/bin/sh
# A server of Redis at a socket in this folder, some requests, and its end.
redis-server --port 0 --unixsocket ./socket --save '' --daemonize no --logfile log --dir . &
until redis-cli -s ./socket ping 2>/dev/null | grep -q PONG; do sleep 0.02; done
redis-benchmark -q -s ./socket -n 60000 -c 4 -P 16 -t set,incr >/dev/null
redis-cli -s ./socket get counter:__rand_int__
redis-cli -s ./socket shutdown nosave
wait
echo "status $?"
