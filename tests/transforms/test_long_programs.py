"""Programs of many equations: no walk over a program is recursive in its length."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracefx as fx
from tracefx import lax
from tracefx.core.check import check_jaxpr
from tracefx.core.jaxpr import eval_jaxpr
from tracefx.core.passes import cse, dce
from tracefx.core.values import as_value, to_numpy

LENGTH = 20_000
X = np.float32(0.5)


def orbit(x: Any) -> Any:
    """Half of the equations multiply, half add."""
    for _ in range(LENGTH // 2):
        x = lax.add(lax.mul(x, 0.5), 0.25)
    return x


def test_a_long_program_is_traced_checked_printed_reduced_and_evaluated() -> None:
    closed = fx.make_jaxpr(orbit)(X)
    assert len(closed.eqns) == LENGTH
    check_jaxpr(closed.jaxpr)
    assert dce(closed.jaxpr) is closed.jaxpr
    assert len(cse(closed.jaxpr).eqns) == LENGTH
    assert str(closed).count(" = mul ") == LENGTH // 2
    assert hash(closed) == hash(fx.make_jaxpr(orbit)(X))
    (out,) = eval_jaxpr(closed.jaxpr, closed.consts, [as_value(X)])
    np.testing.assert_array_equal(to_numpy(out), np.float32(0.5))  # the fixed point, where it starts


def test_a_long_function_is_differentiated_batched_and_lowered() -> None:
    traced = fx.jit(orbit).trace(X)
    np.testing.assert_array_equal(np.asarray(fx.vmap(orbit)(np.full(3, X))), np.full(3, X))
    _, tangent = fx.jvp(orbit, (X,), (X,))
    assert float(tangent) == 0.0  # halved ten thousand times
    gradient = fx.make_jaxpr(fx.grad(orbit))(X)
    check_jaxpr(gradient.jaxpr)
    assert traced.lower().as_text().count("stablehlo.multiply") == LENGTH // 2
