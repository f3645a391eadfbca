"""einops: `einops.array_api` unchanged, and `einops` with `tracefx.interop.einops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import einops
import einops.array_api
import numpy as np
import pytest

import tracefx as fx
import tracefx.interop.einops
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx.testing.tolerances import FINITE_DIFFERENCES

X = np.random.default_rng(0).uniform(1.0, 2.0, (2, 4, 3)).astype(np.float32)

CALLS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda e, x: e.rearrange(x, "a b c -> (c a) b"),
    lambda e, x: e.rearrange(x, "a (b two) c -> two a b c", two=2),
    lambda e, x: e.reduce(x, "a b c -> a c", "mean"),
    lambda e, x: e.reduce(x, "a (b two) c -> a b", "max", two=2),
    lambda e, x: e.reduce(x, "a b c -> b", "min"),
    lambda e, x: e.reduce(x, "a b c -> ", "prod"),
    lambda e, x: e.repeat(x, "a b c -> a (k b) c", k=3),
    lambda e, x: e.pack([x, x[:, 0]], "a * c")[0],
    lambda e, x: e.unpack(x, [(1,), (3,)], "a * c")[1],
)
BACKEND_CALLS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda e, x: e.einsum(x, x, "a b c, a d c -> b d"),
    lambda e, x: e.rearrange([x[0], x[1]], "a b c -> b (a c)"),
    lambda e, x: e.rearrange(x, "a b c -> (a b) c") * e.parse_shape(x, "a b c")["b"],
)


def check(function: Callable[[Any, Any], Any], library: Any) -> None:
    def call(x: Any) -> Any:
        return function(library, x)

    x, wanted = fnp.asarray(X), function(einops, X)
    for got in (call(x), fx.jit(call)(x), fx.vmap(call)(x[None])[0]):
        assert isinstance(got, fx.Array)
        assert_near(got, wanted)
    wide, direction, step = X.astype(np.float64), np.cos(np.arange(24.0)).reshape(X.shape), 1e-6
    slope = (function(einops, wide + step * direction) - function(einops, wide - step * direction)).sum() / (2 * step)
    gradient = fx.grad(lambda x: call(x).sum())(fnp.asarray(wide, dtype="float64"))
    assert_near(np.sum(np.asarray(gradient) * direction), slope, FINITE_DIFFERENCES)


@pytest.mark.parametrize("function", CALLS, ids=range(len(CALLS)))
def test_einops_array_api(function: Callable[[Any, Any], Any]) -> None:
    check(function, einops.array_api)


@pytest.mark.parametrize("function", CALLS + BACKEND_CALLS, ids=range(len(CALLS + BACKEND_CALLS)))
def test_einops_backend(function: Callable[[Any, Any], Any]) -> None:
    check(function, einops)


def test_asnumpy() -> None:
    assert type(einops.asnumpy(fnp.asarray(X))) is np.ndarray
