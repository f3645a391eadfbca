"""The plug-in of the folder beside, as a package would say that it has one."""

from __future__ import annotations

from jax._src import xla_bridge
from jaxlib import _jax


def initialize() -> None:
    xla_bridge.register_backend_factory(
        "advertised", lambda: _jax.get_tfrt_cpu_client(asynchronous=True, num_devices=3), priority=1000
    )
