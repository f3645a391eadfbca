"""The device that the suite runs on: the default one, wherever that isn't the host's first; else the host's second.

TRACEFX_PLATFORM=gpu JAX_PLATFORMS= python -m pytest tests/gpu
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tracefx as fx
from tracefx.core.backend import BACKEND
from tracefx.core.device import Device


@pytest.fixture
def there() -> Iterator[Device]:
    """A device that is not the host's first, on which programs run that nobody puts anywhere."""
    if BACKEND.value.default_device_is_host:
        device = fx.devices()[1]
        with fx.default_device(device):
            yield device
    else:
        yield fx.devices()[0]


@pytest.fixture
def host() -> Device:
    return fx.local_devices(backend="cpu")[0]
