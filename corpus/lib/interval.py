"""Intervals of paired differences."""

import random
import statistics
from dataclasses import dataclass

DRAWS = 2_000  # the ends then move by less than the samples scatter
SLOWER_FROM = 0.02  # what counts as a loss, as a share of the plain time
PAIRS_AT_LEAST = 5  # fewer pairs give no verdict


@dataclass(frozen=True)
class Interval:
    """A median with the ends of its 95 % bootstrap interval, as shares of the plain time."""

    middle: float
    low: float
    high: float
    pairs: int

    @property
    def slower(self):
        """Whether the whole interval is above what counts; None where there are too few pairs to say."""
        return None if self.pairs < PAIRS_AT_LEAST else self.low > SLOWER_FROM

    def words(self):
        return f"{100 * self.middle:+.1f} % [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"


def paired(pairs, seed):
    """The interval of the differences of (plain, other) times; None without a pair."""
    shares = [other / plain - 1 for plain, other in pairs if plain > 0]
    if not shares:
        return None
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(shares, k=len(shares))) for _ in range(DRAWS))
    return Interval(statistics.median(shares), percentile(medians, 0.025), percentile(medians, 0.975), len(shares))


def percentile(ordered, share):
    """Of sorted values, interpolated."""
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
