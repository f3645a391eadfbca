"""What is looked at in which operation, while `checkify` is in force."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Never, TypeAlias, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.control.special.defined import Defined
from tracefx.core import dtypes
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.handler import bind
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.core.values import Value
from tracefx.handlers.checking.errors import Check, Error, first, raise_if_failed
from tracefx.handlers.checking.sites import ErrorKind, NotANumber, OutOfBounds, ZeroDivision, place_here
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.ops.arithmetic import Div, Mul, Rem, Sub
from tracefx.ops.basis import ReduceSum, broadcast_in_dim, filled, reshape
from tracefx.ops.bitwise import bitwise_or
from tracefx.ops.collective import PSum
from tracefx.ops.comparison import eq, gt, lt, ne
from tracefx.ops.contraction import DotGeneral
from tracefx.ops.convolution import ConvGeneralDilated
from tracefx.ops.cumulative import CumLogSumExp, CumProd, CumSum
from tracefx.ops.dynamic import DynamicSlice, DynamicUpdateSlice, dynamic_index_in_dim
from tracefx.ops.elementwise import Add
from tracefx.ops.fourier import Fft
from tracefx.ops.indexing import Gather, ScatterAdd, Scattering
from tracefx.ops.pairs import Atan2
from tracefx.ops.powers import IntegerPow, Pow, Square
from tracefx.ops.reduction import ReduceProd
from tracefx.ops.scattering import Scatter, ScatterMax, ScatterMin, ScatterMul, ScatterSub
from tracefx.ops.shape import stack
from tracefx.ops.special import Polygamma, Zeta
from tracefx.ops.transcendental import Logarithmic, Transcendental
from tracefx.ops.window_reduction import ReduceWindowSum

Kinds: TypeAlias = frozenset[ErrorKind]


@final
@frozen(eq=False)
class Checkify(Interpreter[Never, Error]):
    """Its state is the first error, which grows with the places where one may be."""

    everything = True
    has_state = True
    kinds: Kinds = field(kw_only=True)

    @property
    @override
    def title(self) -> str:
        return "checkify"

    @property
    @override
    def rules(self) -> Rules[Checkify, Value]:
        return rules_for(self.kinds)

    @property
    @override
    def key(self) -> Hashable:
        return self.kinds

    def note(self, error: Error) -> None:
        """Something may have gone wrong."""
        self.become(self.current_state.then(error))

    @override
    def unite_states(self, x: Error, y: Error) -> tuple[Error, Error]:
        return x.widened(y), y.widened(x)


# ------------------------------------------------------------------ the user's checks


def _check(handler: Checkify, op: Check, *operands: Value) -> Sequence[Value]:
    """A user's check that is not among `errors` is dropped, as in JAX; other kinds go to the handlers below."""
    error = op.error(operands)
    handed_on = error.of_kinds(frozenset(ErrorKind) - handler.kinds - {ErrorKind.USER})
    if handed_on.sites:
        raise_if_failed(handed_on, op.debug)
    ours = error.of_kinds(handler.kinds)
    if ours.sites:
        handler.note(ours.first_of_batch())
    return []


# ------------------------------------------------------------------ what is looked at

Look: TypeAlias = Callable[..., None]
"""`look(handler, operation, *operands)`, before the operation."""


@final
@frozen
class Looking:
    """A rule that looks at the operands, binds the operation, and looks whether it `gives_nan`."""

    looks: tuple[Look, ...] = ()
    gives_nan: bool = False

    def __call__(self, handler: Checkify, op: Primitive, *operands: Value) -> Sequence[Value]:
        for look in self.looks:
            look(handler, op, *operands)
        outs = bind(op, *operands)
        if self.gives_nan:
            for out in outs:
                _look_at_result(handler, op, out)
        return outs


def _look_at_result(handler: Checkify, op: Primitive, out: Value) -> None:
    aval = out.aval
    if dtypes.is_inexact(aval.dtype) and aval.size:
        failed, place = first(ne(out, out))
        handler.note(Error.at(NotANumber(place_here(), op.name, aval.strong()), failed, [place]))


def _look_at_divisor(handler: Checkify, op: Primitive, x: Value, divisor: Value) -> None:
    aval = divisor.aval
    of_integers = dtypes.is_integer(aval.dtype)
    if not aval.size or (type(divisor) is Literal and divisor.val) or not (of_integers or type(op) is Div):
        return
    failed, place = first(eq(divisor, filled(ShapedArray((), aval.dtype), 0)))
    handler.note(Error.at(ZeroDivision(place_here(), op.name, aval.strong()), failed, [place]))


# ------------------------------------------------------------------ indices


