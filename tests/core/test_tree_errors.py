"""Pytrees: prefixes, and errors that show where two trees differ."""

from __future__ import annotations

import collections
import textwrap

import pytest
from hypothesis import given

from tests.core.forest import TREES, ExternalNode, Layer, Pair, Point
from tests.errors import error_message
from tracefx import tree as public
from tracefx.pytrees import trees

# --- errors -----------------------------------------------------------------------------------------------------------


def test_broadcast_prefix_with_none() -> None:
    tree = (1, {"a": 2, "b": (3, None)})
    assert trees.broadcast_prefix(None, tree, none_is_leaf=True) == [None, None, None]
    assert trees.broadcast_prefix((0, {"a": None, "b": (1, None)}), tree, none_is_leaf=True) == [0, None, 1]
    assert trees.broadcast_prefix(collections.OrderedDict(a=None), collections.OrderedDict(a=1), none_is_leaf=True) == [
        None
    ]
    assert trees.broadcast_prefix((0, {"a": 5, "b": (1, None)}), tree) == [0, 5, 1]
    text = error_message(
        lambda: trees.broadcast_prefix((0, None), tree, what="in_axes", of="the arguments"), ValueError
    )
    assert text == textwrap.dedent("""\
        in_axes must have the structure of the arguments, or leaves for subtrees. They differ at [1]:
          in_axes: None
          the arguments: a dict with the keys 'a', 'b'
        as a whole:
          in_axes: a tuple of length 2, (*, None)
          the arguments: a tuple of length 2, (*, {'a': *, 'b': (*, None)})""")


def test_broadcast_prefix_with_is_leaf() -> None:
    tree = ((1, 2), [3])
    assert trees.broadcast_prefix(([7, 8], 9), tree, is_leaf=lambda x: x == [7, 8]) == [[7, 8], [7, 8], 9]


@pytest.mark.parametrize(
    ("prefix", "tree", "expected"),
    [
        ((1, 2), (1, 2, 3), "at the root:\n  P: a tuple of length 2\n  Q: a tuple of length 3"),
        ([(1, 2)], [[1, 2]], "at [0]:\n  P: a tuple of length 2\n  Q: a list of length 2\n"),
        ({"k": [1]}, {"k": 1}, "at ['k']:\n  P: a list of length 1\n  Q: a leaf\n"),
        (
            [{"a": 1, "b": 2}],
            [{"b": 1, "c": 2}],
            "  Q: a dict with the keys 'b', 'c'\n  only in P: 'a'\n  only in Q: 'c'\n",
        ),
        (Point(1, ()), Point(1, 2), "at .y:\n"),
        (Layer(1, (), "n"), Layer(1, [], "n"), "at .b:\n"),
        (
            Pair(1, 2, "u"),
            Pair(1, 2, "v"),
            f"  P: a {Pair.__module__}.Pair with 2 children and metadata='u'\n",
        ),
        (Pair(1, (), "u"), Pair(1, [], "u"), "at [<flat index 1>]:\n"),
        (Point(1, 2), (1, 2), f"  P: a named tuple {Pair.__module__}.Point\n  Q: a tuple of length 2"),
        (collections.OrderedDict(a=1, b=()), collections.OrderedDict(a=1, b=2), "at ['b']:\n"),
        (ExternalNode(1, ()), ExternalNode(1, 2), "at [<flat index 1>]:\n"),
    ],
)
def test_message_of_prefix_mismatch(prefix: object, tree: object, expected: str) -> None:
    text = error_message(lambda: trees.broadcast_prefix(prefix, tree, what="P", of="Q"), ValueError)
    assert expected in text
    assert ("as a whole:" in text) == ("at the root" not in text)


def test_message_with_a_class_that_rejects_placeholders() -> None:
    class Picky:
        def __init__(self, x: object, y: object) -> None:
            if type(x) is object:
                raise RuntimeError("placeholder")
            self.x, self.y = x, y

    trees.register_pytree_with_keys(
        Picky, lambda p: ([(trees.GetAttrKey("x"), p.x), (trees.GetAttrKey("y"), p.y)], None), lambda _, c: Picky(*c)
    )
    text = error_message(lambda: trees.broadcast_prefix(Picky(1, ()), Picky(1, []), what="P"), ValueError)
    assert "at [<flat index 1>]:" in text


def test_map_error_shows_where_arguments_differ() -> None:
    text = error_message(lambda: trees.map(max, {"a": (1, 2)}, {"a": (1, 2)}, {"a": (1, 2, 3)}), ValueError)
    assert "of tree 3" in text
    assert "['a']" in text
    assert "a tuple of length 3" in text
    assert trees.map(lambda x, y: y, {"a": 1}, {"a": (1, 2)}) == {"a": (1, 2)}


def test_too_many_and_too_few_leaves() -> None:
    for leaves in ([1], [1, 2, 3]):
        with pytest.raises(ValueError, match="expected 2"):
            trees.unflatten(trees.structure((0, 0)), leaves)


def test_reductions_of_empty_trees() -> None:
    with pytest.raises(TypeError):
        trees.reduce(max, [])
    with pytest.raises(TypeError, match="needs an identity"):
        public.reduce_associative(max, [None])


def test_require_same_structure() -> None:
    same = trees.structure({"a": (1, ExternalNode(2))})
    trees.require_same_structure("the carry", same, trees.structure({"a": (3, ExternalNode(4))}), "one", "the other")
    text = error_message(
        lambda: trees.require_same_structure(
            "the body's output",
            same,
            trees.structure({"a": (1, ExternalNode((2,)))}),
            "the carry it was given",
            "the carry it returned",
        ),
        TypeError,
    )
    assert text == textwrap.dedent("""\
        the body's output must have the structure of the carry it was given. They differ at ['a'][1][<flat index 0>]:
          the carry it was given: a leaf
          the carry it returned: a tuple of length 1
        as a whole:
          the carry it was given: a dict with the keys 'a', {'a': (*, ExternalNode(*, metadata=''))}
          the carry it returned: a dict with the keys 'a', {'a': (*, ExternalNode((*,), metadata=''))}""")
    at_root = error_message(
        lambda: trees.require_same_structure("f", trees.structure(1), trees.structure(()), "x", "y"), TypeError
    )
    assert at_root == "f must have the structure of x. They differ at the root:\n  x: a leaf\n  y: a tuple of length 0"


@given(TREES, TREES)
def test_difference_is_found_if_and_only_if_structures_differ(a: object, b: object) -> None:
    one, two = trees.structure(a), trees.structure(b)
    difference = trees.first_difference(one, two)
    assert (difference is None) == (one == two)
    if difference is not None:
        assert difference.expected != difference.got
