"""Array methods, and the keyword arguments of reductions, against JAX."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.numpy.agreement import both, check, numbers

MASK: Final = np.array([[True, False, True], [True, True, False]])
CALLS: Final[tuple[Callable[[Any], object], ...]] = (
    lambda x: x.sum(1, None, None, True),
    lambda x: x.sum(0, where=MASK),
    lambda x: x.sum(promote_integers=False),
    lambda x: x.prod(axis=1, promote_integers=False),
    lambda x: x.max(0, None, True, -5, MASK),
    lambda x: x.min(initial=-7),
    lambda x: x.mean(0, where=MASK),
    lambda x: x.mean(0, "float32", None, True),
    lambda x: x.var(0, "float32", None, 1),
    lambda x: x.var(1, correction=1, where=MASK),
    lambda x: x.std(None, correction=0.5),
    lambda x: x.all(1, None, True),
    lambda x: x.any(where=MASK),
    lambda x: x.argmax(0, None, True),
    lambda x: x.argmin(),
    lambda x: x.ptp(1),
    lambda x: x.cumsum(1),
    lambda x: x.cumprod(0, "float32"),
    lambda x: x.diagonal(1),
    lambda x: x.trace(),
    lambda x: x.repeat(2, 0),
    lambda x: x.repeat(np.array([2, 0, 1]), 1, total_repeat_length=5),
    lambda x: x.take(np.array([2, 0, 9]), 1),
    lambda x: x.take(np.array([2, 0, 9]), 1, mode="clip"),
    lambda x: x.reshape(3, 2, order="F"),
    lambda x: x.reshape((3, -1)),
    lambda x: x.ravel("F"),
    lambda x: x.flatten(),
    lambda x: x.transpose(1, 0),
    lambda x: x.mT,
    lambda x: x.copy(),
    lambda x: x.conjugate(),
    lambda x: x.round(1),
    lambda x: x.astype("float16", copy=True),
    lambda x: x.dot(x.T, preferred_element_type="float32"),
    lambda x: x.clip(-1, 1),
    lambda x: x.squeeze(),
    lambda x: x.swapaxes(0, 1),
)


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_methods_match_jax(call: Callable[[Any], object], dtype: str) -> None:
    x, y = both(numbers(dtype, (2, 3)))
    check(call(x), call(y))
    check(fx.jit(call)(x), call(y))


def test_python_protocols_of_arrays() -> None:
    x = fnp.arange(6).reshape(2, 3)
    assert 5 in x
    assert 6 not in x
    assert x.__array_namespace__() is fnp
    assert x.item(1, 2) == 5
    assert (x.nbytes, x.itemsize, x.size, x.ndim) == (24, 4, 6, 2)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_sum_method_with_initial() -> None:
    """JAX's method ignores `initial`; its function does not."""
    x, y = both(numbers("int8", (2, 3)))
    check(x.sum(0, initial=2, where=MASK), jnp.sum(y, 0, initial=2, where=jnp.asarray(MASK)))


def test_var_with_given_mean() -> None:
    x, y = both(numbers("float32", (2, 3)))
    mean = np.zeros((2, 1), np.float32)
    jax_numpy: Any = jnp  # JAX's stubs lack `mean`
    check(fnp.var(x, 1, mean=mean), jax_numpy.var(y, 1, mean=jnp.asarray(mean)))
    check(fnp.std(x, 1, mean=mean, correction=1), jax_numpy.std(y, 1, mean=jnp.asarray(mean), correction=1))
    with pytest.raises(ValueError, match="ddof 1 and correction 1 mean the same"):
        fnp.var(x, ddof=1, correction=1)


def test_atleast_nd_of_several_arguments() -> None:
    xs = [np.float32(1), np.ones(2, np.float32), np.ones((2, 3), np.float32), np.ones((2, 3, 4), np.float32)]
    for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
        function: Any = getattr(fnp, name)
        jax_function: Any = getattr(jnp, name)
        check(function(*xs), jax_function(*xs))
        for x in xs:
            check(function(x), jax_function(x))


def test_lax_reshape_with_dimensions() -> None:
    x, y = both(numbers("float32", (2, 3)))
    check(fx.lax.reshape(x, (2, 3), (1, 0)), jax.lax.reshape(y, (2, 3), (1, 0)))
