"""Differences of programs: what counts, what is told, and how fast."""

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
from tests.laws.examples import limit_examples
from tests.rewriting.peepholes import WRAPPERS, peepholes
from tracefx.core.avals import ShapedArray
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


def told(a: str, b: str) -> list[str]:
    return str(diff_jaxprs(program(a), program(b))).splitlines()


def with_other_names(jaxpr: Jaxpr, by: int = 7) -> Jaxpr:
    """Every variable with another number."""

    def var(v: Var) -> Var:
        return Var(v.index * 2 + by, v.aval)

    def atom(x: Any) -> Any:
        return var(x) if isinstance(x, Var) else x

    eqns = [Eqn(e.prim, tuple(map(atom, e.inputs)), tuple(map(var, e.outs)), e.source) for e in jaxpr.eqns]
    return Jaxpr(
        tuple(map(var, jaxpr.constvars)), tuple(map(var, jaxpr.invars)), tuple(eqns), tuple(map(atom, jaxpr.outs))
    )


# ------------------------------------------------------------------ what is told


def test_no_difference() -> None:
    a = program("a:f32[]. let b:f32[] = sin a in (b,)")
    assert not diff_jaxprs(a, with_other_names(a))
    assert str(diff_jaxprs(a, a)) == repr(diff_jaxprs(a, a)) == "no difference"


def test_what_comes_in_shifts_no_names() -> None:
    a = "x:f32[]. let y:f32[] = sin x; z:f32[] = mul y y in (z,)"
    b = "x:f32[]. let u:f32[] = exp x; y:f32[] = sin x; z:f32[] = mul y u in (z,)"
    assert told(a, b) == [
        "+ d:f32[] = exp a",
        "  b:f32[] = sin a",
        "- c:f32[] = mul b b",
        "+ c:f32[] = mul b d",
    ]
    assert told(b, a) == [
        "- b:f32[] = exp a",
        "  c:f32[] = sin a",
        "- d:f32[] = mul c b",
        "+ d:f32[] = mul c c",
    ]


