#!/usr/bin/env python3
"""Enforcement of holds under a systemd that is booted in an emulated machine, whose control groups are the machine's own.

    testbed/guest -t 2n2c -l 300 -- packaging/tests/enforced.py FOLDER    # FOLDER has trimtab, trimtab-lab, trimtab-discover

The unit is packaging/trimtab.service with the drop-in that docs/guide/enforcing.md shows. A container has no control groups
of the machine's own, so this is no part of booted.py; of that it uses the target, and what asks systemd.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
import booted
from booted import BIN, PLACE, PROGRAMS, RESULTS, run, shown, trimtab, until

HERE = Path(__file__).resolve().parent
GUIDE = HERE.parent.parent / "docs/guide/enforcing.md"
GROUPS = Path("/sys/fs/cgroup")
UNITS = Path("/etc/systemd/system")
BOOT_SECONDS = 480


def the_drop_in():
    """Returns the drop-in that the guide shows, for the programs under test."""
    lines = GUIDE.read_text().splitlines()
    begin = lines.index("    [Service]")
    shown_lines = []
    for line in lines[begin:]:
        if line and not line.startswith("    "):
            break
        shown_lines.append(line.strip())
    return "\n".join(shown_lines).strip().replace("/usr/bin/trimtab", f"{BIN}/trimtab") + "\n"


def outside(programs):
    if not os.environ.get("TRIMTAB_TESTBED"):
        sys.exit("this changes the control groups of the machine: only in a guest (testbed/guest)")
    if not Path("/lib/systemd/systemd").exists():
        print("SKIPPED: enforcement under systemd: systemd is not installed")
        return 0
    BIN.mkdir(parents=True)
    for name in PROGRAMS:
        shutil.copy(programs / name, BIN / name)
    for script in ("booted.py", "enforced.py"):
        shutil.copy(HERE / script, PLACE / script)
    (UNITS / "booted.target").write_text(booted.TARGET)
    (UNITS / "booted.service").write_text(booted.SERVICE.replace("booted.py", "enforced.py"))
    unit = (HERE.parent / "trimtab.service").read_text()
    (UNITS / "trimtab.service").write_text(unit.replace("@BINDIR@", str(BIN)))
    folder = UNITS / "trimtab.service.d"
    folder.mkdir()
    (folder / "enforce.conf").write_text(the_drop_in())
    # The guest's own first process is a script; systemd is the first of its own process numbers. It takes the machine's
    # control groups, since it gets no view of its own.
    Path("/run/trimtab").mkdir(mode=0o1777)
    call = ["unshare", "--pid", "--fork", "--mount-proc", "--propagation", "private", "env", "container=guest",
            "/lib/systemd/systemd", "--unit=booted.target", "--log-level=warning", "--show-status=no"]
    try:
        ended = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOOT_SECONDS)
        said = ended.stdout + ended.stderr
    except subprocess.TimeoutExpired as error:
        said = f"not within {BOOT_SECONDS} s: {error.stderr}"
    text = RESULTS.read_text() if RESULTS.exists() else ""
    print(text, end="")
    if text.splitlines()[-1:] != ["end"]:
        print(f"FAILED: systemd did not come to the end: {said[-2000:]}")
        return 1
    return 1 if "FAILED" in text else 0


# From here on: under systemd.

def allowed(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return next(line.split()[1] for line in text.splitlines() if line.startswith("Cpus_allowed_list:"))


def main_pid(unit):
    return int(run("systemctl", "show", "-P", "MainPID", unit).stdout)


def holds():
    said = trimtab("status", "--json", check=False)
    return json.loads(said.stdout)["enforcement"]["holds"] if said.returncode == 0 else []


def is_enforced():
    return [hold["enforced"] for hold in holds()] == [True]


def groups_of_holds():
    # Not the unit's own, trimtab.service.
    return [path for path in GROUPS.glob("**/trimtab.*") if re.fullmatch("trimtab\\.[0-9a-f]+", path.name)]


class Beside:
    """A hold of CPU 1 and a program that was not started by trimtab, as units of systemd."""

    def __enter__(self):
        run("systemd-run", "--unit=held", BIN / "trimtab", "run", "--cpus", "1", "-c", "1", "sleep", "600")
        run("systemd-run", "--unit=hog", "/bin/sh", "-c", "while :; do :; done")
        until("both run", lambda: main_pid("held") and main_pid("hog"))
        return main_pid("held"), main_pid("hog")

    def __exit__(self, *_):
        run("systemctl", "stop", "held", "hog", check=False)


def it_starts_with_the_drop_in():
    verified = run("systemd-analyze", "verify", "--man=no", "/etc/systemd/system/trimtab.service", check=False)
    assert verified.returncode == 0 and "trimtab.service" not in verified.stderr, verified.stderr
    run("systemctl", "start", "trimtab")
    assert shown("ActiveState") == "active", booted.journal()
    assert trimtab("status", "--json").stdout.count("enforcement") == 1


def a_stranger_is_kept_off_through_reloads_and_kills():
    with Beside() as (held, hog):
        until("the hold is enforced", is_enforced)
        assert (allowed(held), allowed(hog)) == ("1", "0,2-3"), (allowed(held), allowed(hog))
        # systemd writes the controllers of its groups anew, and knows nothing of the service's.
        run("systemctl", "daemon-reload")
        run("systemd-run", "--wait", "-p", "MemoryMax=64M", "true")
        until("it is kept off again", lambda: is_enforced() and allowed(hog) == "0,2-3")
        # With all processes of the unit, the guardian too.
        before = shown("MainPID")
        run("systemctl", "kill", "-s", "KILL", "trimtab")
        until("it runs again", lambda: shown("ActiveState") == "active" and shown("MainPID") not in ("0", before))
        until("it has taken over", lambda: is_enforced() and allowed(hog) == "0,2-3")
        run("systemctl", "stop", "held")
        until("the hog is back", lambda: allowed(hog) == "0-3")
        assert not groups_of_holds(), groups_of_holds()


def a_stop_gives_everything_back():
    with Beside() as (_, hog):
        until("the hold is enforced", is_enforced)
        run("systemctl", "stop", "trimtab")
        assert (shown("Result"), allowed(hog), groups_of_holds()) == ("success", "0-3", [])
        lists = [path for path in GROUPS.glob("**/cpuset.cpus.exclusive") if path.read_text().strip()]
        assert not lists, lists


def inside():
    checks = [it_starts_with_the_drop_in, a_stranger_is_kept_off_through_reloads_and_kills, a_stop_gives_everything_back]
    with open(RESULTS, "w") as results:
        sys.stdout = results
        for check in checks:
            try:
                check()
                print(f"ok {check.__name__.replace('_', ' ')}", flush=True)
            except Exception as error:
                print(f"FAILED {check.__name__}: {error}\n{booted.journal()[-1500:]}", flush=True)
        print("end", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--inside"]:
        inside()
    elif len(sys.argv) < 2:
        sys.exit(__doc__)
    else:
        sys.exit(outside(Path(sys.argv[1])))
