"""Trees: against jax's, on types of every sort, and the errors that tell where two trees differ."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import attrs
import hypothesis.strategies as st
import jax
import pytest
from attrs import frozen
from hypothesis import given
from typing_extensions import override

from tracefx import tree as public
from tracefx.core import trees

# The oracle, whose annotations leave much open.
jaxs: Any = jax.tree
tree_util: Any = jax.tree_util


class Point(NamedTuple):
    x: object
    y: object


@trees.register_pytree_node_class
class Pair:
    """Registered here and in jax, by the same methods."""

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


class Adopted:
    """Known to jax alone."""

    def __init__(self, *parts: object, tag: str = "") -> None:
        self.parts, self.tag = parts, tag

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Adopted) and (self.parts, self.tag) == (other.parts, other.tag)

    __hash__ = None  # type: ignore[assignment]  # compared by value, and mutable


def register_with_jax(cls: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]) -> None:
    tree_util.register_pytree_node(cls, flatten, unflatten)


register_with_jax(Pair, lambda p: ((p.a, p.b), p.tag), lambda tag, ab: Pair(ab[0], ab[1], tag))
register_with_jax(Adopted, lambda a: (a.parts, a.tag), lambda tag, parts: Adopted(*parts, tag=tag))
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
        st.lists(children, max_size=3).map(lambda parts: Adopted(*parts, tag="t")),
        two.map(lambda ab: tree_util.Partial(max, ab[0], key=ab[1])),
    )


LEAVES = st.one_of(st.integers(), st.floats(allow_nan=False), st.text(max_size=2), st.binary(max_size=2))
TREES = st.recursive(st.one_of(LEAVES, st.none(), st.builds(Mode, KEYS)), containers, max_leaves=12)


def is_short(value: object) -> bool:
    return isinstance(value, (list, tuple, Adopted)) and len(getattr(value, "parts", value)) < 2  # type: ignore[arg-type]  # sized


def paths(flat: Iterable[tuple[Iterable[object], object]]) -> list[tuple[list[str], object]]:
    return [([str(key) for key in path], leaf) for path, leaf in flat]


# --- against jax ------------------------------------------------------------------------------------------------------


@given(TREES, st.sampled_from([None, is_short]))
def test_leaves_and_structures_are_jaxs(tree: object, is_leaf: trees.IsLeaf | None) -> None:
    leaves, treedef = trees.flatten(tree, is_leaf)
    expected, expected_def = jaxs.flatten(tree, is_leaf)
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
    expected = jaxs.unflatten(jaxs.structure(tree), range(len(leaves)))
    assert jaxs.structure(marked) == jaxs.structure(expected)
    assert trees.leaves(marked) == list(range(len(leaves)))


@given(TREES, st.sampled_from([None, is_short]))
def test_paths_are_jaxs(tree: object, is_leaf: trees.IsLeaf | None) -> None:
    ours, treedef = trees.flatten_with_path(tree, is_leaf)
    theirs, _ = jaxs.flatten_with_path(tree, is_leaf)
    assert paths(ours) == paths(theirs)
    assert treedef == trees.structure(tree, is_leaf)
    for simple, separator in ((False, ""), (True, "/")):
        assert [trees.keystr(path, simple=simple, separator=separator) for path, _ in ours] == [
            tree_util.keystr(path, simple=simple, separator=separator) for path, _ in theirs
        ]


@given(TREES)
def test_a_predicate_may_ask_for_the_path(tree: object) -> None:
    def is_leaf(path: trees.KeyPath, x: object) -> bool:
        return len(path) == 1 or type(x) is list

    def asked(path: trees.KeyPath, x: object) -> bool:
        assert all(type(key).__module__ != "jaxlib._jax.pytree" for key in path)
        return is_leaf(path, x)

    ours = public.leaves_with_path(tree, asked, is_leaf_takes_path=True)
    assert paths(ours) == paths(jaxs.leaves_with_path(tree, is_leaf, is_leaf_takes_path=True))


@given(TREES)
def test_map_and_reductions_are_jaxs(tree: object) -> None:
    double: Any = lambda x, *rest: (type(x).__name__, *rest)  # noqa: E731  # used four times
    for ours, theirs in [
        (trees.map(double, tree), jaxs.map(double, tree)),
        (trees.map(double, tree, tree, is_leaf=is_short), jaxs.map(double, tree, tree, is_leaf=is_short)),
        (
            public.map_with_path(lambda p, x, y: trees.keystr(p) + str(y), tree, tree),
            jaxs.map_with_path(lambda p, x, y: tree_util.keystr(p) + str(y), tree, tree),
        ),
    ]:
        assert jaxs.flatten(ours) == jaxs.flatten(theirs)
    count = lambda n, _: n + 1  # noqa: E731  # used twice
    assert trees.reduce(count, tree, 0) == jaxs.reduce(count, tree, 0)
    assert public.all(tree) == jaxs.all(tree)
    joined = [f"{x}" for x in trees.leaves(tree)]
    bracket: Callable[[str, str], str] = lambda x, y: f"({x},{y})"  # noqa: E731  # used twice
    assert public.reduce_associative(bracket, joined, identity="") == jaxs.reduce_associative(
        bracket, joined, identity=""
    )


@given(TREES)
def test_all_leaves_is_jaxs(tree: object) -> None:
    for items in (trees.leaves(tree), [tree], [tree, tree], [None]):
        assert trees.all_leaves(items) == tree_util.all_leaves(items)
        assert trees.all_leaves(items, is_short) == tree_util.all_leaves(items, is_short)


@given(TREES, TREES)
def test_transpose_is_jaxs(outer: object, inner: object) -> None:
    ours, inner_def = trees.structure(outer), trees.structure(inner)
    tree = trees.unflatten(ours.compose(inner_def), range(ours.num_leaves * inner_def.num_leaves))
    got = trees.transpose(ours, inner_def, tree)
    if ours.num_leaves == 0:  # where jax's fails if the inner structure has leaves
        assert trees.structure(got) == inner_def.compose(ours)
        return
    assert jaxs.flatten(got) == jaxs.flatten(jaxs.transpose(jaxs.structure(outer), jaxs.structure(inner), tree))
    with pytest.raises(TypeError, match="wants a tree of the structure"):
        trees.transpose(ours, trees.structure((inner, 0)), tree)


def test_transpose_infers_the_inner_structure() -> None:
    tree = [{"a": 1, "b": (2, None)}, {"a": 3, "b": (4, None)}]
    assert trees.transpose(trees.structure([0, 0]), None, tree) == {"a": [1, 3], "b": ([2, 4], None)}


@given(TREES, TREES)
def test_a_prefix_is_spread_as_jax_does_it(prefix: object, tree: object) -> None:
    for candidate in (prefix, tree, trees.map(lambda x: 7, tree, is_leaf=lambda x: type(x) in (list, Point))):
        try:
            expected = jaxs.broadcast(candidate, tree)
        except ValueError:
            with pytest.raises(ValueError, match="must have the structure of"):
                trees.broadcast_prefix(candidate, tree)
            with pytest.raises(ValueError, match="must have the structure of"):
                trees.broadcast_prefix(candidate, trees.structure(tree))
        else:
            entries = trees.broadcast_prefix(candidate, tree)
            assert entries == jaxs.leaves(expected) == trees.broadcast_prefix(candidate, trees.structure(tree))
            assert jaxs.flatten(public.broadcast(candidate, tree)) == jaxs.flatten(expected)


# --- kinds of nodes ---------------------------------------------------------------------------------------------------


def test_keys_are_values_with_jaxs_fields() -> None:
    ((path, _),) = trees.flatten_with_path([{"k": Point((), Pair((), 5))}])[0]
    assert path == (
        trees.SequenceKey(0),
        trees.DictKey("k"),
        trees.GetAttrKey("y"),
        trees.FlattenedIndexKey(1),
    )
    assert repr(path) == repr(jaxs.leaves_with_path([{"k": Point((), Pair((), 5))}])[0][0])


def test_the_types_of_rebuilt_containers() -> None:
    ordered = collections.OrderedDict([("b", 1), ("a", 2)])
    default = collections.defaultdict[str, object](list, {"b": 1, "a": 2})
    assert list(trees.map(str, ordered).items()) == [("b", "1"), ("a", "2")]
    assert trees.map(str, default) == {"b": "1", "a": "2"}
    assert trees.map(str, default)["new"] == []
    assert trees.map(str, Point(1, (2,))) == Point("1", ("2",))
    assert trees.structure(ordered) != trees.structure(dict(ordered))
    assert trees.structure(Point(1, 2)) != trees.structure((1, 2))


def test_unsortable_keys_are_named_with_their_place() -> None:
    for tree in ([0, {"ok": {1: 2, "a": 3}}], [0, {"ok": collections.defaultdict(int, {1: 2, "a": 3})}]):
        for flatten in (trees.flatten, trees.flatten_with_path):
            with pytest.raises(trees.UnsortableKeysError, match=r"dict at \[1\]\['ok'\] cannot be sorted: \[1, 'a'\]"):
                flatten(tree)
    with pytest.raises(trees.UnsortableKeysError, match=r"at \.y cannot be sorted"):
        trees.flatten(Point(1, {1: 2, "a": 3}))
    assert issubclass(trees.UnsortableKeysError, ValueError)
    assert trees.leaves(collections.OrderedDict([(1, 2), ("a", 3)])) == [2, 3]
    assert len(trees.leaves([{1: 2, "a": 3}], is_leaf=lambda x: isinstance(x, dict))) == 1


def test_an_error_of_a_users_flattening_is_passed_on() -> None:
    class Bad:
        pass

    def fail(value: Bad) -> tuple[tuple[()], None]:
        raise ValueError("no way")

    trees.register_pytree_node(Bad, fail, lambda _, c: Bad())
    with pytest.raises(ValueError, match="^no way$"):
        trees.flatten([Bad()])


def test_dataclasses() -> None:
    layer = Layer(1, (2, None), "first")
    assert trees.leaves(layer) == [1, 2]
    assert trees.map(str, layer) == Layer("1", ("2", None), "first")
    assert trees.structure(layer) != trees.structure(Layer(1, (2, None), "second"))

    @trees.register_dataclass(data_fields=["x"], meta_fields=["n"], drop_fields=["cache"])
    @dataclasses.dataclass
    class Given:
        n: int
        x: object
        cache: object = None

    assert trees.map(str, Given(1, 2, 3)) == Given(1, "2", None)

    @trees.register_dataclass
    @attrs.frozen
    class OfAttrs:
        x: object
        n: int = attrs.field(metadata={"static": True})
        sum: int = attrs.field(init=False, default=0)

    assert trees.leaves(OfAttrs(1, 2)) == [1]
    assert [trees.keystr(path) for path, _ in trees.flatten_with_path(OfAttrs((1,), 2))[0]] == [".x[0]"]

    class Plain:
        def __init__(self, x: object) -> None:
            self.x = x

    trees.register_dataclass(Plain, ["x"], [])
    assert trees.map(str, Plain(1)).x == "1"


def test_dataclasses_that_cannot_be_registered() -> None:
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
    with pytest.raises(ValueError, match=r"\['a'\] are in both"):
        trees.register_dataclass(Two, ["a", "b"], ["a"])
    with pytest.raises(TypeError, match="is no dataclass"):
        trees.register_dataclass(Pair)
    with pytest.raises(TypeError, match=r"other names for \['_a'\]"):
        trees.register_dataclass(Private)


def test_a_type_is_registered_once() -> None:
    for known in (tuple, dict, type(None), collections.OrderedDict, Pair, trees.Partial):
        with pytest.raises(ValueError, match="is a pytree node already"):
            trees.register_pytree_node(known, lambda x: ((), None), lambda _, c: None)
    with pytest.raises(TypeError, match="only a class"):
        trees.register_pytree_node(3, lambda x: ((), None), lambda _, c: 3)  # type: ignore[arg-type]  # the point


def test_classes_with_keys() -> None:
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


def test_static_values_are_structure() -> None:
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
    # What a partial function holds already stays its own.
    inner = functools.partial(show, 1, k=2)
    outer = trees.Partial(inner, 3)
    assert trees.leaves(outer) == [3]
    assert outer(4) == ((1, 3, 4), {"k": 2})
    assert trees.structure(outer) == trees.structure(trees.Partial(inner, 5))


# --- adoption ---------------------------------------------------------------------------------------------------------


def fresh() -> type[Adopted]:
    """A class that no test has flattened, known to jax."""

    class Fresh(Adopted):
        pass

    register_with_jax(Fresh, lambda a: (a.parts, a.tag), lambda tag, parts: Fresh(*parts, tag=tag))
    return Fresh


@pytest.mark.parametrize(
    "leaves",
    [
        trees.leaves,
        lambda tree: trees.flatten_leaves(tree, frozenset({int}))[0],
        lambda tree: trees.flatten_leaves(tree, frozenset({int}), none_is_leaf=True)[0],
        lambda tree: [leaf for _, leaf in trees.flatten_with_path(tree)[0]],
        lambda tree: trees.broadcast_prefix(tree, tree, none_is_leaf=True),
    ],
)
def test_types_that_jax_knows_are_adopted_inside_each_other(leaves: Callable[[object], list[object]]) -> None:
    outer, inner = fresh(), fresh()
    assert leaves([outer(1, (inner(2, 3),)), 4]) == [1, 2, 3, 4]
    assert leaves(inner(5)) == [5]


def test_an_adopted_type_keeps_its_metadata_and_rebuilds() -> None:
    cls = fresh()
    got = trees.map(lambda x: -x, {"k": cls(1, [2], tag="t")})
    assert type(got["k"]) is cls
    assert got == {"k": cls(-1, [-2], tag="t")}
    assert trees.structure(cls(1, tag="t")) != trees.structure(cls(1, tag="u"))
    # A node's children can be anything, trees of this kind too.
    assert trees.unflatten(trees.structure(cls(1, 2)), [cls(3), None]) == cls(cls(3), None)


def test_a_dataclass_of_jax_is_adopted_with_its_keys() -> None:
    @functools.partial(tree_util.register_dataclass, data_fields=["x"], meta_fields=["n"])
    @dataclasses.dataclass
    class State:
        x: object
        n: int

    assert [(trees.keystr(p), leaf) for p, leaf in trees.flatten_with_path([State((1,), 2)])[0]] == [("[0].x[0]", 1)]
    assert trees.map(str, State(1, 2)) == State("1", 2)


def test_a_leaf_of_an_adopted_type_can_be_kept_whole() -> None:
    cls = fresh()
    values = [cls(1), cls(2)]
    for _ in range(2):
        assert trees.leaves(values, is_leaf=lambda x: isinstance(x, cls)) == values
        assert trees.leaves(values) == [1, 2]


def test_a_type_is_adopted_when_jax_learns_it_after_its_first_use() -> None:
    class Late(Adopted):
        pass

    value = Late(1)
    assert trees.leaves([value]) == [value]
    register_with_jax(Late, lambda a: (a.parts, a.tag), lambda tag, parts: Late(*parts, tag=tag))
    assert trees.leaves([value]) == [1]


def test_nothing_of_ours_reaches_jax() -> None:
    class Ours:
        pass

    trees.register_pytree_node(Ours, lambda x: ((1,), None), lambda _, c: Ours())
    value = Ours()
    assert trees.leaves(value) == [1]
    assert jaxs.leaves(value) == [value]


# --- descriptions -----------------------------------------------------------------------------------------------------


@given(TREES)
def test_a_description_builds_the_structure_again(tree: object) -> None:
    treedef = trees.structure(tree)
    description = trees.describe(treedef)
    assert description.build() == treedef
    assert description == trees.describe(trees.structure(tree))
    assert hash(description) == hash(trees.describe(trees.structure(tree)))
    assert pickle.loads(pickle.dumps(description)).build() == treedef
    assert copy.deepcopy(description) == description


def test_a_description_of_jaxs_structure_builds_ours() -> None:
    tree = {"k": [Adopted(1), Point(2, None)], "o": collections.OrderedDict(a=1)}
    assert trees.describe(jaxs.structure(tree)).build() == trees.structure(tree)


def run_python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Pickled by one process, built in another. `SimpleNamespace` stands for a type that each registers for itself.
SENDER = """
    import collections, pickle, sys, types
    from tracefx.core import trees
    trees.register_pytree_node(
        types.SimpleNamespace,
        lambda n: (tuple(vars(n).values()), tuple(vars(n))),
        lambda names, values: types.SimpleNamespace(**dict(zip(names, values))))
    tree = {"b": [1, None, (2,)], "a": collections.OrderedDict(z=3, y=types.SimpleNamespace(u=4)),
            "d": collections.defaultdict(list, k=()), "p": trees.Partial(len, 5)}
