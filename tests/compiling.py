"""The optimization level of XLA in tests, for tracefx and JAX.

Nearly every program in a test runs once, on little data, and compiling it takes a thousand times as long as running it.
So XLA's optimizations are off in tests, which halves the time of the whole run. Tests of programs as users get them use
the fixture `optimised` or `default_compile_options`: of every primitive at its samples, of memory and operation counts.
`make laws` optimizes all programs, also those of `tests/ops` and of the examples in docstrings and pages.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.versions import HAS_FUSION_EMITTERS_FLAG
from tracefx.core.backend import BACKEND
from tracefx.repeated_blocks.sharing import SharedProgram, share_repeats

CHEAP_OPTIONS: Final[dict[str, int | bool]] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
    **({"xla_cpu_use_fusion_emitters": False} if HAS_FUSION_EMITTERS_FLAG else {}),
}
DEFAULT_OPTIONS: Final[dict[str, int | bool]] = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_parallel_codegen_split_count": 32,
    **({"xla_cpu_use_fusion_emitters": True} if HAS_FUSION_EMITTERS_FLAG else {}),
}
"""XLA's defaults."""


def xla_flag(name: str, value: int | bool) -> str:
    """Returns a flag in the syntax of `XLA_FLAGS`."""
    return f"--{name}={str(value).lower()}"


@contextmanager
def default_compile_options(defaults: Mapping[str, int | bool] = DEFAULT_OPTIONS) -> Iterator[None]:
    """Compiles programs of tracefx and JAX with XLA's defaults, and recompiles those of single operations."""
    tracefx_module = importlib.import_module("tracefx.xla.runtime.executables")
    jax_module = importlib.import_module("jax._src.compiler")
    tracefx_options, jax_options = tracefx_module._compile_options, jax_module.get_compile_options

    def options(device: Any, overrides: Any) -> Any:
        return tracefx_options(device, {**defaults, **overrides})

    def get_compile_options(*args: Any, env_options_overrides: Any = None, **kwargs: Any) -> Any:
        merged = {**defaults, **(env_options_overrides or {})}
        return jax_options(*args, env_options_overrides=merged, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracefx_module, "_compile_options", options)
        patch.setattr(jax_module, "get_compile_options", get_compile_options)
        patch.setattr(BACKEND, "value", type(BACKEND.value)())
        yield


@pytest.fixture(scope="module")
def optimised() -> Iterator[None]:
    """Applies `default_compile_options` to a whole module, and shares repeated blocks as in programs of users."""
    with default_compile_options(), pytest.MonkeyPatch.context() as patch:
        _set_share_repeats(patch, share_repeats)
        yield


@pytest.fixture(scope="module")
def optimised_hlo() -> Iterator[None]:
    """Like `optimised`, without the optimizations of LLVM, which change neither the kernels nor the memory."""
    options = {**DEFAULT_OPTIONS, "xla_backend_optimization_level": 0}
    with default_compile_options(options), pytest.MonkeyPatch.context() as patch:
        _set_share_repeats(patch, share_repeats)
        yield


def with_either_compile_options(check: Callable[[], None]) -> None:
    """Runs a comparison with JAX and, if it fails, repeats it with XLA's default optimizations.

    Without optimizations some operations are less accurate, or wrong for 8-bit floats. `check` must create new
    functions, since `jax.jit` caches executables.
    """
    try:
        check()
    except Exception:  # any failure may be specific to unoptimized programs
        with default_compile_options():
            check()


def share_all_repeats(patch: pytest.MonkeyPatch) -> None:
    """Shares all repeated blocks of compiled programs, however few equations they save."""
    bounds = {"least_count": 2, "least_saved": 1, "least_equations": 1, "spares_memory": False}
    _set_share_repeats(patch, lambda jaxpr, **options: share_repeats(jaxpr, **{**options, **bounds}))


@pytest.fixture
def default_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares repeated blocks as in programs of users, even with the option `--share-repeats`.

    For tests of memory, of kernels, of the text of a program or of its last digits. `optimised` and `optimised_hlo` do
    so, too.
    """
    _set_share_repeats(monkeypatch, share_repeats)


def _set_share_repeats(patch: pytest.MonkeyPatch, share: Callable[..., SharedProgram]) -> None:
    patch.setattr(importlib.import_module("tracefx.xla.lower"), "share_repeats", share)


def compile_with_fallback(jit: Callable[..., Any], f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `f` compiled by the `jit` of either library, with XLA's defaults if compilation fails.

    Without optimizations XLA does not support some operations on some dtypes, such as `clamp` on booleans.
    """
    plainly, for_users = jit(f), jit(lambda *args: f(*args))

    def run(*args: Any) -> Any:
        try:
            return plainly(*args)
        except RuntimeError as error:
            if "UNIMPLEMENTED" not in str(error):
                raise
        with default_compile_options():
            return for_users(*args)

    return run


def metadata(text: str) -> set[tuple[str, str, int]]:
    """Returns the (name, file, line) triples of the operations in an optimized HLO module."""
    names = dict(re.findall(r'^(\d+) "(.*)"$', text.partition("FileNames")[2].partition("FunctionNames")[0], re.M))
    locations = {
        n: (names[file], int(line))
        for n, file, line in re.findall(r"^(\d+) \{file_name_id=(\d+) .*?\bline=(\d+)", text, re.M)
    }
    frames = dict(re.findall(r"^(\d+) \{file_location_id=(\d+)", text, re.M))
    used = re.findall(r'metadata=\{op_name="([^"]*)" stack_frame_id=(\d+)\}', text)
    return {(name, *locations[frames[frame]]) for name, frame in used}
