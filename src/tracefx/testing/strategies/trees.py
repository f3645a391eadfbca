"""Trees of leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from attrs import field, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tracefx.core import dtypes as kinds
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree
from tracefx.testing.strategies.arrays import arrays

Containers: TypeAlias = Callable[[SearchStrategy[PyTree]], SearchStrategy[PyTree]]
"""Of a strategy for children, one for nodes that hold such."""


class NamedPair(NamedTuple):
    """A named tuple among the nodes that are drawn."""

    first: PyTree
    second: PyTree


@trees.register_dataclass
@frozen
class TaggedNode:
    """A class registered as a node, with a field that is no child."""

    content: PyTree
    tag: str = field(default="", metadata={"static": True})


def containers(children: SearchStrategy[PyTree]) -> SearchStrategy[PyTree]:
    """Nodes of every sort: tuples, lists, dicts, named tuples, and a class that is registered."""
    return st.one_of(
        st.lists(children, max_size=3).map(tuple),
        st.lists(children, max_size=3),
        st.dictionaries(st.sampled_from("abc"), children, max_size=3),
        st.builds(NamedPair, children, children),
        st.builds(TaggedNode, children, st.sampled_from(("", "t"))),
    )


def pytrees(
    leaves: SearchStrategy[PyTree] | None = None, max_leaves: int = 5, nodes: Containers = containers
) -> SearchStrategy[PyTree]:
    """Trees of up to `max_leaves` leaves, by default float32 arrays of small numbers, and of `None`s.

    `nodes` says which containers there are: give your own beside `containers`, e.g.
    `lambda children: containers(children) | st.builds(MyModel, children, children)`.
    """
    given: SearchStrategy[PyTree] = arrays(kinds.float32, (2,), extreme=False) if leaves is None else leaves
    return st.recursive(given | st.none(), nodes, max_leaves=max_leaves)
