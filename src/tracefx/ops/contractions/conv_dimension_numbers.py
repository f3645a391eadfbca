"""Dimension numbers of convolutions, and the shapes of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from tracefx.core import Shape
from tracefx.core.avals import Dimensions
from tracefx.dimensions.symbolic_dimensions import max_dim
from tracefx.ops.padding_types import padtype_to_pads
from tracefx.ops.static_integers import static_ints


class ConvDimensionNumbers(NamedTuple):
    """The axes of a convolution's operands and result.

    Each field lists axes of one array: the batch axis, the feature axis, then the spatial axes. `rhs_spec` lists the
    axes of output features and of input features, then the spatial axes.
    """

    lhs_spec: Dimensions
    rhs_spec: Dimensions
    out_spec: Dimensions


ConvGeneralDilatedDimensionNumbers: TypeAlias = tuple[str, str, str] | ConvDimensionNumbers | None

_LETTERS: Final = (("N", "C"), ("O", "I"), ("N", "C"))


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: ConvGeneralDilatedDimensionNumbers
) -> ConvDimensionNumbers:
    """Returns dimension numbers of any form as `ConvDimensionNumbers`.

    Args:
        lhs_shape: The shape of the input.
        rhs_shape: The shape of the kernel.
        dimension_numbers: None for batch, features, spatial axes in this order; or three strings with a letter for each
            axis of input, kernel and result, for example `("NHWC", "HWIO", "NHWC")`; or `ConvDimensionNumbers`.

    Returns:
        The positions of batch, features and spatial axes in the input, the kernel and the result.

    Raises:
        TypeError: `dimension_numbers` has another form, or does not fit the shapes.

    >>> conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 4), ("NHWC", "HWIO", "NHWC")).rhs_spec
    (3, 2, 0, 1)
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        lhs, rhs, out = [
            static_ints("convolution", spec, f"dimension_numbers.{name}")
            for name, spec in zip(dimension_numbers._fields, dimension_numbers, strict=True)
        ]
        return ConvDimensionNumbers(lhs, rhs, out)
    if len(lhs_shape) != len(rhs_shape):
        raise TypeError(
            f"convolution: lhs and rhs must have the same rank, got shapes {tuple(lhs_shape)} and {tuple(rhs_shape)}"
        )
    if dimension_numbers is None:
        axes = tuple(range(len(lhs_shape)))
        return ConvDimensionNumbers(axes, axes, axes)
    numbers: object = dimension_numbers
    specs = [spec for spec in numbers if isinstance(spec, str)] if isinstance(numbers, tuple | list) else []
    if len(specs) != 3 or len(dimension_numbers) != 3:
        raise TypeError(
            "convolution: dimension_numbers must be None, ConvDimensionNumbers or three strings such as "
            f"('NCHW', 'OIHW', 'NCHW'), got {numbers!r}"
        )
    if any(len(spec) != len(lhs_shape) for spec in specs):
        raise TypeError(
            f"convolution: dimension_numbers must be strings with a letter for each of {len(lhs_shape)} axes, got "
            f"{numbers!r} for shapes {tuple(lhs_shape)} and {tuple(rhs_shape)}"
        )
    return ConvDimensionNumbers(*conv_general_permutations(specs))


def conv_general_permutations(dimension_numbers: Sequence[str]) -> tuple[Dimensions, Dimensions, Dimensions]:
    """Returns, for each of three strings that name axes, the positions of batch, features and spatial axes.

    Spatial axes are in the order of the second string, that of the kernel.

    Args:
        dimension_numbers: Three strings with a letter for each axis of input, kernel and result: N and C for batch and
            features (O and I in the kernel), and other letters for spatial axes.

    Returns:
        Three tuples: the positions in the input, the kernel and the result.

    Raises:
        TypeError: A letter for batch or features is missing, or a letter is repeated or not in all strings.

    >>> conv_general_permutations(("NHWC", "HWIO", "NCHW"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 1, 2, 3))
    """
    lhs, rhs, out = dimension_numbers
    for i, (spec, (first, second)) in enumerate(zip(dimension_numbers, _LETTERS, strict=True)):
        if spec.count(first) != 1 or spec.count(second) != 1 or len(set(spec)) != len(spec):
            raise TypeError(
                f"convolution: dimension_numbers[{i}] must have {first!r}, {second!r} and the letters of spatial axes "
                f"once each, got {spec!r}"
            )
    spatial = [c for c in rhs if c not in _LETTERS[1]]
    for spec, letters in ((lhs, _LETTERS[0]), (out, _LETTERS[2])):
        if set(spec) - set(letters) != set(spatial):
            raise TypeError(
                f"convolution: dimension_numbers must have the same letters for spatial axes, got {dimension_numbers!r}"
            )
    a, b, c = [
        tuple([spec.index(letter) for letter in (*letters, *spatial)])
        for spec, letters in zip(dimension_numbers, _LETTERS, strict=True)
    ]
    return a, b, c


# ------------------------------------------------------------------ shapes


def take_dims(shape: Sequence[int], axes: Sequence[int]) -> Shape:
    """Returns the sizes of axes."""
    return tuple([shape[d] for d in axes])


def put_dims(sizes: Sequence[int], axes: Sequence[int]) -> Shape:
    """Returns the shape whose axis `axes[i]` has size `sizes[i]`."""
    shape = [0] * len(axes)
    for n, d in zip(sizes, axes, strict=True):
        shape[d] = n
    return tuple(shape)


def dilate_dim(n: int, dilation: int) -> int:
    """Returns the size of an axis with `dilation - 1` elements inserted between each two."""
    return max_dim((n - 1) * dilation + 1, 0)


