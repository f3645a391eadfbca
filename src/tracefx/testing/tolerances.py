"""How far two results that ought to be equal may be apart: one table, by operation and dtype.

Distances are in units in the last place (ulps) of the larger result. Integers and truth values are never apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, final

import numpy as np
from attrs import evolve, fields, frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.dtypes import DType, NDArray


@final
@frozen(repr=False)
class Ulps:
    """How far two results may be apart, in units in the last place of the larger one's components."""

    f64: float = 0
    f32: float = 0
    narrow: float = 0
    """For floats of 16 bits and fewer."""
    parts: float | None = None
    """For complex numbers; None where as for their components."""
    least: float = 0.0
    """Results smaller than this may be wrong by as much as it: terms of its size cancel in them."""
    relative_to_max: bool = False
    """Whether every number may be wrong by as much as the largest of the array."""

    @override
    def __repr__(self) -> str:
        chosen = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(Ulps) if getattr(self, f.name) != f.default]
        return f"Ulps({', '.join(chosen)})"

    def of(self, dtype: DType) -> float:
        if dtypes.is_complex(dtype) and self.parts is not None:
            return self.parts
        bits = dtypes.itemsize_bits(dtypes.real_dtype(dtype))
        return {64: self.f64, 32: self.f32}.get(bits, self.narrow)

    def for_array(self, x: NDArray) -> Ulps:
        """The tolerance for the numbers of one array."""
        return evolve(self, least=max(self.least, max_finite_abs(x))) if self.relative_to_max else self

    def widen_to(self, other: Ulps) -> Ulps:
        """The wider of two tolerances, for numbers of each kind."""
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
ELEMENTARY: Final = Ulps(4, 4, 2)
SUMMED: Final = Ulps(16, 16, 4, relative_to_max=True)
"""For sums and products of many numbers, whose order is XLA's. Of small whole numbers they are exact."""
DECOMPOSED: Final = Ulps(16, 16, 4, relative_to_max=True)
"""For decompositions of matrices. LAPACK and BLAS choose kernels by processor, number of threads, memory alignment and
the results asked for: singular values alone are computed by another method than those with vectors."""
ULPS: Final[Mapping[str, Ulps]] = MappingProxyType(
    {
        # Operations that are not here agree bit for bit, except that compiled code may flush subnormals to zero.
        "mul": Ulps(parts=1),  # XLA fuses multiplications and additions
        "square": Ulps(parts=1),
        "integer_pow": Ulps(parts=4),
        "div": Ulps(1, 1, 1, parts=4),  # XLA multiplies by the reciprocal of an operand without axes
        "sign": Ulps(parts=1),
        "pow": Ulps(2, 2, 2, parts=64),  # XLA goes by exp and log
        "atanh": Ulps(256, 4, 2),  # XLA subtracts logarithms
        "log1p": Ulps(4, 4, 2, parts=128),  # XLA's real part cancels on the circle around -1
        "exp": ELEMENTARY,
        "exp2": ELEMENTARY,
        "expm1": ELEMENTARY,
        "log": ELEMENTARY,
        "logistic": ELEMENTARY,
        "sin": ELEMENTARY,
        "cos": ELEMENTARY,
        "tan": ELEMENTARY,
        "asin": ELEMENTARY,
        "acos": ELEMENTARY,
        "atan": ELEMENTARY,
        "sinh": ELEMENTARY,
        "cosh": ELEMENTARY,
        "tanh": ELEMENTARY,
        "asinh": ELEMENTARY,
        "acosh": ELEMENTARY,
        "sqrt": ELEMENTARY,
        "rsqrt": ELEMENTARY,
        "cbrt": ELEMENTARY,
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
        "triangular_solve": SUMMED,  # LAPACK takes the columns that a batch is spread over in blocks
        "tridiagonal_solve": SUMMED,
        "cholesky_update": SUMMED,
        "symmetric_product": SUMMED,
        # XLA adds and multiplies in another order, and in JAX's programs rounds narrow floats each time
        "cumsum": Ulps(8, 8, 8, least=1.0),
        "cumprod": Ulps(8, 8, 8),
        "cumlogsumexp": Ulps(8, 8, 8, least=1.0),
    }
)
PROGRAM: Final = Ulps(256, 256, 16, relative_to_max=True)
"""For functions of many operations: what one loses, the next may magnify."""
DERIVATIVE: Final = Ulps(64, 64, 64, least=1.0, relative_to_max=True)
"""For tangents and cotangents, computed by different but equal formulas."""
SECOND_DERIVATIVE: Final = Ulps(512, 512, 512, least=1.0, relative_to_max=True)
"""For tangents of those, whose terms cancel."""
FINITE_DIFFERENCES: Final = Ulps(2.0**30, least=1.0, relative_to_max=True)
"""For differences in float64 in place of derivatives: 2e-7 of the largest result."""
FINITE_DIFFERENCES_32_BITS: Final = Ulps(2.0**44, 2.0**15, least=1.0, relative_to_max=True)
"""For differences where numbers have 32 bits: 4e-3 of the largest result."""


def ulps_of(name: str) -> Ulps:
    """The tolerance of an operation; parameters after its name, as in `round away`, don't count.

    >>> ulps_of("add") == EXACT, ulps_of("sin").of(dtypes.float32)
    (True, 4)
    """
    return ULPS.get(name.split()[0], EXACT)


def max_finite_abs(x: NDArray) -> float:
    """The size of the largest finite number, 0.0 where there is none."""
    if not x.size or not dtypes.is_inexact(x.dtype):
        return 0.0
    with np.errstate(all="ignore"):
        sizes = np.abs(x.astype(np.complex128 if dtypes.is_complex(x.dtype) else np.float64))
        return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))


def ulp_distance(got: NDArray, want: NDArray, least: float = 0.0) -> NDArray:
    """How many ulps the numbers of two arrays of one shape and dtype are apart.

    NaNs are 0 ulps apart, so are subnormals and zeros, since compiled code may flush them; infinitely far apart are a
    NaN or an infinity and anything else; 1 ulp zeros of different sign. Of complex numbers it is the larger component
    whose ulps count: a tiny part beside a large one has no digits of its own.
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
