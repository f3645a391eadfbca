"""Functions of `tracefx.numpy` that take functions."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude=jax

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx.numpy as fnp

jax.config.update("jax_explicit_x64_dtypes", "allow")


def same(ours: Any, theirs: Any) -> None:
    """One tree of arrays, equal in dtype and numbers."""
    a, b = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert [(x.shape, x.dtype) for x in a] == [(x.shape, x.dtype) for x in b]
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-6)


@pytest.mark.parametrize("kwargs", [{}, {"k": 1}, {"size": 2}, {"size": 9}])
def test_mask_indices(kwargs: dict[str, int]) -> None:
    same(fnp.mask_indices(3, fnp.triu, **kwargs), jnp.mask_indices(3, jnp.triu, **kwargs))
