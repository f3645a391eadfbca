"""Helpers of the tests of `tracefx.numpy`: compare a call with the same call of `jax.numpy`, the oracle."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import numpy.typing as npt

import tracefx.numpy as fnp
from tests.closeness import JAX_TOLERANCE, assert_near
from tests.compiling import compile_with_fallback
from tracefx.core.array import Array

jax.config.update("jax_explicit_x64_dtypes", "allow")

DTYPES: Final = (
    *("bool", "int8", "uint8", "int32", "uint32", "int64"),
    *("bfloat16", "float16", "float32", "float64", "complex64"),
)
NARROW: Final = frozenset({"bfloat16", "float16"})


def numbers(dtype: str, shape: Sequence[int], seed: int = 0) -> npt.NDArray[Any]:
    """Returns an array of few distinct values, so that some are equal, zero, negative or fractional."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) > 0.5
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    if kind.kind in "iu":
        return rng.integers(-5 if kind.kind == "i" else 0, 6, shape).astype(kind)
    out = rng.choice([-2.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 3.0], shape)
    if kind.kind == "c":
        return (out + 1j * rng.choice([0.0, 1.0, -0.5], shape)).astype(kind)
    return np.asarray(out.astype(kind))


def f32(x: object) -> npt.NDArray[Any]:
    return np.asarray(x, np.float32)


def i32(x: object) -> npt.NDArray[Any]:
    return np.asarray(x, np.int32)


def both(x: npt.NDArray[Any]) -> tuple[Array, jax.Array]:
    """Returns `x` as a tracefx array and as a JAX array, with an explicit dtype so that 64-bit values stay 64-bit."""
    return fnp.array(x, dtype=x.dtype), jnp.array(x, dtype=x.dtype)


def check(got: object, expected: object, *, exact: bool = False, weak: bool = True) -> None:
    """Asserts that two results agree in type and values; sequences are compared item by item."""
    if isinstance(expected, list | tuple):
        assert isinstance(got, list | tuple)
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            check(a, b, exact=exact, weak=weak)
        return
    assert isinstance(got, Array)
    assert isinstance(expected, jax.Array)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    if weak and expected.dtype != np.bool_:
        assert got.weak_type == expected.weak_type
    if exact:
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))
    else:
        assert_near(got, expected, JAX_TOLERANCE)


def agree_in_type(
    function: Callable[..., object], jax_function: Callable[..., object], *args: npt.NDArray[Any]
) -> None:
    """Asserts that both functions return results of one type, or both raise. Nothing is compiled, so this is fast."""
    pairs = [both(a) for a in args]
    try:
        expected = jax.eval_shape(jax_function, *[y for _, y in pairs])
    except (TypeError, ValueError):
        expected = None
    try:
        got = function(*[x for x, _ in pairs])
    except (TypeError, ValueError):
        assert expected is None, f"JAX gives {expected}"
        return
    assert isinstance(got, Array)
    assert isinstance(expected, jax.ShapeDtypeStruct), f"JAX refuses, but here the result is {got!r}"
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    assert got.weak_type == expected.weak_type or got.dtype == np.bool_


EXPECTED_ERRORS: Final = (TypeError, ValueError, IndexError, NotImplementedError, ZeroDivisionError)


def agree_at(
    function: Callable[..., object],
    jax_function: Callable[..., object],
    calls: Sequence[Sequence[Any]],
    *,
    weak: bool = True,
) -> None:
    """Runs `agree` for each call in `calls`. JAX compiles all calls as one program. NumPy arrays in a call are
    converted to arrays of the respective library.
    """

    def apply_call(library: Callable[..., object], call: Sequence[Any], arrays: Sequence[Any]) -> object:
        rest = iter(arrays)
        return library(*[next(rest) if isinstance(a, np.ndarray) else a for a in call])

    def all_calls(array_lists: Sequence[Sequence[jax.Array]]) -> list[object]:
        outs: list[object] = []
        for call, arrays in zip(calls, array_lists, strict=True):
            try:
                outs.append(apply_call(jax_function, call, arrays))
            except EXPECTED_ERRORS:
                outs.append(None)
        return outs

    pairs = [[both(a) for a in call if isinstance(a, np.ndarray)] for call in calls]
    expected = compile_with_fallback(jax.jit, all_calls)([[y for _, y in pair] for pair in pairs])
    for call, pair, want in zip(calls, pairs, expected, strict=True):
        got: object = None
        with suppress(*EXPECTED_ERRORS):
            got = apply_call(function, call, [x for x, _ in pair])
        assert (got is None) == (want is None), f"{got!r} of {call} in place of {want!r}, None where one refuses"
        if got is not None:
            check(got, want, weak=weak)


def agree(
    call: Callable[[], object], jax_call: Callable[[], object], *, exact: bool = False, weak: bool = True
) -> None:
    """Asserts that both calls return the same result, or both raise."""
    try:
        expected = jax_call()
    except EXPECTED_ERRORS:
        try:
            got = call()
        except EXPECTED_ERRORS:
            return
        raise AssertionError(f"JAX refuses, but here the result is {got!r}") from None
    check(call(), expected, exact=exact, weak=weak)
