"""Physical units: quantities whose units are checked and computed while a program is traced, and cost nothing after."""

from __future__ import annotations

import cmath
import functools
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Final, TypeAlias, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.control.callback import DebugCallback, DebugPrint
from tracefx.control.checkpoint import Name
from tracefx.control.sowing import Plantable, Sow
from tracefx.core import dtypes, trees
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.entering import Form
from tracefx.core.handler import as_array, bind, bind1, current, handling
from tracefx.core.literal import Literal
from tracefx.core.primitive import Expandable, Primitive
from tracefx.core.source import at, here
from tracefx.core.values import ConcreteArray, Value, to_numpy
from tracefx.handlers.units import FREE, ONE, Number, Unit, UnitError
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.ops import (
    along_axis,
    arithmetic,
    barrier,
    basis,
    collective,
    comparison,
    complex,
    contraction,
    convolution,
    cumulative,
    cutting,
    dynamic,
    elementwise,
    exchange,
    fourier,
    indexing,
    magnitude,
    pairs,
    powers,
    reduction,
    representation,
    scattering,
    selection,
    shape,
    sorting,
    transcendental,
    window_reduction,
)
from tracefx.ops.greatest import ApproxTopK, TopK
from tracefx.ops.operation import Operation
from tracefx.transforms.arguments import flatten_values, require_callable


@final
@trees.register_dataclass
@frozen
class Quantity:
    """An array and its unit: a tree, whose structure has the unit.

    >>> from tracefx.handlers.units import hour, km, m, s
    >>> Quantity(36.0, km / hour).to(m / s)
    Quantity(value=Array(10., dtype=float32, weak_type=True), unit=m/s)
    """

    value: Any
    unit: Unit = field(metadata={"static": True})

    def to(self, unit: Unit) -> Quantity:
        """In another unit; UnitError if it measures something else."""
        if unit.dimension != self.unit.dimension:
            raise UnitError(f"a quantity in {self.unit} can't be converted to {unit}: that measures something else")
        return Quantity(_scaled(as_array(self.value), self.unit.scale / unit.scale, self.unit, unit), unit)


Held: TypeAlias = Quantity | Value


def _scaled(x: Array, factor: Fraction, old: Unit, new: Unit) -> Array:
    if factor == 1:
        return x
    if dtypes.is_inexact(x.dtype):
        return x * float(factor)
    if factor.denominator == 1:
        return x * int(factor)
    raise UnitError(f"integers in {old} can't be converted to {new}{at(here())} exactly: convert them to floats")


@final
@frozen(eq=False)
class _OfUnit(Primitive, Expandable):
    """A number, said to be in a unit. Where no units are, it is one in base units."""

    name = "of_unit"
    unit: Unit

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return avals

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return self.expand(*args)

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return [_scaled(as_array(x), self.unit.scale, self.unit, ONE) for x in args]


@final
@frozen(eq=False)
class _InUnit(Primitive, Expandable):
    """The number of a quantity in a unit."""

    name = "in_unit"
    unit: Unit

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return avals

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return self.expand(*args)

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return [_scaled(as_array(x), 1 / self.unit.scale, ONE, self.unit) for x in args]


def of_unit(x: ArrayLike, unit: Unit) -> Array:
    """A number in a unit, for constants in functions that run `with_units`.

    Where these run without, they compute in base units: it is `x` times the unit's scale.

    >>> from tracefx.handlers.units import km
    >>> of_unit(2.0, km)
    Array(2000., dtype=float32, weak_type=True)
    """
    return bind1(_OfUnit(unit), x)


def in_unit(x: ArrayLike, unit: Unit) -> Array:
    """The number that a quantity is in a unit, a plain array. UnitError if the unit measures something else.

    >>> from tracefx.handlers.units import km, m
    >>> in_unit(of_unit(2.0, km), m)
    Array(2000., dtype=float32, weak_type=True)
    """
    return bind1(_InUnit(unit), x)


