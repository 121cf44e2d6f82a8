"""The plug-in with containerd alone: pods by the Container Runtime Interface, no kubelet."""

import re
import signal
import time
import unittest
import urllib.request
from pathlib import Path

from bed import IS_SECOND, Bed, cpus, until

CORES = "trimtab.io/cores"
SETTINGS = "trimtab.io/settings"
NODES = cpus(Path("/sys/devices/system/node/has_memory").read_text())


class Case(unittest.TestCase):
    """A bed for each class, and no pod left between tests."""

    CONFIG = ""
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        cls.bed = Bed()
        cls.addClassCleanup(cls.bed.stop)
        cls.bed.start(cls.CONFIG, *cls.OPTIONS)

    def setUp(self):
        self.pods, self.runs = [], []
        self.addCleanup(self.clean)

    def clean(self):
        for run in self.runs:
            run.kill()
            run.wait()
            run.stdout.close()
            run.stderr.close()
        for pod in self.pods:
            self.bed.remove(pod, check=False)
        until(20, lambda: f"holds left: {self.bed.holds()}\n{self.bed.tail('plugin')}", lambda: not self.bed.holds())

    def pod(self, name, cores=None, **more):
        annotations = more.pop("annotations", {}) | ({CORES: cores} if cores else {})
        pod = self.bed.pod(name, annotations, **more)
        self.pods.append(pod)
        return pod

    def refused(self, name, cores=None, **more):
        annotations = more.pop("annotations", {}) | ({CORES: cores} if cores else {})
        result = self.bed.pod(name, annotations, check=False, **more)
        if isinstance(result, dict):
            self.pods.append(result)
            self.fail(f"{name} was not refused\n{self.bed.tail('plugin')}")
        return result.stderr

    def cpuset(self, pod):
        return self.bed.cpuset(pod["containers"][0])

    def host_run(self, *words):
        run = self.bed.host_run(*words)
        self.runs.append(run)
        return run


