#!/bin/sh
# A server of Redis at a socket in this folder, some requests, and its end.
mkfifo log
redis-server --port 0 --unixsocket ./socket --save '' --daemonize no --dir . >log &
# The shell itself waits for the line, so that as many processes are started in every sample.
exec 3<log
while read -r line <&3; do
    case $line in *"ready to accept connections"*) break ;; esac
done
redis-benchmark -q -s ./socket -n 60000 -c 4 -P 16 -t set,incr >/dev/null
redis-cli -s ./socket get counter:__rand_int__
redis-cli -s ./socket shutdown nosave
wait
echo "status $?"
