"""Records of `tracefx.scipy.stats`: distributions, all functions of one at once, beside JAX's and SciPy's."""

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
from tracefx.core.dtypes import NDArray
from tracefx.testing.tolerances import PROGRAM, Ulps

DENSITIES: Final = ("pdf", "logpdf", "pmf", "logpmf")
SUMS: Final = ("cdf", "logcdf", "sf", "logsf")
INVERSES: Final = ("ppf", "isf")
FORMS: Final = (*DENSITIES, *SUMS, *INVERSES)
"""The functions of a distribution."""

PLACES: Final = f32(-3.0, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 4.0, 40.0)
COUNTS: Final = f32(-1, 0, 1, 2, 5, 6, 300)
SHARES: Final = f32(0, 1e-5, 0.125, 0.5, 0.75, 1, -0.5, 1.5)
INSIDE: Final = f32(0.125, 0.5, 0.75)
LOC, SCALE, ONE = [np.asarray(x, np.float32) for x in (0.25, 1.5, 1.0)]
ROUNDED: Final = Ulps(64, 64, least=0.25)
"""Logarithms and sums of them, which cancel where they are small."""


def forms_of(name: str, among: Sequence[str]) -> tuple[str, ...]:
    return tuple([form for form in among if hasattr(getattr(tracefx.scipy.stats, name), form)])


def all_of(forms: Sequence[str]) -> Callable[[Any], Function]:
    """The functions of a distribution's module, as one of places, and of probabilities if any of them takes these."""

    def made(module: Any) -> Function:
        def at_places(x: Any, *rest: Any) -> tuple[Any, ...]:
            return tuple([getattr(module, form)(x, *rest) for form in forms])

        def at_both(x: Any, q: Any, *rest: Any) -> tuple[Any, ...]:
            return tuple([getattr(module, form)(q if form in INVERSES else x, *rest) for form in forms])

        return at_both if set(forms) & set(INVERSES) else at_places

    return made


def distribution(
    name: str,
    *shapes: float,
    at: NDArray,
    among: Sequence[str] = FORMS,
    places: NDArray = PLACES,
    shares: NDArray = SHARES,
    slopes: Sequence[int] | None = None,
    mapped: Sequence[tuple[int, ...]] | None = None,
    exact: Ulps = ROUNDED,
    located: bool = True,
    by_jax: bool = True,
    **kw: Any,
) -> Record:
    """`at`: places where there are derivatives; `by_jax`: whether JAX is asked, whose programs may take long."""
    forms = forms_of(name, among)
    rest = [np.asarray(shape, np.float32) for shape in shapes]
    if located:
        rest += [ONE] if "pmf" in forms_of(name, FORMS) else [LOC, SCALE]
    of = all_of(forms)

    def calling(x: NDArray, q: NDArray) -> Call:
        return call(x, q, *rest) if set(forms) & set(INVERSES) else call(x, *rest)

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
            calling(np.zeros((0, 2), np.float32), SHARES[:0]),
            inside.at([Weak(operand_values(x)) for x in inside.operands]),
        ],
        refused=[inside.at(["a", *inside.operands[1:]])],
        reference=reference(
            of(getattr(scipy.stats, name)),
            exact,
            inside,
            values=[calling(places, shares)],
            slopes=slopes,
            mapped=mapped,
        ),
        **kw,
    )


def counting(name: str, *shapes: float, smooth: Sequence[int], **kw: Any) -> Record:
    """A distribution of whole numbers; `smooth`: which operands need not be."""
    return distribution(name, *shapes, places=COUNTS, slopes=smooth, mapped=[(0,), *[(i,) for i in smooth]], **kw)


WHOLE: Final = f32(2, 5, 3)

# ------------------------------------------------------------------ vectors

ROWS: Final = grid(3, 2)
SPREAD: Final = f32([2, 0.5], [0.5, 1])
CHANCES: Final = f32(0.25, 0.25, 0.5)
DRAWN: Final = i32([1, 2, 3], [0, 0, 6], [1, 1, 1])
WEIGHTS: Final = f32(1.5, 2.5, 3)
PARTS: Final = f32([0.25, 0.5], [0.125, 0.25], [0.625, 0.25])


def both(name: str, forms: Sequence[str], *calls: Call, by: Reference, **kw: Any) -> Record:
    """The density and its logarithm."""
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
        # Of several draws at once JAX adds all up.
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
HOLED: Final = f32([1, 2, 4], [NAN, 3, 1], [5, 2, 8])
DATA: Final = grid(2, 12)
AT: Final = DATA[:, :3] + np.float32(0.25)
METHODS: Final = ("average", "min", "max", "dense", "ordinal")


def of_samples(name: str, *calls: Call, of: Callable[[Any], Function] | None = None, **kw: Any) -> Record:
    kw = {"dtypes": ("float16",), "ulps": PROGRAM, **kw}
    return scipy_record("stats", name, *calls, of=of, **kw)


def estimated(module: Any) -> Function:
    def f(data: Any, points: Any, other: Any, method: Any = None, weights: Any = None) -> Any:
        kde = module.gaussian_kde(data, method, weights)
        spread = kde.integrate_gaussian(points[:, 0], np.eye(2, dtype=np.float32))
        overlap = kde.integrate_kde(module.gaussian_kde(other))
        return kde(points), kde.logpdf(points), kde.covariance, spread, overlap

    return f


