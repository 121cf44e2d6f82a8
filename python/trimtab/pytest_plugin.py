"""pytest plug-in: cores of its own for each worker of pytest-xdist.

    pytest -n 4 --trimtab-cores 2        four workers with two cores each, which no other run of trimtab has meanwhile
    pytest -n auto --trimtab-cores 1     as many workers as there are free cores
    pytest --trimtab-cores 4             without pytest-xdist: this process

Idea: the process that distributes the tests reserves the cores of all workers at once, so that either all of them have their
cores or none starts, and divides them. A worker binds itself, and sets the variables for thread counts before a test is imported.
A worker that replaces a crashed one gets its part. The kernel gives the cores back when the first process ends in any way.
"""

import os
from typing import Any, Dict, List, Optional

import pytest

import trimtab

_INPUT = "trimtab"


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("trimtab", "cores for workers")
    group.addoption("--trimtab-cores", metavar="N", type=int, help="reserve N cores for each worker of pytest-xdist (-n), or for this process without it")
    group.addoption("--trimtab-wait", metavar="TIME", help="wait for the cores: 10m, or forever")


def pytest_configure(config: Any) -> None:
    given = getattr(config, "workerinput", {}).get(_INPUT)
    if given is not None:
        _bind(given)
        return
    cores = config.getoption("--trimtab-cores")
    if cores is None or hasattr(config, "workerinput"):
        return
    if cores < 1:
        raise pytest.UsageError("--trimtab-cores: a worker has at least 1 core")
    workers = _Workers(config, cores)
    config.pluginmanager.register(workers, "trimtab-workers")
    distributed = config.pluginmanager.hasplugin("dsession") or getattr(config.option, "tx", None)
    if not distributed:
        _bind(workers.reserve(1)[0])


def _bind(given: Dict[str, Any]) -> None:
    """Binds this process, and sets the variables for libraries that are loaded later."""
    os.sched_setaffinity(0, given["cpus"])
    for name, value in given["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class _Workers:
    """The cores of all workers, in the process that distributes the tests."""

    def __init__(self, config: Any, cores: int) -> None:
        self._cores, self._wait = cores, config.getoption("--trimtab-wait")
        self._parts: List[trimtab.Cores] = []
        self._free: List[Dict[str, Any]] = []
        self._given: Dict[str, Dict[str, Any]] = {}

    def reserve(self, workers: int) -> List[Dict[str, Any]]:
        try:
            wait = True if self._wait == "forever" else self._wait
            with trimtab.reserve(self._cores * workers, wait=wait, label=f"pytest, {workers} workers", strict=True) as whole:
                self._parts = [whole.part(self._cores, label=f"pytest worker {index}") for index in range(workers)]
        except (trimtab.Error, ValueError) as error:
            raise pytest.UsageError(f"--trimtab-cores {self._cores}, {workers} workers: {error}") from None
        self._free = [{"cpus": sorted(part.cpus), "environment": part.variables()} for part in self._parts]
        return self._free

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_xdist_auto_num_workers(self) -> Optional[int]:
        idle = trimtab.plan(None)["threads"]
        return max(1, idle // self._cores)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: List[Any]) -> None:
        self.reserve(len(specs))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        # More workers than at the start do not run at the same time: each replaces one that ended.
        if self._free:
            given = self._free.pop(0)
            self._given[node.gateway.id] = given
            node.workerinput[_INPUT] = given

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        given = self._given.pop(node.gateway.id, None)
        if given is not None:
            self._free.append(given)

    def pytest_unconfigure(self) -> None:
        for part in self._parts:
            part.release()
