#!/usr/bin/env python3
"""Compares who brings threads and their memory together, inside a machine with two or more nodes.

    arbiter.py TRIMTAB PLACED [--seconds N] [--rounds N] [--only CASE]... [--ways WAY,...] [--json FILE]

Each case begins with threads on other nodes than their memory (placed.c; Redis, PostgreSQL if they are installed). Each way of
running is tried in turn, in every round. The value is the share of a thread's memory that is on the node of the CPU where it ran
last, sampled four times a second: its mean over the window, and the time until it is 90 % for good. Emulated nodes have the same
speed, so times of programs would mean nothing; where pages are, and where threads are, is the kernel's own account.
"""
import argparse, glob, json, os, random, shutil, signal, statistics, subprocess, sys, time

NB = "/proc/sys/kernel/numa_balancing"
WAYS = {
    # name: (numa_balancing, balancer)
    "nothing": (0, None),
    "kernel": (1, None),
    "numad": (0, "numad"),
    "numactl": (0, "numactl"),
    "brm": (0, ["--balance=brm", "--candidates=all"]),
    "brm+memory": (0, ["--balance=brm", "--candidates=all", "--move-memory"]),
    "brm+kernel": (1, ["--balance=brm", "--candidates=all"]),
}


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def cpus(text):
    out = []
    for part in text.strip().split(","):
        low, _, high = part.partition("-")
        out += range(int(low), int(high or low) + 1)
    return out


def nodes():
    found = {}
    for folder in sorted(glob.glob("/sys/devices/system/node/node[0-9]*")):
        text = read(folder + "/cpulist").strip()
        if text:
            found[int(folder.rsplit("node", 1)[1])] = cpus(text)
    return found


def pages(pid, address):
    """Pages by node of the area that begins at an address, or of all memory of a process."""
    found = {}
    for line in read(f"/proc/{pid}/numa_maps").splitlines():
        if address and not line.startswith(f"{address} "):
            continue
        if not address and "anon=" not in line and "shmem" not in line:
            continue
        for word in line.split():
            if word[0] == "N" and "=" in word and word[1].isdigit():
                node, count = word[1:].split("=")
                found[int(node)] = found.get(int(node), 0) + int(count)
    return found


def node_of_thread(pid, tid, node_of_cpu):
    stat = read(f"/proc/{pid}/task/{tid}/stat") or read(f"/proc/{tid}/task/{tid}/stat")
    return node_of_cpu.get(int(stat.rsplit(")", 1)[1].split()[36])) if stat else None


def near(threads, node_of_cpu):
    shares = []
    for pid, tid, address in threads:
        there, node = pages(pid, address), node_of_thread(pid, tid, node_of_cpu)
        if there and node is not None:
            shares.append(there.get(node, 0) / sum(there.values()))
    return statistics.mean(shares) if shares else None


class Placed:
    """A case of placed.c: threads by (home node, start node)."""

    def __init__(self, kind, pairs):
        self.kind, self.pairs = kind, pairs

    def start(self, args, on):
        pairs = [f"{on[home][at % len(on[home])]}:{on[begin][at % len(on[begin])]}" for at, (home, begin) in enumerate(self.pairs)]
        command = [args.placed, self.kind, *pairs]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        lines = [self.process.stdout.readline().split() for _ in self.pairs]
        own = self.kind != "threads"
        self.threads = [(int(tid) if own else self.process.pid, int(tid), address) for tid, address in lines]
        return self.process.pid

    def bind(self, on, node_of_home):
        """As numactl would have placed it: each thread on its memory's node."""
        for (_, tid, _), (home, _) in zip(self.threads, self.pairs):
            os.sched_setaffinity(tid, on[home])

    def stop(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()


class Server:
    """A real program: started and filled on the first node, then put on the second, free to go anywhere."""

    def __init__(self, start, fill, load):
        self.commands = start, fill, load

    def start(self, args, on):
        self.home, other = list(on)[:2]
        start, fill, load = self.commands
        self.folder = f"/tmp/arbiter.{os.getpid()}"
        shutil.rmtree(self.folder, ignore_errors=True)
        os.mkdir(self.folder)
        fit = lambda words: [word.replace("FOLDER", self.folder) for word in words]
        all_cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, on[self.home])
        quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.process = subprocess.Popen(fit(start), **quiet)
        for _ in range(100):
            time.sleep(0.2)
            if subprocess.run(fit(fill), **quiet).returncode == 0:
                break
        else:
            raise RuntimeError("it does not start")
        pid = self.process.pid
        for tid in map(int, os.listdir(f"/proc/{pid}/task")):
            os.sched_setaffinity(tid, on[other])
        self.client = subprocess.Popen(fit(load), **quiet)
        time.sleep(0.5)
        os.sched_setaffinity(0, all_cpus)
        self.tids = [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]
        for tid in self.tids:
            os.sched_setaffinity(tid, all_cpus)
        # Only the main thread of these works.
        self.threads = [(pid, pid, "")]
        return pid

    def bind(self, on, _):
        for tid in self.tids:
            os.sched_setaffinity(tid, on[self.home])

    def stop(self):
        for process in (self.client, self.process):
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def cases(on):
    first, second = list(on)[:2]
    crossed = [(first, second), (second, first)]
    found = {
        "one process": Placed("processes", crossed[:1]),
        "crossed processes": Placed("processes", crossed),
        "pool of threads": Placed("threads", crossed),
        "full pool": Placed("threads", crossed * 2),
        "huge pages": Placed("huge", crossed),
        "shared memory": Placed("shared", [crossed[0]] * 2),
        "mapped file": Placed("file", crossed),
    }
    redis = shutil.which("redis-server")
    if redis:
        port = ["-s", "FOLDER/socket"]
        found["Redis"] = Server(
            [redis, "--port", "0", "--unixsocket", "FOLDER/socket", "--save", "", "--dir", "FOLDER"],
            ["redis-cli", *port, "debug", "populate", "60000", "key", "300"],
            ["redis-benchmark", *port, "-c", "4", "-n", "100000000", "-r", "60000", "-t", "get,set", "-l"],
        )
    return found


