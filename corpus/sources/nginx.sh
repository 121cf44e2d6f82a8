#!/bin/sh
# A server of nginx at a socket in this folder: how many workers there are, some answers, and its end.
mkdir www
seq 50000 >www/numbers
chmod -R a+rX .
cat >conf <<END
worker_processes auto;
pid $PWD/pid;
error_log $PWD/log;
events {}
http { access_log off; client_body_temp_path $PWD/t1; proxy_temp_path $PWD/t2; fastcgi_temp_path $PWD/t3; uwsgi_temp_path $PWD/t4; scgi_temp_path $PWD/t5;
  server { listen unix:$PWD/socket; root $PWD/www; } }
END
nginx -c "$PWD/conf" -e "$PWD/log" -g "user root; daemon on;"
until [ -s pid ]; do sleep 0.02; done
sleep 0.3
echo "workers $(pgrep -c -P "$(cat pid)")"
for i in $(seq 30); do curl -s --unix-socket ./socket http://here/numbers; done | cksum
nginx -c "$PWD/conf" -e "$PWD/log" -g "user root; daemon on;" -s quit
while [ -e pid ]; do sleep 0.02; done