"""


def test_a_description_pickles_between_processes_without_jax() -> None:
    data = run_python(
        SENDER
        + """
    assert not any(m.partition(".")[0] in ("jax", "jaxlib") for m in sys.modules)
    print(pickle.dumps(trees.describe(trees.structure(tree))).hex())
    assert "jax" not in sys.modules
    """
    ).strip()
    run_python(
        SENDER
        + f"""
    description = pickle.loads(bytes.fromhex("{data}"))
    assert not any(m.partition(".")[0] in ("jax", "jaxlib") for m in sys.modules)
    assert description.build() == trees.structure(tree)
    assert trees.leaves(description.build().unflatten([10, 20, 30, 40, 50]))  == [10, 20, 30, 40, 50]
    assert "jax" not in sys.modules
    """
    )
    run_python(f"""
    import pickle
    try:
        pickle.loads(bytes.fromhex("{data}")).build()
    except TypeError as error:
        assert "types.SimpleNamespace is not registered" in str(error), error
    else:
        raise SystemExit("built")
    """)


# --- loading ----------------------------------------------------------------------------------------------------------


def test_importing_and_registering_load_neither_jax_nor_jaxlib() -> None:
    run_python("""
    import dataclasses, sys
    import tracefx.core.trees as trees, tracefx.tree as tree
    @tree.register_dataclass
    @dataclasses.dataclass
    class Layer:
        w: object
    trees.Partial(print, 1), tree.SequenceKey(0), tree.keystr((tree.DictKey(1),))
    assert not any(m.partition(".")[0] in ("jax", "jaxlib") for m in sys.modules)
    assert tree.leaves(Layer(1)) == [1]
    assert "jax" not in sys.modules
    """)


def test_jax_can_be_imported_after_first_use() -> None:
    run_python("""
    import collections, sys
    from tracefx.core import trees
    tree = collections.OrderedDict(b=1, a=collections.defaultdict(int, c=2))
    assert trees.leaves(tree) == [1, 2]
    import jax
    assert jax.tree.leaves(tree) == [1, 2]
    assert trees.leaves(jax.tree_util.Partial(print, tree)) == [1, 2]
    """)


def test_the_first_use_from_many_threads() -> None:
    run_python("""
    import collections, importlib, sys, threading, time
    sys.setswitchinterval(1e-6)
    from tracefx.core import trees
    start, got, loads = threading.Barrier(8), [], []
    class Own: pass
    def slowly(name, load=importlib.import_module):
        module = load(name)
        loads.append(name)
        time.sleep(0.1)  # so that every thread arrives meanwhile
        return module
    importlib.import_module = slowly
    def work(i):
        start.wait()
        if i == 0:
            trees.register_pytree_node(Own, lambda x: ((), None), lambda _, c: Own())
        got.append(trees.structure(collections.OrderedDict(b=1, a=collections.defaultdict(int, c=2))))
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert loads == ["jaxlib._jax.pytree"], loads
    assert len(got) == 8 and len(set(got)) == 1 and trees.leaves(Own()) == []
    """)


def test_adoption_from_many_threads() -> None:
    run_python("""
    import sys, threading
    import jax
    from jax import tree_util
    from tracefx.core import trees
    sys.setswitchinterval(1e-6)
    def make():
        class C:
            pass
        tree_util.register_pytree_node(C, lambda c: ((1, 2), None), lambda _, c: C())
        return C
    classes = [make() for _ in range(50)]
    start, got = threading.Barrier(8), []
    def work():
        start.wait()
        for c in classes:
            got.append(trees.leaves([c()]))
    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert got == [[1, 2]] * 400, [g for g in got if g != [1, 2]]
    """)


# --- errors -----------------------------------------------------------------------------------------------------------


def message(call: Callable[[], object], error: type[Exception]) -> str:
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def test_none_is_an_entry_or_a_node() -> None:
    tree = (1, {"a": 2, "b": (3, None)})
    assert trees.broadcast_prefix(None, tree, none_is_leaf=True) == [None, None, None]
    assert trees.broadcast_prefix((0, {"a": None, "b": (1, None)}), tree, none_is_leaf=True) == [0, None, 1]
    assert trees.broadcast_prefix(collections.OrderedDict(a=None), collections.OrderedDict(a=1), none_is_leaf=True) == [
        None
    ]
    assert trees.broadcast_prefix((0, {"a": 5, "b": (1, None)}), tree) == [0, 5, 1]
    text = message(lambda: trees.broadcast_prefix((0, None), tree, what="in_axes", of="the arguments"), ValueError)
    assert text == textwrap.dedent("""\
        in_axes must have the structure of the arguments, or a leaf in the place of a subtree.
        They disagree at in_axes[1]:
          there in_axes has None, a node without leaves
          and the arguments has a dict with the keys ['a', 'b']
        in_axes: PyTreeDef((*, None))
        the arguments: PyTreeDef((*, {'a': *, 'b': (*, None)}))""")


def test_prefixes_with_is_leaf() -> None:
    tree = ((1, 2), [3])
    assert trees.broadcast_prefix(([7, 8], 9), tree, is_leaf=lambda x: x == [7, 8]) == [[7, 8], [7, 8], 9]


@pytest.mark.parametrize(
    ("prefix", "tree", "expected"),
    [
        ((1, 2), (1, 2, 3), "at P:\n  there P has a tuple of length 2\n  and Q has a tuple of length 3\n"),
        ([(1, 2)], [[1, 2]], "at P[0]:\n  there P has a tuple of length 2\n  and Q has a list of length 2\n"),
        ({"k": [1]}, {"k": 1}, "at P['k']:\n  there P has a list of length 1\n  and Q has a leaf\n"),
        (
            [{"a": 1, "b": 2}],
            [{"b": 1, "c": 2}],
            "and Q has a dict with the keys ['b', 'c']\n  (only P has ['a']; only Q has ['c'])\n",
        ),
        (Point(1, ()), Point(1, 2), "at P.y:\n"),
        (Layer(1, (), "n"), Layer(1, [], "n"), "at P.b:\n"),
        (
            Pair(1, 2, "u"),
            Pair(1, 2, "v"),
            f"there P has a {__name__}.Pair with 2 children and the metadata 'u'\n",
        ),
        (Pair(1, (), "u"), Pair(1, [], "u"), "at P[<flat index 1>]:\n"),
        (Point(1, 2), (1, 2), f"there P has a named tuple {__name__}.Point\n  and Q has a tuple of length 2\n"),
        (collections.OrderedDict(a=1, b=()), collections.OrderedDict(a=1, b=2), "at P['b']:\n"),
        (Adopted(1, ()), Adopted(1, 2), "at P[<flat index 1>]:\n"),
    ],
)
def test_the_message_of_a_prefix_that_does_not_fit(prefix: object, tree: object, expected: str) -> None:
    text = message(lambda: trees.broadcast_prefix(prefix, tree, what="P", of="Q"), ValueError)
    assert expected in text
    assert text.endswith(f"P: {trees.structure(prefix)}\nQ: {trees.structure(tree)}")


def test_a_class_that_refuses_placeholders_can_still_be_shown() -> None:
    class Picky:
        def __init__(self, x: object, y: object) -> None:
            if type(x) is object:
                raise RuntimeError("placeholder")
            self.x, self.y = x, y

    trees.register_pytree_with_keys(
        Picky,
        lambda p: ([(trees.GetAttrKey("x"), p.x), (trees.GetAttrKey("y"), p.y)], None),
        lambda _, c: Picky(*c),
    )
    text = message(lambda: trees.broadcast_prefix(Picky(1, ()), Picky(1, []), what="P"), ValueError)
    assert "at P[<flat index 1>]:" in text


def test_map_tells_where_its_arguments_differ() -> None:
    text = message(lambda: trees.map(max, {"a": (1, 2)}, {"a": (1, 2)}, {"a": (1, 2, 3)}), ValueError)
    assert "of argument 3" in text
    assert "['a']" in text
    assert "a tuple of length 3" in text
    assert trees.map(lambda x, y: y, {"a": 1}, {"a": (1, 2)}) == {"a": (1, 2)}


def test_too_many_and_too_few_leaves() -> None:
    for leaves in ([1], [1, 2, 3]):
        with pytest.raises(ValueError, match="expected 2"):
            trees.unflatten(trees.structure((0, 0)), leaves)


def test_reductions_of_nothing() -> None:
    with pytest.raises(TypeError):
        trees.reduce(max, [])
    with pytest.raises(TypeError, match="needs an identity"):
        public.reduce_associative(max, [None])


def test_require_same_structure() -> None:
    same = trees.structure({"a": (1, Adopted(2))})
    trees.require_same_structure("the carry", same, trees.structure({"a": (3, Adopted(4))}))
    text = message(
        lambda: trees.require_same_structure(
            "the body's output",
            same,
            trees.structure({"a": (1, Adopted((2,)))}),
            "the carry it was given",
            "the carry it returned",
        ),
        TypeError,
    )
    assert text == textwrap.dedent("""\
        the body's output does not have the right structure. The first difference is at ['a'][1][<flat index 0>]:
          there the carry it was given has a leaf
          and the carry it returned has a tuple of length 1
        the carry it was given: PyTreeDef({'a': (*, CustomNode(Adopted[], [*]))})
        the carry it returned: PyTreeDef({'a': (*, CustomNode(Adopted[], [(*,)]))})""")
    at_root = message(lambda: trees.require_same_structure("f", trees.structure(1), trees.structure(())), TypeError)
    assert "The first difference is at the root:" in at_root


@given(TREES, TREES)
def test_a_difference_is_found_exactly_where_there_is_one(a: object, b: object) -> None:
    one, two = trees.structure(a), trees.structure(b)
    difference = trees.first_difference(one, two)
    assert (difference is None) == (one == two)
    if difference is not None:
        assert difference.expected != difference.got
