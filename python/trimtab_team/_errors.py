"""Exceptions of a team. All are TeamError; those that name a rank have it as .rank."""


class TeamError(Exception):
    """Base of all errors. After it the team is given up, unless its class says otherwise."""

    def __str__(self):
        return str(self.args[0]) if self.args else ""


class _OfRank(TeamError):
    def __init__(self, words, rank):
        super().__init__(words, rank)
        self.rank = rank


class PeerDied(_OfRank):
    """A rank's process ended without leaving: killed, out of memory, or ended by os._exit. .rank is its number."""


class PeerLeft(_OfRank):
    """A rank left the team, at its end or by an exception, while this one waits for it. .rank is its number."""


class Revoked(_OfRank):
    """A rank gave the team up: by its deadline, by Ctrl-C, or because ranks made different calls. .rank is its number."""


class Mismatch(TeamError):
    """Ranks made different calls. .rank made .theirs, and this rank .ours."""

    def __init__(self, words, rank, theirs, ours):
        super().__init__(words, rank, theirs, ours)
        self.rank = rank
        self.theirs = theirs
        self.ours = ours


class Timeout(TeamError, TimeoutError):
    """Nothing came within the deadline, and the ranks that it waited for are alive."""


class Forked(TeamError):
    """This rank was copied by fork. A child joins with a seat of its own: make the team before the fork, and join after it."""


class ArgumentError(TeamError, ValueError):
    """An invalid argument. Nothing was done, and the team goes on."""


class NoMemory(TeamError, MemoryError):
    """Not enough memory for the team, reported when it is made and never later."""


class NotATeam(TeamError):
    """The passed descriptor is not a team's segment, or this process was not started into a team."""


class Refused(TeamError):
    """A seat is taken, a team has begun or is over, or other ranks did not come."""
