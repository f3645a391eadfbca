"""What there is to say of an array's elements in a line."""

from __future__ import annotations

from typing import Final, final

import numpy as np
from attrs import frozen

from tracefx.core import dtypes
from tracefx.core.dtypes import NDArray

MAX_PRINTED_ELEMENTS: Final = 6
"""Of how many elements an array is shown in full."""


@final
@frozen
class Summary:
    """The elements of an array, or of the same array in all steps of a loop.

    `min`, `max` and `mean` are of the finite elements, for complex ones of their absolute values; `None` where there
    is none.
    """

    size: int = 0
    nans: int = 0
    infs: int = 0
    min: float | int | None = None
    max: float | int | None = None
    mean: float | None = None

    @classmethod
    def of(cls, array: NDArray) -> Summary:
        """
        >>> Summary.of(np.array([1.0, np.nan, 4.0, np.inf]))
        Summary(size=4, nans=1, infs=1, min=1.0, max=4.0, mean=2.5)
        """
        if dtypes.is_inexact(array.dtype):
            wide: NDArray = array.astype(np.complex128 if dtypes.is_complex(array.dtype) else np.float64)
            nans = np.isnan(wide)
            finite = np.isfinite(wide)
            kept = np.abs(wide[finite]) if dtypes.is_complex(array.dtype) else wide[finite]
            counted = int(nans.sum()), int((~nans & ~finite).sum())
        else:
            kept, counted = array.astype(np.uint64 if array.dtype == np.uint64 else np.int64).ravel(), (0, 0)
        if not kept.size:
            return cls(array.size, *counted)
        return cls(array.size, *counted, kept.min().item(), kept.max().item(), float(kept.mean(dtype=np.float64)))

    def __or__(self, other: Summary) -> Summary:
        """That of the elements of both."""
        means = [(s.mean, s.finite) for s in (self, other) if s.mean is not None]
        total = sum([n for _, n in means])
        return Summary(
            self.size + other.size,
            self.nans + other.nans,
            self.infs + other.infs,
            min([s.min for s in (self, other) if s.min is not None], default=None),
            max([s.max for s in (self, other) if s.max is not None], default=None),
            sum([m * n for m, n in means]) / total if total else None,
        )

    @property
    def finite(self) -> int:
        """How many elements are finite."""
        return self.size - self.nans - self.infs

    def text(self) -> str:
        """One line: `min=0 max=4 mean=2.5 nan=1`."""
        if not self.size:
            return "empty"
        parts = []
        if self.mean is not None:
            parts = [f"min={self.min:.4g}", f"max={self.max:.4g}", f"mean={self.mean:.4g}"]
        parts += [f"{name}={n}" for name, n in (("nan", self.nans), ("inf", self.infs)) if n]
        return " ".join(parts)


def format_array(array: NDArray) -> str:
    """An array in a line: its elements if they are few, else their summary.

    >>> format_array(np.arange(3)), format_array(np.arange(100))
    ('[0 1 2]', 'min=0 max=99 mean=49.5')
    """
    if not 0 < array.size <= MAX_PRINTED_ELEMENTS:
        return Summary.of(array).text()
    if not array.ndim:
        return f"{array.item():.6g}" if dtypes.is_float(array.dtype) else str(array.item())
    text = np.array2string(array, precision=4, max_line_width=10**6, threshold=MAX_PRINTED_ELEMENTS + 1)
    return " ".join(text.split())
