"""Steps of Slurm that get their cores from trimtab, on two hosts of this machine (cluster.py). `make test-slurm` runs it.

The masks of tasks are read by the tasks themselves, from /proc; the holds are read from the ledger of each node.
"""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from cluster import Cluster, Unavailable, plugin_folders, run

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", TREE / "target")) / "debug"
TRIMTAB = TARGET / "trimtab"
LIBRARY = TARGET / "libtrimtab_hold_c.so"
CLUSTER = None

# Each task says where it runs, and waits until the others of its step have said so.
SAY = 'echo "task $SLURM_PROCID $SLURM_LOCALID $(hostname) $(sed -n "s/^Cpus_allowed_list:[[:space:]]*//p" /proc/self/status)"; sleep ${1-0.3}'

HYBRID = r"""
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    #pragma omp parallel
    {
        cpu_set_t cpus;
        sched_getaffinity(0, sizeof cpus, &cpus);
        #pragma omp critical
        printf("thread %s %d %d %d %d\n", getenv("SLURM_LOCALID"), omp_get_thread_num(), omp_get_num_threads(), CPU_COUNT(&cpus),
               sched_getcpu());
    }
    return 0;
}
"""

MPI = r"""
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank, size, sum = 0;
    cpu_set_t cpus;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    sched_getaffinity(0, sizeof cpus, &cpus);
    printf("rank %d of %d node %s sum %d cpus %d first %d\n", rank, size, getenv("SLURM_NODEID"), sum, CPU_COUNT(&cpus),
           CPU_ISSET(0, &cpus) ? 0 : 1);
    MPI_Finalize();
    return 0;
}
"""


def setUpModule():
    begin(Cluster(LIBRARY))


def begin(cluster):
    """Starts the cluster of the tests, or skips them."""
    global CLUSTER
    if os.geteuid() != 0:
        raise unittest.SkipTest("the hosts of the test need root")
    for program in ("slurmctld", "slurmd", "srun", "munged", "nsenter", "ip"):
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            raise unittest.SkipTest(f"{program} is not installed: scripts/packages slurm")
    if not plugin_folders():
        raise unittest.SkipTest("the plug-ins of Slurm are not where they are expected")
    CLUSTER = cluster
    try:
        run("make", "-s", "-C", HERE, f"BUILD={CLUSTER.folder}", "CFLAGS=-O1 -g -Werror")
        CLUSTER.start()
    except BaseException as error:
        CLUSTER.stop()
        if isinstance(error, Unavailable):
            raise unittest.SkipTest(str(error)) from error
        raise


def tearDownModule():
    if CLUSTER:
        CLUSTER.stop()


def until(mark):
    """Words for a shell that waits for a file, two minutes at most."""
    return f"for at in $(seq 1200); do [ -e {mark} ] && break; sleep 0.1; done"


def cpus_of(text):
    """The CPUs of a list such as 0-3,8."""
    parts = [part.split("-") for part in text.split(",") if part]
    return {cpu for part in parts for cpu in range(int(part[0]), int(part[-1]) + 1)}


def compiled(name, source, *command):
    """The program made of this source in the folder of the cluster."""
    path = CLUSTER.folder / name
    path.with_suffix(".c").write_text(source)
    run(*command, "-D_GNU_SOURCE", "-O1", "-o", path, path.with_suffix(".c"))
    return path


