#!/bin/sh
# A controller and a node of Slurm in this folder, a job of the arguments by srun, and the end of both.
here=$PWD host=$(hostname -s)
# Ports of this sample alone.
port=$((20000 + $$ % 20000))
mkdir state spool
cat >slurm.conf <<END
ClusterName=corpus
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 20000))
SlurmUser=root
# Nothing is authenticated: the daemons listen at the loopback address alone.
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
StateSaveLocation=$here/state
SlurmdSpoolDir=$here/spool
SlurmctldPidFile=$here/slurmctld.pid
SlurmdPidFile=$here/slurmd.pid
SlurmctldLogFile=$here/slurmctld.log
SlurmdLogFile=$here/slurmd.log
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(getconf _NPROCESSORS_ONLN) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES State=UP
END
export SLURM_CONF=$here/slurm.conf
slurmctld -D -f slurm.conf >ctld.out 2>&1 &
controller=$!
slurmd -D -f slurm.conf >d.out 2>&1 &
node=$!
tries=200
until sinfo -h -o %t 2>/dev/null | grep -q idle; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || { echo "the node did not become idle" >&2; cat slurmctld.log slurmd.log ctld.out d.out >&2; break; }
    sleep 0.05
done
"$@"
status=$?
kill $node $controller
wait $node $controller
exit $status
