"""`Policy`: which operations `autocast` computes in a narrow dtype."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, final

from attrs import Attribute, field, frozen

from tracefx.control.checkpoint import CheckpointName
from tracefx.core import DType, DTypeLike, dtypes
from tracefx.core.primitive import Primitive
from tracefx.ops.annotations.optimization_barrier import OptimizationBarrier
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.contractions.convolution import ConvGeneralDilated
from tracefx.ops.elementwise.abs_sign import Abs, Sign
from tracefx.ops.elementwise.arithmetic import Div, Max, Min, Mul, Neg, Sub
from tracefx.ops.elementwise.comparison import Eq, Ge, Gt, Le, Lt, Ne
from tracefx.ops.elementwise.complex import IsFinite
from tracefx.ops.elementwise.elementwise import Add
from tracefx.ops.elementwise.hyperbolic import Tanh
from tracefx.ops.elementwise.selection import Clamp, SelectN, StopGradient
from tracefx.ops.elementwise.transcendental import Logistic
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
"""Operations that sum many products."""
DATA_MOVEMENT: Final[PrimitiveClasses] = (
    *(Reshape, Transpose, BroadcastInDim, Squeeze, Concatenate, Stack, Split, Unstack, Tile, Slice, Pad, Rev),
    *(DynamicSlice, DynamicUpdateSlice, Gather, Scatter, CheckpointName, StopGradient, OptimizationBarrier),
)
"""Operations that only move, copy or replace elements."""
EITHER: Final[PrimitiveClasses] = (
    *DATA_MOVEMENT,
    # selections and comparisons
    *(SelectN, Clamp, Max, Min, ReduceMax, ReduceMin, ArgMax, ArgMin, Eq, Ne, Lt, Le, Gt, Ge, IsFinite),
    *(Sort, TopK, ApproxTopK, ReduceWindowMax, ReduceWindowMin),
    # arithmetic without cancellation over many terms, and bounded functions
    *(Add, Sub, Mul, Div, Neg, Abs, Sign, Tanh, Logistic),
)
"""The operations that are computed in the dtype of their operands, by default."""


def _as_policy_dtype(dtype: DTypeLike) -> DType:
    return dtypes.as_dtype(dtype, "the dtype of a policy")


def _operations(operations: Iterable[type[Primitive]]) -> PrimitiveClasses:
    return tuple(operations)


def _require_float(policy: Policy, option: Attribute[DType], dtype: DType) -> None:
    if not dtypes.is_float(dtype) or dtypes.itemsize_bits(dtype) > 32:
        raise TypeError(f"Policy: {option.name} must be a float dtype of at most 32 bits, got {dtype}")


def _require_operations(policy: Policy, option: Attribute[PrimitiveClasses], operations: PrimitiveClasses) -> None:
    classes: tuple[object, ...] = operations
    for cls in classes:
        if not isinstance(cls, type) or not issubclass(cls, Primitive):
            raise TypeError(f"Policy: {option.name} must be classes of operations, got {cls!r}")


def _require_promotion(policy: Policy, option: Attribute[str], promote: str) -> None:
    if promote not in ("widest", "narrowest"):
        raise ValueError(f"Policy: promote must be 'widest' or 'narrowest', got {promote!r}")


@final
@frozen
class Policy:
    """The rules by which `autocast` computes a `float32` program.

    Operations in `narrow` are computed in the dtype `compute`. Those in `either` are computed in it if all their
    `float32` operands are results of narrow operations or Python numbers; with mixed operands they are computed in the
    wider dtype, or with `promote="narrowest"` in `compute`. A bias that is added to a contraction and broadcast over it
    counts as part of the contraction. All other operations are computed in `float32`.

    Attributes:
        compute: the narrow dtype, a float of at most 32 bits.
        narrow: the primitive classes that are always computed in `compute`; by default contractions and convolutions.
        either: the primitive classes that follow their operands; by default data movement, comparisons, selections,
            basic arithmetic and bounded functions.
        promote: what to do with mixed operands, `"widest"` or `"narrowest"`.

    Raises:
        TypeError: if `compute` is no float of at most 32 bits, or `narrow` or `either` has something else than
            primitive classes.
        ValueError: if `promote` is neither of the two.

    >>> Policy("float16").compute
    dtype('float16')
    """

    compute: DType = field(converter=_as_policy_dtype, validator=_require_float)
    narrow: PrimitiveClasses = field(
        factory=lambda: CONTRACTIONS, converter=_operations, validator=_require_operations, repr=False
    )
    either: PrimitiveClasses = field(
        factory=lambda: EITHER, converter=_operations, validator=_require_operations, repr=False
    )
    promote: Literal["widest", "narrowest"] = field(default="widest", validator=_require_promotion)


bfloat16: Final = Policy(dtypes.bfloat16)
"""The default policy for `bfloat16`."""
float16: Final = Policy(dtypes.float16)
"""The default policy for `float16`; its narrow range usually needs a loss scale."""