def stride_dim(n: int, window: int, stride: int) -> int:
    """Returns the number of windows along an axis."""
    return max_dim((n - window) // stride + 1, 0)


def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: str | Sequence[tuple[int, int]],
    batch_group_count: int = 1,
) -> Shape:
    """Returns the shape of a convolution's result, with axes in the order batch, features, spatial axes.

    Args:
        lhs_shape: The shape of the input, in this order.
        rhs_shape: The shape of the kernel: output features, input features, window.
        strides: The step of the windows along each spatial axis.
        pads: A padding type such as "SAME", or a pair (before, after) for each spatial axis.
        batch_group_count: The number of groups of the batch. 1 by default.

    Returns:
        A tuple of integers.

    Raises:
        TypeError: There is not one pair per spatial axis.
        ValueError: Negative padding removes more elements than there are.

    >>> conv_shape_tuple((1, 3, 8, 8), (4, 3, 3, 3), (2, 2), "SAME")
    (1, 4, 4, 4)
    """
    spatial, windows = lhs_shape[2:], rhs_shape[2:]
    pairs = padtype_to_pads(spatial, windows, strides, pads) if isinstance(pads, str) else pads
    if len(pairs) != len(spatial):
        raise TypeError(
            f"convolution: padding must have a pair for each spatial axis, got {len(pairs)} pairs {tuple(pairs)} for "
            f"{len(spatial)} axes"
        )
    padded = [n + low + high for n, (low, high) in zip(spatial, pairs, strict=True)]
    if any(n < 0 for n in padded):
        raise ValueError(
            f"convolution: negative padding {tuple(pairs)} removes more elements than the spatial axes have, of sizes "
            f"{tuple(spatial)}"
        )
    sizes = [stride_dim(n, w, s) for n, w, s in zip(padded, windows, strides, strict=True)]
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *sizes)


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Sequence[str],
) -> Shape:
    """Returns the shape of a convolution's result, with axes in the order that three strings give.

    Args:
        lhs_shape: The shape of the input.
        rhs_shape: The shape of the kernel.
        window_strides: The step of the windows along each spatial axis.
        padding: A padding type such as "SAME", or a pair (before, after) for each spatial axis.
        dimension_numbers: Three strings as in `conv_general_permutations`.

    Returns:
        A tuple of integers.

    Raises:
        TypeError: The dimension numbers are invalid, or there is not one pair per spatial axis.
        ValueError: Negative padding removes more elements than there are.

    >>> conv_general_shape_tuple((1, 8, 8, 3), (3, 3, 3, 4), (1, 1), "VALID", ("NHWC", "HWIO", "NHWC"))
    (1, 6, 6, 4)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    return put_dims(
        conv_shape_tuple(take_dims(lhs_shape, lhs), take_dims(rhs_shape, rhs), window_strides, padding), out
    )


def conv_transpose_padding(window: int, stride: int, padding: str | Sequence[int]) -> tuple[int, int]:
    """Returns the padding of a dilated input for which a convolution is the transpose of one padded by `padding`.

    Raises ValueError for names other than "SAME" and "VALID".
    """
    if padding == "VALID":
        return window - 1, max(window, stride) - 1
    if padding == "SAME":
        total = window + stride - 2
        before = window - 1 if stride > window - 1 else -(-total // 2)
        return before, total - before
    if isinstance(padding, str):
        raise ValueError(f"convolution: padding must be 'SAME', 'VALID' or pairs of integers, got {padding!r}")
    low, high = static_ints("convolution", padding, "padding")
    return window - low - 1, window - high - 1


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Sequence[str],
) -> Shape:
    """Returns the shape of the result of `conv_transpose`, with axes in the order that three strings give.

    Args:
        lhs_shape: The shape of the input.
        rhs_shape: The shape of the kernel.
        window_strides: The fractional strides along each spatial axis.
        padding: "SAME", "VALID", or a pair (before, after) for each spatial axis of the dilated input.
        dimension_numbers: Three strings as in `conv_general_permutations`.

    Returns:
        A tuple of integers.

    Raises:
        TypeError: The dimension numbers are invalid.
        ValueError: `padding` is another string.

    >>> conv_transpose_shape_tuple((1, 4, 4, 3), (3, 3, 3, 4), (2, 2), "SAME", ("NHWC", "HWIO", "NHWC"))
    (1, 8, 8, 4)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    n, o = take_dims(lhs_shape, lhs), take_dims(rhs_shape, rhs)
    pairs: Sequence[tuple[int, int]]
    if isinstance(padding, str):
        pairs = [conv_transpose_padding(k, s, padding) for k, s in zip(o[2:], window_strides, strict=True)]
    else:
        pairs = padding
    sizes = [
        (size - 1) * stride - window + 2 + low + high
        for size, window, stride, (low, high) in zip(n[2:], o[2:], window_strides, pairs, strict=True)
    ]
    return put_dims((n[0], o[0], *sizes), out)


def channels_last_numbers(ndim: int) -> ConvDimensionNumbers:
    """Returns the numbers of operands of `ndim` axes whose channels are the last: `NHWC`, `HWIO` and `NHWC` for 4."""
    image = 0, ndim - 1, *range(1, ndim - 1)
    return ConvDimensionNumbers(image, (ndim - 1, ndim - 2, *range(ndim - 2)), image)


def dim_labels(spec: Dimensions, letters: str) -> str:
    """Returns the labels of an operand's axes in their order: a letter, or the number of a spatial axis."""
    names = [*letters, *map(str, range(len(spec) - 2))]
    return ", ".join([name for _, name in sorted(zip(spec, names, strict=True))])


def exchanged_dims(spec: Dimensions) -> Dimensions:
    """Returns `spec` with its first two axes exchanged."""
    return (spec[1], spec[0], *spec[2:])
