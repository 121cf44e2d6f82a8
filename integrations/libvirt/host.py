"""A host of virtual machines on this machine, for tests: a libvirt of its own, in a view of the file system of its own.

Needs root, libvirt and QEMU. /etc, /var, /run and /dev/shm of the view are its own, so that no daemon, guest, configuration or hold
of the system is used or changed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from xml.sax.saxutils import escape

# The view: the folder of the test is a file system in memory, with what is written to /etc and /var. It lasts until the standard input
# is closed.
VIEW = """
set -e
mount -t tmpfs tmpfs "$0"
for top in etc var; do
    mkdir "$0/$top" "$0/$top.work"
    mount -t overlay overlay -o "lowerdir=/$top,upperdir=$0/$top,workdir=$0/$top.work" "/$top"
done
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mkdir -p /run/lock /etc/libvirt /etc/pve/qemu-server /run/qemu-server /var/lib/vz
rm -rf /etc/libvirt/hooks /etc/libvirt/qemu/autostart /etc/trimtab
chmod 1777 /dev/shm /run/lock
echo ready
cat >/dev/null
"""

LIBVIRTD = 'auth_unix_rw = "none"\nauth_unix_ro = "none"\nunix_sock_group = "root"\n'
# No control groups: the machine's are those of its own engines. An emulated machine (testbed/guest) has some of version 2 for libvirt.
IS_GUEST = "TRIMTAB_TESTBED" in os.environ
QEMU = f"""\
security_driver = "none"
user = "root"
group = "root"
cgroup_controllers = [{'"cpuset"' if IS_GUEST else ""}]
stdio_handler = "file"
namespaces = []
"""

DOMAIN = """\
<domain type='qemu'>
  <name>{name}</name>
  <memory unit='MiB'>32</memory>
  {more}
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <devices>
    <emulator>{qemu}</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