def balancer(way, args, pid, case, on):
    _, how = WAYS[way]
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if how == "numactl":
        case.bind(on, None)
    elif how == "numad":
        return subprocess.Popen(["numad", "-i", "1:5", "-S", "0", "-p", str(pid)], **quiet)
    elif how:
        return subprocess.Popen([args.trimtab, "attach", *how, str(pid)], **quiet)
    return None


def run(name, way, args, on):
    node_of_cpu = {cpu: node for node, all_cpus in on.items() for cpu in all_cpus}
    if os.path.exists(NB):
        with open(NB, "w") as file:
            file.write(str(WAYS[way][0]))
    case = cases(on)[name]
    pid = case.start(args, on)
    begin = time.monotonic()
    other = balancer(way, args, pid, case, on)
    samples = []
    try:
        while time.monotonic() - begin < args.seconds:
            share = near(case.threads, node_of_cpu)
            if share is not None:
                samples.append((round(time.monotonic() - begin, 2), round(share, 3)))
            time.sleep(0.25)
    finally:
        if other:
            other.send_signal(signal.SIGINT)
            try:
                other.wait(5)
            except subprocess.TimeoutExpired:
                other.kill()
                other.wait()
        if way == "numad":
            subprocess.run(["numad", "-i", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        case.stop()
    late = [at for at, share in samples if share < 0.9]
    settled = 0.0 if not late else (None if late[-1] == samples[-1][0] else late[-1])
    mean = statistics.mean(share for _, share in samples)
    return {"case": name, "way": way, "mean": round(mean, 3), "settled": settled, "samples": samples}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trimtab")
    parser.add_argument("placed")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--json")
    args = parser.parse_args()
    on = nodes()
    if len(on) < 2:
        sys.exit("two nodes with CPUs are needed")
    ways = [way for way in args.ways.split(",") if WAYS[way][1] != "numad" or shutil.which("numad")]
    names = [name for name in cases(on) if not args.only or name in args.only]
    results, order = [], random.Random(1)
    for round_number in range(1, args.rounds + 1):
        runs = [(name, way) for name in names for way in ways]
        order.shuffle(runs)
        for name, way in runs:
            try:
                result = run(name, way, args, on) | {"round": round_number}
            except Exception as error:  # The other runs go on.
                result = {"case": name, "way": way, "round": round_number, "error": str(error)}
            results.append(result)
            print(json.dumps({key: value for key, value in result.items() if key != "samples"}), flush=True)
            if args.json:
                with open(args.json, "a") as file:
                    file.write(json.dumps(result) + "\n")
    print(f"\n{'CASE':20}" + "".join(f"{way:>22}" for way in ways))
    for name in names:
        row = f"{name:20}"
        for way in ways:
            these = [one for one in results if (one["case"], one["way"]) == (name, way) and "mean" in one]
            if not these:
                row += f"{'failed':>22}"
                continue
            mean = statistics.median(one["mean"] for one in these)
            settled = sorted(1e9 if one["settled"] is None else one["settled"] for one in these)[len(these) // 2]
            row += f"{100 * mean:9.0f} %, {'never' if settled > 1e8 else f'{settled:.1f} s':>8}"
        print(row)


main()
