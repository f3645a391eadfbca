"""The handler of `checkify` and the checks that it adds to operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Never, TypeAlias, final

from attrs import frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.control.callback import CallbackPrimitive
from tracefx.control.sow import Sow
from tracefx.core import Literal, Shape, ShapedArray, Value, dtypes
from tracefx.core.handler import bind
from tracefx.core.jaxpr import HasSubjaxprs
from tracefx.core.primitive import Primitive
from tracefx.extend import here
from tracefx.handlers.checking.check_sites import ErrorKind, NotANumber, OutOfBounds, ZeroDivision
from tracefx.handlers.checking.errors import Check, Error, bind_check, first_true
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.ops.annotations.identity import Identity
from tracefx.ops.annotations.optimization_barrier import OptimizationBarrier
from tracefx.ops.collectives.collective import AllReduce, PSum
from tracefx.ops.elementwise.abs_sign import Abs, Sign
from tracefx.ops.elementwise.arithmetic import BinaryExtremum, Div, Neg, Rem
from tracefx.ops.elementwise.atan2_nextafter import NextAfter
from tracefx.ops.elementwise.bit_representation import BitcastConvertType, ReducePrecision
from tracefx.ops.elementwise.bitwise import bitwise_or
from tracefx.ops.elementwise.comparison import eq, gt, lt, ne
from tracefx.ops.elementwise.complex import LinearElementwise
from tracefx.ops.elementwise.rounding import Ceil, Floor, Round
from tracefx.ops.elementwise.selection import Clamp, StopGradient
from tracefx.ops.indexing.along_axis import Unstack
from tracefx.ops.indexing.dynamic_slicing import DynamicSlice, DynamicUpdateSlice, dynamic_index_in_dim
from tracefx.ops.indexing.gather_scatter_add import Gather, ScatterAdd, ScatterOperation
from tracefx.ops.indexing.scatter import Scatter, ScatterExtremum, ScatterMax, ScatterMin, ScatterMul, ScatterSub
from tracefx.ops.indexing.sorting import Sort
from tracefx.ops.indexing.top_k import TopKOperation
from tracefx.ops.operation import DataMovement
from tracefx.ops.reductions.cumulative import CumulativeExtremum
from tracefx.ops.reductions.reduction import ReduceExtremum
from tracefx.ops.reductions.select_and_scatter import SelectAndGatherAdd
from tracefx.ops.reductions.window_reduction import WindowExtremum
from tracefx.ops.shape.shape import Split, stack
from tracefx.ops.structural import ConvertElementType, broadcast_in_dim, constant_like_aval, reshape

ErrorKinds: TypeAlias = frozenset[ErrorKind]


@final
class Checkify(Interpreter[Never, Error]):
    """Adds checks to operations; its state is the first error, whose sites grow with each check."""

    title: ClassVar[str] = "checkify"
    has_state = True
    kinds: ErrorKinds

    @property
    @override
    def rules(self) -> Rules[Checkify, Value]:
        return check_rules(self.kinds)

    def add_error(self, error: Error) -> None:
        """Merges a possible error into the state."""
        self.set_state(self.current_state.then(error))

    @override
    def unify_states(self, x: Error, y: Error) -> tuple[Error, Error]:
        return x.with_slots_of(y), y.with_slots_of(x)


# ------------------------------------------------------------------ the user's checks


def _check_rule(handler: Checkify, op: Check, *operands: Value) -> Sequence[Value]:
    """Collects the kinds of failure in `errors`, drops other user checks as JAX does, and rebinds all other kinds."""
    error = op.error(operands)
    outer = error.restricted_to(frozenset(ErrorKind) - handler.kinds - {ErrorKind.USER})
    if outer.sites:
        bind_check(outer, op.debug)
    own = error.restricted_to(handler.kinds)
    if own.sites:
        handler.add_error(own.first_of_batch())
    return []


# ------------------------------------------------------------------ rules with checks

OperandCheck: TypeAlias = Callable[..., None]
"""Called as `check(handler, operation, *operands)` before the operation."""


@final
@frozen
class CheckedRule:
    """A rule that runs checks on the operands, binds the operation, and checks the results for NaN if `checks_nan`."""

    operand_checks: tuple[OperandCheck, ...] = ()
    checks_nan: bool = False

    def __call__(self, handler: Checkify, op: Primitive, *operands: Value) -> Sequence[Value]:
        for check_operands in self.operand_checks:
            check_operands(handler, op, *operands)
        outs = bind(op, *operands)
        if self.checks_nan:
            for out in outs:
                _check_result(handler, op, out)
        return outs


def _bind_unchecked(handler: Checkify, op: DataMovement | Identity, *operands: Value) -> Sequence[Value]:
    assert isinstance(op, Primitive)
    return bind(op, *operands)


def _check_any(handler: Checkify, op: Primitive, *operands: Value) -> Sequence[Value]:
    """Binds a primitive that has no rule of its own and checks its results for NaN."""
    if isinstance(op, HasSubjaxprs):
        raise handler.rules.missing_rule_error(handler.title, op)
    return CheckedRule((), True)(handler, op, *operands)


def _check_result(handler: Checkify, op: Primitive, out: Value) -> None:
    aval = out.aval
    if dtypes.is_inexact(aval.dtype) and aval.size:
        failed, index = first_true(ne(out, out))
        handler.add_error(Error.at(NotANumber(here(), op.name, aval.strong()), failed, [index]))


def _check_divisor(handler: Checkify, op: Primitive, x: Value, divisor: Value) -> None:
    aval = divisor.aval
    of_integers = dtypes.is_integer(aval.dtype)
    if not aval.size or (type(divisor) is Literal and divisor.val) or not (of_integers or type(op) is Div):
        return
    failed, index = first_true(eq(divisor, constant_like_aval(ShapedArray((), aval.dtype), 0)))
    handler.add_error(Error.at(ZeroDivision(here(), op.name, aval.strong()), failed, [index]))


# ------------------------------------------------------------------ indices


def _check_dynamic_slice(handler: Checkify, op: DynamicSlice, x: Value, *starts: Value) -> None:
    _check_start_indices(handler, op.name, x.aval, op.slice_sizes, starts)


def _check_dynamic_update_slice(
    handler: Checkify, op: DynamicUpdateSlice, x: Value, update: Value, *starts: Value
) -> None:
    _check_start_indices(handler, op.name, x.aval, update.aval.shape, starts)


def _check_start_indices(handler: Checkify, name: str, x: ShapedArray, sizes: Shape, starts: Sequence[Value]) -> None:
    limits = [n - size for n, size in zip(x.shape, sizes, strict=True)]
    axes = [
        d
        for d, (start, limit) in enumerate(zip(starts, limits, strict=True))
        if not (type(start) is Literal and 0 <= start.val.real <= limit)
    ]
    if axes:
        indices = stack([starts[d] for d in axes])
        _check_indices(handler, name, x, sizes, axes, [limits[d] for d in axes], indices)


def _check_gather(handler: Checkify, op: Gather, x: Value, indices: Value) -> None:
    windows = op.windows(x.aval.shape)
    _check_indices(handler, op.name, x.aval, windows.sizes, windows.index_map, windows.limits, indices)


def _check_scatter(handler: Checkify, op: ScatterOperation, x: Value, indices: Value, updates: Value) -> None:
    windows = op.windows(x.aval.shape, updates.aval.shape)
    _check_indices(handler, op.name, x.aval, windows.sizes, windows.index_map, windows.limits, indices)


def _check_indices(
    handler: Checkify,
    name: str,
    x: ShapedArray,
    sizes: Shape,
    axes: Sequence[int],
    limits: Sequence[int],
    indices: Value,
) -> None:
    """Checks start indices: the last axis of `indices` has one for each of `axes`, from 0 to `limits`."""
    aval = indices.aval
    if not aval.size:
        return
    top = int(dtypes.iinfo(aval.dtype).max)
    zero = constant_like_aval(ShapedArray((), aval.dtype), 0)
    row = stack([constant_like_aval(ShapedArray((), aval.dtype), min(n, top)) for n in limits])
    bound = broadcast_in_dim(row, aval.shape, (aval.ndim - 1,))
    failed, position = first_true(bitwise_or(lt(indices, zero), gt(indices, bound)))
    index = dynamic_index_in_dim(reshape(indices, (aval.size,)), position, keepdims=False)
    site = OutOfBounds(here(), name, x.strong(), tuple(sizes), tuple(axes), aval.strong())
    handler.add_error(Error.at(site, failed, [index, position]))


# ------------------------------------------------------------------ tables

_PASSES_NAN: Final[tuple[type[Primitive], ...]] = (
    *(Abs, Neg, Sign, Floor, Ceil, Round, NextAfter, LinearElementwise, StopGradient, ConvertElementType),
    *(ReducePrecision, BitcastConvertType, BinaryExtremum, Clamp, ReduceExtremum, CumulativeExtremum, WindowExtremum),
    *(ScatterExtremum, AllReduce, Sort, TopKOperation, Split, Unstack, SelectAndGatherAdd),
    *(OptimizationBarrier, CallbackPrimitive, Sow),
)
"""Families of primitives that move, select or order numbers, besides the capabilities `DataMovement` and `Identity`.

