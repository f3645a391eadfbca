"""Shardings of results from those of operands, for the rules of several families of primitives.

A rule is called only if the type of an operand has a sharding over explicit mesh axes. It raises `ShardingTypeError`
if the result would require communication that the program does not ask for, or if several results are possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tracefx.core import Shape, ShapedArray, show_avals
from tracefx.core.named_sharding import Spec
from tracefx.core.partition_spec import PartitionEntry, entry_axis_names
from tracefx.core.primitive import Primitive
from tracefx.errors import ShardingTypeError

RESHARD = "reshard an operand with tracefx.sharding.reshard"


def joined_spec(prim: Primitive, avals: Sequence[ShapedArray]) -> Spec:
    """Returns the sharding of the result of an elementwise primitive: those of the operands, which must agree."""
    arrays = [aval for aval in avals if aval.shape]
    entries: list[PartitionEntry] = []
    for along in zip(*[aval.spec for aval in arrays], strict=True):
        given = {entry for entry in along if entry is not None}
        if len(given) > 1:
            raise ShardingTypeError(
                f"{prim.name} takes operands with compatible shardings, got {show_avals(avals)}: {RESHARD}"
            )
        entries.append(given.pop() if given else None)
    return tuple(entries)


def unsharded_specs(outs: Sequence[ShapedArray]) -> list[Spec]:
    """Returns the shardings of results that all devices have as a whole."""
    return [(None,) * out.ndim for out in outs]


def equal_spec(prim: Primitive, avals: Sequence[ShapedArray]) -> Spec:
    """Returns the sharding of operands that must have the same one."""
    first = avals[0].spec
    if any(aval.spec != first for aval in avals):
        raise ShardingTypeError(
            f"{prim.name} takes operands with the same sharding, got {show_avals(avals)}: {RESHARD}"
        )
    return first


def resized_spec(prim: Primitive, x: ShapedArray, shape: Shape) -> Spec:
    """Returns the sharding of an operand for a result of another shape, whose sharded axes must be divisible."""
    sharding = x.explicit_sharding
    for old, new, entry in zip(x.shape, shape, x.spec, strict=True):
        if old != new and sharding is not None and new % sharding.mesh.size_of(entry_axis_names(entry)):
            raise ShardingTypeError(
                f"{prim.name} of {x} has a result of shape {shape}: its axis of size {new} can't be sharded over "
                f"{entry!r}, whose size does not divide it; {RESHARD}"
            )
    return x.spec


def without_axes(spec: Spec, axes: Iterable[int]) -> Spec:
    """Returns a specification without the entries of some axes."""
    dropped = set(axes)
    return tuple([entry for axis, entry in enumerate(spec) if axis not in dropped])


def require_unsharded(prim: Primitive, x: ShapedArray, axes: Iterable[int]) -> None:
    """Raises ShardingTypeError if an operand is sharded along one of some axes."""
    for axis in axes:
        if x.spec[axis] is not None:
            raise ShardingTypeError(
                f"{prim.name} takes an operand that is not sharded along axis {axis}, got {x}: {RESHARD}"
            )


def reshaped_spec(prim: Primitive, x: ShapedArray, shape: Shape) -> Spec:
    """Returns the sharding of an operand that gets another shape.

    The shapes are split into the smallest groups of adjacent axes with equal numbers of elements. In each group, the
    mesh axes of the leading axes of the operand go to the leading axes of the result, whose sizes they must divide.
    """
    sharding = x.explicit_sharding
    assert sharding is not None
    entries: dict[int, PartitionEntry] = {}
    for old, new in _reshape_groups(x.shape, shape):
        along = [entry_axis_names(x.spec[axis]) for axis in old if x.shape[axis] != 1]
        names = [name for each in along for name in each]
        is_leading = all(along[: sum(map(bool, along))])
        for axis in new:
            rest, parts = shape[axis], []
            while names and rest > 1:
                rest, remainder = divmod(rest, sharding.mesh.shape[names[0]])
                is_leading = is_leading and not remainder
                parts.append(names.pop(0))
            entries[axis] = None if not parts else parts[0] if len(parts) == 1 else tuple(parts)
        if names or not is_leading:
            raise ShardingTypeError(
                f"{prim.name} of {x} to the shape {shape} has no unique sharding: pass out_sharding=, or {RESHARD}"
            )
    return tuple([entries[axis] for axis in range(len(shape))])


def _reshape_groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Returns the smallest groups of adjacent axes, of the old and of the new shape, with equal numbers of elements."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        group: tuple[list[int], list[int]] = ([], [])
        m = n = 1
        while True:
            if i < len(old) and (m <= n or j == len(new)):
                m *= old[i]
                group[0].append(i)
                i += 1
            elif j < len(new):
                n *= new[j]
                group[1].append(j)
                j += 1
            if (m == n and group[0] and group[1]) or (i == len(old) and j == len(new)):
                break
        groups.append(group)
    return groups


def agreed(*entries: PartitionEntry) -> bool:
    """Whether the entries that name mesh axes are equal."""
    return len({entry for entry in entries if entry is not None}) <= 1


def convolution_spec(
    prim: Primitive, avals: Sequence[ShapedArray], shape: Shape, lhs_axes: Sequence[int], out_axes: Sequence[int]
) -> Spec:
    """Returns the sharding of a convolution, that of an operand whose features and whose kernel are not sharded."""
    lhs, rhs = avals
    if rhs.explicit_sharding is not None or lhs.spec[lhs_axes[1]] is not None:
        raise ShardingTypeError(
            f"{prim.name} of {show_avals(avals)} has no unique sharding, since the kernel or the features are sharded: "
            f"pass out_sharding=, or {RESHARD}"
        )
    sizes = list(lhs.shape)
    for i, o in zip(lhs_axes, out_axes, strict=True):
        sizes[i] = shape[o]
    spec = resized_spec(prim, lhs, tuple(sizes))
    return tuple([spec[lhs_axes[out_axes.index(o)]] for o in range(len(out_axes))])
