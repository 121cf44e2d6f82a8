#!/usr/bin/env python3
"""Churn: pods and runs on the host come and go while the plug-in, its keepers and containerd are killed.

    churn.py [PODS] [SEED]                200 pods, unless told otherwise
    churn.py --kubelet [PODS] [SEED]      static pods of a kubelet, which is killed too

Meanwhile a thread reads the control groups of the containers that `trimtab ps` shows as holders. For runs on the host it takes the
CPUs that `trimtab ps` shows. Two of these must never have a CPU in common. An annotated container without a hold (made while
the plug-in was away) is not watched. At the end no hold and no keeper may be left.
"""

import json
import random
import sys
import threading
import time
from pathlib import Path

from bed import KUBELET_ROOT, Bed, cpus, static_pod, until

CONFIG = "shared = {shared}\n"
ALL = {0, 1}


class Watcher(threading.Thread):
    """Reads control groups all the time, and notes what overlaps."""

    def __init__(self, bed):
        super().__init__(daemon=True)
        self.bed, self.over, self.samples = bed, False, 0
        self.own, self.runs = {}, {}
        self.lock = threading.Lock()
        self.overlaps, self.suspects = [], {}

    def look(self):
        """The lists of CPUs of what has cores of its own now."""
        with self.lock:
            own, runs = dict(self.own), dict(self.runs)
        found = {}
        for container, group in own.items():
            try:
                has = cpus((group / "cpuset.cpus").read_text())
                lives = (group / "cgroup.procs").read_text().strip()
            except OSError:
                continue
            # A container that was made without the plug-in has all CPUs until the runtime is told of its own.
            if lives and has and has != ALL:
                found[container] = has
        for pid, has in runs.items():
            if Path(f"/proc/{pid}").exists():
                found[pid] = has
        return found

    def run(self):
        while not self.over:
            found = list(self.look().items())
            self.samples += 1
            for at, (one, left) in enumerate(found):
                for other, right in found[at + 1 :]:
                    if left & right:
                        # Seen twice: the files of two groups are not read at the same moment.
                        key = (one, other)
                        self.suspects[key] = self.suspects.get(key, 0) + 1
                        if self.suspects[key] == 2:
                            self.overlaps.append((time.monotonic(), one, other, left & right))
                            # How it came, while that can still be seen.
                            print(self.overlaps[-1], json.dumps(self.bed.holds()), self.bed.tail("plugin", 12), file=sys.stderr)
                            print(self.bed.cri("list", check=False).stdout, self.bed.tail("containerd", 12), file=sys.stderr)
                    else:
                        self.suspects.pop((one, other), None)
            time.sleep(0.02)


class Churn:
    """Pods by the Container Runtime Interface."""

    KILLED = ("plugin", "plugin", "containerd")

    def __init__(self, pods, seed):
        self.random, self.wanted = random.Random(seed), pods
        self.bed = Bed()
        self.watcher = Watcher(self.bed)
        self.pods, self.runs, self.candidates, self.made = [], [], [], 0
        self.counts = {}

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def make(self):
        self.made += 1
        own = self.random.random() < 0.7
        annotations = {"trimtab.io/cores": "1"} if own else {}
        # Some end by themselves at once.
        short = self.random.random() < 0.2
        container = {"command": ["/bin/true"]} if short else {}
        pod = self.bed.pod(f"pod{self.made}", annotations, [container], check=False)
        if not isinstance(pod, dict):
            self.count("refused" if "trimtab:" in pod.stderr else "failed")
            if "trimtab:" not in pod.stderr:
                print(pod.stderr.strip()[:300], file=sys.stderr)
            return
        self.count("own" if own else "shared")
        self.pods.append(pod)
        if own:
            self.candidates.append(pod["containers"][0])

    def promote(self):
        """Has the watcher watch the containers that have a hold: one that was made without the plug-in has none at first."""
        holders = {hold["pid"] for hold in self.bed.holds()} if self.candidates else set()
        for container in list(self.candidates):
            group = self.bed.group(container)
            if not group or holders & set(self.bed.processes_of(container)):
                self.candidates.remove(container)
            if group and holders & set(self.bed.processes_of(container)):
                with self.watcher.lock:
                    self.watcher.own[container] = group

    def remove(self):
        if self.pods:
            pod = self.pods.pop(self.random.randrange(len(self.pods)))
            if self.bed.remove(pod, check=False).returncode:
                self.pods.append(pod)
                self.count("not removed at once")
                return
            with self.watcher.lock:
                self.watcher.own.pop(pod["containers"][0], None)

    def host(self):
        if self.runs and self.random.random() < 0.6:
            run = self.runs.pop()
            with self.watcher.lock:
                self.watcher.runs.pop(run.pid, None)
            run.kill()
            run.wait()
            return
        run = self.bed.host_run("-c", "1")
        if run.poll() is not None:
            self.count("refused runs")
            return
        self.runs.append(run)
        self.count("runs")
        mine = [hold for hold in self.bed.holds() if hold["pid"] == run.pid]
        with self.watcher.lock:
            self.watcher.runs[run.pid] = cpus(mine[0]["cpus"])

    def kill(self):
        what = self.random.choice(self.KILLED)
        self.count(f"kills of {what}")
        before = self.bed.log("plugin").count("synchronized:")
        self.bed.kill(what)
        # Life goes on without it.
        if what == "plugin" and self.random.random() < 0.5:
            self.make()
        if self.random.random() < 0.5:
            self.host()
        self.start_again(what, before)

    def start_again(self, what, before):
        if what == "plugin":
            self.bed.plugin(self.config)
        else:
            self.bed.containerd()
            self.bed.synchronized(before)

    def left(self):
        """What is left, and whose it is."""
        lines = []
        for hold in self.bed.holds():
            about = [Path(f"/proc/{hold['pid']}/{name}") for name in ("cmdline", "cgroup")]
            lines.append(f"left: {hold}" + "".join(f"\n{file}: {file.read_text()}" for file in about if file.exists()))
        return "\n".join([*lines, self.bed.cri("list").stdout])

    def begin(self):
        pass

    def end(self):
        while self.pods:
            self.remove()

    def run(self):
        self.config = CONFIG.format(shared="true" if self.random.random() < 0.5 else "false")
        self.bed.start(self.config)
        self.begin()
        self.watcher.start()
        begin = time.monotonic()
        while self.made < self.wanted:
            step = self.random.random()
            if step < 0.45:
                self.make()
            elif step < 0.8:
                self.remove()
            elif step < 0.93:
                self.host()
            else:
                self.kill()
            self.promote()
        self.end()
        for run in self.runs:
            run.kill()
            run.wait()
        until(20, self.left, lambda: not self.bed.holds() and not self.bed.keepers())
        self.watcher.over = True
        self.watcher.join()
        took = time.monotonic() - begin
        said = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        print(f"{self.made} pods in {took:.0f} s ({self.config.strip()}): {said}")
        print(f"{self.watcher.samples} readings, {len(self.watcher.overlaps)} overlaps, 0 holds and 0 keepers left")
        return self.watcher.overlaps


