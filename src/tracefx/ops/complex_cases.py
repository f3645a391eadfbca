"""What compiled functions of complex numbers are at infinities, NaNs and zeros of either sign, as C and the array API
have them: XLA's own miss some, and take both sides of a branch cut for the upper one.

A function is either mended, a few of XLA's results being replaced, or composed of functions of the parts. Either costs
a few comparisons and choices beside the exponentials and logarithms, which no program's time shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

from attrs import frozen

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.builder import Builder, Ir
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.literal import Scalar
from tracefx.ops import stablehlo


@final
@frozen
class OfComplex:
    """How a function of complex numbers departs from those of XLA and NumPy."""

    mended: Callable[[Builder, Ir, Ir], Ir] | None = None
    """The results for an operand, given XLA's."""

    composed: Callable[[Builder, Ir], Ir] | None = None
    """The results for an operand, without XLA's operation."""

    kernel: Callable[[NDArray], NDArray] | None = None
    """What stands for NumPy's function."""


@final
@frozen(eq=False)
class Reals:
    """The arithmetic of real numbers of one type."""

    builder: Builder
    type: ShapedArray

    def apply(self, name: str, *operands: Ir) -> Ir:
        return self.builder.emit(name, operands, [self.type])[0]

    def full(self, value: Scalar) -> Ir:
        return stablehlo.full(self.builder, value, self.type)

    def equal(self, x: Ir, value: Scalar) -> Ir:
        return stablehlo.compare(self.builder, "EQ", x, self.full(value))

    def logical(self, name: str, *operands: Ir) -> Ir:
        return self.builder.emit(name, operands, [ShapedArray(self.type.shape, dtypes.bool_)])[0]

    def infinite(self, x: Ir) -> Ir:
        return self.equal(self.apply("stablehlo.abs", x), math.inf)

    def finite(self, x: Ir) -> Ir:
        return self.logical("stablehlo.is_finite", x)

    def nowhere(self, x: Ir) -> Ir:
        """Where `x` is infinite or NaN."""
        return self.logical("stablehlo.not", self.finite(x))

    def nan(self, x: Ir) -> Ir:
        return stablehlo.compare(self.builder, "NE", x, x)

    def either(self, x: Ir, y: Ir) -> Ir:
        return self.logical("stablehlo.or", x, y)

    def both(self, x: Ir, y: Ir) -> Ir:
        return self.logical("stablehlo.and", x, y)

    def choose(self, condition: Ir, x: Ir, y: Ir) -> Ir:
        return self.apply("stablehlo.select", condition, x, y)

    def signed(self, x: Ir, sign: Ir) -> Ir:
        """`x` with the sign of `sign`."""
        dtype = _words(self.type.dtype)
        words = ShapedArray(self.type.shape, dtype)
        first = 1 << (dtypes.itemsize_bits(dtype) - 1)
        top, rest = (stablehlo.full(self.builder, k, words) for k in (first, first - 1))
        bits, signs = (self.builder.emit("stablehlo.bitcast_convert", [v], [words])[0] for v in (x, sign))
        (kept,) = self.builder.emit("stablehlo.and", [bits, rest], [words])
        (taken,) = self.builder.emit("stablehlo.and", [signs, top], [words])
        return self.apply("stablehlo.bitcast_convert", *self.builder.emit("stablehlo.or", [kept, taken], [words]))

    def join(self, real: Ir, imag: Ir) -> Ir:
        wide = dtypes.complex128 if self.type.dtype == dtypes.float64 else dtypes.complex64
        return self.builder.emit("stablehlo.complex", [real, imag], [ShapedArray(self.type.shape, wide)])[0]


def _words(dtype: DType) -> DType:
    return dtypes.uint64 if dtype == dtypes.float64 else dtypes.uint32


def _parts(builder: Builder, z: Ir) -> tuple[Reals, Ir, Ir]:
    r = Reals(builder, ShapedArray(z.aval.shape, dtypes.real_dtype(z.aval.dtype)))
    return r, r.apply("stablehlo.real", z), r.apply("stablehlo.imag", z)


# ------------------------------------------------------------------ sizes


def abs_(builder: Builder, z: Ir, size: Ir) -> Ir:
    """An infinity is as far from 0 as can be, whatever the other part."""
    r, a, b = _parts(builder, z)
    return r.choose(r.either(r.infinite(a), r.infinite(b)), r.full(math.inf), size)


