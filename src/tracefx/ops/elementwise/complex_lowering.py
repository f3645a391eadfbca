"""Lowering of complex functions with the special values of C and the array API.

XLA's results differ at some infinities, NaNs and signed zeros, and it treats both sides of a branch cut as the upper
one. Here a function is either fixed up, by replacing some of XLA's results, or composed of real functions.
Either costs a few comparisons and selections, which is negligible beside the exponentials and logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, final

from attrs import frozen

from tracefx.core import NDArray, Scalar, ShapedArray, dtypes
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo


@final
@frozen(eq=False)
class RealEmitter:
    """Emits arithmetic on real arrays of one shape and dtype."""

    builder: Builder
    type: ShapedArray

    def apply(self, name: str, *operands: IrValue) -> IrValue:
        return self.builder.emit(name, operands, [self.type])[0]

    def full(self, value: Scalar) -> IrValue:
        return stablehlo.emit_full(self.builder, value, self.type)

    def equal(self, x: IrValue, value: Scalar) -> IrValue:
        return stablehlo.emit_compare(self.builder, "EQ", x, self.full(value))

    def logical(self, name: str, *operands: IrValue) -> IrValue:
        return self.builder.emit(name, operands, [ShapedArray(self.type.shape, dtypes.bool_)])[0]

    def infinite(self, x: IrValue) -> IrValue:
        return self.equal(self.apply("stablehlo.abs", x), math.inf)

    def finite(self, x: IrValue) -> IrValue:
        return self.logical("stablehlo.is_finite", x)

    def non_finite(self, x: IrValue) -> IrValue:
        """Emits whether `x` is infinite or NaN."""
        return self.logical("stablehlo.not", self.finite(x))

    def nan(self, x: IrValue) -> IrValue:
        return stablehlo.emit_compare(self.builder, "NE", x, x)

    def logical_or(self, x: IrValue, y: IrValue) -> IrValue:
        return self.logical("stablehlo.or", x, y)

    def logical_and(self, x: IrValue, y: IrValue) -> IrValue:
        return self.logical("stablehlo.and", x, y)

    def select(self, condition: IrValue, x: IrValue, y: IrValue) -> IrValue:
        return self.apply("stablehlo.select", condition, x, y)

    def copysign(self, x: IrValue, sign: IrValue) -> IrValue:
        """Emits `x` with the sign of `sign`."""
        dtype = dtypes.uint64 if self.type.dtype == dtypes.float64 else dtypes.uint32
        words = ShapedArray(self.type.shape, dtype)
        high = 1 << (dtypes.itemsize_bits(dtype) - 1)
        sign_mask, magnitude_mask = (stablehlo.emit_full(self.builder, k, words) for k in (high, high - 1))
        bits, signs = (self.builder.emit("stablehlo.bitcast_convert", [v], [words])[0] for v in (x, sign))
        (magnitude,) = self.builder.emit("stablehlo.and", [bits, magnitude_mask], [words])
        (new_sign,) = self.builder.emit("stablehlo.and", [signs, sign_mask], [words])
        return self.apply(
            "stablehlo.bitcast_convert", *self.builder.emit("stablehlo.or", [magnitude, new_sign], [words])
        )

    def make_complex(self, real: IrValue, imag: IrValue) -> IrValue:
        wide = dtypes.complex128 if self.type.dtype == dtypes.float64 else dtypes.complex64
        return self.builder.emit("stablehlo.complex", [real, imag], [ShapedArray(self.type.shape, wide)])[0]


Parts: TypeAlias = tuple[IrValue, IrValue]
"""The real and the imaginary part of a complex number."""


@final
@frozen
class ComplexRule:
    """How a complex function deviates from those of XLA and NumPy."""

    fixup: Callable[[RealEmitter, IrValue, IrValue, IrValue, IrValue], Parts] | None = None
    """Corrects XLA's result, given the parts of the operand and of that result."""

    lower: Callable[[RealEmitter, IrValue, IrValue], Parts] | None = None
    """Emits the result for the parts of an operand, in place of XLA's operation."""

    kernel: Callable[[NDArray], NDArray] | None = None
    """Replaces NumPy's function."""


def emit_by_parts(builder: Builder, formula: Callable[..., Parts], *operands: IrValue) -> IrValue:
    """Emits the complex number whose parts a formula emits for a `RealEmitter` and the parts of the operands."""
    aval = operands[0].aval
    r = RealEmitter(builder, ShapedArray(aval.shape, dtypes.real_dtype(aval.dtype)))
    parts = [r.apply(f"stablehlo.{part}", z) for z in operands for part in ("real", "imag")]
    return r.make_complex(*formula(r, *parts))


# ------------------------------------------------------------------ absolute value and sign


def emit_abs(builder: Builder, z: IrValue, size: IrValue) -> IrValue:
    """Fixes up the absolute value: it is infinite if either component is, even if the other is NaN."""
    r = RealEmitter(builder, size.aval)
    a, b = r.apply("stablehlo.real", z), r.apply("stablehlo.imag", z)
    return r.select(r.logical_or(r.infinite(a), r.infinite(b)), r.full(math.inf), size)


