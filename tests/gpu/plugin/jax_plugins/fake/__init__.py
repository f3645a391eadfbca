"""A plug-in for a platform whose devices are those of a second client of the host: all that a GPU is, but one.

It is found as others are, when the folder above is on the path.
"""

from __future__ import annotations

from typing import Final

from jax._src import distributed, xla_bridge
from jaxlib import _jax

DEVICES: Final = 2


def client() -> object:
    if distributed.global_state.client is None:
        return _jax.get_tfrt_cpu_client(asynchronous=True, num_devices=DEVICES)
    # Processes tell each other of the host's devices under one name, so that there can be no second client of them.
    return xla_bridge._backends["cpu"]


def initialize() -> None:
    xla_bridge.register_backend_factory("fake", client, priority=1000, fail_quietly=False)
