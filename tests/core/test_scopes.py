"""Settings and context variables whose `with` blocks end in another order than they began."""

from __future__ import annotations

import contextvars
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.core.device import DEFAULT_DEVICE
from tracefx.core.settings import COMPILATION_CACHE, DISABLE_JIT, X64
from tracefx.shardings.meshes import MESH

SETTINGS: Final[dict[str, tuple[Callable[[int], Any], Callable[[], object]]]] = {
    "enable_x64": (lambda i: fx.enable_x64(i != 1), lambda: X64.value),
    "disable_jit": (lambda i: fx.disable_jit(i != 1), lambda: DISABLE_JIT.value),
    "compilation_cache": (lambda i: fx.compilation_cache(f"/tmp/{i}"), lambda: COMPILATION_CACHE.value),
    "default_device": (lambda i: fx.default_device(fx.devices()[0]), lambda: DEFAULT_DEVICE.value),
    "set_mesh": (lambda i: fx.set_mesh(fx.Mesh(fx.devices()[:1], f"m{i}")), lambda: MESH.value),
    "mesh": (lambda i: fx.Mesh(fx.devices()[:1], f"m{i}"), lambda: MESH.value),
}


def _suspended(made: Any, read: Callable[[], object]) -> Iterator[object]:
    with made:
        yield read()
        yield read()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("name", SETTINGS)
def test_generators_are_closed_in_any_order(name: str, order: tuple[int, ...]) -> None:
    make, read = SETTINGS[name]
    before = read()
    generators = [_suspended(make(i), read) for i in range(3)]
    inside = [next(g) for g in generators]
    left: set[int] = set()
    for i in order:
        generators[i].close()  # type: ignore[attr-defined]  # a generator
        left.add(i)
        still = [k for k in range(3) if k not in left]
        assert read() == (inside[still[-1]] if still else before)
    assert read() == before


def test_what_ends_out_of_order_changes_no_computation() -> None:
    first, second = (_suspended(fx.enable_x64(), lambda: None) for _ in range(2))
    next(first)
    next(second)
    first.close()  # type: ignore[attr-defined]  # a generator
    assert fnp.asarray(np.arange(2.0)).dtype == np.float64
    second.close()  # type: ignore[attr-defined]  # a generator
    assert fnp.asarray(np.arange(2.0)).dtype == np.float32


@pytest.mark.parametrize("name", ["enable_x64", "disable_jit"])
def test_a_generator_is_closed_in_another_context(name: str) -> None:
    make, read = SETTINGS[name]
    suspended = _suspended(make(0), read)
    assert next(suspended) is True
    contextvars.copy_context().run(suspended.close)  # type: ignore[attr-defined]  # a generator
    assert read() is False

    elsewhere = _suspended(make(0), read)
    thread = threading.Thread(target=lambda: next(elsewhere))
    thread.start()
    thread.join()
    assert read() is False
    elsewhere.close()  # type: ignore[attr-defined]  # a generator
    assert read() is False


def test_a_task_keeps_the_setting_it_was_started_under() -> None:
    with fx.enable_x64():
        context = contextvars.copy_context()
    assert context.run(lambda: X64.value)
    assert not X64.value


def test_an_override_is_entered_again_once_it_was_left() -> None:
    override, other = fx.enable_x64(), fx.enable_x64(False)
    for _ in range(2):
        with override:
            with pytest.raises(RuntimeError, match="already active"):
                override.__enter__()
            with other:
                assert not X64.value
            assert X64.value


def test_an_override_that_was_left_out_of_order_is_entered_again() -> None:
    override, other, seen = fx.enable_x64(), fx.enable_x64(False), []
    override.__enter__()
    other.__enter__()
    override.__exit__(None, None, None)
    with override:
        seen.append(X64.value)
    seen.append(X64.value)
    other.__exit__(None, None, None)
    assert [*seen, X64.value] == [True, False, False]
