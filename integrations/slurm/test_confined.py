"""Steps that Slurm confines to their cores by control groups (`ConstrainCores`), with the tests of test_slurm.py that this may concern."""

import unittest
from pathlib import Path

import test_slurm
from cluster import CPUSETS, Cluster
from test_slurm import LIBRARY, Slurm, cpus_of

SAME = (
    "test_each_task_has_its_own_core_and_the_audit_says_so",
    "test_overlapping_steps_share",
    "test_runs_of_trimtab_inside_stay_in_their_task",
    "test_steps_at_once_have_different_cores",
    "test_tasks_that_slurm_leaves_unbound_are_placed",
    "test_the_cores_are_free_when_slurmstepd_is_killed",
)
# The CPUs that a program can give itself.
WIDEST = "taskset -pc 0-1 $$ >/dev/null 2>&1; sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status"


def setUpModule():
    if not (CPUSETS / "cgroup.procs").exists():
        raise unittest.SkipTest("this machine has no cpusets of version 1, and those of version 2 need systemd")
    test_slurm.begin(Cluster(LIBRARY, confined=True))


def tearDownModule():
    test_slurm.tearDownModule()


class Confined(Slurm):
    def test_a_step_is_confined_to_the_cores_that_it_holds(self):
        for words, count in (["-n1"], 1), (["-n1", "-c2"], 2):
            ended = self.srun("-N1", *words, "--trimtab=strict,audit", "sh", "-c", WIDEST)
            cpus = cpus_of(ended.stdout.strip())
            self.assertEqual(len(cpus), count, ended.stdout)
            self.assertRegex(ended.stderr, f"task 0: CPUs {ended.stdout.strip()}, {count} thread")
        plain = self.srun("-N1", "-n1", "sh", "-c", WIDEST)
        self.assertEqual(len(cpus_of(plain.stdout.strip())), 1, "Slurm confines steps, or this shows nothing")

    def test_a_hold_of_a_confined_step_is_seen_outside(self):
        step = test_slurm.CLUSTER.background(0, "srun", "-N1", "-n1", "--trimtab=strict", "sh", "-c", "cat /proc/self/cgroup; sleep 2")
        self.until(lambda: self.holds(0), "no hold")
        (hold,) = self.holds(0)
        self.assertEqual(Path(f"/proc/{hold['pid']}/comm").read_text().strip(), "slurmstepd")
        text, errors = step.communicate(timeout=120)
        self.assertEqual(step.returncode, 0, errors)
        self.assertRegex(text, r"cpuset:/slurm\S*/step_0")


def load_tests(loader, _tests, _pattern):
    own = [name for name in loader.getTestCaseNames(Confined) if name not in loader.getTestCaseNames(Slurm)]
    return unittest.TestSuite(Confined(name) for name in (*own, *SAME))


if __name__ == "__main__":
    unittest.main()
