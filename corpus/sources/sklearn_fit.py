"""Boosting and a forest; prints scores, and the threads of every pool that was loaded."""

import numpy
import threadpoolctl
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

random = numpy.random.default_rng(7)
x = random.standard_normal((6000, 20))
y = (x[:, 0] * x[:, 1] > 0).astype(int)
print("boosting", HistGradientBoostingClassifier(max_iter=30, random_state=7).fit(x, y).score(x, y))
print("forest", RandomForestClassifier(40, n_jobs=2, random_state=7).fit(x, y).score(x, y))
print("threads", sorted((pool["internal_api"], pool["num_threads"]) for pool in threadpoolctl.threadpool_info()))
