"""Handlers around programs that devices run apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.sharding.both import OURS
from tracefx import P, handlers, lax
from tracefx.control.shard_map import ShardMapPrimitive
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import as_array
from tracefx.core.values import from_numpy
from tracefx.testing.tolerances import ELEMENTARY, ULPS

X: Final = np.arange(32, dtype=np.float32).reshape(8, 4) / 10


def total(x: Any) -> Any:
    return lax.psum(fnp.sin(x) * 2, "x")


def sines(x: Any) -> Any:
    return (fnp.sin(x) * 2).reshape(4, 2, 4).sum(0)


apart: Final = OURS.over(total, P("x"), P())
"""What `sines` computes, on 4 x 2 devices."""

# ------------------------------------------------------------------ all devices' programs at once

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
def test_all_at_once(name: str) -> None:
    f, in_specs, out_specs = CASES[name]
    mapped = OURS.over(f, in_specs, out_specs)
    program = fx.make_jaxpr(mapped)(X)
    ((prim, inputs),) = [
        (eqn.prim, eqn.inputs) for eqn in program.jaxpr.eqns if isinstance(eqn.prim, ShardMapPrimitive)
    ]
    args = [*program.consts, from_numpy(X)]
    assert len(inputs) == len(args)
    whole, consts = prim.emulated([a.aval for a in args])
    assert not whole.effects
    got = [as_array(out) for out in eval_jaxpr(whole, (), [*consts, *args])]
    for out, want in zip(got, fx.tree.leaves(mapped(X)), strict=True):
        assert_near(out, want)


# ------------------------------------------------------------------ handlers


def test_count_is_of_one_device() -> None:
    assert handlers.count(apart)(X).by_operation["sin"].transcendentals == 8


def test_taylor() -> None:
    series: Any = [X * 0 + 1, X]
    got, want = [handlers.jet(f, (X,), (series,)) for f in (apart, sines)]
    for a, b in zip(fx.tree.leaves(got), fx.tree.leaves(want), strict=True):
        assert_near(a, b)


def test_bounds() -> None:
    got, want = [handlers.bounds(f)(handlers.around(X, 0.1)) for f in (apart, sines)]
    assert_near(got.lo, want.lo)
    assert_near(got.hi, want.hi)
    assert np.all(got.lo <= sines(X))
    assert np.all(sines(X) <= got.hi)


def test_sparsity() -> None:
    assert np.array_equal(
        handlers.jacobian_sparsity(apart)(X).todense(), handlers.jacobian_sparsity(sines)(X).todense()
    )
    got, want = [handlers.sparse_jacobian(f)(X).todense() for f in (apart, sines)]
    assert_near(got, want, ELEMENTARY)


def test_laplacian() -> None:
    got, want = [handlers.laplacian(lambda x, f=f: fnp.sum(f(x)))(X) for f in (apart, sines)]
    assert_near(got, want)


def test_checkify() -> None:
    def logarithms(x: Any) -> Any:
        handlers.check(fnp.all(x < 3), "too large: {x}", x=x.max())
        return fnp.log(x)

    f = OURS.over(logarithms, P("x"), P("x"))
    checked = handlers.checkify(f, errors=handlers.all_checks)
    error, out = checked(X[:, :2] + 0.05)
    assert error.get() is None
    assert_near(out, np.log(X[:, :2] + np.float32(0.05)), ULPS["log"])
    assert "log gave NaN" in str(checked(X - 1)[0].get())
    assert "too large" in str(checked(X + 1)[0].get())


def test_explain() -> None:
    explanation = handlers.explain(apart)(X)
    assert_near(explanation.out, sines(X))
    assert "shard_map" in str(explanation)
    assert "sin" in str(explanation)


def test_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert_near(handlers.log(apart)(X), sines(X))
    fx.effects_barrier()
    shown = capsys.readouterr()
    assert "sin f32[4,2,4]" in shown.out + shown.err


def test_what_is_sown_on_every_device_is_one_behind_the_other() -> None:
    f = OURS.over(lambda x: lax.psum(handlers.sow(fnp.sin(x), name="sine"), "x"), P("x"), P())
    out, found = handlers.reap(f)(X)
    assert_near(out, sines(X) / 2)
    # The devices along y have the same rows.
    assert_near(found["sine"].reshape(4, 2, 2, 4)[:, 0].reshape(8, 4), np.sin(X), ULPS["sin"])


def test_autocast() -> None:
    f = OURS.over(lambda x: lax.psum(x @ x.T, "y"), P("x", "y"), P("x"))
    got = handlers.autocast(f, handlers.bfloat16)(X)
    assert_near(fnp.asarray(got).astype(fnp.bfloat16), f(X))


def test_key_reuse() -> None:
    def noisy(x: Any) -> Any:
        key = fx.random.key(0)
        return x + fx.random.normal(key, x.shape) + fx.random.normal(key, x.shape)

    with pytest.raises(handlers.KeyReuseError):
        handlers.check_key_reuse(OURS.over(noisy, P("x"), P("x")))(X)


@pytest.mark.parametrize("way", [fx.grad, fx.jit, fx.vmap], ids=lambda way: way.__name__)
def test_handlers_stay_under_transformations(way: Callable[..., Any]) -> None:
    def f(x: Any) -> Any:
        return handlers.checkify(lambda x: fnp.sum(apart(x)), errors=handlers.nan_checks)(x)[1]

    def plain(x: Any) -> Any:
        return fnp.sum(sines(x))

    args = np.stack([X, X + 1]) if way is fx.vmap else X
    assert_near(way(f)(args), way(plain)(args))
