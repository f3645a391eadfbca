"""Distributions and statistics beside SciPy's and JAX's: values, derivatives, ends, refusals."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import jax
import jax.scipy.stats as theirs
import numpy as np
import pytest
import scipy.stats

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import random
from tracefx.core.dtypes import NDArray
from tracefx.scipy import stats

INF: Final = np.inf
PLACES: Final = np.array([-3.0, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 4.0, 40.0])
COUNTS: Final = np.array([-1.0, 0.0, 1.0, 2.0, 5.0, 6.0, 300.0])
SHARES: Final = np.array([0.0, 1e-12, 0.125, 0.5, 0.75, 1.0, -0.5, 1.5])
SHAPES: Final[dict[str, tuple[float, ...]]] = {
    **dict.fromkeys(("norm", "cauchy", "laplace", "logistic", "expon", "uniform", "gumbel_l", "gumbel_r"), ()),
    "pareto": (1.5,),
    "gamma": (2.5,),
    "chi2": (3.0,),
    "beta": (1.5, 2.5),
    "t": (3.5,),
    "truncnorm": (-1.5, 2.0),
    "gennorm": (1.5,),
    "vonmises": (2.0,),
    "wrapcauchy": (0.5,),
    "bernoulli": (0.25,),
    "binom": (6.0, 0.25),
    "betabinom": (6.0, 1.5, 2.5),
    "nbinom": (6.0, 0.25),
    "geom": (0.25,),
    "poisson": (3.5,),
}
PLAIN: Final = ("gennorm", "vonmises", "wrapcauchy")
"""Those that have neither a place nor a width."""


def functions(name: str) -> list[str]:
    module = getattr(theirs, name)
    return [
        f
        for f in ("pdf", "logpdf", "pmf", "logpmf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf")
        if hasattr(module, f)
    ]


def arguments(name: str, f: str) -> list[Any]:
    shapes = list(SHAPES[name])
    if f in ("ppf", "isf"):
        first = SHARES
    elif hasattr(getattr(theirs, name), "pmf"):
        first = COUNTS
    else:
        first = PLACES
    takes = inspect.signature(getattr(getattr(theirs, name), f)).parameters
    if "scale" in takes:
        return [first, *shapes, 0.25, 1.5]
    return [first, *shapes, 1.0] if "loc" in takes else [first, *shapes]


LONG: Final = frozenset({"gamma", "chi2", "beta", "poisson", "gennorm", "truncnorm"})
"""Whose sums take long to compile."""
LOGARITHMS: Final = {
    **dict.fromkeys(LONG, ()),
    **dict.fromkeys(("gamma", "chi2", "beta"), ("logcdf", "logsf")),
    "truncnorm": ("cdf", "sf"),
}


def every(dtype: Any) -> list[tuple[str, str]]:
    """In 32 bits no sums that take long; in 64 none that are others' logarithms or exponentials."""
    found = [(name, f) for name in SHAPES for f in functions(name)]
    sums = ("cdf", "logcdf", "sf", "logsf")
    left_out = {(name, f) for name in LONG for f in (sums if dtype == np.float32 else LOGARITHMS[name])}
    return [each for each in found if each not in left_out]


def test_all_names_are_here() -> None:
    """Of modules, of their functions, and of these functions' arguments, with what they are by default."""
    for name, theirs_ in inspect.getmembers(theirs):
        if name.startswith("_"):
            continue
        ours = getattr(stats, name)
        if not isinstance(theirs_, ModuleType):
            if inspect.isfunction(ours):
                assert _parameters(ours) == _parameters(theirs_), name
            continue
        for f in functions(name):
            assert _parameters(getattr(ours, f)) == _parameters(getattr(theirs_, f)), f"{name}.{f}"


