"""Operations on empty arrays, their derivatives and batches, against JAX."""

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
from tests.differential.records import JAX, TRACEFX, Library

NO_INDICES: Final = np.zeros(0, np.int32)
TWO_INDICES: Final = np.zeros(2, np.int32)


def multiply_missing_rows(x: Any) -> Any:
    """Multiplies rows 0 and 1 of an array without rows by 2: both indices are out of bounds."""
    return x.at[np.array([0, 1])].multiply(2.0)


OPERATIONS: Final[dict[str, tuple[Callable[[Library, Any], Any], tuple[int, ...]]]] = {
    "sort of lines without elements": (lambda lib, x: lib.numpy.sort(x), (2, 0)),
    "sort of no lines": (lambda lib, x: lib.numpy.sort(x), (0, 2)),
    "sort of no vector": (lambda lib, x: lib.numpy.sort(x), (0,)),
    "sort_key_val": (lambda lib, x: lib.lax.sort_key_val(x, 2 * x, 0)[1], (0, 2)),
    "det of no stacks": (lambda lib, x: lib.numpy.linalg.det(x), (0, 4, 4)),
    "take": (lambda lib, x: lib.numpy.take(x, NO_INDICES, 0), (0, 4)),
    "take of all": (lambda lib, x: lib.numpy.take(x, NO_INDICES), (0, 4)),
    "take of lines without elements": (lambda lib, x: lib.numpy.take(x, TWO_INDICES, 0), (3, 0)),
    "take_along_axis": (lambda lib, x: lib.numpy.take_along_axis(x, np.zeros((3, 2), np.int32), 1), (3, 0)),
    "index_take": (lambda lib, x: lib.lax.index_take(x, (NO_INDICES,), (1,)), (2, 0, 2)),
    "index_take at pairs": (lambda lib, x: lib.lax.index_take(x, (NO_INDICES, NO_INDICES), (0, 1)), (2, 0)),
    "delete": (lambda lib, x: lib.numpy.delete(x, slice(1, 4, 2)), (0,)),
    "permutation": (lambda lib, x: lib.root.random.permutation(lib.root.random.key(0), x), (0, 4)),
    "multiply at places": (lambda lib, x: multiply_missing_rows(lib.numpy.asarray(x)), (0, 4)),
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
def test_operations_on_empty_arrays_agree_with_jax(name: str) -> None:
    f, shape = OPERATIONS[name]
    x, jax_x = fnp.zeros(shape), jnp.zeros(shape)
    tracefx_forms, jax_forms = forms(TRACEFX, f), forms(JAX, f)
    expected = jax.jit(lambda y: {form: g(y) for form, g in jax_forms.items()})(jax_x)
    staged = fx.jit(lambda y: {form: g(y) for form, g in tracefx_forms.items()})(x)
    for form, want in expected.items():
        for got in (tracefx_forms[form](x), staged[form]):
            assert (got.shape, str(got.dtype)) == (want.shape, str(want.dtype)), form
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want), form)


@pytest.mark.parametrize("stacks", [(), (3,)])
def test_det_of_empty_matrix_has_zero_derivatives(stacks: tuple[int, ...]) -> None:
    """JAX computes these determinants, but cannot differentiate them: there is no last pivot."""

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


def test_concat_with_empty_array_is_differentiable() -> None:
    """JAX passes the empty operand to XLA, whose CPU backend then aborts the process."""

    def pulled(x: Any, y: Any) -> Any:
        out, pull = fx.vjp(lambda a, b: fnp.concat([a, b]), x, y)
        return out, *pull(2 * out)

    x, y = fnp.arange(3.0), fnp.zeros(0)
    for result in (pulled(x, y), fx.jit(pulled)(x, y)):
        assert [part.tolist() for part in result] == [[0.0, 1.0, 2.0], [0.0, 2.0, 4.0], []]
    nothing = fx.jit(lambda a, b: fnp.concat([a, b]))(fnp.zeros((2, 0)), fnp.zeros((3, 0)))
    assert nothing.shape == (5, 0)


def test_gather_windows_beyond_empty_operand_are_refused() -> None:
    numbers = fx.lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
    with pytest.raises(TypeError, match=r"gather: axis 0 of a window must have a size from 0 to 0, got \(1,\)"):
        fx.lax.gather(fnp.zeros(0), np.zeros((2, 1), np.int32), numbers, (1,))
    assert fx.lax.gather(fnp.zeros(0), np.zeros((0, 1), np.int32), numbers, (1,)).shape == (0,)
    with pytest.raises(IndexError, match="has no elements to take"):
        fnp.take(fnp.zeros((0, 4)), TWO_INDICES, 0)