def test_parameters_literals_and_operations() -> None:
    assert told(
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


def test_another_order_is_told_as_moves() -> None:
    a = program("x:f32[]. let y:f32[] = sin x; z:f32[] = cos x; u:f32[] = exp x in (y, z, u)")
    b = program("x:f32[]. let u:f32[] = exp x; y:f32[] = sin x; z:f32[] = cos x in (y, z, u)")
    diff = diff_jaxprs(a, b)
    (change,) = diff.changes
    assert (change.kind, change.old_index, change.new_index) == (ChangeKind.MOVED, 2, 0)
    assert str(diff).splitlines() == ["~ d:f32[] = exp a", "  b:f32[] = sin a", "  c:f32[] = cos a"]
    assert equivalent(a, b)


def test_inputs_outputs_and_types() -> None:
    a = "x:f32[]. let y:f32[] = sin x in (y, x)"
    b = "x:f32[]* u:i32[]. let y:f32[]* = sin x in (x, 1.0:f32[])"
    assert told(a, b) == [
        "- inputs a:f32[]",
        "+ inputs a:f32[]* c:i32[]",
        "- b:f32[] = sin a",
        "+ b:f32[]* = sin a",
        "- in (b, a)",
        "+ in (a, 1.0:f32[])",
    ]  # fmt: skip


def test_long_programs_show_what_is_near() -> None:
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


def test_bodies_are_gone_into() -> None:
    def f(g: Any) -> ClosedJaxpr:
        return fx.make_jaxpr(lambda x: fx.lax.scan(lambda c, _: (fx.jit(g)(c), None), x, None, length=3)[0])(1.0)

    diff = diff_jaxprs(f(fx.lax.sin), f(fx.lax.cos))
    (change,) = diff.changes
    assert change.kind is ChangeKind.CHANGED
    (body,) = change.bodies
    (inner,) = body.changes
    assert [str(c.kind) for c in inner.bodies[0].changes] == ["Kind.CHANGED"]
    text = str(diff)
    assert "in its body:" in text
    assert "            - b:f32[]* = sin a" in text
    assert text.count("= scan[") == 1


def test_one_of_several_bodies() -> None:
    def f(g: Any) -> ClosedJaxpr:
        return fx.make_jaxpr(lambda x: fx.lax.cond(x > 0, g, fx.lax.sin, x))(1.0)

    lines = str(diff_jaxprs(f(fx.lax.exp), f(fx.lax.cos))).splitlines()
    at = lines.index("      in body 1:")
    assert [line.split("  #")[0] for line in lines[at + 1 :]] == [
        "      - b:f32[]* = exp a",
        "      + b:f32[]* = cos a",
    ]


def test_lines_of_the_source_are_told_where_they_differ() -> None:
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


def test_where_they_were_written_is_no_difference() -> None:
    x = fnp.float32(1)
    a = fx.make_jaxpr(lambda x: fx.lax.sin(x))(x)
    b = fx.make_jaxpr(lambda x: fx.lax.sin(x))(x)
    assert not diff_jaxprs(a, b)


def test_constants() -> None:
    def f(c: Any) -> ClosedJaxpr:
        c = fnp.asarray(c)
        return fx.make_jaxpr(lambda x: x + c)(fnp.zeros(2))

    assert not diff_jaxprs(f([1.0, 2.0]), f([1.0, 2.0]))
    diff = diff_jaxprs(f([1.0, 2.0]), f([1.0, 3.0]))
    assert diff
    assert str(diff).splitlines() == ["- constant 0: f32[2] [1. 2.]", "+ constant 0: f32[2] [1. 3.]"]


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(TypeError, match="diff_jaxprs compares jaxprs, got 1"):
        diff_jaxprs(1, 2)  # type: ignore[arg-type]  # is the point
    a = program("x:f32[]. let in (x,)")
    with pytest.raises(TypeError, match="two jaxprs or two closed jaxprs, got Jaxpr, ClosedJaxpr"):
        equivalent(a, ClosedJaxpr(a, ()))


# ------------------------------------------------------------------ false exactly if equal


@limit_examples(60)
@given(a=peepholes(), b=peepholes())
def test_false_exactly_if_equal_but_for_names(a: Jaxpr, b: Jaxpr) -> None:
    assert not diff_jaxprs(a, with_other_names(a))
    assert bool(diff_jaxprs(a, b)) == (renumber(a) != renumber(b))


@limit_examples(60)
@given(jaxpr=peepholes(), data=st.data())
def test_every_small_change_is_found(jaxpr: Jaxpr, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(("drop", "turn", "outputs", "inputs")))
    if kind == "drop" and jaxpr.eqns:
        i = data.draw(st.integers(0, len(jaxpr.eqns) - 1))
        other = evolve(jaxpr, eqns=(*jaxpr.eqns[:i], *jaxpr.eqns[i + 1 :]))
    elif kind == "turn":
        other = evolve(jaxpr, eqns=jaxpr.eqns[::-1])
    elif kind == "inputs":
        other = evolve(jaxpr, invars=(*jaxpr.invars, Var(jaxpr.var_count, F32)))
    else:
        other = evolve(jaxpr, outs=(*jaxpr.outs, jaxpr.invars[0]))
    if renumber_or_none(other) == renumber(jaxpr):
        return
    diff = diff_jaxprs(jaxpr, other) if renumber_or_none(other) is not None else True
    assert diff
    assert str(diff)


def renumber_or_none(jaxpr: Jaxpr) -> Jaxpr | None:
    """None for what is no program, since it reads what is bound later."""
    try:
        return renumber(jaxpr)
    except KeyError:
        return None


@limit_examples(20)
@given(a=peepholes(max_steps=4), b=peepholes(max_steps=4), wrap=st.sampled_from(WRAPPERS))
def test_in_bodies(a: Jaxpr, b: Jaxpr, wrap: Any) -> None:
    assert not diff_jaxprs(wrap(a), wrap(with_other_names(a)))
    assert bool(diff_jaxprs(wrap(a), wrap(b))) == (renumber(a) != renumber(b))


# ------------------------------------------------------------------ alignment


def longest(a: Sequence[int], b: Sequence[int]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, j in itertools.product(range(len(a)), range(len(b))):
        table[i + 1][j + 1] = table[i][j] + 1 if a[i] == b[j] else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


few_kinds = st.lists(st.integers(0, 3), max_size=20)


@limit_examples(100)
@given(few_kinds, few_kinds)
def test_a_longest_common_subsequence(a: list[int], b: list[int]) -> None:
    pairs = list(align_sequences(a, b))
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in itertools.pairwise(pairs))
    assert len(pairs) == longest(a, b)


@pytest.mark.parametrize("kinds", [2, 30, 1000])
@pytest.mark.parametrize(("n", "m"), [(300, 400), (0, 200), (1, 500), (700, 3)])
def test_sequences_that_have_little_in_common(kinds: int, n: int, m: int) -> None:
    gen = np.random.default_rng(0)
    a, b = [gen.integers(0, kinds, size).tolist() for size in (n, m)]
    pairs = list(align_sequences(a, b))
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < l for (i, j), (k, l) in itertools.pairwise(pairs))  # noqa: E741
    assert len(pairs) >= 0.8 * longest(a, b) - 2


