"""Conversions between pytrees of arrays and their `ValueSpec`s."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from tracefx.core import ShapedArray, Value, as_value, is_arraylike
from tracefx.core.handler import as_array
from tracefx.interpreters.body_transform import ValueSpec
from tracefx.ops.structural import constant_like_aval, convert_value
from tracefx.pytrees import trees


def spec_of(value: object) -> ValueSpec:
    """Returns the spec of a pytree of plain values.

    Raises:
        TypeError: If a leaf is not an array, such as an object of a class that is not registered as a pytree node.
    """
    leaves, tree = trees.flatten(value)
    for leaf in leaves:
        if not is_arraylike(leaf):
            raise TypeError(
                "the custom values of an interpreter, its state and what it collects must be pytrees of arrays, got an "
                f"object of type {type(leaf).__qualname__}: register the class, by "
                "tracefx.tree_util.register_pytree_node or register_dataclass, or use a NamedTuple"
            )
    return ValueSpec(tree, tuple([as_value(a).aval for a in leaves]))


def unflatten_spec(spec: ValueSpec, values: Sequence[Value]) -> Any:
    """Returns the pytree of a spec, with literals converted to arrays."""
    assert spec.tree is not None
    return trees.unflatten(spec.tree, [as_array(x) for x in values])


def leaf_values(value: object) -> list[Value]:
    """Returns the leaves of a pytree of plain values."""
    return [as_value(a) for a in trees.leaves(value)]


def join_avals(x: ValueSpec, y: ValueSpec, what: str) -> ValueSpec:
    """Returns a spec to whose dtypes values of two specs of one structure can be converted; `what` names them."""
    avals = []
    for p, q in zip(x.avals, y.avals, strict=True):
        if p.shape != q.shape or p.dtype != q.dtype:
            raise TypeError(f"{what} must have one type, got {x} and {y}")
        avals.append(ShapedArray(p.shape, p.dtype, p.weak_type and q.weak_type, p.vma | q.vma))
    return ValueSpec(x.tree, tuple(avals))


def cast_collected(value: object, spec: ValueSpec, what: str, name: Hashable) -> list[Value]:
    """Returns the arrays of a value collected under `name`; raises `TypeError` if it does not match the spec."""
    actual = spec_of(value)
    if not actual.same_structure(spec) or [(a.shape, a.dtype) for a in actual.avals] != [
        (a.shape, a.dtype) for a in spec.avals
    ]:
        raise TypeError(f"the value collected as {name!r} in {what} must have one type, got {actual} and {spec}")
    return cast_arrays(leaf_values(value), spec)


def cast_arrays(arrays: Sequence[Value], spec: ValueSpec) -> list[Value]:
    """Converts arrays to the dtypes of a spec."""
    return [convert_value(a, aval.dtype, aval.weak_type) for a, aval in zip(arrays, spec.avals, strict=True)]


def zeros_like_spec(spec: ValueSpec) -> object:
    """Returns a value of zeros with this spec, to inspect its structure."""
    zeros = [constant_like_aval(aval, 0) for aval in spec.avals]
    return zeros[0] if spec.tree is None else trees.unflatten(spec.tree, zeros)
