"""Settings and plug-ins of the whole test run."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Generator
from inspect import isfunction, unwrap
from pathlib import Path
from typing import Final, final

import numpy as np
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from tests.compiling import CHEAP_OPTIONS, default_compile_options, share_all_repeats, xla_flag
from tests.compiling import default_repeats as default_repeats
from tests.compiling import optimised as optimised
from tests.compiling import optimised_hlo as optimised_hlo
from tests.processors import NO_CONVERSION, WITHOUT_F16C
from tracefx.core.backend import BACKEND
from tracefx.ops import operation

# No deadline: Hypothesis fails an example that takes longer than 200 ms, and compilation may take longer.
# Every run takes the same examples, so that failures are reproducible; `make laws` searches for new ones.
settings.register_profile("tracefx", deadline=None, derandomize=True)
# The number of examples comes from the environment.
settings.register_profile("long", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
# XLA optimizes the programs, as with the profile `long`.
settings.register_profile("optimized", settings.get_profile("tracefx"))
settings.register_profile("every-case", settings.get_profile("tracefx"))
settings.load_profile("tracefx")


# The number of virtual CPU devices, for tests of sharded programs. It does not change or slow down programs on one
# device.
DEVICES: Final = 8

# There are millions of small objects, few of them in cycles: collecting 30 times less often saves a tenth of the time.
gc.set_threshold(20_000, 20, 20)


def is_of_another_module(item: pytest.Item) -> bool:
    """Returns whether the item is an example of a function that its module exports from another module."""
    if not isinstance(item, pytest.DoctestItem) or item.dtest is None:
        return False
    module = item.dtest.globs["__name__"]
    function = item.dtest.globs.get(item.name.removeprefix(f"{module}."))
    return isfunction(function) and unwrap(function).__module__ != module


@final
class Examples:
    """Runs an example of a docstring again if it fails, with XLA's optimizations: last digits may depend on them.

    The example of an exported function is a test of the module that defines the function. Examples may use `np`.
    """

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not is_of_another_module(item)]
        for item in items:
            if isinstance(item, pytest.DoctestItem) and item.dtest is not None:
                item.dtest.globs.setdefault("np", np)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        try:
            yield
        except Exception:
            if not isinstance(item, pytest.DoctestItem):
                raise
            with default_compile_options():
                item.runtest()


@final
class WithoutFloat16:
    """Skips a test if XLA fails because the processor lacks conversions of float16."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        try:
            yield
        except Exception as error:
            if NO_CONVERSION not in "".join(traceback.format_exception(error)):
                raise
            pytest.skip("XLA has no conversions of float16 without F16C instructions, in JAX as here")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Collects no examples of docstrings in this directory, which has none: looking for them takes two seconds."""
    collectors = yield
    return [each for each in collectors if not isinstance(each, DoctestModule)]


MORE_MAPPINGS: Final = 20_000
MOST_MAPPINGS: Final = 45_000
"""The numbers of new and of all memory mappings after which the tests drop all compiled programs, which have several
each.

Linux allows 65,530 in a process, and XLA aborts the process if it cannot get one.
"""
FEWEST_NEW_MAPPINGS: Final = 4_000
"""The least number of new mappings before programs are dropped again, because dropping takes seconds."""


def mappings() -> int:
    """Returns the number of memory mappings of this process, 0 on systems without `/proc`."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0


@final
class Heap:
    """Keeps garbage collection fast, and the memory mappings of compiled programs within the limit of a process.

    The collected tests, JAX and the caches of both libraries are millions of objects, so that a full collection takes
    seconds. So the objects of earlier test files are frozen, and collections traverse only newer ones.
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
        most = max(MOST_MAPPINGS, self._mappings + FEWEST_NEW_MAPPINGS)
        grown = mappings() > min(self._mappings + MORE_MAPPINGS, most)
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
        if "jax" in sys.modules:  # not imported here, since JAX reads its settings at import
            sys.modules["jax"].clear_caches()
        BACKEND.value = type(BACKEND.value)()
        operation.SINGLE_OPERATIONS.clear()
        gc.unfreeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option of `make test-repeats`."""
    parser.addoption("--share-repeats", action="store_true", help="share all repeated blocks, however small")


def pytest_configure(config: pytest.Config) -> None:
    """Sets environment variables, which XLA and JAX read at first use and subprocesses inherit."""
    config.pluginmanager.register(Examples())  # docstrings are outside of this directory
    config.pluginmanager.register(Heap())
    # Otherwise JAX looks up the file of every stack frame on disk at each of the many errors that tests provoke.
    os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")
    # Locations with tracebacks in programs make up 5% of the time that JAX takes to lower and compile them.
    os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
    # On every machine: only the tests in tests/gpu use a GPU, and they set the platform.
    for variable in ("TRACEFX_PLATFORM", "JAX_PLATFORMS"):
        os.environ.setdefault(variable, "cpu")
    given = os.environ.get("XLA_FLAGS", "")
    chosen = {"xla_force_host_platform_device_count": DEVICES}
    if config.getoption("--hypothesis-profile") not in ("long", "optimized"):
        chosen |= CHEAP_OPTIONS
    added = [xla_flag(name, value) for name, value in chosen.items() if f"--{name}=" not in given]
    os.environ["XLA_FLAGS"] = " ".join([*added, given])
    if config.getoption("--share-repeats"):
        share_all_repeats(pytest.MonkeyPatch())
    if WITHOUT_F16C in given:
        config.pluginmanager.register(WithoutFloat16())