class KubeletChurn(Churn):
    """Static pods. The kubelet makes them when it can, and again if it was refused."""

    KILLED = ("plugin", "containerd", "kubelet")
    # Pods at once, and seconds after which a pod that was not made is given up.
    MOST, PATIENCE = 4, 20

    def begin(self):
        self.bed.kubelet()
        self.born, self.seen = {}, set()

    def make(self):
        if len(self.pods) == self.MOST:
            self.remove()
            return
        self.made += 1
        name, own = f"pod{self.made}", self.random.random() < 0.7
        self.count("own" if own else "shared")
        command = ["/bin/true"] if self.random.random() < 0.1 else ["/bin/sleep", "100000"]
        static_pod(self.bed.folder, name, {"trimtab.io/cores": "1"} if own else {}, command=command)
        self.pods.append(name)
        self.born[name] = (time.monotonic(), own)

    def remove(self):
        """Takes the file of a pod away that has been made, or not for long."""
        now = time.monotonic()
        ripe = [name for name in self.pods if name in self.seen or now > self.born[name][0] + self.PATIENCE]
        if not ripe:
            time.sleep(0.2)
            return
        name = self.random.choice(ripe)
        self.pods.remove(name)
        self.count("made" if name in self.seen else "given up")
        (self.bed.folder / "pods" / f"{name}.json").unlink()

    def keep_kubelet(self):
        """Starts the kubelet again if it has ended, as systemd does: it gives up if containerd is away for long while it starts."""
        process = self.bed.processes.get("kubelet")
        if process and process.poll() is not None:
            self.count("starts of kubelet again")
            self.bed.kubelet()

    def promote(self):
        self.keep_kubelet()
        for container, about in self.bed.running().items():
            name = about["labels"]["io.kubernetes.pod.name"].removesuffix("-bed")
            self.seen.add(name)
            if self.born[name][1] and container not in self.watcher.own and container not in self.candidates:
                self.candidates.append(container)
        super().promote()

    def start_again(self, what, before):
        if what == "kubelet":
            self.bed.kubelet()
        else:
            super().start_again(what, before)

    def end(self):
        for name in self.pods:
            (self.bed.folder / "pods" / f"{name}.json").unlink()

        def is_empty():
            self.keep_kubelet()
            return not self.bed.running()

        until(120, lambda: self.bed.tail("kubelet") + json.dumps(self.bed.running()), is_empty)


def main(words):
    kind = KubeletChurn if words[:1] == ["--kubelet"] else Churn
    words = words[kind is KubeletChurn :]
    if kind is KubeletChurn and KUBELET_ROOT.exists():
        sys.exit(f"{KUBELET_ROOT} exists: this machine has a kubelet of its own, or a bed was killed")
    pods, seed = (int(word) for word in (words + ["200", "1"][len(words) :])[:2])
    churn = kind(pods, seed)
    try:
        overlaps = churn.run()
    except BaseException:
        print(churn.bed.tail("plugin", 40), churn.bed.tail("containerd", 20), sep="\n", file=sys.stderr)
        raise
    finally:
        churn.bed.stop()
    if overlaps:
        print("\n".join(map(str, overlaps)), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
