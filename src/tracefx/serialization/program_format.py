"""What writing and reading a program's bytes share: the limits, the sorts of values, numbers packed in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np

from tracefx.core import dtypes
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.primitive import Primitive
from tracefx.text.printer import DTYPES_BY_NAME

Vocabulary: TypeAlias = Mapping[str, type[Primitive]]

PROGRAM_MAGIC: Final = b"tracefx program\n"
PROGRAM_VERSION: Final = 1
PROGRAM_DESCRIPTION: Final = "a serialized program"

MAX_VALUE_DEPTH: Final = 100
"""How deep parameters may stand in each other."""
MAX_NESTING: Final = 200
"""How deep programs may stand in each other."""
MAX_AXES: Final = 64
"""NumPy has no arrays of more."""
MAX_SET_SIZE: Final = 1024
"""How many elements a set may have: hostile ones collide."""
MAX_BIG_INTS: Final = 64
"""How many integers beyond 64 bits operations may hold: such can be made to collide where axes are looked up."""
MAX_EFFECTS: Final = 64
"""How many effects a program may have: what calls it asks for each of them."""
MAX_SHARED_BYTES: Final = 256
"""The bytes of the longest operation that is written once for several equations: checking it again takes that long."""
SIZE_LIMIT: Final = 1 << 63
"""Above those of axes."""
DTYPE_NAMES: Final[Mapping[DType, str]] = {dtype: name for name, dtype in DTYPES_BY_NAME.items()}


class Tag(IntEnum):
    """What a value is."""

    NONE = 0
    FALSE = 1
    TRUE = 2
    INT = 3
    LONG = 4
    FLOAT = 5
    COMPLEX = 6
    STRING = 7
    BYTES = 8
    DTYPE = 9
    TUPLE = 10
    SET = 11
    TYPE = 12
    LITERAL = 13
    PROGRAM = 14
    OPERATION = 15
    RECORD = 16
    MEMBER = 17
    TREE = 18
    SHOWN = 19


def packed_bits(dtype: DType) -> int:
    """The bits of an element, where several share a byte; else 0."""
    bits = dtypes.itemsize_bits(dtype)
    return bits if bits in (2, 4) else 0


def pack(host: NDArray, bits: int) -> NDArray:
    """Numbers of 2 or 4 bits, the first in the lowest bits of each byte."""
    each = 8 // bits
    low = np.zeros(-(-host.size // each) * each, np.uint8)
    low[: host.size] = host.reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    places = np.arange(each, dtype=np.uint8) * bits
    packed: NDArray = np.bitwise_or.reduce(low.reshape(-1, each) << places, axis=1).astype(np.uint8)
    return packed


def unpack(packed: NDArray, bits: int) -> NDArray:
    places = np.arange(8 // bits, dtype=np.uint8) * bits
    low: NDArray = ((packed[:, None] >> places) & ((1 << bits) - 1)).reshape(-1)
    return low
