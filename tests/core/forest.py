"""Hypothesis strategies and node types for tests of pytrees. Some node types are registered only in jax."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import hypothesis.strategies as st
import jax
from attrs import frozen
from typing_extensions import override

from tracefx import tree as public
from tracefx.pytrees import trees

# The oracle, untyped.
jax_tree: Any = jax.tree
tree_util: Any = jax.tree_util


class Point(NamedTuple):
    x: object
    y: object


@trees.register_pytree_node_class
class Pair:
    """A node type registered in tracefx and in jax, with the same methods."""

    def __init__(self, a: object, b: object, tag: str = "") -> None:
        self.a, self.b, self.tag = a, b, tag

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and (self.a, self.b, self.tag) == (other.a, other.b, other.tag)

    __hash__ = None  # type: ignore[assignment]  # compared by value, and mutable

    def tree_flatten(self) -> tuple[tuple[object, object], str]:
        return (self.a, self.b), self.tag

    @classmethod
    def tree_unflatten(cls, tag: str, children: tuple[object, object]) -> Pair:
        return cls(*children, tag)


@trees.register_dataclass
@dataclasses.dataclass(frozen=True)
class Layer:
    w: object
    b: object
    name: str = public.static(default="dense")


@trees.register_static
@frozen
class Mode:
    name: str


class ExternalNode:
    """A node type registered only in jax."""

    def __init__(self, *parts: object, tag: str = "") -> None:
        self.parts, self.tag = parts, tag

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExternalNode) and (self.parts, self.tag) == (other.parts, other.tag)

    __hash__ = None  # type: ignore[assignment]  # compared by value, and mutable


def register_with_jax(cls: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]) -> None:
    tree_util.register_pytree_node(cls, flatten, unflatten)


register_with_jax(Pair, lambda p: ((p.a, p.b), p.tag), lambda tag, ab: Pair(ab[0], ab[1], tag))
register_with_jax(ExternalNode, lambda a: (a.parts, a.tag), lambda tag, parts: ExternalNode(*parts, tag=tag))
tree_util.register_dataclass(Layer, ["w", "b"], ["name"])
tree_util.register_static(Mode)

KEYS = st.text("abc", max_size=2)


def containers(children: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    two = st.tuples(children, children)
    entries = st.lists(st.tuples(KEYS, children), max_size=3)
    return st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        st.dictionaries(KEYS, children, max_size=3),
        st.dictionaries(st.integers(0, 9), children, max_size=3),
        entries.map(collections.OrderedDict),
        entries.map(lambda pairs: collections.defaultdict(list, pairs)),
        two.map(lambda ab: Point(*ab)),
        st.builds(Pair, children, children, KEYS),
        st.builds(Layer, children, children, KEYS),
        st.lists(children, max_size=3).map(lambda parts: ExternalNode(*parts, tag="t")),
        two.map(lambda ab: tree_util.Partial(max, ab[0], key=ab[1])),
    )


LEAVES = st.one_of(st.integers(), st.floats(allow_nan=False), st.text(max_size=2), st.binary(max_size=2))
TREES = st.recursive(st.one_of(LEAVES, st.none(), st.builds(Mode, KEYS)), containers, max_leaves=12)


def is_short(value: object) -> bool:
    return isinstance(value, (list, tuple, ExternalNode)) and len(getattr(value, "parts", value)) < 2  # type: ignore[arg-type]  # sized


def paths(flat: Iterable[tuple[Iterable[object], object]]) -> list[tuple[list[str], object]]:
    return [([str(key) for key in path], leaf) for path, leaf in flat]
