"""The C interface of libtrimtab (trimtab.h), by ctypes."""

import ctypes
import ctypes.util
import os
import threading
from typing import Any, Callable, List, NamedTuple, Optional

_SONAME = "libtrimtab.so.0"
# Longest time until a signal is noticed, in seconds.
_JOIN_S = 0.1
_LOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)


class Error(Exception):
    """A request for cores failed."""


class Busy(Error):
    """There are not enough free cores now, or not in time."""


class Refused(Error):
    """The request can never be met here, or something cannot be read."""


class Cancelled(Error):
    """The wait was ended."""


_ERRORS = {1: Busy, 2: Refused, 3: Cancelled, 4: ValueError}


class Wanted(NamedTuple):
    """Wanted cores: the fields of struct trimtab_cores_wanted."""

    cores: Optional[str]
    cpus: Optional[str]
    near: Optional[str]
    settings: Optional[str]
    label: Optional[str]
    flags: int
    priority: int
    wait_ms: int


class _WantedOf(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("cores", ctypes.c_char_p),
        ("cpus", ctypes.c_char_p),
        ("near", ctypes.c_char_p),
        ("settings", ctypes.c_char_p),
        ("label", ctypes.c_char_p),
        ("flags", ctypes.c_uint32),
        ("priority", ctypes.c_int32),
        ("wait_ms", ctypes.c_int64),
        ("look", _LOOK),
        ("data", ctypes.c_void_p),
    ]


class _TargetOf(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("kind", ctypes.c_uint32), ("number", ctypes.c_int), ("cgroup", ctypes.c_char_p)]


# Kinds of targets.
PROCESS, PIDFD, CGROUP = 1, 2, 3


def _candidates() -> List[str]:
    named = os.environ.get("TRIMTAB_LIBRARY")
    if named:
        return [named]
    here = os.path.dirname(os.path.abspath(__file__))
    # Installed by pip: PREFIX/lib/python3.x/site-packages/trimtab beside PREFIX/lib/trimtab.
    beside = [os.path.join(here, *[".."] * up, "lib", folder, _SONAME) for up in (4, 3) for folder in ("trimtab", "")]
    return [os.path.join(here, _SONAME), *[path for path in beside if os.path.exists(path)], _SONAME]


def _load() -> Any:
    problems = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            problems.append(str(error))
            continue
        text = ctypes.POINTER(ctypes.c_char_p)
        for name, arguments in {
            "reserve": [ctypes.POINTER(_WantedOf), ctypes.POINTER(ctypes.c_void_p), text],
            "describe": [ctypes.c_void_p, text, text],
            "bind_thread": [ctypes.c_void_p, text],
            "plan": [ctypes.POINTER(_WantedOf), text, text],
            "list": [text, text],
            "resize": [ctypes.c_void_p, ctypes.c_uint, text],
            "reserve_part": [ctypes.c_void_p, ctypes.POINTER(_WantedOf), ctypes.POINTER(ctypes.c_void_p), text],
            "hold": [ctypes.POINTER(_WantedOf), ctypes.POINTER(_TargetOf), text, text],
            "resize_hold": [ctypes.c_char_p, ctypes.c_uint, text, text],
            "release_hold": [ctypes.c_char_p, text, text],
        }.items():
            function = getattr(library, f"trimtab_cores_{name}")
            function.argtypes, function.restype = arguments, ctypes.c_int
        library.trimtab_cores_release.argtypes, library.trimtab_cores_release.restype = [ctypes.c_void_p], None
        library.trimtab_cores_free.argtypes, library.trimtab_cores_free.restype = [ctypes.c_void_p], None
        library.trimtab_cores_version.argtypes, library.trimtab_cores_version.restype = [], ctypes.c_char_p
        return library
    raise ImportError(f"libtrimtab is not installed, or TRIMTAB_LIBRARY names the wrong file: {'; '.join(problems)}")


_library = _load()


def _taken(text: ctypes.c_char_p) -> str:
    """Returns a text of the library, and frees it."""
    words = (text.value or b"").decode(errors="replace")
    _library.trimtab_cores_free(ctypes.cast(text, ctypes.c_void_p))
    return words


def _call(name: str, *arguments: Any) -> None:
    error = ctypes.c_char_p()
    code = getattr(_library, f"trimtab_cores_{name}")(*arguments, ctypes.byref(error))
    if code:
        raise _ERRORS.get(code, Error)(_taken(error))


def _structure(wanted: Wanted, look: Any = None) -> _WantedOf:
    texts = [None if text is None else os.fsencode(text) for text in wanted[:5]]
    for text in texts:
        if text is not None and b"\0" in text:
            raise ValueError("a text contains a zero byte")
    return _WantedOf(ctypes.sizeof(_WantedOf), *texts, wanted.flags, wanted.priority, wanted.wait_ms, look or _LOOK(), None)