def sign(builder: Builder, z: Ir, out: Ir) -> Ir:
    zero = stablehlo.full(builder, 0, out.aval)
    return builder.emit("stablehlo.select", [stablehlo.compare(builder, "EQ", z, zero), zero, out], [out.aval])[0]


# ------------------------------------------------------------------ exponentials, logarithms, roots


def exp(builder: Builder, z: Ir, out: Ir) -> Ir:
    return _exponential(builder, z, out, 0.0)


def expm1(builder: Builder, z: Ir, out: Ir) -> Ir:
    return _exponential(builder, z, out, -1.0)


def _exponential(builder: Builder, z: Ir, out: Ir, least: float) -> Ir:
    """An infinity has no direction where the angle is none, and real numbers stay real, with their zero."""
    r, a, b = _parts(builder, z)
    _, real, imag = _parts(builder, out)
    large = stablehlo.compare(builder, "GT", a, r.full(0.0))
    undirected = r.both(r.infinite(a), r.nowhere(b))
    real = r.choose(undirected, r.choose(large, r.full(math.inf), r.full(least)), real)
    imag = r.choose(undirected, r.choose(large, r.full(math.nan), r.full(0.0)), imag)
    return r.join(real, r.choose(r.equal(b, 0.0), b, imag))


def exp2(builder: Builder, z: Ir) -> Ir:
    r, a, b = _parts(builder, z)
    scale = r.full(math.log(2.0))
    scaled = r.join(r.apply("stablehlo.multiply", a, scale), r.apply("stablehlo.multiply", b, scale))
    return exp(builder, scaled, *builder.emit("stablehlo.exponential", [scaled], [scaled.aval]))


def log(builder: Builder, z: Ir, out: Ir) -> Ir:
    """The logarithm of an infinite size is infinite, also where the direction is none."""
    r, a, b = _parts(builder, z)
    _, real, imag = _parts(builder, out)
    return r.join(r.choose(r.either(r.infinite(a), r.infinite(b)), r.full(math.inf), real), imag)


def sqrt(builder: Builder, z: Ir, out: Ir) -> Ir:
    """Below the cut along the negative numbers, where the imaginary part is -0, roots have negative imaginary parts."""
    r, a, b = _parts(builder, z)
    _, real, imag = _parts(builder, out)
    infinity, steep = r.full(math.inf), r.infinite(b)
    real = r.choose(r.either(steep, r.equal(a, math.inf)), infinity, real)
    imag = r.choose(r.either(steep, r.equal(a, -math.inf)), infinity, imag)
    return r.join(real, r.signed(imag, b))


# ------------------------------------------------------------------ trigonometric and hyperbolic functions


def sinh(builder: Builder, z: Ir) -> Ir:
    r, a, b = _parts(builder, z)
    return r.join(*_sinh(r, a, b))


def cosh(builder: Builder, z: Ir) -> Ir:
    r, a, b = _parts(builder, z)
    return r.join(*_cosh(r, a, b))


def sin(builder: Builder, z: Ir) -> Ir:
    r, a, b = _parts(builder, z)
    imag, real = _sinh(r, b, a)
    return r.join(real, imag)


def cos(builder: Builder, z: Ir) -> Ir:
    r, a, b = _parts(builder, z)
    real, imag = _cosh(r, b, a)
    return r.join(real, r.apply("stablehlo.negate", imag))


def _sinh(r: Reals, a: Ir, b: Ir) -> tuple[Ir, Ir]:
    real = r.apply("stablehlo.multiply", r.apply("chlo.sinh", a), r.apply("stablehlo.cosine", b))
    imag = r.apply("stablehlo.multiply", r.apply("chlo.cosh", a), r.apply("stablehlo.sine", b))
    end = r.either(r.equal(a, 0.0), r.infinite(a))
    return r.choose(r.both(end, r.nowhere(b)), a, real), r.choose(r.equal(b, 0.0), b, imag)


