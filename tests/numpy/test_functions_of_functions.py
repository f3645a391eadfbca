"""Functions of `tracefx.numpy` that take callables: `mask_indices` and `piecewise`."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tracefx.testing.tolerances import ELEMENTARY

jax.config.update("jax_explicit_x64_dtypes", "allow")


@pytest.mark.parametrize("kwargs", [{}, {"k": 1}, {"size": 2}, {"size": 9}])
def test_mask_indices(kwargs: dict[str, int]) -> None:
    assert_same(fnp.mask_indices(3, fnp.triu, **kwargs), jnp.mask_indices(3, jnp.triu, **kwargs), ELEMENTARY)


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: m.piecewise(x, [x < 0, x >= 1], [lambda x: -x, lambda x: 2 * x]),
        lambda m, x: m.piecewise(x, [x < 0, x >= 1], [lambda x: -x, 2.5, lambda x: x**2]),
        lambda m, x: m.piecewise(x, [x < 0, x < 1], [lambda x, a, b=1.0: x + a + b, 3], 2.0, b=5.0),
        lambda m, x: m.piecewise(x[0], [x[0] < 0], [lambda x: x * 2]),
        lambda m, x: m.piecewise(x.reshape(3, 1), [x.reshape(3, 1) > 0], [lambda x: m.where(x.ndim == 0, x, 9.0)]),
    ],
)
def test_piecewise(call: Any) -> None:
    x = np.array([-1.5, 0.5, 2.0], np.float32)
    assert_same(call(fnp, fnp.array(x)), call(jnp, jnp.array(x)), ELEMENTARY)
    assert_same(fx.grad(lambda x: fnp.sum(call(fnp, x)))(x), jax.grad(lambda x: jnp.sum(call(jnp, x)))(x), ELEMENTARY)


def test_piecewise_with_wrong_number_of_functions_raises() -> None:
    with pytest.raises(ValueError, match="1 conditions need as many functions or one more, got 3"):
        fnp.piecewise(fnp.ones(2), [fnp.ones(2) > 0], [1, 2, 3])


def test_mask_indices_of_a_traced_mask() -> None:
    i, j = fx.jit(lambda k: fnp.mask_indices(3, lambda x, _: fnp.triu(x) * k, size=7))(1.0)
    assert (i.tolist(), j.tolist()) == ([0, 0, 0, 1, 1, 2, 0], [0, 1, 2, 1, 2, 2, 0])


def test_derivative_of_piecewise_is_that_of_the_selected_function() -> None:
    x = np.array([0.0, 4.0, -1.0], np.float32)
    for m, lib in ((jnp, jax), (fnp, fx)):
        f = lib.grad(lambda x, m=m: m.piecewise(x, [x < 0.1, x > 3], [lambda x: x * 2, m.sqrt, m.log]).sum())
        assert np.asarray(f(x)).tolist() == [2.0, 0.25, 2.0]