class Handle:
    """Reserved cores of the library."""

    def __init__(self, address: ctypes.c_void_p) -> None:
        self._address: Optional[ctypes.c_void_p] = address
        self._lock = threading.Lock()

    def _held(self) -> ctypes.c_void_p:
        if self._address is None:
            raise ValueError("the cores were released")
        return self._address

    def is_released(self) -> bool:
        return self._address is None

    def describe(self) -> str:
        text = ctypes.c_char_p()
        with self._lock:
            _call("describe", self._held(), ctypes.byref(text))
        return _taken(text)

    def bind_thread(self) -> None:
        with self._lock:
            _call("bind_thread", self._held())

    def resize(self, number: int) -> None:
        with self._lock:
            _call("resize", self._held(), number)

    def release(self) -> None:
        with self._lock:
            address, self._address = self._address, None
        if address is not None:
            _library.trimtab_cores_release(address)

    def __del__(self) -> None:
        # A module that is being taken down has no library any more; the kernel gives the cores back.
        if getattr(self, "_address", None) is not None and _library is not None:
            self.release()


def reserve(wanted: Wanted, tell: Optional[Callable[[str], object]], whole: Optional[Handle] = None) -> Handle:
    """Reserves cores, or a part of `whole`. A signal of Python's ends the wait: a thread of its own waits, since Python handles
    signals only between its own instructions, and in the main thread."""
    if not wanted.wait_ms or threading.current_thread() is not threading.main_thread():
        return reserve_until(wanted, tell, None, whole)
    cancelled, result = threading.Event(), []

    def work() -> None:
        try:
            result.append(reserve_until(wanted, tell, cancelled, whole))
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=work, name="trimtab.reserve", daemon=True)
    thread.start()
    try:
        # A signal that another thread gets does not end a wait for a lock.
        while thread.is_alive():
            thread.join(_JOIN_S)
    except BaseException:
        cancelled.set()
        thread.join()
        if result and isinstance(result[0], Handle):
            result[0].release()
        raise
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


def reserve_until(
    wanted: Wanted, tell: Optional[Callable[[str], object]], cancelled: Optional[threading.Event], whole: Optional[Handle] = None
) -> Handle:
    """Reserves cores; `cancelled` ends a wait."""
    address = ctypes.c_void_p()

    def call(structure: _WantedOf) -> None:
        if whole is None:
            _call("reserve", ctypes.byref(structure), ctypes.byref(address))
            return
        with whole._lock:
            _call("reserve_part", whole._held(), ctypes.byref(structure), ctypes.byref(address))

    _looking(call, wanted, tell, cancelled, lambda: Handle(address).release())
    return Handle(address)


def _looking(
    call: Callable[[_WantedOf], None],
    wanted: Wanted,
    tell: Optional[Callable[[str], object]],
    cancelled: Optional[threading.Event],
    undo: Callable[[], object],
) -> None:
    """Makes a call that may wait. An error of `tell` ends the wait, and what the call did is undone."""
    failure: List[BaseException] = []

    def look(_: Any, line: Optional[bytes]) -> int:
        # An exception must not cross the library: it ends the wait, and is raised again below.
        try:
            if line is not None and tell is not None:
                tell(line.decode(errors="replace"))
            return int(bool(failure) or (cancelled is not None and cancelled.is_set()))
        except BaseException as error:
            failure.append(error)
            return 1

    structure = _structure(wanted, _LOOK(look))
    try:
        call(structure)
    except Cancelled:
        if failure:
            raise failure[0] from None
        raise
    if failure:
        undo()
        raise failure[0]


def hold(wanted: Wanted, kind: int, number: int, cgroup: Optional[str], tell: Optional[Callable[[str], object]]) -> str:
    text = ctypes.c_char_p()
    target = _TargetOf(ctypes.sizeof(_TargetOf), kind, number, None if cgroup is None else os.fsencode(cgroup))

    def call(structure: _WantedOf) -> None:
        _call("hold", ctypes.byref(structure), ctypes.byref(target), ctypes.byref(text))

    _looking(call, wanted, tell, None, lambda: None)
    return _taken(text)


def change(name: str, hold: str, *numbers: int) -> str:
    text = ctypes.c_char_p()
    _call(name, hold.encode(), *numbers, ctypes.byref(text))
    return _taken(text)


def plan(wanted: Wanted) -> str:
    text = ctypes.c_char_p()
    structure = _structure(wanted)
    _call("plan", ctypes.byref(structure), ctypes.byref(text))
    return _taken(text)


def holds() -> str:
    text = ctypes.c_char_p()
    _call("list", ctypes.byref(text))
    return _taken(text)


def version() -> str:
    return str(_library.trimtab_cores_version().decode())
