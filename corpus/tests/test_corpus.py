"""Tests of the runner: what is pure, and that it can find fault."""

import contextlib
import io
import itertools
import os
import random
import re
import sys
import tempfile
import unittest
from pathlib import Path

CORPUS = Path(__file__).resolve().parent.parent
ROOT = CORPUS.parent
sys.path.insert(0, str(CORPUS))

from lib import births, confine, cpus, interval, load, options, program, record, same, session, supply, table, tree, variant  # noqa: E402
from lib.measure import Measuring, Plan  # noqa: E402
from lib.places import PAGE, PROGRAMS, SOURCES, Places  # noqa: E402
from lib.result import Measured, Result  # noqa: E402
from lib.sample import Sample, Surroundings, adopt_orphans, held_cpus, take  # noqa: E402


def made(**keys):
    return program.make("some", {"about": "a", "kind": "k", "command": ["true"], **keys})


class Files(unittest.TestCase):
    def test_every_program_can_be_read(self):
        self.assertGreaterEqual(len(program.every(PROGRAMS)), 60)

    def test_every_source_that_a_program_names_is_there(self):
        for one in program.every(PROGRAMS):
            text = " ".join([one.prepare, *one.command, *one.version, *one.environment.values()])
            for name in supply.re.findall(r"\{sources\}/([\w./-]+)", text):
                self.assertTrue((SOURCES / name).exists(), f"{one.name}: {name}")

    def test_every_wheel_that_a_program_names_is_pinned(self):
        for one in program.every(PROGRAMS):
            pins = supply.requirements(CORPUS / f"requirements-{one.venv}.txt") if one.python else {}
            for package in one.python:
                self.assertIn(package, pins, one.name)

    def test_every_word_in_braces_is_known(self):
        for one in program.every(PROGRAMS):
            known = {*supply.words(Places(Path("/t"), Path("/s")), one), "under"}
            for word in (*one.command, *one.version):
                if "$" not in word and "'" not in word:
                    self.assertLessEqual(set(supply.re.findall(r"\{(\w+)\}", word)), known, one.name)

    def test_a_program_runs_in_ci_only_where_nothing_says_otherwise(self):
        self.assertTrue(all(one.part in ("all", "ci") for one in program.every(PROGRAMS)))


class Reading(unittest.TestCase):
    def test_an_unknown_key_is_refused_with_the_known_ones(self):
        with self.assertRaisesRegex(program.Fault, "comand is no key; known are .*command"):
            made(comand=["x"])

    def test_a_wrong_type_is_refused(self):
        with self.assertRaisesRegex(program.Fault, "debian is to be a list of strings"):
            made(debian="gcc")

    def test_a_wrong_way_to_compare_is_refused(self):
        with self.assertRaisesRegex(program.Fault, "same.stdout is 'roughly'"):
            made(same={"stdout": "roughly"})

    def test_a_broken_pattern_is_refused(self):
        with self.assertRaisesRegex(program.Fault, r"the pattern '\('"):
            made(same={"drop": ["("]})

    def test_a_missing_command_is_refused_unless_the_program_cannot_be_had(self):
        with self.assertRaisesRegex(program.Fault, "command is missing"):
            program.make("some", {"about": "a", "kind": "k"})
        program.make("some", {"about": "a", "kind": "k", "unavailable": "nobody packages it"})

    def test_a_variant_fits_unless_it_is_left_out(self):
        self.assertEqual(made().variants(program.STANDARD), ["plain", "run", "balance", "report", "attach", "profile"])
        self.assertEqual(made().variants(program.ON_REQUEST), ["budget", "limit"])
        self.assertEqual(made(hand={"OMP_NUM_THREADS": "1"}).variants(("plain", "hand")), ["plain", "hand"])
        self.assertEqual(made(nest="2,scatter", without={"attach": "short"}).variants(("plain", "nest", "attach")), ["plain", "nest"])