class Slurm(unittest.TestCase):
    def setUp(self):
        CLUSTER.plugstack("default=off")
        CLUSTER.wait_for_idle()
        self.addCleanup(self.nothing_is_left)

    def nothing_is_left(self):
        """No job, and no hold on any node."""
        CLUSTER.wait_for_idle()
        for host in range(2):
            self.until(lambda host=host: self.holds(host) == [], f"holds on node {host}: {self.holds(host)}")

    def until(self, reached, message, seconds=60):
        end = time.monotonic() + seconds
        while not reached():
            self.assertLess(time.monotonic(), end, f"{message}\n{CLUSTER.log()}")
            time.sleep(0.02)

    def srun(self, *words, host=0, **more):
        return CLUSTER.on(host, "srun", "--quit-on-interrupt", *words, **more)

    def holds(self, host):
        return json.loads(CLUSTER.on(host, TRIMTAB, "ps", "--json").stdout)["holds"]

    def tasks(self, text):
        """Host and CPUs of each task that SAY shows."""
        rows = re.findall(r"^task (\d+) (\d+) (\S+) (\S+)$", text, re.M)
        return {int(rank): (host, cpus_of(cpus)) for rank, _, host, cpus in rows}

    def disjoint(self, tasks, number):
        """Each task has a core of its own on its host."""
        self.assertEqual(len(tasks), number, tasks)
        seen = set()
        for host, cpus in tasks.values():
            self.assertEqual(len(cpus), 1, tasks)
            self.assertFalse({(host, cpu) for cpu in cpus} & seen, tasks)
            seen |= {(host, cpu) for cpu in cpus}

    def test_each_task_has_its_own_core_and_the_audit_says_so(self):
        ended = self.srun("-N2", "--ntasks-per-node=2", "--trimtab=audit", "sh", "-c", SAY)
        self.disjoint(self.tasks(ended.stdout), 4)
        for host in CLUSTER.hosts:
            line = f"trimtab: {host}: task 0: CPUs 0, 1 thread, memory .*; task 1: CPUs 1, 1 thread, memory "
            self.assertEqual(len(re.findall(line, ended.stderr)), 1, ended.stderr)

    def test_the_step_holds_its_cores_once_on_each_node(self):
        step = CLUSTER.background(0, "srun", "-N2", "--ntasks-per-node=2", "--trimtab", "sh", "-c", SAY, "say", "3")
        for host in range(2):
            self.until(lambda host=host: self.holds(host), "no hold")
            (hold,) = self.holds(host)
            self.assertEqual((hold["cpus"], hold["mode"], hold["level"]), ("0-1", "exclusive", 0))
            self.assertRegex(hold["command"], r"^slurm step \d+\.0: ")
            self.assertEqual(Path(f"/proc/{hold['pid']}/comm").read_text().strip(), "slurmstepd")
            self.no_descriptor_of_the_ledger(hold["pid"])
        self.assertEqual(step.wait(timeout=120), 0, step.stderr.read())
        step.communicate()

    def no_descriptor_of_the_ledger(self, holder):
        """The tasks of a step have inherited nothing that would keep its hold."""
        tasks = subprocess.run(["pgrep", "-P", str(holder)], text=True, capture_output=True, check=True).stdout.split()
        self.assertTrue(tasks)
        for task in tasks:
            if Path(f"/proc/{task}/comm").read_text().strip() == "slurmstepd":
                continue
            for descriptor in Path(f"/proc/{task}/fd").iterdir():
                self.assertNotIn("ledger.", os.readlink(descriptor))

    def test_without_the_option_nothing_is_held(self):
        for words in ([], ["--trimtab=off"]):
            step = CLUSTER.background(0, "srun", "-N1", "-n2", *words, TRIMTAB, "ps", "--json")
            text, errors = step.communicate(timeout=120)
            self.assertEqual(step.returncode, 0, errors)
            self.assertNotIn("slurm step", text)
            self.assertNotIn("trimtab:", errors)

    def test_a_partition_uses_it_by_default(self):
        CLUSTER.plugstack("default=on partitions=placed options=audit")
        audit = "trimtab: .*: task 0: CPUs"
        self.assertRegex(self.srun("-p", "placed", "-N1", "-n1", "true").stderr, audit)
        self.assertNotRegex(self.srun("-p", "all", "-N1", "-n1", "true").stderr, audit)
        self.assertNotRegex(self.srun("-p", "placed", "--trimtab=off", "-N1", "-n1", "true").stderr, audit)
        CLUSTER.plugstack("default=on options=audit")
        self.assertRegex(self.srun("-p", "all", "-N1", "-n1", "true").stderr, audit)

    def test_arguments_of_the_site_that_are_unknown_are_named(self):
        CLUSTER.plugstack("defualt=on options=frob")
        errors = self.srun("-N1", "-n1", "true").stderr
        self.assertIn('"defualt=on" is ignored (known: default=on|off', errors)
        self.assertIn('options=frob: "frob" is no option of --trimtab', errors)

    def test_bad_options_are_refused_before_anything_starts(self):
        for text, message in {
            "stratgy=scatter": '"stratgy=scatter" is no option of --trimtab (known: on, off, strict',
            "strategy=": "strategy= has no value",
            "strategy=sctter": "strategy cannot be",
            "memory=bnd": '"bnd" is not a memory policy',
            "smt=1,smt=2": "smt is given twice",
            "off,strict": "off stands alone",
            "pin=a b": "has a character that no value has",
            "": None,
            ",": '"" is no option of --trimtab',
            "strict,": '"" is no option of --trimtab',
            "threads=" + "9" * 300: "too long",
            "%s%n%x": '"%s%n%x" is no option',
        }.items():
            ended = self.srun(f"--trimtab={text}", "-N1", "-n1", "echo", "started", check=False)
            if message is None:
                self.assertEqual((ended.returncode, ended.stdout), (0, "started\n"), ended.stderr)
                continue
            self.assertNotEqual(ended.returncode, 0, text)
            self.assertIn(message, ended.stderr)
            self.assertNotIn("started", ended.stdout)

    def test_the_words_of_the_message_are_words_of_trimtab(self):
        source = (HERE / "trimtab_spank.c").read_text()
        known = "".join(re.findall(r'"([^"]*)"', source[source.index("KNOWN[] =") :].split(";")[0]))
        check = ctypes.CDLL(str(LIBRARY)).trimtab_cores_check_settings
        words = [f"{key}={word.replace('N', '2')}" for key, all in re.findall(r"(\w+)=([\w|:]+)", known) for word in all.split("|")]
        self.assertGreater(len(words), 20)
        for word in words:
            self.assertEqual(check(word.encode(), None), 0, word)
        self.assertEqual(check(b"strategy=sctter", None), 4)

    def test_without_libtrimtab_steps_run_as_slurm_binds_them(self):
        CLUSTER.plugstack("default=off", library="/nonexistent/libtrimtab.so.0")
        ended = self.srun("-N2", "--ntasks-per-node=2", "--trimtab", "sh", "-c", SAY)
        self.disjoint(self.tasks(ended.stdout), 4)
        line = "libtrimtab cannot be used: .*the step runs with Slurm's own binding"
        self.assertEqual(len(re.findall(line, ended.stderr)), 2, ended.stderr)
        strict = self.srun("-N1", "-n1", "--trimtab=strict", "echo", "started", check=False)
        self.assertNotEqual(strict.returncode, 0)
        self.assertIn("libtrimtab cannot be used", strict.stderr)
        self.assertNotIn("started", strict.stdout)
        # Another library is none of trimtab.
        CLUSTER.plugstack("default=off", library=self.another_library())
        self.assertIn("is older than this plug-in", self.srun("-N1", "-n1", "--trimtab", "true").stderr)

    def another_library(self):
        path = CLUSTER.folder / "libother.so"
        path.with_suffix(".c").write_text("int nothing;\n")
        run("cc", "-shared", "-fPIC", "-o", path, path.with_suffix(".c"))
        return path

    def test_cores_that_others_hold_stay_theirs(self):
        other = CLUSTER.background(1, TRIMTAB, "run", "-q", "-c", "1", "sleep", "600")
        try:
            self.until(lambda: self.holds(1), "the other run holds nothing")
            words = ["-N2", "--ntasks-per-node=2", "sh", "-c", SAY]
            ended = self.srun("--trimtab", *words)
            self.disjoint(self.tasks(ended.stdout), 4)
            line = f"trimtab: {CLUSTER.hosts[1]}: .*the step runs with Slurm's own binding"
            self.assertEqual(len(re.findall(line, ended.stderr)), 1, ended.stderr)
            self.assertNotIn(f"trimtab: {CLUSTER.hosts[0]}", ended.stderr)
            strict = self.srun("--trimtab=strict", *words, check=False)
            self.assertNotEqual(strict.returncode, 0)
            self.assertIn("(strict)", strict.stderr)
        finally:
            other.send_signal(signal.SIGKILL)
            other.communicate()

    def test_overlapping_steps_share(self):
        first, second = self.marks(2)
        script = self.script(
            f"srun -n2 --trimtab=strict sh -c 'touch {first}; {until(second)}' &\n{until(first)}\n"
            f"srun -n2 --overlap --trimtab=strict,audit sh -c '{SAY}'\n"
            f"echo status $?; touch {second}; wait"
        )
        text = self.batch(script, "-N1", "-n2")
        self.assertIn("status 0", text)
        self.disjoint(self.tasks(text), 2)
        self.assertIn("shared with other steps", text)

    def test_steps_at_once_have_different_cores(self):
        first, second = self.marks(2)
        pairs = ((first, second), (second, first))
        steps = [f"srun -n1 --exact --trimtab=strict sh -c '{SAY}; touch {own}; {until(other)}' &" for own, other in pairs]
        script = self.script("\n".join([*steps, "wait; echo ended"]))
        text = self.batch(script, "-N1", "-n2")
        self.assertIn("ended", text)
        self.assertTrue(first.exists() and second.exists(), text)
        rows = re.findall(r"^task 0 0 \S+ (\S+)$", text, re.M)
        self.assertEqual(sorted(rows), ["0", "1"], text)

    def test_a_batch_job_passes_the_option_on_to_its_steps(self):
        text = self.batch(self.script(f"srun sh -c '{SAY}'"), "-N2", "--ntasks-per-node=2", "--trimtab=audit")
        self.disjoint(self.tasks(text), 4)
        self.assertEqual(len(re.findall("trimtab: .*: task 0: CPUs 0", text)), 2, text)

    def test_an_allocation_passes_the_option_on_to_its_steps(self):
        ended = CLUSTER.on(0, "salloc", "-N2", "--ntasks-per-node=2", "--trimtab=strict,audit", "srun", "sh", "-c", SAY)
        self.disjoint(self.tasks(ended.stdout), 4)
        self.assertEqual(len(re.findall("trimtab: .*: task 0: CPUs 0", ended.stderr)), 2, ended.stderr)

    def test_strict_needs_a_required_plug_in(self):
        """What docs/slurm.md says about `required` and `optional`."""
        CLUSTER.plugstack("default=off", library="/nonexistent/libtrimtab.so.0", need="optional")
        ended = self.srun("-N1", "-n1", "--trimtab=strict", "echo", "started")
        self.assertEqual(ended.stdout, "started\n")
        self.assertIn("(strict)", ended.stderr)

    def test_without_a_ledger_steps_are_placed_and_hold_nothing(self):
        ledger = CLUSTER.folder / f"ledger.{CLUSTER.hosts[0]}"
        away = ledger.with_suffix(".away")
        ledger.rename(away)
        ledger.write_text("no folder")
        try:
            words = ["-N1", "-w", CLUSTER.hosts[0], "-n2"]
            ended = self.srun(*words, "--trimtab", "sh", "-c", SAY)
            self.disjoint(self.tasks(ended.stdout), 2)
            self.assertEqual(len(re.findall("trimtab: n0: the cores are not reserved: ", ended.stderr)), 1, ended.stderr)
            self.assertNotEqual(self.srun(*words, "--trimtab=strict", "true", check=False).returncode, 0)
        finally:
            ledger.unlink()
            away.rename(ledger)

    def test_job_arrays(self):
        script = self.script(f"srun --trimtab=strict sh -c '{SAY}'")
        submitted = CLUSTER.on(
            0, "sbatch", "-W", "--array=0-3", "-N1", "-n1", f"--output={CLUSTER.folder}/array.%a.out", script, timeout=120
        )
        self.assertIn("Submitted", submitted.stdout)
        for at in range(4):
            text = (CLUSTER.folder / f"array.{at}.out").read_text()
            self.assertEqual(len(self.tasks(text)), 1, text)
            self.assertNotIn("trimtab:", text)

    def marks(self, count):
        """Names of files by which steps wait for each other."""
        return [CLUSTER.folder / f"mark{time.monotonic_ns()}.{at}" for at in range(count)]

    def script(self, body):
        path = CLUSTER.folder / f"script{time.monotonic_ns()}.sh"
        path.write_text("#!/bin/sh\n" + body + "\n")
        return path

    def batch(self, script, *words):
        """The output of a batch job."""
        output = script.with_suffix(".out")
        CLUSTER.on(0, "sbatch", "-W", f"--output={output}", *words, script, timeout=120)
        return output.read_text()

    def test_the_cores_are_free_when_slurmstepd_is_killed(self):
        step = CLUSTER.background(0, "srun", "-N1", "-n2", "--trimtab=strict", "sleep", "300")
        self.until(lambda: self.holds(0), "no hold")
        (hold,) = self.holds(0)
        self.assertEqual(Path(f"/proc/{hold['pid']}/comm").read_text().strip(), "slurmstepd")
        tasks = subprocess.run(["pgrep", "-P", str(hold["pid"])], text=True, capture_output=True, check=True).stdout.split()
        os.kill(hold["pid"], signal.SIGKILL)
        self.until(lambda: not Path(f"/proc/{hold['pid']}").exists(), "slurmstepd stays")
        self.assertEqual(self.holds(0), [])
        self.assertTrue(any(Path(f"/proc/{task}").exists() for task in tasks), "the tasks ended first, so this shows nothing")
        for task in tasks:
            os.kill(int(task), signal.SIGKILL)
        CLUSTER.on(0, "scancel", "-u", "root", check=False)
        step.send_signal(signal.SIGKILL)
        step.communicate()

    def test_openmp_threads_have_the_cores_of_their_task(self):
        program = compiled("hybrid", HYBRID, "cc", "-fopenmp")
        for words, team in [(["-n1", "-c2"], 2), (["-n2", "-c1"], 1)]:
            text = self.srun("-N1", *words, "--trimtab=strict", program).stdout
            rows = [tuple(map(int, row)) for row in re.findall(r"^thread (\d+) (\d+) (\d+) (\d+) (\d+)$", text, re.M)]
            self.assertEqual([row[2] for row in rows], [team] * 2, text)
            # Each thread on a CPU of its own.
            self.assertEqual([row[3] for row in rows], [1, 1], text)
            self.assertEqual({row[4] for row in rows}, {0, 1}, text)

    def test_open_mpi(self):
        self.mpi("mpicc.openmpi", "pmix", {})

    def test_mpich(self):
        self.mpi("mpicc.mpich", "pmi2", {})

    def mpi(self, compiler, interface, more):
        if not shutil.which(compiler):
            self.skipTest(f"{compiler} is not installed")
        program = compiled(interface, MPI, compiler)
        words = [f"--mpi={interface}", "-N2", "--ntasks-per-node=2", "--trimtab=strict", program]
        text = self.srun(*words, timeout=120, **more).stdout
        rows = re.findall(r"^rank (\d+) of (\d+) node (\d+) sum (\d+) cpus (\d+) first (\d+)$", text, re.M)
        self.assertEqual(len(rows), 4, text)
        self.assertEqual({row[1:2] + row[3:5] for row in rows}, {("4", "6", "1")}, text)
        self.assertEqual(len({(row[2], row[5]) for row in rows}), 4, text)

    def test_the_memory_policy_is_that_of_the_options(self):
        for policy in ("interleave", "bind"):
            show = "sed -n 's/^[0-9a-f]* \\([a-z]*\\):*.*/\\1/p' /proc/self/numa_maps | sort -u"
            words = ["-N1", "-n2", f"--trimtab=strict,memory={policy}", "sh", "-c", show]
            self.assertEqual(set(self.srun(*words).stdout.split()), {policy})

    def test_runs_of_trimtab_inside_stay_in_their_task(self):
        for user in ([], ["--uid=65534", "--gid=65534"]):
            inner = f"{TRIMTAB} run -q sh -c '{SAY}'"
            ended = self.srun("-N1", "-n2", "--trimtab=strict", *user, "sh", "-c", inner)
            self.disjoint(self.tasks(ended.stdout), 2)
            self.assertEqual(ended.stderr, "")
            # A file for each task: srun forwards output in parts of 4,096 bytes and mixes those of two tasks.
            with tempfile.TemporaryDirectory() as folder:
                os.chmod(folder, 0o777)
                inner = f"{TRIMTAB} plan --json > {folder}/$SLURM_PROCID; sleep 0.5"
                self.srun("-N1", "-n2", "--trimtab=strict", *user, "sh", "-c", inner)
                plans = [json.loads(Path(folder, task).read_text()) for task in ("0", "1")]
            self.assertEqual(sorted(row["plan"]["mask"] for row in plans), ["0", "1"], plans)

    def test_more_tasks_than_cores_keep_the_binding_of_slurm(self):
        ended = self.srun("-N1", "-n4", "--overcommit", "--trimtab=audit", "sh", "-c", SAY)
        self.assertEqual(len(self.tasks(ended.stdout)), 4)
        self.assertRegex(ended.stderr, r"4 tasks on \d cores? \(CPUs \S+\), bound by the launcher")

    def test_tasks_that_slurm_leaves_unbound_are_placed(self):
        ended = self.srun("-N1", "-n2", "--cpu-bind=none", "--trimtab=strict", "sh", "-c", SAY)
        self.disjoint(self.tasks(ended.stdout), 2)

    def test_a_plan_in_words_of_srun_is_accepted(self):
        for words, cpus in [(["-c", "2"], {0, 1}), (["--cpus", "1"], {1}), (["--cpus", "0", "--mem", "bind"], {0})]:
            plan = CLUSTER.on(0, TRIMTAB, "plan", "--survey", "none", *words, "--format", "slurm").stdout.split()
            self.assertEqual(plan[0], "srun")
            # The plan is for a step in an allocation of the whole node.
            ended = CLUSTER.on(0, "salloc", "-Q", "-N1", "--exclusive", *plan, "sh", "-c", SAY)
            self.assertEqual([mask for _, mask in self.tasks(ended.stdout).values()], [cpus], plan)

    def test_the_status_of_a_task_is_that_of_the_step(self):
        self.assertEqual(self.srun("-N1", "-n1", "--trimtab", "sh", "-c", "exit 7", check=False).returncode, 7)


if __name__ == "__main__":
    unittest.main()