def emit_sign(builder: Builder, z: IrValue, out: IrValue) -> IrValue:
    """Fixes up the sign at 0, where it is 0."""
    zero = stablehlo.emit_full(builder, 0, out.aval)
    return builder.emit("stablehlo.select", [stablehlo.emit_compare(builder, "EQ", z, zero), zero, out], [out.aval])[0]


# ------------------------------------------------------------------ exponentials, logarithms, roots


def exp(r: RealEmitter, a: IrValue, b: IrValue, real: IrValue, imag: IrValue) -> Parts:
    """Fixes up `exp` at infinities, and for real operands."""
    return _exponential(r, a, b, real, imag, 0.0)


def expm1(r: RealEmitter, a: IrValue, b: IrValue, real: IrValue, imag: IrValue) -> Parts:
    """Fixes up `expm1` at infinities, and for real operands."""
    return _exponential(r, a, b, real, imag, -1.0)


def _exponential(r: RealEmitter, a: IrValue, b: IrValue, real: IrValue, imag: IrValue, least: float) -> Parts:
    """Fixes up `exp(z) + least` at infinite real parts with non-finite imaginary parts, and for real `z`."""
    large = stablehlo.emit_compare(r.builder, "GT", a, r.full(0.0))
    undirected = r.logical_and(r.infinite(a), r.non_finite(b))
    real = r.select(undirected, r.select(large, r.full(math.inf), r.full(least)), real)
    imag = r.select(undirected, r.select(large, r.full(math.nan), r.full(0.0)), imag)
    return real, r.select(r.equal(b, 0.0), b, imag)


def square(r: RealEmitter, a: IrValue, b: IrValue) -> Parts:
    """Emits the square with the real part as a product of sum and difference."""
    real = r.apply("stablehlo.multiply", r.apply("stablehlo.subtract", a, b), r.apply("stablehlo.add", a, b))
    sizes = [r.apply("stablehlo.abs", x) for x in (a, b)]
    vanishes = r.logical_and(stablehlo.emit_compare(r.builder, "EQ", *sizes), r.finite(a))
    product = r.apply("stablehlo.multiply", a, b)
    return r.select(vanishes, r.full(0.0), real), r.apply("stablehlo.add", product, product)


def emit_exp2(builder: Builder, z: IrValue) -> IrValue:
    """Emits `2**z` as the exponential of `z log 2`."""

    def scale(r: RealEmitter, a: IrValue, b: IrValue) -> Parts:
        log2 = r.full(math.log(2.0))
        return r.apply("stablehlo.multiply", a, log2), r.apply("stablehlo.multiply", b, log2)

    scaled = emit_by_parts(builder, scale, z)
    return emit_by_parts(builder, exp, scaled, *builder.emit("stablehlo.exponential", [scaled], [scaled.aval]))


def log(r: RealEmitter, a: IrValue, b: IrValue, real: IrValue, imag: IrValue) -> Parts:
    """Fixes up the logarithm: its real part is infinite if either component is, even if the other is NaN."""
    return r.select(r.logical_or(r.infinite(a), r.infinite(b)), r.full(math.inf), real), imag


def sqrt(r: RealEmitter, a: IrValue, b: IrValue, real: IrValue, imag: IrValue) -> Parts:
    """Fixes up the square root: its imaginary part has the sign of `z.imag`, also on the branch cut, and infinities."""
    infinity, steep = r.full(math.inf), r.infinite(b)
    real = r.select(r.logical_or(steep, r.equal(a, math.inf)), infinity, real)
    imag = r.select(r.logical_or(steep, r.equal(a, -math.inf)), infinity, imag)
    return real, r.copysign(imag, b)


# ------------------------------------------------------------------ trigonometric and hyperbolic functions


def _scale(r: RealEmitter, name: str, a: IrValue, factor: IrValue) -> IrValue:
    """Emits `sinh(a) * factor` or `cosh(a) * factor`, also where only the product is finite."""
    size, limit = r.apply("stablehlo.abs", a), r.full(709.0 if r.type.dtype == dtypes.float64 else 88.0)
    root = r.apply("stablehlo.exponential", r.apply("stablehlo.multiply", size, r.full(0.5)))
    half = r.apply("stablehlo.multiply", root, r.copysign(r.full(0.5), a) if name == "chlo.sinh" else r.full(0.5))
    product = r.apply("stablehlo.multiply", r.apply("stablehlo.multiply", half, factor), root)
    overflows = r.logical_and(stablehlo.emit_compare(r.builder, "GT", size, limit), r.finite(a))
    return r.select(overflows, product, r.apply("stablehlo.multiply", r.apply(name, a), factor))