class Exclusive(Case):
    """Containers without annotation are left alone."""

    OPTIONS = ("--metrics", "127.0.0.1:19756")

    def test_pods_get_cores_of_their_own_and_the_third_is_refused(self):
        one, two = self.pod("one", "1"), self.pod("two", "1")
        sets = [self.cpuset(one), self.cpuset(two)]
        self.assertEqual(sorted(map(len, sets)), [1, 1])
        self.assertEqual(sets[0] | sets[1], {0, 1})
        for pod, own in zip((one, two), sets):
            self.assertEqual(self.bed.mask(pod["containers"][0]), own)
        holds = {hold["command"]: hold for hold in self.bed.holds()}
        self.assertEqual(set(holds), {"pod default/one/main", "pod default/two/main"})
        until(5, "the holds are those of the containers' processes", lambda: {hold["pid"] for hold in self.bed.holds()} ==
              {self.bed.processes_of(pod["containers"][0])[0] for pod in (one, two)})
        said = self.refused("three", "1")
        self.assertIn("trimtab: pod default/three/main:", said)
        self.assertIn("held by", said)
        self.assertNotIn("--wait", said)
        # The hold ends with the container.
        self.bed.remove(two)
        three = self.pod("three", "1")
        self.assertEqual(self.cpuset(three), sets[1])

    def test_containers_of_a_pod_have_cores_each_and_by_name(self):
        pod = self.pod("both", annotations={f"{CORES}.left": "1"}, containers=[{"name": "left"}, {"name": "right"}])
        left, right = (self.bed.cpuset(container) for container in pod["containers"])
        self.assertEqual((len(left), right - {0, 1}), (1, set()))
        self.assertNotEqual(len(right), 1, "nothing was asked for it")

    def test_runs_on_the_host_and_pods_exclude_each_other(self):
        pod = self.pod("one", "1")
        self.host_run("-c", "1")
        hosts = [hold for hold in self.bed.holds() if hold["pid"] == self.runs[0].pid]
        self.assertEqual(cpus(hosts[0]["cpus"]) | self.cpuset(pod), {0, 1})
        said = self.refused("two", "1")
        self.assertIn("held by", said)
        refused = self.bed.trimtab("run", "-c", "1", "true", check=False)
        self.assertEqual(refused.returncode, 124, refused.stderr)
        self.bed.remove(pod)
        until(10, "the run gets the pod's core", lambda: self.bed.trimtab("run", "-c", "1", "true", check=False).returncode == 0)

    def test_variables_are_those_that_are_needed(self):
        pod = self.pod("one", "1", containers=[{"env": {"OPENBLAS_NUM_THREADS": "9", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}}])
        variables = self.bed.variables(pod["containers"][0])
        self.assertEqual(variables["OPENBLAS_NUM_THREADS"], "1", "fitted to the cores")
        self.assertTrue(variables["TRIMTAB_HOLD"].startswith("0 -1 "))

    def test_bad_annotations_are_refused_by_name(self):
        for annotations, word in [
            ({CORES: "many"}, "many"),
            ({CORES: "9"}, "9 cores"),
            ({"trimtab.io/core": "1"}, "unknown"),
            ({CORES: "1", SETTINGS: "memory=gold"}, "gold"),
        ]:
            said = self.refused("bad", annotations=annotations)
            self.assertIn("trimtab: pod default/bad/main", said)
            self.assertIn(word, said)
        self.assertEqual(self.bed.holds(), [])

    def test_holds_outlast_the_plug_in_and_end_with_their_containers(self):
        stays, goes = self.pod("stays", "1"), self.pod("goes", "1")
        before = self.cpuset(stays)
        self.bed.kill("plugin")
        self.assertEqual(len(self.bed.holds()), 2)
        self.bed.remove(goes)
        # The keeper needs no plug-in to notice the end.
        until(10, "the hold of the pod that ended", lambda: len(self.bed.holds()) == 1)
        self.bed.plugin(self.CONFIG, *self.OPTIONS)
        self.assertEqual(self.cpuset(stays), before)
        self.assertEqual([cpus(hold["cpus"]) for hold in self.bed.holds()], [before])
        self.assertEqual(len(self.cpuset(self.pod("next", "1"))), 1)

    def test_a_pod_that_was_started_without_the_plug_in_gets_its_cores_later(self):
        self.bed.kill("plugin")
        pod = self.pod("early", "1")
        self.assertEqual(self.bed.holds(), [])
        self.bed.plugin(self.CONFIG, *self.OPTIONS)
        until(10, lambda: self.bed.tail("plugin"), lambda: len(self.cpuset(pod)) == 1)
        self.assertEqual([cpus(hold["cpus"]) for hold in self.bed.holds()], [self.cpuset(pod)])

    def test_holds_outlast_containerd(self):
        pod = self.pod("one", "1")
        before, text = self.cpuset(pod), self.bed.log("plugin").count("synchronized:")
        self.bed.kill("containerd")
        self.assertEqual(len(self.bed.holds()), 1)
        self.bed.containerd()
        self.bed.synchronized(text)
        self.assertEqual((self.cpuset(pod), len(self.bed.holds())), (before, 1))

    def test_a_container_that_starts_after_a_restart_gets_no_cores_of_others(self):
        pod = self.pod("late", "1", start=False)
        container = pod["containers"][0]
        self.assertEqual(len(self.bed.holds()), 1)
        before = self.bed.log("plugin").count("synchronized:")
        self.bed.kill("containerd")
        until(10, "its hold ends with containerd", lambda: not self.bed.holds())
        self.bed.containerd()
        self.bed.synchronized(before)
        self.host_run("-c", "2")
        refused = self.bed.cri("start", container, check=False)
        self.assertNotEqual(refused.returncode, 0, "it started on the cores of a run")
        self.assertIn("trimtab: pod default/late/main:", refused.stderr)
        self.runs[0].kill()
        until(10, "the run's hold ends", lambda: not self.bed.holds())
        again = self.pod("again", "1")
        self.assertEqual([cpus(hold["cpus"]) for hold in self.bed.holds()], [self.cpuset(again)])

    def test_a_hold_whose_keeper_was_killed_is_made_again(self):
        pod = self.pod("one", "1")
        container = pod["containers"][0]
        until(5, "handed over", lambda: self.bed.holds()[0]["pid"] == self.bed.processes_of(container)[0])
        for keeper in self.bed.keepers():
            keeper.send_signal(signal.SIGKILL)
        until(15, lambda: self.bed.tail("plugin"), lambda: len(self.bed.holds()) == 1)
        self.assertEqual(cpus(self.bed.holds()[0]["cpus"]), self.cpuset(pod))

    def test_figures_are_offered(self):
        self.pod("one", "1")
        look = lambda: urllib.request.urlopen("http://127.0.0.1:19756/metrics", timeout=5).read().decode()
        until(5, look, lambda: "\ntrimtab_nri_containers_with_cores 1\n" in look())
        self.assertIn("\ntrimtab_nri_held_cpus 1\n", look())


