"""Encoder of exported functions in the FlatBuffers format of `jax.export`: its table slots and its numbers.

It writes serialization version 3, which all later versions of JAX read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, cast, final

import numpy as np
from attrs import frozen
from flatbuffers import Builder

from tracefx.core import DType, ShapedArray, dtypes
from tracefx.dimensions.solving import is_symbolic
from tracefx.errors import SerializationError
from tracefx.pytrees.registry import TreeDef
from tracefx.pytrees.structures import NodeKind, TreeDescription, describe

_SERIALIZATION_VERSION: Final = 3
_CALLING_CONVENTION: Final = 9
NODE_KIND_CODES: Final[Mapping[NodeKind, int]] = {"leaf": 0, "none": 1, "tuple": 2, "list": 3, "dict": 4}
DTYPE_CODES: Final[Mapping[DType, int]] = {
    dtypes.bool_: 0,
    dtypes.int8: 1,
    dtypes.int16: 2,
    dtypes.int32: 3,
    dtypes.int64: 4,
    dtypes.uint8: 5,
    dtypes.uint16: 6,
    dtypes.uint32: 7,
    dtypes.uint64: 8,
    dtypes.float16: 9,
    dtypes.float32: 10,
    dtypes.float64: 11,
    dtypes.complex64: 12,
    dtypes.complex128: 13,
    dtypes.bfloat16: 14,
    dtypes.int4: 15,
    dtypes.uint4: 16,
    dtypes.float8_e4m3b11fnuz: 17,
    dtypes.float8_e4m3fn: 18,
    dtypes.float8_e4m3fnuz: 19,
    dtypes.float8_e5m2: 20,
    dtypes.float8_e5m2fnuz: 21,
    dtypes.float0: 22,
    dtypes.float8_e4m3: 23,
    dtypes.float8_e3m4: 24,
    dtypes.float8_e8m0fnu: 25,
    dtypes.float4_e2m1fn: 26,
    dtypes.key_fry: 27,
    dtypes.key_rbg: 28,
    dtypes.key_urbg: 29,
}
_DEVICE_MEMORY_SPACE: Final = 1


@final
@frozen
class JaxExport:
    """The contents of an exported function in JAX's format."""

    fun_name: str
    in_tree: TreeDef
    out_tree: TreeDef
    in_avals: Sequence[ShapedArray]
    out_avals: Sequence[ShapedArray]
    platforms: Sequence[str]
    module: bytes
    """The StableHLO module as a portable artifact."""
    kept: Sequence[int]
    """The inputs that the module takes."""
    nr_devices: int = 1
    vjp: JaxExport | None = None
    """The function of the inputs and of the cotangents of the outputs that returns the cotangents of the inputs."""

    def encode(self) -> bytes:
        """Returns bytes for `jax.export.deserialize`."""
        writer = _ExportWriter()
        return writer.finish(self._write(writer))

    def _write(self, writer: _ExportWriter) -> int:
        name, ins, outs = self.fun_name, self.in_avals, self.out_avals
        unique = list(dict.fromkeys([a.strong() for a in (*ins, *outs)]))
        numbers = {aval: i for i, aval in enumerate(unique)}
        unspecified = writer.table({}, {})
        none = writer.numbers((), "<u4")
        offsets = {
            1: writer.string(name),
            2: writer.tree(describe(self.in_tree), f"the arguments of {name}"),
            3: writer.offsets([writer.aval(a) for a in ins]),
            4: writer.tree(describe(self.out_tree), f"the result of {name}"),
            5: writer.offsets([writer.aval(a) for a in outs]),
            7: writer.offsets([unspecified for _ in ins]),
            8: writer.offsets([unspecified for _ in outs]),
            9: writer.offsets([writer.string(platform) for platform in self.platforms]),
            10: none,  # ordered effects
            11: none,  # other effects
            12: none,  # disabled checks
            13: writer.byte_vector(self.module),
            15: writer.numbers(self.kept, "<u2"),
            19: writer.offsets([writer.aval(a) for a in unique]),
            20: none,  # meshes
            21: none,  # shardings
            22: writer.numbers([numbers[a.strong()] for a in ins], "<u4"),
            23: writer.numbers([numbers[a.strong()] for a in outs], "<u4"),
            24: writer.numbers([0 for _ in ins], "<u4"),
            25: writer.numbers([0 for _ in outs], "<u4"),
        }
        if self.vjp is not None:
            offsets[17] = self.vjp._write(writer)
        scalars: dict[int, tuple[_ScalarType, int]] = {
            0: ("Uint16", _SERIALIZATION_VERSION),
            14: ("Uint16", _CALLING_CONVENTION),
            16: ("Bool", len(self.platforms) > 1 or is_symbolic(ins)),  # whether the module must be specialized
            18: ("Uint32", self.nr_devices),
        }
        return writer.table(offsets, scalars)