def _parameters(f: Callable[..., Any]) -> list[tuple[str, object]]:
    return [(p.name, p.default) for p in inspect.signature(f).parameters.values()]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_are_scipys(dtype: Any) -> None:
    """In one program. Logarithms of what 32 bits take for 0 or 1 are compared in 64."""
    given = {f"{name}.{f}": arguments(name, f) for name, f in every(dtype)}

    def all_values(args: Any) -> Any:
        return {key: getattr(getattr(stats, key.split(".")[0]), key.split(".")[1])(*xs) for key, xs in args.items()}

    found = fx.jit(all_values)(fx.tree.map(lambda x: fnp.array(x, dtype=dtype), given))
    wrong = []
    for key, got in found.items():
        name, f = key.split(".")
        first, *others = arguments(name, f)
        with np.errstate(all="ignore"):
            want = getattr(getattr(scipy.stats, name), f)(first.astype(dtype).astype(np.float64), *others)
        assert got.dtype == dtype
        out = np.asarray(got, np.float64)
        compared = ~OTHERWISE.get(key, nowhere)(first)
        if dtype == np.float32:
            compared &= ~((np.abs(want) < 1e-30) | (np.abs(want) > 1e30))
        eps = float(np.finfo(dtype).eps)
        if not np.allclose(out[compared], np.asarray(want)[compared], rtol=64 * eps, atol=16 * eps, equal_nan=True):
            wrong.append((key, out.tolist(), np.asarray(want).tolist()))
    assert not wrong, wrong


def nowhere(x: NDArray) -> NDArray:
    return np.zeros(x.shape, bool)


OTHERWISE: Final[dict[str, Callable[[NDArray], NDArray]]] = {
    # SciPy puts the angles of this one to others of the circle, and the end 0 outside.
    "vonmises.pdf": lambda x: np.abs(x) > np.pi,
    "vonmises.logpdf": lambda x: np.abs(x) > np.pi,
    "bernoulli.ppf": lambda x: x == 0,  # where SciPy has the number before the first
    # Tails that are 0 for SciPy, in whose form 1 is subtracted from 1.
    "cauchy.ppf": lambda x: x < 1e-6,
    "cauchy.isf": lambda x: x < 1e-6,
}


def test_logarithms_are_those_of_probabilities() -> None:
    for name in ("gamma", "chi2", "beta", "truncnorm"):
        module = getattr(stats, name)
        x = 0.5 if name in ("beta", "truncnorm") else 2.5
        for f in ("cdf", "sf"):
            got, log = (getattr(module, g)(x, *SHAPES[name], 0.25, 1.5) for g in (f, f"log{f}"))
            np.testing.assert_allclose(np.asarray(fnp.log(got)), np.asarray(log), rtol=1e-6)


def test_derivatives_are_jaxs() -> None:
    """Of logarithms of densities, with respect to every argument, where JAX has numbers."""
    keys = [
        f"{name}.{'logpmf' if hasattr(getattr(theirs, name), 'pmf') else 'logpdf'}"
        for name in SHAPES
        if not name.startswith("gumbel")  # where JAX fails
    ]
    place = {"uniform": 0.75, "beta": 0.75, "pareto": 3.0}
    given = {}
    for key in keys:
        name, f = key.split(".")
        _, *others = arguments(name, f)
        given[key] = [2.0 if f == "logpmf" else place.get(name, 0.625), *others]

    def slopes(library: Any, gradient: Any, args: Any) -> Any:
        found = {}
        for key, xs in args.items():
            name, f = key.split(".")
            found[key] = gradient(getattr(getattr(library, name), f), tuple(range(len(xs))))(*xs)
        return found

    ours = fx.jit(lambda args: slopes(stats, fx.grad, args))(fx.tree.map(fnp.array, given))
    jaxs = jax.jit(lambda args: slopes(theirs, jax.grad, args))(jax.tree.map(jax.numpy.asarray, given))
    for key in keys:
        np.testing.assert_allclose(np.asarray(ours[key]), np.asarray(jaxs[key]), rtol=2e-4, atol=1e-5, err_msg=key)


def test_tails_are_exact() -> None:
    """JAX's forms subtract numbers near 1 from 1."""
    far = fnp.array([-1e6, -50.0])
    np.testing.assert_allclose(np.asarray(stats.cauchy.cdf(far)), scipy.stats.cauchy.cdf([-1e6, -50]), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(stats.gumbel_r.sf(-far)), scipy.stats.gumbel_r.sf([1e6, 50]), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(stats.norm.isf(1e-30)), scipy.stats.norm.isf(1e-30), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(stats.binom.pmf(500_000, 1_000_000, 0.5)), 7.97884361e-4, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(stats.poisson.pmf(1_000_000, 1e6)), 3.98942247e-4, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(stats.gamma.cdf(1e6, 1e6)), 0.50013298, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(stats.t.logpdf(0.5, 1e8)), scipy.stats.t.logpdf(0.5, 1e8), rtol=1e-6)


def test_a_width_that_is_not_positive_gives_nan() -> None:
    for scale in (0.0, -1.0):
        found = [stats.norm.pdf(0.5, 0.0, scale), stats.norm.cdf(0.5, 0.0, scale), stats.expon.ppf(0.5, 0.0, scale)]
        assert np.isnan(found).all()


