"""Physical units: `with_units` checks and computes units while a program is traced, without run-time cost."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Final, TypeAlias, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx import ops
from tracefx.control.callback import DebugCallback, DebugPrint
from tracefx.control.checkpoint import CheckpointName
from tracefx.control.sow import Plantable, Sow
from tracefx.core import Array, ArrayLike, ConcreteArray, Literal, ShapedArray, Value, dtypes, to_numpy
from tracefx.core.handler import as_array, bind, bind1
from tracefx.core.primitive import Expandable, Primitive
from tracefx.errors import UnitError
from tracefx.extend import here
from tracefx.handlers.units import ANY_UNIT, DIMENSIONLESS, RealNumber, Unit
from tracefx.interpreters.body_transform import BodyKind, ValueSpec
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.ops.operation import Operation
from tracefx.pytrees import trees
from tracefx.transforms.arguments import flatten_values
from tracefx.transforms.handle import handle_values


@final
@trees.register_dataclass
@frozen
class Quantity:
    """An array with a unit: a pytree whose leaf is the array and whose structure includes the unit.

    Attributes:
        value: the magnitude, an array or a number.
        unit: its unit.

    >>> from tracefx.handlers.units import hour, km, m, s
    >>> Quantity(36.0, km / hour).to(m / s)
    Quantity(value=Array(10., dtype=float32, weak_type=True), unit=m/s)
    """

    value: Any
    unit: Unit = field(metadata={"static": True})

    def to(self, unit: Unit) -> Quantity:
        """Returns the quantity in another unit.

        Args:
            unit: A unit of the same dimension.

        Returns:
            The quantity with a converted value.

        Raises:
            UnitError: If the dimensions differ. It is a TypeError.
        """
        if unit.dimension != self.unit.dimension:
            raise UnitError(f"a quantity in {self.unit} can't be converted to {unit}, a unit of another dimension")
        return Quantity(_convert_scale(as_array(self.value), self.unit.scale / unit.scale, self.unit, unit), unit)


QuantityOrValue: TypeAlias = Quantity | Value


def _convert_scale(x: Array, factor: Fraction, old: Unit, new: Unit) -> Array:
    if factor == 1:
        return x
    if dtypes.is_inexact(x.dtype):
        return x * float(factor)
    if factor.denominator == 1:
        return x * int(factor)
    raise UnitError(f"integers in {old} can't be converted to {new} at {here()} exactly: convert them to floats")


@frozen(eq=False)
class _UnitConversion(Primitive, Expandable):
    """A number times a factor that depends on a unit."""

    unit: Unit

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return avals

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return self.expand(*args)


@final
class _OfUnit(_UnitConversion):
    """Attaches a unit to a number. Outside of `with_units` it converts the number to base units."""

    name = "of_unit"

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return [_convert_scale(as_array(x), self.unit.scale, self.unit, DIMENSIONLESS) for x in args]


@final
class _InUnit(_UnitConversion):
    """Returns the magnitude of a quantity in a unit."""

    name = "in_unit"

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return [_convert_scale(as_array(x), 1 / self.unit.scale, DIMENSIONLESS, self.unit) for x in args]


def of_unit(x: ArrayLike, unit: Unit) -> Array:
    """Returns a quantity as a value, for constants inside functions that run under `with_units`.

    Outside of `with_units` such functions compute in base units: the result is `x` times the unit's scale.

    Args:
        x: the magnitude.
        unit: its unit.

    Returns:
        An array that is a quantity under `with_units`, and a plain array in base units otherwise.

    >>> from tracefx.handlers.units import km
    >>> of_unit(2.0, km)
    Array(2000., dtype=float32, weak_type=True)
    """
    return bind1(_OfUnit(unit), x)


def in_unit(x: ArrayLike, unit: Unit) -> Array:
    """Returns the magnitude of a quantity in `unit`, as an array without a unit.

    Args:
        x: a quantity, e.g. from `of_unit`.
        unit: the unit to express it in.

    Returns:
        The magnitude.

    Raises:
        UnitError: if `unit` has another dimension than `x`.

    >>> from tracefx.handlers.units import km, m
    >>> in_unit(of_unit(2.0, km), m)
    Array(2000., dtype=float32, weak_type=True)
    """
    return bind1(_InUnit(unit), x)


def with_units(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `fun` for arguments with units: a `Quantity` may replace an array anywhere in their pytrees.

    Sums, comparisons and selections need operands of one dimension, and their result has the unit of one operand.
    Products, quotients, powers and contractions compute the unit of the result. Other functions take dimensionless
    numbers. The constants 0, infinity and NaN fit every unit. `with_units(grad(f))` gives derivatives in the unit of
    the result divided by that of the argument.

    Args:
        fun: a function of arrays and quantities.

    Returns:
        A function like `fun`, whose results with a unit are `Quantity` objects.

    Raises:
        UnitError: if units do not fit; the message names both units and the source line.
        TypeError: if `fun` is not callable, or the unit of a quantity is not a `Unit`.

    >>> from tracefx.handlers.units import m, s
    >>> with_units(lambda x, t: x / t)(Quantity(100.0, m), Quantity(10.0, s))
    Quantity(value=Array(10., dtype=float32, weak_type=True), unit=m/s)
    """
    return handle_values(
        "with_units", fun, _Units(), Quantity, _checked_quantity, lambda handler, x: _strip_any_unit(handler.unwrap(x))
    )


