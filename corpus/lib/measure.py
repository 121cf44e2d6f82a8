"""Measuring: a program's samples in all variants, in turns."""

import os
import random
import re
import time
from dataclasses import dataclass, replace

from . import same, supply
from .confine import by_mask, by_online
from .result import Measured, Result
from .sample import Surroundings, take
from .variant import OTHER_TEAMS, Start, start

RETAKES = 2  # of a sample that differs while others were busy
CONFIRM_TIMES = 3  # times the rounds, by which a program is measured again that seems slower in a variant. With five pairs, one
# program in 32 has all of them on one side by chance, which is several of the corpus.
EXTRA_ROUNDS = 2  # times the rounds, at most, where too few samples were quiet
HANG_TIMES = 4.0  # the first plain sample's time by this, if it is longer than a program's limit, is the limit of all later samples:
# beside others, threads that spin take minutes. The first sample itself may take the program's limit by this.
RETAKE_SECONDS = 5.0  # what such samples of one variant may take together
PAUSE_SECONDS = 0.3  # before a sample is taken again
VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*|\d{6,}")
PASSED_ON = ("LANG", "LC_ALL", "TERM", "USER", "LOGNAME", "SHELL")


@dataclass(frozen=True)
class Plan:
    """What a session measures."""

    trimtab: object
    variants: tuple
    rounds: int
    seed: int
    quiet_check: bool
    survey: str = "auto"  # how runs measure the load of others
    deadline: float = float("inf")  # by the monotonic clock; no sample begins after it


class Overdue(Exception):
    """The time that the session may take is over."""