# ------------------------------------------------------------------ equivalence


def shuffled(jaxpr: Jaxpr, data: st.DataObject) -> Jaxpr:
    """The equations in another order that respects who needs whom."""
    left, bound = list(jaxpr.eqns), {v.index for v in jaxpr.invars}
    eqns = []
    while left:
        ready = [e for e in left if all(not isinstance(x, Var) or x.index in bound for x in e.inputs)]
        chosen = data.draw(st.sampled_from(ready))
        left = [e for e in left if e is not chosen]
        bound |= {v.index for v in chosen.outs}
        eqns.append(chosen)
    return evolve(jaxpr, eqns=tuple(eqns))


def doubled(jaxpr: Jaxpr, data: st.DataObject) -> Jaxpr:
    """Some equations twice, and some of those that read them reading the second."""
    count = itertools.count(jaxpr.var_count)
    eqns: list[Eqn] = []
    second: dict[int, Var] = {}

    def either(x: Any) -> Any:
        twin = second.get(x.index) if isinstance(x, Var) else None
        return x if twin is None or data.draw(st.booleans()) else twin

    for eqn in jaxpr.eqns:
        eqns.append(evolve(eqn, inputs=tuple(map(either, eqn.inputs))))
        if data.draw(st.booleans()):
            outs = tuple([Var(next(count), v.aval) for v in eqn.outs])
            eqns.append(Eqn(eqn.prim, tuple(map(either, eqn.inputs)), outs))
            second.update(zip([v.index for v in eqn.outs], outs, strict=True))
    return Jaxpr((), jaxpr.invars, tuple(eqns), tuple(map(either, jaxpr.outs)))


@limit_examples(60)
@given(jaxpr=peepholes(), data=st.data())
def test_order_names_and_repetitions_don_t_matter(jaxpr: Jaxpr, data: st.DataObject) -> None:
    for other in (shuffled(jaxpr, data), doubled(jaxpr, data), shuffled(doubled(jaxpr, data), data), cse(jaxpr)):
        other = renumber(with_other_names(other))
        check_jaxpr(other)
        assert equivalent(jaxpr, other)
        assert canonicalize_jaxpr(other) == canonicalize_jaxpr(jaxpr)


@limit_examples(30)
@given(jaxpr=peepholes(max_steps=6), wrap=st.sampled_from(WRAPPERS), data=st.data())
def test_in_bodies_neither(jaxpr: Jaxpr, wrap: Any, data: st.DataObject) -> None:
    other = wrap(renumber(shuffled(doubled(jaxpr, data), data)))
    assert equivalent(wrap(jaxpr), other)


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
def test_what_is_not_the_same(a: str, b: str) -> None:
    assert not equivalent(program(a), program(b))
    assert diff_jaxprs(program(a), program(b))


def test_effects_keep_their_order() -> None:
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

    def other(x: Any, y: Any) -> None:
        fx.debug.callback(show, fx.lax.sin(y))
        fx.debug.callback(show, x)

    a, b, c = [fx.make_jaxpr(f)(1.0, 2.0) for f in (first, second, other)]
    assert equivalent(a, b)
    assert not equivalent(a, c)
    assert not equivalent(a, fx.make_jaxpr(lambda x, y: None)(1.0, 2.0))


def test_constants_count_by_their_bits_wherever_they_stand() -> None:
    c, d = fnp.arange(3.0), fnp.ones(3)
    e, f32 = fnp.arange(3.0), fnp.ones(3)

    def f(x: Any) -> Any:
        return x * c, x + d

    def g(x: Any) -> Any:
        y = x + f32
        return x * e, y

    def h(x: Any) -> Any:
        return x * d, x + c

    a, b, other = [fx.make_jaxpr(k)(c) for k in (f, g, h)]
    assert a.jaxpr.constvars
    assert equivalent(a, b)
    assert not equivalent(a, other)
    assert canonicalize_jaxpr(a).consts is not None


# ------------------------------------------------------------------ length


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


def test_long_programs() -> None:
    a, b = chain(20_000), chain(20_000, range(50, 20_000, 100))
    assert len(diff_jaxprs(a, b).changes) == 200
    assert not diff_jaxprs(a, chain(20_000))
    assert equivalent(a, chain(20_000))
    assert not equivalent(a, b)


def test_programs_that_have_nothing_in_common() -> None:
    vs = [Var(i, F32) for i in range(3001)]
    b = Jaxpr((), (vs[0],), tuple([Eqn(Neg(), (vs[i],), (vs[i + 1],)) for i in range(3000)]), (vs[-1],))
    assert len(diff_jaxprs(chain(2000), b).changes) >= 3000
