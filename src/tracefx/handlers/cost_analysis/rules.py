"""`COST_RULES`, the cost of one execution of each primitive; the nearest base class with a rule decides."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar, cast, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx import ops
from tracefx.control.checkpoint import CheckpointName
from tracefx.control.special.formula import ElementwiseFormula
from tracefx.core import DType, ShapedArray, dtypes
from tracefx.core.primitive import Primitive, missing_rule_error
from tracefx.handlers.cost_analysis.linalg_flops import LINALG_FLOPS, linalg_flops
from tracefx.ops.elementwise.elementwise import Elementwise
from tracefx.ops.elementwise.transcendental import ReciprocalDerivative, Transcendental
from tracefx.ops.fourier import FftType
from tracefx.ops.indexing.gather_scatter_add import ScatterOperation
from tracefx.ops.indexing.indexed_windows import GatherScatterMode
from tracefx.ops.indexing.top_k import TopKOperation
from tracefx.ops.linalg.lapack import MatrixOperation
from tracefx.ops.reductions.cumulative import Cumulative
from tracefx.ops.reductions.reduction import ArgExtremum, Reduction
from tracefx.ops.reductions.window_reduction import WindowReduction

Q = TypeVar("Q", bound=Primitive)
Avals: TypeAlias = Sequence[ShapedArray]


@final
@frozen
class OperationCost:
    """The cost of one execution of a primitive.

    Attributes:
        flops: operations on floats or complex numbers.
        transcendentals: transcendental functions.
        integer_ops: operations on integers and booleans only.
        bytes_read: bytes of operands read; with None, those of all operands.
        bytes_written: bytes of results written; with None, those of all results.

    >>> OperationCost(flops=3)
    OperationCost(flops=3, transcendentals=0, integer_ops=0, bytes_read=None, bytes_written=None)
    """

    flops: int = 0
    transcendentals: int = 0
    integer_ops: int = 0
    bytes_read: int | None = None
    bytes_written: int | None = None


class Costed:
    """A capability of primitives: they define their own cost.

    >>> from tracefx.extend import bind1
    >>> from tracefx.handlers import count
    >>> class Cube(Primitive, Costed):
    ...     name = "cube"
    ...     def abstract_eval(self, x):
    ...         return [x]
    ...     def cost(self, in_avals, out_avals):
    ...         return OperationCost(flops=2 * out_avals[0].size)
    >>> count(lambda x: bind1(Cube(), x))(2.0).total.flops
    2
    """

    __slots__ = ()

    @abstractmethod
    def cost(self, in_avals: Avals, out_avals: Avals) -> OperationCost:
        """Returns the cost of one execution for operands and results of these shapes and dtypes.

        Args:
            in_avals: The types of the operands.
            out_avals: The types of the results.

        Returns:
            The cost.
        """
        raise missing_rule_error(self, "cost", "define cost(self, in_avals, out_avals)")


CostRule: TypeAlias = Callable[[Primitive, Avals, Avals], OperationCost]
"""Called with a primitive and the shapes and dtypes of its operands and results."""


@final
@frozen(eq=False, repr=False)
class CostRules:
    """An immutable table of cost rules by primitive class.

    A class without a rule inherits that of its nearest base class with one; being `Costed` counts as having a rule.

    >>> from tracefx.ops import Sin
    >>> rules = CostRules().adding(Sin, lambda prim, operands, results: OperationCost(flops=20 * results[0].size))
    >>> import tracefx.numpy as fnp
    >>> from tracefx.handlers import count
    >>> count(fnp.sin, rules=rules)(fnp.ones(5)).total.flops
    100
    """

    _rules: Mapping[type[Primitive], CostRule] = field(default=MappingProxyType({}))

    def adding(self, kind: Callable[..., Q], rule: Callable[[Q, Avals, Avals], OperationCost]) -> CostRules:
        """Returns the table with a rule for a primitive class, replacing the class's own rule if there is one.

        Args:
            kind: the primitive class.
            rule: called with the primitive and the shapes and dtypes of its operands and results; returns an
                `OperationCost`.

        Returns:
            A new table.

        Raises:
            TypeError: if `kind` is not a subclass of `Primitive`.

        >>> from tracefx.ops.elementwise.elementwise import Add
        >>> free = COST_RULES.adding(Add, lambda add, in_avals, out_avals: OperationCost())
        >>> free.rule_for(Add) is COST_RULES.rule_for(Add)
        False
        """
        if not (isinstance(kind, type) and issubclass(kind, Primitive)):
            raise TypeError(f"a cost rule needs a subclass of Primitive, got {kind!r}")
        return CostRules(MappingProxyType({**self._rules, kind: cast(CostRule, rule)}))

    def rule_for(self, kind: type[Primitive]) -> CostRule | None:
        """Returns the rule for a primitive class, or None.

        Args:
            kind: The class; rules of its base classes apply to it.

        Returns:
            The rule of the nearest base class that has one; None if there is none.
        """
        for base in kind.__mro__:
            rule = self._rules.get(base)
            if rule is not None:
                return rule
            if "cost" in vars(base) and issubclass(base, Costed) and base is not Costed:
                return _own_cost
        return None

    @override
    def __repr__(self) -> str:
        names = [kind.__name__ for kind in self._rules]
        others = [f"{len(names) - 3} more"] if len(names) > 4 else names[3:]
        return f"<{type(self).__name__} for {', '.join([*names[:3], *others])}>"


def _own_cost(prim: Primitive, ins: Avals, outs: Avals) -> OperationCost:
    assert isinstance(prim, Costed)
    cost = prim.cost(ins, outs)
    if not isinstance(cost, OperationCost):
        raise TypeError(f"{type(prim).__name__}.cost must return an OperationCost, got {cost!r}")
    return cost


# ------------------------------------------------------------------ operations per number

DATA_MOVEMENT_COST: Final = OperationCost()
"""The cost of reading all operands and writing all results without computing anything."""
ZERO_COST: Final = OperationCost(bytes_read=0, bytes_written=0)
"""The cost of a view: the result shares the operand's memory."""


