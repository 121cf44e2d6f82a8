"""Two hosts with Slurm on this machine, for tests: each host is a network, a name and a view of the file system.

Needs root, and Debian's or another distribution's Slurm. Both hosts have the same CPUs, so each has a ledger of its own. No daemon of
the system is used or changed.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

CONFIGURATION = """\
ClusterName=trimtab
SlurmctldHost={first}(10.98.0.10)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
PlugStackConfig={folder}/plugstack.conf
PluginDir={plugins}
ProctrackType=proctrack/linuxproc
TaskPlugin={tasks}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
KillWait=2
TmpFS={folder}/tmp.%n
NodeName={first} NodeAddr=10.98.0.10 CPUs=2
NodeName={second} NodeAddr=10.98.0.11 CPUs=2
PartitionName=all Nodes={first},{second} Default=YES
PartitionName=placed Nodes={first},{second}
"""

# For a cluster whose steps are confined: control groups of version 1, since those of version 2 need a systemd that is told of them.
CGROUPS = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
ConstrainCores=yes
"""
CPUSETS = Path("/sys/fs/cgroup/cpuset")

# Name, /etc/hosts, shared memory of the host, and then the command.
ENTER = """
hostname "$1"; mount --bind "$0/hosts" /etc/hosts; mount --bind "$0/shm.$1" /dev/shm; shift; exec "$@"
"""

# Before that: the tree of cpusets of the host, which is a part of this machine's.
CONFINE = """
echo $$ >"$1/cgroup.procs"; exec unshare --cgroup sh -c 'mount --bind "$1" /sys/fs/cgroup/cpuset; shift; exec "$@"' sh "$@"
"""


def plugin_folders():
    """The folders of Slurm's own plug-ins here."""
    places = ["/usr/lib/x86_64-linux-gnu/slurm-wlm", "/usr/lib/aarch64-linux-gnu/slurm-wlm", "/usr/lib64/slurm", "/usr/lib/slurm"]
    return [place for place in places if os.path.isdir(place)]


class Unavailable(Exception):
    """Hosts cannot be made here."""


