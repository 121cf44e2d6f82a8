"""Cores on call: the module `trimtab` over libtrimtab, on a ledger of its own, with one CPU.

Run by crates/hold-c/tests/python.rs, which names the library and gives a new ledger.
"""

import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import unittest

try:
    import trimtab
except ImportError as error:
    raise unittest.SkipTest(f"trimtab: {error}") from None

ONE = min(os.sched_getaffinity(0))
# The command line, if it is built.
COMMAND = os.environ.get("TRIMTAB_COMMAND")
HOLDER = "import trimtab, sys; c = trimtab.reserve(1, label='holder'); print('held', flush=True); sys.stdin.read()"


def holder():
    """Starts a process that holds the only core."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def end(process):
    process.stdin.close()
    process.wait()
    process.stdout.close()


class Cores(unittest.TestCase):
    def setUp(self):
        self.before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {ONE})

    def tearDown(self):
        os.sched_setaffinity(0, self.before)

    def test_a_block_holds_cores_and_gives_them_back(self):
        with trimtab.reserve(1, label="a block") as cores:
            self.assertEqual((cores.cpus, cores.threads, cores.warnings), ({ONE}, 1, []))
            self.assertLessEqual(cores.cpus, cores.reserved)
            self.assertIn("placement" if "placement" in cores.launch else "plan", cores.launch)
            [row] = trimtab.holds()["holds"]
            self.assertEqual((row["command"], row["pid"]), ("a block", os.getpid()))
            with self.assertRaises(trimtab.Busy):
                trimtab.reserve(1)
        self.assertEqual(trimtab.holds()["holds"], [])
        cores.release()
        with self.assertRaises(ValueError):
            cores.pin()
        self.assertIn("released", repr(cores))

    def test_programs_run_on_the_cores_with_their_variables(self):
        code = "import os; print(sorted(os.sched_getaffinity(0)), os.environ['TRIMTAB_HOLD'].split()[0], os.environ.get('EXTRA'))"
        os.sched_setaffinity(0, self.before)
        with trimtab.reserve(1, cpus=str(ONE)) as cores:
            ran = cores.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
            self.assertEqual(ran.stdout.strip(), f"[{ONE}] 0 None")
            process = cores.popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={"EXTRA": "e", "PATH": os.environ["PATH"]})
            self.assertEqual(process.communicate()[0].strip(), f"[{ONE}] 0 e")
            self.assertEqual(os.sched_getaffinity(0), self.before)
            cores.pin()
            self.assertEqual(os.sched_getaffinity(0), {ONE})

    def test_a_plan_reserves_nothing(self):
        document = trimtab.plan(1, cpus=str(ONE))
        self.assertEqual((document["schema"], document["threads"]), ("trimtab.cores/1", 1))
        self.assertEqual(trimtab.holds()["holds"], [])

    @unittest.skipUnless(COMMAND, "trimtab is not built")
    def test_documents_are_those_of_the_command_line(self):
        def said(*words):
            return json.loads(subprocess.run([COMMAND, *words, "--json"], stdout=subprocess.PIPE, check=True, text=True).stdout)

        with trimtab.reserve(1, label="mine"):
            ours, theirs = trimtab.holds(), said("ps")
            for document in (ours, theirs):
                # What changes from moment to moment.
                for hold in document["holds"]:
                    del hold["age_s"], hold["load_permille"]
            self.assertEqual(ours.pop("violators"), [])
            theirs.pop("violators")
            self.assertEqual(ours, theirs)
            self.assertEqual([hold["command"] for hold in ours["holds"]], ["mine"])
        ours, theirs = trimtab.plan(1, cpus=str(ONE))["launch"], said("plan", "-c", "1", "--cpus", str(ONE))
        self.assertEqual(set(ours), set(theirs) - {"schema", "machine", "command", "explanation"})
        # Other programs may have begun or ended between the two.
        busy = {"taken", "reasons", "placement", "plan"}
        self.assertEqual({name: ours[name] for name in set(ours) - busy}, {name: theirs[name] for name in set(ours) - busy})
        self.assertEqual([ours["plan"][name] for name in ("mask", "slots", "memory")], [theirs["plan"][name] for name in ("mask", "slots", "memory")])

    def test_requests_that_cannot_be_met_say_why(self):
        with self.assertRaisesRegex(trimtab.Error, "4000"):
            trimtab.reserve(4000)
        for options in ({"cores": "two"}, {"cores": 1, "settings": "colour=red"}, {"cores": 1, "cpus": "x"}, {"cores": 1, "wait": "soon"},
                        {"cores": 1, "wait": -1}, {"cores": 1, "label": "a\0b"}):
            with self.assertRaises(ValueError, msg=str(options)):
                trimtab.reserve(**options)

    def test_a_wait_ends_when_the_holder_is_killed(self):
        process, lines = holder(), []
        try:
            timer = threading.Timer(0.2, process.kill)
            timer.start()
            with trimtab.reserve(1, wait="1m", tell=lines.append) as cores:
                self.assertEqual(cores.cpus, {ONE})
            self.assertIn("holder", lines[0])
        finally:
            end(process)

    def test_a_wait_has_a_limit_and_an_exception_ends_it(self):
        process = holder()
        try:
            with self.assertRaises(trimtab.Busy):
                trimtab.reserve(1, wait=0.05)

            def fails(_):
                raise ZeroDivisionError

            with self.assertRaises(ZeroDivisionError):
                trimtab.reserve(1, wait=True, tell=fails)
            timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                trimtab.reserve(1, wait=True)
            timer.join()
        finally:
            end(process)

    def test_tasks_wait_and_are_cancelled(self):
        async def waits():
            async with trimtab.reserve_async(1) as cores:
                self.assertEqual(cores.cpus, {ONE})
                task = asyncio.ensure_future(trimtab.reserve_async(1)._reserve())
                await asyncio.sleep(0.05)
                self.assertFalse(task.done())
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
            async with await trimtab.reserve_async(1, wait=30):
                pass
            with self.assertRaises(TypeError):
                trimtab.reserve_async(1, colour="red")

        asyncio.run(waits())
        self.assertEqual(trimtab.holds()["holds"], [])

    def test_threads_reserve_one_after_the_other(self):
        inside, most = [], []

        def works():
            for _ in range(10):
                with trimtab.reserve(1, wait=True):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()

        threads = [threading.Thread(target=works) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(most), max(most)), (40, 1))

    def test_a_forked_child_does_not_take_the_cores_away(self):
        with trimtab.reserve(1) as cores:
            child = os.fork()
            if child == 0:
                cores.release()
                os._exit(0)
            os.waitpid(child, 0)
            with self.assertRaises(trimtab.Busy):
                trimtab.reserve(1)
            with self.assertRaises(TypeError):
                pickle.dumps(cores)

    def test_cores_that_are_forgotten_are_given_back(self):
        cores = trimtab.reserve(1)
        del cores
        begin = time.monotonic()
        while trimtab.holds()["holds"] and time.monotonic() < begin + 60:
            pass
        self.assertEqual(trimtab.holds()["holds"], [])

    def test_cores_grow_and_shrink_with_their_programs(self):
        os.sched_setaffinity(0, self.before)
        if len(self.before) < 2:
            raise unittest.SkipTest("two CPUs are needed")
        with trimtab.reserve(1, settings="smt=1") as cores:
            process = cores.popen(["sleep", "60"])
            try:
                cores.resize(2)
                self.assertEqual((len(cores.cpus), cores.threads), (2, 2))
                self.assertEqual(os.sched_getaffinity(process.pid), cores.cpus)
                [row] = trimtab.holds()["holds"]
                self.assertEqual(row["hold"], cores.hold)
                cores.resize(1)
                self.assertEqual(os.sched_getaffinity(process.pid), cores.cpus)
                self.assertEqual((len(cores.cpus), cores.threads), (1, 1))
                self.assertEqual(os.sched_getaffinity(0), self.before, "this thread was not bound")
                with self.assertRaises(trimtab.Busy):
                    cores.resize(4000)
                self.assertEqual(len(cores.cpus), 1)
            finally:
                process.kill()
                process.wait()
        self.assertEqual(trimtab.holds()["holds"], [])

    def test_parts_exclude_each_other_and_hold_the_whole(self):
        os.sched_setaffinity(0, self.before)
        if len(self.before) < 2:
            raise unittest.SkipTest("two CPUs are needed")
        whole = trimtab.reserve(2)
        first, second = whole.divide(2)
        self.assertEqual(first.reserved | second.reserved, whole.reserved)
        self.assertFalse(first.reserved & second.reserved)
        self.assertEqual([row["level"] for row in trimtab.holds()["holds"]], [0, 1, 1])
        with self.assertRaises(trimtab.Busy):
            whole.part(1)
        with self.assertRaises(ValueError):
            whole.divide(3)
        with self.assertRaises(trimtab.Refused):
            whole.resize(1)
        first.release()
        whole.release()
        # The other part holds the whole.
        self.assertEqual([row["level"] for row in trimtab.holds()["holds"]], [0, 1])
        second.release()
        self.assertEqual(trimtab.holds()["holds"], [])

    def test_a_hold_for_a_process_lasts_as_long_as_the_process(self):
        process = subprocess.Popen(["sleep", "60"])
        try:
            document = trimtab.hold(1, pid=process.pid, label="for others")
            self.assertEqual((document["schema"], document["cpus"]), ("trimtab.cores/1", str(ONE)))
            self.assertEqual(document["target"]["process"]["pid"], process.pid)
            [row] = trimtab.holds()["holds"]
            self.assertEqual((row["pid"], row["command"], row["delegated"], row["hold"]), (process.pid, "for others", True, document["hold"]))
            with self.assertRaisesRegex(trimtab.Refused, "already"):
                trimtab.hold(1, pid=process.pid)
            self.assertEqual(trimtab.release(document["hold"])["schema"], "trimtab.release/1")
            self.assertEqual(trimtab.holds()["holds"], [])
            descriptor = os.pidfd_open(process.pid)
            trimtab.hold(1, pidfd=descriptor)
            os.close(descriptor)
            self.assertEqual(len(trimtab.holds()["holds"]), 1)
        finally:
            process.kill()
            process.wait()
        begin = time.monotonic()
        while trimtab.holds()["holds"] and time.monotonic() < begin + 60:
            pass
        self.assertEqual(trimtab.holds()["holds"], [])
        with self.assertRaisesRegex(trimtab.Refused, "no process"):
            trimtab.hold(1, pid=process.pid)
        for options, error in (({}, TypeError), ({"pid": 1, "cgroup": "/"}, TypeError), ({"pid": 1, "colour": "red"}, TypeError),
                               ({"pidfd": -1}, ValueError), ({"pidfd": 0}, ValueError), ({"pid": -1}, ValueError),
                               ({"cgroup": "/"}, trimtab.Refused)):
            with self.assertRaises(error, msg=str(options)):
                trimtab.hold(1, **options)
        for call in (lambda: trimtab.resize("0x7", 1), lambda: trimtab.release("0x7")):
            with self.assertRaisesRegex(trimtab.Refused, "no hold 0x7"):
                call()
        with self.assertRaises(ValueError):
            trimtab.release("everything")


if __name__ == "__main__":
    unittest.main()
