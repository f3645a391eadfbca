"""Fixture for the device of the runtime tests."""

from __future__ import annotations

import pytest

from tracefx.xla.runtime import platforms
from tracefx.xla.runtime.bindings import Device


@pytest.fixture(scope="module")
def device() -> Device:
    return platforms.devices()[0]
