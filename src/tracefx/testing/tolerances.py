"""Tolerances: how far apart two results may be that ought to be equal, by primitive and dtype.

Distances are in units in the last place (ulps) of the larger result. Integers and booleans must be equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, final

import numpy as np
from attrs import evolve, fields, frozen
from typing_extensions import override

from tracefx.core import DType, NDArray, dtypes
from tracefx.ops.elementwise.accuracy import HasAccuracy
from tracefx.ops.operation import CompiledOperation
from tracefx.ops.vocabulary import OPERATIONS


def tolerance_or(ulps: Ulps | None, default: Ulps) -> Ulps:
    """Returns the tolerance that a user gave, or the default for None.

    Raises:
        TypeError: If it is neither an `Ulps` nor None.
    """
    given: object = ulps
    if given is not None and not isinstance(given, Ulps):
        raise TypeError(f"ulps must be a tolerance such as Ulps(f64=4, f32=4) or None, got {given!r}")
    return default if ulps is None else ulps


@final
@frozen(repr=False)
class Ulps:
    """A tolerance in units in the last place (ulps): the largest distance at which two results count as equal.

    One ulp of a number is the distance to the next representable one, about `1.2e-7 * abs(x)` in float32 and
    `2.2e-16 * abs(x)` in float64. Distances are in ulps of the larger of the two results. Integers must be equal.
    `Ulps()`, without arguments, requires equality.

    Attributes:
        f64: the tolerance for float64.
        f32: the tolerance for float32.
        narrow: the tolerance for floats of 16 bits or fewer.
        parts: the tolerance for complex numbers; None means that of their components' dtype.
        least: results smaller than this are compared in ulps of this number: for sums whose terms cancel.
        relative_to_max: whether elements are compared in ulps of the largest element of their array.

    >>> import numpy as np
    >>> from tracefx.testing import check_grads
    >>> import tracefx.numpy as fnp
    >>> check_grads(lambda x: fnp.sum(fnp.sin(x) ** 2), np.ones(3, np.float32), ulps=Ulps(f64=1e6, f32=1e3))
    """

    f64: float = 0
    f32: float = 0
    narrow: float = 0
    parts: float | None = None
    least: float = 0.0
    relative_to_max: bool = False

    @override
    def __repr__(self) -> str:
        chosen = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(Ulps) if getattr(self, f.name) != f.default]
        return f"Ulps({', '.join(chosen)})"

    def of(self, dtype: DType) -> float:
        """Returns the tolerance for a dtype.

        Args:
            dtype: a dtype of floats or complex numbers.
        """
        if dtypes.is_complex(dtype) and self.parts is not None:
            return self.parts
        bits = dtypes.itemsize_bits(dtypes.real_dtype(dtype))
        return {64: self.f64, 32: self.f32}.get(bits, self.narrow)

    def for_array(self, x: NDArray) -> Ulps:
        """Returns the tolerance for the elements of an array.

        Args:
            x: the expected results.
        """
        return evolve(self, least=max(self.least, max_finite_abs(x))) if self.relative_to_max else self

    def widen_to(self, other: Ulps) -> Ulps:
        """Returns the maximum of two tolerances, for each kind of numbers.

        Args:
            other: the other tolerance.
        """
        parts = [u.f64 if u.parts is None else u.parts for u in (self, other)]
        return Ulps(
            max(self.f64, other.f64),
            max(self.f32, other.f32),
            max(self.narrow, other.narrow),
            max(parts),
            max(self.least, other.least),
            self.relative_to_max or other.relative_to_max,
        )


EXACT: Final = Ulps()
"""No difference at all."""
ELEMENTARY: Final = Ulps(4, 4, 2)
"""For elementary functions."""
SUMMED: Final = Ulps(16, 16, 4, relative_to_max=True)
"""For sums and products of many numbers, whose order is XLA's. Small integers give exact results."""
DECOMPOSED: Final = Ulps(16, 16, 4, relative_to_max=True)
"""For matrix decompositions.

LAPACK and BLAS choose kernels by processor, number of threads, memory alignment and the results requested: singular
values alone are computed by another method than those with vectors.
"""
ULPS: Final[Mapping[str, Ulps]] = MappingProxyType(
    {
        # Primitives that are neither listed nor elementary functions agree bit for bit, except that compiled code may
        # flush subnormals to zero.
        "mul": Ulps(parts=1),  # XLA fuses multiplications and additions
        "square": Ulps(parts=1),
        "integer_pow": Ulps(parts=4),
        "div": Ulps(1, 1, 1, parts=4),  # XLA multiplies by the reciprocal of a scalar operand
        "sign": Ulps(parts=1),
        "pow": Ulps(2, 2, 2, parts=64),  # XLA uses exp and log
        "atanh": Ulps(256, 4, 2),  # XLA subtracts logarithms
        "log1p": Ulps(4, 4, 2, parts=128),  # XLA's real part cancels on the circle around -1
        "atan2": ELEMENTARY,
        "reduce_sum": SUMMED,
        "reduce_prod": SUMMED,
        "reduce_window_sum": SUMMED,
        "select_and_scatter_add": SUMMED,
        "dot_general": SUMMED,
        "conv_general_dilated": SUMMED,
        "ragged_dot_general": SUMMED,
        "scaled_dot": SUMMED,
        "fft": Ulps(8, 8, least=1.0, relative_to_max=True),  # XLA adds in another order than NumPy
        "cholesky": DECOMPOSED,
        "eigh": DECOMPOSED,
        "eig": DECOMPOSED,
        "lu": DECOMPOSED,
        "geqrf": DECOMPOSED,
        "geqp3": DECOMPOSED,
        "householder_product": DECOMPOSED,
        "ormqr": DECOMPOSED,
        "qr": DECOMPOSED,
        "schur": DECOMPOSED,
        "hessenberg": DECOMPOSED,
        "tridiagonal": DECOMPOSED,
        "svd": DECOMPOSED,
        "triangular_solve": SUMMED,  # LAPACK processes the columns of a batch in blocks
        "tridiagonal_solve": SUMMED,
        "cholesky_update": SUMMED,
        "symmetric_product": SUMMED,
        # XLA adds and multiplies in another order, and in JAX's programs rounds narrow floats each time
        "cumsum": Ulps(8, 8, 8, least=1.0),
        "cumprod": Ulps(8, 8, 8),
        "cumlogsumexp": Ulps(8, 8, 8, least=1.0),
    }
)
"""The tolerance of primitives, by name."""
PROGRAM: Final = Ulps(256, 256, 16, relative_to_max=True)
"""For functions of many operations, in which errors accumulate."""
DERIVATIVE: Final = Ulps(64, 64, 64, least=1.0, relative_to_max=True)
"""For tangents and cotangents that are computed by different but equal formulas."""
SECOND_DERIVATIVE: Final = Ulps(512, 512, 512, least=1.0, relative_to_max=True)
"""For second derivatives, whose terms cancel."""
FINITE_DIFFERENCES: Final = Ulps(2.0**30, least=1.0, relative_to_max=True)
"""For finite differences in float64: 2e-7 of the largest result."""
FINITE_DIFFERENCES_32_BITS: Final = Ulps(2.0**44, 2.0**15, least=1.0, relative_to_max=True)
"""For finite differences of 32-bit numbers: 4e-3 of the largest result."""


