"""Arrays and the devices they are on."""

from __future__ import annotations

from typing import Any

from tracefx.core import trees
from tracefx.core.backend import BACKEND, Device
from tracefx.core.trees import PyTree
from tracefx.core.values import ConcreteArray, to_numpy
from tracefx.transforms.arguments import flatten_values, to_arrays


def devices(backend: str | None = None) -> list[Device]:
    """The devices programs can run on.

    >>> devices()[0].platform
    'cpu'
    """
    return BACKEND.value.devices(backend or "cpu")
