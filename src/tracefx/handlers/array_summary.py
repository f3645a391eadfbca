"""`Summary`, the statistics of an array's elements, and their one-line text."""

from __future__ import annotations

from typing import Final, final

import numpy as np
from attrs import frozen

from tracefx.core import NDArray, dtypes

MAX_PRINTED_ELEMENTS: Final = 6
"""The largest number of elements for which an array is printed in full."""


@final
@frozen
class Summary:
    """Statistics of an array's elements, or of the same array over all iterations of a loop.

    Attributes:
        size: the number of elements.
        nans: the number of NaN elements.
        infs: the number of infinite elements.
        min: the smallest finite element, for complex arrays the smallest absolute value; None without finite elements.
        max: the largest one, likewise.
        mean: the mean of the finite elements (of their absolute values if complex); None without finite elements.

    `a | b` is the summary of the elements of both.

    >>> Summary(size=2, nans=1, min=3.0, max=3.0, mean=3.0) | Summary(size=1, min=5.0, max=5.0, mean=5.0)
    Summary(size=3, nans=1, infs=0, min=3.0, max=5.0, mean=4.0)
    """

    size: int = 0
    nans: int = 0
    infs: int = 0
    min: float | int | None = None
    max: float | int | None = None
    mean: float | None = None

    @classmethod
    def of(cls, array: NDArray) -> Summary:
        """Returns the summary of a NumPy array.

        Args:
            array: The array.

        Returns:
            The summary.

        >>> Summary.of(np.array([1.0, np.nan, 4.0, np.inf]))
        Summary(size=4, nans=1, infs=1, min=1.0, max=4.0, mean=2.5)
        """
        if dtypes.is_inexact(array.dtype):
            wide: NDArray = array.astype(np.complex128 if dtypes.is_complex(array.dtype) else np.float64)
            nans = np.isnan(wide)
            finite = np.isfinite(wide)
            values = np.abs(wide[finite]) if dtypes.is_complex(array.dtype) else wide[finite]
            counts = int(nans.sum()), int((~nans & ~finite).sum())
        else:
            values, counts = array.astype(np.uint64 if array.dtype == np.uint64 else np.int64).ravel(), (0, 0)
        if not values.size:
            return cls(array.size, *counts)
        return cls(array.size, *counts, values.min().item(), values.max().item(), float(values.mean(dtype=np.float64)))

    def __or__(self, other: Summary) -> Summary:
        """Returns the summary of the elements of both."""
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
        """The number of finite elements."""
        return self.size - self.nans - self.infs

    def text(self) -> str:
        """Returns the summary as one line, e.g. `min=0 max=4 mean=2.5 nan=1`."""
        if not self.size:
            return "empty"
        parts = []
        if self.mean is not None:
            parts = [f"min={self.min:.4g}", f"max={self.max:.4g}", f"mean={self.mean:.4g}"]
        parts += [f"{name}={n}" for name, n in (("nan", self.nans), ("inf", self.infs)) if n]
        return " ".join(parts)


def format_array(array: NDArray) -> str:
    """Returns an array as one line: all elements if there are few, otherwise their summary.

    >>> format_array(np.arange(3)), format_array(np.arange(100))
    ('[0 1 2]', 'min=0 max=99 mean=49.5')
    """
    if not 0 < array.size <= MAX_PRINTED_ELEMENTS:
        return Summary.of(array).text()
    if not array.ndim:
        return f"{array.item():.6g}" if dtypes.is_float(array.dtype) else str(array.item())
    text = np.array2string(array, precision=4, max_line_width=10**6, threshold=MAX_PRINTED_ELEMENTS + 1)
    return " ".join(text.split())
