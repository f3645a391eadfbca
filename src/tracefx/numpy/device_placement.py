"""The argument `device` of functions that create arrays."""

from __future__ import annotations

from tracefx.core import Array, ConcreteArray
from tracefx.core.device import is_device
from tracefx.core.sharding import DeviceOrSharding, Sharding
from tracefx.transforms.devices import device_put


def place_on_device(x: Array, device: DeviceOrSharding | None) -> Array:
    """Returns `x` on a device or with a sharding; `x` itself if `device` is None.

    A traced value ignores a device (it stays where its program runs) but takes a sharding. Raises TypeError for what is
    neither a device nor a sharding.
    """
    if device is None or not (isinstance(x, ConcreteArray) or isinstance(device, Sharding)):
        return x
    if not isinstance(device, Sharding) and not is_device(device):
        raise TypeError(f"device must be one of tracefx.devices(), a sharding or None, got {device!r}")
    return device_put(x, device)
