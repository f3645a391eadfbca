"""The device under test: the default device, or the second CPU device if the default is the first CPU device.

TRACEFX_PLATFORM=gpu JAX_PLATFORMS= python -m pytest tests/gpu
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tracefx as fx
from tracefx.core.backend import BACKEND
from tracefx.core.device import Device


@pytest.fixture
def target() -> Iterator[Device]:
    """A device other than the first CPU device. It is the default device, so uncommitted computations run on it."""
    if BACKEND.value.default_device_is_host:
        device = fx.devices()[1]
        with fx.default_device(device):
            yield device
    else:
        yield fx.devices()[0]


@pytest.fixture
def host() -> Device:
    return fx.local_devices(backend="cpu")[0]
