"""Bit representation of numbers: bit counts, bit casts, reduced precision; also `dtype` and `stage`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, SupportsIndex, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, DTypeLike, NDArray, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array, bind1
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import MappedAxis, Tangent, UndefinedPrimal
from tracefx.lowering import Builder, IrValue, MlirText
from tracefx.ops.elementwise.bitwise import INTEGERS, extend_to_bytes
from tracefx.ops.elementwise.elementwise import FLOATS, SIGNED_NARROW, NonDifferentiable
from tracefx.ops.operation import CompiledOperation, HasZeroTangent, LinearOperation, Operation, run_compiled
from tracefx.ops.sharding_rules import require_unsharded
from tracefx.ops.static_integers import static_int
from tracefx.ops.structural import batch_first

# ------------------------------------------------------------------ population_count, clz


class BitCount(NonDifferentiable):
    """A count of bits of integers."""

    __slots__ = ()
    domain = INTEGERS
    widens_narrow_ints = False  # the width of the operand matters


@final
class PopulationCount(BitCount):
    """The number of set bits, elementwise.

    `x: i32[...] -> i32[...]`, integers. Bound by `lax.population_count`.
    """

    name = "population_count"
    hlo = "stablehlo.popcnt"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return np.asarray(np.bitwise_count(extend_to_bytes(args[0], signed=False)))

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        if out.dtype not in SIGNED_NARROW:
            return builder.emit(self.hlo, operands, [out])[0]
        # XLA's CPU backend would also count the copies of the sign bit that pad the byte.
        unsigned = out.update(dtype=dtypes.uint4 if out.dtype == dtypes.int4 else dtypes.uint2)
        bits = builder.emit("stablehlo.convert", operands, [unsigned])
        return builder.emit("stablehlo.convert", builder.emit(self.hlo, bits, [unsigned]), [out])[0]


@final
class Clz(BitCount):
    """The number of leading zero bits, elementwise.

    `x: i32[...] -> i32[...]`, integers. Bound by `lax.clz`.
    """

    name = "clz"
    hlo = "stablehlo.count_leading_zeros"

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        bits = dtypes.itemsize_bits(args[0].dtype)
        x = extend_to_bytes(args[0], signed=False)
        step = 1
        while step < bits:  # sets every bit below the highest set bit
            x = x | (x >> x.dtype.type(step))
            step *= 2
        return np.asarray(bits - np.bitwise_count(x))


POPULATION_COUNT: Final = PopulationCount()
CLZ: Final = Clz()


def population_count(x: ArrayLike) -> Array:
    """Returns the number of set bits of each integer.

    Args:
        x: Array of integers, or an integer.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not of an integer dtype.

    >>> population_count(np.array([0, 1, 6, -1])).tolist()
    [0, 1, 2, 32]
    """
    return bind1(POPULATION_COUNT, x)


def clz(x: ArrayLike) -> Array:
    """Returns the number of leading zero bits of each integer.

    Args:
        x: Array of integers, or an integer.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not of an integer dtype.

    >>> clz(np.array([0, 1, 6, -1])).tolist()
    [32, 31, 29, 0]
    """
    return bind1(CLZ, x)


# ------------------------------------------------------------------ bitcast_convert_type


@final
@frozen(eq=False)
class BitcastConvertType(Operation, HasZeroTangent):
    """Reinterprets the bits of each element as another dtype.

    If the dtypes differ in width, the last axis holds the narrow elements of one wide element.

    Args:
        new_dtype: The dtype of the result: the dtype of the operand, or an integer or float dtype.

    `x: f32[...] -> i32[...]`, or `f32[...] -> u8[..., 4]` and `u8[..., 4] -> f32[...]`; integers or floats. Bound by
    `lax.bitcast_convert_type`.

    >>> from tracefx import bind, dtypes, ops
    >>> bind(ops.BitcastConvertType(dtypes.result_type("int32")), 1.0)
    [Array(1065353216, dtype=int32)]
    """

    name = "bitcast_convert_type"
    new_dtype: DType

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        (x,), (out,) = avals, outs
        if out.ndim < x.ndim:
            require_unsharded(self, x, [x.ndim - 1])
        return [(*x.spec, None)[: out.ndim]]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        old, new = x.dtype, self.new_dtype
        if old == new:
            return ShapedArray(x.shape, new)
        for dtype in (old, new):
            if not dtypes.is_integer(dtype) and not dtypes.is_float(dtype):
                raise TypeError(
                    f"bitcast_convert_type converts between integers and floats, or to the same dtype; got {x} "
                    f"and new_dtype {dtypes.name(new)}"
                )
        old_bits, new_bits = dtypes.itemsize_bits(old), dtypes.itemsize_bits(new)
        shape = x.shape
        if old_bits > new_bits:
            shape = (*shape, old_bits // new_bits)
        elif old_bits < new_bits:
            if not shape or shape[-1] * old_bits != new_bits:
                raise ValueError(
                    f"bitcast_convert_type of {x} to {new}: the last axis must hold the bits of one element, so it "
                    f"must have size {new_bits // old_bits}"
                )
            shape = shape[:-1]
        return ShapedArray(shape, new)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        (x,) = args
        if not x.size:
            aval = self.out_aval(ShapedArray(x.shape, x.dtype))
            return np.empty(aval.shape, aval.dtype)
        wide = x.dtype.itemsize > self.new_dtype.itemsize
        flat = np.ascontiguousarray(x[..., None] if wide or not x.ndim else x).view(self.new_dtype)
        return flat.reshape(self.out_aval(ShapedArray(x.shape, x.dtype)).shape)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        self.abstract_eval(*[a.aval for a in args])
        (x,) = args
        if min(dtypes.itemsize_bits(x.aval.dtype), dtypes.itemsize_bits(self.new_dtype)) < 8:
            return run_compiled(self, args)  # NumPy stores each of these in a byte
        return Operation.evaluate(self, args)

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        return bind1(self, batch_first(args[0], dims[0], axis)), 0

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        (x,) = operands
        return x if x.aval.dtype == out.dtype else builder.emit("stablehlo.bitcast_convert", [x], [out])[0]


def bitcast_convert_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """Returns the bits of `operand` reinterpreted as another dtype.

    Args:
        operand: Array of integers or floats.
        new_dtype: An integer or float dtype. If it is narrower, elements become a new last axis: `f32[n]` as int8 is
            `i8[n, 4]`. If it is wider, such an axis becomes one element.

    Returns:
        An array of `new_dtype`.

    Raises:
        TypeError: A dtype is boolean or complex (unless both are equal).
        ValueError: The last axis does not have the bits of one element.

    >>> bitcast_convert_type(np.float32(1), "int32").item() == 0x3F800000
    True
    """
    return bind1(BitcastConvertType(dtypes.as_dtype(new_dtype, "new_dtype")), operand)


# ------------------------------------------------------------------ reduce_precision


@final
@frozen(eq=False)
class ReducePrecision(CompiledOperation, LinearOperation):
    """Rounds floats to a format with fewer bits, to nearest, ties to even. It is differentiated as if it were linear.

    Args:
        exponent_bits: The number of bits of the exponent, at least 1. Larger numbers become infinite.
        mantissa_bits: The number of bits of the mantissa, without the implicit leading one.

    `x: f32[...] -> f32[...]`, floats. Bound by `lax.reduce_precision`.

    >>> from tracefx import bind, ops
    >>> bind(ops.ReducePrecision(8, 7), 3.14159)
    [Array(3.140625, dtype=float32, weak_type=True)]
    """

    name = "reduce_precision"
    exponent_bits: int
    mantissa_bits: int

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [avals[0].spec]

    @override
    def out_aval(self, *avals: ShapedArray) -> ShapedArray:
        (x,) = avals
        FLOATS.require("reduce_precision", x)
        if self.exponent_bits < 1:
            raise ValueError(f"reduce_precision: exponent_bits must be at least 1, got {self.exponent_bits}")
        if self.mantissa_bits < 0:
            raise ValueError(f"reduce_precision: mantissa_bits must not be negative, got {self.mantissa_bits}")
        return x

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [bind1(self, ct)]

    @override
    def batched(self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> tuple[Value, int | None]:
        return bind1(self, *args), dims[0]

    @override
    def emit(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        attrs = {
            "exponent_bits": MlirText(f"{self.exponent_bits} : i32"),
            "mantissa_bits": MlirText(f"{self.mantissa_bits} : i32"),
        }
        return builder.emit("stablehlo.reduce_precision", operands, [out], attrs)[0]


def reduce_precision(operand: ArrayLike, exponent_bits: SupportsIndex, mantissa_bits: SupportsIndex) -> Array:
    """Returns floats rounded to a format with fewer exponent and mantissa bits, in their own dtype.

    Args:
        operand: Array of floats, or a float.
        exponent_bits: The number of exponent bits, a static integer of at least 1.
        mantissa_bits: The number of mantissa bits, a static integer of at least 0.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `operand` is not of a float dtype, or a width is not a static integer.
        ValueError: A width is too small.

    >>> reduce_precision(np.float32(1.001), 8, 7)
    Array(1., dtype=float32)
    """
    exponent = static_int("reduce_precision", exponent_bits, "exponent_bits")
    mantissa = static_int("reduce_precision", mantissa_bits, "mantissa_bits")
    return bind1(ReducePrecision(exponent, mantissa), operand)


# ------------------------------------------------------------------ dtypes and conversion to arrays


def dtype(x: ArrayLike | DTypeLike | None) -> DType:
    """Returns the dtype of an array, the default dtype of a number, or the dtype that a dtype-like argument names.

    Args:
        x: Array, number, dtype, scalar type or name of a dtype.

    Returns:
        A NumPy dtype.

    Raises:
        TypeError: `x` is none of these.
        ValueError: `x` is None.

    >>> dtype(2.0), dtype(np.arange(3, dtype="int8")), dtype("bfloat16")
    (dtype('float32'), dtype('int8'), dtype(bfloat16))
    """
    if x is None:
        raise ValueError("dtype: None is neither an array nor a dtype")
    if isinstance(x, str | type | np.dtype):
        return dtypes.as_dtype(x, "dtype: x", exact=True)
    return as_value(x).aval.dtype


def stage(x: ArrayLike, /) -> Array:
    """Returns `x` as an array; in a traced function, a tracer.

    Args:
        x: Array or number.

    Returns:
        An array equal to `x`.

    >>> stage(2.0)
    Array(2., dtype=float32, weak_type=True)
    """
    return as_array(as_value(x))