def _cosh(r: Reals, a: Ir, b: Ir) -> tuple[Ir, Ir]:
    real = r.apply("stablehlo.multiply", r.apply("chlo.cosh", a), r.apply("stablehlo.cosine", b))
    imag = r.apply("stablehlo.multiply", r.apply("chlo.sinh", a), r.apply("stablehlo.sine", b))
    undirected = r.nowhere(b)
    real = r.choose(r.both(r.infinite(a), undirected), r.full(math.inf), real)
    imag = r.choose(r.both(r.equal(a, 0.0), undirected), a, imag)
    return real, r.choose(r.equal(b, 0.0), r.apply("stablehlo.multiply", b, r.signed(r.full(1.0), a)), imag)


def tanh(builder: Builder, z: Ir, out: Ir) -> Ir:
    r, a, b = _parts(builder, z)
    _, real, imag = _parts(builder, out)
    return r.join(*_tanh(r, a, b, real, imag))


def tan(builder: Builder, z: Ir, out: Ir) -> Ir:
    r, a, b = _parts(builder, z)
    _, real, imag = _parts(builder, out)
    imag, real = _tanh(r, b, a, imag, real)
    return r.join(real, imag)


def _tanh(r: Reals, a: Ir, b: Ir, real: Ir, imag: Ir) -> tuple[Ir, Ir]:
    """Real numbers stay real, imaginary ones imaginary, and the ends are -1 and 1."""
    end = r.infinite(a)
    real = r.choose(end, r.signed(r.full(1.0), a), r.choose(r.equal(a, 0.0), a, real))
    imag = r.choose(end, r.signed(r.full(0.0), b), r.choose(r.equal(b, 0.0), b, imag))
    return real, imag


# ------------------------------------------------------------------ their inverses


def asinh(builder: Builder, z: Ir, out: Ir) -> Ir:
    r, a, b = _parts(builder, z)
    _, real, imag = _parts(builder, out)
    unknown, nan = r.nan(a), r.full(math.nan)
    real = r.choose(r.both(unknown, r.finite(b)), nan, real)
    return r.join(r.signed(real, a), r.choose(r.equal(b, 0.0), b, r.signed(r.choose(unknown, nan, imag), b)))


def asin(builder: Builder, z: Ir, out: Ir) -> Ir:
    r, a, b = _parts(builder, z)
    _, real, imag = _parts(builder, out)
    return r.join(r.choose(r.equal(a, 0.0), a, r.signed(real, a)), r.signed(imag, b))


def acos(builder: Builder, z: Ir, out: Ir) -> Ir:
    r, a, b = _parts(builder, z)
    _, real, imag = _parts(builder, out)
    unknown = r.nan(b)
    real = r.choose(r.equal(a, 0.0), r.full(math.pi / 2), r.choose(unknown, r.full(math.nan), real))
    imag = r.choose(r.both(unknown, r.finite(a)), r.full(math.nan), imag)
    return r.join(real, r.signed(imag, r.apply("stablehlo.negate", b)))


def acosh(builder: Builder, z: Ir, out: Ir) -> Ir:
    r, a, b = _parts(builder, z)
    _, real, imag = _parts(builder, out)
    unknown, nan = r.nan(b), r.full(math.nan)
    real = r.choose(r.both(unknown, r.finite(a)), nan, real)
    imag = r.choose(r.equal(a, 0.0), r.full(math.pi / 2), r.choose(unknown, nan, imag))
    return r.join(real, r.signed(imag, b))


def atanh(builder: Builder, z: Ir, out: Ir) -> Ir:
    r, a, b = _parts(builder, z)
    _, real, imag = _parts(builder, out)
    return r.join(*_atanh(r, a, b, real, imag))


def atan(builder: Builder, z: Ir, out: Ir) -> Ir:
    r, a, b = _parts(builder, z)
    _, real, imag = _parts(builder, out)
    imag, real = _atanh(r, b, a, imag, real)
    return r.join(real, imag)


def _atanh(r: Reals, a: Ir, b: Ir, real: Ir, imag: Ir) -> tuple[Ir, Ir]:
    far, nan = r.either(r.infinite(a), r.infinite(b)), r.full(math.nan)
    unknown = r.either(r.nan(a), r.nan(b))
    real = r.choose(far, r.full(0.0), r.choose(unknown, nan, real))
    imag = r.choose(far, r.full(math.pi / 2), r.choose(unknown, nan, imag))
    return r.choose(r.equal(a, 0.0), a, r.signed(real, a)), r.choose(r.nan(b), nan, r.signed(imag, b))
