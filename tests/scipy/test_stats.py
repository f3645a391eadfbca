"""Distributions and statistics that the comparison with SciPy leaves out: names, far tails, objects, error messages."""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import jax
import jax.scipy.stats as jax_stats
import numpy as np
import pytest
import scipy.stats

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tests.differential.scipy_stats import FORMS
from tests.errors import assert_errors, untyped
from tracefx import random
from tracefx.scipy import stats
from tracefx.scipy.stats.distributions import DistributionFunctions
from tracefx.testing.tolerances import Ulps

TAIL: Final = Ulps(f32=8)
"""For probabilities far from the center."""
DISTRIBUTIONS = [
    each for each in vars(stats).values() if isinstance(each, type) and each in DistributionFunctions.__subclasses__()
]


def parameters(f: Callable[..., Any]) -> list[tuple[str, object]]:
    return [(p.name, p.default) for p in inspect.signature(f).parameters.values()]


def test_names_and_signatures_match_jax() -> None:
    """Compares names of modules, of their functions, and of parameters with their defaults."""
    for name, jax_member in inspect.getmembers(jax_stats):
        if name.startswith("_"):
            continue
        member = getattr(stats, name)
        if not isinstance(jax_member, ModuleType):
            if inspect.isfunction(member):
                assert parameters(member) == parameters(jax_member), name
            continue
        for form in (*FORMS, "entropy"):
            assert hasattr(member, form) == hasattr(jax_member, form), f"{name}.{form}"
            if hasattr(member, form):
                assert parameters(getattr(member, form)) == parameters(getattr(jax_member, form)), f"{name}.{form}"


SHAPES: Final[dict[str, tuple[float, ...]]] = {
    "beta": (2.0, 3.0),
    "betabinom": (5.0, 2.0, 3.0),
    "binom": (5.0, 0.3),
    "nbinom": (5.0, 0.3),
    "truncnorm": (-1.0, 2.0),
    **dict.fromkeys(("bernoulli", "geom", "wrapcauchy"), (0.3,)),
    **dict.fromkeys(("chi2", "gamma", "gennorm", "pareto", "poisson", "t", "vonmises"), (2.5,)),
}
"""Parameters of the distributions that have some besides the location and the scale."""


OF_VECTORS: Final = ("dirichlet", "multinomial", "multivariate_normal")


@pytest.mark.parametrize("distribution", [d for d in DISTRIBUTIONS if d.__name__ not in OF_VECTORS])
def test_nan_gives_nan(distribution: type[DistributionFunctions]) -> None:
    for form in FORMS:
        if hasattr(distribution, form):
            assert np.isnan(getattr(distribution, form)(np.nan, *SHAPES.get(distribution.__name__, ()))), form


def test_derivative_of_the_laplace_cdf_at_the_center() -> None:
    assert fx.grad(stats.laplace.cdf)(0.0) == 0.5
    assert fx.grad(fx.grad(stats.laplace.cdf))(0.0) == 0.5  # from the left


def test_gradients_of_logarithms_outside_of_the_support_are_0() -> None:
    assert fx.grad(stats.beta.logcdf)(-0.5, 2.0, 3.0) == 0.0
    assert fx.grad(stats.beta.logsf)(1.5, 2.0, 3.0) == 0.0
    assert fx.grad(stats.gamma.logcdf)(-0.5, 2.0) == 0.0


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0])
def test_gradients_of_logarithms_at_the_edge_of_the_support_are_0_as_in_jax(shape: float) -> None:
    for name in ("gamma", "chi2"):
        edge = [fx.grad(getattr(stats, name).logcdf)(0.0, shape), jax.grad(getattr(jax_stats, name).logcdf)(0.0, shape)]
        assert edge == [0.0, 0.0], name
    assert fx.grad(stats.beta.logcdf)(0.0, shape, 3.0) == jax.grad(jax_stats.beta.logcdf)(0.0, shape, 3.0) == 0.0
    assert fx.grad(stats.beta.logsf)(1.0, 3.0, shape) == jax.grad(jax_stats.beta.logsf)(1.0, 3.0, shape) == 0.0


def test_functions_describe_each_argument() -> None:
    for distribution in DISTRIBUTIONS:
        for name, f in inspect.getmembers(distribution, inspect.isfunction):
            if not name.startswith("_"):
                text = inspect.getdoc(f) or ""
                assert all(f"\n    {parameter}: " in text for parameter, _ in parameters(f)), f.__qualname__
                assert f"{f.__qualname__}(" in text.partition(">>> ")[2], f.__qualname__


def test_distributions_are_importable_as_modules() -> None:
    """As in JAX, where they are modules."""
    assert importlib.import_module("tracefx.scipy.stats.beta").logpdf is stats.beta.logpdf
    assert {f"tracefx.scipy.stats.{each.__name__}" for each in DISTRIBUTIONS} <= set(sys.modules)


def test_functions_of_distributions_pickle() -> None:
    assert pickle.loads(pickle.dumps(stats.beta.logcdf)) is stats.beta.logcdf


def test_misuse_of_distributions() -> None:
    with pytest.raises(TypeError, match=r"norm is a namespace of functions"):
        stats.norm()
    with pytest.raises(TypeError, match=r"beta.pdf\(\) missing 1 required positional argument: 'b'"):
        untyped(stats.beta.pdf)(0.5, 1.0)


