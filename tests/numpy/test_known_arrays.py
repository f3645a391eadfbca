"""Shape, axis and count arguments given as arrays: concrete arrays are read as Python integers, also during tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx import lax
from tracefx.core import NDArray

V: Final = np.arange(12, dtype=np.float32)
X: Final = V.reshape(3, 4)

SHARED: Final[dict[str, tuple[Callable[[Any, Any], Any], Any]]] = {
    "repeat": (lambda m, n: m.repeat(V[:3], n), [1, 0, 2]),
    "repeat by one": (lambda m, n: m.repeat(V[:3], n), [2]),
    "repeat along": (lambda m, n: m.repeat(X, n, axis=0), [1, 0, 2]),
    "repeat to a length": (lambda m, n: m.repeat(V[:3], n, total_repeat_length=5), [1, 0, 2]),
    "unravel_index": (lambda m, n: m.unravel_index(jnp.asarray(7) if m is jnp else 7, n), [3, 4]),
    "eye": (lambda m, n: m.eye(n), 3),
    "identity": (lambda m, n: m.identity(n), 3),
    "diag": (lambda m, n: m.diag(V[:3], n), 1),
    "trace": (lambda m, n: m.trace(X, n), 1),
    "reshape": (lambda m, n: m.reshape(V, (n, -1)), 3),
    "split": (lambda m, n: m.split(V, n), 3),
    "roll": (lambda m, n: m.roll(X, n, axis=(0, 1)), [1, 2]),
}
"""Calls that JAX accepts while tracing."""

OWN: Final[dict[str, tuple[Callable[[Any], Any], list[Any] | int, Callable[[Any], Any]]]] = {
    "tile": (lambda n: fnp.tile(V, n), [2, 2], lambda n: np.tile(V, n)),
    "split": (lambda n: fnp.split(V, n), [2, 5], lambda n: np.split(V, n)),
    "array_split": (lambda n: fnp.array_split(V, n), [2, 5], lambda n: np.array_split(V, n)),
    "broadcast_to": (lambda n: fnp.broadcast_to(V, n), [2, 12], lambda n: np.broadcast_to(V, n)),
    "broadcast_shapes": (
        lambda n: fnp.zeros(fnp.broadcast_shapes(n, (3,))),
        [2, 1],
        lambda n: np.zeros(np.broadcast_shapes(tuple(n), (3,))),
    ),
    "reshape": (lambda n: fnp.reshape(V, n), [3, 4], lambda n: V.reshape(n)),
    "reshape with a rest": (lambda n: fnp.reshape(V, n), [3, -1], lambda n: V.reshape(n)),
    "method reshape": (lambda n: fnp.asarray(V).reshape(n), [3, -1], lambda n: V.reshape(n)),
    "method transpose": (lambda n: fnp.asarray(X).transpose(n), [1, 0], lambda n: X.transpose(n)),
    "zeros": (fnp.zeros, [2, 3], np.zeros),
    "indices": (fnp.indices, [2, 3], np.indices),
    "tri": (fnp.tri, 3, np.tri),
    "diagonal": (lambda n: fnp.diagonal(X, n), 1, lambda n: np.diagonal(X, n)),
    "sum": (lambda n: fnp.sum(X, axis=n), [0, 1], lambda n: np.sum(X, axis=tuple(n))),
    "expand_dims": (lambda n: fnp.expand_dims(V, n), [0, 1], lambda n: np.expand_dims(V, n)),
    "moveaxis": (lambda n: fnp.moveaxis(X, n, [1]), [0], lambda n: np.moveaxis(X, n, [1])),
    "flip": (lambda n: fnp.flip(X, n), [0, 1], lambda n: np.flip(X, tuple(n))),
    "rot90": (lambda n: fnp.rot90(X, 1, n), [1, 0], lambda n: np.rot90(X, 1, n)),
    "roll along": (lambda n: fnp.roll(X, 1, axis=n), [0, 1], lambda n: np.roll(X, 1, axis=n)),
    "fftshift": (lambda n: fnp.fft.fftshift(X, axes=n), [0], lambda n: np.fft.fftshift(X, axes=n)),
    "apply_over_axes": (
        lambda n: fnp.apply_over_axes(fnp.sum, X, n),
        [0, 1],
        lambda n: np.apply_over_axes(np.sum, X, n),
    ),
    "resize": (lambda n: fnp.resize(V, n), [2, 3], lambda n: np.resize(V, n)),
    "lax.full": (lambda n: lax.full(n, 1.5), [2, 3], lambda n: np.full(n, 1.5)),
    "lax.transpose": (lambda n: lax.transpose(X, n), [1, 0], lambda n: X.transpose(n)),
    "lax.slice": (lambda n: lax.slice(X, n, (2, 3)), [0, 1], lambda n: X[n[0] : 2, n[1] : 3]),
    "lax.pad": (lambda n: lax.pad(V, np.float32(0), n), [[1, 2, 0]], lambda n: np.pad(V, (n[0][0], n[0][1]))),
    "lax.broadcast_in_dim": (lambda n: lax.broadcast_in_dim(V, (2, 12), n), [1], lambda n: np.broadcast_to(V, (2, 12))),
    "lax.reduce": (lambda n: lax.reduce(X, np.float32(0), lax.add, n), [0, 1], lambda n: X.sum()),
}
"""Calls that JAX rejects while tracing, though it accepts some of them eagerly."""


def as_list(x: Any) -> list[NDArray]:
    return [np.asarray(part) for part in (x if isinstance(x, list | tuple) else [x])]


@pytest.mark.parametrize("name", SHARED)
def test_concrete_array_arguments_match_jax(name: str) -> None:
    f, numbers = SHARED[name]
    known, jax_numbers = fnp.asarray(np.asarray(numbers, np.int32)), jnp.asarray(np.asarray(numbers, np.int32))
    want = jax.jit(lambda: f(jnp, jax_numbers))()
    assert_near(f(fnp, known), want)
    assert_near(fx.jit(lambda: f(fnp, known))(), want)


@pytest.mark.parametrize("name", OWN)
def test_closed_over_array_arguments_under_jit(name: str) -> None:
    f, numbers, wanted = OWN[name]
    known, want = fnp.asarray(np.asarray(numbers, np.int32)), wanted(numbers)
    assert_near(f(known), want)
    assert_near(fx.jit(lambda: f(known))(), want)


def test_inferred_size_may_be_an_array() -> None:
    three, rest = fnp.asarray(np.int32(3)), fnp.asarray(np.int32(-1))
    assert fx.jit(lambda: fnp.reshape(V, (three, rest)))().shape == (3, 4)
    assert fnp.reshape(V, np.array([3, -1])).shape == (3, 4)


def test_traced_arguments_raise_with_the_parameter_name() -> None:
    with pytest.raises(TypeError, match=r"tile: reps must consist of concrete integers"):
        fx.jit(lambda n: fnp.tile(V, n))(fnp.asarray(np.array([2, 2])))
    with pytest.raises(TypeError, match=r"sum: axis must be a concrete integer, but the result of squeeze"):
        fx.jit(lambda n: fnp.sum(X, axis=n))(fnp.asarray(np.array([0, 1])))
