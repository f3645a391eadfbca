"""Variants of `conv_general_dilated`: transposed convolutions, patches, and unshared (local) kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tracefx.core import Array, ArrayLike, DTypeLike, as_value, dtypes
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
    """Returns the convolution of arrays with axes in the default order, without dilation or groups.

    Args:
        lhs: The input, `[batch, features, *spatial]`.
        rhs: The kernel, `[output features, input features, *window]`.
        window_strides: The step of the windows along each spatial axis.
        padding: "SAME", "SAME_LOWER" or "VALID".
        precision: As in `conv_general_dilated`. None by default.
        preferred_element_type: The dtype of the result and of the accumulation. None, the default, means the operands'.

    Returns:
        An array `[batch, output features, *spatial]`.

    Raises:
        TypeError: The dtypes differ.
        ValueError: The shapes or strides don't fit.

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
    """Returns the convolution of arrays with axes in the default order.

    Args:
        lhs: The input, `[batch, features, *spatial]`.
        rhs: The kernel, `[output features, input features, *window]`.
        window_strides: The step of the windows along each spatial axis.
        padding: As in `conv_general_dilated`.
        lhs_dilation: The spacing of input elements. None means 1.
        rhs_dilation: The spacing of kernel elements. None means 1.
        precision: As in `conv_general_dilated`. None by default.
        preferred_element_type: The dtype of the result and of the accumulation. None, the default, means the operands'.

    Returns:
        An array `[batch, output features, *spatial]`.

    Raises:
        TypeError: The dtypes differ, or the padding is malformed.
        ValueError: The shapes, strides or dilations don't fit.

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
    """Returns a convolution with fractional strides: the result is about `strides` times as large as `lhs`.

    Args:
        lhs: The input.
        rhs: The kernel.
        strides: The factors by which each spatial axis grows.
        padding: "SAME" or "VALID": the padding of the convolution of which this is the transpose. Or a pair
            (before, after) for each spatial axis: the padding of the dilated `lhs`.
        rhs_dilation: The spacing of kernel elements. None, the default, means 1.
        dimension_numbers: As in `conv_general_dilated`. None, the default, means features last, as in
            `("NHWC", "HWIO", "NHWC")`.
        transpose_kernel: Whether to reverse the kernel and exchange its features, so that it is that of the convolution
            of which this is the transpose. False by default.
        precision: As in `conv_general_dilated`. None by default.
        preferred_element_type: The dtype of the result and of the accumulation. None, the default, means the operands'.
        use_consistent_padding: Whether pairs mean the padding of the convolution of which this is the transpose, as the
            names do. False by default.

    Returns:
        An array.

    Raises:
        TypeError: The dtypes differ.
        ValueError: The shapes don't fit, or there are more than three spatial axes without `dimension_numbers`.

    >>> import numpy as np
    >>> x, kernel = np.ones((1, 3, 1), np.float32), np.ones((2, 1, 1), np.float32)
    >>> conv_transpose(x, kernel, (2,), "SAME").shape
    (1, 6, 1)
    """
    x, kernel = as_value(lhs, "lhs"), as_value(rhs, "rhs")
    ndim = x.aval.ndim
    if dimension_numbers is None:
        if not 2 <= ndim <= 5:
            raise ValueError(f"conv_transpose: dimension_numbers must be given for operands of {ndim} axes")
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
        axis_paddings: Sequence[str | Sequence[int]]
        axis_paddings = (
            [padding] * len(steps) if isinstance(padding, str) else canonicalize_conv_padding("conv_transpose", padding)
        )
        pads = [conv_transpose_padding(n, s, p) for n, s, p in zip(windows, steps, axis_paddings, strict=True)]
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
    """Returns the windows (patches) that `conv_general_dilated` multiplies with a kernel.

    Args:
        lhs: The input.
        filter_shape: The shape of the windows.
        window_strides: The step of the windows along each spatial axis.
        padding: As in `conv_general_dilated`.
        lhs_dilation: The spacing of input elements. None, the default, means 1.
        rhs_dilation: The spacing of window elements. None, the default, means 1.
        dimension_numbers: As in `conv_general_dilated`. None by default.
        precision: The precision with which `lhs` is read. None by default.
        preferred_element_type: The dtype of the result. None, the default, means that of `lhs`.

    Returns:
        An array whose feature axis holds the elements of a window: all of the first feature of `lhs`, then all of the
        second, and so on.

    Raises:
        ValueError: The shapes or strides don't fit.

    >>> import numpy as np
    >>> x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    >>> conv_general_dilated_patches(x, (2,), (1,), "VALID").tolist()
    [[[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]]
    """
    x = as_value(lhs, "lhs")
    window = static_ints("conv_general_dilated_patches", filter_shape, "filter_shape")
    numbers = conv_dimension_numbers(x.aval.shape, (1, 1, *window), dimension_numbers)
    size, features = math.prod(window), x.aval.shape[numbers.lhs_spec[1]]
    # The kernel of each output feature selects one element of the window.
    positions = [broadcasted_iota(dtypes.int32, (size, size), axis) for axis in (0, 1)]
    one = convert(eq(*positions), x.aval.dtype)
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
    """Returns a convolution with a separate kernel for each position of the result.

    Args:
        lhs: The input.
        rhs: The kernels. Their spatial axes are those of the result; their input features are the elements of a window,
            in the order of `conv_general_dilated_patches`.
        window_strides: The step of the windows along each spatial axis.
        padding: As in `conv_general_dilated`.
        filter_shape: The shape of the windows.
        lhs_dilation: The spacing of input elements. None, the default, means 1.
        rhs_dilation: The spacing of window elements. None, the default, means 1.
        dimension_numbers: As in `conv_general_dilated`. None by default.
        precision: As in `conv_general_dilated`. None by default.

    Returns:
        An array.

    Raises:
        TypeError: The dtypes or sizes of patches and kernels differ.
        ValueError: The shapes or strides don't fit.

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
    positions = [d for d, _ in pairs], [d for _, d in pairs]
    contracted = (numbers.out_spec[1],), (numbers.rhs_spec[1],)
    out = dot_general(patches, kernels, (contracted, positions), both)
    batch, features, *_ = numbers.out_spec
    spatial = iter(range(out.ndim - 2))
    named = {batch: out.ndim - 2, features: out.ndim - 1}
    return transpose(out, [named[d] if d in named else next(spatial) for d in range(out.ndim)])