def test_tails_are_accurate() -> None:
    """JAX's formulas subtract numbers near 1 from 1."""
    far = fnp.array([-1e6, -50.0])
    assert_near(stats.cauchy.cdf(far), scipy.stats.cauchy.cdf([-1e6, -50]), TAIL)
    assert_near(stats.gumbel_r.sf(-far), scipy.stats.gumbel_r.sf([1e6, 50]), TAIL)
    assert_near(stats.norm.isf(1e-30), scipy.stats.norm.isf(1e-30), TAIL)
    assert_near(stats.binom.pmf(500_000, 1_000_000, 0.5), 7.97884361e-4, TAIL)
    assert_near(stats.poisson.pmf(1_000_000, 1e6), 3.98942247e-4, TAIL)
    assert_near(stats.gamma.cdf(1e6, 1e6), 0.50013298, TAIL)
    assert_near(stats.t.logpdf(0.5, 1e8), scipy.stats.t.logpdf(0.5, 1e8), TAIL)


def test_nonpositive_scale_gives_nan() -> None:
    for scale in (0.0, -1.0):
        values = [stats.norm.pdf(0.5, 0.0, scale), stats.norm.cdf(0.5, 0.0, scale), stats.expon.ppf(0.5, 0.0, scale)]
        assert np.isnan(values).all()


def test_dtype_promotion_and_broadcasting() -> None:
    assert stats.norm.pdf(1).dtype == fnp.float32
    assert stats.norm.pdf(fnp.array([0.5], dtype="bfloat16"), 1).dtype == fnp.bfloat16
    assert stats.norm.pdf(fnp.zeros((2, 1)), fnp.zeros(3)).shape == (2, 3)


def test_gaussian_kde() -> None:
    data = np.random.default_rng(1).normal(size=(2, 12)).astype(np.float32)
    density = stats.gaussian_kde(data, lambda kde: 0.75)
    want = scipy.stats.gaussian_kde(data, lambda kde: 0.75)(data[:, :3])
    assert_near(density(data[:, :3]), want, Ulps(f32=64))  # a sum of exponentials
    assert density.resample(random.key(0), (3, 4)).shape == (2, 3, 4)
    assert fx.jit(lambda kde: kde.evaluate(data[:, :3]))(density).shape == (3,)
    assert fx.tree.structure(density) == fx.tree.structure(stats.gaussian_kde(data * 2, lambda kde: 0.75))


def test_mode_and_rankdata_of_empty_and_nan_data() -> None:
    assert stats.mode(np.zeros((0, 2))).count.tolist() == [0, 0]
    assert stats.mode(np.array([np.nan, np.nan, 1.0])).count == 2
    assert stats.rankdata(np.zeros((2, 0)), axis=1).shape == (2, 0)


def test_quantiles_of_numbers_are_weak() -> None:
    assert_same(stats.bernoulli.ppf(0.9, 0.3), jax_stats.bernoulli.ppf(0.9, 0.3))
    q = np.array([0.1, 0.9, 2.0], np.float32)
    assert_same(stats.bernoulli.ppf(q, 0.3), jax_stats.bernoulli.ppf(q, 0.3))


MATRIX = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def test_invalid_arguments_raise() -> None:
    assert_errors(
        (lambda: stats.norm.logpdf(1j), TypeError, "not defined for complex numbers"),
        (lambda: stats.dirichlet.pdf(MATRIX, MATRIX), ValueError, "alpha must have one axis"),
        (lambda: stats.dirichlet.pdf(MATRIX[:1], np.ones(3)), ValueError, "x must have 3 or 2 components"),
        (lambda: stats.multinomial.pmf(MATRIX[0], 6, MATRIX[1]), TypeError, "must have integer dtypes"),
        (lambda: stats.multivariate_normal.logpdf(MATRIX, MATRIX[0], np.eye(3)), ValueError, "cov must be"),
        (
            lambda: untyped(stats.multivariate_normal.logpdf)(MATRIX, MATRIX[0], np.eye(2), allow_singular=True),
            NotImplementedError,
            "allow_singular",
        ),
        (lambda: stats.gaussian_kde(np.array([1.0])), ValueError, "dataset"),
        (lambda: stats.gaussian_kde(MATRIX, "other"), ValueError, "other"),
        (lambda: stats.gaussian_kde(MATRIX + 1j), NotImplementedError, "must be real"),
        (lambda: stats.gaussian_kde(MATRIX).integrate_box_1d(0.0, 1.0), ValueError, "one"),
        (lambda: stats.gaussian_kde(MATRIX).set_bandwidth(), NotImplementedError, "bandwidth"),
        (lambda: stats.gaussian_kde(MATRIX).integrate_box(0, 1), NotImplementedError, "integrate_box"),
        (lambda: stats.mode(MATRIX, nan_policy="other"), ValueError, "nan_policy must be"),
        (lambda: stats.rankdata(MATRIX, nan_policy="omit"), NotImplementedError, "nan_policy='omit'"),
        (lambda: stats.rankdata(MATRIX, "other"), ValueError, "method must be"),
        (lambda: stats.sem(MATRIX, nan_policy="raise"), ValueError, "nan_policy must be"),
    )
