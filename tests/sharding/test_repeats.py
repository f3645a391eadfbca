"""Repeated blocks in programs on several devices: XLA partitions and compiles each block on its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tests.compiling import share_all_repeats
from tests.repeated_blocks.programs import deep_network
from tracefx.sharding import AxisType
from tracefx.testing.tolerances import SUMMED

pytestmark = pytest.mark.usefixtures("default_repeats")
lax: Final = fx.lax
P: Final = fx.P
X: Final = np.linspace(-1.0, 1.0, 64, dtype=np.float32).reshape(8, 8)
WS: Final = 0.3 * np.stack([X] * 4)


@pytest.fixture(name="mesh")
def two_by_two() -> fx.Mesh:
    return fx.make_mesh((2, 2), ("x", "y"), (AxisType.Auto,) * 2, devices=fx.devices()[:4])


@pytest.fixture(name="everywhere")
def share_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    share_all_repeats(monkeypatch)


def check(f: Callable[..., Any], *args: Any, count: int = 4, **options: Any) -> str:
    """Compares a program that has a run of `count` equal blocks to that without, and returns the compiled text."""
    shared, inline = [fx.jit(f, repeats=mode, **options).lower(*args) for mode in ("share", "inline")]
    assert count in [run.count for run in shared.repeats.shared]
    assert shared.as_text().count("call @shared_block") >= count
    assert not inline.repeats.shared
    compiled, plain = shared.compile(), inline.compile()
    got, want = compiled(*args), plain(*args)
    assert_same(got, want, SUMMED)
    for x, y in zip(fx.tree.leaves(got), fx.tree.leaves(want), strict=True):
        assert x.sharding.is_equivalent_to(y.sharding, x.ndim)
    return compiled.as_text()


def test_gradient_of_a_sharded_batch(mesh: fx.Mesh) -> None:
    loss, (parameters, x) = deep_network(24, 8)
    batch = np.concatenate([x, x, x, x])
    whole, split = fx.NamedSharding(mesh, P()), fx.NamedSharding(mesh, P("x"))
    text = check(fx.value_and_grad(loss), parameters, batch, count=7, in_shardings=(whole, split))
    assert text.count(" call(") == 18


def tensor_parallel(x: Any, ws: Any) -> Any:
    for i in range(4):
        with fx.named_scope(f"layer_{i}"):
            x = fnp.tanh(lax.psum(x @ ws[i], "y")) + x * lax.axis_index("x")
    return x


@pytest.mark.parametrize("transform", [lambda f: f, lambda f: fx.grad(lambda x, ws: fnp.sum(f(x, ws)))])
def test_collectives_in_shard_map(mesh: fx.Mesh, everywhere: None, transform: Callable[..., Any]) -> None:
    f = fx.shard_map(tensor_parallel, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))
    text = check(transform(f), X, WS)
    for i in range(4):
        assert f"layer_{i}/dot_general" in text


def test_collectives_that_do_not_depend_on_each_other(mesh: fx.Mesh, everywhere: None) -> None:
    def f(x: Any) -> Any:
        return fnp.stack([lax.psum(fnp.sin(x * (i + 1.0)), "y") + lax.pmean(x * i, "x") for i in range(6)])

    mapped = fx.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P(None, "x"), check_vma=False)
    check(mapped, X, count=6)


def test_sharding_constraints(mesh: fx.Mesh, everywhere: None) -> None:
    sharding = fx.NamedSharding(mesh, P("x", "y"))

    def f(x: Any, ws: Any) -> Any:
        for i in range(4):
            x = lax.with_sharding_constraint(fnp.tanh(x @ ws[i]), sharding) + 1.0
        return x

    check(f, X, WS)


def test_shard_maps_in_blocks(mesh: fx.Mesh, everywhere: None) -> None:
    summed = fx.shard_map(
        lambda x: fnp.tanh(lax.psum(fnp.sin(x), "y")), mesh=mesh, in_specs=P("x", "y"), out_specs=P("x")
    )

    def f(x: Any) -> Any:
        for _ in range(4):
            y = summed(x)
            x = fnp.concatenate([y, y], 1) + 1.0
        return x

    check(f, X, count=3, in_shardings=fx.NamedSharding(mesh, P("x")))


@pytest.mark.parametrize("in_body", [False, True])
def test_random_numbers_and_callbacks(mesh: fx.Mesh, everywhere: None, in_body: bool) -> None:
    key = fx.random.key(0)

    def doubled(x: Any) -> Any:
        return 2 * x

    def f(x: Any) -> Any:
        for i in range(3):
            x = x * fx.random.bernoulli(fx.random.fold_in(key, i), 0.5, x.shape)
            x = fx.pure_callback(doubled, fx.ShapeDtypeStruct(x.shape, x.dtype), x) + 1.0
        return x

    g = fx.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False) if in_body else f
    check(g, X, count=3, in_shardings=fx.NamedSharding(mesh, P("x")))


def test_another_device(everywhere: None) -> None:
    device = fx.sharding.SingleDeviceSharding(fx.devices()[1])

    def f(x: Any, ws: Any) -> Any:
        for w in WS:
            with fx.named_scope("layer"):
                x = fnp.tanh(x @ w)
        return x

    check(f, X, WS, in_shardings=device)


def test_nested_repeats_are_reported_once(mesh: fx.Mesh, everywhere: None) -> None:
    def f(x: Any) -> Any:
        for _ in range(4):
            for _ in range(4):
                x = fnp.sin(fnp.cos(x) * 1.5) + x
            x = fnp.tanh(fnp.cumsum(x, 0))
        return x

    sharding = fx.NamedSharding(mesh, P(None, "x"))
    lowered = fx.jit(f, in_shardings=sharding).lower(X)
    assert [run.count for run in lowered.repeats.shared] == [4, 4]
    assert lowered.as_text().count("call @shared_block") == 4 + 4 * 4
    assert_same(lowered.compile()(X), f(fnp.asarray(X)), SUMMED)


def test_the_mode_is_that_of_the_function(mesh: fx.Mesh, everywhere: None, tmp_path: Path) -> None:
    """Programs are compiled for the shardings of their arguments when they are called, and cached by mode."""
    x = fx.device_put(X, fx.NamedSharding(mesh, P("x")))

    def f(x: Any) -> Any:
        for _ in range(4):
            x = fnp.sin(x) + lax.sort(x)
        return x

    with fx.compilation_cache(tmp_path):
        for mode in ("share", "inline", "share"):
            compiled = fx.jit(f, repeats=mode)
            assert_same(compiled(x), f(x), SUMMED)
            assert (" call(" in compiled.lower(x).compile().as_text()) == (mode == "share")
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) >= 2
