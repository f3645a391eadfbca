"""What the tests of single primitives share: edge values, and tests of errors and of printed programs.

`tests/laws` has a record of every primitive, and `tests/differential` one of every function of `tracefx.lax`.
"""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
import pytest

import tracefx as fx
from tracefx import lax
from tracefx.core import DType, NDArray, dtypes

jax.config.update("jax_explicit_x64_dtypes", "allow")

Test: TypeAlias = Callable[..., None]


def applied(name: str, *parameters: Any) -> Callable[..., Any]:
    """Returns a call of the function of this name of a library's `lax`, with parameters after its operands."""
    return lambda lax, *operands: getattr(lax, name)(*operands, *parameters)


def edges(dtype: DType) -> NDArray:
    """Returns the edge values of a dtype."""
    if dtypes.is_bool(dtype):
        return np.array([False, True])
    if dtypes.is_integer(dtype):
        info = dtypes.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        values = sorted({low, low + 1, 0, 1, 2, 3, high - 1, high, max(-1, low)})
        return np.array(values, np.uint64 if low == 0 else np.int64).astype(dtype)
    real = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, np.inf, -np.inf, np.nan])
    if dtype == dtypes.float32:
        real = np.append(real, [-2.5, 1e-30, 3e38, 1e5, -1e5])
    if dtypes.is_complex(dtype):
        finite = (0.0, 1.0, -1.0, 0.5)  # no -0.0: complex arithmetic does not preserve the side of a branch cut
        return np.array([complex(a, b) for a, b in itertools.product(finite, finite)]).astype(dtype)
    return real.astype(dtype)


def check_raises(error: type[Exception], words: str, call: Callable[[], object]) -> None:
    """Asserts that the call raises exactly this error class with a message containing these words in order."""
    with pytest.raises(error) as error_info:
        call()
    rest = str(error_info.value)
    for word in words.split():
        assert word in rest, f"{word!r} should be in {rest!r}"
        rest = rest.partition(word)[2]


def error_tests(*calls: tuple[type[Exception], str, Callable[[], object]]) -> Test:
    """Returns a test that each call raises an error of this class, with a message containing these words."""

    @pytest.mark.parametrize(("error", "words", "call"), calls)
    def test_invalid_arguments_raise(error: type[Exception], words: str, call: Callable[[], object]) -> None:
        check_raises(error, words, call)

    return test_invalid_arguments_raise


def printing_tests(**programs: tuple[Callable[..., Any], Sequence[Any]]) -> Test:
    """Returns a test that programs print as in JAX: `program(lax, *args)`, with its arguments."""

    @pytest.mark.parametrize("name", programs)
    def test_programs_print_as_in_jax(name: str) -> None:
        program, args = programs[name]
        got = fx.make_jaxpr(functools.partial(program, lax))(*args)
        assert got.jaxpr.text(style="jax") == str(jax.make_jaxpr(functools.partial(program, jax.lax))(*args))

    return test_programs_print_as_in_jax
