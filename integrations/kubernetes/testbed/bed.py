"""A node of Kubernetes on this machine, for tests: containerd with NRI, trimtab's plug-in, and perhaps a kubelet.

Needs root. All files, sockets and control groups are the bed's own; no daemon of the system is used or changed. `fetch` beside
this file gets the programs.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", TOP / "target"))
PARTS = TARGET / "k8s"
PROGRAMS = TARGET / "debug"
# The folder of containerd's programs: Debian's, or those of version 2.
IS_SECOND = os.environ.get("CONTAINERD") == "2"
RUNTIME = PARTS / ("containerd2" if IS_SECOND else "root") / "usr/bin"
# Only the second one knows memory policies.
RUNC = PARTS / ("containerd2/usr/bin/runc" if IS_SECOND else "root/usr/sbin/runc")
CGROUPS = Path("/sys/fs/cgroup")
# Whether the machine has control groups of version 2 only.
UNIFIED = (CGROUPS / "cgroup.controllers").exists()
# An emulated machine (testbed/guest) is slower by this factor at most.
SLOW = 10 if "TRIMTAB_TESTBED" in os.environ else 1
IMAGE = "docker.io/local/box:1"
GROUP = "trimtabbed"
# Its usual place: only there trimtab looks for its record of exclusive CPUs.
KUBELET_ROOT = Path("/var/lib/kubelet")

CONTAINERD = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "{folder}/containerd.sock"
[debug]
  level = "info"
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "{folder}/nri/nri.sock"
  plugin_path = "{folder}/plugins"
  plugin_config_path = "{folder}/plugins.conf"
  plugin_registration_timeout = "{registration}s"
  plugin_request_timeout = "{request}s"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  # Without CAP_SYS_RESOURCE, as in many containers, the usual value is refused.
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{folder}/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{runc}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.fast]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.fast.options]
        BinaryName = "{runc}"
"""

KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: {folder}/pods
containerRuntimeEndpoint: unix://{folder}/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: {group}
cgroupsPerQOS: true
enforceNodeAllocatable: ["pods"]
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
address: 127.0.0.1
port: 0
healthzPort: 0
readOnlyPort: 0
evictionHard: {{memory.available: "1Mi", nodefs.available: "0%", imagefs.available: "0%", nodefs.inodesFree: "0%"}}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
syncFrequency: 2s
fileCheckFrequency: 1s
cpuManagerPolicy: {policy}
cpuManagerReconcilePeriod: 2s
{reserved}
volumePluginDir: {folder}/volumes
podLogsDir: {folder}/logs
"""


def run(*command, check=True, timeout=60, **more):
    """Runs a command, and returns its result."""
    words, timeout = [str(word) for word in command], timeout * SLOW
    result = subprocess.run(words, text=True, capture_output=True, timeout=timeout, check=False, **more)
    if check and result.returncode:
        raise AssertionError(f"{command}: status {result.returncode}\n{result.stdout}{result.stderr}")
    return result


def until(seconds, what, look):
    """Returns what `look` returns as soon as that is true."""
    end = time.monotonic() + seconds * SLOW
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not in {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.05)


def cpus(text):
    """The set of a list of CPUs."""
    found = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def hierarchies():
    """The roots of all hierarchies of control groups."""
    return [CGROUPS] if UNIFIED else [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


def static_pod(folder, name, annotations=None, resources=None, command=("/bin/sleep", "100000")):
    """Writes a static pod of one container for the kubelet of a bed."""
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": list(command), "resources": resources or {}}
    spec = {"hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": [container]}
    write_pod(folder, name, {"name": name, "annotations": annotations or {}}, spec)


def write_pod(folder, name, metadata, spec):
    """Gives the kubelet of a bed a static pod."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    # As a whole: the kubelet reads the folder at any moment.
    new = folder / f"{name}.new"
    new.write_text(json.dumps(pod))
    new.rename(folder / "pods" / f"{name}.json")


class Keeper:
    """A process that is no child."""

    def __init__(self, pid):
        self.pid = pid

    def send_signal(self, number):
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass


