"""Static types of `jet` and `derivatives`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import Array
from tracefx.handlers import derivatives, jet


def f(x: Array, y: Array) -> Array:
    return x @ y


def pair(x: Array) -> tuple[Array, Array]:
    return fnp.sin(x), fnp.cos(x)


def jet_and_derivatives(x: Array, y: Array) -> None:
    assert_type(jet(f, (x, y), ([x, None], None)), tuple[Array, Any])
    assert_type(jet(pair, (x,), ([x],), factorial_scaled=False), tuple[tuple[Array, Array], Any])
    assert_type(jet(fx.jit(pair), [x], ([x],)), tuple[tuple[Array, Array], Any])
    assert_type(derivatives(pair, 3), Callable[..., tuple[tuple[Array, Array], ...]])
    assert_type(derivatives(fnp.sin, 3)(x), tuple[Array, ...])
    jet(f, (x,), ([x],))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    derivatives(pair, "3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
