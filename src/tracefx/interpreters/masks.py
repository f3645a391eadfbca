"""Masks over operands and results: which of them are linear, unknown, or have a nonzero tangent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from tracefx.core import ShapedArray, Value
from tracefx.core.primitive import Tangent, UndefinedPrimal, Zero

X = TypeVar("X")
Mask: TypeAlias = tuple[bool, ...]


def select_masked(xs: Iterable[X], mask: Iterable[bool]) -> list[X]:
    """Returns the elements where the mask is true."""
    return [x for x, use in zip(xs, mask, strict=True) if use]


def select_unmasked(xs: Iterable[X], mask: Iterable[bool]) -> list[X]:
    """Returns the elements where the mask is false."""
    return [x for x, use in zip(xs, mask, strict=True) if not use]


def union_masks(masks: Iterable[Mask]) -> Mask:
    """Returns the elementwise disjunction of masks."""
    return tuple(map(any, zip(*masks, strict=True)))


def nonzero_mask(tangents: Iterable[Tangent]) -> Mask:
    """Tells for each tangent whether it is not a `Zero`."""
    return tuple([not isinstance(t, Zero) for t in tangents])


def drop_zeros(tangents: Iterable[Tangent]) -> list[Value]:
    """Returns the tangents that are not `Zero`."""
    return [t for t in tangents if not isinstance(t, Zero)]


def linear_mask(args: Iterable[Value | UndefinedPrimal]) -> Mask:
    """Tells for each operand of a transpose rule whether it is an `UndefinedPrimal`."""
    return tuple([isinstance(a, UndefinedPrimal) for a in args])


def known_values(args: Iterable[Value | UndefinedPrimal], late: Iterable[bool] | None = None) -> list[Value]:
    """Returns the operands outside the mask `late` that are not `UndefinedPrimal`."""
    values = args if late is None else select_unmasked(args, late)
    return [x for x in values if not isinstance(x, UndefinedPrimal)]


def insert_zeros(values: Sequence[Tangent], mask: Sequence[bool], avals: Sequence[ShapedArray]) -> list[Tangent]:
    """Returns one tangent per mask entry: the next of `values` where true, a `Zero` for the aval where false."""
    remaining = iter(values)
    return [next(remaining) if use else Zero(a.tangent()) for use, a in zip(mask, avals, strict=True)]


def merge_masked(mask: Sequence[bool], selected: Sequence[X], others: Sequence[X]) -> list[X]:
    """Merges two lists: the next of `selected` where the mask is true, the next of `others` where it is false."""
    a, b = iter(selected), iter(others)
    return [next(a) if use else next(b) for use in mask]


def insert_cotangents(
    args: Sequence[Value | UndefinedPrimal], values: Sequence[Value], nonzero: Sequence[bool]
) -> list[Tangent | None]:
    """Returns one cotangent per operand of a transpose rule: None for a known operand.

    For the others, `nonzero` tells for which the next of `values` is the cotangent, and for which it is a `Zero`.
    """
    cts = iter(insert_zeros(values, nonzero, [x.aval for x in args if isinstance(x, UndefinedPrimal)]))
    return [next(cts) if isinstance(x, UndefinedPrimal) else None for x in args]
