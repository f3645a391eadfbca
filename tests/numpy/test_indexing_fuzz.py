"""Randomly drawn indices, read and updated, against NumPy: evaluated primitive by primitive, with index arrays traced
or constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.core import NDArray, as_value
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import as_array
from tracefx.testing.strategies import index_expressions, shapes

UPDATES: Final = ("set", "add", "subtract", "multiply", "min", "max")
UFUNCS: Final = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def by_primitives(f: Callable[..., Any], *args: NDArray) -> NDArray:
    """Traces a function and evaluates its primitives one by one, so that nothing is left to NumPy's own indexing."""
    program = fx.make_jaxpr(f)(*args)
    (out,) = eval_jaxpr(program.jaxpr, program.consts, [as_value(x) for x in args])
    return np.asarray(as_array(out))


def split_index(index: Any) -> tuple[Callable[[Sequence[Any]], Any], list[NDArray]]:
    """Returns a function that builds the index from its integer arrays, and these arrays."""
    parts = index if isinstance(index, tuple) else (index,)
    positions = [i for i, p in enumerate(parts) if isinstance(p, np.ndarray | list) and np.asarray(p).dtype.kind == "i"]

    def rebuild(arrays: Sequence[Any]) -> Any:
        new = list(parts)
        for i, array in zip(positions, arrays, strict=True):
            new[i] = array
        return tuple(new) if isinstance(index, tuple) else new[0]

    return rebuild, [np.asarray(parts[i], np.int32) for i in positions]


def draw_array_and_index(data: st.DataObject) -> tuple[NDArray, Any]:
    shape = data.draw(shapes(max_dims=4, max_side=4))
    index = data.draw(index_expressions(shape))
    return np.asarray(np.arange(np.prod(shape), dtype=np.int32).reshape(shape) - 5), index


@settings(max_examples=250)
@given(st.data())
def test_reads_match_numpy(data: st.DataObject) -> None:
    host, index = draw_array_and_index(data)
    rebuild, arrays = split_index(index)
    np.testing.assert_array_equal(by_primitives(lambda x: x[index], host), host[index])
    np.testing.assert_array_equal(by_primitives(lambda x, *i: x[rebuild(i)], host, *arrays), host[index])
    mode = data.draw(st.sampled_from([None, "fill", "clip", "promise_in_bounds"]))
    got = by_primitives(lambda x, *i: x.at[rebuild(i)].get(mode=mode), host, *arrays)
    np.testing.assert_array_equal(got, host[index])


@settings(max_examples=250)
@given(st.data(), st.sampled_from(UPDATES))
def test_updates_match_numpy(data: st.DataObject, method: str) -> None:
    """The values have the whole shape, the shape of some trailing axes, or none; repeated indices are
    applied in order.
    """
    host, index = draw_array_and_index(data)
    rebuild, arrays = split_index(index)
    shape = host[index].shape
    shape = shape[data.draw(st.integers(0, len(shape))) :]
    values = np.asarray((np.arange(np.prod(shape), dtype=np.int32).reshape(shape) * 7 + 3) % 11)
    expected = host.copy()
    if method == "set":
        expected[index] = values
    else:
        UFUNCS[method].at(expected, index, values)
    got = by_primitives(lambda x, y, *i: getattr(x.at[rebuild(i)], method)(y), host, values, *arrays)
    np.testing.assert_array_equal(got, expected)
    got = np.asarray(getattr(fnp.array(host).at[index], method)(values))
    np.testing.assert_array_equal(got, expected)
    if method == "add":
        applied = fnp.array(host).at[index].apply(lambda x: x * 3 - 1)
        tripled = host.astype(object)
        np.frompyfunc(lambda x: x * 3 - 1, 1, 1).at(tripled, index)
        np.testing.assert_array_equal(np.asarray(applied), tripled.astype(np.int32))


