"""Records of `tracefx.scipy.stats`: all functions of a distribution at once, compared with JAX and SciPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.scipy.stats  # noqa: F401  # JAX has it as an attribute only then
import numpy as np
import scipy.stats
from attrs import evolve

import tracefx.scipy.stats
from tests.differential.records import (
    NAN,
    Call,
    Function,
    Library,
    Record,
    Reference,
    Weak,
    call,
    f32,
    grid,
    i32,
    operand_values,
    record,
    reference,
)
from tests.differential.scipy_others import scipy as scipy_record
from tracefx.core import NDArray
from tracefx.testing.tolerances import PROGRAM, Ulps

DENSITIES: Final = ("pdf", "logpdf", "pmf", "logpmf")
SUMS: Final = ("cdf", "logcdf", "sf", "logsf")
INVERSES: Final = ("ppf", "isf")
FORMS: Final = (*DENSITIES, *SUMS, *INVERSES)
"""The functions of a distribution."""

POINTS: Final = f32(-3.0, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 4.0, 40.0)
COUNTS: Final = f32(-1, 0, 1, 2, 5, 6, 300)
PROBABILITIES: Final = f32(0, 1e-5, 0.125, 0.5, 0.75, 1, -0.5, 1.5)
INSIDE: Final = f32(0.125, 0.5, 0.75)
LOC, SCALE, ONE = [np.asarray(x, np.float32) for x in (0.25, 1.5, 1.0)]
ROUNDED: Final = Ulps(64, 64, least=0.25)
"""Logarithms and sums of them, which cancel where they are small."""


def forms_of(name: str, among: Sequence[str]) -> tuple[str, ...]:
    return tuple([form for form in among if hasattr(getattr(tracefx.scipy.stats, name), form)])


def all_of(forms: Sequence[str]) -> Callable[[Any], Function]:
    """Returns the functions of a distribution's module as one, of points, and of probabilities if any needs these."""

    def combined(module: Any) -> Function:
        def at_points(x: Any, *parameters: Any) -> tuple[Any, ...]:
            return tuple([getattr(module, form)(x, *parameters) for form in forms])

        def at_points_and_probabilities(x: Any, q: Any, *parameters: Any) -> tuple[Any, ...]:
            return tuple([getattr(module, form)(q if form in INVERSES else x, *parameters) for form in forms])

        return at_points_and_probabilities if set(forms) & set(INVERSES) else at_points

    return combined


def distribution(
    name: str,
    *shapes: float,
    at: NDArray,
    among: Sequence[str] = FORMS,
    places: NDArray = POINTS,
    probabilities: NDArray = PROBABILITIES,
    slopes: Sequence[int] | None = None,
    mapped: Sequence[tuple[int, ...]] | None = None,
    exact: Ulps = ROUNDED,
    located: bool = True,
    by_jax: bool = True,
    **kw: Any,
) -> Record:
    """`at`: points where derivatives are compared; `by_jax`: whether to compare with JAX, which may compile slowly."""
    forms = forms_of(name, among)
    parameters = [np.asarray(shape, np.float32) for shape in shapes]
    if located:
        parameters += [ONE] if "pmf" in forms_of(name, FORMS) else [LOC, SCALE]
    of = all_of(forms)

    def calling(x: NDArray, q: NDArray) -> Call:
        return call(x, q, *parameters) if set(forms) & set(INVERSES) else call(x, *parameters)

    def via(library: Library) -> Function:
        return of(getattr(library.root.scipy.stats, name))

    inside = calling(at, INSIDE)
    kw = {"dtypes": ("float16",), "ulps": PROGRAM, "batched": False, **kw}
    return record(
        f"{name}.{forms[0]}",
        *([inside] if by_jax else []),
        module="scipy.stats",
        via=via,
        typed=[
            calling(np.zeros((0, 2), np.float32), PROBABILITIES[:0]),
            inside.at([Weak(operand_values(x)) for x in inside.operands]),
        ],
        refused=[inside.at(["a", *inside.operands[1:]])],
        reference=reference(
            of(getattr(scipy.stats, name)),
            exact,
            inside,
            values=[calling(places, probabilities)],
            slopes=slopes,
            mapped=mapped,
        ),
        **kw,
    )


def discrete(name: str, *shapes: float, smooth: Sequence[int], **kw: Any) -> Record:
    """Record of a discrete distribution; `smooth`: indices of the operands that may be non-integral."""
    return distribution(name, *shapes, places=COUNTS, slopes=smooth, mapped=[(0,), *[(i,) for i in smooth]], **kw)


INTEGERS: Final = f32(2, 5, 3)

# ------------------------------------------------------------------ vectors

