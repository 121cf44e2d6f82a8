"""Cores on call: reserves free cores of this machine for a program.

    import trimtab

    with trimtab.reserve(4, wait="10m") as cores:
        print(sorted(cores.cpus), cores.threads)
        cores.run(["./solver", "input"])     # a program on these cores, with the variables for them

The cores exclude every run of trimtab and every other caller, of any user. They are given back at the end of the block, by
release(), and by the kernel when the process ends in any way. Needs libtrimtab (trimtab.h); TRIMTAB_LIBRARY names another file
than the installed one.
"""

import asyncio
import json
import os
import re
import subprocess
import threading
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Union

from . import _library
from ._library import Busy, Cancelled, Error, Refused

__all__ = [
    "Busy", "Cancelled", "Cores", "Error", "Refused", "hold", "holds", "plan", "release", "reserve", "reserve_async", "resize", "version"
]

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
Wait = Union[None, bool, int, float, str]


def _wait_ms(wait: Wait) -> int:
    """Returns a wait in milliseconds: 0 for none, -1 without a limit."""
    if wait is None or wait is False:
        return 0
    if wait is True:
        return -1
    if isinstance(wait, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)\s*", wait)
        if not found:
            raise ValueError(f"wait={wait!r}: a number with ms, s, m, h or d, as in '10m'")
        wait = float(found[1]) * _UNITS[found[2]]
    if not 0 <= wait < 2**40:
        raise ValueError(f"wait={wait!r}: seconds from 0, True for no limit, None for no wait")
    # A wait above zero stays one.
    return max(round(wait * 1000), int(wait > 0))