They give NaN only for operands that have NaN, and are not checked. All other primitives are, including users' own.
"""

_OPERAND_CHECKS: Final[tuple[tuple[ErrorKind, type[Primitive], OperandCheck], ...]] = (
    *[(ErrorKind.DIVISION, cls, _check_divisor) for cls in (Div, Rem)],
    (ErrorKind.INDEX, DynamicSlice, _check_dynamic_slice),
    (ErrorKind.INDEX, DynamicUpdateSlice, _check_dynamic_update_slice),
    (ErrorKind.INDEX, Gather, _check_gather),
    *[(ErrorKind.INDEX, cls, _check_scatter) for cls in (Scatter, ScatterAdd, ScatterSub, ScatterMul)],
    *[(ErrorKind.INDEX, cls, _check_scatter) for cls in (ScatterMin, ScatterMax)],
)


@memoize(16)
def check_rules(kinds: ErrorKinds) -> Rules[Checkify, Value]:
    """Returns the rules that check for these kinds of failure."""
    rules = Rules[Checkify, Value]().on(Check, _check_rule)
    nan = ErrorKind.NAN in kinds
    operand_checks = {
        cls: tuple([check_operands for kind, c, check_operands in _OPERAND_CHECKS if c is cls and kind in kinds])
        for _, cls, _ in _OPERAND_CHECKS
    }
    for cls, checks in operand_checks.items():
        checks_nan = nan and not issubclass(cls, (DataMovement, *_PASSES_NAN))
        if checks or checks_nan:
            rules = rules.on(cls, CheckedRule(checks, checks_nan))
    if nan:
        rules = rules.family(Primitive, _check_any).on(PSum, CheckedRule((), True))
        rules = rules.capable(DataMovement, _bind_unchecked).capable(Identity, _bind_unchecked)
        for family in _PASSES_NAN:
            rules = rules.family(family, CheckedRule())
    return rules
