"""`dot_general` and `dot`."""

from __future__ import annotations

from typing import Final

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax as jax_lax

import tracefx as fx
from tests.comparison import assert_agree, assert_near, assert_same
from tests.errors import untyped
from tests.ops.harness import (
    error_tests,
)
from tracefx import lax
from tracefx import numpy as fnp
from tracefx.core import ConcreteArray, to_numpy
from tracefx.ops.contractions.contraction import DotDimensionNumbers, Precision
from tracefx.testing.tolerances import Ulps

MATRICES: Final[DotDimensionNumbers] = (((1,), (0,)), ((), ()))


@settings(max_examples=30)
@given(st.data())
def test_any_dimension_numbers(data: st.DataObject) -> None:
    """Batch, contracted and free axes in any order, compared with einsum."""
    kinds = [data.draw(st.lists(st.integers(0, 3), max_size=2), kind) for kind in ("batch", "contracted", "lhs", "rhs")]
    names = iter("abcdefgh")
    batch, contracted, left, right = [[(next(names), n) for n in kind] for kind in kinds]
    lhs = data.draw(st.permutations(batch + contracted + left))
    rhs = data.draw(st.permutations(batch + contracted + right))
    x = np.arange(np.prod([n for _, n in lhs]), dtype=np.float32).reshape([n for _, n in lhs]) % 5
    y = np.arange(np.prod([n for _, n in rhs]), dtype=np.float32).reshape([n for _, n in rhs]) % 7
    numbers = (
        ([lhs.index(c) for c in contracted], [rhs.index(c) for c in contracted]),
        ([lhs.index(b) for b in batch], [rhs.index(b) for b in batch]),
    )
    out_axes = [*batch, *[a for a in lhs if a in left], *[a for a in rhs if a in right]]
    spec = ",".join("".join(name for name, _ in axes) for axes in (lhs, rhs))
    want = np.einsum(f"{spec}->{''.join(name for name, _ in out_axes)}", x, y)
    np.testing.assert_array_equal(to_numpy(lax.dot_general(x, y, numbers)), want)


# ------------------------------------------------------------------ dtypes


@pytest.mark.parametrize(
    ("lhs", "rhs", "preferred"),
    [
        (np.int8, np.int8, np.int32),
        (np.int8, np.int8, np.float32),
        (np.uint8, np.int8, None),
        (np.int8, np.int32, None),
        (np.int32, np.float32, None),
        (np.float32, np.float32, np.float64),
        (np.float32, np.float64, None),
        (np.float32, np.float32, ml_dtypes.bfloat16),
        (np.float32, np.float32, np.float32),
        (ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32),
        (ml_dtypes.bfloat16, np.float32, None),
        (np.float16, ml_dtypes.bfloat16, None),
        (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fn, np.float32),
        (np.float32, np.complex64, None),
        (np.bool_, np.bool_, np.int32),
        (np.bool_, np.int8, None),
    ],
)
def test_result_dtypes_match_jax(
    lhs: type[np.generic], rhs: type[np.generic], preferred: type[np.generic] | None
) -> None:
    gen = np.random.default_rng(0)
    x, y = gen.integers(0, 4, (3, 40)).astype(lhs), gen.integers(0, 4, (40, 2)).astype(rhs)
    want = jax_lax.dot_general(x, y, MATRICES, preferred_element_type=preferred)
    for f in (lax.dot_general, fx.jit(lax.dot_general, static_argnums=(2, 3, 4))):
        out = f(x, y, MATRICES, None, preferred)
        assert_same(out, want)


ROUNDED_ONCE: Final = Ulps(narrow=1)
"""Tolerance of float32 sums rounded to a narrow float: the last bit depends on the order of the terms."""


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn])
def test_narrow_floats_are_accumulated_in_float32(dtype: type[np.generic]) -> None:
    gen = np.random.default_rng(0)
    x, y = gen.standard_normal((4, 2000)).astype(dtype), gen.standard_normal((2000, 3)).astype(dtype)
    exact = (x.astype(np.float64) @ y.astype(np.float64)).astype(dtype)
    assert_near(lax.dot_general(x, y, MATRICES), exact, ROUNDED_ONCE)
    assert_near(jax_lax.dot_general(x, y, MATRICES), exact, ROUNDED_ONCE)


def test_narrower_preferred_element_type_is_rounded_once() -> None:
    gen = np.random.default_rng(1)
    x, y = gen.standard_normal((4, 50)).astype(np.float32), gen.standard_normal((50, 3)).astype(np.float32)
    out = lax.dot_general(x, y, MATRICES, preferred_element_type="bfloat16")
    np.testing.assert_array_equal(to_numpy(out), (x @ y).astype(ml_dtypes.bfloat16))


def test_integers_wrap_around() -> None:
    x = np.full((2, 9), 100, np.int8)
    assert_agree(lambda m, np: m.lax.dot(x, x.T), None)


