"""The oracle of the tests of `tracefx.numpy`: the same call here and in `jax.numpy`."""

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
    """Few different values, so that some are equal, zero, negative and fractions."""
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
    """An array here and in JAX, its dtype asked for explicitly so that 64 bits stay."""
    return fnp.array(x, dtype=x.dtype), jnp.array(x, dtype=x.dtype)


def check(ours: object, theirs: object, *, exact: bool = False, weak: bool = True) -> None:
    """Type and values agree; sequences item by item."""
    if isinstance(theirs, list | tuple):
        assert isinstance(ours, list | tuple)
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            check(a, b, exact=exact, weak=weak)
        return
    assert isinstance(ours, Array)
    assert isinstance(theirs, jax.Array)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    if weak and theirs.dtype != np.bool_:
        assert ours.weak_type == theirs.weak_type
    if exact:
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    else:
        assert_near(ours, theirs, JAX_TOLERANCE)


def agree_in_type(ours: Callable[..., object], theirs: Callable[..., object], *args: npt.NDArray[Any]) -> None:
    """Both give results of one type, or both refuse. Nothing is compiled, so this is quick."""
    pairs = [both(a) for a in args]
    try:
        expected = jax.eval_shape(theirs, *[y for _, y in pairs])
    except (TypeError, ValueError):
        expected = None
    try:
        got = ours(*[x for x, _ in pairs])
    except (TypeError, ValueError):
        assert expected is None, f"JAX gives {expected}"
        return
    assert isinstance(got, Array)
    assert isinstance(expected, jax.ShapeDtypeStruct), f"JAX refuses, but here the result is {got!r}"
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    assert got.weak_type == expected.weak_type or got.dtype == np.bool_


REFUSALS: Final = (TypeError, ValueError, IndexError, NotImplementedError, ZeroDivisionError)


def agree_at(
    ours: Callable[..., object], theirs: Callable[..., object], calls: Sequence[Sequence[Any]], *, weak: bool = True
) -> None:
    """`agree` at the arguments of each call, which JAX compiles at one go. NumPy arrays become arrays of a library."""

    def of(library: Callable[..., object], call: Sequence[Any], arrays: Sequence[Any]) -> object:
        rest = iter(arrays)
        return library(*[next(rest) if isinstance(a, np.ndarray) else a for a in call])

    def together(given: Sequence[Sequence[jax.Array]]) -> list[object]:
        outs: list[object] = []
        for call, arrays in zip(calls, given, strict=True):
            try:
                outs.append(of(theirs, call, arrays))
            except REFUSALS:
                outs.append(None)
        return outs

    pairs = [[both(a) for a in call if isinstance(a, np.ndarray)] for call in calls]
    expected = compile_with_fallback(jax.jit, together)([[y for _, y in pair] for pair in pairs])
    for call, pair, want in zip(calls, pairs, expected, strict=True):
        got: object = None
        with suppress(*REFUSALS):
            got = of(ours, call, [x for x, _ in pair])
        assert (got is None) == (want is None), f"{got!r} of {call} in place of {want!r}, None where one refuses"
        if got is not None:
            check(got, want, weak=weak)


def agree(ours: Callable[[], object], theirs: Callable[[], object], *, exact: bool = False, weak: bool = True) -> None:
    """Both give the same, or both refuse."""
    try:
        expected = theirs()
    except REFUSALS:
        try:
            got = ours()
        except REFUSALS:
            return
        raise AssertionError(f"JAX refuses, but here the result is {got!r}") from None
    check(ours(), expected, exact=exact, weak=weak)
