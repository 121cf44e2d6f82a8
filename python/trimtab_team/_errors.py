"""What can go wrong in a team. All are TeamError; those that name a rank have it as .rank."""


class TeamError(Exception):
    """Of any kind. After it the team is given up, except where its class says otherwise."""

    def __str__(self):
        return str(self.args[0]) if self.args else ""


class _OfRank(TeamError):
    def __init__(self, words, rank):
        super().__init__(words, rank)
        self.rank = rank


class PeerDied(_OfRank):
    """A rank's process ended without leaving: killed, out of memory, or gone by os._exit. .rank says which."""


class PeerLeft(_OfRank):
    """A rank left the team, at its end or by an exception, while this one waits for it. .rank says which."""


class Revoked(_OfRank):
    """A rank gave the team up: by its deadline, by Ctrl-C, or because it was called otherwise. .rank says which."""


class Mismatch(TeamError):
    """Ranks made different calls. .rank made .theirs, and this rank .ours."""

    def __init__(self, words, rank, theirs, ours):
        super().__init__(words, rank, theirs, ours)
        self.rank = rank
        self.theirs = theirs
        self.ours = ours


class Timeout(TeamError, TimeoutError):
    """Nothing came within the deadline, and whoever it waited for is alive."""


class Forked(TeamError):
    """This rank was copied by fork. A child joins with a seat of its own: make the team before the fork, and join after it."""


class ArgumentError(TeamError, ValueError):
    """An argument that no rank can be given. Nothing was done, and the team goes on."""


class NoMemory(TeamError, MemoryError):
    """No memory for the team, said when it is made and never later."""


class NotATeam(TeamError):
    """What was passed is no team's segment, or this process was started into none."""


class Refused(TeamError):
    """A seat that is taken, a team that has begun or is over, or others who did not come."""
