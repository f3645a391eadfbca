"""`pad` with a function, and invalid arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_calls_agree
from tests.errors import untyped
from tests.numpy.agreement import both, check, f32


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
        *[
            (lambda m=m: fnp.pad(fnp.ones((0, 2)), 1, m), "no elements")
            for m in ("edge", "reflect", "symmetric", "wrap")
        ],
        (lambda: fnp.pad(fnp.ones(2), 1, "edge", reflect_type="odd"), "pad: reflect_type"),
        (lambda: fnp.pad(fnp.ones(2), 1, "reflect", reflect_type="other"), "pad: reflect_type"),
        (lambda: untyped(fnp.pad)(fnp.ones(2), 1, "reflect", of=1), "pad: of"),
        (lambda: fnp.pad(fnp.ones(2), (1, 2, 3)), "pad_width"),
        (lambda: fnp.pad(fnp.ones(2), 1, constant_values=(1, 2, 3)), "constant_values"),
        (lambda: fnp.repeat(fnp.ones(2), 1, total_repeat_length=-1), "total_repeat_length -1"),
        (lambda: fnp.repeat(fnp.ones(0), 1, total_repeat_length=1), "no elements"),
    ],
)
def test_invalid_arguments_raise(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()


def test_odd_reflection_of_infinity() -> None:
    edge = fnp.pad(fnp.array([fnp.inf, 2.0, 3.0]), 1, "reflect", reflect_type="odd")
    np.testing.assert_array_equal(edge, [np.inf, np.inf, 2.0, 3.0, 4.0])


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
