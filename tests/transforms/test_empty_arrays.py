"""Operations on arrays without elements, and their derivatives and batches: there is nothing to compute, and nothing to
refuse that JAX does not refuse."""

# mypy: untyped-calls-exclude="jax, ml_dtypes"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.differential.records import OURS, THEIRS, Library

NONE: Final = np.zeros(0, np.int32)
TWO: Final = np.zeros(2, np.int32)


def multiplied(x: Any) -> Any:
    """The rows 0 and 1 of none twice as large: both are out of bounds."""
    return x.at[np.array([0, 1])].multiply(2.0)


OPERATIONS: Final[dict[str, tuple[Callable[[Library, Any], Any], tuple[int, ...]]]] = {
    "sort of lines without elements": (lambda lib, x: lib.numpy.sort(x), (2, 0)),
    "sort of no lines": (lambda lib, x: lib.numpy.sort(x), (0, 2)),
    "sort of no vector": (lambda lib, x: lib.numpy.sort(x), (0,)),
    "sort_key_val": (lambda lib, x: lib.lax.sort_key_val(x, 2 * x, 0)[1], (0, 2)),
    "det of no stacks": (lambda lib, x: lib.numpy.linalg.det(x), (0, 4, 4)),
    "take": (lambda lib, x: lib.numpy.take(x, NONE, 0), (0, 4)),
    "take of all": (lambda lib, x: lib.numpy.take(x, NONE), (0, 4)),
    "take of lines without elements": (lambda lib, x: lib.numpy.take(x, TWO, 0), (3, 0)),
    "take_along_axis": (lambda lib, x: lib.numpy.take_along_axis(x, np.zeros((3, 2), np.int32), 1), (3, 0)),
    "index_take": (lambda lib, x: lib.lax.index_take(x, (NONE,), (1,)), (2, 0, 2)),
    "index_take at pairs": (lambda lib, x: lib.lax.index_take(x, (NONE, NONE), (0, 1)), (2, 0)),
    "delete": (lambda lib, x: lib.numpy.delete(x, slice(1, 4, 2)), (0,)),
    "permutation": (lambda lib, x: lib.root.random.permutation(lib.root.random.key(0), x), (0, 4)),
    "multiply at places": (lambda lib, x: multiplied(lib.numpy.asarray(x)), (0, 4)),
    "dirichlet": (lambda lib, x: lib.root.random.dirichlet(lib.root.random.key(0), x, (2,)), (0,)),
}


def forms(lib: Library, f: Callable[[Library, Any], Any]) -> dict[str, Callable[[Any], Any]]:
    root = lib.root

    def gradient(x: Any) -> Any:
        return root.grad(lambda y: lib.numpy.sum(f(lib, y)))(x)

    return {
        "value": lambda x: f(lib, x),
        "tangent": lambda x: root.jvp(lambda y: f(lib, y), (x,), (x,))[1],
        "gradient": gradient,
        "second": lambda x: root.jvp(gradient, (x,), (x,))[1],
        "batch": lambda x: root.vmap(lambda y: f(lib, y))(lib.numpy.stack([x, x])),
        "no batch": lambda x: root.vmap(lambda y: f(lib, y))(lib.numpy.stack([x, x])[:0]),
    }


@pytest.mark.parametrize("name", OPERATIONS)
def test_of_nothing(name: str) -> None:
    f, shape = OPERATIONS[name]
    x, theirs = fnp.zeros(shape), jnp.zeros(shape)
    ours, oracle = forms(OURS, f), forms(THEIRS, f)
    wanted = jax.jit(lambda y: {form: g(y) for form, g in oracle.items()})(theirs)
    staged = fx.jit(lambda y: {form: g(y) for form, g in ours.items()})(x)
    for form, want in wanted.items():
        for got in (ours[form](x), staged[form]):
            assert (got.shape, str(got.dtype)) == (want.shape, str(want.dtype)), form
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want), form)


@pytest.mark.parametrize("stacks", [(), (3,)])
def test_determinants_of_no_rows_are_constant(stacks: tuple[int, ...]) -> None:
    """JAX has the determinants, and finds no last pivot for their derivatives."""

    def pushed(x: Any) -> Any:
        return fx.jvp(fnp.linalg.det, (x,), (x,))

    def gradient(x: Any) -> Any:
        return fx.grad(lambda y: fnp.sum(fnp.linalg.det(y)))(x)

    x = fnp.zeros((*stacks, 0, 0))
    want = jnp.linalg.det(jnp.zeros(x.shape))
    for push, pull in ((pushed, gradient), (fx.jit(pushed), fx.jit(gradient))):
        out, tangent = push(x)
        np.testing.assert_array_equal(np.asarray(out), np.asarray(want))
        np.testing.assert_array_equal(np.asarray(tangent), np.zeros(stacks))
        assert pull(x).shape == x.shape


def test_what_is_joined_with_nothing_has_derivatives() -> None:
    """JAX hands XLA the part without elements, with which XLA's CPU ends the process."""

    def pulled(x: Any, y: Any) -> Any:
        out, pull = fx.vjp(lambda a, b: fnp.concat([a, b]), x, y)
        return out, *pull(2 * out)

    x, y = fnp.arange(3.0), fnp.zeros(0)
    for found in (pulled(x, y), fx.jit(pulled)(x, y)):
        assert [part.tolist() for part in found] == [[0.0, 1.0, 2.0], [0.0, 2.0, 4.0], []]
    nothing = fx.jit(lambda a, b: fnp.concat([a, b]))(fnp.zeros((2, 0)), fnp.zeros((3, 0)))
    assert nothing.shape == (5, 0)


def test_windows_that_are_somewhere_in_nothing_are_refused() -> None:
    numbers = fx.lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
    with pytest.raises(TypeError, match=r"gather: axis 0 of a window must have a size from 0 to 0, got \(1,\)"):
        fx.lax.gather(fnp.zeros(0), np.zeros((2, 1), np.int32), numbers, (1,))
    assert fx.lax.gather(fnp.zeros(0), np.zeros((0, 1), np.int32), numbers, (1,)).shape == (0,)
    with pytest.raises(IndexError, match="has no elements to take"):
        fnp.take(fnp.zeros((0, 4)), TWO, 0)
