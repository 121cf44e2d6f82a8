"""Boosted trees; prints the error, and the threads that the library would use."""

import numpy
import xgboost

random = numpy.random.default_rng(7)
x = random.standard_normal((20000, 20)).astype("float32")
y = (x[:, 0] * x[:, 1] > 0).astype(int)
data = xgboost.DMatrix(x, y)
model = xgboost.train({"max_depth": 6, "objective": "binary:logistic", "seed": 7}, data, num_boost_round=25)
print("wrong", float(((model.predict(data) > 0.5) != y).mean()), "threads", xgboost.get_config().get("nthread"))
