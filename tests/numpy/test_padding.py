"""`pad`, `repeat` with `total_repeat_length` and `linspace` with `retstep`, against `jax.numpy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_calls_agree, assert_programs_agree
from tests.numpy.agreement import both, check, f32, i32, numbers

WIDTHS: Final = (1, (2, 3), ((0, 1), (7, 0)), ((9, 4), (0, 0)))


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
def test_pad_with_elements_of_the_array(mode: Any) -> None:
    host = numbers("float32", (3, 4))
    x = fnp.array(host)
    for width in WIDTHS:
        expected: Any = np.pad(host, width, mode)
        assert fnp.pad(x, width, mode).tolist() == expected.tolist()
        assert fx.jit(lambda x, w=width: fnp.pad(x, w, mode))(x).tolist() == expected.tolist()
    weights = numbers("float32", (5, 9))
    gradient: Any = fx.grad(lambda x: fnp.sum(fnp.pad(x, (1, 4), mode)[:5, :9] * weights))(x)
    sources = np.pad(np.arange(12).reshape(3, 4), (1, 4), mode)[:5, :9]
    np.testing.assert_array_equal(np.asarray(gradient).ravel(), np.bincount(sources.ravel(), weights.ravel(), 12))
    with pytest.raises(ValueError, match="no elements"):
        fnp.pad(fnp.zeros((0, 2)), 1, mode)
    assert fnp.pad(fnp.zeros((0, 2)), ((0, 0), (1, 0)), mode).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_pad_with_statistics_and_ramps(dtype: str) -> None:
    options: list[dict[str, Any]] = [
        *[{"mode": mode, "stat_length": n} for mode in ("maximum", "minimum", "mean") for n in (2, ((1, 9), (3, 2)))],
        *[{"mode": mode} for mode in ("maximum", "minimum", "mean", "linear_ramp", "empty")],
        *[{"mode": "linear_ramp", "end_values": v} for v in (5, (1, 2), ((1, 2), (3, 4)), 5.5)],
    ]
    # Integer ramps are exact, because the widths divide them.
    calls = [(numbers(dtype, (3, 4)), width, each) for each in options for width in (1, ((1, 2), (0, 4)))]
    assert_calls_agree(fnp.pad, jnp.pad, calls, compiled=True)


CONSTANTS: Final[tuple[Any, ...]] = (
    *(7, 2.5, (1, 2), ((1, 2), (3, 4)), ((5,), (6,)), np.array([[1, 2]]), (3,)),
    np.float32([[1, 2], [3, 4]]),  # type: ignore[arg-type]  # NumPy accepts it, but its stubs do not
)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_pad_with_constants(dtype: str) -> None:
    (x, y) = both(numbers(dtype, (3, 4)))
    widths = (1, ((2, 1), (0, 3)))
    pads = [lambda np, x, w=w, c=c: np.pad(x, w, constant_values=c) for c in CONSTANTS for w in widths]
    assert_programs_agree(pads, numbers(dtype, (3, 4)), compiled=False)
    traced = fx.jit(lambda x, c: fnp.pad(x, 1, constant_values=((c, 0), (0, c + 1))))(x, 5)
    check(traced, jnp.pad(y, 1, constant_values=((5, 0), (0, 6))))
    check(fnp.pad(fnp.array(1.0), 1), jnp.pad(jnp.array(1.0), 1))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: fnp.pad(fnp.ones(2), 1, "odd"), "'linear_ramp', 'maximum', 'minimum', 'mean', got 'odd'"),
        (lambda: fnp.pad(fnp.ones(2), 1, "mean", stat_length=0), "stat_length of 0"),
        (lambda: fnp.pad(fnp.ones((2, 0)), 1, "maximum"), "axis without elements"),
        (lambda: fnp.pad(fnp.ones((2, 0)), 1, "linear_ramp"), "too few elements to extend it"),
        (lambda: fnp.pad(fnp.ones(2), 1, stat_length=2), "stat_length has no meaning for mode 'constant'"),
        (lambda: fnp.pad(fnp.ones(2), 1, "edge", constant_values=2), "constant_values has no meaning for mode 'edge'"),
        (lambda: fnp.pad(fnp.ones(2), -1), "negative"),
        (lambda: fnp.pad(fnp.ones(2), (1, 2, 3)), "pad_width"),
        (lambda: fnp.pad(fnp.ones(2), 1, constant_values=(1, 2, 3)), "constant_values"),
        (lambda: fnp.repeat(fnp.ones(2), 1, total_repeat_length=-1), "total_repeat_length -1"),
        (lambda: fnp.repeat(fnp.ones(0), 1, total_repeat_length=1), "no elements"),
    ],
)
def test_invalid_arguments_raise(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()


def test_linspace_with_retstep() -> None:
    options = {"retstep": True}
    calls: list[tuple[Any, ...]] = [(0, 2, num, end, options) for num in (0, 1, 3) for end in (True, False)]
    calls += [(0, f32([1, 1]), 3, options), (0, 9, 4, {"dtype": int, **options})]
    assert_calls_agree(fnp.linspace, jnp.linspace, calls)


@pytest.mark.parametrize("mode", ["reflect", "symmetric"])
def test_pad_with_odd_reflection(mode: Any) -> None:
    for host in (
        i32([[3, 1, 7, 4], [0, 2, 9, 5]]),
        f32([[1, 4, 9], [2, 0.5, 3]]),
        i32([[5, 2]]),
        np.arange(3, dtype=np.uint8),
    ):
        widths, types = (1, 2, (2, 3), 11), ("odd", "even")
        assert_calls_agree(
            fnp.pad, jnp.pad, [(host, width, mode, {"reflect_type": each}) for width in widths for each in types]
        )
    x, y = both(f32([1, 4, 9]))
    compiled = fx.jit(lambda x: fnp.pad(x, 4, mode, reflect_type="odd"))
    check(compiled(x), jnp.pad(y, 4, mode, reflect_type="odd"))
    slopes = fx.grad(lambda x: (fnp.pad(x, 4, mode, reflect_type="odd") ** 2).sum())(x)
    check(slopes, jax.grad(lambda x: (jnp.pad(x, 4, mode, reflect_type="odd") ** 2).sum())(y))
    edge = fnp.pad(fnp.array([fnp.inf, 2.0, 3.0]), 1, "reflect", reflect_type="odd")
    np.testing.assert_array_equal(edge, [np.inf, np.inf, 2.0, 3.0, 4.0])
    for bad in (
        {"mode": "edge", "reflect_type": "odd"},
        {"mode": mode, "reflect_type": "other"},
        {"mode": mode, "of": 1},
    ):
        with pytest.raises(ValueError, match=r"pad: (reflect_type|of)"):
            fnp.pad(x, 1, **bad)


def test_pad_with_a_function() -> None:
    def ends(vector: Any, widths: tuple[int, int], axis: int, kwargs: Any) -> Any:
        vector = vector.at[: widths[0]].set(kwargs.get("low", 7) * (axis + 1))
        return vector.at[vector.shape[0] - widths[1] :].set(vector.sum())

    x, y = both(f32([[1, 2, 3], [4, 5, 6]]))
    calls = [(np.asarray(x), w, ends, options) for w in (1, (2, 1), ((0, 1), (2, 0))) for options in ({}, {"low": 3})]
    assert_calls_agree(fnp.pad, jnp.pad, calls, compiled=True)
    slopes = fx.grad(lambda x: (fnp.pad(x, 1, ends) ** 2).sum())(x)
    check(slopes, jax.grad(lambda x: (jnp.pad(x, 1, ends) ** 2).sum())(y))
    seen: list[int] = []

    def recording(vector: Any, widths: tuple[int, int], axis: int, kwargs: Any) -> Any:
        seen.append(axis)
        return vector

    for _ in range(3):
        fnp.pad(x, 1, recording)
    assert seen == [0, 1] * 3  # called every time


def test_scalars_are_repeated_along_one_axis() -> None:
    for axis in (0, -1, None):
        check(fnp.repeat(3, 2, axis=axis), jnp.repeat(3, 2, axis=axis))
        check(fnp.cumsum(3, axis=axis), jnp.cumsum(3, axis=axis))
    check(fnp.repeat(fnp.array(3.0), 2, axis=0), jnp.repeat(jnp.array(3.0), 2, axis=0))
    with pytest.raises(ValueError, match="out of bounds"):
        fnp.repeat(3, 2, axis=1)