def _checked_quantity(x: Quantity) -> QuantityOrValue:
    if not isinstance(x.unit, Unit):
        raise TypeError(
            f"with_units: the unit of a quantity must be a Unit, got {x.unit!r} of type {type(x.unit).__name__}"
        )
    (value,), _ = flatten_values((x.value,), "with_units: a quantity")
    return _with_unit(value, x.unit)


def _strip_any_unit(x: QuantityOrValue) -> QuantityOrValue:
    return x.value if isinstance(x, Quantity) and x.unit == ANY_UNIT else x


# ------------------------------------------------------------------ the handler


@final
class _Units(Interpreter[Quantity]):
    """Values with a unit are quantities; plain values are dimensionless or constants that fit every unit."""

    title: ClassVar[str] = "with_units"
    handles_all: ClassVar[bool] = True  # because plain constants may fit every unit

    @property
    @override
    def rules(self) -> Rules[_Units, QuantityOrValue]:
        return RULES

    @override
    def aval_of(self, value: Quantity) -> ShapedArray:
        return as_array(value.value).aval

    @override
    def lift(self, x: Value) -> Quantity:
        return Quantity(x, _unit(x))

    @override
    def unify(self, x: Quantity, y: Quantity) -> tuple[Quantity, Quantity]:
        return Quantity(_magnitude_in(x, y.unit, "the value"), y.unit), y

    @override
    def strip(self, value: Quantity) -> Value:
        return _magnitude_in(value, DIMENSIONLESS, "a value that must be a plain number")

    @override
    def spec(self, x: Value) -> ValueSpec:
        return Interpreter.spec(self, self.wrap(self.lift(x)) if _has_any_unit(x) else x)

    @override
    def join(self, x: ValueSpec, y: ValueSpec, what: str) -> ValueSpec:
        """Returns the spec with the unit of `x`, or that of `y` if `x` fits every unit."""
        if len(x.avals) != 1 or len(y.avals) != 1:  # specs of handler states, not of quantities
            return Interpreter.join(self, x, y, what)
        units = _unit_of_spec(x), _unit_of_spec(y)
        if ANY_UNIT not in units and units[0].dimension != units[1].dimension:
            if what.startswith(BodyKind.STEP.value):
                body = what.partition(",")[0]
                what = f"a carry enters {body} with {units[0]} and leaves it with {units[1]}"
            else:
                what = f"{what} is in {units[0]} and in {units[1]}"
            raise UnitError(f"with_units: {what} at {here()}: their dimensions differ")
        unit = units[1] if units[0] == ANY_UNIT else units[0]
        joined = Interpreter.join(self, ValueSpec(None, x.avals), ValueSpec(None, y.avals), what)
        return joined if unit == DIMENSIONLESS else ValueSpec(trees.structure(Quantity(0.0, unit)), joined.avals)


