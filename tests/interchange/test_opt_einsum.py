"""opt_einsum contracts arrays of ours with the functions of `tracefx.numpy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import opt_einsum
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near

OURS = "tracefx.numpy"
A, B, C = (np.random.default_rng(0).normal(size=size).astype(np.float32) for size in ((2, 3), (3, 4), (4, 2)))

CONTRACTIONS: tuple[Callable[..., Any], ...] = (
    lambda a, b, c, **how: opt_einsum.contract("ij,jk,kl->il", a, b, c, **how),
    lambda a, b, c, **how: opt_einsum.contract("ij,jk,ki->", a, b, c, **how),
    lambda a, b, c, **how: opt_einsum.contract("...j,jk,k...->...", a, b, c, **how),
    lambda a, b, c, **how: opt_einsum.contract(a, [0, 1], b, [1, 2], c, [2, 3], [3, 0], **how),
    lambda a, b, c, **how: opt_einsum.contract("ij,ij,kl->k", a, a, c, optimize="dp", **how),
    lambda a, b, c, **how: opt_einsum.contract_expression("ij,jk,kl->il", (2, 3), (3, 4), (4, 2))(a, b, c, **how),
)


@pytest.mark.parametrize("contraction", CONTRACTIONS, ids=range(len(CONTRACTIONS)))
def test_contractions(contraction: Callable[..., Any]) -> None:
    def ours(a: Any, b: Any, c: Any) -> Any:
        return contraction(a, b, c, backend=OURS)

    x = tuple(fnp.asarray(operand) for operand in (A, B, C))
    found, wanted = ours(*x), contraction(A, B, C)
    assert isinstance(found, fx.Array)
    assert_near(found, wanted)
    assert_near(fx.jit(ours)(*x), wanted)
    batch = fx.vmap(ours, (0, None, None))(fnp.stack([x[0], 2 * x[0]]), x[1], x[2])
    assert_near(batch[0], wanted)
    # Each contraction is linear in c, whose product with the gradient is its sum.
    gradient = fx.grad(lambda c: ours(x[0], x[1], c).sum())(x[2])
    assert_near((gradient * x[2]).sum(), np.sum(wanted))


def test_without_a_name_of_a_library_it_is_numpy_that_contracts() -> None:
    assert type(opt_einsum.contract("ij,jk", fnp.asarray(A), fnp.asarray(B))) is np.ndarray
    with pytest.raises(TypeError, match="Use the functions of tracefx.numpy"):
        fx.jit(lambda a: opt_einsum.contract("ij,jk", a, B))(A)


def test_a_path_is_found_while_tracing() -> None:
    found: list[object] = []

    @fx.jit
    def f(a: Any) -> Any:
        found.append(opt_einsum.contract_path("ij,jk,kl->il", a, B, C)[0])
        return a

    f(A)
    assert found == [opt_einsum.contract_path("ij,jk,kl->il", A, B, C)[0]]
