"""Teams of processes or threads that share memory, on one machine, without a server.

    import multiprocessing, numpy, trimtab_team

    def work(team):
        with team.join() as rank:
            gradient = numpy.full(1000, rank.rank, "float32")
            rank.allreduce(gradient, gradient)      # the sum of all ranks', on all ranks

    if __name__ == "__main__":
        team = trimtab_team.Team(4)
        processes = [multiprocessing.Process(target=work, args=(team,)) for _ in range(4)]

A rank that dies, leaves or makes another call causes an exception on all others: PeerDied, PeerLeft, Mismatch.
"""

from ._errors import (
    ArgumentError,
    Forked,
    Mismatch,
    NoMemory,
    NotATeam,
    PeerDied,
    PeerLeft,
    Refused,
    Revoked,
    TeamError,
    Timeout,
)
from ._meeting import from_comm, from_environment
from ._native import Batch, Block, Rank, Request, Team, View

__all__ = [
    "ArgumentError",
    "Batch",
    "Block",
    "Forked",
    "Mismatch",
    "NoMemory",
    "NotATeam",
    "PeerDied",
    "PeerLeft",
    "Rank",
    "Refused",
    "Request",
    "Revoked",
    "Team",
    "TeamError",
    "Timeout",
    "View",
    "from_comm",
    "from_environment",
]
