"""opt_einsum contracts tracefx arrays with the functions of `tracefx.numpy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import opt_einsum
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near

A, B, C = (np.random.default_rng(0).normal(size=size).astype(np.float32) for size in ((2, 3), (3, 4), (4, 2)))

CONTRACTIONS: tuple[Callable[..., Any], ...] = (
    lambda a, b, c, **options: opt_einsum.contract("ij,jk,kl->il", a, b, c, **options),
    lambda a, b, c, **options: opt_einsum.contract("ij,jk,ki->", a, b, c, **options),
    lambda a, b, c, **options: opt_einsum.contract("...j,jk,k...->...", a, b, c, **options),
    lambda a, b, c, **options: opt_einsum.contract(a, [0, 1], b, [1, 2], c, [2, 3], [3, 0], **options),
    lambda a, b, c, **options: opt_einsum.contract("ij,ij,kl->k", a, a, c, optimize="dp", **options),
    lambda a, b, c, **options: opt_einsum.contract_expression("ij,jk,kl->il", (2, 3), (3, 4), (4, 2))(
        a, b, c, **options
    ),
)


@pytest.mark.parametrize("contraction", CONTRACTIONS, ids=range(len(CONTRACTIONS)))
def test_contractions(contraction: Callable[..., Any]) -> None:
    def contract(a: Any, b: Any, c: Any) -> Any:
        return contraction(a, b, c)

    x = tuple(fnp.asarray(operand) for operand in (A, B, C))
    got, wanted = contract(*x), contraction(A, B, C)
    assert isinstance(got, fx.Array)
    assert_near(got, wanted)
    assert_near(fx.jit(contract)(*x), wanted)
    batch = fx.vmap(contract, (0, None, None))(fnp.stack([x[0], 2 * x[0]]), x[1], x[2])
    assert_near(batch[0], wanted)
    # Each contraction is linear in c, so the inner product of c and the gradient equals the result's sum.
    gradient = fx.grad(lambda c: contract(x[0], x[1], c).sum())(x[2])
    assert_near((gradient * x[2]).sum(), np.sum(wanted))


def test_contract_path_under_jit() -> None:
    paths: list[object] = []

    @fx.jit
    def f(a: Any) -> Any:
        paths.append(opt_einsum.contract_path("ij,jk,kl->il", a, B, C)[0])
        return a

    f(A)
    assert paths == [opt_einsum.contract_path("ij,jk,kl->il", A, B, C)[0]]
