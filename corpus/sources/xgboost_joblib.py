"""Two workers of joblib, in each of which XGBoost opens teams of OpenMP. Prints the errors."""

import joblib
import numpy
import xgboost


def fit(seed):
    random = numpy.random.default_rng(seed)
    x = random.standard_normal((6000, 20)).astype("float32")
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    data = xgboost.DMatrix(x, y)
    model = xgboost.train({"max_depth": 6, "objective": "binary:logistic", "seed": 7}, data, num_boost_round=25)
    return float(((model.predict(data) > 0.5) != y).mean())


for wrong in joblib.Parallel(n_jobs=2, backend="threading")(joblib.delayed(fit)(seed) for seed in range(4)):
    print("wrong", wrong)
