"""Fixture for the device of the runtime tests."""

from __future__ import annotations

import pytest

from tracefx.xla import runtime
from tracefx.xla.runtime import Device


@pytest.fixture(scope="module")
def device() -> Device:
    return runtime.devices()[0]