ROWS: Final = grid(3, 2)
SPREAD: Final = f32([2, 0.5], [0.5, 1])
CHANCES: Final = f32(0.25, 0.25, 0.5)
DRAWN: Final = i32([1, 2, 3], [0, 0, 6], [1, 1, 1])
WEIGHTS: Final = f32(1.5, 2.5, 3)
PARTS: Final = f32([0.25, 0.5], [0.125, 0.25], [0.625, 0.25])


def both(name: str, forms: Sequence[str], *calls: Call, by: Reference, **kw: Any) -> Record:
    """Record of the density and its logarithm."""
    of = all_of(forms)

    def via(library: Library) -> Function:
        return of(getattr(library.root.scipy.stats, name))

    kw = {"dtypes": ("float16",), "ulps": PROGRAM, "batched": False, **kw}
    return record(f"{name}.{forms[0]}", *calls, module="scipy.stats", via=via, reference=by, **kw)


def by_scipy(name: str, forms: Sequence[str], *calls: Call, **kw: Any) -> Reference:
    return reference(all_of(forms)(getattr(scipy.stats, name)), ROUNDED, *calls, values=calls, **kw)


OF_VECTORS: Final = (
    both(
        "dirichlet",
        ("pdf", "logpdf"),
        call(PARTS[:, 0], WEIGHTS),
        call(PARTS[:2], WEIGHTS),
        values=[call(PARTS[:, 0] * 2, WEIGHTS)],
        refused=[call(PARTS, PARTS), call("a", WEIGHTS)],
        by=by_scipy("dirichlet", ("pdf", "logpdf"), call(PARTS, WEIGHTS), slopes=[1], mapped=[(1,)]),
    ),
    both(
        "multinomial",
        ("pmf", "logpmf"),
        call(DRAWN[0], 6, CHANCES),
        refused=[call(CHANCES, 6, CHANCES)],
        dtypes=(),
        # Of several samples at once JAX returns the sum.
        by=by_scipy("multinomial", ("pmf", "logpmf"), call(DRAWN[:2], 6, CHANCES), slopes=[], mapped=[(0,)]),
    ),
    both(
        "multivariate_normal",
        ("pdf", "logpdf"),
        call(ROWS, ROWS[0], SPREAD),
        values=[call(ROWS, ROWS[0], LOC), call(LOC, ONE, SCALE)],
        refused=[call(ROWS, ROWS[0], np.eye(3, dtype=np.float32)), call("a", ROWS[0], SPREAD)],
        dtypes=(),
        by=by_scipy("multivariate_normal", ("pdf", "logpdf"), call(ROWS, ROWS[0], SPREAD), slopes=[0], mapped=[(0,)]),
    ),
)

# ------------------------------------------------------------------ samples

TABLE: Final = i32([3, 1, 2, 1], [2, 2, 5, 1], [3, 2, 5, 7])
WITH_NAN: Final = f32([1, 2, 4], [NAN, 3, 1], [5, 2, 8])
DATA: Final = grid(2, 12)
EVALUATION_POINTS: Final = DATA[:, :3] + np.float32(0.25)
METHODS: Final = ("average", "min", "max", "dense", "ordinal")


def sample_statistic(name: str, *calls: Call, of: Callable[[Any], Function] | None = None, **kw: Any) -> Record:
    kw = {"dtypes": ("float16",), "ulps": PROGRAM, **kw}
    return scipy_record("stats", name, *calls, of=of, **kw)


def kde_results(module: Any) -> Function:
    def f(data: Any, points: Any, other: Any, method: Any = None, weights: Any = None) -> Any:
        kde = module.gaussian_kde(data, method, weights)
        gaussian_integral = kde.integrate_gaussian(points[:, 0], np.eye(2, dtype=np.float32))
        overlap = kde.integrate_kde(module.gaussian_kde(other))
        return kde(points), kde.logpdf(points), kde.covariance, gaussian_integral, overlap

    return f


def box_integral(module: Any) -> Function:
    return lambda data: module.gaussian_kde(data).integrate_box_1d(-0.5, 1.0)


