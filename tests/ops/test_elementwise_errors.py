"""Error classes and messages of elementwise primitives for invalid operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pytest
from jax import lax as jax_lax

from tests.compiling import default_compile_options
from tests.ops.harness import check_raises
from tracefx import lax
from tracefx.core import dtypes, from_numpy
from tracefx.core.handler import current
from tracefx.ops.elementwise.rounding import RoundingMethod

F3: Final = np.zeros(3, np.float32)
F2: Final = np.zeros(2, np.float32)
I3: Final = np.zeros(3, np.int32)
U3: Final = np.zeros(3, np.uint8)
B3: Final = np.zeros(3, np.bool_)
C3: Final = np.zeros(3, np.complex64)
H3: Final = np.zeros(3, np.float16)

INVALID: Final[tuple[tuple[type[Exception], str, str, tuple[object, ...]], ...]] = (
    # equal dtypes, equal shapes
    (TypeError, "add one dtype f32[3] and i32[3] astype", "add", (F3, I3)),
    (TypeError, "sub do not broadcast f32[3] and f32[2] axis 0", "sub", (F3, F2)),
    (TypeError, "eq one dtype f32[3] and i32[3]", "eq", (F3, I3)),
    (TypeError, "max do not broadcast f32[3] and f32[2] axis 0", "max", (F3, F2)),
    (TypeError, "and one dtype i32[3] and u8[3]", "bitwise_and", (I3, U3)),
    # supported dtypes
    (TypeError, "add takes numbers operand 0 is bool[3]", "add", (B3, B3)),
    (TypeError, "rem takes integers or floats operand 0 is c64[3]", "rem", (C3, C3)),
    (TypeError, "lt takes booleans, integers or floats operand 0 is c64[3]", "lt", (C3, C3)),
    (TypeError, "and takes booleans or integers operand 0 is f32[3]", "bitwise_and", (F3, F3)),
    (TypeError, "not takes booleans or integers operand 0 is f32[3]", "bitwise_not", (F3,)),
    (TypeError, "shift_left takes integers operand 0 is bool[3]", "shift_left", (B3, B3)),
    (TypeError, "sin takes floats or complex numbers operand 0 is i32[3] astype", "sin", (I3,)),
    (TypeError, "cbrt takes floats operand 0 is c64[3]", "cbrt", (C3,)),
    (TypeError, "abs takes signed integers operand 0 is u8[3]", "abs", (U3,)),
    (TypeError, "sign takes numbers operand 0 is bool[3]", "sign", (B3,)),
    (TypeError, "floor takes floats operand 0 is i32[3]", "floor", (I3,)),
    (TypeError, "is_finite takes floats operand 0 is c64[3]", "is_finite", (C3,)),
    (TypeError, "real takes complex numbers operand 0 is f32[3]", "real", (F3,)),
    (TypeError, "complex takes float32 or float64 operand 0 is f16[3]", "complex", (H3, H3)),
    (TypeError, "conj takes float32, float64 or complex numbers operand 0 is i32[3]", "conj", (I3,)),
    # powers
    (TypeError, "pow takes floats or complex numbers operand 0 is i32[3]", "pow", (I3, I3)),
    (TypeError, "pow exponent f32[3] to the power f16[3]", "pow", (F3, H3)),
    (TypeError, "pow exponent f32[3] to the power bool[3]", "pow", (F3, B3)),
    (TypeError, "integer_pow y 1.5 pow", "integer_pow", (F3, 1.5)),
    (TypeError, "integer_pow no negative powers i32[3] to the power -1", "integer_pow", (I3, -1)),
    # rounding
    (ValueError, "round rounding_method AWAY_FROM_ZERO TO_NEAREST_EVEN 7", "round", (F3, 7)),
    # selection
    (ValueError, "select_n at least one case", "select_n", (B3,)),
    (TypeError, "select_n which boolean or integer f32[3]", "select_n", (F3, F3, F3)),
    (TypeError, "select_n boolean two 3", "select_n", (B3, F3, F3, F3)),
    (TypeError, "select_n cases one shape and dtype f32[3] and f32[2]", "select_n", (B3, F3, F2)),
    (TypeError, "select_n cases one shape and dtype f32[3] and i32[3]", "select_n", (B3, F3, I3)),
    (TypeError, "select_n which bool[3] f32[2]", "select_n", (B3, F2, F2)),
    (TypeError, "clamp min f32[2] f32[3]", "clamp", (F2, F3, 1.0)),
    (TypeError, "clamp max f32[2] f32[3]", "clamp", (0.0, F3, F2)),
    (TypeError, "clamp booleans, integers or floats operand 0 is c64[3]", "clamp", (C3, C3, C3)),
)


@pytest.mark.parametrize(("error", "words", "function", "args"), INVALID)
def test_invalid_operands_raise(error: type[Exception], words: str, function: str, args: tuple[object, ...]) -> None:
    before = current()
    check_raises(error, words, lambda: getattr(lax, function)(*args))
    assert current() is before


# JAX clamps complex numbers, although it raises when asked to compare them.
ACCEPTED_BY_JAX: Final = {"clamp"}


@pytest.mark.parametrize(("error", "words", "function", "args"), INVALID)
def test_jax_raises_too(error: type[Exception], words: str, function: str, args: tuple[object, ...]) -> None:
    if function in ACCEPTED_BY_JAX and args[0] is C3:
        with default_compile_options():
            assert jax_lax.clamp(C3, C3, C3).shape == (3,)
        return
    with pytest.raises(error):
        getattr(jax_lax, function)(*args)


@pytest.mark.parametrize("function", ["sin", "neg", "exp", "abs", "square", "bitwise_not"])
def test_non_array_arguments_raise(function: str) -> None:
    for bad in ([1.0, 2.0], "1", None, {"a": 1}, object()):
        with pytest.raises(TypeError, match="must be an array or a number"):
            getattr(lax, function)(bad)


def test_float0_has_no_arithmetic() -> None:
    float0_zeros = from_numpy(np.zeros(3, dtypes.float0), dtypes.float0)
    calls: list[Callable[[], object]] = [lambda: lax.add(float0_zeros, float0_zeros), lambda: lax.sin(float0_zeros)]
    for call in calls:
        with pytest.raises(TypeError, match=r"operand 0 is float0\[3\]"):
            call()


def test_rounding_methods_match_jax() -> None:
    assert [(m.name, m.value) for m in RoundingMethod] == [(m.name, m.value) for m in jax_lax.RoundingMethod]


def test_python_number_takes_the_dtype_of_the_other_operand() -> None:
    for dtype, number in ((dtypes.bfloat16, 1.5), (dtypes.uint8, 200), (dtypes.float64, 2), (dtypes.complex64, 1.0)):
        x = from_numpy(np.ones(2, dtype), dtype)
        for out in (lax.add(x, number), lax.add(number, x)):
            assert repr(out.aval) == f"{dtypes.short_name(dtype)}[2]"
    with pytest.raises(TypeError, match=r"one dtype, got i32\[3\] and f32\[\]"):
        lax.add(I3, 1.5)
    with pytest.raises(OverflowError):
        lax.add(U3, 300)