def relative_ulps(error: float) -> Ulps:
    """Returns the tolerance of an error relative to the largest result, or to 1 if all are smaller."""
    return Ulps(error * 2.0**52, error * 2.0**23, least=1.0, relative_to_max=True)


def ulps_of(name: str) -> Ulps:
    """Returns the tolerance of a primitive. Parameters after its name, as in `round away`, are ignored.

    >>> ulps_of("add") == EXACT, ulps_of("sin").of(dtypes.float32)
    (True, 4)
    """
    name = name.split()[0]
    return ULPS.get(name, ELEMENTARY if name in _ELEMENTARY_FUNCTIONS else EXACT)


_ELEMENTARY_FUNCTIONS: Final = frozenset(
    {prim.name for prim in OPERATIONS if issubclass(prim, HasAccuracy) and not issubclass(prim, CompiledOperation)}
)
"""The functions that NumPy evaluates and XLA compiles."""


def max_finite_abs(x: NDArray) -> float:
    """Returns the absolute value of the largest finite element; 0.0 if there is none."""
    if not x.size or not dtypes.is_inexact(x.dtype):
        return 0.0
    with np.errstate(all="ignore"):
        sizes = np.abs(x.astype(np.complex128 if dtypes.is_complex(x.dtype) else np.float64))
        return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))


def ulp_distance(got: NDArray, want: NDArray, least: float = 0.0) -> NDArray:
    """Computes elementwise distances of two arrays of equal shape and dtype in ulps.

    The distance is 0 between NaNs, and between subnormals and zeros, since compiled code may flush subnormals; infinite
    between a NaN or an infinity and anything else; 1 between zeros of different sign. Complex numbers are compared in
    ulps of their larger component, since a tiny component next to a large one has no accurate digits.

    Args:
        got: an array.
        want: an array of the same shape and dtype.
        least: numbers smaller than this are compared at its scale.

    Returns:
        `f64[...]`.
    """
    dtype = got.dtype
    if not dtypes.is_inexact(dtype):
        return np.where(got == want, 0.0, np.inf) if dtype != dtypes.float0 else np.zeros(got.shape)
    wide = np.complex128 if dtypes.is_complex(dtype) else np.float64
    got, want = got.astype(wide), want.astype(wide)
    info = dtypes.finfo(dtype)
    eps, tiny = float(info.eps), float(info.smallest_normal)
    parts = [(got.real, want.real), (got.imag, want.imag)] if np.iscomplexobj(got) else [(got, want)]
    with np.errstate(all="ignore"):
        sizes = [np.where(np.isfinite(w), np.abs(w), 0.0) for _, w in parts]
        scale = np.maximum(np.maximum.reduce(sizes), max(tiny, least))
        ulp = eps * 2.0 ** np.floor(np.log2(scale))
        distance = np.zeros(got.shape)
        for g, w in parts:
            same = (g == w) & ((g != 0) | (np.signbit(g) == np.signbit(w)) | (len(parts) == 2))
            same |= np.isnan(g) & np.isnan(w)
            same |= (np.abs(g) <= tiny) & (np.abs(w) <= tiny) & ((g != 0) | (w != 0))  # one of them was flushed
            distance = np.maximum(distance, np.where(same, 0.0, np.nan_to_num(np.abs(g - w) / ulp, nan=np.inf)))
            distance = np.where(~same & (g == 0) & (w == 0), 1.0, distance)
    return distance
