"""Settings and context managers whose `with` blocks are not exited in LIFO order."""

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
from tracefx.core.meshes import MESH
from tracefx.settings import COMPILATION_CACHE, DISABLE_JIT, X64
from tracefx.source_location import SOURCE

SETTINGS: Final[dict[str, tuple[Callable[[int], Any], Callable[[], object]]]] = {
    "enable_x64": (lambda i: fx.enable_x64(i != 1), lambda: X64.value),
    "disable_jit": (lambda i: fx.disable_jit(i != 1), lambda: DISABLE_JIT.value),
    "compilation_cache": (lambda i: fx.compilation_cache(f"/tmp/{i}"), lambda: COMPILATION_CACHE.value),
    "default_device": (lambda i: fx.default_device(fx.devices()[0]), lambda: DEFAULT_DEVICE.value),
    "set_mesh": (lambda i: fx.set_mesh(fx.Mesh(fx.devices()[:1], f"m{i}")), lambda: MESH.value),
    "mesh": (lambda i: fx.Mesh(fx.devices()[:1], f"m{i}"), lambda: MESH.value),
}


def _suspended(manager: Any, read: Callable[[], object]) -> Iterator[object]:
    with manager:
        yield read()
        yield read()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("name", SETTINGS)
def test_suspended_generators_close_in_any_order(name: str, order: tuple[int, ...]) -> None:
    make, read = SETTINGS[name]
    before = read()
    generators = [_suspended(make(i), read) for i in range(3)]
    inside = [next(g) for g in generators]
    closed: set[int] = set()
    for i in order:
        generators[i].close()  # type: ignore[attr-defined]  # a generator
        closed.add(i)
        open_indices = [k for k in range(3) if k not in closed]
        assert read() == (inside[open_indices[-1]] if open_indices else before)
    assert read() == before


def test_exit_out_of_order_does_not_change_results() -> None:
    first, second = (_suspended(fx.enable_x64(), lambda: None) for _ in range(2))
    next(first)
    next(second)
    first.close()  # type: ignore[attr-defined]  # a generator
    assert fnp.asarray(np.arange(2.0)).dtype == np.float64
    second.close()  # type: ignore[attr-defined]  # a generator
    assert fnp.asarray(np.arange(2.0)).dtype == np.float32


@pytest.mark.parametrize("name", ["enable_x64", "disable_jit"])
def test_generator_closed_in_another_context(name: str) -> None:
    make, read = SETTINGS[name]
    suspended = _suspended(make(0), read)
    assert next(suspended) is True
    contextvars.copy_context().run(suspended.close)  # type: ignore[attr-defined]  # a generator
    assert read() is False

    started_in_thread = _suspended(make(0), read)
    thread = threading.Thread(target=lambda: next(started_in_thread))
    thread.start()
    thread.join()
    assert read() is False
    started_in_thread.close()  # type: ignore[attr-defined]  # a generator
    assert read() is False


def test_copied_context_keeps_its_setting() -> None:
    with fx.enable_x64():
        context = contextvars.copy_context()
    assert context.run(lambda: X64.value)
    assert not X64.value


def test_override_can_be_reentered_after_exit() -> None:
    override, other = fx.enable_x64(), fx.enable_x64(False)
    for _ in range(2):
        with override:
            with pytest.raises(RuntimeError, match="already active"):
                override.__enter__()
            with other:
                assert not X64.value
            assert X64.value


def test_override_can_be_reentered_after_exit_out_of_order() -> None:
    override, other, seen = fx.enable_x64(), fx.enable_x64(False), []
    override.__enter__()
    other.__enter__()
    override.__exit__(None, None, None)
    with override:
        seen.append(X64.value)
    seen.append(X64.value)
    other.__exit__(None, None, None)
    assert [*seen, X64.value] == [True, False, False]


def test_scope_leaves_the_context_as_it_was() -> None:
    assert SOURCE.get() is None
    with fx.named_scope("outer"):
        with fx.named_scope("inner"):
            pass
        assert SOURCE.get() == ("outer",)
    assert SOURCE.get() is None