class Shared(Case):
    """Containers without annotation share the CPUs that no hold has."""

    CONFIG = 'shared = true\n[[class]]\nruntime-class = "fast"\ncores = "1"\n[[class]]\nqos = "guaranteed"\ncores = "limit"\n'

    def test_the_pool_shrinks_and_grows_and_is_never_empty(self):
        shared = self.pod("shared")
        self.assertEqual(self.cpuset(shared), {0, 1})
        own = self.pod("own", "1")
        # The change is part of the answer that made the other container.
        self.assertEqual(self.cpuset(shared), {0, 1} - self.cpuset(own))
        self.assertEqual(self.bed.mask(shared["containers"][0]), {0, 1} - self.cpuset(own))
        late = self.pod("late")
        self.assertEqual(self.cpuset(late), self.cpuset(shared))
        said = self.refused("more", "1")
        self.assertIn("shared pool", said)
        self.bed.remove(own)
        until(10, lambda: self.bed.tail("plugin"), lambda: self.cpuset(shared) == self.cpuset(late) == {0, 1})

    def test_the_pool_leaves_cores_of_runs_on_the_host(self):
        shared = self.pod("shared")
        run = self.host_run("-c", "1")
        held = cpus(self.bed.holds()[0]["cpus"])
        until(10, lambda: self.bed.tail("plugin"), lambda: self.cpuset(shared) == {0, 1} - held)
        run.kill()
        until(10, lambda: self.bed.tail("plugin"), lambda: self.cpuset(shared) == {0, 1})
        # All cores are held: the pool overlaps rather than becoming empty.
        self.host_run("-c", "2")
        time.sleep(1.5)
        self.assertEqual(self.cpuset(shared), {0, 1})
        self.assertEqual(len(self.cpuset(self.pod("late"))), 2)

    def test_classes_give_cores_without_annotations(self):
        fast = self.pod("fast", handler="fast")
        self.assertEqual(len(self.cpuset(fast)), 1)
        self.bed.remove(fast)
        until(10, "given back", lambda: not self.bed.holds())
        group = "/trimtabbed/kubepods/pod7"
        whole = self.pod("whole", containers=[{"quota": 100_000}], parent=group)
        self.assertEqual(len(self.cpuset(whole)), 1)
        part = self.pod("part", containers=[{"quota": 50_000}], parent=group)
        self.assertEqual(self.cpuset(part), {0, 1} - self.cpuset(whole))

    def test_none_leaves_a_container_alone(self):
        own, alone = self.pod("own", "1"), self.pod("alone", "none")
        self.assertEqual(self.bed.mask(alone["containers"][0]), {0, 1})
        self.assertEqual(len(self.cpuset(own)), 1)


@unittest.skipIf(len(NODES) < 2, "a machine of one memory node: GUEST=1 has two")
class Memory(Case):
    """Memory of containers on a machine of several nodes, by the kernel's word."""

    def policy(self, pod):
        """The policy of the first process: that of its first mapping, which has none of its own."""
        pid = self.bed.processes_of(pod["containers"][0])[0]
        return Path(f"/proc/{pid}/numa_maps").read_text().split()[1]

    def nodes(self, pod):
        """The nodes that the first process may use."""
        pid = self.bed.processes_of(pod["containers"][0])[0]
        status = Path(f"/proc/{pid}/status").read_text()
        return cpus(re.search(r"^Mems_allowed_list:\t(.*)$", status, re.M).group(1))

    def test_bound_memory_is_a_hard_limit(self):
        pod = self.pod("bound", annotations={CORES: "1", SETTINGS: "memory=bind"})
        (cpu,) = self.cpuset(pod)
        (node,) = (node for node in NODES if Path(f"/sys/devices/system/node/node{node}/cpu{cpu}").exists())
        self.assertEqual(self.nodes(pod), {node})

    def test_other_policies_are_set_by_runtimes_that_know_them(self):
        pod = self.pod("spread", annotations={CORES: "2", SETTINGS: "memory=interleave"})
        self.assertEqual(self.cpuset(pod), {0, 1})
        self.assertEqual(self.nodes(pod), NODES, "a policy is no limit")
        # containerd 1.7 leaves the policy out.
        self.assertEqual(self.policy(pod), "interleave:0-1" if IS_SECOND else "default")


if __name__ == "__main__":
    unittest.main()