class Bed:
    """The node. Nothing runs before `start`."""

    def __init__(self):
        # Short: names of sockets have 108 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="ttk8s", dir="/run"))
        for name in ("ledger", "config", "cache", "nri", "plugins", "plugins.conf", "cni", "pods", "volumes", "logs"):
            (self.folder / name).mkdir()
        (self.folder / "ledger").chmod(0o1777)
        self.processes = {}
        self.has_kubelet = False
        self.top = GROUP

    def environment(self, **more):
        own = {
            "PATH": f"{RUNTIME}:{PARTS}/root/usr/sbin:" + os.environ["PATH"] + ":/usr/sbin:/sbin",
            "HOME": "/root",
            "TRIMTAB_LEDGER": str(self.folder / "ledger"),
            "TRIMTAB_CONFIG": str(self.folder / "config"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        return own | more

    # Processes.

    def spawn(self, name, *command, **more):
        log = open(self.folder / f"{name}.log", "ab")
        self.processes[name] = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment(**more), cwd="/", start_new_session=True
        )
        log.close()
        return self.processes[name]

    def kill(self, name, number=signal.SIGKILL):
        process = self.processes.pop(name, None)
        if process:
            process.send_signal(number)
            process.wait(timeout=30)

    def log(self, name):
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def tail(self, name, lines=15):
        return f"--- {name}\n" + "\n".join(self.log(name).splitlines()[-lines:])

    def containerd(self):
        """Starts containerd, and waits until pods can be made."""
        # The usual times of NRI.
        times = {"registration": 5 * SLOW, "request": 2 * SLOW}
        (self.folder / "containerd.toml").write_text(CONTAINERD.format(folder=self.folder, image=IMAGE, runc=RUNC, **times))
        (self.folder / "containerd.sock").unlink(missing_ok=True)
        process = self.spawn("containerd", RUNTIME / "containerd", "--config", self.folder / "containerd.toml")

        def is_up():
            if process.poll() is not None:
                raise AssertionError("containerd ended\n" + self.tail("containerd", 40))
            return self.cri("list", check=False).returncode == 0

        until(30, lambda: self.tail("containerd"), is_up)

    def plugin(self, config="", *options, wait=True):
        """Starts the plug-in, and waits until it is synchronized."""
        (self.folder / "config/nri.toml").write_text(config)
        before = self.log("plugin").count("synchronized:")
        self.spawn("plugin", PROGRAMS / "trimtab", "nri", "--verbose", "--socket", self.folder / "nri/nri.sock", *options)
        if wait:
            self.synchronized(before)

    def synchronized(self, before):
        """Waits until the plug-in has been synchronized once more."""
        until(20, lambda: self.tail("plugin") + self.tail("containerd"), lambda: self.log("plugin").count("synchronized:") > before)

    def start(self, config="", *options, plugin=True):
        self.containerd()
        archive = self.folder / "box.tar"
        image = [TOP / "integrations/kubernetes/testbed/image.py", archive, IMAGE, "--entry", "/bin/sleep", "100000"]
        tools = ("sh", "sleep", "cat", "env", "grep", "true", "nproc")
        run("python3", *image, *(f"{shutil.which('busybox')}=/bin/{tool}" for tool in tools))
        self.ctr("images", "import", archive)
        if plugin:
            self.plugin(config, *options)

    def kubelet(self, policy="none"):
        """Starts the kubelet, for static pods. With the static policy its groups are at the usual place, where trimtab expects them."""
        static = policy == "static"
        if static:
            self.top = "kubepods"
        reserved = 'reservedSystemCPUs: "0"' if static else ""
        text = KUBELET.format(folder=self.folder, group="/" if static else f"/{GROUP}", policy=policy, reserved=reserved)
        (self.folder / "kubelet.yaml").write_text(text)
        self.groups()
        self.has_kubelet = True
        self.spawn(
            "kubelet", PARTS / "kubelet", "--config", self.folder / "kubelet.yaml", "--root-dir", KUBELET_ROOT,
            "--cert-dir", self.folder / "certs", "--hostname-override", "bed", "--v", "2",
        )

    def groups(self):
        """Makes the control group of all pods, which the kubelet finds below its root."""
        for path in hierarchies():
            (path / GROUP).mkdir(exist_ok=True)
        # The kubelet wants all controllers that it uses below its root.
        for path in (CGROUPS, CGROUPS / GROUP) if UNIFIED else ():
            names = (path / "cgroup.controllers").read_text().split()
            (path / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in names))
        own = CGROUPS / "cpuset" / GROUP
        for name in ("cpuset.cpus", "cpuset.mems") if own.is_dir() else ():
            (own / name).write_text((own.parent / name).read_text())

    # Clients.

    def cri(self, *words, check=True, timeout=60):
        return run(PARTS / "cri", self.folder / "containerd.sock", *words, check=check, timeout=timeout)

    def ctr(self, *words):
        return run(RUNTIME / "ctr", "--address", self.folder / "containerd.sock", "-n", "k8s.io", *words)

    def trimtab(self, *words, check=True, timeout=60, **more):
        return run(PROGRAMS / "trimtab", *words, check=check, timeout=timeout, env=self.environment(**more))

    def host_run(self, *words):
        """Starts a run outside of Kubernetes, and waits until it holds cores."""
        process = subprocess.Popen(
            [str(PROGRAMS / "trimtab"), "run", *words, "sleep", "1000"], env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
        )
        held = lambda: process.poll() is not None or any(hold["pid"] == process.pid for hold in self.holds())
        until(20, "a run on the host", held)
        return process

    def pod(self, name, annotations=None, containers=None, check=True, handler="", parent=None, start=True):
        """Runs a pod, or only makes it. Returns its numbers, or, without `check`, the result of the client."""
        one = {"name": "main", "command": ["/bin/sleep", "100000"]}
        wanted = {
            "name": name,
            "uid": str(uuid.uuid4()),
            "image": IMAGE,
            "handler": handler,
            "cgroup_parent": parent or f"/{GROUP}/{name}",
            "annotations": annotations or {},
            "containers": [one | container for container in containers or [{}]],
        }
        result = self.cri("run" if start else "make", json.dumps(wanted), check=check)
        return json.loads(result.stdout) if result.returncode == 0 else result

    def remove(self, pod, check=True):
        return self.cri("remove", pod["pod"], check=check)

    # Independent readings: control groups, masks, the ledger.

    def running(self):
        """The running containers: their numbers, with the labels of their pods."""
        found = json.loads(self.cri("list").stdout)
        running = (one for one in found["containers"] or [] if one.get("state") == 1)
        return {one["id"]: one for one in running}

    def group(self, container):
        """The control group that has a container's list of CPUs."""
        root = CGROUPS if UNIFIED else CGROUPS / "cpuset"
        # Groups may vanish meanwhile: this walk passes over them.
        for folder, below, _ in os.walk(root / self.top):
            for name in below:
                if container in name:
                    return Path(folder, name)
        return None

    def cpuset(self, container):
        """The CPUs of a container's control group."""
        group = self.group(container)
        # A group of version 2 that has no list of its own uses that of its parent.
        return cpus((group / ("cpuset.cpus.effective" if UNIFIED else "cpuset.cpus")).read_text()) if group else None

    def processes_of(self, container):
        group = self.group(container)
        try:
            return [int(line) for line in (group / "cgroup.procs").read_text().split()] if group else []
        except OSError:
            # It has ended meanwhile.
            return []

    def mask(self, container):
        """The CPUs on which the processes of a container may run, by the kernel."""
        found = set()
        for pid in self.processes_of(container):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            found |= cpus(re.search(r"^Cpus_allowed_list:\t(.*)$", status, re.M).group(1))
        return found

    def variables(self, container):
        """The environment of a container's first process."""
        pid = self.processes_of(container)[0]
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return dict(entry.decode().split("=", 1) for entry in entries if b"=" in entry)

    def holds(self):
        return json.loads(self.trimtab("ps", "--json").stdout)["holds"]

    def keepers(self):
        """The keepers of this bed's holds, as processes that can be signalled."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    is_keeper = (entry / "comm").read_text().strip() == "trimtab-keeper"
                    files = [os.readlink(file) for file in (entry / "fd").iterdir()] if is_keeper else []
                except OSError:
                    continue
                if any(file.startswith(str(self.folder)) for file in files):
                    found.append(Keeper(int(entry.name)))
        return found

    def stop(self):
        """Ends everything, and removes it."""
        for name in ("kubelet", "plugin"):
            self.kill(name)
        if "containerd" in self.processes:
            try:
                for pod in json.loads(self.cri("list").stdout)["pods"] or []:
                    self.cri("remove", pod["id"], check=False)
            except (AssertionError, subprocess.TimeoutExpired, ValueError):
                pass
        self.kill("containerd", signal.SIGTERM)
        for keeper in self.keepers():
            keeper.send_signal(signal.SIGKILL)
        for entry in Path("/proc").iterdir():
            # Shims of pods that containerd could not remove.
            if entry.name.isdigit():
                try:
                    line = (entry / "cmdline").read_bytes().decode(errors="replace")
                except OSError:
                    continue
                if "containerd-shim" in line and str(self.folder) in line:
                    Keeper(int(entry.name)).send_signal(signal.SIGKILL)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        own = (str(self.folder), str(KUBELET_ROOT)) if self.has_kubelet else str(self.folder)
        for mount in sorted((mount for mount in mounts if mount.startswith(own)), reverse=True):
            run("umount", "-l", mount, check=False)
        if self.has_kubelet:
            shutil.rmtree(KUBELET_ROOT, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        for top in {GROUP, self.top}:
            for root in hierarchies():
                below = [path for path in (root / top).rglob("*") if path.is_dir()] if (root / top).is_dir() else []
                for path in [*sorted(below, reverse=True), root / top]:
                    try:
                        path.rmdir()
                    except OSError:
                        pass