def real_components(dtype: DType) -> int:
    """Returns the number of real components of a number: 2 if complex, else 1."""
    return 2 if dtypes.is_complex(dtype) else 1


def product_flops(dtype: DType) -> int:
    """Returns the real operations in the product of two numbers."""
    return 6 if dtypes.is_complex(dtype) else 1


def quotient_flops(dtype: DType) -> int:
    """Returns the real operations in `a / b`: `a` times the conjugate of `b`, divided by `|b|**2`."""
    return 11 if dtypes.is_complex(dtype) else 1


def arithmetic_cost(count: int, *avals: ShapedArray) -> OperationCost:
    """Returns the cost of `count` operations: flops if any of the types is inexact, else integer operations."""
    if any(dtypes.is_inexact(a.dtype) for a in avals):
        return OperationCost(flops=count)
    return OperationCost(integer_ops=count)


def complex_or_first_dtype(avals: Avals) -> DType:
    """Returns the dtype of the first complex operand, or of the first operand if none is complex."""
    return next((a.dtype for a in avals if dtypes.is_complex(a.dtype)), avals[0].dtype)


def is_bitcast(prim: Primitive, x: ShapedArray, out: ShapedArray) -> bool:
    """Returns whether a conversion or broadcast keeps the data: it only drops a weak type or adds axes of size 1."""
    return (type(prim) is ops.BroadcastInDim and out.size == x.size) or (
        type(prim) is ops.ConvertElementType and out.dtype == x.dtype
    )


# ------------------------------------------------------------------ rules of families


def _data_movement(prim: Primitive, ins: Avals, outs: Avals) -> OperationCost:
    return DATA_MOVEMENT_COST


def _free(prim: Primitive, ins: Avals, outs: Avals) -> OperationCost:
    return ZERO_COST


def _elementwise(prim: Primitive, ins: Avals, outs: Avals) -> OperationCost:
    return arithmetic_cost(outs[0].size * real_components(complex_or_first_dtype(ins)), *ins, *outs)


def _transcendental(prim: Primitive, ins: Avals, outs: Avals) -> OperationCost:
    return OperationCost(transcendentals=outs[0].size * real_components(outs[0].dtype))


def _exp2(prim: ops.Exp2, ins: Avals, outs: Avals) -> OperationCost:
    """The exponential of a multiple of the operand: one product, one exponential."""
    n = outs[0].size * real_components(outs[0].dtype)
    return OperationCost(flops=n, transcendentals=n)


