"""Comparison with JAX: a case is written once and run with the modules of both libraries."""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import JAX_TRANSFORM_TOLERANCE, assert_near

jax.config.update("jax_explicit_x64_dtypes", "allow")

Case: TypeAlias = Callable[[Any, Any], object]
"""`case(fx, fnp)` returns the result of tracefx, `case(jax, jnp)` that of JAX."""


def run_with_tracefx(case: Case) -> object:
    return case(fx, fnp)


def run_with_jax(case: Case) -> object:
    return case(jax, jnp)


def agree(case: Case) -> None:
    """Asserts that both libraries return trees of equal structure, shapes, dtypes, weak types and close values."""
    same(run_with_tracefx(case), run_with_jax(case))


def same(got: object, want: object) -> None:
    got_leaves, got_tree = cast(tuple[list[Any], object], jax.tree.flatten(got))
    want_leaves, want_tree = cast(tuple[list[Any], object], jax.tree.flatten(want))
    assert got_tree == want_tree, f"{got_tree} where JAX has {want_tree}"
    for i, (g, w) in enumerate(zip(got_leaves, want_leaves, strict=True)):
        same_leaf(g, w, f"leaf {i}")


def same_leaf(got: Any, want: Any, label: str) -> None:
    if not hasattr(want, "dtype"):
        assert type(got) is type(want), f"{label}: {got!r} where JAX has {want!r}"
        assert got == want, f"{label}: {got!r} where JAX has {want!r}"
        return
    assert hasattr(got, "dtype"), f"{label}: {got!r} where JAX has {want!r}"
    if not isinstance(want, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct):
        want = jnp.asarray(want)  # JAX may return a Python number where tracefx returns an array of the same dtype
    if isinstance(want, jax.ShapeDtypeStruct):
        assert (got.shape, got.dtype) == (want.shape, want.dtype), f"{label}: {got!r} where JAX has {want!r}"
        return
    g, w = (np.asarray(x) for x in (got, want))
    assert (g.shape, g.dtype) == (w.shape, w.dtype), f"{label}: {got!r} where JAX has {want!r}"
    weak = getattr(got, "weak_type", False), getattr(want, "weak_type", False)
    assert weak[0] == weak[1], f"{label}: weak_type is {weak[0]}, JAX's is {weak[1]}"
    if g.dtype.kind in "biuV":  # float0 is a void type
        np.testing.assert_array_equal(g, w, err_msg=label)
    else:
        assert_near(g, w, JAX_TRANSFORM_TOLERANCE, label)