_ScalarType: TypeAlias = Literal["Bool", "Int8", "Uint16", "Uint32"]


@final
class _ExportWriter:
    """A FlatBuffers builder with typed methods. Each returns the offset of what it writes; offsets point backwards."""

    def __init__(self) -> None:
        self._builder = Builder()

    def string(self, text: str) -> int:
        offset: int = self._builder.CreateString(text, errors="surrogatepass")
        return offset

    def byte_vector(self, data: bytes) -> int:
        offset: int = self._builder.CreateByteVector(data)
        return offset

    def numbers(self, values: Sequence[int], dtype: Literal["<u2", "<u4"]) -> int:
        offset: int = self._builder.CreateNumpyVector(np.array(values, dtype))
        return offset

    def offsets(self, values: Sequence[int]) -> int:
        """Writes a vector of tables, strings or vectors that are written already."""
        self._builder.StartVector(4, len(values), 4)
        for value in reversed(values):
            self._builder.PrependUOffsetTRelative(value)
        offset: int = self._builder.EndVector()
        return offset

    def table(self, offsets: Mapping[int, int], scalars: Mapping[int, tuple[_ScalarType, int]]) -> int:
        """Writes a table: by slot, the offsets of fields that are written already, and scalars."""
        self._builder.StartObject(1 + max([*offsets, *scalars], default=-1))
        for slot, value in offsets.items():
            self._builder.PrependUOffsetTRelativeSlot(slot, value, 0)
        for slot, (kind, number) in scalars.items():
            getattr(self._builder, f"Prepend{kind}Slot")(slot, number, 0)
        offset: int = self._builder.EndObject()
        return offset

    def finish(self, root: int) -> bytes:
        """Returns the bytes of a file with this root table."""
        self._builder.Finish(root)
        return bytes(self._builder.Output())

    def tree(self, tree: TreeDescription, what: str) -> int:
        kind = NODE_KIND_CODES.get(tree.kind)
        if kind is None:
            assert tree.type is not None
            raise SerializationError(
                f"{what}: JAX's format does not support {tree.type.__name__} unless it is registered there"
            )
        offsets = {}
        if tree.children:
            offsets[1] = self.offsets([self.tree(child, what) for child in tree.children])
        if tree.kind == "dict":
            keys = cast(tuple[object, ...], tree.metadata)
            names = [key for key in keys if isinstance(key, str)]
            if len(names) != len(keys):
                raise SerializationError(f"{what}: JAX's format supports only strings as dict keys, got {list(keys)!r}")
            if names:
                offsets[2] = self.offsets([self.string(name) for name in names])
        return self.table(offsets, {0: ("Int8", kind)})

    def aval(self, aval: ShapedArray) -> int:
        dtype = DTYPE_CODES.get(aval.dtype)
        if dtype is None:
            raise SerializationError(f"JAX's format does not support the dtype {dtypes.name(aval.dtype)}, of {aval}")
        shape = self.offsets([self.string(str(n)) for n in aval.shape])
        return self.table({1: shape}, {2: ("Int8", dtype), 3: ("Int8", _DEVICE_MEMORY_SPACE)})