def _logistic(prim: ops.Logistic, ins: Avals, outs: Avals) -> OperationCost:
    """`1 / (1 + exp(-x))`."""
    n, dtype = outs[0].size, outs[0].dtype
    return OperationCost(
        flops=n * (2 * real_components(dtype) + quotient_flops(dtype)), transcendentals=n * real_components(dtype)
    )


def _mul(prim: Primitive, ins: Avals, outs: Avals) -> OperationCost:
    return arithmetic_cost(outs[0].size * product_flops(outs[0].dtype), *outs)


def _div(prim: ops.Div, ins: Avals, outs: Avals) -> OperationCost:
    return arithmetic_cost(outs[0].size * quotient_flops(outs[0].dtype), *outs)


def _integer_pow(prim: ops.IntegerPow, ins: Avals, outs: Avals) -> OperationCost:
    """Repeated squaring, and one division for a negative exponent."""
    (out,) = outs
    y = abs(prim.y)
    products = y.bit_length() - 1 + y.bit_count() - 1 if y else 0  # squarings, then products of the needed squares
    each = products * product_flops(out.dtype) + (quotient_flops(out.dtype) if prim.y < 0 else 0)
    return arithmetic_cost(out.size * each, out)


def _equal(prim: Primitive, ins: Avals, outs: Avals) -> OperationCost:
    """Complex numbers are compared by component, and the two results combined."""
    return arithmetic_cost(outs[0].size * (3 if dtypes.is_complex(ins[0].dtype) else 1), *ins)


def _abs(prim: ops.Abs, ins: Avals, outs: Avals) -> OperationCost:
    if not dtypes.is_complex(ins[0].dtype):
        return arithmetic_cost(outs[0].size, *ins)
    return OperationCost(flops=3 * outs[0].size, transcendentals=outs[0].size)


def _sign(prim: ops.Sign, ins: Avals, outs: Avals) -> OperationCost:
    if not dtypes.is_complex(ins[0].dtype):
        return arithmetic_cost(outs[0].size, *ins)
    return OperationCost(flops=5 * outs[0].size, transcendentals=outs[0].size)


def _conj(prim: ops.Conj, ins: Avals, outs: Avals) -> OperationCost:
    return OperationCost(flops=ins[0].size if dtypes.is_complex(ins[0].dtype) else 0)


def _convert(prim: ops.ConvertElementType, ins: Avals, outs: Avals) -> OperationCost:
    if is_bitcast(prim, ins[0], outs[0]):
        return ZERO_COST
    return arithmetic_cost(outs[0].size * real_components(outs[0].dtype), *ins, *outs)


def _broadcast(prim: ops.BroadcastInDim, ins: Avals, outs: Avals) -> OperationCost:
    return ZERO_COST if is_bitcast(prim, ins[0], outs[0]) else DATA_MOVEMENT_COST


def _select(prim: ops.SelectN, ins: Avals, outs: Avals) -> OperationCost:
    """One selection per case but the first; with more than two cases also as many comparisons of the index."""
    index, *cases = ins
    selections = arithmetic_cost((len(cases) - 1) * outs[0].size * real_components(outs[0].dtype), *outs)
    comparisons = (len(cases) - 1) * index.size if len(cases) > 2 else 0
    return OperationCost(selections.flops, 0, selections.integer_ops + comparisons)


def _reduction(prim: Primitive, ins: Avals, outs: Avals) -> OperationCost:
    """One operation for each element that is folded into another."""
    dtype = ins[0].dtype
    each = product_flops(dtype) if isinstance(prim, ops.ReduceProd) else real_components(dtype)
    return arithmetic_cost(max(ins[0].size - outs[0].size, 0) * each, *ins)


def _cumulative(prim: Cumulative, ins: Avals, outs: Avals) -> OperationCost:
    """One operation for each element after the first along the axis."""
    (x,) = ins
    steps = x.size - x.size // x.shape[prim.axis] if x.size else 0
    if isinstance(prim, ops.CumLogSumExp):
        return OperationCost(flops=8 * steps, transcendentals=2 * steps)
    return arithmetic_cost(
        steps * (product_flops(x.dtype) if isinstance(prim, ops.CumProd) else real_components(x.dtype)), x
    )


def _reduce_window(prim: WindowReduction, ins: Avals, outs: Avals) -> OperationCost:
    """One operation for each element of a window after its first."""
    return arithmetic_cost(outs[0].size * (prim.windows.size - 1) * real_components(outs[0].dtype), *outs)


