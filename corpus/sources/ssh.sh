#!/bin/sh
# A server of ssh at a port of its own, without a daemon: each connection is a process behind a pipe.   ssh.sh FOLDER
server="$(command -v sshd) -i -q -f /dev/null -h $1/host -o StrictModes=no -o AuthorizedKeysFile=$1/keys -o UsePAM=no -o PermitRootLogin=yes"
exec ssh -q -F /dev/null -i "$1/user" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ProxyCommand="$server" here \
    'echo answered; head -c 30000000 /dev/zero | cksum; exit 5'