class Cluster:
    """A controller and two nodes. `on` runs commands on a node."""

    def __init__(self, library, confined=False):
        """`confined`: Slurm confines steps to their cores by control groups (`ConstrainCores`)."""
        # Short: names of sockets have 108 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="ttslurm", dir="/run"))
        self.library = library
        self.confined = confined
        self.hosts = ["n0", "n1"]
        self.mark = f"tt{os.getpid() % 100000}"
        self.spaces = [self.mark + host for host in self.hosts]

    def start(self):
        folder, (first, second) = self.folder, self.hosts
        for name in ["state", "config", "cache", *(f"{kind}.{host}" for host in self.hosts for kind in ("shm", "tmp", "ledger"))]:
            (folder / name).mkdir(mode=0o755)
        for host in self.hosts:
            (folder / f"ledger.{host}").chmod(0o1777)
            (folder / f"shm.{host}").chmod(0o1777)
        folder.chmod(0o755)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n10.98.0.10 {first}\n10.98.0.11 {second}\n")
        plugins = ":".join(plugin_folders())
        tasks = "task/cgroup,task/affinity" if self.confined else "task/affinity"
        text = CONFIGURATION.format(folder=folder, first=first, second=second, plugins=plugins, tasks=tasks)
        (folder / "slurm.conf").write_text(text)
        if self.confined:
            (folder / "cgroup.conf").write_text(CGROUPS)
            self.cpusets()
        self.plugstack("default=off")
        self.networks()
        key = folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        names = {"key": "key-file", "munge.sock": "socket", "munged.pid": "pid-file", "munged.log": "log-file", "seed": "seed-file"}
        run("munged", *(f"--{option}={folder / name}" for name, option in names.items()))
        self.on(0, "slurmctld")
        for host in range(2):
            self.on(host, "slurmd")
        self.wait_for_idle()

    def networks(self):
        switch = f"{self.mark}s"
        made = subprocess.run(["ip", "netns", "add", switch], text=True, capture_output=True, check=False)
        if made.returncode:
            raise Unavailable(f"network namespaces cannot be made here: {made.stderr.strip()}")
        run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "br0", "up")
        for at, host in enumerate(self.spaces):
            inner, outer = f"{self.mark}v{at}", f"{self.mark}p{at}"
            run("ip", "netns", "add", host)
            run("ip", "link", "add", inner, "netns", host, "type", "veth", "peer", "name", outer, "netns", switch)
            run("ip", "-n", switch, "link", "set", outer, "master", "br0", "up")
            run("ip", "-n", host, "addr", "add", f"10.98.0.1{at}/24", "dev", inner)
            run("ip", "-n", host, "link", "set", inner, "up")
            run("ip", "-n", host, "link", "set", "lo", "up")

    def cpusets(self):
        """Makes the root of each host's cpusets."""
        for name in self.spaces:
            try:
                (CPUSETS / name).mkdir()
            except OSError as error:
                raise Unavailable(f"cpusets of version 1 cannot be made here: {error}") from error
            for file in ("cpuset.cpus", "cpuset.mems"):
                (CPUSETS / name / file).write_text((CPUSETS / file).read_text())

    def plugstack(self, arguments, library=None, need="required"):
        """Writes the plug-in's line. Steps and srun read it each time."""
        path = self.folder / "plugstack.conf"
        new = path.with_suffix(".new")
        new.write_text(f"{need} {self.folder}/trimtab_spank.so library={library or self.library} {arguments}\n")
        new.rename(path)

    def environment(self, host):
        name = self.hosts[host]
        own = {
            "SLURM_CONF": self.folder / "slurm.conf",
            "TRIMTAB_LEDGER": self.folder / f"ledger.{name}",
            "TRIMTAB_CONFIG": self.folder / "config",
            "XDG_CACHE_HOME": self.folder / "cache",
        }
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        kept["PATH"] = kept.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
        return kept | {name: str(value) for name, value in own.items()}

    def command(self, host, *command):
        name = self.hosts[host]
        enter = ["nsenter", f"--net=/run/netns/{self.spaces[host]}", "unshare", "--uts", "--mount"]
        if self.confined:
            enter += ["sh", "-c", CONFINE, "sh", str(CPUSETS / self.spaces[host])]
        return [*enter, "sh", "-c", ENTER, str(self.folder), name, *map(str, command)]

    def on(self, host, *command, check=True, timeout=120, **more):
        """Runs a command on a host, and returns its result."""
        environment = self.environment(host) | more
        result = subprocess.run(
            self.command(host, *command), env=environment, text=True, capture_output=True, timeout=timeout, cwd="/", check=False
        )
        if check and result.returncode:
            raise AssertionError(f"{command}: status {result.returncode}\n{result.stdout}{result.stderr}{self.log()}")
        return result

    def background(self, host, *command, **more):
        """Starts a command on a host."""
        return subprocess.Popen(
            self.command(host, *command),
            env=self.environment(host) | more,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
        )

    def log(self):
        """The last lines of the daemons' logs."""
        logs = sorted(self.folder.glob("slurm*.log"))
        return "".join(f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-12:]) + "\n" for log in logs)

    def wait_for_idle(self, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            states = self.on(0, "sinfo", "-h", "-N", "-p", "all", "-o", "%T", check=False).stdout.split()
            if states == ["idle", "idle"]:
                return
            time.sleep(0.1)
        raise AssertionError(f"the nodes are {states} after {seconds} s\n{self.log()}")

    def stop(self):
        """Ends all jobs and daemons of this cluster."""
        if (self.folder / "slurmctld.pid").exists():
            self.on(0, "scancel", "-u", "root", check=False)
            time.sleep(0.5)
        daemons = [*(f"slurmd.{host}.pid" for host in self.hosts), "slurmctld.pid", "munged.pid"]
        for path in (self.folder / name for name in daemons):
            if path.exists():
                end(int(path.read_text()))
        # Steps live longer than their daemon. They alone have this configuration in their environment.
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"SLURM_CONF={self.folder}/".encode() in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
            except (OSError, ValueError):
                pass
        for name in [*self.spaces, f"{self.mark}s"]:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        for name in self.spaces if self.confined else ():
            for path in sorted((CPUSETS / name).rglob("*"), reverse=True) + [CPUSETS / name]:
                try:
                    path.rmdir()
                except OSError:
                    # A file, or a group whose last process is about to end.
                    pass
        shutil.rmtree(self.folder, ignore_errors=True)


def end(pid):
    """Ends a daemon, and waits for it."""
    try:
        os.kill(pid, signal.SIGTERM)
        for _ in range(50):
            time.sleep(0.1)
            os.kill(pid, 0)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(*command):
    result = subprocess.run([str(word) for word in command], text=True, capture_output=True, check=False, timeout=120)
    if result.returncode:
        raise AssertionError(f"{command}: {result.stderr}")
    return result.stdout
