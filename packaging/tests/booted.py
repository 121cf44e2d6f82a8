#!/usr/bin/env python3
"""The systemd unit under a systemd that is really booted, in a container of this machine's own files: make test-systemd.

    packaging/tests/booted.py FOLDER     # FOLDER has trimtab, trimtab-lab and trimtab-discover

The container is systemd-nspawn over an overlay of /, with nothing started but the basic target, and with a network of
its own. What it writes is thrown away. Without root, systemd-nspawn or overlays the test says so and skips.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLACE = Path("/opt/trimtab-booted")
BIN = PLACE / "bin"
RESULTS = PLACE / "results"
SPINNER = PLACE / "spinner"
PROGRAMS = ("trimtab", "trimtab-lab", "trimtab-discover")
INTEGRATIONS = HERE.parent.parent / "integrations"
# Units that serve an engine.
ENGINES = {
    "trimtab-nri": INTEGRATIONS / "kubernetes/trimtab-nri.service",
    "trimtab-incus": INTEGRATIONS / "incus/trimtab-incus.service",
}
BOOT_SECONDS = 300
STEP_SECONDS = 60

TARGET = "[Unit]\nRequires=basic.target booted.service\nAfter=basic.target\nAllowIsolate=yes\n"
SERVICE = f"""[Unit]
Requires=basic.target
After=basic.target
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 {PLACE}/booted.py --inside
ExecStopPost=/bin/systemctl --no-block --force poweroff
TimeoutStartSec={BOOT_SECONDS}
"""


def skip(why):
    print(f"SKIPPED: the unit under a booted systemd: {why}")
    sys.exit(0)


def outside(programs):
    if os.geteuid() != 0:
        skip("only root can start a container")
    if not shutil.which("systemd-nspawn"):
        skip("systemd-nspawn is not installed (Debian: systemd-container)")
    if "--own-mounts" not in sys.argv:
        # The overlay goes with this process.
        os.execvp("unshare", ["unshare", "--mount", sys.executable, "-B", __file__, programs, "--own-mounts"])
    folder = Path(tempfile.mkdtemp(prefix="trimtab-booted-"))
    try:
        sys.exit(boot(folder, Path(programs)))
    finally:
        subprocess.run(["umount", folder / "root"], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


def boot(folder, programs):
    for name in ("root", "upper", "work"):
        (folder / name).mkdir()
    upper, root = folder / "upper", folder / "root"
    units = upper / "etc/systemd/system"
    units.mkdir(parents=True)
    bin = upper / BIN.relative_to("/")
    bin.mkdir(parents=True)
    for name in PROGRAMS:
        shutil.copy(programs / name, bin / name)
    shutil.copy(__file__, upper / PLACE.relative_to("/") / "booted.py")
    (units / "booted.target").write_text(TARGET)
    (units / "booted.service").write_text(SERVICE)
    unit = (HERE.parent / "trimtab.service").read_text()
    (units / "trimtab.service").write_text(unit.replace("@BINDIR@", str(BIN)))
    for engine in ENGINES.values():
        (units / engine.name).write_text(engine.read_text().replace("/usr/bin", str(BIN)))
    options = f"lowerdir=/,upperdir={upper},workdir={folder / 'work'}"
    mounted = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, root], capture_output=True, text=True)
    if mounted.returncode != 0:
        skip(f"no overlay can be mounted ({mounted.stderr.strip()})")
    call = ["systemd-nspawn", "-q", "-D", root, "--private-network", "--register=no", "--keep-unit", "-M", f"booted-{os.getpid()}",
            "-b", "systemd.unit=booted.target", "systemd.log_level=warning", "systemd.show_status=no"]
    log = folder / "log"
    with open(log, "wb") as out:
        try:
            ended = subprocess.run(call, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=BOOT_SECONDS + 60)
        except subprocess.TimeoutExpired:
            ended = None
    results = upper / RESULTS.relative_to("/")
    text = results.read_text() if results.exists() else ""
    if not text:
        tail = log.read_text(errors="replace")[-2000:]
        skip(f"systemd does not boot in a container here ({ended and ended.returncode}):\n{tail}")
    print(text, end="")
    return 0 if text.splitlines()[-1:] == ["end"] and "FAILED" not in text else 1


# From here on: inside of the container.

def run(*words, check=True):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=STEP_SECONDS)
    if check and done.returncode != 0:
        raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def trimtab(*words, check=True):
    return run(BIN / "trimtab", *words, check=check)


def shown(name):
    return run("systemctl", "show", "-P", name, "trimtab").stdout.strip()


def journal():
    return run("journalctl", "-u", "trimtab", "-o", "cat", "--no-pager").stdout


def status():
    return json.loads(trimtab("status", "--json").stdout)


def until(what, holds):
    begin = time.monotonic()
    while not holds():
        if time.monotonic() - begin > STEP_SECONDS:
            raise AssertionError(f"not within a minute: {what}\n{journal()[-1500:]}")
        time.sleep(0.1)


def drop_in(text):
    """Replaces the drop-in and restarts the service."""
    folder = Path("/etc/systemd/system/trimtab.service.d")
    folder.mkdir(exist_ok=True)
    (folder / "test.conf").write_text(text)
    run("systemctl", "daemon-reload")
    run("systemctl", "reset-failed", "trimtab")
    return run("systemctl", "restart", "trimtab", check=False)


def start_line(options):
    return f"[Service]\nExecStart=\nExecStart={BIN}/trimtab serve {options}\n"


def declare(text):
    folder = Path("/etc/trimtab/serve.d")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tags.toml").write_text(text)


class Spinner:
    """A process that computes all the time."""

    def __enter__(self):
        # A program with a name of its own, which declarations can mean.
        shutil.copy(os.path.realpath("/bin/sh"), SPINNER)
        self.process = subprocess.Popen([SPINNER, "-c", "while :; do :; done"])
        return self.process.pid

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def it_starts_and_says_so():
    run("systemctl", "start", "trimtab")
    assert shown("ActiveState") == "active"
    until("the headline is in the journal", lambda: "serves all users at /run/trimtab-serve/socket by auto" in journal())
    assert status()["policy"] == "auto"


def systemd_accepts_it():
    verified = run("systemd-analyze", "verify", "--man=no", "/etc/systemd/system/trimtab.service", check=False)
    assert verified.returncode == 0 and "trimtab.service" not in verified.stderr, verified.stderr


def a_tag_by_hand_survives_a_restart_and_a_kill():
    with Spinner() as pid:
        trimtab("tag", pid)
        tagged = lambda: [tag["mark"]["process"]["pid"] for tag in status()["tags"]]
        run("systemctl", "restart", "trimtab")
        assert tagged() == [pid], tagged()
        until("the tags are kept", Path("/run/trimtab-serve/socket.tags").exists)
        before = shown("MainPID")
        os.kill(int(before), signal.SIGKILL)
        until("it runs again", lambda: shown("ActiveState") == "active" and shown("MainPID") not in ("0", before))
        assert tagged() == [pid], tagged()
        trimtab("untag", pid)


def a_reload_takes_good_files_and_refuses_bad_ones_with_file_and_line():
    before = shown("MainPID")
    with Spinner() as pid:
        declare("[[tag]]\nprogram = 'spinner'\nobserve = true\n")
        run("systemctl", "reload", "trimtab")
        until("it is tagged", lambda: any(tag["mark"]["process"]["pid"] == pid for tag in status()["tags"]))
        tag = next(tag for tag in status()["tags"] if tag["mark"]["process"]["pid"] == pid)
        assert tag["observe"] and tag["by"] == {"declared": "tags.toml, line 1"}, tag
        declare("[[tag]]\nprogramm = 'spinner'\n")
        failed = run("systemctl", "reload", "trimtab", check=False)
        assert failed.returncode != 0
        until("the fault is in the journal", lambda: "tags.toml, line 2" in journal())
        assert "tags.toml, line 2" in status()["faults"][0]
        assert any(tag["mark"]["process"]["pid"] == pid for tag in status()["tags"]), "the tags stay"
    declare("")
    said = trimtab("reload").stdout
    assert "- tags.toml, line 1: program spinner, only observed" in said and "0 declarations: 1 change" in said, said
    assert (shown("ActiveState"), shown("MainPID")) == ("active", before), "all of it without a restart"


def sighup_ends_nothing():
    before = shown("MainPID")
    run("systemctl", "kill", "-s", "HUP", "trimtab")
    until("the files are read again", lambda: journal().rstrip().endswith("0 declarations, 0 changes"))
    assert (shown("ActiveState"), shown("MainPID")) == ("active", before)


def an_error_of_usage_fails_once_and_is_in_the_journal():
    drop_in(start_line("--policy brmm"))
    until("it has failed", lambda: shown("ActiveState") == "failed")
    time.sleep(5)  # longer than RestartSec
    assert (shown("ActiveState"), shown("NRestarts"), shown("ExecMainStatus")) == ("failed", "0", "2")
    assert "brmm" in journal()


def the_sandbox_lets_it_open_vsock_and_counters_and_write_traces():
    listens = "import socket; s = socket.socket(socket.AF_VSOCK); s.bind((socket.VMADDR_CID_ANY, 7123)); s.listen()"
    try:
        socket.socket(socket.AF_VSOCK).close()
        vsock = f"ExecStartPre=/usr/bin/python3 -c '{listens}'\n"
    except OSError as error:
        print(f"SKIPPED: vsock in the unit's sandbox: this kernel has none ({error})", flush=True)
        vsock = ""
    counters = f"ExecStartPre=/bin/sh -c '{BIN}/trimtab counters --json --events busy=task-clock,requests=page-faults > %L/trimtab/counters || :'\n"
    started = drop_in(start_line("--policy auto -v --trace /var/log/trimtab/trace.jsonl") + vsock + counters)
    assert started.returncode == 0, journal()[-1500:]
    inside = json.loads(Path("/var/log/trimtab/counters").read_text())["rung"]
    outside = json.loads(trimtab("counters", "--json", "--events", "busy=task-clock,requests=page-faults", check=False).stdout)["rung"]
    assert inside == outside, f"{inside} in the sandbox, {outside} outside"
    with Spinner() as pid:
        trimtab("tag", pid)
        trace = Path("/var/log/trimtab/trace.jsonl")
        until("steps are recorded", lambda: trace.exists() and '{"step"' in trace.read_text())
        until("the reason is told", lambda: status()["tags"][0]["why"].get("still") or status()["tags"][0]["why"].get("last"))
    assert '{"header"' in trace.read_text().splitlines()[0]


def metrics_need_the_drop_in_that_the_guide_shows():
    network = "PrivateNetwork=no\nRestrictAddressFamilies=AF_UNIX AF_VSOCK AF_INET\n"
    started = drop_in(start_line("--policy auto --metrics 127.0.0.1:9750") + network)
    assert started.returncode == 0, journal()[-1500:]

    def page():
        with urllib.request.urlopen("http://127.0.0.1:9750/metrics", timeout=10) as answer:
            return answer.read().decode()

    until("there are metrics", lambda: "trimtab_service_up_seconds" in page())


def it_stops_in_order():
    with Spinner() as pid:
        trimtab("tag", pid)
        run("systemctl", "stop", "trimtab")
        assert (shown("ActiveState"), shown("Result"), shown("ExecMainStatus")) == ("inactive", "success", "0")
        assert os.sched_getaffinity(pid) == os.sched_getaffinity(0)
    assert not Path("/run/trimtab-serve").exists(), "its folder goes with it"


def units_for_engines_run_until_their_engine_comes():
    waiting = {"trimtab-nri": "cannot connect to /var/run/nri/nri.sock", "trimtab-incus": "cannot start incus"}
    for name, word in waiting.items():
        verified = run("systemd-analyze", "verify", "--man=no", f"/etc/systemd/system/{name}.service", check=False)
        assert verified.returncode == 0 and name not in verified.stderr, verified.stderr
        run("systemctl", "start", name)
        said = lambda: run("journalctl", "-u", name, "-o", "cat", "--no-pager").stdout
        until(f"{name} says what it waits for", lambda: word in said())
        show = lambda value: run("systemctl", "show", "-P", value, name).stdout.strip()
        assert (show("ActiveState"), show("NRestarts"), show("KillMode")) == ("active", "0", "process"), said()
        run("systemctl", "stop", name)
        assert show("ActiveState") == "inactive", said()


def inside():
    checks = [it_starts_and_says_so, systemd_accepts_it, a_tag_by_hand_survives_a_restart_and_a_kill,
              a_reload_takes_good_files_and_refuses_bad_ones_with_file_and_line, sighup_ends_nothing,
              an_error_of_usage_fails_once_and_is_in_the_journal, the_sandbox_lets_it_open_vsock_and_counters_and_write_traces,
              metrics_need_the_drop_in_that_the_guide_shows, it_stops_in_order, units_for_engines_run_until_their_engine_comes]
    with open(RESULTS, "w") as results:
        sys.stdout = results
        for check in checks:
            try:
                check()
                print(f"ok {check.__name__.replace('_', ' ')}", flush=True)
            except Exception as error:
                print(f"FAILED {check.__name__}: {error}", flush=True)
        print("end", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--inside"]:
        inside()
    elif len(sys.argv) < 2:
        sys.exit(__doc__)
    else:
        outside(sys.argv[1])
