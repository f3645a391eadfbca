"""Jaxprs of real functions: text round trip, type checks, passes, evaluation, pickling."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx import lax, programs

X = fnp.arange(6.0).reshape(2, 3) / 7


def layers(x: fx.Array) -> fx.Array:
    @fx.jit
    def inner(y: fx.Array) -> fx.Array:
        return fnp.tanh(y @ y.T) * 2.0

    return fx.jit(lambda z: inner(z) + inner(z * 0.5))(x)


FUNCTIONS: dict[str, Callable[[fx.Array], object]] = {
    "arithmetic": lambda x: (x + 1, x - x, x * 2.5, x / 3, x % 2, -x, x**2, x**-1.5, abs(x), fnp.sign(x), x // 0.3),
    "transcendental": lambda x: [fnp.exp(x), fnp.log1p(x), fnp.sin(x), fnp.tanh(x), fnp.sqrt(x), lax.rsqrt(x + 1)],
    "comparison": lambda x: {"a": x > 0.5, "b": fnp.where(x >= 0.2, x, -fnp.inf), "c": ~(x == x) & True},
    "conversion": lambda x: (x.astype("int8"), x.astype("bfloat16").astype("complex64"), x.astype(bool)),
    "reduction": lambda x: (x.sum(), x.max(0), x.min(1), x.prod(), x.argmax(1), fnp.argmin(x), fnp.any(x > 1)),
    "shape": lambda x: (x.T, x.reshape(3, 2), x[None], fnp.squeeze(x[:1]), fnp.concatenate([x, x], 1), fnp.flip(x, 0)),
    "cutting": lambda x: (x[1:, ::2], fnp.pad(x, 1), fnp.stack([x, x]), lax.iota("int32", 4)),
    "contraction": lambda x: (x @ x.T, fnp.dot(x.T, x), fnp.tensordot(x, x, 2)),
    "indexing": lambda x: (x[0], x[-1, 1], x[fnp.array([0, 1, 1])], x[:, [2, 0]]),
    "constants": lambda x: (x + X, fnp.full((2,), -0.0), fnp.nan * x, x * 1e30),
    "calls": layers,
    "gradient of calls": fx.grad(lambda x: fnp.sum(layers(x) ** 2)),
    "batched": fx.vmap(lambda row: lax.psum(row, "i") + lax.axis_index("i"), axis_name="i"),
    "gradient of indexing": fx.grad(lambda x: fnp.sum(x[fnp.array([0, 1, 1])] ** 3)),
    "hessian": fx.hessian(lambda x: fnp.sum(fnp.sin(x) * x)),
}


@pytest.fixture(params=FUNCTIONS)
def closed(request: pytest.FixtureRequest) -> fx.ClosedJaxpr:
    result: fx.ClosedJaxpr = fx.make_jaxpr(FUNCTIONS[request.param])(X)
    return result


def test_text_round_trip(closed: fx.ClosedJaxpr) -> None:
    parsed = fx.parse_jaxpr(str(closed.jaxpr))
    assert parsed == closed.jaxpr
    assert hash(parsed) == hash(closed.jaxpr)
    assert programs.executable_key(parsed) == programs.executable_key(closed.jaxpr) is not None


def test_programs_type_check(closed: fx.ClosedJaxpr) -> None:
    fx.check_jaxpr(closed)


@pytest.mark.parametrize("simplify", [programs.dce, programs.cse], ids=["dce", "cse"])
def test_passes_preserve_types_and_results(closed: fx.ClosedJaxpr, simplify: Callable[[fx.Jaxpr], fx.Jaxpr]) -> None:
    simpler = fx.ClosedJaxpr(simplify(closed.jaxpr), closed.consts)
    fx.check_jaxpr(simpler)
    assert simpler.out_avals == closed.out_avals
    assert len(simpler.eqns) <= len(closed.eqns)
    for got, want in zip(fx.jaxpr_as_fun(simpler)(X), fx.jaxpr_as_fun(closed)(X), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_evaluated_retraced_and_compiled_results_agree(closed: fx.ClosedJaxpr) -> None:
    run = fx.jaxpr_as_fun(closed)
    again = fx.make_jaxpr(run)(X)
    assert again.jaxpr.eqns == closed.jaxpr.eqns
    eager, compiled = run(X), fx.jit(run)(X)
    assert [o.aval for o in eager] == [o.aval for o in compiled]
    for got, want in zip(compiled, eager, strict=True):
        assert_near(got, want)


def test_programs_pickle(closed: fx.ClosedJaxpr) -> None:
    again = pickle.loads(pickle.dumps(closed))
    assert again == closed
    assert str(again) == str(closed)
