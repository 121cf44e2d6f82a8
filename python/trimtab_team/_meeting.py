"""Meeting of processes that another launcher started: by the launcher's environment variables, or over an existing communicator.

A team is of one machine. If a launcher's variables or the ranks themselves show several machines, no rank waits: all get an error.
"""

import os
import secrets

from ._errors import NotATeam
from ._native import Team

# Number of teams that this process has met under a name, so that a second team of the same job gets another name.
_met: dict[str, int] = {}

# Launcher, its variables for the rank, the number of ranks and the number of ranks on this machine, and those that name the job.
_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    ("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", ()),
)


def from_environment(*, heap=16 << 20, wait="auto", deadline=None, gather=30.0):
    """Returns the team that this process was started into, from its environment. Its join() takes the intended rank.

    By trimtab run --ranks, or by a parent that used Team.environment(): TRIMTAB_TEAM. By torchrun, without torch: RANK, WORLD_SIZE and
    TORCHELASTIC_RUN_ID or MASTER_PORT. By mpirun or mpiexec, without MPI: OMPI_COMM_WORLD_... or PMI_...; a later entry of this list counts
    only if none before it is set. heap and gather are for teams that are made here, and the same on all ranks.
    """
    if "TRIMTAB_TEAM" in os.environ:
        return Team.from_environment(wait=wait, deadline=deadline)
    for launcher in _LAUNCHERS:
        if launcher[1] in os.environ and launcher[2] in os.environ:
            rank, ranks, key = _told(*launcher)
            return _of_job(rank, ranks, key, heap=heap, wait=wait, deadline=deadline, gather=gather)
    raise NotATeam(
        "this process was not started into a team: TRIMTAB_TEAM is not set (trimtab run --ranks, or Team.environment()), nor are RANK "
        "and WORLD_SIZE (torchrun), OMPI_COMM_WORLD_RANK (Open MPI) or PMI_RANK (MPICH)"
    )


def from_comm(comm, *, heap=16 << 20, wait="auto", deadline=None, gather=30.0):
    """Returns the team of an mpi4py communicator whose ranks are all on this machine. All of them call it, with the same options.

    Any other object with mpi4py's Get_rank, Get_size, bcast and allgather works, too.
    """
    ranks = comm.Get_size()
    all_here(comm.allgather(machine()))
    key = comm.bcast(secrets.token_hex(16) if comm.Get_rank() == 0 else None, root=0)
    return Team.of_job(comm.Get_rank(), ranks, key, heap=heap, wait=wait, deadline=deadline, gather=gather)


def machine():
    """Returns a name that is the same for two processes if and only if they run on the same machine, since it was booted."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as lines:
            return lines.read().strip()
    except OSError:
        return os.uname().nodename


def all_here(machines):
    others = [rank for rank, name in enumerate(machines) if name != machines[0]]
    if others:
        raise NotATeam(
            "a team is of one machine, and rank %d is on another than rank 0: make a team for each machine's ranks" % others[0]
        )


def _number(name, least):
    text = os.environ[name]
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise NotATeam("%s is a whole number from %d on, not %r" % (name, least, text))
    return int(text)


def _told(launcher, rank_name, size_name, local_name, job_names):
    rank, ranks = _number(rank_name, 0), _number(size_name, 1)
    if rank >= ranks:
        raise NotATeam("%s=%d is not one of the %s=%d ranks" % (rank_name, rank, size_name, ranks))
    if local_name in os.environ and _number(local_name, 1) < ranks:
        raise NotATeam(
            "a team is of one machine, and %s says that %s of %s=%d ranks are on this one: start them on one machine, or make a team for "
            "each machine's ranks (Team.of_job)" % (launcher, os.environ[local_name], size_name, ranks)
        )
    job = ["%s=%s" % (name, os.environ[name]) for name in job_names if name in os.environ]
    if launcher == "torchrun":
        if not job:
            raise NotATeam(
                "RANK and WORLD_SIZE are set, and neither TORCHELASTIC_RUN_ID nor MASTER_PORT: nothing names the job that its ranks meet under; "
                "start them by torchrun or trimtab run --ranks, or set MASTER_PORT to the same free port for all"
            )
        # Restarted workers are another job.
        job.append(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    elif not job:
        # All ranks of a machine are children of one process of the launcher.
        job = ["%d since %s" % (os.getppid(), _since(os.getppid()))]
    return rank, ranks, "%s, %s" % (launcher, ", ".join(job))


def _since(process):
    """Returns when a process began, so that its number is not confused with an earlier process's."""
    try:
        with open("/proc/%d/stat" % process) as lines:
            return lines.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "?"


def _of_job(rank, ranks, key, **options):
    _met[key] = _met.get(key, -1) + 1
    return Team.of_job(rank, ranks, "%s, team %d" % (key, _met[key]), **options)