def in_a_box(module: Any) -> Function:
    return lambda data: module.gaussian_kde(data).integrate_box_1d(-0.5, 1.0)


OF_SAMPLES: Final = (
    of_samples(
        "mode",
        call(TABLE),
        values=[call(TABLE, axis, keepdims=keepdims) for axis in (0, 1, None) for keepdims in (False, True)],
        refused=[call(TABLE, nan_policy="other"), call(TABLE, nan_policy="omit"), call("a")],
        derivatives=False,
    ),
    of_samples(
        "rankdata",
        call(TABLE, axis=1),
        values=[*[call(TABLE, method, axis=axis) for method in METHODS for axis in (1, None)], call(HOLED, axis=1)],
        refused=[call(TABLE, "other"), call(TABLE, nan_policy="other"), call(TABLE, nan_policy="omit"), call("a")],
        derivatives=False,
    ),
    of_samples(
        "sem",
        call(HOLED, 1, nan_policy="omit"),
        call(ROWS),
        values=[*[call(HOLED, axis) for axis in (0, 1, None)], call(HOLED, 0, 0, keepdims=True)],
        refused=[call(ROWS, nan_policy="raise"), call("a")],
    ),
    of_samples(
        "gaussian_kde",
        call(DATA, AT, DATA * 2),
        values=[call(DATA, AT, DATA * 2, "silverman"), call(DATA, AT, DATA, 0.5, grid(12, low=1, high=2))],
        refused=[
            call(DATA, AT, DATA, "other"),
            call(DATA, AT, DATA, None, AT[0]),
            call(f32(1), AT, DATA),
            call(DATA, np.ones((3, 2), np.float32), DATA),
        ],
        dtypes=(),
        of=estimated,
    ),
    of_samples("gaussian_kde.integrate_box_1d", call(DATA[0]), dtypes=(), of=in_a_box),
    of_samples(
        "poisson.entropy",
        typed=[call(Weak(f32(5)))],
        of=lambda module: module.poisson.entropy,
        reference=reference(
            scipy.stats.poisson.entropy,
            Ulps(2.0**12, 16),  # SciPy stops adding where terms are small beside the sum
            call(f32(0.5, 5)),
            values=[call(f32(0, 0.5, 5, 59, 99, 101, 500, -1))],
        ),
    ),
)

NEAR: Final = f32(0.375, 0.625, 1.5)
FAR: Final = f32(2.0, 3.5, 5.0)
DISTRIBUTIONS: Final = (
    distribution("norm", at=NEAR, exact=evolve(ROUNDED, f64=128), dtypes=()),
    distribution("cauchy", at=NEAR),
    distribution("laplace", at=NEAR),
    distribution("logistic", at=NEAR),
    distribution("expon", at=NEAR),
    distribution("uniform", at=NEAR),
    distribution("gumbel_l", at=NEAR, derivatives=False),
    distribution("gumbel_r", at=NEAR, derivatives=False),
    distribution("pareto", 1.5, at=FAR),
    distribution("t", 3.5, at=NEAR),
    distribution("gamma", 2.5, at=NEAR, among=DENSITIES),
    distribution("chi2", 3.0, at=NEAR, among=DENSITIES),
    distribution("beta", 1.5, 2.5, at=NEAR, among=DENSITIES),
    distribution("truncnorm", -1.5, 2.0, at=NEAR, among=DENSITIES, dtypes=()),
    distribution("gennorm", 1.5, at=NEAR, among=DENSITIES, located=False),
    distribution("vonmises", 2.0, at=NEAR, located=False, places=f32(-3, -0.5, 0, 0.25, 1.5)),
    distribution("wrapcauchy", 0.5, at=NEAR, located=False),
    counting("bernoulli", 0.375, at=f32(1, 0), smooth=[2], located=False, shares=SHARES[1:]),
    counting("binom", 6, 0.25, at=WHOLE, smooth=[2]),
    counting("betabinom", 6, 1.5, 2.5, at=WHOLE, smooth=[2, 3], by_jax=False),
    counting("nbinom", 6, 0.25, at=WHOLE, smooth=[1, 2]),
    counting("geom", 0.25, at=WHOLE, smooth=[1]),
    counting("poisson", 3.5, at=WHOLE, among=DENSITIES, smooth=[1]),
    distribution("gamma", 2.5, at=NEAR, among=SUMS, along=[0], slopes=[0]),
    distribution("chi2", 3.0, at=NEAR, among=SUMS, along=[0], slopes=[0]),
    distribution("beta", 1.5, 2.5, at=NEAR, among=SUMS, along=[0], slopes=[0]),
    distribution("truncnorm", -1.5, 2.0, at=NEAR, among=SUMS, by_jax=False),
    distribution("gennorm", 1.5, at=NEAR, among=SUMS, located=False, along=[0], slopes=[0]),
    counting("poisson", 3.5, at=WHOLE, among=SUMS, smooth=[1], along=[1]),
)
RECORDS: Final[tuple[Record, ...]] = (*DISTRIBUTIONS, *OF_VECTORS, *OF_SAMPLES)
