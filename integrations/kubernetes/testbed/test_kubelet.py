"""The plug-in below a kubelet, with static pods."""

import json
import time
import unittest

from bed import KUBELET_ROOT, Bed, cpus, static_pod, until

CORES = "trimtab.io/cores"


class Case(unittest.TestCase):
    POLICY = "none"
    CONFIG = ""
    # Whether the plug-in is a process of the bed.
    PLUGIN = True

    @classmethod
    def setUpClass(cls):
        if KUBELET_ROOT.exists():
            raise AssertionError(f"{KUBELET_ROOT} exists: this machine has a kubelet of its own, or a bed was killed")
        cls.bed = Bed()
        cls.addClassCleanup(cls.bed.stop)
        cls.bed.start(cls.CONFIG, plugin=cls.PLUGIN)
        cls.bed.kubelet(cls.POLICY)

    def setUp(self):
        self.addCleanup(self.clean)

    def clean(self):
        for path in (self.bed.folder / "pods").glob("*.json"):
            path.unlink()
        until(90, lambda: self.bed.tail("kubelet") + str(self.bed.holds()), lambda: not self.bed.running() and not self.bed.holds())

    def pod(self, name, annotations=None, resources=None):
        """Writes a static pod."""
        static_pod(self.bed.folder, name, annotations, resources)

    def host_run(self, *words):
        run = self.bed.host_run(*words)

        def end():
            run.kill()
            run.communicate()

        self.addCleanup(end)
        return run

    def end(self, name):
        (self.bed.folder / "pods" / f"{name}.json").unlink()

    def container(self, name):
        """The running container of a pod; `None` if there is none."""
        found = [one["id"] for one in self.bed.running().values() if one["labels"]["io.kubernetes.pod.name"].startswith(name)]
        return found[0] if found else None

    def started(self, name):
        """Waits for the container of a pod, and returns the CPUs of its group."""
        until(90, lambda: f"{name}\n" + self.bed.tail("kubelet", 30), lambda: self.container(name))
        return self.bed.cpuset(self.container(name))


class StaticPods(Case):
    CONFIG = "shared = true\n"

    def test_pods_get_cores_and_a_refused_one_waits_until_there_are_some(self):
        self.pod("own", {CORES: "1"})
        own = self.started("own")
        self.assertEqual(len(own), 1)
        self.pod("shared")
        self.assertEqual(self.started("shared"), {0, 1} - own)
        self.pod("more", {CORES: "1"})
        until(60, lambda: self.bed.tail("kubelet", 30), lambda: "trimtab: pod default/more-bed/main" in self.bed.log("kubelet"))
        self.assertIsNone(self.container("more"))
        self.end("own")
        self.assertEqual(len(self.started("more")), 1)

    def test_the_kubelet_and_the_plug_in_may_be_killed(self):
        self.pod("own", {CORES: "1"})
        own = self.started("own")
        for name in ("kubelet", "plugin", "containerd"):
            before = self.bed.log("plugin").count("synchronized:")
            self.bed.kill(name)
            self.assertEqual([cpus(hold["cpus"]) for hold in self.bed.holds()], [own])
            if name == "kubelet":
                self.bed.kubelet(self.POLICY)
            elif name == "plugin":
                self.bed.plugin(self.CONFIG)
            else:
                self.bed.containerd()
                self.bed.synchronized(before)
            self.assertEqual([cpus(hold["cpus"]) for hold in self.bed.holds()], [own])
        time.sleep(3)
        self.assertEqual(self.started("own"), own)


class StaticPolicy(Case):
    """The kubelet's own CPU manager grants cores exclusively."""

    POLICY = "static"
    CONFIG = "shared = true\n"
    WHOLE = {"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "1", "memory": "64Mi"}}

    def test_cores_that_the_kubelet_granted_count_as_held(self):
        self.pod("granted", resources=self.WHOLE)
        # CPU 0 is reserved for the system. The kubelet may confine the container only when it looks again.
        until(30, lambda: self.bed.tail("kubelet", 30) + self.bed.tail("plugin"), lambda: self.started("granted") == {1})
        shown = json.loads(self.bed.trimtab("ps", "--json").stdout)["granted"]
        self.assertEqual([(grant["manager"], cpus(grant["cpus"])) for grant in shown], [("kubelet", {1})])
        run = self.host_run("-c", "1")
        held = [cpus(hold["cpus"]) for hold in self.bed.holds()]
        refused = self.bed.trimtab("run", "-c", "1", "true", check=False)
        run.kill()
        run.wait()
        self.assertEqual(held, [{0}])
        self.assertEqual(refused.returncode, 124)
        self.assertIn("held by others", refused.stderr)
        # A pod that wants cores by trimtab keeps off them too, and leaves the shared pool.
        self.pod("own", {CORES: "1"})
        until(60, lambda: self.bed.tail("kubelet", 30), lambda: "trimtab: pod default/own-bed/main" in self.bed.log("kubelet"))
        self.end("own")
        self.end("granted")
        until(60, "the grant ends", lambda: not json.loads(self.bed.trimtab("ps", "--json").stdout)["granted"])

    def test_a_pod_whose_granted_cores_are_held_waits(self):
        run = self.host_run("-c", "1", "--cpus", "1")
        self.pod("guaranteed", resources=self.WHOLE)
        until(60, lambda: self.bed.tail("kubelet", 30), lambda: "the kubelet granted it CPUs 1 exclusively" in self.bed.log("kubelet"))
        self.assertIsNone(self.container("guaranteed"))
        run.kill()
        run.wait()
        self.assertEqual(self.started("guaranteed"), {1})


if __name__ == "__main__":
    unittest.main()
