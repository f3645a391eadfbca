"""Infinities, NaNs and zeros of either sign, real and complex, as the array API has them.

Its special cases are C's, and NumPy's are C's: each function gives what NumPy's gives at all of them. Compiled programs
do so for real numbers.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.core.dtypes import NDArray

INF: Final = np.inf
NAN: Final = np.nan
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
    *("atan2", "copysign", "floor_divide", "greater", "greater_equal", "hypot", "less", "less_equal", "logaddexp"),
    *("maximum", "minimum", "nextafter", "remainder"),
)
# What the standard leaves open, where NumPy decides otherwise: complex quotients by infinities and powers, and which of
# two zeros is the greater one.
OPEN: Final = frozenset({"reciprocal", "sign", "pow"})


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
        same = np.where(zeros, np.signbit(a) == np.signbit(b), np.isclose(a, b, rtol=1e-5, atol=0, equal_nan=True))
        wrong = [tuple(x[i].item() for x in xs) for i in np.flatnonzero(~same)]
        assert not wrong, (name, wrong, a[~same], b[~same])


def given(*xs: NDArray) -> list[Any]:
    return [fnp.asarray(x) for x in xs]


@pytest.mark.parametrize("name", [*UNARY, *REAL_UNARY])
def test_real_functions_of_one(name: str) -> None:
    f = getattr(fnp, name)
    agree(name, np.asarray(f(*given(REALS))), [REALS])
    agree(name, np.asarray(fx.jit(f)(*given(REALS))), [REALS])


@pytest.mark.parametrize("name", [*BINARY, *REAL_BINARY])
def test_real_functions_of_two(name: str) -> None:
    f, xs = getattr(fnp, name), pairs(REALS)
    agree(name, np.asarray(f(*given(*xs))), xs)
    agree(name, np.asarray(fx.jit(f)(*given(*xs))), xs)


@pytest.mark.parametrize("name", [name for name in UNARY if name not in OPEN])
def test_complex_functions_of_one(name: str) -> None:
    agree(name, np.asarray(getattr(fnp, name)(*given(COMPLEX))), [COMPLEX])


@pytest.mark.parametrize("name", [name for name in BINARY if name not in OPEN])
def test_complex_functions_of_two(name: str) -> None:
    xs = pairs(COMPLEX)
    agree(name, np.asarray(getattr(fnp, name)(*given(*xs))), xs)


def test_the_sign_of_a_complex_number() -> None:
    signs = np.asarray(fnp.sign(fnp.asarray(COMPLEX)))
    nan = np.isnan(COMPLEX)
    assert np.isnan(signs[nan].real).all()
    assert np.isnan(signs[nan].imag).all()
    at_zero = signs[COMPLEX == 0]
    assert not at_zero.any()
    assert not np.signbit(at_zero.real).any()
    assert not np.signbit(at_zero.imag).any()


@pytest.mark.parametrize("x", [0.0, -0.0, 6.0, -6.0])
@pytest.mark.parametrize("y", [3.0, -3.0, INF, -INF])
def test_derivatives_of_remainders_of_zero_are_those_of_others(x: float, y: float) -> None:
    assert np.asarray(fx.grad(fnp.remainder)(x, y)) == 1.0
    assert np.asarray(fx.grad(fnp.floor_divide)(x, y)) == 0.0
