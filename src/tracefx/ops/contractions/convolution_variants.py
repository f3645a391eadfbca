"""Convolutions of particular forms: transposed ones, patches, and kernels that differ from place to place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.dtypes import DTypeLike
from tracefx.core.values import as_value
from tracefx.ops.contractions.contraction import Precision, PrecisionLike, canonicalize_precision, dot_general
from tracefx.ops.contractions.conv_dimension_numbers import (
    ConvGeneralDilatedDimensionNumbers,
    conv_dimension_numbers,
    conv_transpose_padding,
    dilate_dim,
    take_dims,
)
from tracefx.ops.contractions.convolution import canonicalize_conv_padding, conv_general_dilated
from tracefx.ops.elementwise.comparison import eq
from tracefx.ops.shape.array_creation import broadcasted_iota
from tracefx.ops.shape.slicing import rev
from tracefx.ops.static_integers import static_ints
from tracefx.ops.structural import broadcast_in_dim, convert, reshape, transpose


def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """`conv_general_dilated` of arrays whose axes are in the default order, without dilation.

    >>> import numpy as np
    >>> conv(np.ones((1, 1, 4), np.float32), np.ones((1, 1, 2), np.float32), (2,), "VALID").tolist()
    [[[2.0, 2.0]]]
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """`conv_general_dilated` of arrays whose axes are in the default order.

    >>> import numpy as np
    >>> x, kernel = np.ones((1, 1, 3), np.float32), np.ones((1, 1, 2), np.float32)
    >>> conv_with_general_padding(x, kernel, (1,), [(1, 0)], (2,), None).tolist()
    [[[1.0, 1.0, 1.0, 1.0, 1.0]]]
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


_CHANNELS_LAST: Final = (("NC", "IO"), ("NHC", "HIO"), ("NHWC", "HWIO"), ("NHWDC", "HWDIO"))


def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    transpose_kernel: bool = False,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    use_consistent_padding: bool = False,
) -> Array:
    """A convolution with fractional strides: the result is about `strides` times as large as `lhs`.

    Without `dimension_numbers` the features come last, as in `("NHWC", "HWIO", "NHWC")`. `padding`, `"SAME"` or
    `"VALID"`, is that of a convolution of which this one is the transpose. So are pairs with
    `use_consistent_padding=True`; without, they are the padding of the dilated `lhs`. With `transpose_kernel=True`
    the kernel is that of the other convolution too: it is reversed, and its features swapped.

    Raises ValueError where `lhs` has more than three spatial axes and no `dimension_numbers` are given.

    >>> import numpy as np
    >>> x, kernel = np.ones((1, 3, 1), np.float32), np.ones((2, 1, 1), np.float32)
    >>> conv_transpose(x, kernel, (2,), "SAME").shape
    (1, 6, 1)
    """
    x, kernel = as_value(lhs, "lhs"), as_value(rhs, "rhs")
    ndim = x.aval.ndim
    if dimension_numbers is None:
        if not 2 <= ndim <= 5:
            raise ValueError(f"conv_transpose: give dimension_numbers for operands of {ndim} axes")
        images, kernels = _CHANNELS_LAST[ndim - 2]
        dimension_numbers = (images, kernels, images)
    numbers = conv_dimension_numbers(x.aval.shape, kernel.aval.shape, dimension_numbers)
    steps = static_ints("conv_transpose", strides, "strides")
    dilation = (1,) * (ndim - 2)
    if rhs_dilation is not None:
        dilation = static_ints("conv_transpose", rhs_dilation, "rhs_dilation")
    pads: str | Sequence[tuple[int, int]] = padding
    if use_consistent_padding or padding in ("SAME", "VALID"):
        windows = [
            dilate_dim(n, d) for n, d in zip(take_dims(kernel.aval.shape, numbers.rhs_spec[2:]), dilation, strict=True)
        ]
        each: Sequence[str | Sequence[int]]
        each = (
            [padding] * len(steps) if isinstance(padding, str) else canonicalize_conv_padding("conv_transpose", padding)
        )
        pads = [conv_transpose_padding(n, s, p) for n, s, p in zip(windows, steps, each, strict=True)]
    if transpose_kernel:
        outs, ins, *window = numbers.rhs_spec
        order = list(range(ndim))
        order[outs], order[ins] = ins, outs
        kernel = transpose(rev(kernel, window), order)
    return conv_general_dilated(
        x,
        kernel,
        (1,) * (ndim - 2),
        pads,
        steps,
        dilation,
        numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_patches(
    lhs: ArrayLike,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: Precision | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The windows that `conv_general_dilated` multiplies with a kernel of the shape `filter_shape`.

    The features of the result are the elements of a window: all of the first feature of `lhs`, then all of the second.
    Other arguments are those of `conv_general_dilated`.

    >>> import numpy as np
    >>> x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    >>> conv_general_dilated_patches(x, (2,), (1,), "VALID").tolist()
    [[[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]]
    """
    x = as_value(lhs, "lhs")
    window = static_ints("conv_general_dilated_patches", filter_shape, "filter_shape")
    numbers = conv_dimension_numbers(x.aval.shape, (1, 1, *window), dimension_numbers)
    size, features = math.prod(window), x.aval.shape[numbers.lhs_spec[1]]
    # Each output of a feature's kernel has its one 1 at another place.
    places = [broadcasted_iota(dtypes.int32, (size, size), axis) for axis in (0, 1)]
    one = convert(eq(*places), x.aval.dtype)
    kernel = reshape(broadcast_in_dim(one, (features, size, size), (1, 2)), (features * size, 1, *window))
    order = sorted(range(len(numbers.rhs_spec)), key=numbers.rhs_spec.__getitem__)
    return conv_general_dilated(
        x,
        transpose(kernel, order),
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        numbers,
        feature_group_count=features,
        precision=None if precision is None else (precision, Precision.DEFAULT),
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_local(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
) -> Array:
    """A convolution whose kernel is another one at each place of the result.

    The spatial axes of `rhs` are those of the result, and its input features the elements of a window in the order in
    which `conv_general_dilated_patches` has them.

    >>> import numpy as np
    >>> x = np.ones((1, 1, 3), np.float32)
    >>> kernels = np.arange(4, dtype=np.float32).reshape(1, 2, 2)
    >>> conv_general_dilated_local(x, kernels, (1,), "VALID", (2,)).tolist()
    [[[2.0, 4.0]]]
    """
    x, kernels = as_value(lhs, "lhs"), as_value(rhs, "rhs")
    both = canonicalize_precision("conv_general_dilated_local", precision)
    patches = conv_general_dilated_patches(
        x,
        filter_shape,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dimension_numbers,
        None if both is None else both[0],
    )
    numbers = conv_dimension_numbers(x.aval.shape, (1, 1, *filter_shape), dimension_numbers)
    pairs = sorted(zip(numbers.out_spec[2:], numbers.rhs_spec[2:], strict=True))
    places = [d for d, _ in pairs], [d for _, d in pairs]
    contracted = (numbers.out_spec[1],), (numbers.rhs_spec[1],)
    out = dot_general(patches, kernels, (contracted, places), both)
    batch, features, *_ = numbers.out_spec
    spatial = iter(range(out.ndim - 2))
    named = {batch: out.ndim - 2, features: out.ndim - 1}
    return transpose(out, [named[d] if d in named else next(spatial) for d in range(out.ndim)])
