"""Cross-validation by two processes; each says how many threads its pools may use."""

import numpy
import threadpoolctl
from joblib import Parallel, delayed
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_score


def fit(seed):
    random = numpy.random.default_rng(seed)
    x = random.standard_normal((2000, 10))
    y = (x[:, 0] > 0).astype(int)
    score = cross_val_score(HistGradientBoostingClassifier(max_iter=10, random_state=7), x, y, cv=2).mean()
    return score, sorted((pool["user_api"], pool["num_threads"]) for pool in threadpoolctl.threadpool_info())


for score, threads in Parallel(n_jobs=2)(delayed(fit)(seed) for seed in range(4)):
    print(f"{score:.6f}", threads)
