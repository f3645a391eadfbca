"""Which operations are done in a narrow dtype."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, final

from attrs import Attribute, field, frozen

from tracefx.control.checkpoint import Name
from tracefx.core import dtypes
from tracefx.core.dtypes import DType, DTypeLike
from tracefx.core.primitive import Primitive
from tracefx.ops.along_axis import Unstack
from tracefx.ops.arithmetic import Div, Max, Min, Mul, Neg, Sub
from tracefx.ops.barrier import OptimizationBarrier
from tracefx.ops.basis import BroadcastInDim, Reshape, Transpose
from tracefx.ops.comparison import Eq, Ge, Gt, Le, Lt, Ne
from tracefx.ops.complex import IsFinite
from tracefx.ops.contraction import DotGeneral
from tracefx.ops.convolution import ConvGeneralDilated
from tracefx.ops.cutting import Pad, Rev, Slice
from tracefx.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from tracefx.ops.elementwise import Add
from tracefx.ops.greatest import ApproxTopK, TopK
from tracefx.ops.indexing import Gather
from tracefx.ops.magnitude import Abs, Sign
from tracefx.ops.reduction import ArgMax, ArgMin, ReduceMax, ReduceMin
from tracefx.ops.scattering import Scatter
from tracefx.ops.selection import Clamp, SelectN, StopGradient
from tracefx.ops.shape import Concatenate, Split, Squeeze, Stack, Tile
from tracefx.ops.sorting import Sort
from tracefx.ops.transcendental import Logistic, Tanh
from tracefx.ops.window_reduction import ReduceWindowMax, ReduceWindowMin

Operations: TypeAlias = tuple[type[Primitive], ...]

CONTRACTIONS: Final[Operations] = (DotGeneral, ConvGeneralDilated)
MOVES: Final[Operations] = (
    *(Reshape, Transpose, BroadcastInDim, Squeeze, Concatenate, Stack, Split, Unstack, Tile, Slice, Pad, Rev),
    *(DynamicSlice, DynamicUpdateSlice, Gather, Scatter, Name, StopGradient, OptimizationBarrier),
)
EITHER: Final[Operations] = (
    *MOVES,
    # selecting and comparing them
    *(SelectN, Clamp, Max, Min, ReduceMax, ReduceMin, ArgMax, ArgMin, Eq, Ne, Lt, Le, Gt, Ge, IsFinite),
    *(Sort, TopK, ApproxTopK, ReduceWindowMax, ReduceWindowMin),
    # arithmetic without cancellation over many terms, and functions with bounds
    *(Add, Sub, Mul, Div, Neg, Abs, Sign, Tanh, Logistic),
)


def _dtype(given: DTypeLike) -> DType:
    return dtypes.as_dtype(given, "the dtype of a policy")


def _operations(given: Iterable[type[Primitive]]) -> Operations:
    return tuple(given)


def _require_float(policy: Policy, option: Attribute[DType], given: DType) -> None:
    if not dtypes.is_float(given) or dtypes.itemsize_bits(given) > 32:
        raise TypeError(f"Policy: {option.name} must be a float dtype of at most 32 bits, got {given}")


def _require_operations(policy: Policy, option: Attribute[Operations], given: Operations) -> None:
    classes: tuple[object, ...] = given
    for cls in classes:
        if not isinstance(cls, type) or not issubclass(cls, Primitive):
            raise TypeError(f"Policy: {option.name} must be classes of operations, got {cls!r}")


def _require_promotion(policy: Policy, option: Attribute[str], given: str) -> None:
    if given not in ("widest", "narrowest"):
        raise ValueError(f"Policy: promote must be 'widest' or 'narrowest', got {given!r}")


@final
@frozen
class Policy:
    """How `autocast` does a program of `float32`.

    `narrow` operations are done in the dtype `compute`. Those in `either` are done in it if all their operands of
    `float32` come from such operations or are numbers; where they meet others, the widest of the dtypes counts, or with
    `promote="narrowest"` `compute`. A bias, added to a contraction it is broadcast over, is part of it. All other
    operations are done in `float32`.

    Raises TypeError for a `compute` that is no float of at most 32 bits and for what is no operation, ValueError for
    another `promote`.

    >>> Policy("float16").compute
    dtype('float16')
    """

    compute: DType = field(converter=_dtype, validator=_require_float)
    narrow: Operations = field(default=CONTRACTIONS, converter=_operations, validator=_require_operations, repr=False)
    either: Operations = field(default=EITHER, converter=_operations, validator=_require_operations, repr=False)
    promote: Literal["widest", "narrowest"] = field(default="widest", validator=_require_promotion)


bfloat16: Final = Policy(dtypes.bfloat16)
float16: Final = Policy(dtypes.float16)