OF_SAMPLES: Final = (
    sample_statistic(
        "mode",
        call(TABLE),
        values=[call(TABLE, axis, keepdims=keepdims) for axis in (0, 1, None) for keepdims in (False, True)],
        refused=[call(TABLE, nan_policy="other"), call(TABLE, nan_policy="omit"), call("a")],
        derivatives=False,
    ),
    sample_statistic(
        "rankdata",
        call(TABLE, axis=1),
        values=[*[call(TABLE, method, axis=axis) for method in METHODS for axis in (1, None)], call(WITH_NAN, axis=1)],
        refused=[call(TABLE, "other"), call(TABLE, nan_policy="other"), call(TABLE, nan_policy="omit"), call("a")],
        derivatives=False,
    ),
    sample_statistic(
        "sem",
        call(WITH_NAN, 1, nan_policy="omit"),
        call(ROWS),
        values=[*[call(WITH_NAN, axis) for axis in (0, 1, None)], call(WITH_NAN, 0, 0, keepdims=True)],
        refused=[call(ROWS, nan_policy="raise"), call("a")],
    ),
    sample_statistic(
        "gaussian_kde",
        call(DATA, EVALUATION_POINTS, DATA * 2),
        values=[
            call(DATA, EVALUATION_POINTS, DATA * 2, "silverman"),
            call(DATA, EVALUATION_POINTS, DATA, 0.5, grid(12, low=1, high=2)),
        ],
        refused=[
            call(DATA, EVALUATION_POINTS, DATA, "other"),
            call(DATA, EVALUATION_POINTS, DATA, None, EVALUATION_POINTS[0]),
            call(f32(1), EVALUATION_POINTS, DATA),
            call(DATA, np.ones((3, 2), np.float32), DATA),
        ],
        dtypes=(),
        of=kde_results,
    ),
    sample_statistic("gaussian_kde.integrate_box_1d", call(DATA[0]), dtypes=(), of=box_integral),
    sample_statistic(
        "poisson.entropy",
        typed=[call(Weak(f32(5)))],
        of=lambda module: module.poisson.entropy,
        reference=reference(
            scipy.stats.poisson.entropy,
            Ulps(2.0**12, 16),  # SciPy stops summing when terms are small relative to the sum
            call(f32(0.5, 5)),
            values=[call(f32(0, 0.5, 5, 59, 99, 101, 500, -1))],
        ),
    ),
)

SMOOTH_POINTS: Final = f32(0.375, 0.625, 1.5)
TAIL_POINTS: Final = f32(2.0, 3.5, 5.0)
DISTRIBUTIONS: Final = (
    distribution("norm", at=SMOOTH_POINTS, exact=evolve(ROUNDED, f64=128), dtypes=()),
    distribution("cauchy", at=SMOOTH_POINTS),
    distribution("laplace", at=SMOOTH_POINTS),
    distribution("logistic", at=SMOOTH_POINTS),
    distribution("expon", at=SMOOTH_POINTS),
    distribution("uniform", at=SMOOTH_POINTS),
    distribution("gumbel_l", at=SMOOTH_POINTS, derivatives=False),
    distribution("gumbel_r", at=SMOOTH_POINTS, derivatives=False),
    distribution("pareto", 1.5, at=TAIL_POINTS),
    distribution("t", 3.5, at=SMOOTH_POINTS),
    distribution("gamma", 2.5, at=SMOOTH_POINTS, among=DENSITIES),
    distribution("chi2", 3.0, at=SMOOTH_POINTS, among=DENSITIES),
    distribution("beta", 1.5, 2.5, at=SMOOTH_POINTS, among=DENSITIES),
    distribution("truncnorm", -1.5, 2.0, at=SMOOTH_POINTS, among=DENSITIES, dtypes=()),
    distribution("gennorm", 1.5, at=SMOOTH_POINTS, among=DENSITIES, located=False),
    distribution("vonmises", 2.0, at=SMOOTH_POINTS, located=False, places=f32(-3, -0.5, 0, 0.25, 1.5)),
    distribution("wrapcauchy", 0.5, at=SMOOTH_POINTS, located=False),
    discrete("bernoulli", 0.375, at=f32(1, 0), smooth=[2], located=False, probabilities=PROBABILITIES[1:]),
    discrete("binom", 6, 0.25, at=INTEGERS, smooth=[2]),
    discrete("betabinom", 6, 1.5, 2.5, at=INTEGERS, smooth=[2, 3], by_jax=False),
    discrete("nbinom", 6, 0.25, at=INTEGERS, smooth=[1, 2]),
    discrete("geom", 0.25, at=INTEGERS, smooth=[1]),
    discrete("poisson", 3.5, at=INTEGERS, among=DENSITIES, smooth=[1]),
    distribution("gamma", 2.5, at=SMOOTH_POINTS, among=SUMS, along=[0], slopes=[0]),
    distribution("chi2", 3.0, at=SMOOTH_POINTS, among=SUMS, along=[0], slopes=[0]),
    distribution("beta", 1.5, 2.5, at=SMOOTH_POINTS, among=SUMS, along=[0], slopes=[0]),
    distribution("truncnorm", -1.5, 2.0, at=SMOOTH_POINTS, among=SUMS, by_jax=False),
    distribution("gennorm", 1.5, at=SMOOTH_POINTS, among=SUMS, located=False, along=[0], slopes=[0]),
    discrete("poisson", 3.5, at=INTEGERS, among=SUMS, smooth=[1], along=[1]),
)
RECORDS: Final[tuple[Record, ...]] = (*DISTRIBUTIONS, *OF_VECTORS, *OF_SAMPLES)