def test_nan_and_infinity() -> None:
    x, y = np.array([[np.nan, 0], [np.inf, 1]], np.float32), np.array([[0, 1], [0, 1]], np.float32)
    assert_agree(lambda m, np: m.lax.dot(x, y), None)


@pytest.mark.parametrize(("lhs", "rhs"), [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 2))])
def test_dot(lhs: tuple[int, ...], rhs: tuple[int, ...]) -> None:
    gen = np.random.default_rng(0)
    x, y = gen.integers(-3, 4, lhs).astype(np.float32), gen.integers(-3, 4, rhs).astype(np.float32)
    assert_agree(lambda m, np: m.lax.dot(x, y), None)
    if lhs[0] == rhs[0]:
        assert_agree(lambda m, np: m.lax.dot(x, y, dimension_numbers=(((0,), (0,)), ((), ()))), None)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.complex64])
def test_large_and_small_contractions_agree(dtype: type[np.generic]) -> None:
    """Small contractions are evaluated by NumPy, large ones are compiled."""
    gen = np.random.default_rng(0)
    x, y = gen.integers(-3, 4, (2, 110, 100)).astype(dtype), gen.integers(-3, 4, (120, 2, 100)).astype(dtype)
    batched: DotDimensionNumbers = (((2,), (2,)), ((0,), (1,)))
    whole = lax.dot_general(fnp.asarray(x), fnp.asarray(y), batched)
    part = lax.dot_general(fnp.asarray(x[:, :9]), fnp.asarray(y[:8]), batched)
    assert isinstance(whole, ConcreteArray)
    assert isinstance(part, ConcreteArray)
    assert (whole.buffer is not None, part.buffer is not None) == (True, False)
    np.testing.assert_array_equal(whole[:, :9, :8], part)


# ------------------------------------------------------------------ precision, printing


@pytest.mark.parametrize("precision", [None, "default", "high", "highest", "float32", ("high", "highest")])
def test_programs_print_as_in_jax(precision: str | tuple[str, str] | None) -> None:
    x, numbers = np.ones((2, 3), np.float32), (((1,), (1,)), ((0,), (0,)))
    for preferred in (None, np.float32, np.float64):
        program = fx.make_jaxpr(lambda x, p=preferred: lax.dot_general(x, x, numbers, precision, p))(x)
        want = jax.make_jaxpr(lambda x, p=preferred: jax_lax.dot_general(x, x, numbers, precision, p))(x)
        assert program.jaxpr.text(style="jax") == str(want)


def test_precision_is_compiled() -> None:
    x = np.ones((2, 2), np.float32)
    text = fx.jit(lambda x: lax.dot(x, x, precision=Precision.HIGHEST)).lower(x).as_text()
    assert "HIGHEST, HIGHEST" in text


# ------------------------------------------------------------------ invalid input

X: Final = np.ones((2, 3), np.float32)


test_invalid_arguments_raise = error_tests(
    (TypeError, "dimension_numbers lhs (2,)", lambda: lax.dot_general(X, X, (((2,), (0,)), ((), ())))),
    (TypeError, "dimension_numbers rhs (-1,)", lambda: lax.dot_general(X, X, (((1,), (-1,)), ((), ())))),
    (TypeError, "dimension_numbers lhs (1, 1)", lambda: lax.dot_general(X, X, (((1, 1), (0, 1)), ((), ())))),
    (TypeError, "dimension_numbers lhs (1,) (1,)", lambda: lax.dot_general(X, X, (((1,), (1,)), ((1,), (0,))))),
    (TypeError, "contract equal sizes [3] [2]", lambda: lax.dot_general(X, X, MATRICES)),
    (TypeError, "batch axes equal sizes", lambda: lax.dot_general(X, X, (((), ()), ((0,), (1,))))),
    (TypeError, "batch axes equal sizes", lambda: lax.dot_general(X, X, (((), ()), ((0,), ())))),
    (TypeError, "dimension_numbers 3", lambda: untyped(lax.dot_general)(X, X, 3)),
    (TypeError, "dimension_numbers 1.5", lambda: untyped(lax.dot_general)(X, X, (((1.5,), (0,)), ((), ())))),
    (ValueError, "precision 'exact'", lambda: lax.dot(X, X.T, precision="exact")),
    (TypeError, "preferred_element_type 'f7'", lambda: lax.dot(X, X.T, preferred_element_type="f7")),
    (
        TypeError,
        "preferred_element_type int8 narrower int32",
        lambda: lax.dot(X.astype(np.int32), X.T.astype(np.int32), preferred_element_type=np.int8),
    ),
    (ValueError, "dot dimension_numbers", lambda: lax.dot(X, X)),
    (ValueError, "dot dimension_numbers", lambda: lax.dot(1.0, X)),
    (TypeError, "lhs 'a'", lambda: untyped(lax.dot)("a", X)),
)