def _select_and_gather_add(prim: ops.SelectAndGatherAdd, ins: Avals, outs: Avals) -> OperationCost:
    """One comparison and two selections for each element of a window after its first."""
    return arithmetic_cost(3 * outs[0].size * (prim.windows.size - 1), *ins)


def _select_and_scatter_add(prim: ops.SelectAndScatterAdd, ins: Avals, outs: Avals) -> OperationCost:
    """One comparison for each element of a window after its first, and one addition per window."""
    return arithmetic_cost(ins[0].size * prim.windows.size, *ins)


def _dot(prim: ops.DotGeneral, ins: Avals, outs: Avals) -> OperationCost:
    """One product and one sum for each element of the result and each contracted index."""
    (lhs, _), (out,) = ins, outs
    (contracted, _), _ = prim.dimension_numbers
    count = out.size
    for axis in contracted:
        count *= lhs.shape[axis]
    return arithmetic_cost(count * (product_flops(out.dtype) + real_components(out.dtype)), *ins, out)


def _sort(prim: ops.Sort, ins: Avals, outs: Avals) -> OperationCost:
    """Merge sort along the dimension: each element is compared once per halving, by all keys."""
    keys = ins[: prim.num_keys]
    x = ins[0]
    halvings = max(x.shape[prim.dimension] - 1, 0).bit_length()
    return arithmetic_cost(x.size * halvings * sum(real_components(key.dtype) for key in keys), *keys)


def _top_k(prim: TopKOperation, ins: Avals, outs: Avals) -> OperationCost:
    """Each element is compared with the current top k by binary search."""
    (x,), axis = ins, prim.resolve_axis(ins[0].ndim)
    return arithmetic_cost(x.size * outs[0].shape[axis].bit_length(), x)


def _convolution(prim: ops.ConvGeneralDilated, ins: Avals, outs: Avals) -> OperationCost:
    """One product and one sum for each element of the result and each element of its window outside of the padding."""
    (lhs, rhs), (out,) = ins, outs
    (_, _, *spatial), (_, features, *window), (_, _, *out_spatial) = prim.dimension_numbers
    count = out.size * rhs.shape[features]
    for i, (x, y, z) in enumerate(zip(spatial, window, out_spatial, strict=True)):
        starts = np.arange(out.shape[z]) * prim.window_strides[i] - prim.padding[i][0]
        position, remainder = np.divmod(
            starts[:, None] + np.arange(rhs.shape[y]) * prim.rhs_dilation[i], prim.lhs_dilation[i]
        )
        valid = int(np.count_nonzero((remainder == 0) & (position >= 0) & (position < lhs.shape[x])))
        count = count // out.shape[z] * valid if out.shape[z] else 0
    return arithmetic_cost(count * (product_flops(out.dtype) + real_components(out.dtype)), *ins, out)


def _linalg(prim: MatrixOperation, ins: Avals, outs: Avals) -> OperationCost:
    return OperationCost(flops=linalg_flops(prim, ins))


# ------------------------------------------------------------------ rules of operations that access part of an operand


def _slice(prim: Primitive, ins: Avals, outs: Avals) -> OperationCost:
    """Reads the slice and the start indices."""
    size = sum(o.nbytes for o in outs)
    return OperationCost(bytes_read=size + sum(a.nbytes for a in ins[1:]), bytes_written=size)


def _update(prim: ops.DynamicUpdateSlice, ins: Avals, outs: Avals) -> OperationCost:
    """Updates in place: reads and writes only the update."""
    return OperationCost(bytes_read=sum(a.nbytes for a in ins[1:]), bytes_written=ins[1].nbytes)


def _gather(prim: ops.Gather, ins: Avals, outs: Avals) -> OperationCost:
    """The mode `fill` compares each index with its bounds and selects between the element and the fill value."""
    moved = _slice(prim, ins, outs)
    if prim.mode is not GatherScatterMode.FILL_OR_DROP:
        return moved
    indices = ins[1]
    windows = indices.size // indices.shape[-1] if indices.size else 0
    comparisons = 3 * indices.size + max(indices.size - windows, 0)
    selections = arithmetic_cost(outs[0].size * real_components(outs[0].dtype), *outs)
    return OperationCost(
        selections.flops,
        0,
        selections.integer_ops + comparisons,
        bytes_read=moved.bytes_read,
        bytes_written=moved.bytes_written,
    )


