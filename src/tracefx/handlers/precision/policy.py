"""Which operations are done in a narrow dtype."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, final

from attrs import Attribute, field, frozen

from tracefx.control.checkpoint import CheckpointName
from tracefx.core import dtypes
from tracefx.core.dtypes import DType, DTypeLike
from tracefx.core.primitive import Primitive
from tracefx.ops.annotations.optimization_barrier import OptimizationBarrier
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.contractions.convolution import ConvGeneralDilated
from tracefx.ops.elementwise.abs_sign import Abs, Sign
from tracefx.ops.elementwise.arithmetic import Div, Max, Min, Mul, Neg, Sub
from tracefx.ops.elementwise.comparison import Eq, Ge, Gt, Le, Lt, Ne
from tracefx.ops.elementwise.complex import IsFinite
from tracefx.ops.elementwise.elementwise import Add
from tracefx.ops.elementwise.selection import Clamp, SelectN, StopGradient
from tracefx.ops.elementwise.transcendental import Logistic, Tanh
from tracefx.ops.indexing.along_axis import Unstack
from tracefx.ops.indexing.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from tracefx.ops.indexing.gather_scatter_add import Gather
from tracefx.ops.indexing.scatter import Scatter
from tracefx.ops.indexing.sorting import Sort
from tracefx.ops.indexing.top_k import ApproxTopK, TopK
from tracefx.ops.reductions.reduction import ArgMax, ArgMin, ReduceMax, ReduceMin
from tracefx.ops.reductions.window_reduction import ReduceWindowMax, ReduceWindowMin
from tracefx.ops.shape.shape import Concatenate, Split, Squeeze, Stack, Tile
from tracefx.ops.shape.slicing import Pad, Rev, Slice
from tracefx.ops.structural import BroadcastInDim, Reshape, Transpose

PrimitiveClasses: TypeAlias = tuple[type[Primitive], ...]

CONTRACTIONS: Final[PrimitiveClasses] = (DotGeneral, ConvGeneralDilated)
DATA_MOVEMENT: Final[PrimitiveClasses] = (
    *(Reshape, Transpose, BroadcastInDim, Squeeze, Concatenate, Stack, Split, Unstack, Tile, Slice, Pad, Rev),
    *(DynamicSlice, DynamicUpdateSlice, Gather, Scatter, CheckpointName, StopGradient, OptimizationBarrier),
)
EITHER: Final[PrimitiveClasses] = (
    *DATA_MOVEMENT,
    # selecting and comparing them
    *(SelectN, Clamp, Max, Min, ReduceMax, ReduceMin, ArgMax, ArgMin, Eq, Ne, Lt, Le, Gt, Ge, IsFinite),
    *(Sort, TopK, ApproxTopK, ReduceWindowMax, ReduceWindowMin),
    # arithmetic without cancellation over many terms, and functions with bounds
    *(Add, Sub, Mul, Div, Neg, Abs, Sign, Tanh, Logistic),
)


def _as_policy_dtype(given: DTypeLike) -> DType:
    return dtypes.as_dtype(given, "the dtype of a policy")


def _operations(given: Iterable[type[Primitive]]) -> PrimitiveClasses:
    return tuple(given)


def _require_float(policy: Policy, option: Attribute[DType], given: DType) -> None:
    if not dtypes.is_float(given) or dtypes.itemsize_bits(given) > 32:
        raise TypeError(f"Policy: {option.name} must be a float dtype of at most 32 bits, got {given}")


def _require_operations(policy: Policy, option: Attribute[PrimitiveClasses], given: PrimitiveClasses) -> None:
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

    compute: DType = field(converter=_as_policy_dtype, validator=_require_float)
    narrow: PrimitiveClasses = field(
        default=CONTRACTIONS, converter=_operations, validator=_require_operations, repr=False
    )
    either: PrimitiveClasses = field(default=EITHER, converter=_operations, validator=_require_operations, repr=False)
    promote: Literal["widest", "narrowest"] = field(default="widest", validator=_require_promotion)


bfloat16: Final = Policy(dtypes.bfloat16)
float16: Final = Policy(dtypes.float16)