@settings(max_examples=150)
@given(st.data())
def test_out_of_bounds_indices(data: st.DataObject) -> None:
    """One vector of indices, some of them out of bounds, along any axis."""
    host = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    axis = data.draw(st.integers(0, 2))
    n = host.shape[axis]
    i = np.array(data.draw(st.lists(st.integers(-2 * n - 1, 2 * n + 1), min_size=1, max_size=4)), np.int32)
    wrap = data.draw(st.booleans())
    wrapped = np.where((i < 0) & wrap, i + n, i)
    inside = (wrapped >= 0) & (wrapped < n)
    whole: list[Any] = [slice(None)] * 3
    index, clipped_index = (*whole[:axis], i, *whole[axis + 1 :]), (*whole[:axis], wrapped.clip(0, n - 1))
    inside_mask = np.expand_dims(inside, tuple([d for d in range(3) if d != axis]))

    def evaluate(f: Callable[[Any], Any]) -> NDArray:
        def at_index(x: Any, j: Any) -> Any:
            return f(x.at[tuple([j if part is i else part for part in index])])

        return by_primitives(at_index, host, i)

    read = host[clipped_index]
    options: dict[str, Any] = {"wrap_negative_indices": wrap}
    np.testing.assert_array_equal(evaluate(lambda x: x.get(mode="clip", **options)), read)
    filled = np.where(inside_mask, read, -7)
    np.testing.assert_array_equal(evaluate(lambda x: x.get(mode="fill", fill_value=-7, **options)), filled)
    clipped, dropped = host.copy(), host.copy()
    np.add.at(clipped, clipped_index, 100)
    np.add.at(dropped, (*whole[:axis], wrapped[inside]), 100)
    np.testing.assert_array_equal(evaluate(lambda x: x.add(100, mode="clip", **options)), clipped)
    np.testing.assert_array_equal(evaluate(lambda x: x.add(100, **options)), dropped)


@settings(max_examples=100)
@given(st.data(), st.sampled_from(("set", "add", "multiply", "max", "divide", "power", "apply")))
def test_updates_at_traced_masks_match_numpy(data: st.DataObject, method: str) -> None:
    shape = data.draw(shapes(min_dims=1, max_dims=3, max_side=3))
    start = data.draw(st.integers(0, len(shape) - 1))
    end = data.draw(st.integers(start + 1, len(shape)))
    mask = np.array(
        data.draw(st.lists(st.booleans(), min_size=(size := int(np.prod(shape[start:end]))), max_size=size))
    )
    mask = mask.reshape(shape[start:end]).astype(np.bool_)
    host = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1
    if data.draw(st.booleans()):
        before: tuple[Any, ...] = (..., *[slice(None)] * 0) if end == len(shape) else (slice(None),) * start
    else:
        before = (slice(None),) * start
    rest = shape[end:][data.draw(st.integers(0, len(shape) - end)) :]
    values = np.arange(np.prod(rest), dtype=np.float32).reshape(rest) + 2
    if data.draw(st.booleans()) and len(rest) == len(shape) - end:
        values = values[None]

    def updated(x: Any, mask: Any, y: Any) -> Any:
        at = x.at[(*before, mask)]
        return at.apply(lambda x: x * 2) if method == "apply" else getattr(at, method)(y)

    known = np.asarray(updated(fnp.array(host), mask, values))
    np.testing.assert_array_equal(by_primitives(updated, host, mask, values), known)
    expected = host.copy()
    if method == "set":
        expected[(*before, mask)] = values
        np.testing.assert_array_equal(known, expected)


def test_unsupported_uses_of_traced_masks_raise() -> None:
    x, mask = fnp.arange(4.0), fnp.array([True, False, True, False])
    with pytest.raises(ValueError, match=r"use where\(mask, new, x\)"):
        fx.jit(lambda m: x.at[m].set(fnp.ones(2)))(mask)
    with pytest.raises(IndexError, match="needs a concrete value"):
        fx.jit(lambda m: x.at[m].get())(mask)
    with pytest.raises(IndexError, match=r"a mask of shape \(3,\) selects from axes of sizes \(4,\)"):
        fx.jit(lambda m: x.at[m].set(0))(mask[:3])

    def squares(x: Any, y: Any) -> Any:
        return (x.at[x > 1].multiply(y) ** 2).sum()

    by_x, by_y = fx.jit(fx.grad(squares, (0, 1)))(x, 3.0)
    assert by_x.tolist() == [0.0, 2.0, 36.0, 54.0]
    assert by_y == 2 * 3.0 * (4 + 9)


def test_apply_at_repeated_traced_indices_applies_repeatedly() -> None:
    x, i = fnp.array([1.0, 2.0, 3.0, 4.0]), np.array([2, 0, 2, 2, 9, -1])
    applied = fx.jit(lambda x, i: x.at[i].apply(lambda y: y * y))
    assert applied(x, i).tolist() == [1.0, 2.0, 3.0**8, 16.0]
    gradient = fx.jit(fx.grad(lambda x: x.at[fnp.array(i) + 0].apply(lambda y: y * y).sum()))(x)
    assert gradient.tolist() == [2.0, 1.0, 8 * 3.0**7, 8.0]
    both = fx.vmap(lambda i: x.at[i].apply(lambda y: y * y))(np.stack([i, i * 0]))
    assert both.tolist() == [[1.0, 2.0, 3.0**8, 16.0], [1.0, 2.0, 3.0, 4.0]]