def _unit_of_spec(spec: ValueSpec) -> Unit:
    if spec.tree is None:
        return DIMENSIONLESS
    quantity: Quantity = trees.unflatten(spec.tree, [0.0])
    return quantity.unit


def _has_any_unit(x: QuantityOrValue) -> bool:
    """Returns whether `x` is a constant that fits every unit: 0, infinity or NaN."""
    if not isinstance(x, (Literal, ConcreteArray)) or x.aval.ndim or not dtypes.is_inexact(x.aval.dtype):
        return False
    number = to_numpy(x).astype(np.complex128).item()
    return number == 0 or not cmath.isfinite(number)


def _unit(x: QuantityOrValue) -> Unit:
    return x.unit if isinstance(x, Quantity) else ANY_UNIT if _has_any_unit(x) else DIMENSIONLESS


def _with_unit(x: Value, unit: Unit) -> QuantityOrValue:
    return x if unit == DIMENSIONLESS else Quantity(x, unit)


def _magnitude(x: QuantityOrValue) -> Value:
    value: Value = x.value if isinstance(x, Quantity) else x
    return value


def _magnitude_in(x: QuantityOrValue, unit: Unit, what: str) -> Value:
    """Returns the magnitude of a value in a unit; `what` names the value in the error."""
    own = _unit(x)
    if own in (unit, ANY_UNIT):
        return _magnitude(x)
    if own.dimension != unit.dimension:
        wanted = "" if unit == DIMENSIONLESS else f", not in {unit}"
        raise UnitError(f"{what} is in {own}{wanted} at {here()}")
    return _convert_scale(as_array(_magnitude(x)), own.scale / unit.scale, own, unit)


def _to_common_unit(op: Primitive, xs: Sequence[QuantityOrValue]) -> tuple[list[Value], Unit]:
    """Returns the magnitudes in a common unit, that of the first operand that doesn't fit every unit."""
    unit = next((u for u in map(_unit, xs) if u != ANY_UNIT), ANY_UNIT)
    for x in xs:
        own = _unit(x)
        if own != ANY_UNIT and own.dimension != unit.dimension:
            names = [str(u) if u != DIMENSIONLESS else "a dimensionless number" for u in (unit, own)]
            raise UnitError(f"{op.name} of {names[0]} and {names[1]} at {here()}: their dimensions differ")
    return [_magnitude_in(x, unit, "the value") for x in xs], unit


# ------------------------------------------------------------------ rules


def common_unit_rule(h: _Units, op: Primitive, *xs: QuantityOrValue) -> list[QuantityOrValue]:
    """Operands and results share one unit."""
    numbers, unit = _to_common_unit(op, xs)
    return [_with_unit(x, unit) for x in bind(op, *numbers)]


def compare_units(h: _Units, op: Primitive, *xs: QuantityOrValue) -> Sequence[QuantityOrValue]:
    """Operands share one unit; the result has none."""
    return bind(op, *_to_common_unit(op, xs)[0])


def keep_unit_rule(h: _Units, op: Primitive, x: QuantityOrValue, *indices: QuantityOrValue) -> list[QuantityOrValue]:
    """The result has the unit of the first operand; any others are indices."""
    return [_with_unit(y, _unit(x)) for y in bind(op, _magnitude(x), *map(_magnitude, indices))]


def drop_unit_rule(h: _Units, op: Primitive, *xs: QuantityOrValue) -> Sequence[QuantityOrValue]:
    """The result does not depend on the unit: signs, predicates, positions, reports."""
    return bind(op, *map(_magnitude, xs))


def keep_each_unit_rule(h: _Units, op: Primitive, *xs: QuantityOrValue) -> list[QuantityOrValue]:
    """Each result has the unit of its operand."""
    return [_with_unit(y, _unit(x)) for x, y in zip(xs, bind(op, *map(_magnitude, xs)), strict=True)]


def top_k_units(h: _Units, op: Primitive, x: QuantityOrValue) -> list[QuantityOrValue]:
    """The elements have the operand's unit, their indices none."""
    elements, indices = bind(op, _magnitude(x))
    return [_with_unit(elements, _unit(x)), indices]


