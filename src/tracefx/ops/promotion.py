"""Type promotion: the common dtype of operands of different dtypes.

Dtypes and the three weak scalar types form a partial order (the promotion lattice); operands are promoted to their
least upper bound. A weak type, that of a Python number or of an array computed only from Python numbers, has a kind but
no width, so it is below all dtypes of its kind and does not widen them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final

from tracefx.bounded_cache import memoize
from tracefx.core import DType, dtypes
from tracefx.core.dtypes import DTypeKind
from tracefx.errors import TypePromotionError
from tracefx.settings import NUMERIC_OPTIONS, X64

# The lattice as chains of short names, in which each type promotes to the next. Names with a star are weak types.
_CHAINS: Final[tuple[tuple[str, ...], ...]] = (
    ("bool", "int*"),
    ("int*", "u8", "u16", "u32", "u64", "float*"),
    ("int*", "i8", "i16", "i32", "i64", "float*"),
    ("u8", "i16"),
    ("u16", "i32"),
    ("float*", "bf16", "f32", "f64", "c128"),
    ("float*", "f16", "f32", "c64", "c128"),
    ("float*", "complex*", "c64"),
)
# Narrow types without implicit widening: they only join with types below the weak type of their kind.
_NARROW_TYPES: Final[tuple[tuple[str, str], ...]] = (
    *(("int*", end) for end in ("i2", "i4", "u2", "u4")),
    *(
        ("float*", dtypes.short_name(dtype))
        for dtype in dtypes.ALL_DTYPES
        if dtypes.is_float(dtype) and dtypes.itemsize_bits(dtype) <= 8
    ),
)
# The join of u32 and signed integers, by whether x64 is enabled: the only one of narrower operands that needs 64 bits.
_SIGNED_ABOVE_U32: Final = {True: "i64", False: "i32"}

_WEAK_TYPES: Final = {
    DTypeKind.BOOL: "bool",
    DTypeKind.SIGNED: "int*",
    DTypeKind.UNSIGNED: "int*",
    DTypeKind.FLOAT: "float*",
    DTypeKind.COMPLEX: "complex*",
}
_WEAK_DTYPES: Final = {
    True: {"int*": dtypes.int64, "float*": dtypes.float64, "complex*": dtypes.complex128},
    False: {"int*": dtypes.int32, "float*": dtypes.float32, "complex*": dtypes.complex64},
}


def promote_types(a: DType, b: DType) -> DType:
    """Returns the dtype to which two strongly typed operands are promoted.

    64-bit operands keep their width whatever `enable_x64` is. The setting decides only joins that are wider than both
    operands: uint32 and int32 give int64 or int32, uint64 and int64 give float64 or float32.

    Args:
        a: The dtype of one operand.
        b: The dtype of the other operand.

    Raises:
        TypePromotionError: If the dtypes have no common dtype. It is a TypeError and a ValueError.

    >>> promote_types(dtypes.bfloat16, dtypes.float16), promote_types(dtypes.int32, dtypes.bfloat16)
    (dtype('float32'), dtype(bfloat16))
    """
    if a is b:
        return a
    return _promote(((a, False), (b, False)), X64.value, NUMERIC_OPTIONS.value.strict_dtypes)[0]


def promote(types: Sequence[tuple[DType, bool]]) -> tuple[DType, bool]:
    """Returns the dtype and weak type to which operands are promoted.

    The result is weak if all operands are weak, or if the join is a weak type, as for a bool array and a Python int.
    Bool is never weak.

    Args:
        types: The dtype and weak type of each operand.

    Raises:
        TypePromotionError: If the dtypes have no common dtype. It is a TypeError and a ValueError.
        ValueError: If there are no operands.

    >>> promote([(dtypes.float16, False), (dtypes.float32, True)])
    (dtype('float16'), False)
    >>> promote([(dtypes.int32, True), (dtypes.float32, True)])
    (dtype('float32'), True)
    """
    if not types:
        raise ValueError("promotion takes at least one dtype, got none")
    first = types[0]
    for other in types:
        if other != first:
            return _promote(tuple(types), X64.value, NUMERIC_OPTIONS.value.strict_dtypes)
    dtype, weak = first
    return dtype, weak and dtype != dtypes.bool_


@memoize(4096)
def _promote(types: tuple[tuple[DType, bool], ...], x64: bool, strict: bool) -> tuple[DType, bool]:
    """Computes `promote` for at least one operand. `x64` and `strict` are part of the cache key."""
    first = types[0][0]
    all_weak = all(weak for _, weak in types)
    if not all_weak and all(dtype == first for dtype, _ in types):
        return first, False
    # If all operands are weak, join their dtypes: weak int32 and weak int64 must keep their widths.
    bound = _least_upper_bound((_node(dtype, weak and not all_weak) for dtype, weak in types), x64, strict)
    if bound is None:
        raise TypePromotionError(_explain(types, strict))
    default = _WEAK_DTYPES[x64].get(bound)
    dtype = dtypes.from_short_name(bound) if default is None else default
    return dtype, (all_weak or default is not None) and dtype != dtypes.bool_


def _node(dtype: DType, weak: bool) -> str | None:
    """Returns the node of a type in the lattice; `None` for float0 and random keys, which are not part of it."""
    kind = dtypes.kind(dtype)
    if kind is DTypeKind.FLOAT0 or kind is DTypeKind.KEY:
        return None
    return _WEAK_TYPES[kind] if weak else dtypes.short_name(dtype)


def _least_upper_bound(nodes: Iterable[str | None], x64: bool, strict: bool) -> str | None:
    """Returns the least upper bound of the nodes; `None` if they have no common upper bound."""
    above = [frozenset[str]() if node is None else _upper_bounds(node, x64, strict) for node in nodes]
    common = frozenset.intersection(*above)
    return next((bound for bound in common if common <= _upper_bounds(bound, x64, strict)), None)


@memoize(256)
def _upper_bounds(node: str, x64: bool, strict: bool) -> frozenset[str]:
    """Returns all types to which a type can be promoted, itself included; `strict` leaves weak types only."""
    links: list[tuple[str | None, str | None]] = [link for chain in _CHAINS for link in itertools.pairwise(chain)]
    links += [*_NARROW_TYPES, ("u32", _SIGNED_ABOVE_U32[x64])]
    if strict:
        links = [("int*", "float*"), ("float*", "complex*")]
        links += [(_node(dtype, True), _node(dtype, False)) for dtype in dtypes.ALL_DTYPES if dtype != dtypes.bool_]
    found = [_upper_bounds(above, x64, strict) for below, above in links if below == node and above is not None]
    return frozenset([node]).union(*found)


def _explain(types: tuple[tuple[DType, bool], ...], strict: bool) -> str:
    """Returns the message of TypePromotionError."""
    names = list(dict.fromkeys(f"weak {_name(dtype)}" if weak else _name(dtype) for dtype, weak in types))
    what = f"{', '.join(names[:-1])} and {names[-1]} have no dtype in common to promote to."
    if any(dtypes.kind(dtype) is DTypeKind.FLOAT0 for dtype, _ in types):
        return f"{what} float0, the tangent dtype of integers and bools, has no arithmetic: leave this operand out"
    if any(dtypes.kind(dtype) is DTypeKind.KEY for dtype, _ in types):
        return f"{what} Random keys are not numbers: draw numbers with tracefx.random, or read random.key_data(key)"
    if strict:
        return f"{what} Under strict promotion only Python numbers adopt another dtype: convert explicitly with astype"
    widest = max((dtype for dtype, _ in types), key=dtypes.itemsize_bits)
    target = widest if dtypes.itemsize_bits(widest) > 8 else dtypes.float32
    return (
        f"{what} Integers below 8 bits and floats up to 8 bits don't widen implicitly: convert explicitly, "
        f"for instance with x.astype({_name(target)!r})"
    )


def _name(dtype: DType) -> str:
    return dtypes.name(dtype)
