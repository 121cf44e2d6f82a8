"""A sample: one run of a program, from its start to its end."""

import contextlib
import ctypes
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field

from .cpus import cpus_of
from .load import NOISY_PERCENT, Load
from .tree import Watch, below, parents

GRACE_SECONDS = 0.5  # for processes that outlive the first one, as daemons that were told to end
DETACH_SECONDS = 10.0  # for a balancer to notice that its program ended
OUTPUT_AT_MOST = 4 << 20  # bytes of a stream that are kept and compared
LATE = "the program ended before it could be attached to"
PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Sample:
    """What a run came to."""

    status: int = 0  # minus the signal's number where one ended it; None where it was stopped as hanging
    out: bytes = b""
    err: bytes = b""
    files: dict = field(default_factory=dict)  # name -> digest, or None where it is missing
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of all its processes, trimtab's and the looks at them included
    others_percent: float = 0.0
    left: list = field(default_factory=list)  # names of processes that outlived the program
    seen: object = None  # of a sample that was watched
    attach: str = ""  # what went wrong with the balancer beside it

    @property
    def noisy(self):
        return self.others_percent > NOISY_PERCENT

    @property
    def late(self):
        """Whether the balancer beside it came too late, so that nothing was tried."""
        return self.attach == LATE

    def given(self):
        """The CPUs that a run was given: those held, by the ledger; or those of all masks, where others delayed the question."""
        if self.seen.held is not None or not self.noisy:
            return self.seen.held
        return frozenset().union(*self.seen.masks) or None


@dataclass(frozen=True)
class Surroundings:
    """What samples of a session have in common."""

    trimtab: object
    environment: dict
    folder: object  # emptied before every sample
    limit: float


def adopt_orphans():
    """Makes the runner the parent of what its children leave behind, so that their CPU time is known and they can be ended."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def take(start, surroundings, files=(), watched=False, attach_after=0.1):
    """Runs the command once."""
    cwd = fresh(surroundings.folder / "cwd")
    paths = [surroundings.folder / name for name in ("out", "err", "attach")]
    environment = {**surroundings.environment, "TMPDIR": str(cwd), "PWD": str(cwd), **dict(start.environment)}
    sample = Sample()
    watch = Watch(surroundings.trimtab, lambda: holds(surroundings)) if watched else None
    with open(paths[0], "wb") as out, open(paths[1], "wb") as err, open(paths[2], "wb") as words:
        before = Load()
        begin = time.perf_counter()
        try:
            child = subprocess.Popen(start.command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                     start_new_session=True, preexec_fn=start.confine)
            if watch:
                watch.start()
            balancer = beside(start, child, attach_after, environment, words)
            sample.status = ended(child, surroundings.limit - (time.perf_counter() - begin))
            sample.seconds = time.perf_counter() - begin
            sample.attach = detached(balancer, paths[2])
        finally:
            if watch and watch.is_alive():
                watch.stop()
            sample.left = swept()
            if watch:
                sample.seen = watch.counted()
    after = Load()
    sample.others_percent, sample.cpu_seconds = after.others_percent(before), after.own - before.own
    sample.out, sample.err = (path.read_bytes()[:OUTPUT_AT_MOST] for path in paths[:2])
    sample.files = {name: digest(cwd / name) for name in files}
    return sample


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def beside(start, child, after, environment, words):
    """The balancer that is started a moment after the program, if the variant has one."""
    if not start.attach:
        return None
    if ended(child, after, kill=False) is not None:
        return LATE
    return subprocess.Popen([*start.attach, str(child.pid)], env=environment, stdin=subprocess.DEVNULL, stdout=words,
                            stderr=words, start_new_session=True)


def detached(balancer, path):
    """What went wrong with the balancer; empty where nothing did."""
    if balancer is None or isinstance(balancer, str):
        return balancer or ""
    status = ended(balancer, DETACH_SECONDS)
    if status == 0:
        return ""
    words = path.read_text(errors="replace").strip().splitlines()
    if words and any(end in words[-1] for end in ("there is no process", "have ended", "has ended")):
        return LATE
    return f"attach {'stayed after the program' if status is None else f'ended with {status}'}: {words[-1] if words else ''}"


def ended(child, seconds, kill=True):
    """The status of a child, or None if it did not end in time and was killed if so wished."""
    if child.returncode is None:
        descriptor = os.pidfd_open(child.pid)
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            over = poll.poll(max(0, seconds) * 1000)
        finally:
            os.close(descriptor)
        if not over:
            if kill:
                child.kill()
                child.wait()
            return None
    return child.wait()


def swept():
    """Ends what is left below the runner, and names what did not end by itself."""
    until = time.monotonic() + GRACE_SECONDS
    while (left := descendants()) and time.monotonic() < until:
        time.sleep(0.01)
    names = sorted(name_of(process) for process in left)
    while left:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
        left = descendants()
    return names


def descendants():
    """Living processes below the runner; dead ones are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    return below(os.getpid(), parents())


def name_of(process):
    try:
        with open(f"/proc/{process}/comm", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "?"


def digest(path):
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return None


def holds(surroundings):
    """The CPUs that runs hold now, by the ledger; None where none does."""
    asked = subprocess.run([str(surroundings.trimtab), "ps", "--json"], env=surroundings.environment, capture_output=True,
                           text=True, stdin=subprocess.DEVNULL)
    return held_cpus(asked.stdout)


def held_cpus(words):
    """Of what `trimtab ps --json` prints."""
    try:
        runs = json.loads(words).get("holds", [])
    except ValueError:
        return None
    return frozenset().union(*(cpus_of(run["cpus"]) for run in runs)) if runs else None