def select_units(
    h: _Units, op: Primitive, condition: QuantityOrValue, *cases: QuantityOrValue
) -> list[QuantityOrValue]:
    numbers, unit = _to_common_unit(op, cases[::-1])  # in the unit of the first argument of `where`
    return [_with_unit(x, unit) for x in bind(op, _magnitude(condition), *numbers[::-1])]


def clamp_units(h: _Units, op: Primitive, *xs: QuantityOrValue) -> list[QuantityOrValue]:
    numbers, unit = _to_common_unit(op, [xs[1], xs[0], xs[2]])
    low, x, high = numbers[1], numbers[0], numbers[2]
    return [_with_unit(y, unit) for y in bind(op, low, x, high)]


def dynamic_update_slice_units(
    h: _Units, op: Primitive, x: QuantityOrValue, update: QuantityOrValue, *indices: QuantityOrValue
) -> list[QuantityOrValue]:
    numbers, unit = _to_common_unit(op, [x, update])
    return [_with_unit(y, unit) for y in bind(op, *numbers, *map(_magnitude, indices))]


def scatter_units(
    h: _Units, op: Primitive, x: QuantityOrValue, indices: QuantityOrValue, update: QuantityOrValue
) -> list[QuantityOrValue]:
    (magnitude, update_magnitude), unit = _to_common_unit(op, [x, update])
    return [_with_unit(y, unit) for y in bind(op, magnitude, _magnitude(indices), update_magnitude)]


def mul_units(h: _Units, op: Primitive, x: QuantityOrValue, y: QuantityOrValue) -> list[QuantityOrValue]:
    out = bind1(op, _magnitude(x), _magnitude(y))
    units = _unit(x), _unit(y)
    return [_with_unit(out, ANY_UNIT if ANY_UNIT in units else units[0] * units[1])]


def div_units(h: _Units, op: Primitive, x: QuantityOrValue, y: QuantityOrValue) -> list[QuantityOrValue]:
    out = bind1(op, _magnitude(x), _magnitude(y))
    numerator, denominator = _unit(x), _unit(y)
    return [_with_unit(out, numerator if ANY_UNIT in (numerator, denominator) else numerator / denominator)]


def _bind_power(op: Primitive, x: QuantityOrValue, power: RealNumber, *more: Value) -> list[QuantityOrValue]:
    """Binds `op` to a magnitude; the unit of the result is a power of the operand's."""
    out, unit = bind1(op, _magnitude(x), *more), _unit(x)
    return [_with_unit(out, (ANY_UNIT if power > 0 else DIMENSIONLESS) if unit == ANY_UNIT else unit**power)]


def integer_pow_units(h: _Units, op: ops.IntegerPow, x: QuantityOrValue) -> list[QuantityOrValue]:
    return _bind_power(op, x, op.y)


def square_units(h: _Units, op: ops.Square, x: QuantityOrValue) -> list[QuantityOrValue]:
    return _bind_power(op, x, 2)


def sqrt_units(h: _Units, op: ops.Sqrt, x: QuantityOrValue) -> list[QuantityOrValue]:
    return _bind_power(op, x, Fraction(1, 2))


def rsqrt_units(h: _Units, op: ops.Rsqrt, x: QuantityOrValue) -> list[QuantityOrValue]:
    return _bind_power(op, x, Fraction(-1, 2))


def cbrt_units(h: _Units, op: ops.Cbrt, x: QuantityOrValue) -> list[QuantityOrValue]:
    return _bind_power(op, x, Fraction(1, 3))


def pow_units(h: _Units, op: ops.Pow, x: QuantityOrValue, y: QuantityOrValue) -> Sequence[QuantityOrValue]:
    if not isinstance(x, Quantity):
        return dimensionless_rule(h, op, x, y)
    if not isinstance(y, (Literal, ConcreteArray)) or to_numpy(y).ndim:
        raise UnitError(
            f"pow of {x.unit} with an exponent that is not a constant number at {here()}: the "
            "unit of the result would depend on a value"
        )
    return _bind_power(op, x, float(to_numpy(y)), y)


