"""Slicing, joining and rearranging of arrays, and creation of arrays."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax as jax_lax

import tracefx as fx
from tests.compiling import default_compile_options
from tests.ops.harness import Args, Record, Samples, Weak, aval_of, case_id, cases, normal
from tests.ops.suite import ALL, check_batching, check_derivatives, check_raises, check_values
from tracefx import lax
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.dtypes import DType
from tracefx.core.values import to_numpy


def arrays(*shapes: tuple[int, ...]) -> Samples:
    """Returns samples with arguments of these shapes, strongly and weakly typed."""

    def samples(dtype: DType, gen: np.random.Generator) -> list[Args]:
        strong = tuple([normal(shape, dtype, gen) for shape in shapes])
        if dtypes.is_bool(dtype):
            return [strong]
        weak = tuple([Weak(normal(shape, dtype, gen)) for shape in shapes])
        return [strong, weak, (*weak[:1], *strong[1:])]

    return samples


def record(
    name: str, function: Callable[..., Array], oracle: Callable[..., jax.Array], *shapes: tuple[int, ...]
) -> Record:
    return Record(name, function, oracle, ALL, arrays(*shapes), arrays(*shapes))


def squeezed(shape: tuple[int, ...], dims: Sequence[int]) -> Record:
    return record(f"squeeze {shape} {dims}", lambda x: lax.squeeze(x, dims), lambda x: jax_lax.squeeze(x, dims), shape)


def expanded(shape: tuple[int, ...], dims: Sequence[int]) -> Record:
    return record(
        f"expand_dims {shape} {dims}",
        lambda x: lax.expand_dims(x, dims),
        lambda x: jax_lax.expand_dims(x, dims),
        shape,
    )


def concatenated(dim: int, *shapes: tuple[int, ...]) -> Record:
    return record(
        f"concatenate {shapes} {dim}",
        lambda *xs: lax.concatenate(xs, dim),
        lambda *xs: jax_lax.concatenate(xs, dim),
        *shapes,
    )


def stacked(axis: int, *shapes: tuple[int, ...]) -> Record:
    return record(
        f"stack {shapes} {axis}", lambda *xs: lax.stack(xs, axis), lambda *xs: jax_lax.stack(xs, axis), *shapes
    )


def piece(shape: tuple[int, ...], sizes: Sequence[int], axis: int, i: int) -> Record:
    return record(
        f"split {shape} {sizes} {axis} {i}",
        lambda x: lax.split(x, sizes, axis)[i],
        lambda x: jax_lax.split(x, sizes, axis)[i],
        shape,
    )


def sliced(
    shape: tuple[int, ...], start: Sequence[int], limit: Sequence[int], strides: Sequence[int] | None = None
) -> Record:
    return record(
        f"slice {shape} {start} {limit} {strides}",
        lambda x: lax.slice(x, start, limit, strides),
        lambda x: jax_lax.slice(x, start, limit, strides),
        shape,
    )


def padded(shape: tuple[int, ...], config: Sequence[tuple[int, int, int]]) -> Record:
    return record(
        f"pad {shape} {config}",
        lambda x, value: lax.pad(x, value, config),
        lambda x, value: jax_lax.pad(x, value, config),
        shape,
        (),
    )


def reversed_(shape: tuple[int, ...], dims: Sequence[int]) -> Record:
    return record(f"rev {shape} {dims}", lambda x: lax.rev(x, dims), lambda x: jax_lax.rev(x, dims), shape)


RECORDS: Final = (
    squeezed((1, 3, 1), (0,)),
    squeezed((1, 3, 1), (-1, 0)),
    squeezed((1, 0), (0,)),
    squeezed((2,), ()),
    expanded((2, 3), (0, 2)),
    expanded((2,), (-1,)),
    expanded((), (0,)),
    record("broadcast", lambda x: lax.broadcast(x, (2, 1)), lambda x: jax_lax.broadcast(x, (2, 1)), (3,)),
    concatenated(0, (2, 3), (1, 3)),
    concatenated(1, (2, 3), (2, 0), (2, 2)),
    concatenated(0, (3,)),
    stacked(0, (2, 3), (2, 3)),
    stacked(-1, (2,), (2,), (2,)),
    stacked(0, (), ()),
    piece((2, 4), (1, 3), 1, 1),
    piece((3, 2), (0, 2, 1), -2, 1),
    piece((2,), (2,), 0, 0),
    sliced((4, 3), (1, 0), (3, 3)),
    sliced((7, 2), (1, 0), (7, 1), (3, 1)),
    sliced((3,), (2,), (2,)),
    sliced((), (), ()),
    padded((3,), [(1, 2, 0)]),
    padded((3, 2), [(-1, 0, 0), (0, 1, 2)]),
    padded((4,), [(-2, -1, 1)]),
    padded((0,), [(1, 1, 3)]),
    padded((), []),
    reversed_((2, 3), (1,)),
    reversed_((2, 3), (1, 0)),
    reversed_((0,), (0,)),
)

all_cases = pytest.mark.parametrize(("record", "dtype"), cases(RECORDS), ids=case_id)


@all_cases
def test_values(record: Record, dtype: DType) -> None:
    check_values(record, dtype)


@all_cases
def test_vmap(record: Record, dtype: DType) -> None:
    check_batching(record, dtype)


@pytest.mark.parametrize(("record", "dtype"), [c for c in cases(RECORDS) if dtypes.is_inexact(c[1])], ids=case_id)
def test_derivatives(record: Record, dtype: DType) -> None:
    check_derivatives(record, dtype)


@given(n=st.integers(0, 5), low=st.integers(-7, 4), high=st.integers(-7, 4), interior=st.integers(0, 4))
def test_pad_with_negative_and_interior_padding(n: int, low: int, high: int, interior: int) -> None:
    size = low + n + max(n - 1, 0) * interior + high
    sources = {low + i * (interior + 1): i for i in range(n)}
    if size < 0:
        check_raises(ValueError, "pad padding_config", lambda: lax.pad(np.arange(n), -1, [(low, high, interior)]))
    else:
        out = lax.pad(np.arange(n), -1, [(low, high, interior)])
        assert out.tolist() == [sources.get(i, -1) for i in range(size)]


def test_vmap_of_pad_over_padding_values() -> None:
    """Elements are selected, not added, so that NaN and infinity are preserved."""
    x = np.array([np.inf, np.nan, 1], np.float32)
    out = fx.vmap(lambda value: lax.pad(x, value, [(1, 0, 0)]))(np.array([np.inf, 2], np.float32))
    np.testing.assert_array_equal(to_numpy(out), [[np.inf, *x], [2, *x]])


# ------------------------------------------------------------------ creation


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (np.int8, 300),
        (np.uint8, 300),
        (np.int32, 5),
        (np.uint64, 3),
        (ml_dtypes.int4, 20),
        (ml_dtypes.bfloat16, 300),
        (np.float16, 70000),
        (ml_dtypes.float8_e4m3fn, 600),
        (np.float64, 4),
        (np.complex64, 3),
        (np.float32, 0),
    ],
)
def test_iota(dtype: type[np.generic], size: int) -> None:
    with default_compile_options():  # without optimisation, XLA emits other 8-bit floats
        out, want = lax.iota(dtype, size), jax_lax.iota(dtype, size)
        compiled = fx.jit(lambda: lax.iota(dtype, size))()
    assert out.aval == aval_of(want) == compiled.aval
    wide = np.complex128 if dtype is np.complex64 else np.float64
    np.testing.assert_array_equal(to_numpy(out).astype(wide), np.asarray(want).astype(wide))
    np.testing.assert_array_equal(to_numpy(compiled).astype(wide), np.asarray(want).astype(wide))


def test_iota_along_an_axis() -> None:
    assert lax.broadcasted_iota(int, (2, 3), 0).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert lax.broadcasted_iota(float, (2, 3), 1).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert fx.vmap(lambda x: x + lax.iota(float, 2))(np.zeros((3, 2), np.float32)).shape == (3, 2)


@pytest.mark.parametrize("dtype", [None, np.float32, np.int8, np.float64, np.bool_, ml_dtypes.bfloat16, np.complex64])
@pytest.mark.parametrize("fill", [1, 2.7, -1.5, True, np.float64(0.5), np.int32(300), np.float32(np.nan)])
def test_full(fill: float, dtype: type[np.generic] | None) -> None:
    for shape in ((2, 3), (), (0,)):
        out, want = lax.full(shape, fill, dtype), jax_lax.full(shape, fill, dtype)
        assert repr(out.aval) == repr(aval_of(want))
        np.testing.assert_array_equal(to_numpy(out).astype(complex), np.asarray(want).astype(complex))


def test_full_with_a_traced_fill_value_and_an_integer_shape() -> None:
    assert fx.jit(lambda x: lax.full(2, x, np.int32))(2.5).tolist() == [2, 2]
    assert fx.grad(lambda x: lax.reduce_sum(lax.full((2, 3), x), (0, 1)))(1.0).item() == 6


def test_full_like() -> None:
    weak = lax.full((2,), 1.0)
    jax_weak = jax_lax.full((2,), 1.0)
    for out, want in (
        (lax.full_like(weak, 3), jax_lax.full_like(jax_weak, 3)),
        (lax.full_like(weak, 3, np.float32), jax_lax.full_like(jax_weak, 3, np.float32)),
        (lax.full_like(weak, 3, shape=(3,)), jax_lax.full_like(jax_weak, 3, shape=(3,))),
        (lax.full_like(np.arange(2), 3.5), jax_lax.full_like(np.arange(2), 3.5)),
        (lax.full_like(2.0, 3), jax_lax.full_like(2.0, 3)),
    ):
        assert repr(out.aval) == repr(aval_of(want))
        np.testing.assert_array_equal(to_numpy(out), np.asarray(want))


# ------------------------------------------------------------------ printed programs


@pytest.mark.parametrize(
    ("function", "oracle"),
    [
        (lambda x: lax.squeeze(x, (0,)), lambda x: jax_lax.squeeze(x, (0,))),
        (lambda x: lax.concatenate([x, x], 1), lambda x: jax_lax.concatenate([x, x], 1)),
        (lambda x: lax.stack([x, x], 1), lambda x: jax_lax.stack([x, x], 1)),
        (lambda x: lax.split(x, (1, 2), 1), lambda x: jax_lax.split(x, (1, 2), 1)),
        (lambda x: lax.slice(x, (0, 1), (1, 3)), lambda x: jax_lax.slice(x, (0, 1), (1, 3))),
        (lambda x: lax.slice(x, (0, 0), (1, 3), (1, 2)), lambda x: jax_lax.slice(x, (0, 0), (1, 3), (1, 2))),
        (
            lambda x: lax.pad(x, 0.0, [(1, -1, 0), (0, 0, 2)]),
            lambda x: jax_lax.pad(x, 0.0, [(1, -1, 0), (0, 0, 2)]),
        ),
        (lambda x: lax.rev(x, (1,)), lambda x: jax_lax.rev(x, (1,))),
    ],
)
def test_programs_print_as_in_jax(function: Callable[..., object], oracle: Callable[..., object]) -> None:
    x = np.ones((1, 3), np.float32)
    assert fx.make_jaxpr(function)(x).jaxpr.text(style="jax") == str(jax.make_jaxpr(oracle)(x))


# ------------------------------------------------------------------ invalid input

X: Final = np.ones((2, 3), np.float32)
INTS: Final = np.ones((2, 3), np.int32)


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (ValueError, "squeeze dimensions size 1", lambda: lax.squeeze(X, (0,))),
        (ValueError, "squeeze dimensions 5", lambda: lax.squeeze(X, (5,))),
        (ValueError, "squeeze dimensions twice", lambda: lax.squeeze(X[None], (0, -3))),
        (TypeError, "squeeze dimensions", lambda: lax.squeeze(X[None], 0)),  # type: ignore[arg-type]  # tested
        (TypeError, "squeeze dimensions 0.5", lambda: lax.squeeze(X[None], (0.5,))),  # type: ignore[arg-type]  # tested
        (TypeError, "array 'a'", lambda: lax.squeeze("a", (0,))),  # type: ignore[arg-type]  # tested
        (ValueError, "expand_dims twice", lambda: lax.expand_dims(X, (0, 0))),
        (ValueError, "expand_dims 4", lambda: lax.expand_dims(X, (4,))),
        (ValueError, "broadcast sizes negative", lambda: lax.broadcast(X, (-1,))),
        (ValueError, "concatenate operands none", lambda: lax.concatenate([], 0)),
        (TypeError, "concatenate one dtype f32[2,3] i32[2,3]", lambda: lax.concatenate([X, INTS], 0)),
        (TypeError, "concatenate sizes axis 1", lambda: lax.concatenate([X, X[:1]], 1)),
        (TypeError, "concatenate number of axes", lambda: lax.concatenate([X, X[0]], 1)),
        (TypeError, "concatenate dimension -1", lambda: lax.concatenate([X, X], -1)),
        (TypeError, "concatenate dimension 2", lambda: lax.concatenate([X, X], 2)),
        (TypeError, "concatenate dimension 0", lambda: lax.concatenate([1.0, 2.0], 0)),
        (ValueError, "stack operands none", lambda: lax.stack([])),
        (ValueError, "stack one shape", lambda: lax.stack([X, X[0]])),
        (TypeError, "stack one dtype", lambda: lax.stack([X, INTS])),
        (ValueError, "stack axis 3", lambda: lax.stack([X, X], 3)),
        (ValueError, "split sizes add up", lambda: lax.split(X, (1, 1), 1)),
        (ValueError, "split sizes negative", lambda: lax.split(X, (-1, 4), 1)),
        (ValueError, "split axis 2", lambda: lax.split(X, (1, 2), 2)),
        (TypeError, "slice limit_indices (2, 4)", lambda: lax.slice(X, (0, 0), (2, 4))),
        (TypeError, "slice start_indices (-1, 0)", lambda: lax.slice(X, (-1, 0), (2, 3))),
        (TypeError, "slice start_indices (1, 0)", lambda: lax.slice(X, (1, 0), (0, 3))),
        (TypeError, "slice start_indices (1,)", lambda: lax.slice(X, (1,), (2,))),
        (TypeError, "slice strides (1, 0)", lambda: lax.slice(X, (0, 0), (2, 3), (1, 0))),
        (TypeError, "slice strides (1,)", lambda: lax.slice(X, (0, 0), (2, 3), (1,))),
        (TypeError, "slice start_indices 0.0", lambda: lax.slice(X, (0.0, 0), (2, 3))),  # type: ignore[arg-type]  # tested
        (TypeError, "pad one dtype", lambda: lax.pad(X, np.int32(0), [(0, 0, 0)] * 2)),
        (ValueError, "pad padding_config", lambda: lax.pad(X, 0.0, [(0, 0, 0)])),
        (ValueError, "pad interior", lambda: lax.pad(X, 0.0, [(0, 0, -1), (0, 0, 0)])),
        (ValueError, "pad padding_value scalar", lambda: lax.pad(X, X, [(0, 0, 0)] * 2)),
        (ValueError, "pad padding_config (low, high, interior)", lambda: lax.pad(X[0], 0.0, [(1, 2)])),  # type: ignore[list-item]  # tested
        (TypeError, "rev dimensions (-1,)", lambda: lax.rev(X, (-1,))),
        (TypeError, "rev dimensions (0, 0)", lambda: lax.rev(X, (0, 0))),
        (TypeError, "rev dimensions (2,)", lambda: lax.rev(X, (2,))),
        (TypeError, "iota bool", lambda: lax.iota(bool, 3)),
        (ValueError, "iota negative", lambda: lax.iota(int, -1)),
        (ValueError, "iota dimension 1", lambda: lax.broadcasted_iota(int, (2,), 1)),
        (ValueError, "iota dimension 0", lambda: lax.broadcasted_iota(int, (), 0)),
        (TypeError, "full fill_value", lambda: lax.full((2,), np.ones(2))),
        (ValueError, "full shape negative", lambda: lax.full((-2,), 1)),
        (TypeError, "full_like fill_value", lambda: lax.full_like(X, np.ones(2))),
    ],
)
def test_invalid_arguments_raise(error: type[Exception], words: str, call: Callable[[], object]) -> None:
    check_raises(error, words, call)


def test_traced_slice_limits_raise() -> None:
    with pytest.raises(TypeError, match="slice: limit_indices must be an integer known when the program is traced"):
        fx.jit(lambda x, n: lax.slice(x, (0,), (n,)))(np.arange(3), 2)


def test_weak_types_of_concatenated_arrays() -> None:
    weak, strong = lax.full((1,), 1.0), np.ones(1, np.float32)
    assert lax.concatenate([weak, weak], 0).weak_type
    assert not lax.concatenate([weak, strong], 0).weak_type
    ct = fx.grad(lambda x: lax.reduce_sum(lax.concatenate([x, strong], 0), (0,)))(weak)
    assert ct.weak_type
