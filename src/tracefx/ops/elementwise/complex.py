"""Complex numbers: `real`, `imag`, `complex`, `conj`; and `is_finite`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, NDArray, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import bind1
from tracefx.core.primitive import Differentiable, Tangent, UndefinedPrimal
from tracefx.lowering import Builder, IrValue
from tracefx.ops import stablehlo
from tracefx.ops.elementwise.arithmetic import neg, neg_tangent
from tracefx.ops.elementwise.elementwise import FLOATS, Elementwise, NonDifferentiable, bind_binary, unbroadcast
from tracefx.ops.operation import Domain, HasPullback
from tracefx.ops.structural import full_like_aval, instantiate, match_aval

COMPLEX: Final = Domain("complex numbers", dtypes.is_complex)
COMPONENT_FLOATS: Final = Domain("float32 or float64", lambda d: d in (dtypes.float32, dtypes.float64))
COMPONENT_FLOATS_OR_COMPLEX: Final = Domain(
    "float32, float64 or complex numbers", lambda d: COMPONENT_FLOATS.accepts(d) or COMPLEX.accepts(d)
)


def complex_dtype(dtype: DType) -> DType:
    """Returns the complex dtype with components of `dtype`, or `dtype` itself if it is complex."""
    return dtypes.complex128 if dtypes.real_dtype(dtype) == dtypes.float64 else dtypes.complex64


class LinearElementwise(Elementwise, Differentiable, HasPullback):
    """An elementwise primitive that is jointly linear over the reals in all operands."""

    __slots__ = ()

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        out = bind1(self, *primals)
        values = [instantiate(t) for t in tangents]
        return [out], [match_aval(bind1(self, *values), out.aval.tangent())]


# ------------------------------------------------------------------ real, imag, conj, complex


@final
class Real(LinearElementwise):
    """The real part, elementwise: `x` of `x + 1j * y`.

    `z: c64[...] -> f32[...]`, complex numbers. Bound by `lax.real`.
    """

    name = "real"
    domain = COMPLEX
    hlo = "stablehlo.real"

    @override
    def out_dtype(self, dtype: DType) -> DType:
        return dtypes.real_dtype(dtype)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return np.ascontiguousarray(args[0].real) if args[0].ndim else np.asarray(args[0].real)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [match_aval(complex(ct, full_like_aval(ct.aval, 0)), args[0].aval)]


@final
class Imag(LinearElementwise):
    """The imaginary part, elementwise: `y` of `x + 1j * y`.

    `z: c64[...] -> f32[...]`, complex numbers. Bound by `lax.imag`.
    """

    name = "imag"
    domain = COMPLEX
    hlo = "stablehlo.imag"

    @override
    def out_dtype(self, dtype: DType) -> DType:
        return dtypes.real_dtype(dtype)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        return np.ascontiguousarray(args[0].imag) if args[0].ndim else np.asarray(args[0].imag)

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [match_aval(complex(full_like_aval(ct.aval, 0), neg(ct)), args[0].aval)]


@final
class Complex(LinearElementwise):
    """The complex numbers with given real and imaginary parts, elementwise: `x + 1j * y`.

    `x: f32[...], y: f32[...] -> c64[...]`, float32 or float64. Bound by `lax.complex`.
    """

    name = "complex"
    arity = 2
    domain = COMPONENT_FLOATS
    hlo = "stablehlo.complex"

    @override
    def out_dtype(self, dtype: DType) -> DType:
        return complex_dtype(dtype)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        re, im = args
        out: NDArray = np.empty(np.broadcast_shapes(re.shape, im.shape), complex_dtype(re.dtype))
        out.real, out.imag = re, im
        return out

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        re, im = args
        return [
            unbroadcast(real(ct), re.aval) if isinstance(re, UndefinedPrimal) else None,
            unbroadcast(neg_tangent(imag(ct)), im.aval) if isinstance(im, UndefinedPrimal) else None,
        ]


@final
@frozen(eq=False)
class Conj(LinearElementwise):
    """The complex conjugate, elementwise: `x - 1j * y` of `x + 1j * y`. The conjugates of floats are complex.

    Args:
        input_dtype: The dtype of the operand; transposition needs to know whether it is real.

    `z: c64[...] -> c64[...]`, or `f32[...] -> c64[...]`; complex numbers, float32 or float64. Bound by `lax.conj`.
    """

    name = "conj"
    domain = COMPONENT_FLOATS_OR_COMPLEX
    input_dtype: DType

    @override
    def out_dtype(self, dtype: DType) -> DType:
        return complex_dtype(dtype)

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        out: NDArray = np.conjugate(args[0])
        return out.astype(complex_dtype(out.dtype))

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (x,) = args
        return [match_aval(conj(ct) if dtypes.is_complex(self.input_dtype) else real(ct), x.aval)]

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        (x,) = operands
        part = ShapedArray(out.shape, dtypes.real_dtype(out.dtype))
        if not dtypes.is_complex(x.aval.dtype):
            return builder.emit("stablehlo.complex", [x, stablehlo.emit_full(builder, 0, part)], [out])[0]
        (re,), (im,) = builder.emit("stablehlo.real", [x], [part]), builder.emit("stablehlo.imag", [x], [part])
        return builder.emit("stablehlo.complex", [re, *builder.emit("stablehlo.negate", [im], [part])], [out])[0]


REAL: Final = Real()
IMAG: Final = Imag()
COMPLEX_OP: Final = Complex()


def real(x: ArrayLike) -> Array:
    """Returns the real part of each complex number.

    Args:
        x: Array of complex numbers, or a complex number.

    Returns:
        An array of floats of the same shape.

    Raises:
        TypeError: `x` is not of a complex dtype.

    >>> real(1 + 2j)
    Array(1., dtype=float32, weak_type=True)
    """
    return bind1(REAL, x)


def imag(x: ArrayLike) -> Array:
    """Returns the imaginary part of each complex number.

    Args:
        x: Array of complex numbers, or a complex number.

    Returns:
        An array of floats of the same shape.

    Raises:
        TypeError: `x` is not of a complex dtype.

    >>> imag(1 + 2j)
    Array(2., dtype=float32, weak_type=True)
    """
    return bind1(IMAG, x)


def complex(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns complex numbers with the given real and imaginary parts, elementwise.

    Args:
        x: Real parts, float32 or float64.
        y: Imaginary parts, of the same dtype. Scalars and axes of size 1 are broadcast.

    Returns:
        An array of the broadcast shape: complex64 for float32, complex128 for float64.

    Raises:
        TypeError: The dtypes differ or are others, or the shapes don't broadcast.

    >>> complex(1.0, 2.0)
    Array(1.+2.j, dtype=complex64, weak_type=True)
    """
    return bind_binary(COMPLEX_OP, x, y)


