"""Repeated blocks in compiled programs: they are compiled once, and the results stay the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tests.compiling import metadata, share_all_repeats
from tests.errors import untyped
from tests.repeated_blocks.programs import deep_network, uneven_networks
from tests.subprocesses import output_of
from tracefx.handlers import checkify, float_checks
from tracefx.settings import REPEATS, parse_repeats
from tracefx.testing.tolerances import SUMMED
from tracefx.xla.runtime import executables, shared_functions

pytestmark = pytest.mark.usefixtures("default_repeats")
lax: Final = fx.lax
X: Final = np.linspace(-1.0, 1.0, 6, dtype=np.float32)


@pytest.fixture(name="everywhere")
def share_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    share_all_repeats(monkeypatch)


def network_gradient(layers: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    loss, args = deep_network(layers)
    return fx.value_and_grad(loss), args


def test_the_option_takes_effect() -> None:
    """If this fails for a new jaxlib, the number of the field in `DebugOptions` has changed."""
    assert executables.compiles_functions_once()


def test_large_programs_are_shared() -> None:
    f, args = network_gradient(24)
    shared, inline = fx.jit(f, repeats="share").lower(*args), fx.jit(f, repeats="inline").lower(*args)
    assert [run.count for run in shared.repeats.shared] == [7, 11]
    assert shared.as_text().count("call @shared_block") == 18
    assert len(shared.as_text()) < len(inline.as_text()) / 2
    assert "shared_block" not in inline.as_text()
    assert str(inline.repeats) == "repeated blocks are compiled each time: repeats='inline'"
    assert_same(shared.compile()(*args), inline.compile()(*args), SUMMED)
    assert_same(fx.jit(f, repeats="share")(*args), fx.jit(f)(*args), SUMMED)


def test_temporaries_take_no_more_memory() -> None:
    f, args = network_gradient(24)
    shared, inline = [fx.jit(f, repeats=mode).lower(*args).compile().memory_analysis() for mode in ("share", "inline")]
    assert shared.temp_bytes <= 1.1 * inline.temp_bytes


@pytest.mark.parametrize("name", uneven_networks(2))
def test_temporaries_of_uneven_networks(name: str) -> None:
    f, args = uneven_networks(24)[name]
    lowered = fx.jit(f, repeats="share").lower(*args)
    assert lowered.repeats.shared
    inline = fx.jit(f, repeats="inline").lower(*args).compile()
    assert lowered.compile().memory_analysis().temp_bytes <= 1.1 * inline.memory_analysis().temp_bytes


@pytest.mark.parametrize("steps", [4, 20])
def test_bodies_of_loops_are_shared_unless_that_takes_memory(steps: int) -> None:
    loss, (parameters, x) = deep_network(24)

    def f(parameters: Any, xs: Any) -> Any:
        return fnp.sum(lax.scan(lambda c, x: (c + loss(parameters, x + c), None), np.float32(0), xs)[0])

    args = parameters, np.stack([x] * steps)
    auto, inline = [fx.jit(fx.grad(f), repeats=mode).lower(*args) for mode in ("auto", "inline")]
    assert auto.compile().memory_analysis().temp_bytes <= 1.1 * inline.compile().memory_analysis().temp_bytes
    assert fx.jit(fx.grad(f), repeats="share").lower(*args).repeats.shared
    if steps == 20:
        assert auto.repeats.shared
    else:
        assert re.search(r"each of the 4 steps of the loop would store [\d,]+ bytes of slices", str(auto.repeats))


def test_the_report_names_count_and_line() -> None:
    f, args = network_gradient(24)
    text = str(fx.jit(f, repeats="share").lower(*args).repeats).splitlines()
    assert text[0].startswith("7 equal blocks of ")
    assert "programs.py:" in text[0]
    assert text[0].endswith(" equations fewer")


def test_setting_and_argument() -> None:
    f, args = network_gradient(24)
    assert REPEATS.value == "auto"
    assert fx.jit(f).lower(*args).repeats.shared
    assert fx.jit(f, repeats="inline").lower(*args).repeats.reason
    with fx.repeats("inline"):
        assert not fx.jit(f).lower(*args).repeats.shared
        assert fx.jit(f, repeats="share").lower(*args).repeats.shared
        assert fx.jit(f, repeats="share").trace(*args).lower().repeats.shared
    assert fx.Jit(repeats="inline") == fx.Jit(repeats="inline") != fx.Jit()
    with pytest.raises(ValueError, match="jit: repeats must be 'auto', 'share', 'pieces' or 'inline', got 'no'"):
        untyped(fx.jit)(f, repeats="no")
    with pytest.raises(ValueError, match="repeats must be 'auto', 'share', 'pieces' or 'inline', got True"):
        untyped(fx.repeats)(True)
    assert parse_repeats(" Inline ") == "inline"
    with pytest.raises(ValueError, match="allowed are auto, share, pieces, inline"):
        parse_repeats("off")


def test_environment_variable() -> None:
    code = "import tracefx as fx; from tracefx.settings import REPEATS; print(REPEATS.value)"
    assert output_of(code, TRACEFX_REPEATS="share").strip() == "share"


def test_an_option_without_effect_turns_sharing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "with_flatten_after_fusion", lambda options: options)
    executables.compiles_functions_once.cache_clear()
    try:
        f, args = network_gradient(24)
        lowered = fx.jit(f, repeats="share").lower(*args)
        assert "has no effect in jaxlib" in str(lowered.repeats)
        assert "shared_block" not in lowered.as_text()
    finally:
        executables.compiles_functions_once.cache_clear()


def test_bytes_of_the_option() -> None:
    options = executables.new_options({shared_functions.FLATTEN_AFTER_FUSION: True}).SerializeAsString()
    assert shared_functions.FLATTEN_AFTER_FUSION.encode() in options
    assert shared_functions.FLATTEN_AFTER_FUSION.encode() not in executables.new_options({}).SerializeAsString()


def test_disk_cache(tmp_path: Path) -> None:
    f, args = network_gradient(24)
    with fx.compilation_cache(tmp_path):
        for mode in ("share", "inline"):
            fx.jit(f, repeats=mode).lower(*args).compile()
        assert len([path for path in tmp_path.rglob("*") if path.is_file()]) >= 2
        want = fx.jit(f, repeats="inline")(*args)
        loaded = fx.jit(network_gradient(24)[0], repeats="share").lower(*args).compile()
        assert_same(loaded(*args), want, SUMMED)


def test_other_platforms_and_exports_are_not_shared() -> None:
    f, args = network_gradient(24)
    lowered = fx.jit(f, repeats="share").trace(*args).lower(lowering_platforms=("cuda",))
    assert "supported on CPUs, except in exports" in str(lowered.repeats)
    assert "shared_block" not in lowered.as_text()
    assert_same(fx.export(fx.jit(f))(*args).call(*args), fx.jit(f)(*args), SUMMED)


def test_donation(everywhere: None) -> None:
    def f(x: Any) -> Any:
        for _ in range(5):
            x = fnp.sin(x) + 1.0
        return x

    x = fx.device_put(X)
    want = f(fnp.asarray(X))
    lowered = fx.jit(f, donate_argnums=0, repeats="share").lower(x)
    assert lowered.repeats.shared
    assert_same(lowered.compile()(x), want, SUMMED)
    assert x.is_deleted()


def test_loops_branches_and_callbacks(everywhere: None) -> None:
    seen: list[float] = []

    def step(c: Any, x: Any) -> Any:
        for _ in range(3):
            c = fnp.sin(c) * x + 1.0
        return c, c

    def f(x: Any) -> Any:
        y, ys = lax.scan(step, x, fnp.arange(3.0))
        fx.debug.callback(lambda z: seen.append(float(z)), y[0], ordered=True)
        z = lax.cond(y[0] > 0, lambda y: step(y, 2.0)[0], lambda y: y, y)
        host = fx.pure_callback(lambda z: z * 2, fx.ShapeDtypeStruct(z.shape, z.dtype), z)
        return lax.while_loop(lambda c: fnp.sum(c) < 3, lambda c: step(c, 0.5)[0], host), ys

    want = f(fnp.asarray(X))
    lowered = fx.jit(f, repeats="share").lower(X)
    assert len(lowered.repeats.shared) == 3
    assert_same(lowered.compile()(X), want, SUMMED)
    fx.effects_barrier()
    assert seen[0] == seen[1]


def test_jitted_helpers_are_inlined_beside_shared_blocks(everywhere: None) -> None:
    helper = fx.jit(lambda x: fnp.sin(x))

    def f(x: Any) -> Any:
        for _ in range(3):
            x = helper(x) + lax.scan(lambda c, _: (helper(c), None), x, None, length=2)[0]
        return x

    lowered = fx.jit(f, repeats="share").lower(X)
    assert lowered.as_text().count("func.func private") == 1
    assert_same(lowered.compile()(X), f(fnp.asarray(X)), SUMMED)


def test_scopes_in_compiled_programs(everywhere: None) -> None:
    """Operations have the same names and lines as without sharing."""

    def f(x: Any, ws: Any) -> Any:
        for i in range(4):
            with fx.named_scope("network"), fx.named_scope(f"layer_{i}"):
                with fx.named_scope("loop"):
                    x = lax.fori_loop(0, 100, lambda _, x: x @ ws[0], x)
                x = fnp.cumsum(x @ ws[i], 1)
                x = lax.sort(x)
        return x

    args = fnp.ones((6, 6)), fnp.ones((4, 6, 6))
    shared, inline = [fx.jit(f, repeats=mode).lower(*args) for mode in ("share", "inline")]
    assert [run.count for run in shared.repeats.shared] == [4]
    got, want = [scheduled_metadata(lowered.compile().as_text()) for lowered in (shared, inline)]
    # The comparator of `sort` is a computation of its own.
    got, want = [{p for p in places if p[0].endswith(("dot_general", "/sort"))} for places in (got, want)]
    assert got == want
    line = f.__code__.co_firstlineno
    for i in range(4):
        assert (f"network/layer_{i}/dot_general", __file__, line + 5) in got
        assert (f"network/layer_{i}/sort", __file__, line + 6) in got
        assert (f"network/layer_{i}/loop/scan/dot_general", __file__, line + 4) in got


def scheduled_metadata(text: str) -> set[tuple[str, str, int]]:
    """Returns the metadata of an optimized module's operations, without those inside of fusions."""
    fused = re.compile(r"^%(?:fused|wrapped)_.*?^}", re.M | re.S)
    return metadata(fused.sub("", text))


