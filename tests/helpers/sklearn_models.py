"""Dense and sparse logs for models of scikit-learn, and the same models fitted by hand."""

import numpy as np
import pyarrow as pa
import scipy.sparse
from sklearn.linear_model import SGDClassifier, SGDRegressor

import drstream as drs
from tests.helpers.passes import PLAIN

K, D = 4, 3
ROWS = 400 if PLAIN else 3_000
SGD = SGDRegressor(random_state=0)
SGD_CLASSES = SGDClassifier(loss="log_loss", random_state=0)


def sparse_table(table):
    """Half of the numbers, as lists of indices and values; an index twice in every third event."""
    X = contexts(table)
    indices, values = [], []
    for k, x in enumerate(X):
        places = [0, *np.flatnonzero(x[1:] > 0) + 1]
        numbers = [float(x[j]) for j in places]
        if k % 3 == 0:
            places, numbers = [*places, 0], [*numbers, 0.5]
        indices.append(places)
        values.append(numbers)
    columns = {"i": pa.array(indices, pa.list_(pa.int32())), "v": pa.array(values, pa.list_(pa.float64()))}
    roles = {name: table[name] for name in ("action", "reward", "propensity")}
    return pa.table({**roles, **columns})


def sparse_log(table, **options):
    return drs.Log(sparse_table(table), context=drs.Sparse("i", "v", dim=D), **options)


def contexts(table):
    return np.ascontiguousarray(np.column_stack([table[f"x{j}"].to_numpy() for j in range(D)]))


def sparse_contexts(table):
    """The same as `sparse_table`, by hand."""
    dense = np.zeros((table.num_rows, D))
    rows = sparse_table(table)
    for k, (places, numbers) in enumerate(zip(rows["i"].to_pylist(), rows["v"].to_pylist(), strict=True)):
        np.add.at(dense[k], places, numbers)
    return scipy.sparse.csr_array(dense)


def roles(table):
    return table["action"].to_numpy(), table["reward"].to_numpy()


def one_hot(X, action):
    hot = np.eye(K)[action]
    if scipy.sparse.issparse(X):
        return scipy.sparse.hstack([X, scipy.sparse.csr_array(hot)], format="csr")
    return np.hstack([X, hot]).astype(X.dtype)


def expected(model, X):
    return model.predict_proba(X) @ model.classes_ if hasattr(model, "classes_") else model.predict(X)


def coefficients(model):
    return np.array([m.coef_.ravel() for m in model.models_])
