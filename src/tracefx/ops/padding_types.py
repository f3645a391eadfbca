"""`padtype_to_pads`: explicit window padding for the padding types 'SAME', 'SAME_LOWER' and 'VALID'."""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.dimensions.symbolic_dimensions import max_dim
from tracefx.ops.static_integers import static_ints

Pads = tuple[tuple[int, int], ...]
"""For each axis, the number of elements added before and after it; negative numbers remove elements."""


def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: str
) -> list[tuple[int, int]]:
    """Returns the padding before and after each axis that a padding type stands for.

    Args:
        in_shape: The shape that the windows move over.
        window_shape: The shape of a window, dilation included.
        window_strides: The step of the windows along each axis.
        padding: "VALID" for no padding; "SAME" for one window per step that starts within the axis, with the padding
            split evenly and the odd element after the axis; "SAME_LOWER" with the odd element before it. Case is
            ignored.

    Returns:
        One pair (before, after) per axis.

    Raises:
        RuntimeError: `padding` is another string.
        TypeError: `padding` is not a string.
        ValueError: The shapes and strides differ in length, or a stride is not positive.

    >>> padtype_to_pads((10, 10), (3, 2), (1, 1), "SAME")
    [(1, 1), (0, 1)]
    """
    if not isinstance(padding, str):
        raise TypeError(f"padtype_to_pads: padding must be 'SAME', 'SAME_LOWER' or 'VALID', got {padding!r}")
    sizes, windows, strides = [
        static_ints("padtype_to_pads", xs, what)
        for xs, what in ((in_shape, "in_shape"), (window_shape, "window_shape"), (window_strides, "window_strides"))
    ]
    kind = padding.upper()
    if kind == "VALID":
        return [(0, 0)] * len(sizes)
    if kind not in ("SAME", "SAME_LOWER"):
        raise RuntimeError(f"padding must be one of 'SAME', 'SAME_LOWER', 'VALID', got {padding!r}")
    if not len(sizes) == len(windows) == len(strides):
        raise ValueError(
            f"shapes and window strides must have the same number of axes, got {sizes}, {windows} and {strides}"
        )
    if any(s < 1 for s in strides):
        raise ValueError(f"window strides must be positive, got {strides}")
    pads = []
    for n, window, stride in zip(sizes, windows, strides, strict=True):
        total = max_dim((-(-n // stride) - 1) * stride + window - n, 0)
        less, more = total // 2, total - total // 2
        pads.append((less, more) if kind == "SAME" else (more, less))
    return pads