def _look_at_slice(handler: Checkify, op: DynamicSlice, x: Value, *starts: Value) -> None:
    _look_at_starts(handler, op.name, x.aval, op.slice_sizes, starts)


def _look_at_update(handler: Checkify, op: DynamicUpdateSlice, x: Value, update: Value, *starts: Value) -> None:
    _look_at_starts(handler, op.name, x.aval, update.aval.shape, starts)


def _look_at_starts(handler: Checkify, name: str, x: ShapedArray, sizes: Shape, starts: Sequence[Value]) -> None:
    limits = [n - size for n, size in zip(x.shape, sizes, strict=True)]
    axes = [
        d
        for d, (start, limit) in enumerate(zip(starts, limits, strict=True))
        if not (type(start) is Literal and 0 <= start.val.real <= limit)
    ]
    if axes:
        indices = stack([starts[d] for d in axes])
        _look_at_indices(handler, name, x, sizes, axes, [limits[d] for d in axes], indices)


def _look_at_gather(handler: Checkify, op: Gather, x: Value, indices: Value) -> None:
    windows = op.windows(x.aval.shape)
    _look_at_indices(handler, op.name, x.aval, windows.sizes, windows.index_map, windows.limits, indices)


def _look_at_scatter(handler: Checkify, op: Scattering, x: Value, indices: Value, updates: Value) -> None:
    windows = op.windows(x.aval.shape, updates.aval.shape)
    _look_at_indices(handler, op.name, x.aval, windows.sizes, windows.index_map, windows.limits, indices)


def _look_at_indices(
    handler: Checkify,
    name: str,
    x: ShapedArray,
    sizes: Shape,
    axes: Sequence[int],
    limits: Sequence[int],
    indices: Value,
) -> None:
    """`indices` are start indices for `axes` along their last axis, up to `limits`."""
    aval = indices.aval
    if not aval.size:
        return
    top = int(dtypes.iinfo(aval.dtype).max)
    zero = filled(ShapedArray((), aval.dtype), 0)
    row = stack([filled(ShapedArray((), aval.dtype), min(n, top)) for n in limits])
    bound = broadcast_in_dim(row, aval.shape, (aval.ndim - 1,))
    failed, place = first(bitwise_or(lt(indices, zero), gt(indices, bound)))
    index = dynamic_index_in_dim(reshape(indices, (aval.size,)), place, keepdims=False)
    site = OutOfBounds(place_here(), name, x.strong(), tuple(sizes), tuple(axes), aval.strong())
    handler.note(Error.at(site, failed, [index, place]))


# ------------------------------------------------------------------ tables

_ARITHMETIC: Final[tuple[type[Primitive], ...]] = (
    *(Add, Sub, Mul, Div, Rem, Square, Pow, IntegerPow, Atan2, Polygamma, Zeta, Defined),
    *(ReduceSum, ReduceProd, CumSum, CumProd, CumLogSumExp, PSum, ScatterAdd, ScatterSub, ScatterMul),
    *(DotGeneral, ConvGeneralDilated, Fft, ReduceWindowSum),
)
"""What gives NaN, beside the families of functions. What moves, selects or orders numbers hands on what is there."""

_LOOKS: Final[tuple[tuple[ErrorKind, type[Primitive], Look], ...]] = (
    *[(ErrorKind.DIVISION, cls, _look_at_divisor) for cls in (Div, Rem)],
    (ErrorKind.INDEX, DynamicSlice, _look_at_slice),
    (ErrorKind.INDEX, DynamicUpdateSlice, _look_at_update),
    (ErrorKind.INDEX, Gather, _look_at_gather),
    *[(ErrorKind.INDEX, cls, _look_at_scatter) for cls in (Scatter, ScatterAdd, ScatterSub, ScatterMul)],
    *[(ErrorKind.INDEX, cls, _look_at_scatter) for cls in (ScatterMin, ScatterMax)],
)


@functools.lru_cache(maxsize=16)
def rules_for(kinds: Kinds) -> Rules[Checkify, Value]:
    """The rules that look for these kinds of failure."""
    rules = Rules[Checkify, Value]().on(Check, _check)
    nan = ErrorKind.NAN in kinds
    looks = {cls: tuple([look for kind, c, look in _LOOKS if c is cls and kind in kinds]) for _, cls, _ in _LOOKS}
    for cls in {*looks, *_ARITHMETIC}:
        looking = Looking(looks.get(cls, ()), nan and cls in _ARITHMETIC)
        if looking != Looking():
            rules = rules.on(cls, looking)
    if nan:
        rules = rules.family(Transcendental, Looking((), True)).family(Logarithmic, Looking((), True))
    return rules