def sinh(r: RealEmitter, a: IrValue, b: IrValue) -> Parts:
    """Emits `sinh` composed of real functions."""
    real = _scale(r, "chlo.sinh", a, r.apply("stablehlo.cosine", b))
    imag = _scale(r, "chlo.cosh", a, r.apply("stablehlo.sine", b))
    end = r.logical_or(r.equal(a, 0.0), r.infinite(a))
    return r.select(r.logical_and(end, r.non_finite(b)), a, real), r.select(r.equal(b, 0.0), b, imag)


def cosh(r: RealEmitter, a: IrValue, b: IrValue) -> Parts:
    """Emits `cosh` composed of real functions."""
    real = _scale(r, "chlo.cosh", a, r.apply("stablehlo.cosine", b))
    imag = _scale(r, "chlo.sinh", a, r.apply("stablehlo.sine", b))
    undirected = r.non_finite(b)
    real = r.select(r.logical_and(r.infinite(a), undirected), r.full(math.inf), real)
    imag = r.select(r.logical_and(r.equal(a, 0.0), undirected), a, imag)
    return real, r.select(r.equal(b, 0.0), r.apply("stablehlo.multiply", b, r.copysign(r.full(1.0), a)), imag)


def tanh(r: RealEmitter, a: IrValue, b: IrValue, real: IrValue, imag: IrValue) -> Parts:
    """Fixes up `tanh`: real for real operands, imaginary for imaginary ones, and -1 or 1 at real infinities."""
    end = r.infinite(a)
    real = r.select(end, r.copysign(r.full(1.0), a), r.select(r.equal(a, 0.0), a, real))
    imag = r.select(end, r.copysign(r.full(0.0), b), r.select(r.equal(b, 0.0), b, imag))
    return real, imag


def sin(r: RealEmitter, a: IrValue, b: IrValue) -> Parts:
    """Emits `sin(z)` as `-i sinh(i z)`."""
    return sinh(r, b, a)[::-1]


def cos(r: RealEmitter, a: IrValue, b: IrValue) -> Parts:
    """Emits `cos(z)` as `cosh(i z)`."""
    real, imag = cosh(r, b, a)
    return real, r.apply("stablehlo.negate", imag)


def tan(r: RealEmitter, a: IrValue, b: IrValue, real: IrValue, imag: IrValue) -> Parts:
    """Fixes up `tan(z)` as `-i tanh(i z)`."""
    return tanh(r, b, a, imag, real)[::-1]


# ------------------------------------------------------------------ inverse functions


def asinh(r: RealEmitter, a: IrValue, b: IrValue, real: IrValue, imag: IrValue) -> Parts:
    """Fixes up signs, branch cuts and NaNs of `asinh`."""
    unknown, nan = r.nan(a), r.full(math.nan)
    real = r.select(r.logical_and(unknown, r.finite(b)), nan, real)
    return r.copysign(real, a), r.select(r.equal(b, 0.0), b, r.copysign(r.select(unknown, nan, imag), b))


def asin(r: RealEmitter, a: IrValue, b: IrValue, real: IrValue, imag: IrValue) -> Parts:
    """Fixes up signs and branch cuts of `asin`."""
    return r.select(r.equal(a, 0.0), a, r.copysign(real, a)), r.copysign(imag, b)


def acos(r: RealEmitter, a: IrValue, b: IrValue, real: IrValue, imag: IrValue) -> Parts:
    """Fixes up signs, branch cuts and NaNs of `acos`."""
    unknown = r.nan(b)
    real = r.select(r.equal(a, 0.0), r.full(math.pi / 2), r.select(unknown, r.full(math.nan), real))
    imag = r.select(r.logical_and(unknown, r.finite(a)), r.full(math.nan), imag)
    return real, r.copysign(imag, r.apply("stablehlo.negate", b))


def acosh(r: RealEmitter, a: IrValue, b: IrValue, real: IrValue, imag: IrValue) -> Parts:
    """Fixes up signs, branch cuts and NaNs of `acosh`."""
    unknown, nan = r.nan(b), r.full(math.nan)
    real = r.select(r.logical_and(unknown, r.finite(a)), nan, real)
    imag = r.select(r.equal(a, 0.0), r.full(math.pi / 2), r.select(unknown, nan, imag))
    return real, r.copysign(imag, b)


def atanh(r: RealEmitter, a: IrValue, b: IrValue, real: IrValue, imag: IrValue) -> Parts:
    """Fixes up signs, branch cuts, infinities and NaNs of `atanh`."""
    far, nan = r.logical_or(r.infinite(a), r.infinite(b)), r.full(math.nan)
    unknown = r.logical_or(r.nan(a), r.nan(b))
    real = r.select(far, r.full(0.0), r.select(unknown, nan, real))
    imag = r.select(far, r.full(math.pi / 2), r.select(unknown, nan, imag))
    return r.select(r.equal(a, 0.0), a, r.copysign(real, a)), r.select(r.nan(b), nan, r.copysign(imag, b))


def atan(r: RealEmitter, a: IrValue, b: IrValue, real: IrValue, imag: IrValue) -> Parts:
    """Fixes up `atan(z)` as `-i atanh(i z)`."""
    return atanh(r, b, a, imag, real)[::-1]