def test_lines_of_blocks_that_are_written_one_after_the_other(everywhere: None) -> None:
    def f(x: Any) -> Any:
        x = fnp.sin(lax.sort(x))
        x = fnp.sin(lax.sort(x))
        return fnp.sin(lax.sort(x))

    lowered = fx.jit(f, repeats="share").lower(X)
    assert [run.count for run in lowered.repeats.shared] == [3]
    places = scheduled_metadata(lowered.compile().as_text())
    first = f.__code__.co_firstlineno
    assert {line for name, _, line in places if name == "sort"} == {first + 1, first + 2, first + 3}


def test_functions_called_from_several_scopes(everywhere: None) -> None:
    """An operation that is lowered to a call of a function has the scopes of its own call."""

    def f(x: Any, key: Any) -> Any:
        with fx.named_scope("before"):
            y = lax.fori_loop(0, 2, lambda _, y: y * fx.random.uniform(key, (6,)), x)
        for _ in range(3):
            x = lax.sort(x)
        with fx.named_scope("after"):
            return fx.random.uniform(fx.random.fold_in(key, 1), (6,)) + x + y

    lowered = fx.jit(f, repeats="share").lower(X, fx.random.key(0))
    assert lowered.repeats.shared
    names = {name for name, _, _ in scheduled_metadata(lowered.compile().as_text())}
    assert any(re.match("after/.*random_bits/", name) for name in names)
    assert not [name for name in names if name.startswith("after/") and "scan" in name]


def test_errors_of_checks_name_the_line_of_their_block(everywhere: None) -> None:
    def f(x: Any) -> Any:
        x = fnp.log(lax.cumsum(x) - 1.0)
        x = fnp.log(lax.cumsum(x) - 1.0)
        x = fnp.log(lax.cumsum(x) - 1.0)
        return x

    ones = np.ones(3, np.float32)
    lowered = fx.jit(checkify(f, errors=float_checks), repeats="share").lower(ones)
    assert lowered.repeats.shared
    compiled, line = lowered.compile(), f.__code__.co_firstlineno
    for value, block in ((0.1, 1), (3.0, 2), (4.0, 3)):
        message = compiled(value * ones)[0].get()
        assert message is not None
        assert f"{Path(__file__).name}:{line + block} " in message
    assert compiled(50 * ones)[0].get() is None
