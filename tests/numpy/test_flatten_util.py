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
from tests.comparison import JAX_TRANSFORM_TOLERANCE, assert_near, assert_same
from tracefx.flatten_util import ravel_pytree

TREES: dict[str, Any] = {
    "floats": {"a": np.ones((2, 3), np.float32), "b": (2.5, np.zeros(0, np.float32))},
    "several dtypes": [np.arange(3, dtype=np.int32), np.float32(0.5), np.ones(2, bool)],
    "nothing": (),
    "an array": np.arange(4, dtype=np.float32).reshape(2, 2),
}


@pytest.mark.parametrize("name", TREES)
def test_ravel_pytree_matches_jax(name: str) -> None:
    vector, tree_of = ravel_pytree(TREES[name])
    jax_vector, jax_unravel = jax.flatten_util.ravel_pytree(TREES[name])
    assert (vector.shape, vector.dtype) == (jax_vector.shape, jax_vector.dtype)
    np.testing.assert_array_equal(vector, jax_vector)
    leaves: list[Any] = fx.tree.leaves(tree_of(vector))
    for x, y in zip(leaves, jax.tree.leaves(jax_unravel(jax_vector)), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_array_equal(x, y)


def test_gradient_through_unravel() -> None:
    tree = TREES["floats"]
    vector, tree_of = ravel_pytree(tree)

    def loss(m: Any, params: Any) -> Any:
        return m.sum(m.sin(params["a"])) * params["b"][0]

    gradient = fx.jit(fx.grad(lambda v: loss(fnp, tree_of(v))))(vector)
    jax_unravel = jax.flatten_util.ravel_pytree(tree)[1]
    assert_near(gradient, jax.grad(lambda v: loss(jnp, jax_unravel(v)))(jnp.asarray(vector)))


def test_unravel_of_wrong_size_or_dtype_raises() -> None:
    _, tree_of = ravel_pytree(TREES["floats"])
    with pytest.raises(ValueError, match="a vector of 7 elements"):
        tree_of(fnp.zeros(6))
    with pytest.raises(TypeError, match="a vector of float32"):
        ravel_pytree(TREES["several dtypes"])[1](fnp.zeros(7, int))


TREE_MAKERS: Final[dict[str, Any]] = {
    "one dtype": lambda N: {"a": N.ones(2), "b": N.zeros((1, 1))},
    "floats and integers": lambda N: {"a": N.ones(2), "b": N.zeros(1, "int32")},
    "floats": lambda N: {"a": N.ones(2, "float16"), "b": N.zeros(1)},
    "nothing": lambda N: {},
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32", "complex64", "float64"])
@pytest.mark.parametrize("shape", [(3,), (3, 1), (4,)], ids=str)
@pytest.mark.parametrize("name", TREE_MAKERS)
def test_unravel_of_vectors_of_other_dtypes(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    def call(F: Any, N: Any, ravel: Any) -> Any:
        vector = np.ones(shape) if dtype == "float64" else N.ones(shape, dtype)
        try:
            return ravel(TREE_MAKERS[name](N))[1](vector)
        except (TypeError, ValueError) as error:
            return type(error).__name__

    assert_same(call(fx, fnp, ravel_pytree), call(jax, jnp, jax.flatten_util.ravel_pytree), JAX_TRANSFORM_TOLERANCE)


def test_unravel_functions_of_equal_structures_are_equal() -> None:
    unravels = [ravel_pytree({"a": fnp.ones(2) * i, "b": fnp.zeros(1)})[1] for i in range(2)]
    assert unravels[0] == unravels[1]
    assert hash(unravels[0]) == hash(unravels[1])
    others = [{"a": fnp.ones(3), "b": fnp.zeros(1)}, {"a": fnp.ones(2), "b": fnp.zeros(1, "int32")}, {"c": fnp.ones(3)}]
    assert all(ravel_pytree(tree)[1] != unravels[0] for tree in others)
    assert fx.jit(lambda u, x: u(x), static_argnums=0)(unravels[0], fnp.ones(3))["b"].tolist() == [1]
