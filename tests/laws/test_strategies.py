"""The Hypothesis strategies of `tracefx.testing.strategies`: what they draw, and that they are optional."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from attrs import frozen
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.laws.examples import sampled
from tests.test_imports import run
from tracefx.core import Array, DType, Shape
from tracefx.core import dtypes as kinds
from tracefx.testing import strategies
from tracefx.testing.generated_programs import GeneratedProgram, TransformedProgram

SEARCH: Final = settings(
    max_examples=20_000,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
    phases=(Phase.generate, Phase.shrink),
)


@settings(max_examples=30)
@given(strategies.broadcastable_shapes(3))
def test_broadcastable_shapes_broadcast(group: tuple[Shape, ...]) -> None:
    np.broadcast_shapes(*group)


@pytest.mark.parametrize("expected", [(), (0,), (1, 1), (2, 0, 3)])
def test_shapes_strategy_draws_every_kind_of_shape(expected: Shape) -> None:
    assert find(strategies.shapes(), lambda shape: shape == expected, settings=SEARCH) == expected


@settings(max_examples=30)
@given(st.data(), st.sampled_from(strategies.DTYPES))
def test_arrays_have_the_requested_dtype_and_shape(data: st.DataObject, dtype: DType) -> None:
    x = data.draw(strategies.arrays(dtype, (2, 1)))
    assert (x.shape, x.dtype, x.weak_type) == ((2, 1), dtype, False)


@pytest.mark.parametrize("dtype", [kinds.bfloat16, kinds.float16, kinds.float32, kinds.float64])
def test_edge_values_contain_nan_infinities_negative_zero_and_subnormals(dtype: DType) -> None:
    x = np.array(strategies.edge_values(dtype), np.float64).astype(dtype).astype(np.float64)
    tiny = float(kinds.finfo(dtype).smallest_normal)
    assert np.isnan(x).any()
    assert {np.inf, -np.inf} <= set(x)
    assert ((x == 0) & np.signbit(x)).any()
    assert ((x > 0) & (x < tiny)).any()


def test_arrays_strategy_draws_edge_values() -> None:
    def is_extreme(x: Array) -> bool:
        return bool(np.isnan(np.asarray(x, np.float64)).any())

    assert is_extreme(find(strategies.arrays(kinds.bfloat16, (2,)), is_extreme, settings=SEARCH))
    low = int(kinds.iinfo(kinds.int8).min)
    assert int(find(strategies.arrays(kinds.int8, ()), lambda x: int(x) == low, settings=SEARCH)) == low


def test_generated_program_prints_as_python_source() -> None:
    program = find(strategies.programs(), lambda p: "fnp.dot(" in p.source, settings=SEARCH)
    assert isinstance(program, GeneratedProgram)
    assert str(program).splitlines() == ["def program(v0):  # (1,)", "    v1 = fnp.dot(v0, v0)", "    return v1"]


# ------------------------------------------------------------------ control-flow programs and transformation stacks


@pytest.mark.parametrize(
    ("word", "lines"),
    [
        ("fx.lax.cond(", 9),
        ("fx.lax.scan(", 11),
        ("fx.lax.while_loop(", 11),
        ("fx.checkpoint(", 6),
        ("fx.custom_jvp(", 8),
    ],
)
def test_control_flow_programs_shrink_to_one_primitive(word: str, lines: int) -> None:
    program = find(strategies.control_flow_programs(), lambda p: word in p.source, settings=SEARCH)
    assert len(program.source.splitlines()) <= lines, program
    assert program.shapes == ((),)


def test_transform_stacks_draw_every_order() -> None:
    names = ("vmap", "grad", "jit")
    layers = find(
        strategies.transform_stacks(2), lambda ls: tuple([layer.name for layer in ls]) == names, settings=SEARCH
    )
    assert layers[0].inputs(((2,), ())) == ((2, 2), (2,))
    assert find(strategies.transform_stacks(2), lambda ls: True, settings=SEARCH) == ()
    with_unmapped = find(
        strategies.transform_stacks(2), lambda ls: any(False in layer.mapped for layer in ls), settings=SEARCH
    )
    assert [layer.name for layer in with_unmapped] == ["vmap"]


@settings(max_examples=20)
@given(strategies.transformed_programs(max_steps=3, max_layers=2))
def test_repr_of_a_transformed_program_is_runnable_python(case: TransformedProgram) -> None:
    scope: dict[str, Any] = {}
    *definitions, call = repr(case).splitlines()
    with fx.enable_x64():
        exec("\n".join(definitions), scope)
        got = eval(call, scope)
        want = case.function(fx, fnp)(*case.inputs())
    assert np.array_equal(np.asarray(got), np.asarray(want), equal_nan=True)


def test_generated_programs_compare_and_hash_by_value() -> None:
    program = find(strategies.programs(), lambda p: len(p.steps) == 2, settings=SEARCH)
    assert program == GeneratedProgram(program.shapes, program.steps)
    assert len({program, GeneratedProgram(program.shapes, program.steps)}) == 1


# ------------------------------------------------------------------ operands, axes, trees


@frozen
class UserNode:
    """A user-defined pytree node."""

    content: object


@settings(max_examples=30)
@given(strategies.broadcastable_arrays(3, weak=True))
def test_broadcastable_arrays_have_one_dtype(xs: tuple[Array, ...]) -> None:
    np.broadcast_shapes(*[x.shape for x in xs])
    assert len({x.dtype for x in xs}) == 1


def test_axes_strategy_draws_negative_axes() -> None:
    assert find(strategies.axes(3), lambda axis: True, settings=SEARCH) == 0
    assert find(strategies.axes(3), lambda axis: axis < 0, settings=SEARCH) == -1
    assert find(strategies.axes(2), lambda axis: axis == -2, settings=SEARCH) == -2
    with pytest.raises(ValueError, match="needs an array with axes to choose from, got ndim=0"):
        strategies.axes(0)


@settings(max_examples=30)
@given(strategies.axis_tuples(3))
def test_axis_tuples_have_no_duplicates(group: tuple[int, ...]) -> None:
    assert len({axis % 3 for axis in group}) == len(group)


def test_axis_tuples_have_any_length_and_order() -> None:
    assert find(strategies.axis_tuples(3), lambda g: True, settings=SEARCH) == ()
    assert find(strategies.axis_tuples(3), lambda g: len(g) == 3 and g[0] > g[1] >= 0, settings=SEARCH)
    assert find(strategies.axis_tuples(0), lambda g: True, settings=SEARCH) == ()


@pytest.mark.parametrize(
    ("kind", "least"),
    [(tuple, 0), (list, 0), (dict, 0), (strategies.NamedPair, 2), (strategies.TaggedNode, 1), (type(None), 0)],
    ids=str,
)
def test_pytrees_strategy_draws_every_node_type(kind: type, least: int) -> None:
    tree = find(strategies.pytrees(), lambda t: type(t) is kind, settings=SEARCH)
    assert fx.tree.structure(tree).num_nodes <= least + 1


def test_pytrees_nest_and_contain_user_defined_nodes() -> None:
    def has_pairs(tree: object) -> bool:
        return isinstance(tree, list) and any(isinstance(child, strategies.NamedPair) for child in tree)

    assert find(strategies.pytrees(), has_pairs, settings=SEARCH) == [strategies.NamedPair(None, None)]
    with_user_nodes = strategies.pytrees(st.integers(0, 3), nodes=lambda children: st.builds(UserNode, children))
    assert find(with_user_nodes, lambda t: isinstance(t, UserNode), settings=SEARCH) in (UserNode(None), UserNode(0))


@settings(max_examples=30)
@given(strategies.pytrees(max_leaves=4))
def test_drawn_pytrees_round_trip_through_flatten(tree: object) -> None:
    leaves, structure = fx.tree.flatten(tree)
    assert fx.tree.structure(fx.tree.unflatten(structure, leaves)) == structure
    assert all(leaf.dtype == kinds.float32 for leaf in leaves)


# ------------------------------------------------------------------ indices


def entries(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


INDICES: Final[dict[str, tuple[Callable[[Any], bool], Any]]] = {
    "nothing": (lambda i: True, ()),
    "a new axis": (lambda i: i is None or None in entries(i), (None,)),
    "an ellipsis": (lambda i: ... in entries(i), (...,)),
    "a negative step": (
        lambda i: any(isinstance(e, slice) and (e.step or 0) < 0 for e in entries(i)),
        (slice(None, None, -1),),
    ),
    "from the end": (lambda i: any(isinstance(e, int) and e < 0 for e in entries(i)), (-1,)),
    "beyond": (lambda i: any(isinstance(e, slice) and (e.stop or 0) > 2 for e in entries(i)), (slice(None, 3, None),)),
}


@pytest.mark.parametrize("kind_of_index", INDICES)
def test_index_expressions_draw_every_kind_of_basic_index(kind_of_index: str) -> None:
    expected, smallest = INDICES[kind_of_index]

    got = find(
        strategies.index_expressions((2, 2), strategies.BASIC_INDEXING), lambda index: expected(index), settings=SEARCH
    )
    non_trivial = tuple([e for e in entries(got) if e != slice(None)])
    assert non_trivial == smallest or kind_of_index == "beyond"


def is_array(e: Any) -> bool:
    return isinstance(e, np.ndarray)


@pytest.mark.parametrize(
    "expected",
    sampled(
        [
            lambda i: (
                sum(is_array(e) and e.dtype == np.int32 for e in i) == 2
            ),  # several integer arrays, which broadcast
            lambda i: (
                is_array(i[0]) and len(i) > 2 and isinstance(i[1], slice) and is_array(i[2])
            ),  # arrays separated by a slice
            lambda i: is_array(i[0]) and i[0].dtype == bool and i[0].ndim == 2,
            lambda i: is_array(i[0]) and i[0].dtype == bool and not i[0].any(),
            lambda i: isinstance(i[0], list),
            lambda i: isinstance(i[0], int) and any(is_array(e) for e in i),
            lambda i: i[0] is ... and is_array(i[-1]),
        ],
        2,
    ),
    ids=sampled(range(7), 2),
)
def test_index_expressions_draw_every_kind_of_advanced_index(expected: Callable[[Any], bool]) -> None:
    def matches(index: Any) -> bool:
        return isinstance(index, tuple) and bool(index) and expected(index)

    index = find(strategies.index_expressions((2, 3, 2)), matches, settings=SEARCH)
    assert isinstance(index, tuple)
    assert len(index) <= 4
    np.zeros((2, 3, 2))[index]


@settings(max_examples=100)
@given(st.data())
def test_drawn_indices_are_valid_in_numpy(data: st.DataObject) -> None:
    shape = data.draw(strategies.shapes())
    np.zeros(shape)[data.draw(strategies.index_expressions(shape))]


def test_index_expressions_refuse_unknown_kinds() -> None:
    with pytest.raises(ValueError, match="kinds of indices are slice, integer, .* got slices"):
        strategies.index_expressions((2,), ("slices",))


# ------------------------------------------------------------------ einsum


@pytest.mark.parametrize(
    ("expected", "smallest"),
    sampled(
        [
            (lambda e: True, strategies.Einsum("", ((),))),
            (lambda e: "," in e.spec, strategies.Einsum(",", ((), ()))),
            (lambda e: "ii" in e.spec, strategies.Einsum("ii", ((1, 1),))),
            (lambda e: "..." in e.spec, strategies.Einsum("...", ((),))),
            (lambda e: e.spec.endswith("i->"), strategies.Einsum("i->", ((1,),))),
            (lambda e: e.spec.startswith("i,i") and e.shapes[0] == (2,), strategies.Einsum("i,i", ((2,), (2,)))),
        ],
        2,
    ),
)
def test_einsums_strategy_draws_every_kind_of_spec(
    expected: Callable[[strategies.Einsum], bool], smallest: strategies.Einsum
) -> None:
    assert find(strategies.einsums(), expected, settings=SEARCH) == smallest


@settings(max_examples=100)
@given(strategies.einsums())
def test_fnp_einsum_matches_numpy_on_drawn_specs(case: strategies.Einsum) -> None:
    xs = [np.arange(np.prod(shape), dtype=np.int32).reshape(shape) % 5 - 2 for shape in case.shapes]
    want = np.einsum(case.spec, *xs)
    got = fnp.einsum(case.spec, *xs)
    assert got.shape == want.shape
    assert np.array_equal(np.asarray(got), want)


def test_laws_run_without_hypothesis() -> None:
    out = run(
        {"hypothesis", "jax", "pytest"},
        """
        import numpy as np
        import tracefx.numpy as fnp
        from tracefx.testing import check_function

        print(len(check_function(fnp.sin, np.ones(2)).passed))
        """,
    )
    assert out == "13\n"


def test_without_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tracefx.testing.strategies")
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ModuleNotFoundError, match="needs Hypothesis, which is not installed: pip install hypothesis"):
        importlib.import_module("tracefx.testing.strategies")
