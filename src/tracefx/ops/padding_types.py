"""Padding by name: how much goes before and after each axis for windows that move over it."""

from __future__ import annotations

from collections.abc import Sequence

from tracefx.ops.static_integers import static_ints

Pads = tuple[tuple[int, int], ...]
"""For each axis, how many elements go before it and after it; negative numbers take elements away."""


def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: str
) -> list[tuple[int, int]]:
    """How many elements go before and after each axis of `in_shape`, for windows of `window_shape` that move in steps.

    With `"VALID"` none. With `"SAME"` as many as make one window for each step that begins within the axis, half of
    them on either side and an odd one after it; with `"SAME_LOWER"` an odd one goes before it. Case doesn't matter.

    Raises RuntimeError for any other string, TypeError for what is no string, and ValueError if the shapes and the
    steps don't have the same number of axes.

    >>> padtype_to_pads((10, 10), (3, 2), (1, 1), "SAME")
    [(1, 1), (0, 1)]
    """
    if not isinstance(padding, str):
        raise TypeError(f"padtype_to_pads: padding must be 'SAME', 'SAME_LOWER' or 'VALID', got {padding!r}")
    sizes, windows, steps = [
        static_ints("padtype_to_pads", xs, what)
        for xs, what in ((in_shape, "in_shape"), (window_shape, "window_shape"), (window_strides, "window_strides"))
    ]
    kind = padding.upper()
    if kind == "VALID":
        return [(0, 0)] * len(sizes)
    if kind not in ("SAME", "SAME_LOWER"):
        raise RuntimeError(f"padding must be one of 'SAME', 'SAME_LOWER', 'VALID', got {padding!r}")
    if not len(sizes) == len(windows) == len(steps):
        raise ValueError(
            f"shapes and window strides must have the same number of axes, got {sizes}, {windows} and {steps}"
        )
    if any(s < 1 for s in steps):
        raise ValueError(f"window strides must be positive, got {steps}")
    pads = []
    for n, window, step in zip(sizes, windows, steps, strict=True):
        missing = max((-(-n // step) - 1) * step + window - n, 0)
        less, more = missing // 2, missing - missing // 2
        pads.append((less, more) if kind == "SAME" else (more, less))
    return pads
