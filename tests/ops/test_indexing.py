"""`gather` and `scatter_add`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jax
import ml_dtypes
import numpy as np
import pytest
from attrs import asdict
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax as jax_lax

import tracefx as fx
from tests.errors import untyped
from tests.ops.harness import error_tests
from tracefx import lax
from tracefx.core import dtypes, from_numpy, to_numpy
from tracefx.ops.indexing.gather_scatter_add import GatherDimensionNumbers, ScatterDimensionNumbers

Axes = tuple[int, ...]


@settings(max_examples=40)
@given(st.data())
def test_any_dimension_numbers(data: st.DataObject) -> None:
    """Compared with the definition, element by element."""
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3), "operand")
    axes = data.draw(st.permutations(range(len(shape))), "axes")
    index_map = axes[: data.draw(st.integers(0, len(axes)), "indexed")]
    sizes = [data.draw(st.integers(1, n), "size") for n in shape]
    collapsed = [d for d, n in enumerate(sizes) if n == 1 and data.draw(st.booleans(), "collapsed")]
    count = data.draw(st.lists(st.integers(1, 2), max_size=2), "count")
    window_axes = [d for d in range(len(shape)) if d not in collapsed]
    ndim = len(count) + len(window_axes)
    offset = sorted(data.draw(st.permutations(range(ndim)))[: len(window_axes)])
    starts = data.draw(
        st.lists(st.integers(0, 2), min_size=int(np.prod(count)) * len(index_map), max_size=99), "starts"
    )
    indices = np.array(starts[: int(np.prod(count)) * len(index_map)], np.int32).reshape(*count, len(index_map))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)

    out = to_numpy(lax.gather(x, indices, GatherDimensionNumbers(offset, collapsed, index_map), sizes, mode="clip"))
    for position in np.ndindex(out.shape):
        window = iter([p for i, p in enumerate(position) if i in offset])
        vector = indices[tuple([p for i, p in enumerate(position) if i not in offset])]
        source = []
        for d, (n, size) in enumerate(zip(shape, sizes, strict=True)):
            start = min(int(vector[index_map.index(d)]), n - size) if d in index_map else 0
            source.append(start + (next(window) if d in window_axes else 0))
        assert out[position] == x[tuple(source)]


# ------------------------------------------------------------------ out of bounds

ROWS: Final = GatherDimensionNumbers((1,), (0,), (0,))
JAX_ROWS: Final = jax_lax.GatherDimensionNumbers((1,), (0,), (0,))
INTO_ROWS: Final = ScatterDimensionNumbers((1,), (0,), (0,))
JAX_INTO_ROWS: Final = jax_lax.ScatterDimensionNumbers((1,), (0,), (0,))
X: Final = np.arange(12, dtype=np.float32).reshape(3, 4)
FAR: Final = np.array([[-(2**31)], [-1], [0], [2], [3], [2**31 - 1]], np.int32)


@pytest.mark.parametrize("mode", ["clip", "fill", "drop", "promise_in_bounds", None])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.bool_, np.complex64, ml_dtypes.bfloat16])
def test_out_of_bounds(dtype: type[np.generic], mode: str | None) -> None:
    x = X.astype(dtype)
    indices = FAR[2:4] if mode == "promise_in_bounds" else FAR
    wide = np.complex64
    out, want = lax.gather(x, indices, ROWS, (1, 4), mode=mode), jax_lax.gather(x, indices, JAX_ROWS, (1, 4), mode=mode)
    np.testing.assert_array_equal(to_numpy(out).astype(wide), np.asarray(want).astype(wide))
    if dtype is not np.bool_:
        updates = np.ones((len(indices), 4), dtype)
        out = lax.scatter_add(x, indices, updates, INTO_ROWS, mode=mode)
        np.testing.assert_array_equal(
            to_numpy(out), np.asarray(jax_lax.scatter_add(x, indices, updates, JAX_INTO_ROWS, mode=mode))
        )


def test_fill_value_and_jvp_of_fill_mode() -> None:
    out = lax.gather(X, FAR[:2], ROWS, (1, 4), mode="fill", fill_value=7)
    assert out.tolist() == [[7.0] * 4] * 2
    _, t = fx.jvp(lambda x: lax.gather(x, FAR, ROWS, (1, 4), mode="fill"), (X,), (X,))
    _, want = jax.jvp(lambda x: jax_lax.gather(x, FAR, JAX_ROWS, (1, 4), mode="fill"), (X,), (X,))
    np.testing.assert_array_equal(to_numpy(t), np.asarray(want))


def test_64_bit_indices() -> None:
    far = from_numpy(np.array([[2**63], [1]], np.uint64), dtypes.uint64)
    out = to_numpy(lax.gather(X, far, ROWS, (1, 4), mode="fill"))
    np.testing.assert_array_equal(out, [[np.nan] * 4, X[1]])


def test_window_partly_out_of_bounds_is_filled_or_dropped() -> None:
    numbers = GatherDimensionNumbers((1, 2), (), (0,))
    assert np.isnan(to_numpy(lax.gather(X, np.array([[2]]), numbers, (2, 4), mode="fill"))).all()
    assert lax.gather(X, np.array([[2]]), numbers, (2, 4), mode="clip").tolist() == [X[1:].tolist()]
    into = ScatterDimensionNumbers((1, 2), (), (0,))
    assert lax.scatter_add(X, np.array([[2]]), np.ones((1, 2, 4), np.float32), into).tolist() == X.tolist()


@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.int4, ml_dtypes.bfloat16, np.float16, np.complex64])
def test_scatter_add_accumulates_repeated_indices(dtype: type[np.generic]) -> None:
    x, i, u = np.zeros((3, 4), dtype), np.zeros((6, 1), np.int32), np.full((6, 4), 3).astype(dtype)
    out, want = lax.scatter_add(x, i, u, INTO_ROWS), jax_lax.scatter_add(x, i, u, JAX_INTO_ROWS)
    np.testing.assert_array_equal(to_numpy(out), np.asarray(want))


# ------------------------------------------------------------------ printed programs, invalid input


def test_programs_print_as_in_jax() -> None:
    for options in ({}, {"mode": "clip"}, {"mode": "fill"}, {"unique_indices": True, "indices_are_sorted": True}):
        kwargs: Mapping[str, Any] = options
        program = fx.make_jaxpr(lambda x, i, k=kwargs: lax.gather(x, i, ROWS, (1, 4), **k))(X, FAR)
        want = jax.make_jaxpr(lambda x, i, k=kwargs: jax_lax.gather(x, i, JAX_ROWS, (1, 4), **k))(X, FAR)
        assert program.jaxpr.text(style="jax") == str(want)


def test_dimension_numbers_compare_by_value() -> None:
    assert GatherDimensionNumbers([1], [0], [np.int64(0)]) == ROWS
    assert hash(GatherDimensionNumbers([1], [0], [0])) == hash(ROWS)
    assert set(asdict(ROWS)) == set(JAX_ROWS._fields)


INDICES: Final = np.array([[0], [1]], np.int32)
U: Final = np.ones((2, 4), np.float32)


def gather(offset: Axes, collapsed: Axes, index_map: Axes, sizes: Axes, *batch: Axes, indices: Any = INDICES) -> object:
    return lax.gather(X, indices, GatherDimensionNumbers(offset, collapsed, index_map, *batch), sizes)


test_invalid_arguments_raise = error_tests(
    (ValueError, "gather indices integers", lambda: gather((1,), (0,), (0,), (1, 4), indices=np.ones((2, 1)))),
    (TypeError, "gather last axis", lambda: gather((1,), (0,), (0,), (1, 4), indices=np.int32(0))),
    (TypeError, "gather start_index_map (0, 1)", lambda: gather((1,), (0,), (0, 1), (1, 4))),
    (TypeError, "gather index map (7,)", lambda: gather((1,), (0,), (7,), (1, 4))),
    (TypeError, "gather collapsed (4,)", lambda: gather((1,), (4,), (0,), (1, 4))),
    (TypeError, "gather slice_sizes (1,)", lambda: gather((1,), (0,), (0,), (1,))),
    (TypeError, "gather axis 1 (1, 5)", lambda: gather((1,), (0,), (0,), (1, 5))),
    (TypeError, "gather axis 0 (2, 4)", lambda: gather((1,), (0,), (0,), (2, 4))),
    (ValueError, "gather slice_sizes negative", lambda: gather((1,), (0,), (0,), (1, -1))),
    (TypeError, "gather offset_dims (1, 1)", lambda: gather((1, 1), (), (0,), (1, 4))),
    (TypeError, "gather offset_dims (5,)", lambda: gather((5,), (0,), (0,), (1, 4))),
    (TypeError, "gather offset_dims ()", lambda: gather((), (0,), (0,), (1, 4))),
    (TypeError, "gather operand batching (0,)", lambda: gather((1,), (), (0,), (1, 4), (0,), (0,))),
    (TypeError, "gather batching equal", lambda: gather((), (1,), (1,), (1, 1), (0,), (0,))),
    (TypeError, "dimension_numbers", lambda: untyped(lax.gather)(X, INDICES, ((1,), (0,), (0,)), (1, 4))),
    (ValueError, "gather mode 'wrap'", lambda: lax.gather(X, INDICES, ROWS, (1, 4), mode="wrap")),
    (TypeError, "scatter_add one dtype", lambda: lax.scatter_add(X, INDICES, U.astype(np.int32), INTO_ROWS)),
    (TypeError, "scatter_add bool", lambda: lax.scatter_add(X > 1, INDICES, U > 0, INTO_ROWS)),
    (TypeError, "scatter_add updates", lambda: lax.scatter_add(X, INDICES, U[:1], INTO_ROWS)),
    (TypeError, "scatter_add axis 1", lambda: lax.scatter_add(X, INDICES, np.ones((2, 5), np.float32), INTO_ROWS)),
    (
        TypeError,
        "scatter_add update_window_dims (3,)",
        lambda: lax.scatter_add(X, INDICES, U, ScatterDimensionNumbers((3,), (0,), (0,))),
    ),
    (
        TypeError,
        "scatter_add inserted_window_dims ()",
        lambda: lax.scatter_add(X, INDICES, U, ScatterDimensionNumbers((1,), (), (0,))),
    ),
    (TypeError, "dimension_numbers", lambda: untyped(lax.scatter_add)(X, INDICES, U, ROWS)),
    (ValueError, "scatter_add mode", lambda: lax.scatter_add(X, INDICES, U, INTO_ROWS, mode="wrap")),
)
