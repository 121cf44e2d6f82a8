"""Plans in the words of container engines, carried out by these: podman, docker and Compose. `make test-containers` runs it.

The containers have a root that is made here, without a registry or a network. What they may use is read inside of them. Engines, images
and holds are the test's own: no daemon of the system is used or changed.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target")).resolve() / "debug"
PATHS = os.environ["PATH"] + ":/usr/sbin:/sbin"
BED = None

PODMAN = """\
[storage]
driver = "vfs"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""
# The machine's systemd, if there is one, has no part in it. Limits: without CAP_SYS_RESOURCE, as in many containers, the usual ones are
# refused. runc: crun 1.8 refuses machines whose control groups are of both versions, if one controller is of version 2.
CONTAINERS = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""
PROBE = """\
#define _GNU_SOURCE
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
/* Binds memory, or with an argument counts its own CPU time. */
int main(int count, char **words) {
    unsigned long nodes = 1;
    struct perf_event_attr clock = {.type = PERF_TYPE_SOFTWARE, .size = sizeof clock, .config = PERF_COUNT_SW_TASK_CLOCK};
    (void)words;
    if (count > 1)
        puts(syscall(SYS_perf_event_open, &clock, 0, -1, -1, 0ul) < 0 ? strerror(errno) : "open");
    else /* 2: bind */
        puts(syscall(SYS_set_mempolicy, 2, &nodes, 64ul) ? strerror(errno) : "set");
}
"""


def eventually(look, what, seconds=60):
    """Returns what `look` returns as soon as that is true."""
    end = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > end:
            raise AssertionError(f"not in {seconds} s: {what()}")
        time.sleep(0.05)
    return found