class Measuring:
    """One program under measurement."""

    def __init__(self, program, places, plan, say, confirms=True):
        self.program, self.places, self.plan, self.say, self.confirms = program, places, plan, say, confirms
        words = supply.words(places, program)
        self.words = words
        self.surroundings = Surroundings(plan.trimtab, surroundings(places, program, words), places.samples, HANG_TIMES * program.limit)
        self.result = Result(program.name, program.about, program.kind, program.note)
        self.plain = None  # the first plain sample, which the others are compared with
        self.narrower = {}  # (set of CPUs, how) -> a plain sample on these, where a run found the others busy

    def all(self):
        """Measures until done; after an interruption the result holds what there is."""
        self.result.version = self.version()
        names = self.program.variants(self.plan.variants)
        for name in names:
            self.result.variants[name] = Measured()
        for name in names:
            self.watched(name)
            if self.result.fault:
                return self.result
        self.rounds(self.plan.rounds)
        self.confirm()
        return self.result

    def rounds(self, count):
        """Takes a sample of each variant in each of `count` rounds, in drawn orders; up to `EXTRA_ROUNDS` times as many rounds
        if too few samples were quiet."""
        order = random.Random(f"{self.plan.seed} {self.program.name} {count}")
        for number in range(EXTRA_ROUNDS * count):
            if number >= count and not self.result.unjudged():
                break
            turn = list(self.result.variants)
            order.shuffle(turn)
            for name in turn:
                self.timed(name, number)

    def confirm(self):
        """Measures a program again that seems slower in a variant. Only the new rounds decide, since those before chose it."""
        if self.confirms and self.result.slower(self.plan.seed):
            self.result.doubt(self.plan.seed)
            self.say(f"  seems slower ({', '.join(f'{name} {words}' for name, words in self.result.first.items())}): "
                     f"{CONFIRM_TIMES * self.plan.rounds} more rounds decide")
            self.rounds(CONFIRM_TIMES * self.plan.rounds)

    def version(self):
        if self.program.version:
            done = supply.run([supply.filled(word, self.words) for word in self.program.version], seconds=30,
                              folder=self.places.home, environment=self.surroundings.environment)
            found = VERSION.search(done.stdout or "")
            return found[0] if found else ""
        packages = self.program.debian or self.program.unpacked
        if self.program.python:
            pins = supply.requirements(supply.CORPUS / f"requirements-{self.program.venv}.txt")
            return pins[self.program.python[0]]
        if packages:
            done = supply.run(["dpkg-query", "-W", "-f", "${Version}", packages[0]])
            return re.sub(r"^\d+:|[-+].*$", "", done.stdout) if done.returncode == 0 else ""
        return ""

    def sample(self, name, watched, confine=None):
        """One sample; its process calls `confine` first."""
        if time.monotonic() > self.plan.deadline:
            raise Overdue
        program = self.program
        report = self.places.samples / f"{name}.txt"
        command = start(program, name, self.plan.trimtab, report, self.plan.survey)
        filled = Start(tuple(supply.filled(word, self.words) for word in command.command), command.attach, confine, command.environment)
        taken = take(filled, self.surroundings, program.same.files, watched, program.attach_after)
        if self.plan.quiet_check:
            noisy = ", noisy" if taken.noisy else ""
            self.say(f"  {program.name} {name}: {taken.seconds:.3f} s, CPU {taken.cpu_seconds:.2f} s, others {taken.others_percent:.0f} %{noisy}")
        return taken

    def watched(self, name):
        """A sample beside which the processes are looked at; its time does not count. It comes first, and so warms up."""
        measured = self.result.variants[name]
        for attempt in range(RETAKES + 1):
            taken = self.sample(name, watched=True)
            if name == "plain":
                self.begin(taken)
                if self.result.fault:
                    return
            found = self.compared(name, taken)
            if not found or not taken.noisy or not self.again(attempt, taken):
                break
        measured.differ(marked(found, taken))
        measured.threads = taken.seen.threads
        measured.environment = same.changed_variables(self.plain.seen, taken.seen)
        self.keep_words(measured, taken)

    def begin(self, taken):
        """Takes the first plain sample as the reference, or finds the program at fault."""
        self.plain = taken
        if taken.status != self.program.same.status:
            self.result.fault = (f"plain: status {same.status_words(taken.status)} instead of {self.program.same.status}"
                                 f"{same.last_words(taken.err)}")
        self.surroundings = replace(self.surroundings, limit=max(self.program.limit, HANG_TIMES * taken.seconds))

    def timed(self, name, number):
        """A sample whose time counts."""
        measured = self.result.variants[name]
        taken = self.sample(name, watched=False)
        found = self.compared(name, taken)
        if found and name != "plain":
            # Perhaps a run found CPUs busy at its start and left them: the ledger is asked about another sample.
            again = self.sample(name, watched=True)
            repeated = marked(self.compared(name, again), again)
            if not repeated:
                measured.words.append(f"differed in one sample, not when it was taken again: {found[0]}")
            found = repeated
        if name == "plain" and found:
            self.result.fault = self.result.fault or f"plain differs from itself: {found[0]}"
        else:
            measured.differ(found)
        while len(measured.seconds) < number:
            measured.seconds.append(None)
            measured.noisy.append(True)
        measured.seconds.append(taken.seconds if taken.status == self.plain.status and not taken.late else None)
        measured.noisy.append(taken.noisy)
        measured.cpu_seconds.append(round(taken.cpu_seconds, 3))
        measured.others_percent.append(round(taken.others_percent, 1))
        self.keep_words(measured, taken)

    def again(self, attempt, taken):
        """Whether a doubtful sample is taken once more, after a pause."""
        if attempt == RETAKES or (attempt + 1) * taken.seconds > RETAKE_SECONDS:
            return False
        time.sleep(PAUSE_SECONDS)
        return True

    def compared(self, name, taken):
        """In what a sample differs from plain: from plain on the same CPUs, if it was given fewer."""
        given = taken.given() if taken.seen is not None and name != "plain" else None
        if not given or given >= self.cpus():
            return self.compared_with(self.plain, name, taken)
        found = self.compared_with(self.plain_on(given, by_mask), name, taken)
        if found and (counted := self.plain_on(given, by_online)):
            found = found if self.compared_with(counted, name, taken) else []
        return found

    def compared_with(self, plain, name, taken):
        rules = self.program.same
        found = same.differences(rules, plain, taken)
        if name != "plain" and not found and taken.seen is not None:
            # Another setting of the teams has other numbers of threads.
            rules = replace(rules, threads="ignored", counts="ignored") if name in OTHER_TEAMS else rules
            found = same.seen_differences(rules, plain.seen, taken.seen)
        return found

    def plain_on(self, cpus, how):
        """A plain sample on some CPUs; None where it cannot be confined in this way."""
        if (cpus, how) not in self.narrower:
            confine = how(cpus, self.places.samples)
            self.narrower[cpus, how] = confine and self.sample("plain", watched=True, confine=confine)
        return self.narrower[cpus, how]

    def cpus(self):
        """CPUs that a plain run may use."""
        return max(self.plain.seen.masks, key=len, default=frozenset(os.sched_getaffinity(0)))

    def keep_words(self, measured, taken):
        measured.late += taken.late
        for line in same.own_lines(taken.err):
            if line not in measured.words and len(measured.words) < 20:
                measured.words.append(line)


def marked(found, taken):
    """Differences, which may come of others where these were busy."""
    return [f"{line} (while others were busy)" if taken.noisy else line for line in found]


def surroundings(places, program, words):
    """The variables that every sample starts with: few, so that nothing of the caller's decides what happens."""
    home = os.path.expanduser("~")
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {
        "LANG": "C.UTF-8", "TERM": "xterm", **kept,
        "PATH": supply.search_path(),
        "HOME": str(places.home),
        # Toolchains stay where the caller has them.
        "CARGO_HOME": os.environ.get("CARGO_HOME", f"{home}/.cargo"),
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", f"{home}/.rustup"),
        "TRIMTAB_LEDGER": str(places.ledger),
        "TRIMTAB_CONFIG": str(places.rules),
        **{name: supply.filled(value, words) for name, value in program.environment.items()},
    }
