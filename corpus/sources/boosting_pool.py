"""A pool of threads in which every task fits a boosted model; each opens a team of OpenMP of its own. Prints the scores."""

from concurrent.futures import ThreadPoolExecutor

import numpy
from sklearn.ensemble import HistGradientBoostingClassifier


def fit(seed):
    random = numpy.random.default_rng(seed)
    x = random.standard_normal((3000, 20))
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    return HistGradientBoostingClassifier(max_iter=20, random_state=seed).fit(x, y).score(x, y)


with ThreadPoolExecutor(4) as pool:
    for score in pool.map(fit, range(8)):
        print("score", score)