def test_types() -> None:
    assert stats.norm.pdf(1).dtype == fnp.float32
    assert stats.norm.pdf(0.5).weak_type
    assert stats.norm.pdf(fnp.array([0.5], dtype="bfloat16"), 1).dtype == fnp.bfloat16
    assert stats.norm.pdf(fnp.zeros((2, 1)), fnp.zeros(3)).shape == (2, 3)
    with pytest.raises(TypeError, match="not defined for complex numbers"):
        stats.norm.logpdf(1j)


# ------------------------------------------------------------------ vectors


def test_poisson_entropy() -> None:
    mu = np.array([0.0, 0.5, 5.0, 59.0, 61.0, 500.0, -1.0])
    np.testing.assert_allclose(np.asarray(stats.poisson.entropy(mu)), scipy.stats.poisson.entropy(mu), rtol=2e-6)


def test_dirichlet() -> None:
    x, alpha = np.array([[0.25, 0.5], [0.125, 0.25], [0.625, 0.25]]), np.array([1.5, 2.5, 3.0])
    want = scipy.stats.dirichlet.logpdf(x, alpha)
    for given in (x, x[:2]):
        np.testing.assert_allclose(np.asarray(stats.dirichlet.logpdf(given, alpha)), want, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(stats.dirichlet.pdf(x, alpha)), np.exp(want), rtol=1e-5)
    assert stats.dirichlet.pdf(x[:, 0] * 2, alpha) == 0
    with pytest.raises(ValueError, match="alpha must have one axis"):
        stats.dirichlet.pdf(x, x)
    with pytest.raises(ValueError, match="x must have 3 or 2 components"):
        stats.dirichlet.pdf(x[:1], alpha)


def test_multinomial() -> None:
    """Counts of several draws at once: JAX adds them all up."""
    x, p = np.array([[1, 2, 3], [0, 0, 6], [1, 1, 1]]), np.array([0.25, 0.25, 0.5])
    want = scipy.stats.multinomial.logpmf(x, 6, p)
    np.testing.assert_allclose(np.asarray(stats.multinomial.logpmf(x, 6, p)), want, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(stats.multinomial.pmf(x, 6, p)), np.exp(want), rtol=1e-5)
    with pytest.raises(TypeError, match="must be of integers"):
        stats.multinomial.pmf(x * 1.0, 6, p)


def test_multivariate_normal() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 3))
    cov = np.cov(rows.T) + np.eye(3)
    x, mean = rows[:2], rows[2]
    want = scipy.stats.multivariate_normal.logpdf(x, mean, cov)
    np.testing.assert_allclose(np.asarray(stats.multivariate_normal.logpdf(x, mean, cov)), want, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(stats.multivariate_normal.pdf(x, mean, cov)), np.exp(want), rtol=1e-5)
    np.testing.assert_allclose(
        np.asarray(stats.multivariate_normal.logpdf(x, mean, 2.0)),
        scipy.stats.multivariate_normal.logpdf(x, mean, 2.0),
        rtol=1e-5,
    )
    assert stats.multivariate_normal.logpdf(0.5, 0.0, 2.0) == pytest.approx(scipy.stats.norm.logpdf(0.5, 0, 2**0.5))
    ours = fx.grad(lambda c: stats.multivariate_normal.logpdf(x[0], mean, c))(fnp.array(cov))
    jaxs = jax.grad(lambda c: theirs.multivariate_normal.logpdf(x[0], mean, c))(jax.numpy.asarray(cov))
    np.testing.assert_allclose(np.asarray(ours), np.asarray(jaxs), rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="cov must be"):
        stats.multivariate_normal.logpdf(x, mean, np.eye(2))
    with pytest.raises(NotImplementedError, match="allow_singular"):
        stats.multivariate_normal.logpdf(x, mean, cov, allow_singular=True)  # type: ignore[arg-type]


# ------------------------------------------------------------------ samples