def _fft(prim: ops.Fft, ins: Avals, outs: Avals) -> OperationCost:
    """`5 n log2(n)` operations per transform, as is usual; half of that if one side is real."""
    count = math.prod(prim.fft_lengths)
    if not count or not ins[0].size:
        return DATA_MOVEMENT_COST
    real = ins[0] if prim.fft_type is FftType.RFFT else outs[0]
    halves = 1 if prim.fft_type in (FftType.RFFT, FftType.IRFFT) else 2
    return OperationCost(round(2.5 * halves * real.size * math.log2(count)))


def _scatter(prim: ScatterOperation, ins: Avals, outs: Avals) -> OperationCost:
    """Updates in place: one operation for each update that is combined with an element."""
    _, indices, updates = ins
    merges = not isinstance(prim, ops.Scatter)
    each = product_flops(updates.dtype) if isinstance(prim, ops.ScatterMul) else real_components(updates.dtype)
    merged = arithmetic_cost(updates.size * each if merges else 0, updates)
    clipped = indices.size if prim.mode is GatherScatterMode.CLIP else 0
    return OperationCost(
        merged.flops,
        0,
        merged.integer_ops + clipped,
        bytes_read=indices.nbytes + updates.nbytes * (1 + merges),
        bytes_written=updates.nbytes,
    )


def _threefry(prim: ops.Threefry2x32, ins: Avals, outs: Avals) -> OperationCost:
    """Twenty rounds of five operations, the key schedule, and six additions of key words, five with a counter."""
    return OperationCost(integer_ops=outs[0].size * (20 * 5 + 6 * 2 + 5 + 2))


_SHARED_RULES: Final[
    tuple[tuple[Callable[[Primitive, Avals, Avals], OperationCost], tuple[type[Primitive], ...]], ...]
] = (
    (
        _free,
        (ops.Reshape, ops.Squeeze, ops.StopGradient, ops.BitcastConvertType, ops.OptimizationBarrier, CheckpointName),
    ),
    (_free, (ops.RandomWrap, ops.RandomUnwrap, ops.RandomClone)),
    (_data_movement, (ops.Real, ops.Imag, ops.Complex)),
    (_elementwise, (Elementwise, ops.ReducePrecision)),
    (
        _transcendental,
        (Transcendental, ReciprocalDerivative, ops.Polygamma, ops.Zeta, ElementwiseFormula, ops.Atan2, ops.Pow),
    ),
    (_mul, (ops.Mul, ops.Square)),
    (_equal, (ops.Eq, ops.Ne)),
    (_reduction, (Reduction, ops.ReduceSum, ArgExtremum)),
    (_slice, (ops.Slice, ops.DynamicSlice, ops.Split, ops.Unstack)),
)


def _rules() -> CostRules:
    rules = CostRules()
    for rule, kinds in _SHARED_RULES:
        for kind in kinds:
            rules = rules.adding(kind, rule)
    for matrix_operation in LINALG_FLOPS:
        rules = rules.adding(matrix_operation, _linalg)
    return (
        rules.adding(ops.Exp2, _exp2)
        .adding(ops.Logistic, _logistic)
        .adding(ops.Div, _div)
        .adding(ops.IntegerPow, _integer_pow)
        .adding(ops.Abs, _abs)
        .adding(ops.Sign, _sign)
        .adding(ops.Conj, _conj)
        .adding(ops.ConvertElementType, _convert)
        .adding(ops.BroadcastInDim, _broadcast)
        .adding(ops.SelectN, _select)
        .adding(Cumulative, _cumulative)
        .adding(ops.DotGeneral, _dot)
        .adding(ops.ConvGeneralDilated, _convolution)
        .adding(ops.Sort, _sort)
        .adding(TopKOperation, _top_k)
        .adding(WindowReduction, _reduce_window)
        .adding(ops.SelectAndGatherAdd, _select_and_gather_add)
        .adding(ops.SelectAndScatterAdd, _select_and_scatter_add)
        .adding(ops.DynamicUpdateSlice, _update)
        .adding(ops.Fft, _fft)
        .adding(ops.Gather, _gather)
        .adding(ScatterOperation, _scatter)
        .adding(ops.Threefry2x32, _threefry)
    )


COST_RULES: Final = _rules()
"""The cost rules of tracefx's primitives. One without a rule costs reading its operands and writing its results."""