def with_units(fun: Callable[..., Any]) -> Callable[..., Any]:
    """`fun` on quantities: anywhere in the arguments a `Quantity` may stand for an array, as it does in the result.

    Sums, comparisons and choices need units of one dimension, and are in that of one operand; products,
    quotients, powers and contractions have theirs; other functions take numbers without a unit. Constants that are 0,
    infinite or NaN fit every unit.
    `with_units(grad(f))` gives derivatives in the units of the result by those of the argument.

    Raises UnitError, which names both units and the line, where they don't fit.

    >>> from tracefx.handlers.units import m, s
    >>> with_units(lambda x, t: x / t)(Quantity(100.0, m), Quantity(10.0, s))
    Quantity(value=Array(10., dtype=float32, weak_type=True), unit=m/s)
    """
    require_callable("with_units", fun)

    @functools.wraps(fun)
    def checked(*args: Any, **kwargs: Any) -> Any:
        with handling(_Units(current())) as handler:
            args, kwargs = trees.map(
                lambda x: handler.wrap(_quantity(x)) if isinstance(x, Quantity) else x,
                (args, kwargs),
                is_leaf=lambda x: isinstance(x, Quantity),
            )
            out = fun(*args, **kwargs)
        return trees.map(lambda x: _given(handler.unwrap(x)) if isinstance(x, Array) else x, out)

    return checked


def _quantity(x: Quantity) -> Held:
    if not isinstance(x.unit, Unit):
        raise TypeError(
            f"with_units: the unit of a quantity must be a Unit, got {x.unit!r} of type {type(x.unit).__name__}"
        )
    (value,), _ = flatten_values((x.value,), "with_units: a quantity")
    return _held(value, x.unit)


def _given(x: Held) -> Held:
    return x.value if isinstance(x, Quantity) and x.unit == FREE else x


# ------------------------------------------------------------------ the handler


@final
@frozen(eq=False)
class _Units(Interpreter[Quantity]):
    """Values are quantities, and constants that are the same in all units; numbers are plain."""

    title: ClassVar[str] = "with_units"
    key: ClassVar[Hashable] = ()
    everything: ClassVar[bool] = True  # as it knows of constants that are free

    @property
    @override
    def rules(self) -> Rules[_Units, Held]:
        return RULES

    @override
    def aval_of(self, value: Quantity) -> ShapedArray:
        return as_array(value.value).aval

    @override
    def lift(self, x: Value) -> Quantity:
        return Quantity(x, _unit(x))

    @override
    def unite(self, x: Quantity, y: Quantity) -> tuple[Quantity, Quantity]:
        return Quantity(_number(x, y.unit, "the value"), y.unit), y

    @override
    def bared(self, value: Quantity) -> Value:
        return _number(value, ONE, "what the program asks a number of")

    @override
    def form(self, x: Value) -> Form:
        return Interpreter.form(self, self.wrap(self.lift(x)) if _is_free(x) else x)

    @override
    def join(self, x: Form, y: Form, what: str) -> Form:
        """The unit of the first, unless any would do for it."""
        if len(x.avals) != 1 or len(y.avals) != 1:  # no quantities, but states
            return Interpreter.join(self, x, y, what)
        units = _unit_of(x), _unit_of(y)
        if FREE not in units and units[0].dimension != units[1].dimension:
            raise UnitError(f"with_units: {what} is in {units[0]} here and in {units[1]} there{at(here())}")
        unit = units[1] if units[0] == FREE else units[0]
        joined = Interpreter.join(self, Form(None, x.avals), Form(None, y.avals), what)
        return joined if unit == ONE else Form(trees.structure(Quantity(0.0, unit)), joined.avals)


def _unit_of(form: Form) -> Unit:
    if form.tree is None:
        return ONE
    quantity: Quantity = trees.unflatten(form.tree, [0.0])
    return quantity.unit


def _is_free(x: Held) -> bool:
    """Whether it is a constant that is the same in all units."""
    if not isinstance(x, (Literal, ConcreteArray)) or x.aval.ndim or not dtypes.is_inexact(x.aval.dtype):
        return False
    number = to_numpy(x).astype(np.complex128).item()
    return number == 0 or not cmath.isfinite(number)


def _unit(x: Held) -> Unit:
    return x.unit if isinstance(x, Quantity) else FREE if _is_free(x) else ONE


def _held(x: Value, unit: Unit) -> Held:
    return x if unit == ONE else Quantity(x, unit)


def _plain(x: Held) -> Value:
    value: Value = x.value if isinstance(x, Quantity) else x
    return value


def _number(x: Held, unit: Unit, what: str) -> Value:
    """What it is in a unit."""
    own = _unit(x)
    if own in (unit, FREE):
        return _plain(x)
    if own.dimension != unit.dimension:
        wanted = "" if unit == ONE else f", not in {unit}"
        raise UnitError(f"{what} is in {own}{wanted}{at(here())}")
    return _scaled(as_array(_plain(x)), own.scale / unit.scale, own, unit)


