"""Meshes: arrays of devices with named axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ContextDecorator
from math import prod
from types import TracebackType
from typing import Any, ClassVar, Final, Self, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import NDArray
from tracefx.core.custom_text import TextArgs
from tracefx.core.device import MEMORY, Device
from tracefx.core.effects import Effect
from tracefx.core.meshes import MESH, AbstractMesh, AxisType, BaseMesh, named_sizes, named_types
from tracefx.filtered_tracebacks import api_boundary


@final
@frozen(init=False, repr=False)
class Mesh(BaseMesh, ContextDecorator):
    """An array of devices with named axes, e.g. 4 x 2 devices with the axes "data" and "model".

    As a context manager and as a decorator it sets the current mesh, as `set_mesh` does.

    Args:
        devices: An array of devices, or nested sequences of them.
        axis_names: The name of each axis of that array; a string for a single axis.
        axis_types: The type of each axis, or one for all. None, the default, means `AxisType.Auto`.

    Raises:
        TypeError: If a name is not a string or a type not an `AxisType`.
        ValueError: If the number of names or types is not the number of axes, or a name or device occurs twice.

    >>> from tracefx import devices
    >>> Mesh(devices()[:1], "data")
    Mesh(data=1)
    """

    text_name: ClassVar[str] = "Mesh"
    flat: tuple[Device, ...] = ()
    """All devices in row-major order: the device assignment of SPMD programs on the mesh."""

    @api_boundary
    def __init__(
        self,
        devices: NDArray | Sequence[Any],
        axis_names: str | Sequence[str],
        axis_types: AxisType | Sequence[AxisType] | None = None,
    ) -> None:
        array = np.asarray(devices, dtype=object)
        self._set_axes(array.shape, axis_names, axis_types)
        flat = tuple(array.flat)
        if len(set(flat)) != len(flat):
            raise ValueError("Mesh: a device occurs twice")
        object.__setattr__(self, "flat", flat)

    @property
    def devices(self) -> NDArray:
        """The devices as an array with one axis per mesh axis."""
        array = np.empty(len(self.flat), object)
        array[:] = self.flat
        array = array.reshape(self.axis_sizes)
        array.flags.writeable = False
        return array

    @property
    @override
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh without its devices."""
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    @override
    def _with_axis_types(self, types: tuple[AxisType, ...]) -> Mesh:
        return Mesh(self.devices, self.axis_names, types)

    @property
    def local_devices(self) -> list[Device]:
        """The devices that belong to this process, in row-major order."""
        return [d for d in self.flat if d.process_index == MEMORY.value.process_index]

    @property
    def is_multi_process(self) -> bool:
        """Whether devices belong to other processes."""
        return len(self.local_devices) < len(self.flat)

    @property
    def local_mesh(self) -> Mesh:
        """The mesh of the devices that belong to this process.

        Raises ValueError if these are not a block of adjacent devices along each axis.
        """
        if not self.is_multi_process:
            return self
        devices = self.devices
        is_local = np.array([d in self.local_devices for d in self.flat]).reshape(self.axis_sizes)
        where = np.argwhere(is_local)
        block = tuple([slice(int(low), int(high) + 1) for low, high in zip(where.min(0), where.max(0), strict=True)])
        if not is_local[block].all():
            raise ValueError(f"the devices of {self} that belong to this process are not a block of adjacent devices")
        return Mesh(devices[block], self.axis_names, self.axis_types)

    @property
    def device_ids(self) -> NDArray:
        """The device ids as an array with one axis per mesh axis."""
        return np.array([d.id for d in self.flat], np.int64).reshape(self.axis_sizes)

    def __enter__(self) -> Self:
        """Makes the mesh the current one, as `set_mesh` does, until `__exit__`."""
        MESH.override(self).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        override = MESH.innermost_override(self)
        if override is None:
            raise RuntimeError(f"{self} is not the mesh of an active `with` block in this context")
        override.__exit__(kind, error, traceback)

    @override
    def text_args(self) -> TextArgs:
        """Returns the axis sizes by name, preceded by the device ids unless these are the first devices, and types."""
        ids = tuple([device.id for device in self.flat])
        return (*((ids,) if ids != tuple(range(len(ids))) else ()), *self._text_types()), self.shape

    @classmethod
    @override
    def from_text_args(cls, values: tuple[object, ...], named: Mapping[str, object]) -> Mesh:
        sizes = named_sizes(named)
        devices_by_id = {device.id: device for device in MEMORY.value.devices(MEMORY.value.platform)}
        count = prod(sizes)
        if count > len(devices_by_id):
            raise ValueError(f"the mesh is of {count} devices, but there are {len(devices_by_id)}")
        types = None
        if values and isinstance(values[-1], tuple) and values[-1] and isinstance(values[-1][0], str):
            values, types = values[:-1], named_types(values[-1])
        ids: object = values[0] if values else tuple(range(count))
        if len(values) > 1 or not isinstance(ids, tuple) or len(ids) != count:
            raise ValueError(f"a mesh of {count} devices can't be made of {values}")
        missing = [i for i in ids if i not in devices_by_id]
        if missing:
            raise ValueError(f"the mesh has devices that do not exist: {missing}; there are {len(devices_by_id)}")
        devices = np.empty(len(ids), object)
        devices[:] = [devices_by_id[i] for i in ids]
        return cls(devices.reshape(sizes), tuple(named), types)


NO_MESH: Final = Mesh(np.empty(0, object), "nothing")
"""The mesh without devices, which is in use where no mesh is set."""


def current_mesh() -> Mesh:
    """Returns the mesh in use; `NO_MESH` if there is none, or one without devices."""
    mesh = MESH.value
    return mesh if isinstance(mesh, Mesh) else NO_MESH


@final
@frozen
class MeshEffect(Effect):
    """The program contains computations on the devices of a mesh."""

    observable = False
    mesh: Mesh

    @override
    def __str__(self) -> str:
        return f"over {self.mesh}"
