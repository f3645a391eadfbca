"""Probability distributions and sample statistics, with the names and arguments of `jax.scipy.stats`.

Each distribution is a module of functions, whose arguments broadcast together. `loc` and `scale` shift and scale the
distribution: densities are functions of `(x - loc) / scale`. Results are NaN where `scale` is not positive.
"""

from __future__ import annotations

from tracefx.scipy.stats import (
    bernoulli,
    beta,
    betabinom,
    binom,
    cauchy,
    chi2,
    dirichlet,
    expon,
    gamma,
    gennorm,
    geom,
    gumbel_l,
    gumbel_r,
    laplace,
    logistic,
    multinomial,
    multivariate_normal,
    nbinom,
    norm,
    pareto,
    poisson,
    t,
    truncnorm,
    uniform,
    vonmises,
    wrapcauchy,
)
from tracefx.scipy.stats.density_estimation import gaussian_kde
from tracefx.scipy.stats.sample_statistics import ModeResult, mode, rankdata, sem

__all__ = [
    "bernoulli",
    "beta",
    "betabinom",
    "binom",
    "cauchy",
    "chi2",
    "dirichlet",
    "expon",
    "gamma",
    "gennorm",
    "geom",
    "gumbel_l",
    "gumbel_r",
    "laplace",
    "logistic",
    "multinomial",
    "multivariate_normal",
    "nbinom",
    "norm",
    "pareto",
    "poisson",
    "t",
    "truncnorm",
    "uniform",
    "vonmises",
    "wrapcauchy",
    "gaussian_kde",
    "mode",
    "ModeResult",
    "rankdata",
    "sem",
]