class Providing(unittest.TestCase):
    def test_programs_are_prepared_and_not_run_and_missing_requirements_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            settings = options.parse(["--provide", "--no-install"])
            settings.places = Places(Path(folder), Path(folder) / "session")
            there = made(prepare="echo x > prepared", command=["sh", "-c", "echo x > ran"])
            gone = made(programs=["no-such-program-at-all"])
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                self.assertEqual(session.provided([there, gone], settings), 0)
            files = {path.name for path in Path(folder).rglob("*") if path.is_file()}
            self.assertIn("prepared", files)
            self.assertNotIn("ran", files)
            self.assertIn("SKIPPED: some: no-such-program-at-all is not installed", said.getvalue())
            self.assertIn("1 programs are there, 1 are not", said.getvalue())


class Starting(unittest.TestCase):
    def test_trimtab_stands_in_front_or_at_its_mark(self):
        self.assertEqual(variant.placed(("a", "b"), ("t", "run")), ("t", "run", "a", "b"))
        self.assertEqual(variant.placed(("mpirun", "{under}", "b"), ("t", "run")), ("mpirun", "t", "run", "b"))
        self.assertEqual(variant.placed(("mpirun", "{under}", "b"), ()), ("mpirun", "b"))

    def test_options_of_a_program_go_to_runs_and_the_plain_prefix_to_plain(self):
        one = made(options=["-c", "1"], plain=["taskset", "-c", "0"])
        self.assertEqual(variant.start(one, "run", "T", "o").command, ("T", "run", "-c", "1", "--", "true"))
        self.assertEqual(variant.start(one, "plain", "T", "o").command, ("taskset", "-c", "0", "true"))
        self.assertEqual(variant.start(one, "attach", "T", "o").attach, ("T", "attach"))

    def test_the_experts_variables_go_to_their_variant_alone(self):
        one = made(hand={"OMP_NUM_THREADS": "1"})
        self.assertEqual(variant.start(one, "hand", "T", "o"), variant.Start(("true",), environment=(("OMP_NUM_THREADS", "1"),)))
        self.assertEqual(variant.start(one, "budget", "T", "o").command, ("T", "run", "--fit", "budget", "--", "true"))
        self.assertEqual(variant.start(one, "budget", "T", "o").environment, ())

    def test_words_in_braces_are_filled_and_the_shells_own_stay(self):
        self.assertEqual(supply.filled("{work}/a ${X} awk '{ print }'", {"work": "/w"}), "/w/a ${X} awk '{ print }'")


