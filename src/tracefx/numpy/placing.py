"""Where arrays are: the argument `device` of functions that make them."""

from __future__ import annotations

from tracefx.core.array import Array
from tracefx.core.backend import BACKEND, Device
from tracefx.core.values import ConcreteArray


def placed(x: Array, device: Device | None) -> Array:
    """`x` on a device; where it is, if None. What is traced goes where its program runs.

    TypeError for what is no device.
    """
    if device is None or not isinstance(x, ConcreteArray):
        return x
    if not hasattr(device, "platform"):
        raise TypeError(f"device must be one of tracefx.devices() or None, got {device!r}")
    if x.device is device:
        return x
    return ConcreteArray(x.aval, None, BACKEND.value.put(x.numpy(), device))
