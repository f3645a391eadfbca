"""`ravel_pytree`, against JAX."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.transforms.oracle import same
from tracefx.flatten_util import ravel_pytree

TREES: dict[str, Any] = {
    "floats": {"a": np.ones((2, 3), np.float32), "b": (2.5, np.zeros(0, np.float32))},
    "several dtypes": [np.arange(3, dtype=np.int32), np.float32(0.5), np.ones(2, bool)],
    "nothing": (),
    "an array": np.arange(4, dtype=np.float32).reshape(2, 2),
}


@pytest.mark.parametrize("name", TREES)
def test_as_in_jax(name: str) -> None:
    vector, tree_of = ravel_pytree(TREES[name])
    theirs, theirs_of = jax.flatten_util.ravel_pytree(TREES[name])
    assert (vector.shape, vector.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_array_equal(vector, theirs)
    ours: list[Any] = fx.tree.leaves(tree_of(vector))
    for x, y in zip(ours, jax.tree.leaves(theirs_of(theirs)), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_array_equal(x, y)


def test_derivatives_go_through() -> None:
    tree = TREES["floats"]
    vector, tree_of = ravel_pytree(tree)

    def loss(m: Any, params: Any) -> Any:
        return m.sum(m.sin(params["a"])) * params["b"][0]

    ours = fx.jit(fx.grad(lambda v: loss(fnp, tree_of(v))))(vector)
    theirs_of = jax.flatten_util.ravel_pytree(tree)[1]
    assert_near(ours, jax.grad(lambda v: loss(jnp, theirs_of(v)))(jnp.asarray(vector)))


def test_what_does_not_fit_is_refused() -> None:
    _, tree_of = ravel_pytree(TREES["floats"])
    with pytest.raises(ValueError, match="a vector of 7 elements"):
        tree_of(fnp.zeros(6))
    with pytest.raises(TypeError, match="a vector of float32"):
        ravel_pytree(TREES["several dtypes"])[1](fnp.zeros(7, int))


MADE: Final[dict[str, Any]] = {
    "one dtype": lambda N: {"a": N.ones(2), "b": N.zeros((1, 1))},
    "floats and integers": lambda N: {"a": N.ones(2), "b": N.zeros(1, "int32")},
    "floats": lambda N: {"a": N.ones(2, "float16"), "b": N.zeros(1)},
    "nothing": lambda N: {},
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32", "complex64", "float64"])
@pytest.mark.parametrize("shape", [(3,), (3, 1), (4,)], ids=str)
@pytest.mark.parametrize("name", MADE)
def test_vectors_of_other_dtypes(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    def call(F: Any, N: Any, ravel: Any) -> Any:
        given = np.ones(shape) if dtype == "float64" else N.ones(shape, dtype)
        try:
            return ravel(MADE[name](N))[1](given)
        except (TypeError, ValueError) as error:
            return type(error).__name__

    same(call(fx, fnp, ravel_pytree), call(jax, jnp, jax.flatten_util.ravel_pytree))


def test_functions_for_equal_structures_are_equal() -> None:
    unravels = [ravel_pytree({"a": fnp.ones(2) * i, "b": fnp.zeros(1)})[1] for i in range(2)]
    assert unravels[0] == unravels[1]
    assert hash(unravels[0]) == hash(unravels[1])
    others = [{"a": fnp.ones(3), "b": fnp.zeros(1)}, {"a": fnp.ones(2), "b": fnp.zeros(1, "int32")}, {"c": fnp.ones(3)}]
    assert all(ravel_pytree(tree)[1] != unravels[0] for tree in others)
    assert fx.jit(lambda u, x: u(x), static_argnums=0)(unravels[0], fnp.ones(3))["b"].tolist() == [1]
