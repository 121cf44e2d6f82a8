"""A result: what came of a program in all its variants."""

from dataclasses import dataclass, field

from .interval import PAIRS_AT_LEAST, paired
from .variant import JUDGED_BY_TIME


@dataclass
class Measured:
    """A variant's samples."""

    seconds: list = field(default_factory=list)  # one a round; None where the sample failed
    cpu_seconds: list = field(default_factory=list)  # of all its processes
    others_percent: list = field(default_factory=list)
    noisy: list = field(default_factory=list)  # whether the round's sample was
    differences: list = field(default_factory=list)  # each once
    words: list = field(default_factory=list)  # lines that trimtab wrote, each once
    late: int = 0  # samples that ended before a balancer was there: nothing was tried
    threads: int = None  # that were started, and processes
    environment: dict = field(default_factory=dict)

    def forget_times(self):
        self.seconds, self.cpu_seconds, self.others_percent, self.noisy = [], [], [], []

    def differ(self, found):
        self.differences += [line for line in found if line not in self.differences]


@dataclass
class Result:
    """A program with its variants, or the reason why it was skipped."""

    name: str
    about: str
    kind: str
    note: str = ""
    version: str = ""
    skipped: str = ""
    fault: str = ""  # of the program by itself: its plain run fails, or differs from itself
    variants: dict = field(default_factory=dict)
    first: dict = field(default_factory=dict)  # variant -> interval of the first rounds, where later ones decide

    def interval(self, variant, seed):
        """How much slower than plain, from rounds in which neither sample was noisy."""
        return paired(self.pairs(variant, quiet=True), seed)

    def pairs(self, variant, quiet):
        plain, other = self.variants["plain"], self.variants[variant]
        rows = zip(plain.seconds, other.seconds, plain.noisy, other.noisy)
        return [(one, two) for one, two, *noisy in rows if one and two and not (quiet and any(noisy))]

    def slower(self, seed):
        """Variants that are slower beyond noise."""
        return [name for name in self.variants if name in JUDGED_BY_TIME
                and (interval := self.interval(name, seed)) and interval.slower]

    def doubt(self, seed):
        """Keeps the intervals of variants that seem slower, and forgets all times, so that later ones decide."""
        self.first = {name: self.interval(name, seed).words() for name in self.slower(seed)}
        for measured in self.variants.values():
            measured.forget_times()

    def decided_by(self, later):
        """The later result, with the intervals and the differences that were found before."""
        later.first = self.first
        for name, measured in self.variants.items():
            if name in later.variants:
                later.variants[name].differ(measured.differences)
        return later

    def unjudged(self):
        """Variants whose time is to be judged, and has too few quiet pairs."""
        return [name for name in self.variants if name in JUDGED_BY_TIME and len(self.pairs(name, quiet=True)) < PAIRS_AT_LEAST]

    def different(self):
        """Variants whose behaviour is not the plain one."""
        return [name for name, measured in self.variants.items() if measured.differences]

    def failed(self, seed):
        return not self.skipped and bool(self.fault or self.different() or self.slower(seed))

    def others(self):
        """The others' share over all samples, in per cent of a CPU: middle and highest."""
        shares = sorted(share for measured in self.variants.values() for share in measured.others_percent)
        return (shares[len(shares) // 2], shares[-1]) if shares else None
