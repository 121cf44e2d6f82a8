"""The machine and the moment of a measurement."""

import datetime
import os
import platform
import re
import subprocess
from pathlib import Path

from .places import REPOSITORY


def describe(trimtab, seed, rounds):
    """What a reader of the figures must know."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    virtual = "hypervisor" in Path("/proc/cpuinfo").read_text()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit(),
        "processor": model,
        "virtual": virtual,
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": re.match(r"[\d.]*", platform.release())[0],  # without the builder's suffix
        "system": system(),
        "trimtab": said(str(trimtab), "--version"),
        "build": "debug" if Path(trimtab).resolve().parent.name == "debug" else "release",
        "seed": seed,
        "rounds": rounds,
    }


def commit():
    """The commit of the repository, and whether files differ from it; empty outside of a repository."""
    changed = said("git", "-C", str(REPOSITORY), "status", "--porcelain", "--untracked-files=no")
    return said("git", "-C", str(REPOSITORY), "rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")


def system():
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return platform.system()
    return dict(line.replace('"', "").split("=", 1) for line in lines if "=" in line).get("PRETTY_NAME", "")


def said(*command):
    """What a program says, or nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
