"""Ratios of times from runs of the same round, as `core::stats::paired` has them, written again as an oracle."""
import itertools, math


def ratio_of_pairs(above, below):
    """Returns the ratio and both ends of its interval (None for fewer than five pairs), or None without a pair."""
    logs = [math.log(one / other) for one, other in zip(above, below)]
    if not logs:
        return None
    averages = sorted((one + other) / 2 for one, other in itertools.combinations_with_replacement(logs, 2))
    count, all = len(averages), len(logs)
    middle = math.exp((averages[(count - 1) // 2] + averages[count // 2]) / 2)
    if all < 5:
        return middle, None, None
    # The normal approximation of Wilcoxon's signed ranks, rounded down.
    skipped = int(max(0, count / 2 - 0.5 - 1.96 * math.sqrt(all * (all + 1) * (2 * all + 1) / 24)))
    return middle, math.exp(averages[skipped]), math.exp(averages[count - 1 - skipped])
