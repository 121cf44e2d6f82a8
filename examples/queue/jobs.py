"""A queue of jobs over trimtab: runs as many at once as there are free cores, each on cores of its own.

    python3 jobs.py JOBS.txt [--wait TIME]

Each line of JOBS.txt is a job: its number of cores, and a command for the shell. Empty lines and lines with # are left out.

    2 ./solver input-1
    1 ./convert output-1

Jobs start in the order of the file. Two queues, of any users, and runs of `trimtab run` share the machine without knowing each other:
the cores of a job exclude all others, and the line is the machine's. The kernel gives the cores of a queue that is killed back.
Exit status 0 if every job succeeded, else 1.
"""

import argparse
import sys
import threading
import time

import trimtab


class Job:
    def __init__(self, number, line):
        cores, _, command = line.partition(" ")
        if not cores.isdigit() or int(cores) < 1 or not command.strip():
            raise ValueError(f'line {number}: "{line}" is not a number of cores and a command')
        self.number, self.cores, self.command = number, int(cores), command.strip()

    @property
    def label(self):
        return f"job {self.number}: {self.command}"


def read(path):
    """Returns the jobs of a file."""
    with open(path) as file:
        lines = [(number, line.strip()) for number, line in enumerate(file, 1)]
    return [Job(number, line) for number, line in lines if line and not line.startswith("#")]


class Queue:
    def __init__(self, wait):
        self.wait = wait
        self.failed = []
        self.lock = threading.Lock()

    def say(self, job, text):
        with self.lock:
            print(f"{job.label}: {text}", flush=True)

    def end(self, job, text, succeeded):
        self.say(job, text)
        if not succeeded:
            with self.lock:
                self.failed.append(job)

    def run(self, job, cores):
        """Runs a job to its end on its cores, which are given back then."""
        with cores:
            begin = time.monotonic()
            self.say(job, f"starts on CPUs {sorted(cores.cpus)}")
            status = cores.run(job.command, shell=True).returncode
            self.end(job, f"ended with status {status} after {time.monotonic() - begin:.1f} s", status == 0)

    def work(self, jobs):
        """Reserves cores for one job after the other, so that none overtakes, and runs each in a thread."""
        running = []
        for job in jobs:
            try:
                cores = trimtab.reserve(job.cores, wait=self.wait, label=job.label)
            except trimtab.Error as error:
                self.end(job, f"no cores: {error}", False)
                continue
            thread = threading.Thread(target=self.run, args=(job, cores))
            thread.start()
            running.append(thread)
        for thread in running:
            thread.join()


def main():
    parser = argparse.ArgumentParser(description="Runs jobs on free cores of this machine.")
    parser.add_argument("jobs", help="file of jobs: a number of cores and a command on each line")
    parser.add_argument("--wait", default=True, help="longest wait of a job for its cores, as 10m; without it, no limit")
    options = parser.parse_args()
    try:
        jobs = read(options.jobs)
    except (OSError, ValueError) as error:
        sys.exit(f"jobs.py: {error}")
    queue = Queue(options.wait)
    queue.work(jobs)
    print(f"{len(jobs) - len(queue.failed)} of {len(jobs)} jobs succeeded")
    return 1 if queue.failed else 0


if __name__ == "__main__":
    sys.exit(main())
