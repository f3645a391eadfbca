"""Pytrees: adoption of node types registered in jax, descriptions and pickles of structures, lazy imports."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given

from tests.core.forest import TREES, ExternalNode, Point, jax_tree, register_with_jax, tree_util
from tests.subprocesses import output_of
from tracefx.pytrees import trees

# --- adoption ---------------------------------------------------------------------------------------------------------


def new_external_class() -> type[ExternalNode]:
    """Returns a new class, registered in jax, that no test has flattened."""

    class Fresh(ExternalNode):
        pass

    register_with_jax(Fresh, lambda a: (a.parts, a.tag), lambda tag, parts: Fresh(*parts, tag=tag))
    return Fresh


@pytest.mark.parametrize(
    "leaves",
    [
        trees.leaves,
        lambda tree: trees.flatten_with_known_types(tree, frozenset({int}))[0],
        lambda tree: trees.flatten_with_known_types(tree, frozenset({int}), none_is_leaf=True)[0],
        lambda tree: [leaf for _, leaf in trees.flatten_with_path(tree)[0]],
        lambda tree: trees.broadcast_prefix(tree, tree, none_is_leaf=True),
    ],
)
def test_nested_jax_types_are_adopted(leaves: Callable[[object], list[object]]) -> None:
    outer, inner = new_external_class(), new_external_class()
    assert leaves([outer(1, (inner(2, 3),)), 4]) == [1, 2, 3, 4]
    assert leaves(inner(5)) == [5]


def test_adopted_type_keeps_its_metadata_and_unflattens() -> None:
    cls = new_external_class()
    got = trees.map(lambda x: -x, {"k": cls(1, [2], tag="t")})
    assert type(got["k"]) is cls
    assert got == {"k": cls(-1, [-2], tag="t")}
    assert trees.structure(cls(1, tag="t")) != trees.structure(cls(1, tag="u"))
    # Children can be any tree, with nodes of the same type too.
    assert trees.unflatten(trees.structure(cls(1, 2)), [cls(3), None]) == cls(cls(3), None)


def test_jax_dataclass_is_adopted_with_its_keys() -> None:
    @functools.partial(tree_util.register_dataclass, data_fields=["x"], meta_fields=["n"])
    @dataclasses.dataclass
    class State:
        x: object
        n: int

    assert [(trees.keystr(p), leaf) for p, leaf in trees.flatten_with_path([State((1,), 2)])[0]] == [("[0].x[0]", 1)]
    assert trees.map(str, State(1, 2)) == State("1", 2)


def test_is_leaf_stops_at_an_adopted_type() -> None:
    cls = new_external_class()
    values = [cls(1), cls(2)]
    for _ in range(2):
        assert trees.leaves(values, is_leaf=lambda x: isinstance(x, cls)) == values
        assert trees.leaves(values) == [1, 2]


def test_type_registered_in_jax_after_its_first_use_is_adopted() -> None:
    class Late(ExternalNode):
        pass

    value = Late(1)
    assert trees.leaves([value]) == [value]
    register_with_jax(Late, lambda a: (a.parts, a.tag), lambda tag, parts: Late(*parts, tag=tag))
    assert trees.leaves([value]) == [1]


def test_tracefx_registrations_do_not_affect_jax() -> None:
    class Ours:
        pass

    trees.register_pytree_node(Ours, lambda x: ((1,), None), lambda _, c: Ours())
    value = Ours()
    assert trees.leaves(value) == [1]
    assert jax_tree.leaves(value) == [value]


# --- descriptions -----------------------------------------------------------------------------------------------------


@given(TREES)
def test_structure_round_trip_through_a_description(tree: object) -> None:
    treedef = trees.structure(tree)
    description = trees.describe(treedef)
    assert description.build() == treedef
    assert description == trees.describe(trees.structure(tree))
    assert hash(description) == hash(trees.describe(trees.structure(tree)))
    assert pickle.loads(pickle.dumps(description)).build() == treedef
    assert copy.deepcopy(description) == description


def test_description_of_a_jax_structure() -> None:
    tree = {"k": [ExternalNode(1), Point(2, None)], "o": collections.OrderedDict(a=1)}
    assert trees.describe(jax_tree.structure(tree)).build() == trees.structure(tree)


# Pickled in one process, loaded in another. `SimpleNamespace` stands for a type that both processes register.
SENDER = """
    import collections, pickle, sys, types
    from tracefx.pytrees import trees
    trees.register_pytree_node(
        types.SimpleNamespace,
        lambda n: (tuple(vars(n).values()), tuple(vars(n))),
        lambda names, values: types.SimpleNamespace(**dict(zip(names, values))))
    tree = {"b": [1, None, (2,)], "a": collections.OrderedDict(z=3, y=types.SimpleNamespace(u=4)),
            "d": collections.defaultdict(list, k=()), "p": trees.Partial(len, 5)}
"""


def test_description_pickles_between_processes_without_jax() -> None:
    data = output_of(
        SENDER
        + """
    assert not any(m.partition(".")[0] in ("jax", "jaxlib") for m in sys.modules)
    print(pickle.dumps(trees.describe(trees.structure(tree))).hex())
    assert "jax" not in sys.modules
    """
    ).strip()
    output_of(
        SENDER
        + f"""
    description = pickle.loads(bytes.fromhex("{data}"))
    assert not any(m.partition(".")[0] in ("jax", "jaxlib") for m in sys.modules)
    assert description.build() == trees.structure(tree)
    assert trees.leaves(description.build().unflatten([10, 20, 30, 40, 50]))  == [10, 20, 30, 40, 50]
    assert "jax" not in sys.modules
    """
    )
    output_of(f"""
    import pickle
    try:
        pickle.loads(bytes.fromhex("{data}")).build()
    except TypeError as error:
        assert "types.SimpleNamespace is not registered" in str(error), error
    else:
        raise SystemExit("built")
    """)


# --- imports ----------------------------------------------------------------------------------------------------------


def test_import_and_registration_load_neither_jax_nor_jaxlib() -> None:
    output_of("""
    import dataclasses, sys
    import tracefx.pytrees.trees as trees, tracefx.tree as tree
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
    output_of("""
    import collections, sys
    from tracefx.pytrees import trees
    tree = collections.OrderedDict(b=1, a=collections.defaultdict(int, c=2))
    assert trees.leaves(tree) == [1, 2]
    import jax
    assert jax.tree.leaves(tree) == [1, 2]
    assert trees.leaves(jax.tree_util.Partial(print, tree)) == [1, 2]
    """)


def test_first_use_from_many_threads() -> None:
    output_of("""
    import collections, importlib, sys, threading, time
    sys.setswitchinterval(1e-6)
    from tracefx.pytrees import trees
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
    assert loads == ["jaxlib.version", "jaxlib._jax.pytree"], loads
    assert len(got) == 8 and len(set(got)) == 1 and trees.leaves(Own()) == []
    """)


def test_adoption_from_many_threads() -> None:
    output_of("""
    import sys, threading
    import jax
    from jax import tree_util
    from tracefx.pytrees import trees
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
