"""The methods of arrays that reduce or accumulate elements along axes."""

# A decorator gives the methods, which have no body, a function of tracefx.numpy as their body.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Generic, TypeVar

from tracefx.core.abstract_array import AbstractArray
from tracefx.core.dtypes import DTypeLike
from tracefx.core.indexed_updates import AxisLike, Like
from tracefx.core.numpy_methods import numpy_method

Array = TypeVar("Array")
"""The array class, which is defined later; signatures are shown with this name."""


class ArrayReductions(AbstractArray, Generic[Array]):
    """The base class of `tracefx.Array` with its reductions, generic in the array class."""

    __slots__ = ()

    @numpy_method
    def sum(
        self,
        axis: AxisLike = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: Like[Array] | None = None,
        where: Like[Array] | None = None,
        promote_integers: bool = True,
    ) -> Array:
        """Returns the sum over axes.

        Args:
            axis: The axis or axes to reduce; None means all.
            dtype: The dtype of the result; None means that of the array, widened for integers and bools.
            out: Must be None, since arrays are immutable.
            keepdims: Whether to keep the reduced axes with size 1.
            initial: A number that is added to the result.
            where: A mask of the elements to include, broadcast against the array; None includes all.
            promote_integers: Whether integers narrower than the default integer dtype are summed in it. Bools always
                are.
        """

    @numpy_method
    def prod(
        self,
        axis: AxisLike = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: Like[Array] | None = None,
        where: Like[Array] | None = None,
        promote_integers: bool = True,
    ) -> Array:
        """Returns the product over axes.

        Args:
            axis: The axis or axes to reduce; None means all.
            dtype: The dtype of the result; None means that of the array, widened for integers and bools.
            out: Must be None, since arrays are immutable.
            keepdims: Whether to keep the reduced axes with size 1.
            initial: A number that multiplies the result.
            where: A mask of the elements to include, broadcast against the array; None includes all.
            promote_integers: Whether integers narrower than the default integer dtype are multiplied in it. Bools
                always are.
        """

    @numpy_method
    def mean(
        self,
        axis: AxisLike = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        *,
        where: Like[Array] | None = None,
    ) -> Array:
        """Returns the arithmetic mean over axes, NaN if there are no elements.

        Args:
            axis: The axis or axes to reduce; None means all.
            dtype: The dtype of the result; None means that of the array, and the default float for integers and bools.
            out: Must be None, since arrays are immutable.
            keepdims: Whether to keep the reduced axes with size 1.
            where: A mask of the elements to include, broadcast against the array; None includes all.
        """

    @numpy_method
    def var(
        self,
        axis: AxisLike = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        ddof: int = 0,
        keepdims: bool = False,
        *,
        where: Like[Array] | None = None,
        correction: int | float | None = None,
    ) -> Array:
        """Returns the variance over axes: the sum of the squared deviations from the mean over `n - ddof`.

        Args:
            axis: The axis or axes to reduce; None means all.
            dtype: The dtype of the computation; None means that of the array, and the default float for integers and
                bools.
            out: Must be None, since arrays are immutable.
            ddof: The number subtracted from the number of elements in the divisor.
            keepdims: Whether to keep the reduced axes with size 1.
            where: A mask of the elements to include, broadcast against the array; None includes all.
            correction: Another name of `ddof`, that of the array API; None means 0.
        """

    @numpy_method
    def std(
        self,
        axis: AxisLike = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        ddof: int = 0,
        keepdims: bool = False,
        *,
        where: Like[Array] | None = None,
        correction: int | float | None = None,
    ) -> Array:
        """Returns the standard deviation over axes: the square root of `var`.

        Args:
            axis: The axis or axes to reduce; None means all.
            dtype: The dtype of the computation; None means that of the array, and the default float for integers and
                bools.
            out: Must be None, since arrays are immutable.
            ddof: The number subtracted from the number of elements in the divisor.
            keepdims: Whether to keep the reduced axes with size 1.
            where: A mask of the elements to include, broadcast against the array; None includes all.
            correction: Another name of `ddof`, that of the array API; None means 0.
        """

    @numpy_method
    def max(
        self,
        axis: AxisLike = None,
        out: None = None,
        keepdims: bool = False,
        initial: Like[Array] | None = None,
        where: Like[Array] | None = None,
    ) -> Array:
        """Returns the maximum over axes, NaN if an element is NaN.

        Args:
            axis: The axis or axes to reduce; None means all.
            out: Must be None, since arrays are immutable.
            keepdims: Whether to keep the reduced axes with size 1.
            initial: One more element that takes part; the result where there is no other.
            where: A mask of the elements to include, broadcast against the array; it needs `initial`.
        """

    @numpy_method
    def min(
        self,
        axis: AxisLike = None,
        out: None = None,
        keepdims: bool = False,
        initial: Like[Array] | None = None,
        where: Like[Array] | None = None,
    ) -> Array:
        """Returns the minimum over axes, NaN if an element is NaN.

        Args:
            axis: The axis or axes to reduce; None means all.
            out: Must be None, since arrays are immutable.
            keepdims: Whether to keep the reduced axes with size 1.
            initial: One more element that takes part; the result where there is no other.
            where: A mask of the elements to include, broadcast against the array; it needs `initial`.
        """

    @numpy_method
    def ptp(self, axis: AxisLike = None, out: None = None, keepdims: bool = False) -> Array:
        """Returns the difference of the maximum and the minimum over axes.

        Args:
            axis: The axis or axes to reduce; None means all.
            out: Must be None, since arrays are immutable.
            keepdims: Whether to keep the reduced axes with size 1.
        """

    @numpy_method
    def all(
        self, axis: AxisLike = None, out: None = None, keepdims: bool = False, *, where: Like[Array] | None = None
    ) -> Array:
        """Returns whether all elements along axes are true (differ from 0).

        Args:
            axis: The axis or axes to reduce; None means all.
            out: Must be None, since arrays are immutable.
            keepdims: Whether to keep the reduced axes with size 1.
            where: A mask of the elements to include, broadcast against the array; None includes all.
        """

    @numpy_method
    def any(
        self, axis: AxisLike = None, out: None = None, keepdims: bool = False, *, where: Like[Array] | None = None
    ) -> Array:
        """Returns whether any element along axes is true (differs from 0).

        Args:
            axis: The axis or axes to reduce; None means all.
            out: Must be None, since arrays are immutable.
            keepdims: Whether to keep the reduced axes with size 1.
            where: A mask of the elements to include, broadcast against the array; None includes all.
        """

    @numpy_method
    def argmax(self, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
        """Returns the index of the maximum along an axis, the first of several; NaN counts as the maximum.

        Args:
            axis: The axis to reduce; None means the flattened array.
            out: Must be None, since arrays are immutable.
            keepdims: Whether to keep the reduced axes with size 1; None means False.
        """

    @numpy_method
    def argmin(self, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
        """Returns the index of the minimum along an axis, the first of several; NaN counts as the minimum.

        Args:
            axis: The axis to reduce; None means the flattened array.
            out: Must be None, since arrays are immutable.
            keepdims: Whether to keep the reduced axes with size 1; None means False.
        """

    @numpy_method
    def cumsum(self, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
        """Returns the cumulative sum along an axis.

        Args:
            axis: The axis; None means the flattened array.
            dtype: The dtype of the result; None means that of the array, and the default integer for bools.
            out: Must be None, since arrays are immutable.
        """

    @numpy_method
    def cumprod(self, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
        """Returns the cumulative product along an axis.

        Args:
            axis: The axis; None means the flattened array.
            dtype: The dtype of the result; None means that of the array, and the default integer for bools.
            out: Must be None, since arrays are immutable.
        """
