"""Type promotion: the dtype in which operands of different dtypes meet.

Dtypes and the three weak scalar types form a partial order, and operands meet in their least upper bound. A weak
type (that of a Python number, or of an array made only from Python numbers) says what kind of number it is and
nothing about its width, so it sits below the dtypes of its kind and leaves them as they are.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Final

from tracefx.core import dtypes
from tracefx.core.dtypes import DType, DTypeKind
from tracefx.core.settings import X64
from tracefx.errors import TypePromotionError

# The order as chains of short names, each link from a type to one that can stand for it. The names with a star are
# the weak types, which no dtype is called.
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
# Types so narrow that nothing promotes them further: only what lies below the weak type of their kind joins them.
_NARROW_TYPES: Final[tuple[tuple[str, str], ...]] = (
    *(("int*", end) for end in ("i2", "i4", "u2", "u4")),
    *(
        ("float*", dtypes.short_name(dtype))
        for dtype in dtypes.ALL_DTYPES
        if dtypes.is_float(dtype) and dtypes.itemsize_bits(dtype) <= 8
    ),
)
# The one place where 32-bit operands would need 64 bits: what holds both u32 and i8, by whether x64 is enabled.
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
    """The dtype in which arrays of two dtypes meet, neither of them weak.

    64-bit dtypes stay whatever `enable_x64` says; it decides only what is made up on the way: whether uint32 and
    int32 meet in int64 or int32, and whether uint64 and int64 meet in float64 or float32.

    Raises TypePromotionError (a TypeError and a ValueError) if the dtypes have none in common.

    >>> promote_types(dtypes.bfloat16, dtypes.float16), promote_types(dtypes.int32, dtypes.bfloat16)
    (dtype('float32'), dtype(bfloat16))
    """
    if a is b:
        return a
    return _promote(((a, False), (b, False)), X64.value)[0]


def promote(types: Sequence[tuple[DType, bool]]) -> tuple[DType, bool]:
    """The (dtype, weak type) in which operands of the given (dtype, weak type) meet.

    The result is weak if all operands are, or if what they meet in is a weak type, as for a bool array and a Python
    int; bool is never weak.

    Raises TypePromotionError (a TypeError and a ValueError) if the dtypes have none in common, and ValueError if
    there are no operands.

    >>> promote([(dtypes.float16, False), (dtypes.float32, True)])
    (dtype('float16'), False)
    >>> promote([(dtypes.int32, True), (dtypes.float32, True)])
    (dtype('float32'), True)
    """
    if not types:
        raise ValueError("promotion takes at least one dtype, got none")
    first = types[0]
    for each in types:
        if each != first:
            return _promote(tuple(types), X64.value)
    dtype, weak = first
    return dtype, weak and dtype != dtypes.bool_


@functools.lru_cache(maxsize=4096)
def _promote(types: tuple[tuple[DType, bool], ...], x64: bool) -> tuple[DType, bool]:
    first = types[0][0]
    all_weak = all(weak for _, weak in types)
    if not all_weak and all(dtype == first for dtype, _ in types):
        return first, False
    # Weak operands among themselves meet by their dtypes, or weak int32 and weak int64 would lose their widths.
    bound = _least_upper_bound((_node(dtype, weak and not all_weak) for dtype, weak in types), x64)
    if bound is None:
        raise TypePromotionError(_explain(types))
    default = _WEAK_DTYPES[x64].get(bound)
    dtype = dtypes.from_short_name(bound) if default is None else default
    return dtype, (all_weak or default is not None) and dtype != dtypes.bool_


def _node(dtype: DType, weak: bool) -> str | None:
    """The place of a type in the order; None for float0 and random keys, which have none."""
    kind = dtypes.kind(dtype)
    if kind is DTypeKind.FLOAT0 or kind is DTypeKind.KEY:
        return None
    return _WEAK_TYPES[kind] if weak else dtypes.short_name(dtype)


def _least_upper_bound(nodes: Iterable[str | None], x64: bool) -> str | None:
    """The least upper bound, None if there is no upper bound at all."""
    above = [frozenset[str]() if node is None else _upper_bounds(node, x64) for node in nodes]
    common = frozenset.intersection(*above)
    return next((bound for bound in common if common <= _upper_bounds(bound, x64)), None)


@functools.cache
def _upper_bounds(node: str, x64: bool) -> frozenset[str]:
    """Every type that can stand for this one, itself included."""
    links = [link for chain in _CHAINS for link in itertools.pairwise(chain)]
    links += [*_NARROW_TYPES, ("u32", _SIGNED_ABOVE_U32[x64])]
    return frozenset([node]).union(*(_upper_bounds(above, x64) for below, above in links if below == node))


def _explain(types: tuple[tuple[DType, bool], ...]) -> str:
    names = list(dict.fromkeys(f"weak {_name(dtype)}" if weak else _name(dtype) for dtype, weak in types))
    what = f"{', '.join(names[:-1])} and {names[-1]} have no dtype in common to promote to."
    if any(dtypes.kind(dtype) is DTypeKind.FLOAT0 for dtype, _ in types):
        return f"{what} float0 is the tangent of integers and bools and takes part in no arithmetic: leave it out"
    if any(dtypes.kind(dtype) is DTypeKind.KEY for dtype, _ in types):
        return f"{what} Random keys are no numbers: draw numbers with tracefx.random, or look at random.key_data(key)"
    widest = max((dtype for dtype, _ in types), key=dtypes.itemsize_bits)
    target = widest if dtypes.itemsize_bits(widest) > 8 else dtypes.float32
    return (
        f"{what} Integers below 8 bits and floats up to 8 bits don't widen implicitly: convert explicitly, "
        f"for instance with x.astype({_name(target)!r})"
    )


def _name(dtype: DType) -> str:
    return dtypes.name(dtype)
