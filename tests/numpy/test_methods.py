"""Methods of arrays, and the options of reductions that only their signatures show, against JAX's."""

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
def test_methods(call: Callable[[Any], object], dtype: str) -> None:
    x, y = both(numbers(dtype, (2, 3)))
    check(call(x), call(y))
    check(fx.jit(call)(x), call(y))


def test_arrays_in_python() -> None:
    x = fnp.arange(6).reshape(2, 3)
    assert 5 in x
    assert 6 not in x
    assert x.__array_namespace__() is fnp
    assert x.item(1, 2) == 5
    assert (x.nbytes, x.itemsize, x.size, x.ndim) == (24, 4, 6, 2)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_first_element_of_a_sum() -> None:
    """JAX's method forgets it, its function doesn't."""
    x, y = both(numbers("int8", (2, 3)))
    check(x.sum(0, initial=2, where=MASK), jnp.sum(y, 0, initial=2, where=jnp.asarray(MASK)))


def test_the_mean_of_a_variance() -> None:
    x, y = both(numbers("float32", (2, 3)))
    mean = np.zeros((2, 1), np.float32)
    jax_numpy: Any = jnp  # its stubs don't know `mean`
    check(fnp.var(x, 1, mean=mean), jax_numpy.var(y, 1, mean=jnp.asarray(mean)))
    check(fnp.std(x, 1, mean=mean, correction=1), jax_numpy.std(y, 1, mean=jnp.asarray(mean), correction=1))
    with pytest.raises(ValueError, match="ddof 1 and correction 1 mean the same"):
        fnp.var(x, ddof=1, correction=1)


def test_several_arguments_at_once() -> None:
    xs = [np.float32(1), np.ones(2, np.float32), np.ones((2, 3), np.float32), np.ones((2, 3, 4), np.float32)]
    for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
        ours: Any = getattr(fnp, name)
        theirs: Any = getattr(jnp, name)
        check(ours(*xs), theirs(*xs))
        for x in xs:
            check(ours(x), theirs(x))


def test_reshape_of_axes_in_another_order() -> None:
    x, y = both(numbers("float32", (2, 3)))
    check(fx.lax.reshape(x, (2, 3), (1, 0)), jax.lax.reshape(y, (2, 3), (1, 0)))