</domain>
"""


class Unavailable(Exception):
    """Such a host cannot be made here."""


class Host:
    """The view, and libvirt in it. `on` runs commands there."""

    def __init__(self, programs):
        self.folder = Path(tempfile.mkdtemp(prefix="ttvirt", dir="/tmp"))
        self.programs = programs
        self.view = self.daemon = None
        self.started = []

    def start(self):
        if IS_GUEST:
            Path("/sys/fs/cgroup/cgroup.subtree_control").write_text("+cpuset")
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", VIEW, str(self.folder)]
        self.view = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.view.stdout.readline() != "ready\n":
            raise Unavailable(f"a view of the file system cannot be made here: {self.view.stderr.read().strip()}")
        self.write("/etc/libvirt/libvirtd.conf", LIBVIRTD)
        self.write("/etc/libvirt/qemu.conf", QEMU)
        # libvirt wants this user before it reads as which user guests run. Only its package for hosts makes it.
        for file, line in (("/etc/passwd", "libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin"), ("/etc/group", "libvirt-qemu:x:64055:")):
            known = self.read(file)
            if "libvirt-qemu:" not in known:
                self.write(file, f"{known}{line}\n")

    def command(self, *command):
        # Its root too: that of an emulated machine is not the root of its file systems.
        view = f"/proc/{self.view.pid}"
        return ["nsenter", f"--mount={view}/ns/mnt", f"--root={view}/root", *map(str, command)]

    def environment(self):
        kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        # The machine is discovered as elsewhere, and kept in the view.
        return kept | {
            "PATH": f"{self.programs}:{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin",
            "XDG_CACHE_HOME": "/run/cache",
            "XDG_CONFIG_HOME": "/run/config",
        }

    def on(self, *command, check=True, timeout=120, **more):
        """Runs a command in the view, and returns its result."""
        result = subprocess.run(
            self.command(*command), env=self.environment(), text=True, capture_output=True, timeout=timeout, cwd="/", check=False, **more
        )
        if check and result.returncode:
            raise AssertionError(f"{command}: status {result.returncode}\n{result.stdout}{result.stderr}{self.log()}")
        return result

    def background(self, *command, **more):
        """Starts a command in the view; it is ended with the view at the latest."""
        child = subprocess.Popen(self.command(*command), env=self.environment(), text=True, cwd="/", **more)
        self.started.append(child)
        return child

    def write(self, path, text, mode=0o644):
        self.on("sh", "-c", 'mkdir -p "$(dirname "$1")"; cat >"$1"; chmod "$2" "$1"', "sh", path, f"{mode:o}", input=text)

    def read(self, path):
        return self.on("cat", path).stdout

    def trimtab(self, *words, **more):
        return self.on(self.programs / "trimtab", *words, **more)

    def rules(self, text):
        """Writes hook.toml."""
        self.write("/etc/trimtab/hook.toml", text)

    def holds(self):
        """The holds of guests by their names: CPUs, and the process for which they are."""
        holds = json.loads(self.trimtab("ps", "--json").stdout)["holds"]
        return {hold["command"]: (cpus_of(hold["cpus"]), hold["pid"]) for hold in holds}

    # libvirt

    def start_libvirtd(self):
        with open(self.folder.with_suffix(".log"), "a") as log:
            self.daemon = self.background("libvirtd", stdout=log, stderr=log)
        for _ in range(600):
            if self.daemon.poll() is not None:
                break
            if self.virsh("version", check=False).returncode == 0:
                return
            time.sleep(0.1)
        raise AssertionError(f"libvirtd does not answer\n{self.log()}")

    def daemon_pid(self):
        """libvirtd itself: nsenter has become it."""
        return self.daemon.pid

    def log(self):
        try:
            return "--- libvirtd\n" + "\n".join(self.folder.with_suffix(".log").read_text(errors="replace").splitlines()[-20:]) + "\n"
        except OSError:
            return ""

    def virsh(self, *words, **more):
        return self.on("virsh", "-q", "-c", "qemu:///system", *words, **more)

    def define(self, name, vcpus=1, more=""):
        if "<vcpu " not in more:
            more = f"<vcpu>{vcpus}</vcpu>{more}"
        text = DOMAIN.format(name=escape(name), more=more, qemu=shutil.which("qemu-system-x86_64"))
        self.write("/run/domain.xml", text)
        self.virsh("define", "/run/domain.xml")

    def begin(self, name, **more):
        """Starts a guest of libvirt, paused: a guest that computes nothing."""
        return self.virsh("start", "--paused", "--domain", name, **more)

    def qemu(self, name):
        """The process of a guest of libvirt."""
        # libvirt escapes names of these files.
        return int(self.read(f"/run/libvirt/qemu/{escape(name, {chr(39): '&apos;', chr(34): '&quot;'})}.pid"))

    def clear(self):
        """Ends all guests of libvirt, and forgets them."""
        for name in self.virsh("list", "--name").stdout.splitlines():
            # It may be about to end.
            self.virsh("destroy", "--domain", name, check=False)
        for name in self.virsh("list", "--all", "--name").stdout.splitlines():
            self.virsh("undefine", "--domain", name)
        self.on("rm", "-f", "/etc/trimtab/hook.toml")

    # QEMU without libvirt

    def machine(self, name, pid_file, vcpus=1):
        """Starts a paused guest as Proxmox VE and Incus do, and returns its process."""
        child = self.background(
            "qemu-system-x86_64", "-name", f"{name},debug-threads=on", "-nodefaults", "-display", "none", "-m", "32", "-S",
            "-smp", str(vcpus), "-accel", "tcg,thread=multi", "-pidfile", pid_file,
        )
        eventually(lambda: self.on("test", "-s", pid_file, check=False).returncode == 0, "QEMU starts")
        eventually(lambda: len(vcpu_masks(child.pid)) == vcpus, "QEMU has its vCPUs")
        return child

    def stop(self):
        """Ends all that was started here."""
        if self.daemon and self.daemon.poll() is None:
            for name in self.virsh("list", "--name", check=False).stdout.splitlines():
                self.virsh("destroy", "--domain", name, check=False)
        for child in self.started:
            if child.poll() is None:
                child.terminate()
        for child in self.started:
            try:
                child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if self.view:
            self.view.stdin.close()
            self.view.wait(timeout=20)
            self.view.stdout.close()
            self.view.stderr.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.with_suffix(".log").unlink(missing_ok=True)


def cpus_of(text):
    """The CPUs of a list such as 0-3,8."""
    parts = [part.split("-") for part in text.strip().split(",") if part.strip()]
    return {cpu for part in parts for cpu in range(int(part[0]), int(part[-1]) + 1)}


def threads(pid):
    """The threads of a process: name and mask of each."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        try:
            status = (task / "status").read_text()
        except OSError:
            continue
        name = re.search(r"^Name:\t(.*)$", status, re.M)[1]
        found.append((name, cpus_of(re.search(r"^Cpus_allowed_list:\t(.*)$", status, re.M)[1])))
    return found


def vcpu_masks(pid):
    """The masks of a machine's vCPUs, by number."""
    named = [(re.fullmatch(r"CPU (\d+)/\w+", name), mask) for name, mask in threads(pid)]
    return {int(found[1]): mask for found, mask in named if found}


def eventually(holds, what, seconds=60):
    """Waits until something is true."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"it takes too long until {what}")
        time.sleep(0.05)


def kill(pid):
    os.kill(pid, signal.SIGKILL)