def conj(x: ArrayLike) -> Array:
    """Returns the complex conjugate, elementwise; floats become complex numbers with imaginary part 0.

    Args:
        x: Array of floats or complex numbers, or a number.

    Returns:
        An array of complex numbers of the same shape.

    Raises:
        TypeError: `x` is neither float32, float64 nor complex.

    >>> conj(1 + 2j)
    Array(1.-2.j, dtype=complex64, weak_type=True)
    """
    value = as_value(x)
    return bind1(Conj(value.aval.dtype), value)


# ------------------------------------------------------------------ is_finite


@final
class IsFinite(NonDifferentiable):
    """Whether floats are finite, elementwise: neither infinite nor NaN.

    `x: f32[...] -> bool[...]`, floats. Bound by `lax.is_finite`.
    """

    name = "is_finite"
    domain = FLOATS
    hlo = "stablehlo.is_finite"
    ufunc = np.isfinite

    @override
    def out_dtype(self, dtype: DType) -> DType:
        return dtypes.bool_


IS_FINITE: Final = IsFinite()


def is_finite(x: ArrayLike) -> Array:
    """Returns whether each float is finite, that is, neither infinite nor NaN.

    Args:
        x: Array of floats, or a float.

    Returns:
        An array of bools of the same shape.

    Raises:
        TypeError: `x` is not of a float dtype.

    >>> is_finite(np.array([1.0, np.inf, np.nan])).tolist()
    [True, False, False]
    """
    return bind1(IS_FINITE, x)
