"""Kernels and host callbacks in compiled programs agree with adjacent operations on memory layouts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx import lax
from tracefx.testing.tolerances import PROGRAM

X: Final = np.array(
    [[4.0, 1.0, -2.0], [0.5, 3.0, 1.5], [2.5, -1.0, 5.0]], np.float32
)  # not symmetric, so that a wrong layout shows
LIKE_X: Final = fx.ShapeDtypeStruct(X.shape, X.dtype)


def svd(x: Any) -> Any:
    u, s, vh = lax.linalg.svd(x)
    return (u * s) @ vh


STAGES: Final[dict[str, Callable[[Any], Any]]] = {
    "pure_callback": lambda x: fx.pure_callback(lambda z: np.asarray(z) * 1, LIKE_X, x),
    "ordered io_callback": lambda x: fx.io_callback(lambda z: np.asarray(z) * 1, LIKE_X, x, ordered=True),
    "callback that transposes": lambda x: fx.pure_callback(lambda z: np.asarray(z).T, LIKE_X, x),
    "callback of a batch": lambda x: fx.vmap(
        lambda row: fx.pure_callback(
            lambda z: np.asarray(z) * 1, fx.ShapeDtypeStruct((3,), X.dtype), row, vmap_method="expand_dims"
        ),
        in_axes=1,
        out_axes=1,
    )(x),
    "inv": fnp.linalg.inv,
    "solve": lambda x: fnp.linalg.solve(x, X),
    "qr": lambda x: lax.linalg.qr(x)[1] + 2 * fnp.eye(3),
    "lu": lambda x: lax.linalg.lu(x)[0],
    "cholesky": lambda x: lax.linalg.cholesky(x @ x.T + fnp.eye(3)),
    "triangular_solve": lambda x: lax.linalg.triangular_solve(x + 3 * fnp.eye(3), X, lower=True, left_side=True),
    "tridiagonal_solve": lambda x: lax.linalg.tridiagonal_solve(x[0], fnp.full(3, 9.0), x[1], x),
    "eigh": lambda x: lax.linalg.eigh(x + x.T)[0] * X,
    "svd": svd,
    "transpose": lambda x: x.T,
}


@pytest.mark.parametrize("first", STAGES)
def test_compiled_chain_of_two_stages_agrees_with_eager_stages(first: str) -> None:
    f = STAGES[first]

    def chains(x: Any) -> Any:
        """Returns the result of the first stage, and the result of every other stage applied to it."""
        y = f(x)
        return y, {name: stage(y) for name, stage in STAGES.items()}

    (got, after), (want, wanted) = fx.jit(chains)(X), chains(X)
    assert_near(got, want, PROGRAM, first)
    for name, value in after.items():
        assert_near(value, wanted[name], PROGRAM, f"{first}, then {name}")


@pytest.mark.parametrize(
    ("first", "then"), [*product(["pure_callback", "ordered io_callback"], ["inv", "qr", "solve"])]
)
def test_matrix_returned_by_a_callback_is_not_transposed(first: str, then: str) -> None:
    y, z = fx.jit(lambda x: ((y := STAGES[first](x)), STAGES[then](y)))(X)
    np.testing.assert_array_equal(y, X)
    assert_near(z, STAGES[then](X), PROGRAM)
    assert_near(fx.jit(lambda x: STAGES[then](STAGES[first](x)))(X), STAGES[then](X), PROGRAM)
