"""`x.at[i]` updates against `jax.numpy`: values, dtypes, out-of-bounds indices, derivatives."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_agree, assert_same
from tests.numpy.agreement import both, check, f32, i32, numbers
from tests.numpy.test_indexing import INDICES, X
from tracefx import lax
from tracefx.core import Array

METHODS: Final = ("set", "add", "subtract", "multiply", "divide", "power", "min", "max")


@pytest.mark.parametrize("index", INDICES, ids=range(len(INDICES)))
def test_set_at_an_index(index: Any) -> None:
    x, values = fnp.array(X), numbers("float32", X[index].shape)
    expected = X.copy()
    expected[index] = values
    assert x.at[index].set(values).tolist() == expected.tolist()
    assert fx.jit(lambda x, y: x.at[index].set(y))(x, values).tolist() == expected.tolist()
    expected[index] = 2.0
    assert x.at[index].set(2).tolist() == expected.tolist()
    for mode in ("fill", "clip"):
        assert x.at[index].get(mode=mode).tolist() == X[index].tolist()


@pytest.mark.parametrize("values", [[1, 2], (1.5, 2), [[1, 2], (3, 4)], [np.int32(3), 4], [True, False]])
def test_lists_are_values(values: Any) -> None:
    for method in ("set", "add", "multiply", "max"):
        updated = [getattr(N.arange(4.0).reshape(2, 2).at[:, :2], method)(values) for N in (fnp, jnp)]
        assert_same(*updated)
    assert_agree(lambda F, N: F.grad(lambda x: N.zeros(3).at[:2].set([x, 2 * x]).sum())(1.0))


def test_out_of_bounds_modes() -> None:
    (x, y), (i, j) = both(np.arange(4, dtype=np.float32)), both(i32([1, 9, -9]))
    for options in ({}, {"mode": "fill"}, {"mode": "fill", "fill_value": 7}, {"mode": "clip"}, {"fill_value": 7}):
        kw: Any = options
        check(x.at[i].get(**kw), y.at[j].get(**kw))
        check(x.at[9].get(**kw), y.at[9].get(**kw))
    for mode in ("drop", "clip", "promise_in_bounds"):
        check(x.at[i].set(5.0, mode=mode), y.at[j].set(5.0, mode=mode))
        check(x.at[-9].set(5.0, mode=mode), y.at[-9].set(5.0, mode=mode))
    assert x.at[9].set(5.0, mode=lax.GatherScatterMode.CLIP).tolist() == [0.0, 1.0, 2.0, 5.0]
    with pytest.raises(ValueError, match=r"get: mode must be .* got <GatherScatterMode.ONE_HOT"):
        x.at[0].get(mode=lax.GatherScatterMode.ONE_HOT)


def test_mode_names_match_jax() -> None:
    for name in ("fill", "drop", "clip", "promise_in_bounds", "one_hot", None):
        wanted = jax.lax.GatherScatterMode.from_any(name)
        mode = lax.GatherScatterMode.from_any(name)
        assert mode.name == wanted.name
        assert lax.GatherScatterMode.from_any(mode) is mode
    with pytest.raises(ValueError, match="mode must be 'clip', 'fill'.*got 'far'"):
        lax.GatherScatterMode.from_any("far")


def test_apply() -> None:
    (x, y), (i, j) = both(np.arange(4, dtype=np.float32)), both(i32([1, 2, -2, 9]))

    def square(x: Any) -> Any:
        return (x + 1) * (x + 1)

    check(x.at[i].apply(square), y.at[j].apply(square))
    check(x.at[1:3].apply(square), y.at[1:3].apply(square))
    check(fx.jit(lambda x, i: x.at[i].apply(square, unique_indices=True))(x, i[:2]), y.at[j[:2]].apply(square))
    # Where the function is applied once, the derivative is that of the function.
    assert fx.grad(lambda x: fnp.sum(x.at[i].apply(square)))(x).tolist() == [1.0, 4.0, 2 * 10 * 6.0, 1.0]
    check(fx.jit(lambda x, i: x.at[i].apply(square))(x, i), y.at[j].apply(square))


def test_invalid_updates_raise() -> None:
    x = fnp.array(X)
    untyped: Any = x
    for method in METHODS:
        with pytest.raises(TypeError, match=r": values must be"):
            getattr(untyped.at[0], method)("a")
        with pytest.raises(ValueError, match="cannot be broadcast"):
            getattr(untyped.at[0], method)(fnp.ones((2, 3, 4)))
        with pytest.raises(ValueError, match="mode must be"):
            getattr(untyped.at[0], method)(1.0, mode="wrap")
    with pytest.raises(IndexError, match="too many"):
        x.at[0, 0, 0, 0].set(1)


@pytest.mark.parametrize(
    ("index", "mode"),
    [
        (np.array([1, 0]), None),
        (np.array([-1, 0, 7]), None),
        (np.array([5, 1]), None),
        ((np.array([0, 1, 1]), np.array([2, 0, 2])), None),
        ((np.array([[0], [1]]), slice(None), np.array([3, 1])), None),
        ((slice(1), np.array([2, 0])), None),
        ((Ellipsis, np.array([0, 3]), None), None),
        (([1, 0], slice(1, 3)), "clip"),
    ],
)
@pytest.mark.parametrize("method", ["multiply", "divide", "power"])
def test_derivatives_of_products_at_constant_indices(index: Any, mode: str | None, method: str) -> None:
    """Constant unique indices need no `unique_indices=True`; JAX requires it."""
    (x, a), weights = both(np.abs(numbers("float32", X.shape)) + 1), numbers("float32", X.shape, 3)
    values = np.abs(numbers("float32", np.shape(x[index]), 2)) + 0.5
    got = fx.grad(lambda x, y: fnp.sum(getattr(x.at[index], method)(y, mode=mode) * weights), (0, 1))(x, values)
    options: Any = {"mode": mode, "unique_indices": True}

    def jax_loss(a: Any, b: Any) -> Any:
        arrays = (
            tuple([np.asarray(i) if isinstance(i, list) else i for i in index]) if isinstance(index, tuple) else index
        )
        return jnp.sum(getattr(a.at[arrays], method)(b, **options) * weights)

    check(got, jax.grad(jax_loss, (0, 1))(a, values))


@pytest.mark.parametrize("mode", [None, "clip"])
def test_derivatives_of_products_at_repeated_indices(mode: str | None) -> None:
    """First and second order, with zero factors. JAX has no such rule; the reference multiplies element by element."""
    x, indices = f32([0.5, 2.0, -1.0, 3.0]), [1, 3, 1, 1, 7, 3, -1, 0]
    factors, weights = f32([2, 0, 3, 0, 5, 0.5, 1.5, 4]), f32([1, 2, 3, 4])
    clipped = [i % 4 if i < 0 else min(i, 3) if mode == "clip" else i for i in indices]

    def reference(x: Any, y: Any) -> Any:
        out = [x[k] for k in range(4)]
        for k, index in enumerate(clipped):
            if index < 4:
                out[index] = out[index] * y[k]
        return (jnp.stack(out) * weights).sum()

    def loss(x: Any, y: Any, i: Any) -> Any:
        return (fnp.asarray(x).at[i].multiply(y, mode=mode) * weights).sum()

    i = i32(indices)
    check(fx.jit(fx.grad(loss, (0, 1)))(x, factors, i), jax.grad(reference, (0, 1))(x, factors))
    check(fx.hessian(loss, 1)(x, factors, i), jax.hessian(reference, 1)(x, factors))
    several = fx.vmap(fx.grad(loss, 1), (None, 0, 0))(x, np.stack([factors] * 2), np.stack([i, i * 0 + 9]))
    check(several[0], jax.grad(reference, 1)(x, factors))


def test_updates_return_new_arrays() -> None:
    x = fnp.array(X)
    y = x.at[0, 0, 0].set(100.0)
    assert isinstance(y, Array)
    assert (float(x[0, 0, 0]), float(y[0, 0, 0])) == (0.0, 100.0)
