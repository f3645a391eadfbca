"""Settings of the whole test run."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path
from typing import Final, final

import pytest
from hypothesis import HealthCheck, settings

from tests.compiling import CHEAP_OPTIONS, default_compile_options, xla_flag
from tests.compiling import optimised as optimised
from tests.processors import NO_CONVERSION, WITHOUT_F16C
from tracefx.core.backend import BACKEND
from tracefx.ops import operation

# Hypothesis fails an example that takes longer than 200 ms; how long a compilation takes is no property of ours.
# Every run takes the same examples, so that one that fails can be run again; `make laws` looks for new ones.
settings.register_profile("tracefx", deadline=None, derandomize=True)
# As many examples as one has time for.
settings.register_profile("long", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tracefx")


# How many devices the host pretends to have, so that programs over several can be tested. What runs on one is neither
# slower nor another program for it.
DEVICES: Final = 8

# There are millions of small objects, of which few are in cycles: looking for those 30 times as seldom saves a tenth.
gc.set_threshold(20_000, 20, 20)


@final
class Examples:
    """Examples in docstrings are shown with the digits that users get."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        with default_compile_options() if isinstance(item, pytest.DoctestItem) else nullcontext():
            yield


@final
class WithoutFloat16:
    """Skips a test once XLA fails in it for want of conversions of float16."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        try:
            yield
        except Exception as error:
            if NO_CONVERSION not in "".join(traceback.format_exception(error)):
                raise
            pytest.skip("XLA has no conversions of float16 without F16C instructions, in JAX as here")


MORE_MAPPINGS: Final = 10_000
"""By how many memory mappings a process may grow before the tests drop all compiled programs, which have several each.

Linux allows 65,530 to a process, and XLA ends the process when it is refused one.
"""


def mappings() -> int:
    """The number of memory mappings of this process, 0 where the system does not say."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0


@final
class Heap:
    """Keeps garbage collection fast, and the compiled programs of all tests within what a process may have.

    The collected tests, JAX and the caches of both libraries are millions of objects, so that a full collection takes
    seconds. What earlier files left behind is exempt from it: tests that collect look at objects of their own.
    """

    def __init__(self) -> None:
        self._mappings = MORE_MAPPINGS  # so that the first growth counts from here

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self._freeze()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
        yield
        if nextitem is None or nextitem.path == item.path:
            return
        grown = mappings() > self._mappings + MORE_MAPPINGS
        if grown:
            self._drop_programs()
        self._freeze()
        if grown:
            self._mappings = mappings()

    @staticmethod
    def _freeze() -> None:
        gc.collect()
        gc.freeze()

    @staticmethod
    def _drop_programs() -> None:
        if "jax" in sys.modules:  # which reads its settings when it is imported, so it is not imported here
            sys.modules["jax"].clear_caches()
        BACKEND.value = type(BACKEND.value)()
        operation._one_equation_jaxpr.cache_clear()
        gc.unfreeze()


def pytest_configure(config: pytest.Config) -> None:
    """Set what XLA and JAX read when they are first used, and processes started by tests inherit."""
    config.pluginmanager.register(Examples())  # as docstrings are outside of this directory
    config.pluginmanager.register(Heap())
    # With each error of the many that tests provoke, JAX looks up the file of every frame on disk.
    os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")
    # Whatever the machine has: what is asked of GPUs is in tests/gpu, and says where it runs.
    for variable in ("TRACEFX_PLATFORM", "JAX_PLATFORMS"):
        os.environ.setdefault(variable, "cpu")
    given = os.environ.get("XLA_FLAGS", "")
    chosen = {"xla_force_host_platform_device_count": DEVICES}
    if config.getoption("--hypothesis-profile") != "long":
        chosen |= CHEAP_OPTIONS
    added = [xla_flag(name, value) for name, value in chosen.items() if f"--{name}=" not in given]
    os.environ["XLA_FLAGS"] = " ".join([*added, given])
    if WITHOUT_F16C in given:
        config.pluginmanager.register(WithoutFloat16())