class Comparing(unittest.TestCase):
    def difference(self, before, after, **keys):
        return same.text_difference(keys.pop("mode", "exact"), program.Same(**keys), before.encode(), after.encode())

    def test_equal_output_is_the_same(self):
        self.assertEqual(self.difference("a\nb\n", "a\nb\n"), "")

    def test_a_changed_missing_or_added_line_is_named(self):
        self.assertEqual(self.difference("a\nb", "a\nc"), "'c' instead of 'b'")
        self.assertEqual(self.difference("a\nb", "a"), "'b' is missing")
        self.assertEqual(self.difference("a", "a\nb"), "also 'b'")

    def test_order_counts_only_where_it_is_said_to(self):
        self.assertNotEqual(self.difference("a\nb", "b\na"), "")
        self.assertEqual(self.difference("a\nb", "b\na", mode="lines"), "")
        self.assertNotEqual(self.difference("a\nb", "b\nb", mode="lines"), "")

    def test_lines_of_trimtab_are_no_difference(self):
        self.assertEqual(self.difference("a", "trimtab: 1 core\na"), "")
        self.assertEqual(same.own_lines(b"x\ntrimtab: 1 core\n"), ["trimtab: 1 core"])

    def test_dropped_kept_and_masked_text_is_no_difference(self):
        self.assertEqual(self.difference("took 3 s\na", "took 4 s\na", drop=("^took",)), "")
        self.assertEqual(self.difference("pid 3", "pid 4", mask=(r"\d+",)), "")
        self.assertEqual(self.difference("a 1\nb", "a 1\nc", keep=("^a",)), "")
        self.assertNotEqual(self.difference("a 1\nb", "a 2\nb", keep=("^a",)), "")

    def test_numbers_may_differ_within_the_tolerance_and_words_may_not(self):
        self.assertEqual(self.difference("E = -1.0000001", "E = -1.0000002", mode="numbers", tolerance=1e-6), "")
        self.assertEqual(self.difference("E = 1.0", "E = 1.1", mode="numbers", tolerance=1e-6), "1.1 instead of 1.0")
        self.assertIn("other words", self.difference("E = 1.0", "F = 1.0", mode="numbers", tolerance=1e-6))

    def test_threads_that_could_not_be_counted_are_no_difference_and_lost_records_are_one(self):
        counted, unknown, lost = tree.Seen(2), tree.Seen(None), tree.Seen(None, lost=7)
        self.assertEqual(same.seen_differences(program.Same(), counted, unknown), [])
        self.assertEqual(same.seen_differences(program.Same(), counted, lost), ["threads not counted: 7 records of births were lost"])
        self.assertEqual(same.seen_differences(program.Same(threads="ignored"), counted, lost), [])

    def test_a_status_comes_with_the_last_words_and_without_the_output_that_is_then_missing(self):
        found = same.differences(program.Same(), Sample(status=0, out=b"a"), Sample(status=1, err=b"x\nFatal error\n"))
        self.assertEqual(found, ["status 1 instead of 0 ('Fatal error')"])

    def test_words_of_an_error_include_the_lines_after_them(self):
        err = b"start\nFatal error:\nOMP_NUM_THREADS is 2\nFor more\nsee the manual\n-----\n"
        self.assertEqual(same.last_words(err), " ('Fatal error: OMP_NUM_THREADS is 2 For more')")

    def test_a_signal_and_a_hang_are_named(self):
        self.assertEqual(same.status_words(-11), "signal 11")
        self.assertIn("hung", same.status_words(None))

    def test_files_and_left_processes_are_compared(self):
        plain, other = Sample(files={"a": "1"}), Sample(files={"a": None}, left=["cat"])
        self.assertEqual(same.differences(program.Same(files=("a",)), plain, other), ["a: missing", "left behind: cat instead of nothing"])

    def test_threads_masks_and_variables_are_compared(self):
        plain = tree.Seen(2, {frozenset({0, 1}): "a"}, {"a": {}}, None)
        other = tree.Seen(3, {frozenset({0, 1}): "a"}, {"a": {"X": "1"}}, frozenset({0}))
        self.assertEqual(same.seen_differences(program.Same(environment=("X",)), plain, other),
                         ["starts 3 threads instead of 2", "a may run on CPUs 0,1, held are 0", "a sees X '1' instead of not at all"])
        self.assertEqual(same.changed_variables(plain, other), {"added": ["X"], "removed": [], "changed": []})

    def test_counts_of_threads_are_compared_for_every_program(self):
        plain = tree.Seen(2, {}, {"a": {"OMP_NUM_THREADS": "2,2"}}, None)
        other = tree.Seen(2, {}, {"a": {"OMP_NUM_THREADS": "2,1", "GOMAXPROCS": "2"}}, None)
        self.assertEqual(same.seen_differences(program.Same(), plain, other),
                         ["a sees OMP_NUM_THREADS '2,1' instead of '2,2'", "a sees GOMAXPROCS '2' instead of not at all"])
        self.assertEqual(same.seen_differences(program.Same(counts="ignored"), plain, other), [])

    def test_the_counts_are_those_of_the_program_s_table(self):
        table = (ROOT / "crates/core/src/place/runtimes/thread_counts.rs").read_text()
        names = re.findall(r'ThreadCount::new\((?:"(\w+)"|OPENMP)', table)
        self.assertEqual(["OMP_NUM_THREADS", *filter(None, names)], list(program.COUNTS))


class Intervals(unittest.TestCase):
    def test_a_constant_loss_is_found_and_no_loss_is_not(self):
        self.assertTrue(interval.paired([(1.0, 1.1)] * 7, 1).slower)
        self.assertFalse(interval.paired([(1.0, 1.0)] * 7, 1).slower)

    def test_a_loss_within_noise_is_not_called_one(self):
        draw = random.Random(5)
        pairs = [(1.0, 1.03 + draw.uniform(-0.3, 0.3)) for _ in range(9)]
        self.assertFalse(interval.paired(pairs, 1).slower)

    def test_few_pairs_give_no_verdict_and_none_no_interval(self):
        self.assertIsNone(interval.paired([(1.0, 2.0)] * 4, 1).slower)
        self.assertIsNone(interval.paired([], 1))

    def test_the_same_seed_gives_the_same_interval(self):
        pairs = [(1.0, 1.0 + number / 50) for number in range(9)]
        self.assertEqual(interval.paired(pairs, 3), interval.paired(pairs, 3))

    def test_the_middle_lies_within_the_ends(self):
        draw = random.Random(6)
        for _ in range(20):
            one = interval.paired([(draw.uniform(1, 2), draw.uniform(1, 2)) for _ in range(draw.randint(1, 12))], 1)
            self.assertLessEqual(one.low, one.middle)
            self.assertLessEqual(one.middle, one.high)


