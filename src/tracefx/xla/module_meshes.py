"""The meshes that a module defines, and shardings over them in Shardy's syntax."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from tracefx.core import ShapedArray, dtypes
from tracefx.core.device import Device
from tracefx.core.meshes import BaseMesh
from tracefx.core.partition_spec import PartitionSpec
from tracefx.shardings.meshes import Mesh
from tracefx.xla.attributes import shardy_dim_sharding
from tracefx.xla.runtime import mlir


@final
class ModuleMeshes:
    """Defines meshes in a module where they are first used.

    Meshes that differ only in the types of their axes have one definition; a mesh without devices has those of the
    module.

    Args:
        module: The module.
        devices: The partitions of the program.
        unique_symbol: Returns a symbol that the module does not contain, given its beginning.
    """

    __slots__ = ("_devices", "_module", "_symbols", "_unique_symbol")

    def __init__(self, module: mlir.Module, devices: tuple[Device, ...], unique_symbol: Callable[[str], str]) -> None:
        self._module = module
        self._devices = devices
        self._unique_symbol = unique_symbol
        self._symbols: dict[str, str] = {}
        """The symbols of the meshes by definition."""

    def symbol(self, mesh: BaseMesh) -> str:
        """Returns the symbol of a mesh."""
        axes = ", ".join([f'"{name}"={size}' for name, size in mesh.shape_tuple])
        devices = mesh.flat if isinstance(mesh, Mesh) else self._devices
        ids = "" if devices == self._devices else f", device_ids={[self._devices.index(d) for d in devices]}"
        return self._defined("mesh", f"[{axes}]{ids}")

    def sharding(self, mesh: BaseMesh, spec: PartitionSpec, aval: ShapedArray, is_open: bool = False) -> str:
        """Returns the sharding of an array; if it is open, the compiler may shard the array along other axes too."""
        parts = [shardy_dim_sharding(part, is_open) for part in spec.of_rank(aval.ndim)]
        if dtypes.is_key(aval.dtype):
            parts.append("{}")  # the axis of a key's words is never sharded
        return f"#sdy.sharding<@{self.symbol(mesh)}, [{', '.join(parts)}]>"

    def replicated(self, aval: ShapedArray) -> str:
        """Returns the sharding of an array that all devices have."""
        symbol = self._defined("everyone", f'["devices"={len(self._devices)}]')
        parts = ", ".join(["{}"] * (aval.ndim + dtypes.is_key(aval.dtype)))
        return f"#sdy.sharding<@{symbol}, [{parts}]>"

    def on_first_device(self, count: int) -> mlir.Attribute:
        """Returns the sharding of some results that only the first device has."""
        symbol = self._defined("first_device", "[], device_ids=[0]")
        return mlir.parse_attribute(f"#sdy.sharding_per_value<[{', '.join([f'<@{symbol}, []>'] * count)}]>")

    def _defined(self, name: str, definition: str) -> str:
        symbol = self._symbols.get(definition)
        if symbol is None:
            symbol = self._symbols[definition] = self._unique_symbol(name)
            mesh = mlir.parse_attribute(f"#sdy.mesh<{definition}>")
            attributes = {"sym_name": mlir.string_attr(symbol), "mesh": mesh}
            at = mlir.location(name, None, 0)
            mlir.create("sdy.mesh", (), (), attributes, None, 0, at, mlir.at_end(self._module.body))
        return symbol