class Bed:
    """The files of the test, and what it starts."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="ttbox", dir="/tmp"))
        for name in ("storage", "run", "ledger", "cache", "config"):
            (self.folder / name).mkdir()
        (self.folder / "ledger").chmod(0o1777)
        (self.folder / "storage.conf").write_text(PODMAN.format(folder=self.folder))
        (self.folder / "containers.conf").write_text(CONTAINERS)
        self.root = self.folder / "root"
        self.daemon = None
        self.environment = {
            "PATH": f"{PROGRAMS}:{PATHS}",
            "HOME": str(self.folder),
            "TRIMTAB_LEDGER": str(self.folder / "ledger"),
            "TRIMTAB_CONFIG": str(self.folder / "config"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "DOCKER_HOST": f"unix://{self.folder}/docker.sock",
        }

    def make_root(self):
        """The file system of the containers: a shell, a probe, and trimtab with the libraries that an unoptimised build needs."""
        for name in ("bin", "proc", "sys", "dev", "etc", "tmp", "run/trimtab", "cache"):
            (self.root / name).mkdir(parents=True)
        shutil.copy(shutil.which("busybox"), self.root / "bin/busybox")
        for name in ("sh", "cat", "sleep", "true"):
            (self.root / "bin" / name).symlink_to("busybox")
        (self.folder / "probe.c").write_text(PROBE)
        self.run("cc", "-static", "-o", self.root / "bin/probe", self.folder / "probe.c")
        for name in ("trimtab", "trimtab-discover"):
            self.run("strip", "-o", self.root / "bin" / name, PROGRAMS / name)
            for path in re.findall(r"(/\S+) \(0x", self.run("ldd", PROGRAMS / name, check=False).stdout):
                (self.root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, self.root / path[1:])

    def run(self, *words, check=True, shell=False):
        words = words[0] if shell else [str(word) for word in words]
        result = subprocess.run(words, shell=shell, env=self.environment, text=True, capture_output=True, timeout=120, check=False)
        if check and result.returncode:
            raise AssertionError(f"{words}: status {result.returncode}\n{result.stdout}{result.stderr}")
        return result

    def spawn(self, words):
        return subprocess.Popen(words, shell=True, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def plan(self, *options):
        return self.run("trimtab", "plan", "--survey", "none", *options).stdout.strip()

    def holds(self):
        return json.loads(self.run("trimtab", "ps", "--json").stdout)["holds"]

    def start_docker(self):
        """Starts docker's daemon, once for all tests, and gives it an image of the root."""
        if self.daemon:
            return
        with open(self.folder / "dockerd.log", "wb") as log:
            own = ["--host", f"unix://{self.folder}/docker.sock", "--data-root", f"{self.folder}/docker", "--exec-root", f"{self.folder}/exec"]
            more = ["--pidfile", f"{self.folder}/dockerd.pid", "--storage-driver", "vfs", "--bridge", "none", "--iptables=false"]
            cgroups = ["--exec-opt", "native.cgroupdriver=cgroupfs", "--config-file", f"{self.folder}/daemon.json"]
            (self.folder / "daemon.json").write_text("{}")
            self.daemon = subprocess.Popen(["dockerd", *own, *more, *cgroups], env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def tell():
            return (self.folder / "dockerd.log").read_text(errors="replace")[-3000:]

        def is_up():
            if self.daemon.poll() is not None:
                raise AssertionError("docker's daemon ended\n" + tell())
            return self.run("docker", "version", check=False).returncode == 0

        eventually(is_up, tell)
        self.run(f"tar -C {self.root} -c . | docker import - box:1", shell=True)

    def stop(self):
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait(timeout=60)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((mount for mount in mounts if mount.startswith(str(self.folder))), reverse=True):
            self.run("umount", "-l", mount, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def setUpModule():
    global BED
    if os.geteuid() != 0:
        raise unittest.SkipTest("containers with CPUs of their own need root")
    if not {0, 1} <= os.sched_getaffinity(0):
        raise unittest.SkipTest("the tests need CPUs 0 and 1")
    BED = Bed()
    unittest.addModuleCleanup(BED.stop)
    BED.make_root()


def need(*programs):
    for program in programs:
        if not shutil.which(program, path=PATHS):
            raise unittest.SkipTest(f"{program} is not installed: scripts/packages containers")


class Engine:
    """Tests of an engine whose containers are started by a command. PROGRAM is its name, and that of its format."""

    PROGRAM = ""
    # What set_mempolicy(2) says in a container without further capabilities.
    POLICY = "Operation not permitted"

    def image(self):
        """The words between the options and the command inside."""
        raise NotImplementedError

    def command(self, line, words):
        return f"{line} --rm --network=none {self.image()} {words}"

    def inside(self, line, words, check=True):
        """Runs a command in a container."""
        return BED.run(self.command(line, words), shell=True, check=check)

    def may_use(self, line):
        """The CPUs and the memory nodes that a container may use, by the kernel's word inside."""
        status = self.inside(line, "cat /proc/self/status").stdout
        return [re.search(rf"^{name}_allowed_list:\t(.*)$", status, re.M).group(1) for name in ("Cpus", "Mems")]

    def nodes(self):
        return re.search(r"^Mems_allowed_list:\t(.*)$", Path("/proc/self/status").read_text(), re.M).group(1)

    def test_a_container_has_the_cpus_of_the_plan(self):
        for cpus in ("0", "1", "0-1"):
            line = BED.plan("--cpus", cpus, "--format", self.PROGRAM)
            self.assertTrue(line.startswith(f"{self.PROGRAM} run "), line)
            self.assertEqual(self.may_use(line), [cpus, self.nodes()], line)

    def test_a_container_has_the_nodes_of_the_plan(self):
        # A machine of which this one has the first half.
        line = BED.plan("--machine", "numa:2 core:2", "-c", "2", "--mem", "bind", "--format", self.PROGRAM)
        self.assertIn("--cpuset-mems=0", line)
        self.assertEqual(self.may_use(line), ["0-1", "0"])

    def test_a_plan_for_another_machine_is_refused(self):
        line = BED.plan("--machine", "numa:2 core:1024", "--cpus", "2000", "--mem", "bind", "--format", self.PROGRAM)
        refused = self.inside(line, "true", check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("2000", refused.stderr)

    def test_containers_with_one_ledger_see_each_others_holds(self):
        shared = f"{self.PROGRAM} run -v {BED.folder}/ledger:/run/trimtab -v {BED.folder}/cache:/cache -e XDG_CACHE_HOME=/cache"
        run = "trimtab run -q --survey none"
        first = BED.spawn(self.command(f"{shared} --name first", f"{run} -c 1 sleep 1000"))
        try:
            (hold,) = eventually(BED.holds, lambda: self.inside(shared, f"{run} -c 1 true", check=False))
            self.assertEqual(hold["command"], "sleep 1000")
            refused = self.inside(shared, f"{run} -c 2 true", check=False)
            self.assertEqual(refused.returncode, 124, refused.stderr)
            self.assertIn(f"CPUs {hold['cpus']} are held by others", refused.stderr)
            refused = BED.run("trimtab", "run", "--survey", "none", "-c", "2", "true", check=False)
            self.assertEqual(refused.returncode, 124, refused.stderr)
            other = self.inside(shared, f"{run} -c 1 cat /proc/self/status").stdout
            self.assertNotIn(f"Cpus_allowed_list:\t{hold['cpus']}\n", other)
        finally:
            BED.run(self.PROGRAM, "rm", "--force", "first", check=False)
            first.wait(timeout=60)
        # The hold ends with the container.
        self.assertEqual(BED.holds(), [])

    def test_a_quota_gives_the_number_of_threads(self):
        shared = f"{self.PROGRAM} run -v {BED.folder}/cache:/cache -e XDG_CACHE_HOME=/cache"
        count = shlex.quote("echo $OMP_NUM_THREADS")
        # With a quota that is enough, runtimes count the mask themselves.
        for quota, threads in (("1", "1"), ("2", "")):
            said = self.inside(f"{shared} --cpus {quota}", f"trimtab run -q --survey none -c 2 sh -c {count}").stdout
            self.assertEqual(said.strip(), threads)

    def test_memory_policies_can_be_permitted(self):
        self.assertEqual(self.inside(f"{self.PROGRAM} run", "probe").stdout.strip(), self.POLICY)
        self.assertEqual(self.inside(f"{self.PROGRAM} run --cap-add SYS_NICE", "probe").stdout.strip(), "set")

    def test_hardware_counters_need_a_capability(self):
        self.assertEqual(self.inside(f"{self.PROGRAM} run", "probe count").stdout.strip(), "Operation not permitted")
        self.assertEqual(self.inside(f"{self.PROGRAM} run --cap-add SYS_ADMIN", "probe count").stdout.strip(), "open")


class Podman(Engine, unittest.TestCase):
    PROGRAM = "podman"
    POLICY = "set"

    @classmethod
    def setUpClass(cls):
        need("podman", "runc")

    def image(self):
        return f"--rootfs {BED.root}"


class Docker(Engine, unittest.TestCase):
    PROGRAM = "docker"

    @classmethod
    def setUpClass(cls):
        need("docker", "dockerd", "containerd", "runc")
        BED.start_docker()

    def image(self):
        return "box:1"


class Compose(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        need("docker-compose", "docker", "dockerd", "containerd", "runc")
        BED.start_docker()

    def test_a_service_has_the_cpus_of_the_plan(self):
        service = {"image": "box:1", "network_mode": "none", "command": ["cat", "/proc/self/status"]}
        (BED.folder / "more.yml").write_text(json.dumps({"services": {"app": service}}))
        for cpus in ("0", "1", "0-1"):
            (BED.folder / "plan.yml").write_text(BED.plan("--cpus", cpus, "--format", "compose") + "\n")
            files = ["-p", "plan", "-f", BED.folder / "plan.yml", "-f", BED.folder / "more.yml"]
            self.assertRegex(BED.run("docker-compose", *files, "config").stdout, rf"cpuset: '?\"?{cpus}\b")
            said = BED.run("docker-compose", *files, "run", "-T", "--rm", "app").stdout
            self.assertIn(f"Cpus_allowed_list:\t{cpus}\n", said)

    def test_a_wrong_key_is_refused(self):
        (BED.folder / "wrong.yml").write_text(BED.plan("--cpus", "0", "--format", "compose").replace("cpuset:", "cpusets:") + "\n    image: box:1\n")
        refused = BED.run("docker-compose", "-f", BED.folder / "wrong.yml", "config", check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("cpusets", refused.stderr)


if __name__ == "__main__":
    unittest.main()