def _common(op: Primitive, xs: Sequence[Held]) -> tuple[list[Value], Unit]:
    """Numbers in the unit of the first that has one."""
    unit = next((u for u in map(_unit, xs) if u != FREE), FREE)
    for x in xs:
        own = _unit(x)
        if own != FREE and own.dimension != unit.dimension:
            names = [str(u) if u != ONE else "a number without a unit" for u in (unit, own)]
            raise UnitError(f"{op.name} of {names[0]} and {names[1]}{at(here())}: they measure different things")
    return [_number(x, unit, "the value") for x in xs], unit


# ------------------------------------------------------------------ rules


def same(h: _Units, op: Primitive, *xs: Held) -> list[Held]:
    numbers, unit = _common(op, xs)
    return [_held(x, unit) for x in bind(op, *numbers)]


def compared(h: _Units, op: Primitive, *xs: Held) -> Sequence[Held]:
    return bind(op, *_common(op, xs)[0])


def kept(h: _Units, op: Primitive, x: Held, *places: Held) -> list[Held]:
    """One operand counts; any others are places."""
    return [_held(y, _unit(x)) for y in bind(op, _plain(x), *map(_plain, places))]


def forgotten(h: _Units, op: Primitive, *xs: Held) -> Sequence[Held]:
    """The result says nothing of the size."""
    return bind(op, *map(_plain, xs))


def each(h: _Units, op: Primitive, *xs: Held) -> list[Held]:
    return [_held(y, _unit(x)) for x, y in zip(xs, bind(op, *map(_plain, xs)), strict=True)]


def greatest(h: _Units, op: Primitive, x: Held) -> list[Held]:
    """Elements, and their places."""
    found, places = bind(op, _plain(x))
    return [_held(found, _unit(x)), places]


def chosen(h: _Units, op: Primitive, which: Held, *cases: Held) -> list[Held]:
    numbers, unit = _common(op, cases[::-1])  # in the unit of the first argument of `where`
    return [_held(x, unit) for x in bind(op, _plain(which), *numbers[::-1])]


def clamped(h: _Units, op: Primitive, *xs: Held) -> list[Held]:
    numbers, unit = _common(op, [xs[1], xs[0], xs[2]])
    low, x, high = numbers[1], numbers[0], numbers[2]
    return [_held(y, unit) for y in bind(op, low, x, high)]


def written(h: _Units, op: Primitive, x: Held, update: Held, *places: Held) -> list[Held]:
    numbers, unit = _common(op, [x, update])
    return [_held(y, unit) for y in bind(op, *numbers, *map(_plain, places))]


def scattered(h: _Units, op: Primitive, x: Held, places: Held, update: Held) -> list[Held]:
    (number, change), unit = _common(op, [x, update])
    return [_held(y, unit) for y in bind(op, number, _plain(places), change)]


def multiplied(h: _Units, op: Primitive, x: Held, y: Held) -> list[Held]:
    out = bind1(op, _plain(x), _plain(y))
    units = _unit(x), _unit(y)
    return [_held(out, FREE if FREE in units else units[0] * units[1])]


def divided(h: _Units, op: Primitive, x: Held, y: Held) -> list[Held]:
    out = bind1(op, _plain(x), _plain(y))
    over, under = _unit(x), _unit(y)
    return [_held(out, over if FREE in (over, under) else over / under)]


def _powered(op: Primitive, x: Held, power: Number, *more: Value) -> list[Held]:
    out, unit = bind1(op, _plain(x), *more), _unit(x)
    return [_held(out, (FREE if power > 0 else ONE) if unit == FREE else unit**power)]


def power(h: _Units, op: powers.IntegerPow, x: Held) -> list[Held]:
    return _powered(op, x, op.y)


def square(h: _Units, op: powers.Square, x: Held) -> list[Held]:
    return _powered(op, x, 2)


def root(h: _Units, op: transcendental.Sqrt, x: Held) -> list[Held]:
    return _powered(op, x, Fraction(1, 2))


def inverse_root(h: _Units, op: transcendental.Rsqrt, x: Held) -> list[Held]:
    return _powered(op, x, Fraction(-1, 2))


def cube_root(h: _Units, op: transcendental.Cbrt, x: Held) -> list[Held]:
    return _powered(op, x, Fraction(1, 3))


