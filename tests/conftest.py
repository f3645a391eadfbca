"""Settings of the whole test run."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from contextlib import nullcontext
from typing import Final, final

import pytest
from hypothesis import HealthCheck, settings

from tests.compiling import as_for_users, flags
from tests.compiling import optimised as optimised

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
        with as_for_users() if isinstance(item, pytest.DoctestItem) else nullcontext():
            yield


@final
class FrozenHeap:
    """Exempts from garbage collection what the tests of earlier files left behind.

    The collected tests, JAX and the caches of both libraries are millions of objects, so that a full collection takes
    seconds. Tests that call `gc.collect` or read `gc.get_objects` look at objects of their own.
    """

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self._freeze()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
        yield
        if nextitem is not None and nextitem.path != item.path:
            self._freeze()

    @staticmethod
    def _freeze() -> None:
        gc.collect()
        gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Set what XLA and JAX read when they are first used, and processes started by tests inherit."""
    config.pluginmanager.register(Examples())  # as docstrings are outside of this directory
    config.pluginmanager.register(FrozenHeap())
    # With each error of the many that tests provoke, JAX looks up the file of every frame on disk.
    os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")
    # Whatever the machine has: what is asked of GPUs is in tests/gpu, and says where it runs.
    for variable in ("TRACEFX_PLATFORM", "JAX_PLATFORMS"):
        os.environ.setdefault(variable, "cpu")
    cheap = flags() if config.getoption("--hypothesis-profile") != "long" else ""
    os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={DEVICES} {cheap}")