class Machines(unittest.TestCase):
    def test_idle_and_waiting_time_is_not_busy(self):
        self.assertEqual(load.busy_ticks("cpu  1 2 4 1000 2000 8 16 32 64 128"), 63)

    def test_the_load_of_others_excludes_our_own(self):
        self.assertAlmostEqual(load.others_percent(1.5, 1.0, 1.0), 50)
        self.assertEqual(load.others_percent(0.9, 1.0, 1.0), 0)

    def test_lists_of_cpus_are_read_and_written(self):
        self.assertEqual(cpus.cpus_of("0-2,8\n"), {0, 1, 2, 8})
        self.assertEqual(cpus.list_of({8, 1}), "1,8")

    def test_descendants_are_found_at_any_depth(self):
        self.assertEqual(sorted(tree.below(1, {2: 1, 3: 2, 4: 3, 9: 8})), [2, 3, 4])

    def test_holds_are_read_from_the_ledgers_list(self):
        self.assertEqual(held_cpus('{"holds": [{"cpus": "0"}, {"cpus": "2-3"}]}'), {0, 2, 3})
        self.assertIsNone(held_cpus('{"holds": []}'))
        self.assertIsNone(held_cpus("nothing"))


class Records(unittest.TestCase):
    """The runner is process 1, and trimtab's programs are t."""

    def started(self, *steps):
        records = []
        for time, (what, process, other) in enumerate(steps):
            if what == "executes":
                records.append(births.Became(time, process, other))
            else:
                thread, parent = (other, process) if what == "thread" else (process, other)
                records.append(births.Born(time, process, thread, parent))
        random.Random(3).shuffle(records)
        return births.started(records, 1, {"t"})

    def test_a_program_its_threads_and_its_processes_are_counted(self):
        plain = [("forks", 10, 1), ("executes", 10, "a"), ("thread", 10, 11), ("forks", 12, 10), ("thread", 12, 13), ("executes", 12, "b")]
        self.assertEqual(self.started(*plain), 4)

    def test_the_runners_own_threads_and_other_processes_are_not(self):
        self.assertEqual(self.started(("thread", 1, 5), ("forks", 10, 1), ("forks", 90, 80), ("thread", 80, 81), ("executes", 90, "a")), 0)

    def test_trimtabs_processes_do_not_count_and_the_programs_that_they_become_do(self):
        run = [("forks", 10, 1), ("executes", 10, "t"), ("thread", 10, 11), ("executes", 10, "a"), ("thread", 10, 12)]
        self.assertEqual(self.started(*run), 2)
        balanced = [("forks", 10, 1), ("executes", 10, "t"), ("forks", 20, 10), ("thread", 10, 11), ("executes", 20, "a"), ("thread", 20, 21)]
        self.assertEqual(self.started(*balanced), 2)

    def test_a_process_counts_once_for_any_programs_that_it_executes(self):
        self.assertEqual(self.started(("forks", 10, 1), ("executes", 10, "taskset"), ("executes", 10, "a")), 1)

    def test_a_launchers_child_that_becomes_trimtab_counts_as_the_program_behind_it(self):
        rank = [("forks", 10, 1), ("executes", 10, "mpirun"), ("forks", 20, 10)]
        self.assertEqual(self.started(*rank, ("executes", 20, "a")), 2)
        self.assertEqual(self.started(*rank, ("executes", 20, "t"), ("executes", 20, "a")), 2)
        self.assertEqual(self.started(*rank, ("executes", 20, "t"), ("forks", 30, 20), ("executes", 30, "a")), 2)

    def test_a_program_that_executes_itself_stays_the_same_process(self):
        run = [("forks", 10, 1), ("executes", 10, "t"), ("forks", 20, 10), ("executes", 20, "exe"), ("executes", 10, "a")]
        self.assertEqual(self.started(*run), 1)
        self.assertEqual(self.started(("forks", 10, 1), ("executes", 10, "a"), ("forks", 20, 10), ("executes", 20, "exe")), 2)

    def test_a_process_id_may_come_again(self):
        self.assertEqual(self.started(("forks", 10, 1), ("executes", 10, "a"), ("forks", 20, 10), ("forks", 20, 10)), 3)

    def test_names_are_as_long_as_the_kernel_keeps_them(self):
        records = [births.Born(0, 10, 10, 1), births.Became(1, 10, "trimtab-discove")]
        self.assertEqual(births.started(records, 1, {"trimtab-discover"}), 0)