def _cpus(text: str) -> FrozenSet[int]:
    cpus: List[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


class Cores:
    """Reserved cores, made by reserve(). A context manager that gives them back."""

    def __init__(self, handle: "_library.Handle") -> None:
        self._handle = handle
        self._document = json.loads(handle.describe())

    @property
    def cpus(self) -> FrozenSet[int]:
        """CPUs on which programs may run."""
        return _cpus(self._document["cpus"])

    @property
    def reserved(self) -> FrozenSet[int]:
        """CPUs that are reserved: those of `cpus`, and the idle hardware threads of the cores. Empty if nothing
        could be reserved, as `warnings` says."""
        return _cpus(self._document["reserved"])

    @property
    def hold(self) -> Optional[str]:
        """Number of the hold, which resize() and release(), and the commands of the same names, take."""
        return self._document.get("hold")

    @property
    def threads(self) -> int:
        """Number of threads that a program should use."""
        return int(self._document["threads"])

    @property
    def warnings(self) -> List[str]:
        """What the caller should know: cores that could not be reserved, a ledger that others do not see."""
        return list(self._document["warnings"])

    @property
    def launch(self) -> Dict[str, Any]:
        """The whole decision with its reasons, as in `trimtab plan --json`."""
        return dict(self._document["launch"])

    def environment(self, base: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
        """Returns the variables for a program on these cores: those of `base`, else of this process, with thread counts
        and binding for the cores. Runs of trimtab inside the program stay within the cores."""
        variables = dict(os.environ if base is None else base)
        for name, value in self._document["environment"].items():
            if value is None:
                variables.pop(name, None)
            else:
                variables[name] = value
        return variables

    def variables(self) -> Dict[str, Optional[str]]:
        """Returns the variables for a program on these cores alone: None removes one."""
        return dict(self._document["environment"])

    def pin(self) -> None:
        """Binds the calling thread to the cores. Threads and processes that it starts from now on inherit that."""
        self._handle.bind_thread()

    def popen(self, args: Sequence[Union[str, "os.PathLike[str]"]], **options: Any) -> "subprocess.Popen[Any]":
        """Starts a program on these cores, as subprocess.Popen. The program does not keep the cores reserved."""
        options["env"] = self.environment(options.get("env"))
        before = os.sched_getaffinity(0)
        self.pin()
        try:
            return subprocess.Popen(args, **options)
        finally:
            os.sched_setaffinity(0, before)

    def run(self, args: Sequence[Union[str, "os.PathLike[str]"]], **options: Any) -> "subprocess.CompletedProcess[Any]":
        """Runs a program on these cores to its end, as subprocess.run."""
        options["env"] = self.environment(options.get("env"))
        before = os.sched_getaffinity(0)
        self.pin()
        try:
            return subprocess.run(args, **options)
        finally:
            os.sched_setaffinity(0, before)

    def resize(self, cores: int) -> None:
        """Changes the number of cores: adds free ones near to them, or gives some back. Programs on the cores, and threads that
        are pinned to them, get new masks. Raises Busy if there are not enough free cores; the cores are then unchanged."""
        self._handle.resize(cores)
        self._document = json.loads(self._handle.describe())

    def part(self, cores: Union[None, int, str] = None, *, wait: Wait = None, label: Optional[str] = None, **options: Any) -> "Cores":
        """Reserves a part of these cores; parts exclude each other. The options are those of reserve(). A part holds the whole as
        long as it lasts."""
        given = _options(options, "part")
        return Cores(_library.reserve(_wanted(cores, wait=wait, label=label, **given), None, self._handle))

    def divide(self, parts: int) -> List["Cores"]:
        """Divides the cores into parts, which exclude each other: 6 cores in 4 parts have 2, 2, 1 and 1. Use each as the result of
        reserve(), and release it."""
        total = len({slot["core"] for slot in self._document["launch"]["plan"]["slots"]})
        if not 1 <= parts <= total:
            raise ValueError(f"{total} cores cannot be divided into {parts} parts")
        made: List[Cores] = []
        try:
            for index in range(parts):
                made.append(self.part(total // parts + (index < total % parts), label=f"part {index + 1} of {parts}"))
        except BaseException:
            for part in made:
                part.release()
            raise
        return made

    def release(self) -> None:
        """Gives the cores back. Further calls do nothing."""
        self._handle.release()

    def __enter__(self) -> "Cores":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    async def __aenter__(self) -> "Cores":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        state = "released" if self._handle.is_released() else f"CPUs {self._document['cpus']}"
        return f"<trimtab.Cores: {state}>"

    def __reduce__(self) -> Any:
        raise TypeError("cores cannot be sent to another process; a forked child shares them")


def _wanted(
    cores: Union[None, int, str],
    cpus: Optional[str],
    near: Optional[str],
    settings: Union[None, str, Mapping[str, object]],
    label: Optional[str],
    priority: int,
    or_fewer: bool,
    share: bool,
    strict: bool,
    rules: bool,
    wait: Wait = None,
) -> "_library.Wanted":
    if isinstance(settings, Mapping):
        settings = " ".join(f"{name}={value}" for name, value in settings.items())
    flags = [(or_fewer, 1), (share, 2), (not rules, 4), (strict, 8)]
    return _library.Wanted(
        None if cores is None else str(cores),
        cpus,
        near,
        settings,
        label,
        sum(flag for given, flag in flags if given),
        priority,
        _wait_ms(wait),
    )


def reserve(
    cores: Union[None, int, str] = None,
    *,
    wait: Wait = None,
    cpus: Optional[str] = None,
    near: Optional[str] = None,
    settings: Union[None, str, Mapping[str, object]] = None,
    label: Optional[str] = None,
    priority: int = 0,
    or_fewer: bool = False,
    share: bool = False,
    strict: bool = False,
    rules: bool = True,
    tell: Optional[Callable[[str], object]] = None,
) -> Cores:
    """Reserves cores.

    cores     number of cores, or the text of `trimtab run -c`: "50%", "2xl3", "node"; None: all that are idle
    wait      how long to wait in line: None not at all, True without a limit, seconds, or a text such as "10m"
    cpus      CPUs to choose from, as "0-7,16" or "S0:0-3"
    near      device to be near to, as "gpu:0", "nic:mlx5_0", "file:/data"
    settings  as `trimtab run --set`: "smt=all strategy=scatter", or a mapping
    label     name of the holder in `trimtab ps`; None: the name of the program
    priority  priority in the queue, within the site's rules
    or_fewer  accept fewer cores if there are not enough
    share     use cores of other holders, too
    strict    an error where nothing can be reserved; without it `warnings` says so
    rules     whether files of the site and the user count
    tell      called with each line about the wait, by another thread

    Raises Busy if there are not enough free cores (in time), Refused for a request that can never be met, Error otherwise.
    A KeyboardInterrupt ends the wait.
    """
    wanted = _wanted(cores, cpus, near, settings, label, priority, or_fewer, share, strict, rules, wait)
    return Cores(_library.reserve(wanted, tell))


def _options(options: Dict[str, Any], caller: str) -> Dict[str, Any]:
    """Returns the options of reserve() with the values that are not given."""
    given: Dict[str, Any] = {
        "cpus": None, "near": None, "settings": None, "priority": 0, "or_fewer": False, "share": False, "strict": False, "rules": True
    }
    unknown = set(options) - set(given) - {"label"}
    if unknown:
        raise TypeError(f"{caller}() got unknown options: {', '.join(sorted(unknown))}")
    return {**given, **options}


class _Reservation:
    """Reservation that is awaited, or entered by `async with`."""

    def __init__(self, wanted: "_library.Wanted", tell: Optional[Callable[[str], object]]) -> None:
        self._wanted, self._tell, self._cores = wanted, tell, None  # type: ignore[var-annotated]

    async def _reserve(self) -> Cores:
        cancelled, loop = threading.Event(), asyncio.get_running_loop()
        waiting = loop.run_in_executor(None, _library.reserve_until, self._wanted, self._tell, cancelled)
        try:
            return Cores(await asyncio.shield(waiting))
        except asyncio.CancelledError:
            cancelled.set()
            # Cores that were reserved in this moment are given back.
            waiting.add_done_callback(lambda done: done.exception() or done.result().release())
            raise

    def __await__(self) -> Any:
        return self._reserve().__await__()

    async def __aenter__(self) -> Cores:
        self._cores = await self._reserve()
        return self._cores

    async def __aexit__(self, *_: object) -> None:
        self._cores.release()


def reserve_async(cores: Union[None, int, str] = None, *, wait: Wait = True, tell: Optional[Callable[[str], object]] = None, **options: Any) -> _Reservation:
    """Reserves cores without blocking the event loop: `async with trimtab.reserve_async(4) as cores:`, or `await` it. The options are
    those of reserve(); it waits without a limit unless `wait` says otherwise. Cancelling the task ends the wait."""
    given = {"label": None, **_options(options, "reserve_async")}
    return _Reservation(_wanted(cores, wait=wait, **given), tell)


def plan(
    cores: Union[None, int, str] = None,
    *,
    cpus: Optional[str] = None,
    near: Optional[str] = None,
    settings: Union[None, str, Mapping[str, object]] = None,
    or_fewer: bool = False,
    share: bool = False,
    rules: bool = True,
) -> Dict[str, Any]:
    """Returns the cores that reserve() would take now, and why, as a document (trimtab.cores/1). Reserves nothing."""
    wanted = _wanted(cores, cpus, near, settings, None, 0, or_fewer, share, False, rules)
    return dict(json.loads(_library.plan(wanted)))


def hold(
    cores: Union[int, str],
    *,
    pid: Optional[int] = None,
    pidfd: Optional[int] = None,
    cgroup: Optional[str] = None,
    wait: Wait = None,
    label: Optional[str] = None,
    tell: Optional[Callable[[str], object]] = None,
    **options: Any,
) -> Dict[str, Any]:
    """Reserves cores for a process (by its PID or a pidfd) or a control group that runs already, binds its threads to them, and
    returns the document that `trimtab hold --json` prints; its field `hold` names the hold. The hold lasts until the target ends,
    also if this process ends before. The options are those of reserve()."""
    targets = [
        (kind, number, folder)
        for kind, number, folder in ((_library.PROCESS, pid, None), (_library.PIDFD, pidfd, None), (_library.CGROUP, 0 if cgroup else None, cgroup))
        if number is not None
    ]
    if len(targets) != 1:
        raise TypeError("hold() takes one of pid, pidfd and cgroup; reserve() holds cores for this process")
    wanted = _wanted(cores, wait=wait, label=label, **_options(options, "hold"))
    return dict(json.loads(_library.hold(wanted, *targets[0], tell)))


def resize(hold: Union[int, str], cores: int) -> Dict[str, Any]:
    """Changes the number of cores of a hold or a run, by a process of it or by its number ("0x..."), and returns the document that
    `trimtab resize --json` prints."""
    return dict(json.loads(_library.change("resize_hold", str(hold), cores)))


def release(hold: Union[int, str]) -> Dict[str, Any]:
    """Ends a hold of hold(), by its process or by its number, and returns the document that `trimtab release --json` prints."""
    return dict(json.loads(_library.change("release_hold", str(hold))))


def holds() -> Dict[str, Any]:
    """Returns the holds of this machine, and the queue, as `trimtab ps --json` shows them."""
    return dict(json.loads(_library.holds()))


def version() -> str:
    """Returns the version of libtrimtab."""
    return _library.version()
