"""Special cases of the array API for infinities, NaNs and signed zeros, real and complex: eager and compiled.

The special cases are mostly those of C, which NumPy follows: each function is compared with NumPy at all of them. Where
the standard differs from NumPy, or defines what NumPy gets wrong, this file has its own tables.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.versions import NUMPY_CALLS_THE_C_LIBRARY
from tracefx.core import NDArray
from tracefx.testing.tolerances import ELEMENTARY, PROGRAM, Ulps, ulp_distance

INF: Final = np.inf
NAN: Final = np.nan
PI: Final = np.pi
REALS: Final = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0], np.float32)
PARTS: Final = (0.0, -0.0, 1.0, -1.0, INF, -INF, NAN)
COMPLEX: Final = np.array([complex(a, b) for a in PARTS for b in PARTS], np.complex64)
UNARY: Final = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "conj", "cos", "cosh", "exp", "expm1", "imag"),
    *("isfinite", "isinf", "isnan", "log", "log1p", "log2", "log10", "logical_not", "negative", "positive", "real"),
    *("reciprocal", "round", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh"),
)
REAL_UNARY: Final = ("ceil", "floor", "signbit", "trunc")
BINARY: Final = ("add", "divide", "equal", "multiply", "not_equal", "pow", "subtract")
REAL_BINARY: Final = (
    *("atan2", "copysign", "greater", "greater_equal", "hypot", "less", "less_equal", "logaddexp"),
    *("maximum", "minimum", "nextafter", "remainder"),
)
# Functions not compared with NumPy: the standard leaves the case open and NumPy decides otherwise (complex quotients by
# infinities and powers), or NumPy deviates: its expm1 of infinities is NaN, and its tanh and tan have the zeros of a
# sine.
NOT_AS_NUMPY: Final = frozenset({"reciprocal", "sign", "pow", "expm1", "tanh", "tan"})


def pairs(x: NDArray) -> list[NDArray]:
    first, second = zip(*itertools.product(x, x), strict=True)
    return [np.array(first), np.array(second)]


def agree(name: str, got: NDArray, xs: list[NDArray]) -> None:
    with np.errstate(all="ignore"):
        want = np.asarray(getattr(np, name)(*xs))
    parts = [(got.real, want.real), (got.imag, want.imag)] if np.iscomplexobj(want) else [(got, want)]
    for a, b in parts:
        zeros = (a == 0) & (b == 0)
        if name in ("maximum", "minimum"):
            zeros &= xs[0] != xs[1]
        same = np.where(zeros, np.signbit(a) == np.signbit(b), ulp_distance(a, b) <= ELEMENTARY.of(a.dtype))
        mismatches = [tuple(x[i].item() for x in xs) for i in np.flatnonzero(~same)]
        assert not mismatches, (name, mismatches, a[~same], b[~same])


def as_arrays(*xs: NDArray) -> list[Any]:
    return [fnp.asarray(x) for x in xs]


@pytest.mark.parametrize("name", [*UNARY, *REAL_UNARY])
def test_unary_real_functions_match_numpy(name: str) -> None:
    f = getattr(fnp, name)
    agree(name, np.asarray(f(*as_arrays(REALS))), [REALS])
    agree(name, np.asarray(fx.jit(f)(*as_arrays(REALS))), [REALS])


@pytest.mark.parametrize("name", [*BINARY, *REAL_BINARY])
def test_binary_real_functions_match_numpy(name: str) -> None:
    f, xs = getattr(fnp, name), pairs(REALS)
    agree(name, np.asarray(f(*as_arrays(*xs))), xs)
    agree(name, np.asarray(fx.jit(f)(*as_arrays(*xs))), xs)


@pytest.mark.parametrize("name", [name for name in UNARY if name not in NOT_AS_NUMPY])
def test_unary_complex_functions_match_numpy(name: str) -> None:
    agree(name, np.asarray(getattr(fnp, name)(*as_arrays(COMPLEX))), [COMPLEX])


@pytest.mark.parametrize("name", [name for name in BINARY if name not in NOT_AS_NUMPY])
def test_binary_complex_functions_match_numpy(name: str) -> None:
    xs = pairs(COMPLEX)
    agree(name, np.asarray(getattr(fnp, name)(*as_arrays(*xs))), xs)


# ------------------------------------------------------------------ floor division and remainder


@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floor_divide_and_remainder_match_numpy(wrap: Any, dtype: str) -> None:
    kind = fnp.dtype(dtype)
    xs = [x.astype(kind) for x in pairs(REALS)]
    for name in ("floor_divide", "remainder", "fmod"):
        got = np.asarray(wrap(getattr(fnp, name))(*[fnp.array(x, dtype=kind) for x in xs]))
        with np.errstate(all="ignore"):
            want = getattr(np, name)(*xs)
        np.testing.assert_array_equal(got.astype(float), want.astype(float), err_msg=name)
        zeros = want == 0
        assert (np.signbit(got) == np.signbit(want))[zeros].all(), name
    both = wrap(fnp.divmod)(*[fnp.array(x, dtype=kind) for x in xs])
    with np.errstate(all="ignore"):
        want = np.remainder(*xs)
    np.testing.assert_array_equal(np.asarray(both[1]).astype(float), want.astype(float))


def test_floor_divide_of_infinities() -> None:
    got = fnp.floor_divide(fnp.array([-INF, INF, 3.0, -3.0, INF]), fnp.array([3.0, 3.0, -INF, -INF, 0.0]))
    np.testing.assert_array_equal(got, [np.nan, np.nan, -1.0, 0.0, INF])


@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["eager", "compiled"])
def test_unsigned_integers_of_four_bits(wrap: Any) -> None:
    a, b = np.mgrid[:16, :16].astype(np.uint8)
    x, y = [fnp.asarray(n).astype("uint4") for n in (a, b)]
    with np.errstate(divide="ignore"):
        quotients = np.where(b == 0, 15, a // b)
    np.testing.assert_array_equal(np.asarray(wrap(fnp.floor_divide)(x, y), np.uint8), quotients)
    np.testing.assert_array_equal(np.asarray(wrap(fnp.right_shift)(x, y), np.uint8), a >> b)
    np.testing.assert_array_equal(np.asarray(wrap(fnp.absolute)(x), np.uint8), a)
    np.testing.assert_array_equal(np.asarray(wrap(fnp.gcd)(x, y), np.uint8), np.gcd(a, b))


@pytest.mark.parametrize("name", ["true_divide", "arctan2", "hypot", "float_power", "copysign", "logaddexp"])
def test_operands_of_functions_of_floats_are_not_converted_to_integers(name: str) -> None:
    narrow, signed, wide = np.array([1, 2, 3], np.uint8), np.array([3, 2, 1], np.int32), np.array([2**32 - 1] * 3, "u4")
    for args in ((narrow, -1), (-1, narrow), (signed, wide), (wide, signed), (narrow.astype(np.int8), 300)):
        got, expected = getattr(fnp, name)(*args), getattr(jnp, name)(*args)
        assert_near(got, expected, ELEMENTARY)
        assert_near(fx.jit(getattr(fnp, name))(*args), jax.jit(getattr(jnp, name))(*args), ELEMENTARY)
        assert got.dtype == expected.dtype


@pytest.mark.parametrize(
    "call",
    [
        lambda N, a, b: N.average(a, weights=b),
        lambda N, a, b: N.trapezoid(a, b),
        lambda N, a, b: N.cov(a, b),
        lambda N, a, b: N.polydiv(b, a)[0],
        lambda N, a, b: N.convolve(a, b),
        lambda N, a, b: N.interp(a, b, a),
        lambda N, a, b: N.linalg.solve(N.diag(a), b),
        lambda N, a, b: N.gradient(a, -2),
    ],
)
def test_integers_beyond_the_promoted_dtype(call: Any) -> None:
    a, b = np.array([1, 2, 3], np.int32), np.array([2**31 + 2, 2**31 + 2**20, 2**32 - 1], np.uint32)
    assert_near(call(fnp, a, b), call(jnp, a, b), PROGRAM)
    assert_near(call(fnp, a.astype(np.uint8), b), call(jnp, a.astype(np.uint8), b), PROGRAM)


@pytest.mark.parametrize("dtype", ["float8_e5m2", "bfloat16", "float16", "float32"])
def test_integers_of_more_than_64_bits_beside_floats(dtype: str) -> None:
    x = fnp.ones(2, dtype)
    for n in (2**63, -(10**30)):
        np.testing.assert_array_equal(x * n, x * float(n))
        np.testing.assert_array_equal(fx.jit(lambda x, n=n: x + n)(x), x + float(n))
        np.testing.assert_array_equal(fnp.asarray(n, dtype), fnp.asarray(float(n), dtype))
    with pytest.raises(OverflowError, match="too large"):
        x * 10**400


@pytest.mark.parametrize("x", [0.0, -0.0, 6.0, -6.0])
@pytest.mark.parametrize("y", [3.0, -3.0, INF, -INF])
def test_derivatives_of_remainder_and_floor_divide(x: float, y: float) -> None:
    assert np.asarray(fx.grad(fnp.remainder)(x, y)) == 1.0
    assert np.asarray(fx.grad(fnp.floor_divide)(x, y)) == 0.0


# ------------------------------------------------------------------ the tables of complex functions

ZERO: Final = (0.0, -0.0)
POSITIVE: Final = (0.5, 1.0, 2.5)
NONZERO: Final = (*POSITIVE, -0.5, -1.0, -2.5)
FINITE: Final = (0.0, -0.0, *NONZERO)
INFINITIES: Final = (INF, -INF)
ANY: Final = (*FINITE, *INFINITIES, NAN)
UNSPECIFIED: Final = object()
"""Marks a part whose sign is unspecified."""

Part: TypeAlias = float | tuple[float, object]
Row: TypeAlias = tuple[tuple[float, ...], tuple[float, ...], Part, Part | None]


def any_sign(x: float) -> Part:
    return x, UNSPECIFIED


def no_element(z: NDArray) -> NDArray:
    return np.zeros(z.shape, bool)


def nan_imaginary_part(z: NDArray) -> NDArray:
    return np.asarray(np.isnan(z.imag))


def nonfinite_imaginary_part(z: NDArray) -> NDArray:
    return np.asarray(~np.isfinite(z.imag))


def nonfinite_part(z: NDArray) -> NDArray:
    return np.asarray(~np.isfinite(z.real) | ~np.isfinite(z.imag))


# Rows of real parts, imaginary parts, and the real and imaginary part of the result for each pair of them; None as
# imaginary part means that results are real. The lower half-plane follows from the symmetries tested below.
TABLES: Final[dict[str, list[Row]]] = {
    "abs": [
        (INFINITIES, ANY, INF, None),
        (ANY, INFINITIES, INF, None),
        (ZERO, (2.5,), 2.5, None),
        ((-2.5,), ZERO, 2.5, None),
        ((NAN,), FINITE, NAN, None),
        (FINITE, (NAN,), NAN, None),
        ((NAN,), (NAN,), NAN, None),
    ],
    "acos": [
        (ZERO, (0.0,), PI / 2, -0.0),
        (ZERO, (NAN,), PI / 2, NAN),
        (FINITE, (INF,), PI / 2, -INF),
        (NONZERO, (NAN,), NAN, NAN),
        ((-INF,), POSITIVE, PI, -INF),
        ((INF,), POSITIVE, 0.0, -INF),
        ((-INF,), (INF,), 3 * PI / 4, -INF),
        ((INF,), (INF,), PI / 4, -INF),
        (INFINITIES, (NAN,), NAN, any_sign(INF)),
        ((NAN,), FINITE, NAN, NAN),
        ((NAN,), (INF,), NAN, -INF),
        ((NAN,), (NAN,), NAN, NAN),
    ],
    "acosh": [
        (ZERO, (0.0,), 0.0, PI / 2),
        (FINITE, (INF,), INF, PI / 2),
        (NONZERO, (NAN,), NAN, NAN),
        *([((0.0,), (NAN,), NAN, any_sign(PI / 2))] if NUMPY_CALLS_THE_C_LIBRARY else []),
        ((-INF,), POSITIVE, INF, PI),
        ((INF,), POSITIVE, INF, 0.0),
        ((-INF,), (INF,), INF, 3 * PI / 4),
        ((INF,), (INF,), INF, PI / 4),
        (INFINITIES, (NAN,), INF, NAN),
        ((NAN,), FINITE, NAN, NAN),
        ((NAN,), (INF,), INF, NAN),
        ((NAN,), (NAN,), NAN, NAN),
    ],
    "asinh": [
        ((0.0,), (0.0,), 0.0, 0.0),
        (POSITIVE, (INF,), INF, PI / 2),
        (FINITE, (NAN,), NAN, NAN),
        ((INF,), POSITIVE, INF, 0.0),
        ((INF,), (INF,), INF, PI / 4),
        ((INF,), (NAN,), INF, NAN),
        ((NAN,), (0.0,), NAN, 0.0),
        ((NAN,), NONZERO, NAN, NAN),
        ((NAN,), (INF,), any_sign(INF), NAN),
        ((NAN,), (NAN,), NAN, NAN),
    ],
    "atanh": [
        ((0.0,), (0.0,), 0.0, 0.0),
        ((0.0,), (NAN,), 0.0, NAN),
        ((1.0,), (0.0,), INF, 0.0),
        (POSITIVE, (INF,), 0.0, PI / 2),
        (NONZERO, (NAN,), NAN, NAN),
        ((INF,), POSITIVE, 0.0, PI / 2),
        ((INF,), (INF,), 0.0, PI / 2),
        ((INF,), (NAN,), 0.0, NAN),
        ((NAN,), FINITE, NAN, NAN),
        ((NAN,), (INF,), any_sign(0.0), PI / 2),
        ((NAN,), (NAN,), NAN, NAN),
    ],
    "cosh": [
        ((0.0,), (0.0,), 1.0, 0.0),
        ((0.0,), (INF, NAN), NAN, any_sign(0.0)),
        (NONZERO, (INF, NAN), NAN, NAN),
        ((INF,), (0.0,), INF, 0.0),
        ((INF,), (INF,), any_sign(INF), NAN),
        ((INF,), (NAN,), INF, NAN),
        ((NAN,), ZERO, NAN, any_sign(0.0)),
        ((NAN,), NONZERO, NAN, NAN),
        ((NAN,), (NAN,), NAN, NAN),
    ],
    "exp": [
        (ZERO, (0.0,), 1.0, 0.0),
        (FINITE, (INF, NAN), NAN, NAN),
        ((INF,), (0.0,), INF, 0.0),
        ((-INF,), (INF, NAN), any_sign(0.0), any_sign(0.0)),
        ((INF,), (INF, NAN), any_sign(INF), NAN),
        ((NAN,), (0.0,), NAN, 0.0),
        ((NAN,), (*NONZERO, INF, NAN), NAN, NAN),
    ],
    "expm1": [
        (ZERO, (0.0,), 0.0, 0.0),
        (FINITE, (INF, NAN), NAN, NAN),
        ((INF,), (0.0,), INF, 0.0),
        ((-INF,), (INF, NAN), -1.0, any_sign(0.0)),
        ((INF,), (INF, NAN), any_sign(INF), NAN),
        ((NAN,), (0.0,), NAN, 0.0),
        ((NAN,), (*NONZERO, INF, NAN), NAN, NAN),
    ],
    "log": [
        ((-0.0,), (0.0,), -INF, PI),
        ((0.0,), (0.0,), -INF, 0.0),
        (FINITE, (INF,), INF, PI / 2),
        (FINITE, (NAN,), NAN, NAN),
        ((-INF,), POSITIVE, INF, PI),
        ((INF,), POSITIVE, INF, 0.0),
        ((-INF,), (INF,), INF, 3 * PI / 4),
        ((INF,), (INF,), INF, PI / 4),
        (INFINITIES, (NAN,), INF, NAN),
        ((NAN,), FINITE, NAN, NAN),
        ((NAN,), (INF,), INF, NAN),
        ((NAN,), (NAN,), NAN, NAN),
    ],
    "log1p": [
        ((-1.0,), (0.0,), -INF, 0.0),
        (FINITE, (INF,), INF, PI / 2),
        (FINITE, (NAN,), NAN, NAN),
        ((-INF,), POSITIVE, INF, PI),
        ((INF,), POSITIVE, INF, 0.0),
        ((-INF,), (INF,), INF, 3 * PI / 4),
        ((INF,), (INF,), INF, PI / 4),
        (INFINITIES, (NAN,), INF, NAN),
        ((NAN,), FINITE, NAN, NAN),
        ((NAN,), (INF,), INF, NAN),
        ((NAN,), (NAN,), NAN, NAN),
    ],
    "sign": [(ZERO, ZERO, 0.0, 0.0), ((NAN,), ANY, NAN, NAN), (ANY, (NAN,), NAN, NAN)],
    "sinh": [
        ((0.0,), (0.0,), 0.0, 0.0),
        ((0.0,), (INF, NAN), any_sign(0.0), NAN),
        (POSITIVE, (INF, NAN), NAN, NAN),
        ((INF,), (0.0,), INF, 0.0),
        ((INF,), (INF, NAN), any_sign(INF), NAN),
        ((NAN,), (0.0,), NAN, 0.0),
        ((NAN,), (*NONZERO, NAN), NAN, NAN),
    ],
    # The standard's rows for real parts -infinity and +infinity are swapped; these are C's.
    "sqrt": [
        (ZERO, (0.0,), 0.0, 0.0),
        (ANY, (INF,), INF, INF),
        (FINITE, (NAN,), NAN, NAN),
        ((-INF,), POSITIVE, 0.0, INF),
        ((INF,), POSITIVE, INF, 0.0),
        ((-INF,), (NAN,), NAN, any_sign(INF)),
        ((INF,), (NAN,), INF, NAN),
        ((NAN,), (*FINITE, NAN), NAN, NAN),
    ],
    "tanh": [
        ((0.0,), (0.0,), 0.0, 0.0),
        (NONZERO, (INF, NAN), NAN, NAN),
        ((0.0,), (INF, NAN), 0.0, NAN),
        ((INF,), POSITIVE, 1.0, 0.0),
        ((INF,), (INF, NAN), 1.0, any_sign(0.0)),
        ((NAN,), (0.0,), NAN, 0.0),
        ((NAN,), NONZERO, NAN, NAN),
        ((NAN,), (NAN,), NAN, NAN),
    ],
}
CIS: Final[dict[str, list[tuple[tuple[float, ...], tuple[float, ...], float, float]]]] = {
    "cosh": [((INF,), NONZERO, INF, 0.0)],
    "exp": [((-INF,), FINITE, 0.0, 0.0), ((INF,), NONZERO, INF, 0.0)],
    "expm1": [((-INF,), FINITE, 0.0, -1.0), ((INF,), NONZERO, INF, -1.0)],
    "sinh": [((INF,), POSITIVE, INF, 0.0)],
}
"""Cases whose result is `size * (cos(b) + 1j * sin(b)) + shift`."""


def same_part(got: NDArray, want: Part) -> bool:
    if isinstance(want, tuple):
        got, want = abs(got), want[0]
    if math.isnan(want):
        return bool(np.isnan(got))
    if want == 0 or math.isinf(want):
        return bool(got == want and np.signbit(got) == np.signbit(want))
    return bool(ulp_distance(got, np.asarray(want, got.dtype)) <= ELEMENTARY.of(got.dtype))


def rows(name: str) -> Iterator[tuple[complex, Part, Part | None]]:
    for real, imag, x, y in TABLES[name]:
        for a, b in itertools.product(real, imag):
            yield complex(a, b), x, y
    for real, imag, size, shift in CIS.get(name, []):
        for a, b in itertools.product(real, imag):
            x = size * math.cos(b)
            yield complex(a, b), x + shift if shift else x, size * math.sin(b)


RESULTS: Final = ("complex64", "complex128")


@pytest.mark.parametrize("dtype", RESULTS)
@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", TABLES)
def test_complex_functions_match_the_tables(name: str, wrap: Any, dtype: str) -> None:
    zs, reals, imags = zip(*rows(name), strict=True)
    with fx.enable_x64(True):
        results = np.asarray(wrap(getattr(fnp, name))(fnp.asarray(np.array(zs, dtype))))
    for z, got, x, y in zip(zs, results, reals, imags, strict=True):
        if y is None:
            assert not np.iscomplexobj(got)
            assert same_part(got, x), (z, got, x)
        else:
            assert same_part(got.real, x), (z, got, x, y)
            assert same_part(got.imag, y), (z, got, x, y)


@pytest.mark.parametrize("name", TABLES)
def test_scalars_and_vectors_give_the_same_result(name: str) -> None:
    f = getattr(fnp, name)
    for z in (0.25 - 0.5j, complex(INF, 1.0), complex(-INF, INF), complex(NAN, 0.0), complex(0.0, INF)):
        scalar, vector = np.asarray(f(fnp.asarray(z))), np.asarray(f(fnp.asarray([z])))
        assert scalar.shape == ()
        assert scalar.dtype == vector.dtype
        np.testing.assert_array_equal(scalar, vector[0])


HALVES: Final = np.array([complex(a, b) for a in ANY for b in ANY], np.complex128)
ODD: Final = ("asin", "asinh", "atan", "atanh", "sin", "sinh", "tan", "tanh")
CONJUGATE: Final = (*ODD, "acos", "acosh", "cos", "cosh", "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt")


def nan_and_infinite_part(z: NDArray) -> NDArray:
    return np.isnan(z) & np.isinf(np.abs(z))


# Functions for which C leaves a sign unspecified, so that either sign is accepted.
UNSPECIFIED_SIGN: Final[dict[str, Callable[[NDArray], NDArray]]] = {
    "acosh": nan_imaginary_part,
    **dict.fromkeys(("cos", "cosh", "sin", "sinh"), nonfinite_part),
    **dict.fromkeys(("exp", "expm1"), nonfinite_imaginary_part),
    **({} if NUMPY_CALLS_THE_C_LIBRARY else dict.fromkeys(("acos", "asin", "asinh"), nan_and_infinite_part)),
}


def same_values(got: NDArray, want: NDArray, sign_matters: NDArray) -> NDArray:
    sizes: NDArray = ulp_distance(abs(got), abs(want)) <= ELEMENTARY.of(got.dtype)
    signs: NDArray = (np.signbit(got) == np.signbit(want)) | np.isnan(got) | ~sign_matters
    return sizes & signs


@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", CONJUGATE)
def test_conjugate_symmetry_and_odd_functions(name: str, wrap: Any) -> None:
    """The tables cover one quadrant; symmetry extends them to all, and each side of a branch cut has its own values."""
    f = wrap(getattr(fnp, name))
    with fx.enable_x64(True):
        values = np.asarray(f(fnp.asarray(HALVES)))
        below = np.conj(np.asarray(f(fnp.asarray(np.conj(HALVES)))))
        matters = ~UNSPECIFIED_SIGN.get(name, no_element)(HALVES)
        mirrored_values = [below, -np.asarray(f(fnp.asarray(-HALVES)))] if name in ODD else [below]
    for other in mirrored_values:
        same = same_values(values.real, other.real, matters) & same_values(values.imag, other.imag, matters)
        assert same.all(), (name, HALVES[~same], values[~same], other[~same])


@pytest.mark.parametrize("name", CONJUGATE)
def test_compiled_matches_eager_on_both_sides_of_branch_cuts(name: str) -> None:
    finite = np.array([complex(a, b) for a in FINITE for b in FINITE], np.complex128)
    with fx.enable_x64(True):
        f = getattr(fnp, name)
        eager, compiled = np.asarray(f(fnp.asarray(finite))), np.asarray(fx.jit(f)(fnp.asarray(finite)))
    for a, b in ((eager.real, compiled.real), (eager.imag, compiled.imag)):
        assert_near(b, a, Ulps(8))  # compared per part, as the real part of expm1 is a difference
        assert (np.signbit(a) == np.signbit(b))[a != 0].all()


# ------------------------------------------------------------------ small numbers


@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ["sin", "sinh", "tan", "tanh", "asin", "asinh", "atan", "atanh", "expm1", "log1p"])
def test_small_complex_arguments_keep_their_precision(name: str, wrap: Any) -> None:
    small = np.array([1e-9 + 3e-12j, 3e-12 - 1e-9j, 2e-20j, 2e-20 + 0j, -4e-15 + 4e-15j], np.complex128)
    with fx.enable_x64(True):
        got = np.asarray(wrap(getattr(fnp, name))(fnp.asarray(small)))
    second = {"expm1": 0.5, "log1p": -0.5}.get(name, 0.0)
    want = small + second * small * small
    assert_near(got.real, want.real, ELEMENTARY)
    assert_near(got.imag, want.imag, ELEMENTARY)


@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_results_that_overflow_in_a_factor_only(dtype: Any, wrap: Any) -> None:
    top = 100.0 if dtype is np.complex64 else 720.0
    small, root = 1e-30, np.exp(top / 2)
    grown = 0.5 * root * small * root  # cosh(top) * sin(small)
    z = np.array([complex(top, small), complex(-top, small), complex(top, -small)], dtype)
    with fx.enable_x64(True):
        sinh, cosh = [np.asarray(wrap(f)(fnp.asarray(z))) for f in (fnp.sinh, fnp.cosh)]
        sin, cos = [np.asarray(wrap(f)(fnp.asarray(-1j * z))) for f in (fnp.sin, fnp.cos)]
    for out, signs in ((sinh, (1, 1, -1)), (cosh, (1, -1, -1)), (cos, (1, -1, -1))):
        assert_near(out.imag, (np.array(signs) * grown).astype(out.imag.dtype), PROGRAM)
    assert_near(sin.real, (np.array([1, 1, -1]) * grown).astype(sin.real.dtype), PROGRAM)
    assert (sinh.real == np.array([np.inf, -np.inf, np.inf])).all()
    assert (cosh.real == np.inf).all()


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_log1p_near_the_largest_number(dtype: Any) -> None:
    big = 0.9 * float(np.finfo(dtype).max)
    z = np.array([complex(big, big), complex(-big, big), complex(1.0, -big), complex(np.inf, big)], dtype)
    with fx.enable_x64(True):
        assert_near(np.asarray(fnp.log1p(fnp.asarray(z))), np.log(z), ELEMENTARY)


@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["eager", "compiled"])
def test_derivatives_of_i0_at_zero(wrap: Any) -> None:
    f: Callable[[Any], Any] = fnp.i0
    for want in (1.0, 0.0, 0.5, 0.0):
        assert_near(wrap(f)(0.0), np.float32(want), ELEMENTARY)
        f = fx.grad(f)


@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["eager", "compiled"])
def test_derivatives_of_sinc_at_large_numbers(wrap: Any) -> None:
    x = np.array([0.25, -3.5, 1e5, -2e5, 1e12, 1e30], np.float32)
    for derivative in (fx.grad(fnp.sinc), fx.grad(fx.grad(fnp.sinc))):
        result = np.asarray(wrap(fx.vmap(derivative))(x), np.float64)
        assert np.isfinite(result).all()
        assert (np.abs(result) <= 2 * np.pi / np.abs(x.astype(np.float64)) + 4 / np.square(x, dtype=np.float64)).all()
