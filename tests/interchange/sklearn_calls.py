"""Functions of scikit-learn with their expected outcomes; run as a program with SCIPY_ARRAY_API=1, prints the actual
ones.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
import sklearn
from sklearn import decomposition, discriminant_analysis, linear_model, metrics, naive_bayes, preprocessing, utils
from sklearn.metrics import pairwise

import tracefx as fx
import tracefx.numpy as fnp
from tests.interchange.outcomes import BRANCHES, BRANCHES_AND_ASSIGNS, FLOATS, PURE, Call, Outcome, report

X: Final = np.random.default_rng(0).normal(size=(12, 3))
LABELS: Final = np.arange(12) % 2
TARGET: Final = np.sin(np.arange(12.0))


def like(x: Any, data: Any) -> Any:
    """Converts `data` to an array of the library of `x`."""
    return data if isinstance(x, np.ndarray) else fnp.asarray(data, dtype=data.dtype)


CALLS: Final[dict[str, tuple[Call, Outcome]]] = {
    "utils.extmath.softmax": (utils.extmath.softmax, PURE),
    "utils.extmath.row_norms": (utils.extmath.row_norms, PURE),
    "utils.shuffle": (lambda x: utils.shuffle(x, random_state=0), PURE),
    "preprocessing.FunctionTransformer": (
        lambda x: preprocessing.FunctionTransformer(lambda a: a**2).fit_transform(x),
        PURE,
    ),
    "metrics.pairwise.linear_kernel": (pairwise.linear_kernel, BRANCHES),
    "metrics.pairwise.rbf_kernel": (lambda x: pairwise.rbf_kernel(x, x + 1), BRANCHES),
    "metrics.pairwise.polynomial_kernel": (pairwise.polynomial_kernel, BRANCHES),
    "metrics.pairwise.sigmoid_kernel": (pairwise.sigmoid_kernel, BRANCHES),
    "metrics.pairwise.euclidean_distances": (lambda x: pairwise.euclidean_distances(x, x + 1), BRANCHES),
    "metrics.pairwise.paired_euclidean_distances": (
        lambda x: pairwise.paired_euclidean_distances(x, 2 * x + 1),
        BRANCHES,
    ),
    "preprocessing.KernelCenterer": (lambda x: preprocessing.KernelCenterer().fit_transform(x @ x.T), BRANCHES),
    "decomposition.PCA": (lambda x: abs(decomposition.PCA(2, svd_solver="full").fit_transform(x)), BRANCHES),
    "decomposition.TruncatedSVD": (
        lambda x: abs(decomposition.TruncatedSVD(2, random_state=0).fit_transform(x)),
        BRANCHES,
    ),
    "linear_model.RidgeCV": (lambda x: linear_model.RidgeCV().fit(x, like(x, TARGET)).predict(x), BRANCHES),
    "metrics.mean_squared_error": (lambda x: metrics.mean_squared_error(x[:, 0], x[:, 1]), FLOATS),
    "metrics.mean_absolute_error": (lambda x: metrics.mean_absolute_error(x[:, 0], x[:, 1]), FLOATS),
    "metrics.r2_score": (lambda x: metrics.r2_score(x[:, 0], x[:, 1]), BRANCHES_AND_ASSIGNS),
    "metrics.pairwise.cosine_similarity": (pairwise.cosine_similarity, BRANCHES_AND_ASSIGNS),
    "preprocessing.StandardScaler": (lambda x: preprocessing.StandardScaler().fit_transform(x), BRANCHES_AND_ASSIGNS),
    "preprocessing.MinMaxScaler": (lambda x: preprocessing.MinMaxScaler().fit_transform(x), BRANCHES_AND_ASSIGNS),
    "preprocessing.Normalizer": (lambda x: preprocessing.Normalizer().fit_transform(x), BRANCHES_AND_ASSIGNS),
    "linear_model.Ridge": (
        lambda x: linear_model.Ridge(solver="svd").fit(x, like(x, TARGET)).predict(x),
        BRANCHES_AND_ASSIGNS,
    ),
    "discriminant_analysis.LinearDiscriminantAnalysis": (
        lambda x: discriminant_analysis.LinearDiscriminantAnalysis().fit(x, like(x, LABELS)).decision_function(x),
        BRANCHES_AND_ASSIGNS,
    ),
    "naive_bayes.GaussianNB": (
        lambda x: naive_bayes.GaussianNB().fit(x, like(x, LABELS)).predict_proba(x),
        BRANCHES_AND_ASSIGNS,
    ),
}

if __name__ == "__main__":
    with fx.enable_x64(), sklearn.config_context(array_api_dispatch=True):
        sys.stdout.write(report(CALLS, X))
