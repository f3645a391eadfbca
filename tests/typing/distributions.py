"""Static types of the functions of distributions, which are made from declarations of their arguments.

Checked by mypy and pyright; the functions are never called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

from tracefx import Array
from tracefx.core import ArrayLike
from tracefx.scipy import stats
from tracefx.scipy.stats import beta, norm, poisson


def functions_have_the_declared_signatures(x: Array) -> Callable[[ArrayLike, ArrayLike, ArrayLike], Array]:
    assert_type(norm.pdf(x), Array)
    assert_type(norm.ppf(q=0.5, scale=x), Array)
    assert_type(beta.logcdf(0.5, a=1.0, b=x, loc=-1), Array)
    assert_type(poisson.entropy(2.0), Array)
    assert_type(stats.multivariate_normal.pdf(x, x, x), Array)
    beta.pdf(x, 1.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    norm.pdf(x, mean=0.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    return norm.pdf