class Requirements(unittest.TestCase):
    def test_names_are_compared_as_pip_spells_them(self):
        self.assertEqual(supply.normal("Scikit_Learn==1.0"), "scikit-learn==1.0")


class Masks(unittest.TestCase):
    def test_a_mask_counts_if_the_thread_keeps_it_or_has_it_for_long(self):
        last = {"1": ("own", "a"), "2": ("other", "b"), "3": ("own", "c")}
        looks = {("1", "own"): 50, ("1", "visited"): 19, ("2", "other"): 5, ("2", "brief"): 4, ("3", "left"): 20, ("3", "own"): 4}
        self.assertEqual(sorted(tree.steady(looks, last)), [("left", "c"), ("other", "b"), ("own", "a")])


class Samples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        adopt_orphans()

    def take(self, *command, limit=20.0, watched=False, **keys):
        with tempfile.TemporaryDirectory() as folder:
            surroundings = Surroundings(Path("/nowhere/trimtab"), {"PATH": "/usr/bin:/bin", "A": "1"}, Path(folder), limit)
            if watched:
                surroundings = Surroundings(Path("/bin/true"), surroundings.environment, Path(folder), limit)
            return take(variant.Start(command), surroundings, watched=watched, **keys)

    def test_status_streams_and_files_are_kept(self):
        sample = self.take("sh", "-c", "echo out; echo err >&2; echo x > f; exit 7", files=("f", "g"))
        self.assertEqual((sample.status, sample.out, sample.err), (7, b"out\n", b"err\n"))
        self.assertEqual([value is None for value in sample.files.values()], [False, True])

    def test_a_signal_is_a_status(self):
        self.assertEqual(self.take("sh", "-c", "kill -SEGV $$").status, -11)

    def test_a_hanging_program_is_killed(self):
        self.assertIsNone(self.take("sleep", "60", limit=0.2).status)

    def test_remaining_processes_are_named_and_ended(self):
        self.assertEqual(self.take("sh", "-c", "setsid sleep 60 & :").left, ["sleep"])

    def test_threads_masks_and_variables_are_seen(self):
        seen = self.take("sleep", "0.5", watched=True).seen
        self.assertEqual(len(seen.masks), 1)
        self.assertTrue(any(variables.get("A") == "1" for variables in seen.environments.values()))


    def confined(self, how):
        """What programs that ask the kernel for a mask, and the C library for the online CPUs, count on one CPU."""
        cpu = frozenset([min(os.sched_getaffinity(0))])
        with tempfile.TemporaryDirectory() as folder:
            prepared = how(cpu, Path(folder))
            if prepared is None:
                self.skipTest("it needs root")
            start = variant.Start(("sh", "-c", "nproc; getconf _NPROCESSORS_ONLN"), confine=prepared)
            sample = take(start, Surroundings(Path("/nowhere/trimtab"), {"PATH": "/usr/bin:/bin"}, Path(folder), 20.0))
        return sample.out.decode().split()

    def test_a_mask_confines_and_changes_no_count_of_online_cpus(self):
        self.assertEqual(self.confined(confine.by_mask), ["1", str(os.sysconf("SC_NPROCESSORS_ONLN"))])

    def test_a_sample_can_have_the_only_cpus_that_are_online(self):
        if not os.access("/proc/self/ns/mnt", os.R_OK) or os.system("unshare --mount true 2>/dev/null") != 0:
            self.skipTest("no mount namespace can be made here")
        self.assertEqual(self.confined(confine.by_online), ["1", "1"])
        self.assertEqual(os.sysconf("SC_NPROCESSORS_ONLN"), len(cpus.cpus_of(Path("/sys/devices/system/cpu/online").read_text())))

    def births(self, *command):
        """What three samples of a command start, all the same; a sample without all records, on a busy machine, is taken again."""
        if refused := births.refusal():
            self.skipTest(f"births cannot be counted here: {refused}")
        seen = (self.take(*command, watched=True).seen for _ in range(12))
        whole = list(itertools.islice((one.threads for one in seen if not one.lost), 3))
        self.assertEqual(len(whole), 3, "records of births were lost in ten of twelve samples")
        counts = set(whole)
        self.assertEqual(len(counts), 1, counts)
        return counts.pop()

    def test_threads_that_live_for_a_moment_are_counted(self):
        script = "import threading\nfor _ in range(40):\n t = threading.Thread(target=int)\n t.start()\n t.join()"
        self.assertEqual(self.births(sys.executable, "-S", "-E", "-c", script), 41)

    def test_processes_that_live_for_a_moment_are_counted_and_executions_are_not(self):
        self.assertEqual(self.births("sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do env; done"), 10)
        self.assertEqual(self.births("env", "env", "env"), 1)

    def test_more_births_than_a_buffer_holds_are_counted(self):
        self.assertEqual(self.births("sh", "-c", "i=0; while [ $i -lt 20000 ]; do (:); i=$((i + 1)); done"), 20001)

    def test_processes_that_are_left_behind_are_counted(self):
        self.assertEqual(self.births("sh", "-c", "(sleep 0.1; env; :) & :"), 4)