def raised(h: _Units, op: powers.Pow, x: Held, y: Held) -> Sequence[Held]:
    if not isinstance(x, Quantity):
        return other(h, op, x, y)
    if not isinstance(y, (Literal, ConcreteArray)) or to_numpy(y).ndim:
        raise UnitError(
            f"pow of {x.unit} with an exponent that is no constant number{at(here())}: the unit of the result would "
            "depend on a value"
        )
    return _powered(op, x, float(to_numpy(y)), y)


def product_of(h: _Units, op: reduction.ReduceProd, x: Held) -> list[Held]:
    dims = as_array(_plain(x)).shape
    return _powered(op, x, int(np.prod([dims[a] for a in op.axes])))


def attached(h: _Units, op: _OfUnit, x: Held) -> list[Held]:
    return [_held(_plain(x), _unit(x) * op.unit if _unit(x) not in (ONE, FREE) else op.unit)]


def taken(h: _Units, op: _InUnit, x: Held) -> list[Held]:
    return [_number(x, op.unit, "in_unit: the value")]


def other(h: _Units, op: Primitive, *xs: Held) -> Sequence[Held]:
    """Functions of numbers without a unit."""
    return bind(op, *[_number(x, ONE, f"{op.name} takes numbers without a unit, but an operand") for x in xs])


_ALL: Final[dict[Callable[..., Sequence[Held]], tuple[type[Primitive], ...]]] = {
    same: (
        elementwise.Add,
        arithmetic.Sub,
        arithmetic.Max,
        arithmetic.Min,
        arithmetic.Rem,
        pairs.NextAfter,
        complex.Complex,
        shape.Concatenate,
        shape.Stack,
        cutting.Pad,
    ),
    compared: (
        comparison.Eq,
        comparison.Ne,
        comparison.Lt,
        comparison.Le,
        comparison.Gt,
        comparison.Ge,
        pairs.Atan2,
    ),
    kept: (
        arithmetic.Neg,
        magnitude.Abs,
        basis.Reshape,
        basis.Transpose,
        basis.BroadcastInDim,
        basis.ConvertElementType,
        basis.ReduceSum,
        cumulative.CumSum,
        fourier.Fft,
        cumulative.CumMax,
        cumulative.CumMin,
        reduction.ReduceMax,
        reduction.ReduceMin,
        representation.ReducePrecision,
        complex.Real,
        complex.Imag,
        complex.Conj,
        selection.StopGradient,
        shape.Squeeze,
        shape.Split,
        along_axis.Unstack,
        window_reduction.ReduceWindowSum,
        window_reduction.ReduceWindowMax,
        window_reduction.ReduceWindowMin,
        shape.Tile,
        cutting.Slice,
        cutting.Rev,
        indexing.Gather,
        dynamic.DynamicSlice,
        exchange.AllGather,
        exchange.ReduceScatter,
        exchange.PPermute,
        exchange.AllToAll,
        Name,
    ),
    each: (sorting.Sort, Plantable, barrier.OptimizationBarrier, collective.PSum, collective.PMax, collective.PMin),
    forgotten: (
        magnitude.Sign,
        complex.IsFinite,
        reduction.ArgMax,
        reduction.ArgMin,
        DebugPrint,
        DebugCallback,
        Sow,
    ),
    greatest: (TopK, ApproxTopK),
    chosen: (selection.SelectN,),
    clamped: (selection.Clamp,),
    written: (dynamic.DynamicUpdateSlice,),
    scattered: (
        scattering.Scatter,
        scattering.ScatterSub,
        scattering.ScatterMin,
        scattering.ScatterMax,
        indexing.ScatterAdd,
    ),
    multiplied: (arithmetic.Mul, contraction.DotGeneral, convolution.ConvGeneralDilated),
    divided: (arithmetic.Div,),
    power: (powers.IntegerPow,),
    square: (powers.Square,),
    root: (transcendental.Sqrt,),
    inverse_root: (transcendental.Rsqrt,),
    cube_root: (transcendental.Cbrt,),
    raised: (powers.Pow,),
    product_of: (reduction.ReduceProd,),
    attached: (_OfUnit,),
    taken: (_InUnit,),
}


def _table() -> Rules[_Units, Held]:
    rules = Rules[_Units, Held]()
    for rule, operations in _ALL.items():
        for operation in operations:
            rules = rules.on(operation, rule)
    return rules.family(Operation, other)


RULES: Final = _table()
