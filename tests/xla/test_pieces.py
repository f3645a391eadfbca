"""Programs whose repeated blocks are executables of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tests.repeated_blocks.programs import deep_network
from tracefx.core.backend import BACKEND
from tracefx.errors import DeletedArrayError, DonationError
from tracefx.testing.tolerances import SUMMED
from tracefx.xla.interpretation import PiecewiseProgram
from tracefx.xla.runtime import executables

X: Final = np.linspace(-1.0, 1.0, 6, dtype=np.float32)
DEPTH: Final = 200


@pytest.fixture(name="compiled")
def count_compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the programs that are compiled."""
    names: list[str] = []
    compile_module = executables.compile_module

    def counted(*args: Any, name: str, **options: Any) -> Any:
        names.append(name)
        return compile_module(*args, name=name, **options)

    monkeypatch.setattr(executables, "compile_module", counted)
    return names


def deep(x: Any) -> Any:
    for _ in range(DEPTH):
        x = fnp.sin(x) * 1.5 + fnp.cos(x)
    return x


def gradient(layers: int, width: int, factor: float = 1.0) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A gradient and its arguments. The executables are cached by width, so each test has its own."""
    loss, args = deep_network(layers, width)
    return fx.value_and_grad(lambda *args: loss(*args) * factor), args


def test_results_are_those_of_one_executable() -> None:
    f, args = gradient(24, 6)
    assert_same(fx.jit(f, repeats="pieces")(*args), fx.jit(f, repeats="share")(*args), SUMMED)


def test_more_layers_compile_nothing(compiled: list[str]) -> None:
    f, args = gradient(24, 5)
    fx.jit(f, repeats="pieces")(*args)
    assert len(compiled) == 5
    f, args = gradient(48, 5)
    got = fx.jit(f, repeats="pieces")(*args)
    assert len(compiled) == 5
    assert_same(got, fx.jit(f, repeats="share")(*args), SUMMED)


def test_another_loss_compiles_one_piece(compiled: list[str]) -> None:
    for factor in (1.0, 2.0):
        f, args = gradient(24, 7, factor)
        compiled.clear()
        fx.jit(f, repeats="pieces")(*args)
    assert len(compiled) == 1


def test_pieces_are_stored_on_disk(compiled: list[str], tmp_path: Path) -> None:
    with fx.compilation_cache(tmp_path):
        for layers in (24, 48):
            f, args = gradient(layers, 4)
            compiled.clear()
            BACKEND.value.executables.clear()  # type: ignore[attr-defined]  # of the backend of this package
            fx.jit(f, repeats="pieces")(*args)
    assert compiled == []


def test_outputs_that_are_not_computed() -> None:
    def f(x: Any, y: Any, unused: Any) -> Any:
        return deep(x), y, 3.0, x

    x, y, z = map(fnp.asarray, (X, X + 1, X + 2))
    got = fx.jit(f, repeats="pieces")(x, y, z)
    assert_same(got, fx.jit(f, repeats="share")(x, y, z), SUMMED)
    assert got[1] is not y


def test_donation() -> None:
    f = fx.jit(deep, donate_argnums=0, repeats="pieces")
    x, want = fx.device_put(X), fx.jit(deep)(X)
    assert_same(f(x), want, SUMMED)
    assert x.is_deleted()
    with pytest.raises(DeletedArrayError):
        f(x)
    twice = fx.jit(lambda x, y: deep(x + y), donate_argnums=0, repeats="pieces")
    y = fnp.asarray(X)
    with pytest.raises(DonationError):
        twice(y, y)


def test_effects_happen_once_and_in_order() -> None:
    seen: list[str] = []

    def f(x: Any) -> Any:
        fx.debug.callback(lambda _: seen.append("before"), x[0], ordered=True)
        x = deep(x)
        fx.debug.callback(lambda _: seen.append("after"), x[0], ordered=True)
        return x

    assert_same(fx.jit(f, repeats="pieces")(X), fx.jit(deep)(X), SUMMED)
    fx.effects_barrier()
    assert seen == ["before", "after"]


def test_errors_of_a_piece_are_raised() -> None:
    calls: list[int] = []

    def fail(x: Any) -> Any:
        calls.append(1)
        raise OSError("no data")

    def f(x: Any) -> Any:
        return deep(fx.pure_callback(fail, fx.ShapeDtypeStruct(x.shape, x.dtype), x))

    with pytest.raises(OSError, match="no data"):
        fx.block_until_ready(fx.jit(f, repeats="pieces")(X))
    assert calls == [1]


def test_arguments_on_other_devices() -> None:
    f = fx.jit(deep, repeats="pieces")
    want = f(X)
    device = fx.devices()[1]
    moved = f(fx.device_put(X, device))
    assert moved.devices() == {device}
    assert_same(moved, want, SUMMED)
    mesh = fx.make_mesh((2,), ("x",), devices=fx.devices()[:2])
    assert_same(f(fx.device_put(X, fx.NamedSharding(mesh, fx.P("x")))), want, SUMMED)
    with fx.default_device(device):
        assert_same(f(X), want, SUMMED)


def test_transformations_and_calls_of_piecewise_functions() -> None:
    f = fx.jit(lambda x: fnp.sum(deep(x)), repeats="pieces")
    assert_same(fx.grad(f)(X), fx.grad(lambda x: fnp.sum(deep(x)))(X), SUMMED)
    assert_same(fx.jit(lambda x: f(x) * 2)(X), 2 * f(X), SUMMED)
    asynchronous = fx.jit(lambda x: fnp.sum(deep(x)), repeats="pieces", async_compile=True)
    assert_same(asynchronous(X), f(X), SUMMED)


def test_programs_without_repeats_and_the_setting() -> None:
    def runnable(f: Callable[..., Any]) -> object:
        jaxpr = fx.make_jaxpr(f)(X).jaxpr.closed()
        return BACKEND.value.compiled(jaxpr, "f", (), keep_unused=False)

    with fx.repeats("pieces"):
        assert isinstance(runnable(deep), PiecewiseProgram)
        assert not isinstance(runnable(fnp.sin), PiecewiseProgram)
        assert_same(fx.jit(deep)(X), fx.jit(deep, repeats="share")(X), SUMMED)
    lowered = fx.jit(deep, repeats="pieces").lower(X)
    assert lowered.repeats.shared
    assert_same(lowered.compile()(X), fx.jit(deep)(X), SUMMED)


def test_nested_repeats() -> None:
    def f(x: Any) -> Any:
        for _ in range(6):
            for _ in range(60):
                x = fnp.sin(fnp.cos(x) * 1.5) + x
            x = fnp.tanh(fnp.cumsum(x))
        return x

    assert_same(fx.jit(f, repeats="pieces")(X), fx.jit(f, repeats="share")(X), SUMMED)
