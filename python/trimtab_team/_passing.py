"""Pickling of teams: the descriptor travels by multiprocessing's means for descriptors."""

import os

from ._native import Team


def reduce(team):
    from multiprocessing import reduction

    # While a process is being spawned, this makes it inherit the descriptor; otherwise the descriptor is sent over a socket on unpickling.
    passed = reduction.DupFd(team.fileno())
    return _rebuild, (passed, team.wait, team.deadline, team.gather, team.rank)


def _rebuild(passed, wait, deadline, gather, rank):
    fd = passed.detach()
    try:
        return Team.adopt(fd, wait=wait, deadline=deadline, gather=gather, rank=rank)
    finally:
        os.close(fd)



def no_team():
    """Returns the message for an environment without a team."""
    return "TRIMTAB_TEAM is not set: this process was not started into a team (trimtab run --ranks, or Team.environment())"
