"""Encoder of exported functions in the FlatBuffers format of `jax.export`: its table slots and its numbers.

It writes serialization version 3, which all later versions of JAX read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType
from tracefx.errors import SerializationError
from tracefx.pytrees.registry import TreeDef
from tracefx.pytrees.structures import NodeKind, TreeDescription, describe
from tracefx.serialization.flatbuffers import Table, UInt, UIntVector, encode_flatbuffer

_SERIALIZATION_VERSION: Final = 3
_CALLING_CONVENTION: Final = 9
_NODE_KIND_CODES: Final[Mapping[NodeKind, int]] = {"leaf": 0, "none": 1, "tuple": 2, "list": 3, "dict": 4}
_DTYPE_CODES: Final[Mapping[DType, int]] = {
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
    dtypes.float8_e4m3: 23,
    dtypes.float8_e3m4: 24,
    dtypes.float8_e8m0fnu: 25,
    dtypes.float4_e2m1fn: 26,
    dtypes.key_fry: 27,
    dtypes.key_rbg: 28,
    dtypes.key_urbg: 29,
}
_DEVICE_MEMORY_SPACE: Final = 1


def encode_jax_export(
    name: str,
    trees: tuple[TreeDef, TreeDef],
    avals: tuple[Sequence[ShapedArray], Sequence[ShapedArray]],
    platforms: Sequence[str],
    module: bytes,
    kept: Sequence[int],
    devices: int = 1,
) -> bytes:
    """Returns bytes for `jax.export.deserialize`; `trees` and `avals` are those of the arguments and of the result."""
    (in_tree, out_tree), (ins, outs) = trees, avals
    unique = list(dict.fromkeys([a.strong() for a in (*ins, *outs)]))
    numbers = {aval: i for i, aval in enumerate(unique)}
    unspecified = Table({})
    return encode_flatbuffer(
        Table(
            {
                0: UInt(_SERIALIZATION_VERSION, 2),
                1: name,
                2: _tree_table(describe(in_tree), f"the arguments of {name}"),
                3: [_aval_table(a) for a in ins],
                4: _tree_table(describe(out_tree), f"the result of {name}"),
                5: [_aval_table(a) for a in outs],
                7: [unspecified for _ in ins],
                8: [unspecified for _ in outs],
                9: list(platforms),
                10: UIntVector((), 4),  # ordered effects
                11: UIntVector((), 4),  # other effects
                12: UIntVector((), 4),  # disabled checks
                13: module,
                14: UInt(_CALLING_CONVENTION, 2),
                15: UIntVector(kept, 2),
                16: UInt(len(platforms) > 1, 1),  # whether the module takes a platform index
                18: UInt(devices, 4),
                19: [_aval_table(a) for a in unique],
                20: UIntVector((), 4),  # meshes
                21: UIntVector((), 4),  # shardings
                22: UIntVector([numbers[a.strong()] for a in ins], 4),
                23: UIntVector([numbers[a.strong()] for a in outs], 4),
                24: UIntVector([0 for _ in ins], 4),
                25: UIntVector([0 for _ in outs], 4),
            }
        )
    )


def _tree_table(tree: TreeDescription, what: str) -> Table:
    kind = _NODE_KIND_CODES.get(tree.kind)
    if kind is None:
        assert tree.type is not None
        raise SerializationError(
            f"{what}: JAX's format does not support {tree.type.__name__} unless it is registered there"
        )
    names = None
    if tree.kind == "dict":
        keys = cast(tuple[object, ...], tree.metadata)
        if not all(isinstance(key, str) for key in keys):
            raise SerializationError(f"{what}: JAX's format supports only strings as dict keys, got {list(keys)!r}")
        names = [str(key) for key in keys]
    return Table({0: UInt(kind, 1), 1: [_tree_table(c, what) for c in tree.children] or None, 2: names or None})


def _aval_table(aval: ShapedArray) -> Table:
    dtype = _DTYPE_CODES.get(aval.dtype)
    if dtype is None:
        raise SerializationError(f"JAX's format does not support the dtype {dtypes.name(aval.dtype)}, of {aval}")
    return Table({0: UInt(0, 1), 1: [str(n) for n in aval.shape], 2: UInt(dtype, 1), 3: UInt(_DEVICE_MEMORY_SPACE, 1)})