def reduce_prod_units(h: _Units, op: ops.ReduceProd, x: QuantityOrValue) -> list[QuantityOrValue]:
    dims = as_array(_magnitude(x)).shape
    return _bind_power(op, x, int(np.prod([dims[a] for a in op.axes])))


def of_unit_rule(h: _Units, op: _OfUnit, x: QuantityOrValue) -> list[QuantityOrValue]:
    return [_with_unit(_magnitude(x), _unit(x) * op.unit if _unit(x) not in (DIMENSIONLESS, ANY_UNIT) else op.unit)]


def in_unit_rule(h: _Units, op: _InUnit, x: QuantityOrValue) -> list[QuantityOrValue]:
    return [_magnitude_in(x, op.unit, "in_unit: the value")]


def dimensionless_rule(h: _Units, op: Primitive, *xs: QuantityOrValue) -> Sequence[QuantityOrValue]:
    """The default for array functions: operands and results are dimensionless."""
    return bind(
        op, *[_magnitude_in(x, DIMENSIONLESS, f"{op.name} takes dimensionless numbers, but an operand") for x in xs]
    )


_PRIMITIVES_BY_RULE: Final[dict[Callable[..., Sequence[QuantityOrValue]], tuple[type[Primitive], ...]]] = {
    common_unit_rule: (
        ops.Add,
        ops.Sub,
        ops.Max,
        ops.Min,
        ops.Rem,
        ops.NextAfter,
        ops.Complex,
        ops.Concatenate,
        ops.Stack,
        ops.Pad,
    ),
    compare_units: (ops.Eq, ops.Ne, ops.Lt, ops.Le, ops.Gt, ops.Ge, ops.Atan2),
    keep_unit_rule: (
        ops.Neg,
        ops.Abs,
        ops.Reshape,
        ops.Transpose,
        ops.BroadcastInDim,
        ops.ConvertElementType,
        ops.ReduceSum,
        ops.CumSum,
        ops.Fft,
        ops.CumMax,
        ops.CumMin,
        ops.ReduceMax,
        ops.ReduceMin,
        ops.ReducePrecision,
        ops.Real,
        ops.Imag,
        ops.Conj,
        ops.StopGradient,
        ops.Squeeze,
        ops.Split,
        ops.Unstack,
        ops.ReduceWindowSum,
        ops.ReduceWindowMax,
        ops.ReduceWindowMin,
        ops.Tile,
        ops.Slice,
        ops.Rev,
        ops.Gather,
        ops.DynamicSlice,
        ops.AllGather,
        ops.ReduceScatter,
        ops.PPermute,
        ops.AllToAll,
        CheckpointName,
    ),
    keep_each_unit_rule: (ops.Sort, Plantable, ops.OptimizationBarrier, ops.PSum, ops.PMax, ops.PMin),
    drop_unit_rule: (ops.Sign, ops.IsFinite, ops.ArgMax, ops.ArgMin, DebugPrint, DebugCallback, Sow),
    top_k_units: (ops.TopK, ops.ApproxTopK),
    select_units: (ops.SelectN,),
    clamp_units: (ops.Clamp,),
    dynamic_update_slice_units: (ops.DynamicUpdateSlice,),
    scatter_units: (ops.Scatter, ops.ScatterSub, ops.ScatterMin, ops.ScatterMax, ops.ScatterAdd),
    mul_units: (ops.Mul, ops.DotGeneral, ops.ConvGeneralDilated),
    div_units: (ops.Div,),
    integer_pow_units: (ops.IntegerPow,),
    square_units: (ops.Square,),
    sqrt_units: (ops.Sqrt,),
    rsqrt_units: (ops.Rsqrt,),
    cbrt_units: (ops.Cbrt,),
    pow_units: (ops.Pow,),
    reduce_prod_units: (ops.ReduceProd,),
    of_unit_rule: (_OfUnit,),
    in_unit_rule: (_InUnit,),
}


def _build_rules() -> Rules[_Units, QuantityOrValue]:
    rules = Rules[_Units, QuantityOrValue]()
    for rule, operations in _PRIMITIVES_BY_RULE.items():
        for operation in operations:
            rules = rules.on(operation, rule)
    return rules.family(Operation, dimensionless_rule)


RULES: Final = _build_rules()
