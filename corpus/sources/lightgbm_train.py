"""Boosted trees; prints the error."""

import lightgbm
import numpy

random = numpy.random.default_rng(7)
x = random.standard_normal((20000, 20))
y = (x[:, 0] * x[:, 1] > 0).astype(int)
settings = {"objective": "binary", "seed": 7, "deterministic": True, "force_row_wise": True, "verbose": -1}
model = lightgbm.train(settings, lightgbm.Dataset(x, y), num_boost_round=60)
print("wrong", float(((model.predict(x) > 0.5) != y).mean()))
