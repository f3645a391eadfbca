"""Differences and equivalence of programs: results, printed form, and run time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.errors import untyped
from tests.laws.examples import limit_examples
from tests.rewriting.peepholes import WRAPPERS, peepholes
from tracefx.core import ShapedArray
from tracefx.core.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Var
from tracefx.ops.elementwise.arithmetic import Mul, Neg
from tracefx.ops.elementwise.transcendental import Cos, Sin
from tracefx.passes.check import check_jaxpr
from tracefx.passes.rebuilding import renumber
from tracefx.programs import parse_jaxpr
from tracefx.rewriting import ChangeKind, canonicalize_jaxpr, cse, diff_jaxprs, equivalent
from tracefx.rewriting.alignment import align_sequences

F32 = ShapedArray((), np.dtype("float32"))


def program(text: str) -> Jaxpr:
    jaxpr = parse_jaxpr(f"{{ lambda ; {text} }}")
    check_jaxpr(jaxpr)
    return jaxpr


def diff_lines(a: str, b: str) -> list[str]:
    return str(diff_jaxprs(program(a), program(b))).splitlines()


def rename_variables(jaxpr: Jaxpr, offset: int = 7) -> Jaxpr:
    """Renumbers all variables."""

    def var(v: Var) -> Var:
        return Var(v.index * 2 + offset, v.aval)

    def atom(x: Any) -> Any:
        return var(x) if isinstance(x, Var) else x

    eqns = [Eqn(e.prim, tuple(map(atom, e.inputs)), tuple(map(var, e.outs)), e.source) for e in jaxpr.eqns]
    return Jaxpr(
        tuple(map(var, jaxpr.constvars)), tuple(map(var, jaxpr.invars)), tuple(eqns), tuple(map(atom, jaxpr.outs))
    )


# ------------------------------------------------------------------ printed differences


def test_renamed_variables_are_no_difference() -> None:
    a = program("a:f32[]. let b:f32[] = sin a in (b,)")
    assert not diff_jaxprs(a, rename_variables(a))
    assert str(diff_jaxprs(a, a)) == repr(diff_jaxprs(a, a)) == "no difference"


def test_inserted_equation_keeps_other_names() -> None:
    a = "x:f32[]. let y:f32[] = sin x; z:f32[] = mul y y in (z,)"
    b = "x:f32[]. let u:f32[] = exp x; y:f32[] = sin x; z:f32[] = mul y u in (z,)"
    assert diff_lines(a, b) == ["+ d:f32[] = exp a", "  b:f32[] = sin a", "- c:f32[] = mul b b", "+ c:f32[] = mul b d"]
    assert diff_lines(b, a) == ["- b:f32[] = exp a", "  c:f32[] = sin a", "- d:f32[] = mul c b", "+ d:f32[] = mul c c"]


def test_equation_inserted_among_similar_ones_keeps_the_others_aligned() -> None:
    inputs = " ".join(f"{x}:f32[]" for x in "abcdefghi")

    def sums(*terms: str) -> str:
        equations = [f"{chr(ord('m') + n)}:f32[] = add {chr(ord('l') + n)} {x}" for n, x in enumerate(terms)]
        return f"{inputs}. let l:f32[] = sin a; {'; '.join(equations)} in ({chr(ord('l') + len(terms))},)"

    difference = diff_jaxprs(program(sums(*"bcdefgh")), program(sums(*"bcdiefgh")))
    assert [(change.kind.name, change.old_index, change.new_index) for change in difference.changes] == [
        ("ADDED", None, 4),
        ("CHANGED", 4, 5),
    ]
    assert not difference.interface
    back = diff_jaxprs(program(sums(*"bcdiefgh")), program(sums(*"bcdefgh")))
    assert [(change.kind.name, change.old_index) for change in back.changes] == [("REMOVED", 4), ("CHANGED", 5)]


def test_diff_of_parameters_literals_and_primitives() -> None:
    assert diff_lines(
        "x:f32[2,3]. let y:f32[3] = reduce_sum[axes=(0,)] x; z:f32[3] = mul y 2.0:f32[]; u:f32[3] = sin z in (u,)",
        "x:f32[2,3]. let y:f32[2] = reduce_sum[axes=(1,)] x; z:f32[2] = mul y 3.0:f32[]; u:f32[2] = cos z in (u,)",
    ) == [
        "- b:f32[3] = reduce_sum[axes=(0,)] a",
        "+ b:f32[2] = reduce_sum[axes=(1,)] a",
        "- c:f32[3] = mul b 2.0:f32[]",
        "+ c:f32[2] = mul b 3.0:f32[]",
        "- d:f32[3] = sin c",
        "+ d:f32[2] = cos c",
    ]


def test_reordered_equation_is_reported_as_moved() -> None:
    a = program("x:f32[]. let y:f32[] = sin x; z:f32[] = cos x; u:f32[] = exp x in (y, z, u)")
    b = program("x:f32[]. let u:f32[] = exp x; y:f32[] = sin x; z:f32[] = cos x in (y, z, u)")
    diff = diff_jaxprs(a, b)
    (change,) = diff.changes
    assert (change.kind, change.old_index, change.new_index) == (ChangeKind.MOVED, 2, 0)
    assert str(diff).splitlines() == ["~ d:f32[] = exp a", "  b:f32[] = sin a", "  c:f32[] = cos a"]
    assert equivalent(a, b)


def test_diff_of_inputs_outputs_and_types() -> None:
    a = "x:f32[]. let y:f32[] = sin x in (y, x)"
    b = "x:f32[]* u:i32[]. let y:f32[]* = sin x in (x, 1.0:f32[])"
    assert diff_lines(a, b) == [
        "- inputs a:f32[]",
        "+ inputs a:f32[]* c:i32[]",
        "- b:f32[] = sin a",
        "+ b:f32[]* = sin a",
        "- in (b, a)",
        "+ in (a, 1.0:f32[])",
    ]  # fmt: skip


def test_diff_of_long_programs_shows_context_lines() -> None:
    lines = str(diff_jaxprs(chain(50), chain(50, [25]))).splitlines()
    assert lines == [
        "  ...",
        "  y:f32[] = mul x l",
        "  z:f32[] = sin y",
        "- ba:f32[] = mul z m",
        "+ ba:f32[] = cos z",
        "  bb:f32[] = sin ba",
        "  bc:f32[] = mul bb n",
        "  ...",
    ]


def test_diff_recurses_into_bodies() -> None:
    def f(g: Any) -> ClosedJaxpr:
        return fx.make_jaxpr(lambda x: fx.lax.scan(lambda c, _: (fx.jit(g)(c), None), x, None, length=3)[0])(1.0)

    diff = diff_jaxprs(f(fx.lax.sin), f(fx.lax.cos))
    (change,) = diff.changes
    assert change.kind is ChangeKind.CHANGED
    (body,) = change.bodies
    (inner,) = body.changes
    assert [str(c.kind) for c in inner.bodies[0].changes] == ["ChangeKind.CHANGED"]
    text = str(diff)
    assert "in its body:" in text
    assert "            - b:f32[]* = sin a" in text
    assert text.count("= scan[") == 1


def test_diff_names_the_changed_body() -> None:
    def f(g: Any) -> ClosedJaxpr:
        return fx.make_jaxpr(lambda x: fx.lax.cond(x > 0, g, fx.lax.sin, x))(1.0)

    lines = str(diff_jaxprs(f(fx.lax.exp), f(fx.lax.cos))).splitlines()
    start = lines.index("      in body 1:")
    assert [line.split("  #")[0] for line in lines[start + 1 :]] == [
        "      - b:f32[]* = exp a",
        "      + b:f32[]* = cos a",
    ]


def test_diff_shows_source_lines_of_changed_equations() -> None:
    def f(x: fx.Array) -> fx.Array:
        return fx.lax.sin(x)

    def g(x: fx.Array) -> fx.Array:
        return fx.lax.cos(x)

    x = fnp.float32(1)
    before, after = str(diff_jaxprs(fx.make_jaxpr(f)(x), fx.make_jaxpr(g)(x))).splitlines()
    line = f.__code__.co_firstlineno + 1
    assert before.startswith("- b:f32[] = sin a  # ")
    assert before.endswith(f"test_difference.py:{line}")
    assert after.endswith(f"test_difference.py:{line + 3}")


def test_source_location_is_no_difference() -> None:
    x = fnp.float32(1)
    a = fx.make_jaxpr(lambda x: fx.lax.sin(x))(x)
    b = fx.make_jaxpr(lambda x: fx.lax.sin(x))(x)
    assert not diff_jaxprs(a, b)


def test_diff_of_constants() -> None:
    def f(c: Any) -> ClosedJaxpr:
        c = fnp.asarray(c)
        return fx.make_jaxpr(lambda x: x + c)(fnp.zeros(2))

    assert not diff_jaxprs(f([1.0, 2.0]), f([1.0, 2.0]))
    diff = diff_jaxprs(f([1.0, 2.0]), f([1.0, 3.0]))
    assert diff
    assert str(diff).splitlines() == ["- constant 0: f32[2] [1. 2.]", "+ constant 0: f32[2] [1. 3.]"]


def test_diff_refuses_non_programs() -> None:
    with pytest.raises(TypeError, match="diff_jaxprs compares jaxprs, got 1"):
        untyped(diff_jaxprs)(1, 2)
    a = program("x:f32[]. let in (x,)")
    with pytest.raises(TypeError, match="two jaxprs or two closed jaxprs, got Jaxpr, ClosedJaxpr"):
        equivalent(a, ClosedJaxpr(a, ()))


# ------------------------------------------------------------------ empty difference if and only if equal


@limit_examples(60)
@given(a=peepholes(), b=peepholes())
def test_diff_is_false_iff_equal_up_to_names(a: Jaxpr, b: Jaxpr) -> None:
    assert not diff_jaxprs(a, rename_variables(a))
    assert bool(diff_jaxprs(a, b)) == (renumber(a) != renumber(b))


@limit_examples(60)
@given(jaxpr=peepholes(), data=st.data())
def test_diff_detects_every_small_change(jaxpr: Jaxpr, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(("drop", "turn", "outputs", "inputs")))
    if kind == "drop" and jaxpr.eqns:
        i = data.draw(st.integers(0, len(jaxpr.eqns) - 1))
        changed_jaxpr = evolve(jaxpr, eqns=(*jaxpr.eqns[:i], *jaxpr.eqns[i + 1 :]))
    elif kind == "turn":
        changed_jaxpr = evolve(jaxpr, eqns=jaxpr.eqns[::-1])
    elif kind == "inputs":
        changed_jaxpr = evolve(jaxpr, invars=(*jaxpr.invars, Var(jaxpr.var_count, F32)))
    else:
        changed_jaxpr = evolve(jaxpr, outs=(*jaxpr.outs, jaxpr.invars[0]))
    if renumber_if_valid(changed_jaxpr) == renumber(jaxpr):
        return
    diff = diff_jaxprs(jaxpr, changed_jaxpr) if renumber_if_valid(changed_jaxpr) is not None else True
    assert diff
    assert str(diff)


def renumber_if_valid(jaxpr: Jaxpr) -> Jaxpr | None:
    """Returns None for an invalid program, which reads a variable before its definition."""
    try:
        return renumber(jaxpr)
    except KeyError:
        return None


@limit_examples(20)
@given(a=peepholes(max_steps=4), b=peepholes(max_steps=4), wrap=st.sampled_from(WRAPPERS))
def test_diff_in_bodies_is_false_iff_equal(a: Jaxpr, b: Jaxpr, wrap: Any) -> None:
    assert not diff_jaxprs(wrap(a), wrap(rename_variables(a)))
    assert bool(diff_jaxprs(wrap(a), wrap(b))) == (renumber(a) != renumber(b))


# ------------------------------------------------------------------ alignment


def longest_common_subsequence_length(a: Sequence[int], b: Sequence[int]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, j in itertools.product(range(len(a)), range(len(b))):
        table[i + 1][j + 1] = table[i][j] + 1 if a[i] == b[j] else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


short_sequences = st.lists(st.integers(0, 3), max_size=20)


@limit_examples(100)
@given(short_sequences, short_sequences)
def test_alignment_is_a_longest_common_subsequence(a: list[int], b: list[int]) -> None:
    pairs = list(align_sequences(a, b))
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in itertools.pairwise(pairs))
    assert len(pairs) == longest_common_subsequence_length(a, b)


@pytest.mark.parametrize("distinct_values", [2, 30, 1000])
@pytest.mark.parametrize(("n", "m"), [(300, 400), (0, 200), (1, 500), (700, 3)])
def test_alignment_of_dissimilar_sequences(distinct_values: int, n: int, m: int) -> None:
    gen = np.random.default_rng(0)
    a, b = [gen.integers(0, distinct_values, size).tolist() for size in (n, m)]
    pairs = list(align_sequences(a, b))
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < l for (i, j), (k, l) in itertools.pairwise(pairs))  # noqa: E741
    assert len(pairs) >= 0.8 * longest_common_subsequence_length(a, b) - 2


# ------------------------------------------------------------------ equivalence


def draw_reordered(jaxpr: Jaxpr, data: st.DataObject) -> Jaxpr:
    """Draws a permutation of the equations that respects data dependencies."""
    remaining, bound = list(jaxpr.eqns), {v.index for v in jaxpr.invars}
    eqns = []
    while remaining:
        ready = [e for e in remaining if all(not isinstance(x, Var) or x.index in bound for x in e.inputs)]
        chosen = data.draw(st.sampled_from(ready))
        remaining = [e for e in remaining if e is not chosen]
        bound |= {v.index for v in chosen.outs}
        eqns.append(chosen)
    return evolve(jaxpr, eqns=tuple(eqns))


def draw_with_duplicates(jaxpr: Jaxpr, data: st.DataObject) -> Jaxpr:
    """Duplicates some equations; later equations use either copy."""
    count = itertools.count(jaxpr.var_count)
    eqns: list[Eqn] = []
    second: dict[int, Var] = {}

    def either(x: Any) -> Any:
        duplicate = second.get(x.index) if isinstance(x, Var) else None
        return x if duplicate is None or data.draw(st.booleans()) else duplicate

    for eqn in jaxpr.eqns:
        eqns.append(evolve(eqn, inputs=tuple(map(either, eqn.inputs))))
        if data.draw(st.booleans()):
            outs = tuple([Var(next(count), v.aval) for v in eqn.outs])
            eqns.append(Eqn(eqn.prim, tuple(map(either, eqn.inputs)), outs))
            second.update(zip([v.index for v in eqn.outs], outs, strict=True))
    return Jaxpr((), jaxpr.invars, tuple(eqns), tuple(map(either, jaxpr.outs)))


@limit_examples(60)
@given(jaxpr=peepholes(), data=st.data())
def test_equivalent_up_to_order_names_and_duplicates(jaxpr: Jaxpr, data: st.DataObject) -> None:
    for changed_jaxpr in (
        draw_reordered(jaxpr, data),
        draw_with_duplicates(jaxpr, data),
        draw_reordered(draw_with_duplicates(jaxpr, data), data),
        cse(jaxpr),
    ):
        changed_jaxpr = renumber(rename_variables(changed_jaxpr))
        check_jaxpr(changed_jaxpr)
        assert equivalent(jaxpr, changed_jaxpr)
        assert canonicalize_jaxpr(changed_jaxpr) == canonicalize_jaxpr(jaxpr)


@limit_examples(30)
@given(jaxpr=peepholes(max_steps=6), wrap=st.sampled_from(WRAPPERS), data=st.data())
def test_equivalent_in_bodies(jaxpr: Jaxpr, wrap: Any, data: st.DataObject) -> None:
    changed_jaxpr = wrap(renumber(draw_reordered(draw_with_duplicates(jaxpr, data), data)))
    assert equivalent(wrap(jaxpr), changed_jaxpr)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("x:f32[] y:f32[]. let z:f32[] = add x y in (z,)", "x:f32[] y:f32[]. let z:f32[] = add y x in (z,)"),
        ("x:f32[]. let y:f32[] = mul x 1.0:f32[] in (y,)", "x:f32[]. let y:f32[] = mul x 1.0:f32[]* in (y,)"),
        ("x:f32[]. let y:f32[] = mul x 0.0:f32[] in (y,)", "x:f32[]. let y:f32[] = mul x -0.0:f32[] in (y,)"),
        ("x:f32[]. let y:f32[] = sin x in (x, y)", "x:f32[]. let y:f32[] = sin x in (y, x)"),
        ("x:f32[] y:f32[]. let in (x,)", "x:f32[]. let in (x,)"),
    ],
)
def test_not_equivalent(a: str, b: str) -> None:
    assert not equivalent(program(a), program(b))
    assert diff_jaxprs(program(a), program(b))


def test_equivalence_respects_order_of_effects() -> None:
    def show(x: Any) -> None:
        raise AssertionError

    def first(x: Any, y: Any) -> None:
        fx.debug.callback(show, x)
        fx.debug.callback(show, fx.lax.sin(y))

    def second(x: Any, y: Any) -> None:
        z = fx.lax.sin(y)
        fx.lax.cos(z)
        fx.debug.callback(show, x)
        fx.debug.callback(show, z)

    def changed_jaxpr(x: Any, y: Any) -> None:
        fx.debug.callback(show, fx.lax.sin(y))
        fx.debug.callback(show, x)

    a, b, c = [fx.make_jaxpr(f)(1.0, 2.0) for f in (first, second, changed_jaxpr)]
    assert equivalent(a, b)
    assert not equivalent(a, c)
    assert not equivalent(a, fx.make_jaxpr(lambda x, y: None)(1.0, 2.0))


def test_equivalence_compares_constants_by_bits() -> None:
    c, d = fnp.arange(3.0), fnp.ones(3)
    e, f32 = fnp.arange(3.0), fnp.ones(3)

    def f(x: Any) -> Any:
        return x * c, x + d

    def g(x: Any) -> Any:
        y = x + f32
        return x * e, y

    def h(x: Any) -> Any:
        return x * d, x + c

    a, b, changed_jaxpr = [fx.make_jaxpr(k)(c) for k in (f, g, h)]
    assert a.jaxpr.constvars
    assert equivalent(a, b)
    assert not equivalent(a, changed_jaxpr)
    assert canonicalize_jaxpr(a).consts is not None


# ------------------------------------------------------------------ long programs


def chain(n: int, changed: Sequence[int] = ()) -> Jaxpr:
    vs = [Var(i, F32) for i in range(n + 1)]
    eqns = []
    for i in range(n):
        if i in changed:
            eqns.append(Eqn(Cos(), (vs[i],), (vs[i + 1],)))
        elif i % 2:
            eqns.append(Eqn(Mul(), (vs[i], vs[i // 2]), (vs[i + 1],)))
        else:
            eqns.append(Eqn(Sin(), (vs[i],), (vs[i + 1],)))
    return Jaxpr((), (vs[0],), tuple(eqns), (vs[n],))


def test_diff_and_equivalence_of_long_programs() -> None:
    a, b = chain(20_000), chain(20_000, range(50, 20_000, 100))
    assert len(diff_jaxprs(a, b).changes) == 200
    assert not diff_jaxprs(a, chain(20_000))
    assert equivalent(a, chain(20_000))
    assert not equivalent(a, b)


def test_diff_of_unrelated_long_programs() -> None:
    vs = [Var(i, F32) for i in range(3001)]
    b = Jaxpr((), (vs[0],), tuple([Eqn(Neg(), (vs[i],), (vs[i + 1],)) for i in range(3000)]), (vs[-1],))
    assert len(diff_jaxprs(chain(2000), b).changes) >= 3000