class Sessions(unittest.TestCase):
    def results(self):
        plain = Measured(seconds=[1.0] * 6, noisy=[False] * 6, others_percent=[1.0] * 6)
        slow = Measured(seconds=[1.2] * 6, noisy=[False] * 6, others_percent=[1.0] * 6)
        busy = Measured(seconds=[9.0] * 6, noisy=[True] * 6, others_percent=[90.0] * 6)
        wrong = Measured(differences=["status 1 instead of 0"])
        good = Measured(seconds=[1.0] * 6, noisy=[False] * 6, others_percent=[1.0] * 6)
        return [
            Result("fine", "a", "k", variants={"plain": plain, "run": good}),
            Result("slow", "a", "k", variants={"plain": plain, "run": slow}),
            Result("busy", "a", "k", variants={"plain": plain, "run": busy}),
            Result("wrong", "a", "k", variants={"plain": plain, "run": wrong}),
            Result("broken", "a", "k", fault="plain: status 1 instead of 0"),
            Result("absent", "a", "k", skipped="no registry has it"),
        ]

    ABOUT = {"date": "2026-01-01T00:00:00Z", "commit": "c", "processor": "p", "virtual": False, "cpus": 2, "kernel": "6", "system": "s",
             "trimtab": "t", "build": "debug", "seed": 1, "rounds": 6}

    def test_a_difference_a_loss_and_a_broken_program_fail_and_noise_does_not(self):
        self.assertEqual([result.name for result in self.results() if result.failed(1)], ["slow", "wrong", "broken"])

    def test_the_summary_counts_and_ends_in_the_counts(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = session.summary(self.ABOUT, self.results())
        self.assertEqual(status, 1)
        self.assertEqual(out.getvalue().splitlines()[-1], "2 passed, 3 failed, 1 skipped")
        self.assertIn("SKIPPED: absent: no registry has it", out.getvalue())
        self.assertIn("NOT JUDGED: the time of 2 programs, of which too few samples were quiet: busy, wrong", out.getvalue())

    def test_missing_counts_are_reported(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            session.summary({**self.ABOUT, "births_refused": "perf_event_open: Operation not permitted"}, self.results())
        self.assertIn("NOT COUNTED: the threads of all programs (perf_event_open: Operation not permitted)", out.getvalue())

    def test_a_program_that_seems_slower_is_measured_again_and_the_later_rounds_alone_decide(self):
        class Told(Measuring):
            """A program whose `run` is slower in the first rounds, and in the later ones by `later`."""

            def __init__(self, later):
                plan = Plan(None, ("plain", "run"), 5, 1, False)
                super().__init__(made(), Places(Path("/t"), Path("/s")), plan, lambda words: None)
                self.result.variants = {"plain": Measured(), "run": Measured()}
                self.later, self.taken = later, 0

            def timed(self, name, number):
                self.taken += 1
                slower = 1.1 if self.taken <= 10 else self.later
                measured = self.result.variants[name]
                measured.seconds.append(1.0 if name == "plain" else slower)
                measured.noisy.append(False)

        for later, failed in ((1.0, False), (1.1, True)):
            told = Told(later)
            told.rounds(5)
            told.confirm()
            self.assertEqual(told.taken, 10 + 30)
            self.assertEqual(told.result.first, {"run": "+10.0 % [+10.0, +10.0]"})
            self.assertEqual(told.result.failed(1), failed)
            self.assertIn("run in the first rounds: +10.0 %", table.page(self.ABOUT, [told.result]))

    def test_a_program_that_does_not_seem_slower_is_not_measured_again(self):
        fine = self.results()[0]
        measuring = Measuring(made(), Places(Path("/t"), Path("/s")), Plan(None, ("plain", "run"), 6, 1, False), None)
        measuring.result = fine
        measuring.confirm()
        self.assertEqual((fine.first, len(fine.variants["run"].seconds)), ({}, 6))

    def test_a_later_result_keeps_earlier_differences(self):
        slow, later = self.results()[1], self.results()[0]
        slow.variants["run"].differ(["stdout: 1 instead of 2"])
        slow.doubt(1)
        self.assertEqual(slow.variants["run"].seconds, [])
        decided = slow.decided_by(later)
        self.assertEqual((decided.different(), list(decided.first)), (["run"], ["run"]))
        self.assertEqual(decided.slower(1), [])

    def test_a_program_that_is_measured_again_replaces_its_result_or_joins(self):
        results = self.results()
        anew, other = Result(results[1].name, "a", "k"), Result("zzz", "a", "k")
        names = sorted(result.name for result in results)
        both = session.joined(session.joined(results, anew), other)
        self.assertEqual([result.name for result in both], [*names, "zzz"])
        self.assertIs(next(result for result in both if result.name == anew.name), anew)
        about = {**self.ABOUT, "again": {"commit": "abc", "programs": [anew.name]}}
        self.assertIn(f"Measured later, at commit abc: {anew.name}.", table.page(about, both))

    def test_a_record_is_read_as_it_was_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "record.json"
            record.write(path, self.ABOUT, self.results(), 1)
            self.assertEqual(record.read(path), (self.ABOUT, self.results()))

    def test_the_table_begins_with_losses_and_ends_with_skipped_programs(self):
        text = table.page(self.ABOUT, self.results())
        parts = ("### Losses", "**wrong** (run): status 1", "### All", "| slow |", "| fine |", "### Skipped")
        order = [text.index(words) for words in parts]
        self.assertEqual(order, sorted(order))

    def test_the_table_goes_between_the_marks_of_the_page(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "corpus.md"
            path.write_text(PAGE.read_text())
            table.put("TEXT", path)
            content = path.read_text()
            self.assertEqual(content.split(table.MARKS[0])[0], PAGE.read_text().split(table.MARKS[0])[0])
            self.assertIn(f"{table.MARKS[0]}\nTEXT\n{table.MARKS[1]}", content)

    def test_plain_is_always_among_the_variants(self):
        self.assertEqual(options.parse(["--variant", "report,run"]).variant, ("plain", "run", "report"))

    def test_a_pattern_takes_several_programs_and_a_wrong_name_none(self):
        programs = program.every(PROGRAMS)
        self.assertGreater(len(session.chosen(programs, ["gromacs-*"], "all")), 1)
        with self.assertRaisesRegex(program.Fault, "there is no program nonsense"):
            session.chosen(programs, ["nonsense"], "all")


if __name__ == "__main__":
    unittest.main()
