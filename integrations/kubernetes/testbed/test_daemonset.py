"""The DaemonSet: its objects as the API server checks them, and the plug-in in an image of its own below a kubelet."""

import json
import platform
import re
import socket
import tempfile
import unittest
from pathlib import Path

from bed import PARTS, PROGRAMS, TOP, cpus, run, until, write_pod
from test_kubelet import CORES, Case

FILE = TOP / "integrations/kubernetes/daemonset.yaml"
NAME = "trimtab-nri"


def objects(file=FILE):
    """The objects of a file by their kinds, each as the API server would take it."""
    found = map(json.loads, run(PARTS / "manifest", file).stdout.splitlines())
    return {one["kind"]: one for one in found}


class Objects(unittest.TestCase):
    def changed(self, before, after):
        """What the check says of a file in which a text was replaced."""
        text = FILE.read_text()
        self.assertIn(before, text)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "changed.yaml"
            file.write_text(text.replace(before, after))
            result = run(PARTS / "manifest", file, check=False)
        self.assertEqual(result.returncode, 1, result.stdout)
        return result.stderr

    def test_the_api_server_would_take_them(self):
        self.assertEqual(set(objects()), {"Namespace", "ConfigMap", "DaemonSet"})

    def test_the_check_finds_faults(self):
        self.assertIn('unknown field "spec.template.spec.hostPid"', self.changed("hostPID:", "hostPid:"))
        self.assertIn("spec.template.metadata.labels", self.changed("labels: {app: trimtab-nri}", "labels: {app: other}"))
        self.assertIn("maxUnavailable", self.changed("maxUnavailable: 1", "maxUnavailable: 0"))
        self.assertIn("volumeMounts", self.changed("- name: ledger\n", "- name: records\n"))

    def test_its_configuration_can_be_used(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in objects()["ConfigMap"]["data"].items():
                (Path(folder) / name).write_text(text)
            said = run(PROGRAMS / "trimtab", "nri", "--check", env={"TRIMTAB_CONFIG": folder, "PATH": "/usr/bin:/bin"})
        self.assertIn("a pod's annotation trimtab.io/cores counts", said.stdout)


class InItsImage(Case):
    """The pod of the DaemonSet as a static pod. Only the places of the node's files are the bed's, and the network is the node's."""

    PLUGIN = False

    @classmethod
    def setUpClass(cls):
        cls.check_parts()
        super().setUpClass()
        cls.image()

    @classmethod
    def check_parts(cls):
        pass

    @classmethod
    def image(cls):
        """Makes the image of the programs under test. Only those of a release are static: the others bring their libraries."""
        files = {}
        for name in ("trimtab", "trimtab-lab", "trimtab-discover"):
            stripped = cls.bed.folder / name
            run("strip", "-o", stripped, PROGRAMS / name)
            files[f"/usr/bin/{name}"] = stripped
            needed = run("ldd", stripped, check=False).stdout
            files.update((path, path) for path in re.findall(r"(/\S+) \(0x", needed))
        archive = cls.bed.folder / "trimtab.tar"
        words = [f"{source}={inside}" for inside, source in files.items()]
        run("python3", TOP / "integrations/kubernetes/testbed/image.py", archive, "docker.io/local/trimtab:1", "--entry", "/usr/bin/trimtab", *words)
        cls.bed.ctr("images", "import", archive)

    def begin(self):
        """Starts the plug-in's pod, and waits until the runtime has registered it once more."""
        made = objects()
        template = made["DaemonSet"]["spec"]["template"]
        spec = template["spec"]
        # Pods have no network of their own here.
        spec["hostNetwork"] = True
        for name, text in made["ConfigMap"]["data"].items():
            (self.bed.folder / "config" / name).write_text(text)
        own = {"socket": "nri", "ledger": "ledger", "config": "config"}
        for volume in spec["volumes"]:
            if volume["name"] in own:
                # Static pods may not name a ConfigMap.
                volume.pop("configMap", None)
                volume["hostPath"] = {"path": str(self.bed.folder / own[volume["name"]]), "type": "Directory"}
        write_pod(self.bed.folder, NAME, template["metadata"] | {"name": NAME, "namespace": "trimtab"}, spec)
        until(60, self.said, lambda: "\ntrimtab_nri_connections_total 1\n" in self.figures())

    def said(self):
        logs = sorted((self.bed.folder / "logs").rglob("*.log"))
        lines = [line for log in logs if NAME in str(log) for line in log.read_text(errors="replace").splitlines()]
        return "\n".join(lines[-20:]) + "\n" + self.bed.tail("kubelet", 20)

    def figures(self):
        """What the plug-in offers to Prometheus, at the address that the DaemonSet names."""
        with socket.socket(socket.AF_UNIX) as link:
            try:
                link.connect(str(self.bed.folder / "ledger/nri-metrics.sock"))
                link.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                return b"".join(iter(lambda: link.recv(65536), b"")).decode()
            except OSError:
                return ""

    def held(self):
        return [cpus(hold["cpus"]) for hold in self.bed.holds()]

    def test_pods_get_cores_by_it_and_its_next_container_takes_them_over(self):
        self.begin()
        self.pod("own", {CORES: "1"})
        own = self.started("own")
        self.assertEqual(len(own), 1)
        self.assertEqual(self.bed.mask(self.container("own")), own)
        until(10, self.said, lambda: [hold["pid"] for hold in self.bed.holds()] == self.bed.processes_of(self.container("own")))
        self.assertEqual([hold["command"] for hold in self.bed.holds()], ["pod default/own-bed/main"])
        self.assertEqual(self.held(), [own])
        self.assertIn("\ntrimtab_nri_containers_with_cores 1\n", self.figures())
        # Runs on the host and pods exclude each other: one ledger.
        refused = self.bed.trimtab("run", "-c", "2", "true", check=False)
        self.assertEqual(refused.returncode, 124, refused.stderr)
        beside = self.host_run("-c", "1")
        self.pod("more", {CORES: "1"})
        until(60, self.said, lambda: "trimtab: pod default/more-bed/main" in self.bed.log("kubelet"))
        self.assertIsNone(self.container("more"))
        beside.kill()
        beside.wait()
        self.assertEqual(self.started("more"), {0, 1} - own)
        self.end("more")
        until(60, self.said, lambda: not self.container("more"))
        # Keepers end with the plug-in's container. The next one makes the hold again.
        self.end(NAME)
        until(60, self.said, lambda: not self.container(NAME) and not self.bed.holds())
        self.begin()
        until(20, self.said, lambda: self.held() == [own])
        self.assertEqual(self.bed.cpuset(self.container("own")), own)


class OfARelease(InItsImage):
    """The same with the image that scripts/image makes of a release archive."""

    @classmethod
    def check_parts(cls):
        found = sorted((TOP / "dist").glob(f"trimtab-*-{platform.machine()}-linux.tar.gz"))
        if not found:
            raise unittest.SkipTest("no release archive in dist/: make dist")
        cls.archive = found[-1]

    @classmethod
    def image(cls):
        run(TOP / "scripts/image", "--to", cls.bed.folder, cls.archive)
        (archive,) = cls.bed.folder.glob("*.oci.tar")
        # As docs/kubernetes.md says.
        imported = cls.bed.ctr("images", "import", archive).stdout
        name = re.search(r"\S+/trimtab:\S+", imported).group()
        cls.bed.ctr("images", "tag", name, "docker.io/local/trimtab:1")


if __name__ == "__main__":
    unittest.main()