def test_density_estimation() -> None:
    data = np.random.default_rng(1).normal(size=(2, 12)).astype(np.float32)
    weights = np.linspace(1, 2, 12).astype(np.float32)
    points = data[:, :3] + 0.25
    other = data[:, 3:] * 2
    ours, scipys = stats.gaussian_kde(data), scipy.stats.gaussian_kde(data)
    for method in (None, "silverman", 0.5, lambda kde: 0.75):
        ours, scipys = stats.gaussian_kde(data, method, weights), scipy.stats.gaussian_kde(data, method, weights)
        np.testing.assert_allclose(np.asarray(ours(points)), scipys(points), rtol=1e-4)
        np.testing.assert_allclose(np.asarray(ours.logpdf(points)), scipys.logpdf(points), rtol=1e-4)
        np.testing.assert_allclose(np.asarray(ours.covariance), scipys.covariance, rtol=1e-4)
    found = [
        ours.integrate_gaussian(points[:, 0], np.eye(2)),
        ours.integrate_kde(stats.gaussian_kde(other)),
        stats.gaussian_kde(data[0]).integrate_box_1d(-0.5, 1.0),
    ]
    wanted = [
        scipys.integrate_gaussian(points[:, 0], np.eye(2)),
        scipys.integrate_kde(scipy.stats.gaussian_kde(other)),
        scipy.stats.gaussian_kde(data[0]).integrate_box_1d(-0.5, 1.0),
    ]
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4)
    assert ours.resample(random.key(0), (3, 4)).shape == (2, 3, 4)
    assert fx.jit(lambda kde: kde.evaluate(points))(ours).shape == (3,)
    assert fx.tree.structure(ours) == fx.tree.structure(stats.gaussian_kde(other))
    for refused, kind in (
        (lambda: stats.gaussian_kde(np.array([1.0])), ValueError),
        (lambda: stats.gaussian_kde(data, "other"), ValueError),
        (lambda: stats.gaussian_kde(data, None, weights[:3]), ValueError),
        (lambda: stats.gaussian_kde(data + 1j), NotImplementedError),
        (lambda: ours.evaluate(np.ones((3, 2))), ValueError),
        (lambda: ours.integrate_box_1d(0.0, 1.0), ValueError),
        (lambda: ours.set_bandwidth(), NotImplementedError),
        (lambda: ours.integrate_box(0, 1), NotImplementedError),
    ):
        with pytest.raises(kind):
            refused()


def test_modes_and_ranks() -> None:
    a = np.array([[3, 1, 2, 1], [2, 2, 5, 1], [3, 2, 5, 7]], np.int32)
    for axis in (0, 1, None):
        for keepdims in (False, True):
            got, want = stats.mode(a, axis, keepdims=keepdims), scipy.stats.mode(a, axis, keepdims=keepdims)
            np.testing.assert_array_equal(np.asarray(got.mode), want.mode)
            np.testing.assert_array_equal(np.asarray(got.count), want.count)
        for method in ("average", "min", "max", "dense", "ordinal"):
            ranks = stats.rankdata(a, method, axis=axis)
            assert ranks.dtype == fnp.float32
            right = scipy.stats.rankdata(a, method, axis=axis).reshape(ranks.shape)
            np.testing.assert_array_equal(np.asarray(ranks), right)
    gaps = np.array([[1.0, np.nan, 1.0], [2.0, 3.0, 1.0]], np.float32)
    assert np.isnan(stats.rankdata(gaps, axis=1)).tolist() == [[True] * 3, [False] * 3]
    np.testing.assert_array_equal(np.asarray(stats.mode(np.array([np.nan, np.nan, 1.0])).count), 2)
    assert stats.mode(np.zeros((0, 2))).count.tolist() == [0, 0]
    assert stats.rankdata(np.zeros((2, 0)), axis=1).shape == (2, 0)
    for f in (stats.mode, stats.rankdata):
        with pytest.raises(ValueError, match="nan_policy must be"):
            f(a, nan_policy="other")
        with pytest.raises(NotImplementedError, match="nan_policy='omit'"):
            f(a, nan_policy="omit")
    with pytest.raises(ValueError, match="method must be"):
        stats.rankdata(a, "other")


def test_standard_errors() -> None:
    a = np.array([[1.0, 2.0, 4.0], [np.nan, 3.0, 1.0], [5.0, 2.0, 8.0]])
    for axis in (0, 1, None):
        for policy in ("propagate", "omit"):
            got = stats.sem(a, axis, nan_policy=policy, keepdims=False)
            np.testing.assert_allclose(np.asarray(got), scipy.stats.sem(a, axis, nan_policy=policy), rtol=1e-6)
    assert stats.sem(a, 0, 0, keepdims=True).shape == (1, 3)
    with pytest.raises(ValueError, match="nan_policy must be"):
        stats.sem(a, nan_policy="raise")
