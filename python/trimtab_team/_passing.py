"""How a team comes to another process: its descriptor travels as multiprocessing passes any."""

import os

from ._native import Team


def reduce(team):
    from multiprocessing import reduction

    # While a process is being spawned this asks for the descriptor to be inherited; else it is sent over a socket when it is unpickled.
    passed = reduction.DupFd(team.fileno())
    return _rebuild, (passed, team.wait, team.deadline, team.gather, team.rank)


def _rebuild(passed, wait, deadline, gather, rank):
    fd = passed.detach()
    try:
        return Team.adopt(fd, wait=wait, deadline=deadline, gather=gather, rank=rank)
    finally:
        os.close(fd)



def no_team():
    """Why there is none in the environment, in words."""
    return "TRIMTAB_TEAM is not set: this process was not started into a team (trimtab run --ranks, or Team.environment())"
