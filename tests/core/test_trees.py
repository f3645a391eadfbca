"""Pytrees, compared with jax, on node types of every kind."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.core.forest import TREES, Layer, Mode, Pair, Point, is_short, jax_tree, paths, tree_util
from tests.errors import assert_errors, untyped
from tracefx import tree as public
from tracefx.errors import UnsortableKeysError
from tracefx.pytrees import trees

# --- comparison with jax ----------------------------------------------------------------------------------------------


@given(TREES, st.sampled_from([None, is_short]))
def test_leaves_and_structures_match_jax(tree: object, is_leaf: trees.IsLeaf | None) -> None:
    leaves, treedef = trees.flatten(tree, is_leaf)
    expected, expected_def = jax_tree.flatten(tree, is_leaf)
    assert leaves == expected
    assert all(ours is theirs for ours, theirs in zip(leaves, expected, strict=True))
    assert str(treedef) == str(expected_def)
    assert treedef.num_leaves == len(trees.leaves(tree, is_leaf)) == expected_def.num_leaves
    assert treedef == trees.structure(tree, is_leaf)
    assert hash(treedef) == hash(trees.structure(tree, is_leaf))


@given(TREES)
def test_unflatten_is_the_inverse_of_flatten(tree: object) -> None:
    leaves, treedef = trees.flatten(tree)
    rebuilt = trees.unflatten(treedef, leaves)
    assert type(rebuilt) is type(tree)
    assert trees.flatten(rebuilt) == (leaves, treedef)
    marked = trees.unflatten(treedef, range(len(leaves)))
    expected = jax_tree.unflatten(jax_tree.structure(tree), range(len(leaves)))
    assert jax_tree.structure(marked) == jax_tree.structure(expected)
    assert trees.leaves(marked) == list(range(len(leaves)))


@given(TREES, st.sampled_from([None, is_short]))
def test_paths_match_jax(tree: object, is_leaf: trees.IsLeaf | None) -> None:
    ours, treedef = trees.flatten_with_path(tree, is_leaf)
    theirs, _ = jax_tree.flatten_with_path(tree, is_leaf)
    assert paths(ours) == paths(theirs)
    assert treedef == trees.structure(tree, is_leaf)
    for simple, separator in ((False, ""), (True, "/")):
        assert [trees.keystr(path, simple=simple, separator=separator) for path, _ in ours] == [
            tree_util.keystr(path, simple=simple, separator=separator) for path, _ in theirs
        ]


@given(TREES)
def test_is_leaf_with_a_path_argument(tree: object) -> None:
    def is_leaf(path: trees.KeyPath, x: object) -> bool:
        return len(path) == 1 or type(x) is list

    def is_leaf_of_path(path: trees.KeyPath, x: object) -> bool:
        assert all(type(key).__module__ != "jaxlib._jax.pytree" for key in path)
        return is_leaf(path, x)

    ours = public.leaves_with_path(tree, is_leaf_of_path, is_leaf_takes_path=True)
    assert paths(ours) == paths(jax_tree.leaves_with_path(tree, is_leaf, is_leaf_takes_path=True))


@given(TREES)
def test_map_and_reductions_match_jax(tree: object) -> None:
    double: Any = lambda x, *rest: (type(x).__name__, *rest)  # noqa: E731  # used four times
    for ours, theirs in [
        (trees.map(double, tree), jax_tree.map(double, tree)),
        (trees.map(double, tree, tree, is_leaf=is_short), jax_tree.map(double, tree, tree, is_leaf=is_short)),
        (
            public.map_with_path(lambda p, x, y: trees.keystr(p) + str(y), tree, tree),
            jax_tree.map_with_path(lambda p, x, y: tree_util.keystr(p) + str(y), tree, tree),
        ),
    ]:
        assert jax_tree.flatten(ours) == jax_tree.flatten(theirs)
    count = lambda n, _: n + 1  # noqa: E731  # used twice
    assert trees.reduce(count, tree, 0) == jax_tree.reduce(count, tree, 0)
    assert public.all(tree) == jax_tree.all(tree)
    joined = [f"{x}" for x in trees.leaves(tree)]
    bracket: Callable[[str, str], str] = lambda x, y: f"({x},{y})"  # noqa: E731  # used twice
    assert public.reduce_associative(bracket, joined, identity="") == jax_tree.reduce_associative(
        bracket, joined, identity=""
    )


@given(TREES)
def test_all_leaves_matches_jax(tree: object) -> None:
    for items in (trees.leaves(tree), [tree], [tree, tree], [None]):
        assert trees.all_leaves(items) == tree_util.all_leaves(items)
        assert trees.all_leaves(items, is_short) == tree_util.all_leaves(items, is_short)


@given(TREES, TREES)
def test_transpose_matches_jax(outer: object, inner: object) -> None:
    ours, inner_def = trees.structure(outer), trees.structure(inner)
    tree = trees.unflatten(ours.compose(inner_def), range(ours.num_leaves * inner_def.num_leaves))
    got = trees.transpose(ours, inner_def, tree)
    if ours.num_leaves == 0:  # jax fails here if the inner structure has leaves
        assert trees.structure(got) == inner_def.compose(ours)
        return
    assert jax_tree.flatten(got) == jax_tree.flatten(
        jax_tree.transpose(jax_tree.structure(outer), jax_tree.structure(inner), tree)
    )
    with pytest.raises(TypeError, match="transpose: the tree must be "):
        trees.transpose(ours, trees.structure((inner, 0)), tree)


def test_transpose_infers_the_inner_structure() -> None:
    tree = [{"a": 1, "b": (2, None)}, {"a": 3, "b": (4, None)}]
    assert trees.transpose(trees.structure([0, 0]), None, tree) == {"a": [1, 3], "b": ([2, 4], None)}


@given(TREES, TREES)
def test_broadcast_prefix_matches_jax(prefix: object, tree: object) -> None:
    for candidate in (prefix, tree, trees.map(lambda x: 7, tree, is_leaf=lambda x: type(x) in (list, Point))):
        try:
            expected = jax_tree.broadcast(candidate, tree)
        except ValueError:
            with pytest.raises(ValueError, match="must have the structure of"):
                trees.broadcast_prefix(candidate, tree)
            with pytest.raises(ValueError, match="must have the structure of"):
                trees.broadcast_prefix(candidate, trees.structure(tree))
        else:
            entries = trees.broadcast_prefix(candidate, tree)
            assert entries == jax_tree.leaves(expected) == trees.broadcast_prefix(candidate, trees.structure(tree))
            assert jax_tree.flatten(public.broadcast(candidate, tree)) == jax_tree.flatten(expected)


# --- kinds of nodes ---------------------------------------------------------------------------------------------------


def test_keys_compare_by_value_and_have_the_fields_of_jax() -> None:
    ((path, _),) = trees.flatten_with_path([{"k": Point((), Pair((), 5))}])[0]
    assert path == (trees.SequenceKey(0), trees.DictKey("k"), trees.GetAttrKey("y"), trees.FlattenedIndexKey(1))
    assert repr(path) == repr(jax_tree.leaves_with_path([{"k": Point((), Pair((), 5))}])[0][0])


def test_types_of_unflattened_containers() -> None:
    ordered = collections.OrderedDict([("b", 1), ("a", 2)])
    default = collections.defaultdict[str, object](list, {"b": 1, "a": 2})
    assert list(trees.map(str, ordered).items()) == [("b", "1"), ("a", "2")]
    assert trees.map(str, default) == {"b": "1", "a": "2"}
    assert trees.map(str, default)["new"] == []
    assert trees.map(str, Point(1, (2,))) == Point("1", ("2",))
    assert trees.structure(ordered) != trees.structure(dict(ordered))
    assert trees.structure(Point(1, 2)) != trees.structure((1, 2))


def test_error_of_unsortable_keys_shows_the_path() -> None:
    for tree in ([0, {"ok": {1: 2, "a": 3}}], [0, {"ok": collections.defaultdict(int, {1: 2, "a": 3})}]):
        for flatten in (trees.flatten, trees.flatten_with_path):
            with pytest.raises(UnsortableKeysError, match=r"dict at \[1\]\['ok'\] cannot be sorted: \[1, 'a'\]"):
                flatten(tree)
    with pytest.raises(UnsortableKeysError, match=r"at \.y cannot be sorted"):
        trees.flatten(Point(1, {1: 2, "a": 3}))
    assert issubclass(UnsortableKeysError, ValueError)
    assert trees.leaves(collections.OrderedDict([(1, 2), ("a", 3)])) == [2, 3]
    assert len(trees.leaves([{1: 2, "a": 3}], is_leaf=lambda x: isinstance(x, dict))) == 1


def test_error_in_a_user_defined_flatten_propagates() -> None:
    class Bad:
        pass

    def fail(value: Bad) -> tuple[tuple[()], None]:
        raise ValueError("no way")

    trees.register_pytree_node(Bad, fail, lambda _, c: Bad())
    with pytest.raises(ValueError, match="^no way$"):
        trees.flatten([Bad()])


def test_register_dataclasses() -> None:
    layer = Layer(1, (2, None), "first")
    assert trees.leaves(layer) == [1, 2]
    assert trees.map(str, layer) == Layer("1", ("2", None), "first")
    assert trees.structure(layer) != trees.structure(Layer(1, (2, None), "second"))

    @trees.register_dataclass(data_fields=["x"], meta_fields=["n"], drop_fields=["cache"])
    @dataclasses.dataclass
    class WithStaticField:
        n: int
        x: object
        cache: object = None

    assert trees.map(str, WithStaticField(1, 2, 3)) == WithStaticField(1, "2", None)

    @trees.register_dataclass
    @attrs.frozen
    class AttrsClass:
        x: object
        n: int = attrs.field(metadata={"static": True})
        sum: int = attrs.field(init=False, default=0)

    assert trees.leaves(AttrsClass(1, 2)) == [1]
    assert [trees.keystr(path) for path, _ in trees.flatten_with_path(AttrsClass((1,), 2))[0]] == [".x[0]"]

    class Plain:
        def __init__(self, x: object) -> None:
            self.x = x

    trees.register_dataclass(Plain, ["x"], [])
    assert trees.map(str, Plain(1)).x == "1"


def test_unregistrable_dataclasses_raise() -> None:
    @dataclasses.dataclass
    class Two:
        a: object
        b: object

    @attrs.frozen
    class Private:
        _a: object

    with pytest.raises(TypeError, match="both data_fields and meta_fields"):
        trees.register_dataclass(Two, ["a"])
    with pytest.raises(ValueError, match=r"fields \['b'\] are in neither"):
        trees.register_dataclass(Two, ["a"], [])
    with pytest.raises(ValueError, match=r"\['c'\] are no arguments of its __init__, which takes \['a', 'b'\]"):
        trees.register_dataclass(Two, ["a", "b"], ["c"])
    assert_errors(
        (lambda: trees.register_dataclass(Two, ["a", "b"], ["a"]), ValueError, r"\['a'\] are in both"),
        (lambda: trees.register_dataclass(Pair), TypeError, "is no dataclass"),
        (lambda: trees.register_dataclass(Private), TypeError, r"other names for \['_a'\]"),
    )


def test_registering_twice_raises() -> None:
    for registered in (tuple, dict, type(None), collections.OrderedDict, Pair, trees.Partial):
        with pytest.raises(ValueError, match="is a pytree node already"):
            trees.register_pytree_node(registered, lambda x: ((), None), lambda _, c: None)
    with pytest.raises(TypeError, match="only a class"):
        untyped(trees.register_pytree_node)(3, lambda x: ((), None), lambda _, c: 3)


def test_register_class_with_keys() -> None:
    @trees.register_pytree_with_keys_class
    class Box:
        def __init__(self, inside: object) -> None:
            self.inside = inside

        def tree_flatten_with_keys(self) -> tuple[list[tuple[object, object]], None]:
            return [(trees.GetAttrKey("inside"), self.inside)], None

        @classmethod
        def tree_unflatten(cls, _: None, children: tuple[object]) -> Box:
            return cls(*children)

    assert [trees.keystr(path) for path, _ in trees.flatten_with_path(Box([1]))[0]] == [".inside[0]"]
    assert trees.map(str, Box([1])).inside == ["1"]


def test_static_values_are_part_of_the_structure() -> None:
    assert trees.leaves([Mode("a"), 1]) == [1]
    assert trees.structure(Mode("a")) == trees.structure(Mode("a"))
    assert trees.structure(Mode("a")) != trees.structure(Mode("b"))
    assert trees.map(str, (Mode("a"), 1)) == (Mode("a"), "1")


def test_partial() -> None:
    def show(*args: object, **kwargs: object) -> tuple[object, object]:
        return args, kwargs

    partial = trees.Partial(show, 1, k=2)
    assert trees.leaves(partial) == [1, 2]
    assert trees.map(str, partial)(0) == (("1", 0), {"k": "2"})
    assert trees.structure(partial) == trees.structure(trees.Partial(show, 3, k=4))
    assert trees.structure(partial) != trees.structure(trees.Partial(print, 3, k=4))
    # The arguments that a partial function already has do not change.
    inner = functools.partial(show, 1, k=2)
    outer = trees.Partial(inner, 3)
    assert trees.leaves(outer) == [3]
    assert outer(4) == ((1, 3, 4), {"k": 2})
    assert trees.structure(outer) == trees.structure(trees.Partial(inner, 5))
