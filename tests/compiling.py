"""How hard XLA works at the programs of tests, in either library.

Nearly every program that a test compiles runs once, on a few numbers, and compiling it takes a thousand times as long
as running it. So XLA emits their code plainly and leaves it as it is: that halves the time of the whole run. What has
to be seen of programs as users get them has the fixture `optimised`: the laws of operations, conversions, edge
values. `make laws` compiles everything so.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.versions import HAS_FUSION_EMITTERS_FLAG
from tracefx.core.backend import BACKEND

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
    """A flag in the form of `XLA_FLAGS`."""
    return f"--{name}={str(value).lower()}"


@contextmanager
def default_compile_options() -> Iterator[None]:
    """Programs, ours and JAX's, are compiled as they are for users, those of single operations anew."""
    ours = importlib.import_module("tracefx.xla.runtime.executables")
    theirs = importlib.import_module("jax._src.compiler")
    operations = importlib.import_module("tracefx.ops.operation")
    our_options, their_options = ours._compile_options, theirs.get_compile_options

    def options(device: Any, overrides: Any) -> Any:
        return our_options(device, {**DEFAULT_OPTIONS, **overrides})

    def get_compile_options(*args: Any, env_options_overrides: Any = None, **kwargs: Any) -> Any:
        given = {**DEFAULT_OPTIONS, **(env_options_overrides or {})}
        return their_options(*args, env_options_overrides=given, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours, "_compile_options", options)
        patch.setattr(theirs, "get_compile_options", get_compile_options)
        patch.setattr(BACKEND, "value", type(BACKEND.value)())
        # Programs of single operations keep their executables: afterwards those compiled plainly are there again.
        patch.setattr(
            operations,
            "_one_equation_jaxpr",
            functools.lru_cache(maxsize=4096)(operations._one_equation_jaxpr.__wrapped__),
        )
        yield


@pytest.fixture(scope="module")
def optimised() -> Iterator[None]:
    """For a whole module, `default_compile_options`."""
    with default_compile_options():
        yield


def with_either_compile_options(check: Callable[[], None]) -> None:
    """What is checked with JAX as the oracle holds if it does beside JAX's cheap programs, or beside those for users.

    Emitted plainly, some operations are less exact, or wrong for floats of 8 bits. `check` makes its functions anew,
    as `jax.jit` knows what it has compiled.
    """
    try:
        check()
    except Exception:  # whatever it is, it may be so for cheap programs alone
        with default_compile_options():
            check()


def compile_with_fallback(jit: Callable[..., Any], f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` compiled by either library's `jit`.

    What emits code plainly lacks some operations on some dtypes (`clamp` on booleans): they are compiled as for users.
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
