"""Series of every primitive, compared with nested `jvp` and JAX's jet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.jet import jet as jax_jet

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.handlers.series_oracle import assert_same_dtype_and_values, check_series, nested_jvp_series
from tests.laws.examples import sampled
from tests.laws.samples import SAMPLES, Sample
from tracefx import lax
from tracefx.core.primitive import Differentiable, Expandable
from tracefx.extend import bind
from tracefx.handlers import jet
from tracefx.testing.tolerances import DERIVATIVE, ELEMENTARY, SECOND_DERIVATIVE, Ulps

jax.config.update("jax_explicit_x64_dtypes", "allow")

ORDER = 4
ROUNDED = {"reduce_precision": Ulps(2.0**42, least=1.0), "convert_element_type": ELEMENTARY}
"""Primitives that round: the rounding differs between derivatives of different orders."""
WIDE = {np.dtype(np.float32): np.float64, np.dtype(np.complex64): np.complex128}


def widen(x: Any) -> Any:
    return x.astype(WIDE.get(x.dtype, x.dtype)) if isinstance(x, np.ndarray) else x


def inexact(x: Any) -> bool:
    return np.asarray(x).dtype.kind in "fc"


def random_derivative(rng: np.random.Generator, x: Any) -> Any:
    """A random derivative of `x`."""
    a = np.asarray(x)
    number = rng.normal(size=a.shape)
    if a.dtype.kind == "c":
        number = number + 1j * rng.normal(size=a.shape)
    return number if isinstance(x, np.ndarray) else number.item()


def random_series(operands: Sequence[Any], varying: Sequence[int]) -> list[list[Any]]:
    """Random derivatives of the varying operands; if only one operand varies, its second derivative is None."""
    rng = np.random.default_rng(len(operands))
    actual_series: list[list[Any]] = [[None] * ORDER for _ in operands]
    for i in varying:
        actual_series[i] = [random_derivative(rng, operands[i]) for _ in range(ORDER)]
    if len(varying) == 1:
        actual_series[varying[0]][1] = None
    return actual_series


def has_derivative(sample: Sample) -> bool:
    return sample.within is not None or isinstance(sample.prim, Differentiable | Expandable)


def samples() -> Iterator[Any]:
    """Yields samples with their operands: all under the profile `long`, otherwise one of each primitive."""
    for name, each in SAMPLES.items():
        cases = [
            pytest.param(sample, operands, id=f"{name}-{i}-{j}")
            for i, sample in enumerate(each)
            for j, operands in enumerate(sample.operands)
            if has_derivative(sample) and any(inexact(x) for x in operands)
        ]
        yield from sampled(cases, len(SAMPLES))


@pytest.mark.parametrize(("sample", "operands"), list(samples()))
def test_jet_matches_nested_jvp(sample: Sample, operands: Sequence[Any]) -> None:
    xs = [widen(x) for x in operands]
    floats = [i for i, x in enumerate(xs) if inexact(x)]
    within = sample.within or (lambda *args: list(bind(sample.prim, *args)))
    with fx.enable_x64(True):
        for n in range(1, len(floats) + 1):
            for varying in itertools.combinations(floats, n):
                series = random_series(xs, varying)
                want = nested_jvp_series(within, xs, series)
                out, got = jet(within, xs, series)
                want_out = within(*xs)
                assert_same_dtype_and_values(fx.tree.leaves(out)[0], fx.tree.leaves(want_out)[0])
                actual_series = [got] if sample.within else got
                assert len(actual_series) == len(want)
                assert_same_dtype_and_values(actual_series, want, ROUNDED.get(sample.prim.name, DERIVATIVE))


@pytest.mark.parametrize(("sample", "operands"), list(samples()))
def test_first_derivative_matches_jvp(sample: Sample, operands: Sequence[Any]) -> None:
    xs = [widen(x) for x in operands]
    floats = [i for i, x in enumerate(xs) if inexact(x)]
    within = sample.within or (lambda *args: list(bind(sample.prim, *args)))
    with fx.enable_x64(True):
        rng = np.random.default_rng(1)
        rates = {i: random_derivative(rng, xs[i]) for i in floats}

        def of_floats(*ys: Any) -> Any:
            varying_operands = dict(zip(floats, ys, strict=True))
            return within(*[varying_operands.get(i, x) for i, x in enumerate(xs)])

        want = fx.jvp(of_floats, tuple(xs[i] for i in floats), tuple(rates.values()))
        out, got = jet(of_floats, tuple(xs[i] for i in floats), [[r] for r in rates.values()])
        firsts = [terms[0] for terms in ([got] if sample.within else got)]
        for a, b in zip((*fx.tree.leaves(out), *firsts), fx.tree.leaves(want), strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
            assert np.asarray(a).dtype == np.asarray(b).dtype


FOLDS: dict[str, Callable[[Any], Any]] = {
    "prod": lambda x: fnp.prod(x, axis=0),
    "cumprod": lambda x: lax.cumprod(x, axis=0),
    "cumprod_reversed": lambda x: lax.cumprod(x, axis=0, reverse=True),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x, axis=0),
    "cumlogsumexp_reversed": lambda x: lax.cumlogsumexp(x, axis=0, reverse=True),
}


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
def test_reductions_and_scans_of_any_length(name: str, n: int) -> None:
    """Includes zeros, and numbers of very different magnitude."""
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, 3))
    if "prod" in name:
        x[:, 1] = 0.0
        x[n // 2 :, 2] = 0.0
    else:
        x[:, 1] += 500.0
        x[n // 2 :, 2] -= 500.0
    series = [[rng.normal(size=x.shape), None, rng.normal(size=x.shape)]]
    check_series(FOLDS[name], (x,), series)


def test_cumlogsumexp_of_equal_elements() -> None:
    """The derivatives are those of the formula."""
    x, v = np.zeros((3, 2)), np.array([[1.0, 2.0], [2.0, -1.0], [-1.0, 0.5]])
    formula = lambda x: fnp.log(fnp.cumsum(fnp.exp(x), axis=0))  # noqa: E731
    check_series(lambda x: lax.cumlogsumexp(x, axis=0), (x,), [[v, None, v, None]], formula)


JAX_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "exp": lambda np_, x: np_.exp(x),
    "log": lambda np_, x: np_.log(x + 3),
    "log1p": lambda np_, x: np_.log1p(x + 1),
    "sin": lambda np_, x: np_.sin(x),
    "cos": lambda np_, x: np_.cos(x),
    "tanh": lambda np_, x: np_.tanh(x),
    "sqrt": lambda np_, x: np_.sqrt(x + 3),
    "divide": lambda np_, x: x / (x + 4),
    "integer_pow": lambda np_, x: x**4,
    "pow": lambda np_, x: (x + 3) ** 1.5,
    "maximum": lambda np_, x: np_.maximum(x, 0.1),
    "absolute": lambda np_, x: abs(x),
    "matmul": lambda np_, x: np_.sin(x) @ np_.outer(x, x),
    "sum": lambda np_, x: (x * x).sum(),
    "max": lambda np_, x: x.max() * x,
    "cumsum": lambda np_, x: np_.cumsum(x * x),
    "where": lambda np_, x: np_.where(x > 0, x * x, -x),
    "indexing": lambda np_, x: x[np.array([2, 0])] * x[1],
}


@pytest.mark.parametrize("name", JAX_FUNCTIONS)
def test_series_match_jax_jet(name: str) -> None:
    f = JAX_FUNCTIONS[name]
    rng = np.random.default_rng(3)
    x = np.array([0.5, -1.25, 0.75])
    terms = [rng.normal(size=3) for _ in range(ORDER)]
    with fx.enable_x64(True):
        out, got = jet(lambda x: f(fnp, x), (x,), (terms,))
    with jax.enable_x64(True):
        want_out, want = jax_jet(lambda x: f(jax.numpy, x), (x,), (terms,))
    assert_near(out, want_out)
    assert_near(got, want, DERIVATIVE)


HOLOMORPHIC: list[Callable[[Any], Any]] = [
    *[getattr(fnp, name) for name in ("exp", "exp2", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "tanh")],
    *[getattr(fnp, name) for name in ("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "sinh", "cosh")],
    lax.rsqrt,
    lax.logistic,
    lambda z: z**-2,
    lambda z: z ** (1.5 + 0.5j),
    lambda z: z**z,
    lambda z: abs(z) * fnp.conj(z) + z.real * z.imag,
    lambda z: z @ z,
]


@pytest.mark.parametrize("f", HOLOMORPHIC, ids=lambda f: f.__name__)
def test_series_of_complex_numbers(f: Callable[[Any], Any]) -> None:
    z, v = np.array([0.5 + 0.3j, -0.2 + 1.1j]), np.array([1 - 0.5j, 0.3 + 1j])
    check_series(f, (z,), [[v, None, z, None]])


@pytest.mark.parametrize("numbers", [(((), ()), ((0,), (0,))), (((), ()), ((), ())), (((1,), (1,)), ((0,), (0,)))])
def test_products_of_series_with_zero_terms(numbers: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3)), rng.normal(size=(2, 3, 4))

    mostly_zero: list[Any] = [None, y, None]
    rates: list[Any] = [x, x, x]
    for series in ([rates, [y] * 3], [[x, None, None], mostly_zero], [rates, mostly_zero], [rates, [None] * 3]):
        check_series(lambda x, y: lax.dot_general(x, y, numbers), (x, y), series)


def test_derivatives_of_order_twenty() -> None:
    with fx.enable_x64(True):
        _, got = jet(lambda x: fnp.exp(x) * fnp.sin(x), (0.3,), [[1.0, *[None] * 19]])
        want = [2 ** (k / 2) * np.exp(0.3) * np.sin(0.3 + k * np.pi / 4) for k in range(1, 21)]
        assert_near(fnp.stack(got), want, SECOND_DERIVATIVE)


def test_program_size_grows_quadratically_with_the_order() -> None:
    def f(x: Any) -> Any:
        return fnp.log(1 + fnp.exp(fnp.sin(x) * fnp.cos(x * x))) * fnp.tanh(x / (1 + x * x)) / fnp.sqrt(2 + x**3)

    sizes = [
        len(fx.make_jaxpr(lambda x, n=n: jet(f, (x,), [[1.0, *[None] * (n - 1)]]))(0.5).jaxpr.eqns)
        for n in (4, 8, 16, 32)
    ]
    assert all(larger < 4 * smaller for smaller, larger in itertools.pairwise(sizes))


SINGULAR: dict[str, tuple[Callable[[Any], Any], tuple[float, ...]]] = {
    "abs": (abs, (0.0, -0.0)),
    "sqrt": (fnp.sqrt, (0.0, -1.0, np.inf)),
    "sqrt_of_square": (lambda x: fnp.sqrt(x * x), (0.0,)),
    "rsqrt": (lax.rsqrt, (0.0,)),
    "log": (fnp.log, (0.0, -1.0, np.inf)),
    "divide": (lambda x: 1 / x, (np.inf,)),
    "tie": (lambda x: fnp.maximum(x, -x) * fnp.minimum(x, 0.0), (0.0,)),
    "relu": (lambda x: fnp.maximum(x, 0.0) ** 2, (0.0, 1.0)),
    "clip": (lambda x: fnp.clip(x, 0.0, 1.0) * x, (0.0, 1.0, 0.5)),
    "pow": (lambda x: lax.pow(x, 1.5), (0.0, -2.0)),
    "inverse": (lambda x: lax.pow(x, -1.0), (0.0,)),
    "exponent": (lambda x: lax.pow(0.0, x), (0.0, 1.0)),
    "both": (lambda x: x**x, (0.0, 1.0)),
    "integer_pow": (lambda x: x**5, (0.0,)),
    "asin": (fnp.arcsin, (1.0, 2.0)),
    "acosh": (fnp.arccosh, (1.0,)),
    "exp": (fnp.exp, (-np.inf, np.inf, 1000.0)),
    "logistic": (lax.logistic, (100.0, -200.0)),
    "tanh": (fnp.tanh, (50.0, -np.inf)),
    "atan": (fnp.arctan, (1e200, np.inf)),
    "erf_inv": (lax.erf_inv, (1.0,)),
    "atan2": (lambda x: lax.atan2(x, x), (0.0,)),
    "logaddexp": (lambda x: fnp.logaddexp(x, 0.0), (0.0, -1000.0, 1000.0)),
    "lgamma": (lax.lgamma, (-0.5, 0.0)),
    "prod": (lambda x: fnp.prod(fnp.stack([x, x, x * 2])), (0.0,)),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(fnp.stack([x, x * 2, -x]))[2], (0.0,)),
    "sign": (lambda x: fnp.sign(x) * fnp.floor(x) * x, (0.0, 2.0)),
    "nan": (fnp.sin, (np.nan,)),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_singular_points_match_nested_jvp(name: str) -> None:
    """If nested jvp or jet gives a finite derivative, both give the same."""
    f, points = SINGULAR[name]
    with fx.enable_x64(True):
        for x in points:
            (want,) = nested_jvp_series(f, (x,), [[1.0, None, None, None]])
            _, got = jet(f, (x,), [[1.0, None, None, None]])
            for a, b in zip(got, want, strict=True):
                if np.isfinite([float(a), float(b)]).any():
                    assert_same_dtype_and_values(a, b)


@pytest.mark.parametrize("exponent", [2.0, np.array(2.0), np.int32(2)])
def test_derivatives_of_powers_of_zero(exponent: Any) -> None:
    """Nested derivatives of `x ** 2.0` are NaN from the third order on."""
    _, got = jet(lambda x: lax.pow(x, exponent), (np.array([0.0, 3.0]),), [[np.ones(2), None, None, None]])
    np.testing.assert_array_equal(np.asarray(fnp.stack(got)), [[0, 6], [2, 2], [0, 0], [0, 0]])


def test_zeroth_power_is_constant_at_zero() -> None:
    _, got = jet(lambda x: lax.pow(x, 0.0), (0.0,), [[1.0, None]])
    assert [float(t) for t in got] == [0.0, 0.0]


def test_scatter_mul_with_repeated_indices() -> None:
    def f(u: Any) -> Any:
        return fnp.ones(3).at[np.array([1, 1])].multiply(u)

    _, got = jet(f, (np.array([2.0, 3.0]),), [[np.ones(2), None]])
    np.testing.assert_array_equal(np.asarray(fnp.stack(got)), [[0, 5, 0], [0, 2, 0]])


def test_polygamma_has_no_derivative_by_its_order() -> None:
    with pytest.raises(ValueError, match="no derivative with respect to its order"):
        jet(lambda m: lax.polygamma(m, 1.0), (2.0,), [[1.0, None]])
