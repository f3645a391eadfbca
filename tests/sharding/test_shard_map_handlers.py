"""Handlers applied to `shard_map` programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.sharding.both import TRACEFX
from tracefx import P, handlers, lax
from tracefx.control.shard_map import ShardMapPrimitive
from tracefx.core import from_numpy
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import as_array
from tracefx.testing.tolerances import ELEMENTARY, ulps_of

X: Final = np.arange(32, dtype=np.float32).reshape(8, 4) / 10


def total(x: Any) -> Any:
    return lax.psum(fnp.sin(x) * 2, "x")


def sines(x: Any) -> Any:
    return (fnp.sin(x) * 2).reshape(4, 2, 4).sum(0)


shard_mapped: Final = TRACEFX.shard_map(total, P("x"), P())
"""Computes the same as `sines`, on 4 x 2 devices."""

# ------------------------------------------------------------------ emulation

Case: TypeAlias = tuple[Callable[[Any], Any], Any, Any]
CASES: Final[dict[str, Case]] = {
    "rows": (lambda x: x * (1 + lax.axis_index("x")), P("x"), P("x")),
    "both axes": (lambda x: x * (1 + lax.axis_index(("x", "y"))), P("x", "y"), P("x", "y")),
    "both along one": (lambda x: x + lax.axis_index(("y", "x")), P(("x", "y")), P(("x", "y"))),
    "the other way round": (lambda x: x + lax.axis_index(("x", "y")), P(("y", "x")), P(None, ("y", "x"))),
    "exchanged": (lambda x: lax.all_to_all(x, "x", 1, 0, tiled=True), P("x"), P(None, "x")),
    "sums": (lambda x: (lax.psum(x, "x"), lax.psum(x, ("x", "y")), 1.0), P("x", "y"), (P(None, "y"), P(), P())),
    "gathered": (lambda x: lax.all_gather(x, "y", axis=1, tiled=True), P("x", "y"), P("x")),
    "nothing cut": (lambda x: x + 1, P(), P()),
    "with an array": (lambda x: x * fnp.arange(4.0), P("x"), P("x")),
}


@pytest.mark.parametrize("name", CASES)
def test_emulation_matches_shard_map(name: str) -> None:
    f, in_specs, out_specs = CASES[name]
    mapped = TRACEFX.shard_map(f, in_specs, out_specs)
    program = fx.make_jaxpr(mapped)(X)
    ((prim, inputs),) = [
        (eqn.prim, eqn.inputs) for eqn in program.jaxpr.eqns if isinstance(eqn.prim, ShardMapPrimitive)
    ]
    args = [*program.consts, from_numpy(X)]
    assert len(inputs) == len(args)
    whole, consts = prim.emulated([a.aval for a in args])
    assert not whole.effects
    got = [as_array(out) for out in eval_jaxpr(whole, (), [*consts, *args])]
    assert_near(got, fx.tree.leaves(mapped(X)))


# ------------------------------------------------------------------ handlers


def test_count_is_per_device() -> None:
    assert handlers.count(shard_mapped)(X).by_operation["sin"].transcendentals == 8


def test_jet() -> None:
    series: Any = [X * 0 + 1, X]
    got, want = [handlers.jet(f, (X,), (series,)) for f in (shard_mapped, sines)]
    assert_near(got, want)


def test_bounds() -> None:
    got, want = [handlers.bounds(f)(handlers.around(X, 0.1)) for f in (shard_mapped, sines)]
    assert_near(got.lo, want.lo)
    assert_near(got.hi, want.hi)
    assert np.all(got.lo <= sines(X))
    assert np.all(sines(X) <= got.hi)


def test_sparsity() -> None:
    assert np.array_equal(
        handlers.jacobian_sparsity(shard_mapped)(X).todense(), handlers.jacobian_sparsity(sines)(X).todense()
    )
    got, want = [handlers.sparse_jacobian(f)(X).todense() for f in (shard_mapped, sines)]
    assert_near(got, want, ELEMENTARY)


def test_laplacian() -> None:
    got, want = [handlers.laplacian(lambda x, f=f: fnp.sum(f(x)))(X) for f in (shard_mapped, sines)]
    assert_near(got, want)


def test_checkify() -> None:
    def logarithms(x: Any) -> Any:
        handlers.check(fnp.all(x < 3), "too large: {x}", x=x.max())
        return fnp.log(x)

    f = TRACEFX.shard_map(logarithms, P("x"), P("x"))
    checked = handlers.checkify(f, errors=handlers.all_checks)
    error, out = checked(X[:, :2] + 0.05)
    assert error.get() is None
    assert_near(out, np.log(X[:, :2] + np.float32(0.05)), ulps_of("log"))
    assert "log gave NaN" in str(checked(X - 1)[0].get())
    assert "too large" in str(checked(X + 1)[0].get())


def test_explain() -> None:
    explanation = handlers.explain(shard_mapped)(X)
    assert_near(explanation.out, sines(X))
    assert "shard_map" in str(explanation)
    assert "sin" in str(explanation)


def test_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert_near(handlers.log(shard_mapped)(X), sines(X))
    fx.effects_barrier()
    output = capsys.readouterr()
    assert "sin f32[4,2,4]" in output.out + output.err


def test_sown_values_of_all_devices_are_concatenated() -> None:
    f = TRACEFX.shard_map(lambda x: lax.psum(handlers.sow(fnp.sin(x), name="sine"), "x"), P("x"), P())
    out, sown = handlers.reap(f)(X)
    assert_near(out, sines(X) / 2)
    # The rows are replicated along y.
    assert_near(sown["sine"].reshape(4, 2, 2, 4)[:, 0].reshape(8, 4), np.sin(X), ulps_of("sin"))


def test_autocast() -> None:
    f = TRACEFX.shard_map(lambda x: lax.psum(x @ x.T, "y"), P("x", "y"), P("x"))
    got = handlers.autocast(f, handlers.bfloat16)(X)
    assert_near(fnp.asarray(got).astype(fnp.bfloat16), f(X))


def test_key_reuse() -> None:
    def noisy(x: Any) -> Any:
        key = fx.random.key(0)
        return x + fx.random.normal(key, x.shape) + fx.random.normal(key, x.shape)

    with pytest.raises(handlers.KeyReuseError):
        handlers.check_key_reuse(TRACEFX.shard_map(noisy, P("x"), P("x")))(X)


@pytest.mark.parametrize(
    "transformation", [fx.grad, fx.jit, fx.vmap], ids=lambda transformation: transformation.__name__
)
def test_handlers_under_transformations(transformation: Callable[..., Any]) -> None:
    def f(x: Any) -> Any:
        return handlers.checkify(lambda x: fnp.sum(shard_mapped(x)), errors=handlers.nan_checks)(x)[1]

    args = np.stack([X, X + 1]) if transformation is fx.vmap else X
    assert_near(transformation(f)(args), transformation(lambda x: fnp.sum(sines(x)))(args))
