"""A strategy for pytrees."""

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
"""A function from a strategy for children to a strategy for nodes that contain them."""


class NamedPair(NamedTuple):
    """A named tuple, drawn as a node.

    >>> NamedPair(1, (2, 3))
    NamedPair(first=1, second=(2, 3))
    """

    first: PyTree
    second: PyTree


@trees.register_dataclass
@frozen
class TaggedNode:
    """A class registered as a pytree node, with a static field.

    >>> trees.map(lambda x: 2 * x, TaggedNode(3, "t"))
    TaggedNode(content=6, tag='t')
    """

    content: PyTree
    tag: str = field(default="", metadata={"static": True})


def containers(children: SearchStrategy[PyTree]) -> SearchStrategy[PyTree]:
    """Returns a strategy for nodes of every kind: tuples, lists, dicts, named tuples, and a registered class.

    Args:
        children: a strategy for the children.

    Returns:
        A strategy for pytrees of one level.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5, deadline=None)
    ... @given(containers(st.integers()))
    ... def test(node):
    ...     assert all(isinstance(leaf, int) for leaf in trees.leaves(node))
    >>> test()
    """
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
    """Returns a strategy for trees of leaves and of `None`s.

    Args:
        leaves: a strategy for leaves; by default float32 arrays of small numbers.
        max_leaves: the maximum number of leaves.
        nodes: a function from a strategy for children to one for nodes; extend `containers` to add your own, e.g.
            `lambda children: containers(children) | st.builds(MyModel, children, children)`.

    Returns:
        A strategy for pytrees.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5, deadline=None)
    ... @given(pytrees(st.integers(), max_leaves=3))
    ... def test(tree):
    ...     assert all(isinstance(leaf, int) for leaf in trees.leaves(tree))
    >>> test()
    """
    leaf_strategy: SearchStrategy[PyTree] = arrays(kinds.float32, (2,), extreme=False) if leaves is None else leaves
    return st.recursive(leaf_strategy | st.none(), nodes, max_leaves=max_leaves)
