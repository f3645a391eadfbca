"""`tracefx.tree_util`, compared with `jax.tree_util`."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import jax
import jax.tree_util as jtu
import pytest

import tracefx as fx
from tracefx import tree, tree_util
from tracefx.lazy_stubs import exports


class Point(NamedTuple):
    x: object
    y: object


class Registered:
    """A node type registered only in jax."""

    def __init__(self, inside: object) -> None:
        self.inside = inside


jtu.register_pytree_with_keys(
    Registered, lambda r: ([(jtu.GetAttrKey("inside"), r.inside)], "metadata"), lambda _, c: Registered(*c)
)

NODES: tuple[Any, ...] = (
    (1, (2, 3)),
    [1, 2],
    {"b": 1, "a": 2},
    None,
    Point(1, (2, 3)),
    collections.OrderedDict(b=1, a=2),
    collections.defaultdict(int, {"b": 1}),
    Registered((1, 2)),
)


def test_every_name_of_jax_exists() -> None:
    assert {name for name in dir(jtu) if not name.startswith("_")} - set(dir(tree_util)) == set()
    assert set(tree_util.__all__) == {name for name in dir(jtu) if not name.startswith("_")}
    assert all(hasattr(tree_util, name) for name in tree_util.__all__)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = tree_util.other  # type: ignore[attr-defined]  # deliberately wrong


def test_functions_are_aliases_of_tree_functions() -> None:
    for name in tree_util.__all__:
        short = name.removeprefix("tree_")
        if short in exports("tracefx.tree") and name not in ("PyTreeDef",):
            assert getattr(tree_util, name) is getattr(tree, short)


@pytest.mark.parametrize("node", NODES, ids=lambda node: type(node).__name__)
def test_flatten_one_level_matches_jax(node: Any) -> None:
    children, metadata = tree_util.flatten_one_level(node)
    want, wanted_metadata = jtu.flatten_one_level(node)
    assert (list(children), metadata) == (list(want), wanted_metadata)
    pairs, again = tree_util.flatten_one_level_with_keys(node)
    assert again == metadata
    assert [child for _, child in pairs] == list(children)
    if not isinstance(node, Point):  # in jaxlib 0.10.2 all its fields have the name of the first
        keys = [key for key, _ in jtu.flatten_one_level_with_keys(node)[0]]
        assert tree_util.keystr([key for key, _ in pairs]) == jtu.keystr(tuple(keys))
    assert tree_util.is_tree_node(type(node))


def test_keys_of_named_tuple_fields() -> None:
    pairs, _ = tree_util.flatten_one_level_with_keys(Point(1, 2))
    assert tree_util.keystr([key for key, _ in pairs]) == ".x.y"


@pytest.mark.parametrize("leaf", [1, "text", object, 2.5])
def test_flatten_one_level_of_leaves_raises(leaf: object) -> None:
    for f in (tree_util.flatten_one_level, tree_util.flatten_one_level_with_keys):
        with pytest.raises(ValueError, match="a leaf has no children"):
            f(leaf)
    assert not tree_util.is_tree_node(type(leaf))
    assert not tree_util.is_tree_node(3)


def test_treedef_children_and_composition() -> None:
    whole = tree_util.tree_structure([1, (2, 3), None])
    assert isinstance(whole, tree_util.PyTreeDef)  # type: ignore[misc]  # type checkers see a protocol
    parts = tree_util.treedef_children(whole)
    assert list(map(str, parts)) == list(map(str, jtu.treedef_children(jax.tree.structure([1, (2, 3), None]))))
    assert [tree_util.treedef_is_leaf(p) for p in parts] == [True, False, True]
    assert tree_util.treedef_tuple(parts) == tree_util.tree_structure((1, (2, 3), None))
    assert tree_util.treedef_tuple([]) == tree_util.tree_structure(())
    with pytest.raises(TypeError, match="takes structures, such as tree_structure returns"):
        tree_util.treedef_tuple([1])  # type: ignore[list-item]  # deliberately wrong


def test_default_registry() -> None:
    flat, structure = tree_util.default_registry.flatten({"a": (1, 2)}, None)
    assert (flat, structure) == tree_util.tree_flatten({"a": (1, 2)})


def test_partial_functions_as_transformation_arguments() -> None:
    scaled = tree_util.Partial(lambda w, x: w * x, 3.0)
    assert fx.jit(lambda f, x: f(x))(scaled, 2.0).item() == 6.0
    assert tree_util.tree_leaves(fx.grad(lambda f: f(2.0))(scaled)) == [2.0]
