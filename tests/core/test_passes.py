"""Passes on jaxprs (dce, cse, renumber): results, equivalence of programs, and idempotence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from tests.core import programs as examples
from tracefx.core import Literal, ShapedArray
from tracefx.core.effects import Effects, NamedAxisEffect
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.passes.check import check_jaxpr
from tracefx.passes.cse import cse
from tracefx.passes.dce import Prunable, dce, prune
from tracefx.passes.rebuilding import renumber

ONE: Final = Literal(1.0, examples.WEAK)
Pass: TypeAlias = Callable[[Jaxpr], Jaxpr]
PASSES: Final[Sequence[Pass]] = (dce, cse, renumber, lambda jaxpr: prune(jaxpr)[0])


# ------------------------------------------------------------------ symbolic evaluation


@final
class SymbolicEvaluator:
    """Evaluates jaxprs symbolically: equal terms are computed by equal equations. Records the operands of `Log`."""

    def __init__(self) -> None:
        self.terms: dict[object, int] = {}
        self.log: list[tuple[Primitive, tuple[int, ...]]] = []

    def term(self, *parts: object) -> int:
        return self.terms.setdefault(parts, len(self.terms))

    def inputs(self, jaxpr: Jaxpr) -> tuple[list[int], list[int]]:
        consts = [self.term("const", i) for i in range(len(jaxpr.constvars))]
        return consts, [self.term("input", i) for i in range(len(jaxpr.invars))]

    def run(self, jaxpr: Jaxpr, consts: Sequence[int], args: Sequence[int]) -> list[int]:
        env = {v.index: t for v, t in zip(jaxpr.constvars + jaxpr.invars, [*consts, *args], strict=True)}

        def read(x: Atom) -> int:
            return self.term(x) if isinstance(x, Literal) else env[x.index]

        for eqn in jaxpr.eqns:
            operands = tuple(map(read, eqn.inputs))
            outs = self.apply(eqn.prim, operands, len(eqn.outs))
            env.update(zip([v.index for v in eqn.outs], outs, strict=True))
        return [read(x) for x in jaxpr.outs]

    def apply(self, prim: Primitive, operands: tuple[int, ...], n: int) -> list[int]:
        if isinstance(prim, examples.Call):
            return self.run(prim.jaxpr, (), operands)
        if isinstance(prim, examples.Switch):
            branches = [self.run(b, (), operands) for b in prim.branches]
            return [self.term("switch", *outs) for outs in zip(*branches, strict=True)]
        if isinstance(prim, examples.Log):
            self.log.append((prim, operands))
        return [self.term(prim, operands, i) for i in range(n)]


def symbolic_results(*jaxprs: Jaxpr) -> list[tuple[list[int], list[tuple[Primitive, tuple[int, ...]]]]]:
    terms = SymbolicEvaluator()
    results = []
    for jaxpr in jaxprs:
        terms.log = []
        results.append((terms.run(jaxpr, *terms.inputs(jaxpr)), terms.log))
    return results


def test_symbolic_results_distinguish_programs() -> None:
    same, other = symbolic_results(examples.chain(2), examples.chain(3))
    assert same != other
    assert symbolic_results(examples.chain(2), examples.chain(2))[0] == symbolic_results(examples.chain(2))[0]


# ------------------------------------------------------------------ laws


@pytest.mark.parametrize("transform", [dce, cse, renumber], ids=["dce", "cse", "renumber"])
@given(jaxpr=examples.programs())
def test_passes_preserve_programs_and_are_idempotent(transform: Pass, jaxpr: Jaxpr) -> None:
    result = transform(jaxpr)
    check_jaxpr(result)
    assert (result.in_avals, result.out_avals) == (jaxpr.in_avals, jaxpr.out_avals)
    assert len(result.eqns) <= len(jaxpr.eqns)
    before, after = symbolic_results(jaxpr, result)
    assert before == after
    assert transform(result) is result
    assert [v.index for v in binders(result)] == list(range(result.var_count))


@given(jaxpr=examples.programs(), data=st.data())
def test_dce_and_prune_preserve_used_outputs(jaxpr: Jaxpr, data: st.DataObject) -> None:
    used = data.draw(st.lists(st.booleans(), min_size=len(jaxpr.outs), max_size=len(jaxpr.outs)))
    result = dce(jaxpr, used)
    check_jaxpr(result)
    assert result.in_avals == jaxpr.in_avals
    (outs, log), after = symbolic_results(jaxpr, result)
    assert after == ([t for t, u in zip(outs, used, strict=True) if u], log)
    assert dce(result) is result

    pruned, used_inputs = prune(jaxpr, used)
    check_jaxpr(pruned)
    assert pruned.in_avals == tuple([a for a, u in zip(jaxpr.in_avals, used_inputs, strict=True) if u])
    terms = SymbolicEvaluator()
    consts, args = terms.inputs(jaxpr)
    outs = terms.run(jaxpr, consts, args)
    log, terms.log = terms.log, []
    assert terms.run(pruned, consts, [t for t, u in zip(args, used_inputs, strict=True) if u]) == [
        t for t, u in zip(outs, used, strict=True) if u
    ]
    assert terms.log == log
    assert prune(pruned) == (pruned, (True,) * len(pruned.invars))


def binders(jaxpr: Jaxpr) -> list[Var]:
    return [*jaxpr.constvars, *jaxpr.invars, *[v for e in jaxpr.eqns for v in e.outs]]


@given(examples.programs())
def test_unchanged_program_is_the_same_object(jaxpr: Jaxpr) -> None:
    assert renumber(jaxpr) is jaxpr


# ------------------------------------------------------------------ dce


def test_dce_removes_unused_equations() -> None:
    p = examples.Program(examples.VECTOR, examples.SCALAR, consts=[examples.SCALAR])
    x, _ = p.invars
    (b,) = p(examples.Sin(), x)
    p(examples.Sin(), *p(examples.Add(), x, b))
    (c, _, d) = p(examples.Split(3), b)
    p(examples.Split(2), c)
    jaxpr = p.returns(d, ONE)
    assert str(dce(jaxpr)) == (
        "{ lambda a:f32[]; b:f32[3] c:f32[]. let\n"
        "    d:f32[3] = sin b\n"
        "    _:f32[3] _:f32[3] g:f32[3] = split[n=3] d\n"
        "  in (g, 1.0:f32[]*) }"
    )
    assert str(dce(jaxpr, [False, True])) == "{ lambda a:f32[]; b:f32[3] c:f32[]. let in (1.0:f32[]*,) }"


def test_prune_reports_used_inputs() -> None:
    p = examples.Program(examples.VECTOR, examples.SCALAR, examples.VECTOR, consts=[examples.SCALAR])
    x, _, z = p.invars
    (b,) = p(examples.Sin(), z)
    (c,) = p(examples.Sin(), x)
    jaxpr = p.returns(b, c)
    pruned, used_inputs = prune(jaxpr, (True, False))
    assert used_inputs == (False, False, True)
    assert str(pruned) == "{ lambda a:f32[]; b:f32[3]. let c:f32[3] = sin b in (c,) }"
    pruned, used_inputs = prune(jaxpr, (True, False), keep=1)
    assert used_inputs == (False, True, True)
    assert str(pruned) == "{ lambda a:f32[]; b:f32[] c:f32[3]. let d:f32[3] = sin c in (d,) }"


def test_dce_keeps_observable_effects() -> None:
    p = examples.Program(examples.VECTOR)
    (b,) = p(examples.Sin(), *p.invars)
    p(examples.Log("kept"), b)
    jaxpr = p.returns()
    assert dce(jaxpr) is jaxpr
    outer = examples.Program(examples.VECTOR)
    outer(examples.Call("f", jaxpr), *outer.invars)
    calling = outer.returns()
    assert dce(calling) is calling


def test_dce_removes_unobservable_effects() -> None:
    class Index(Primitive):
        name = "axis_index"

        @property
        @override
        def effects(self) -> Effects:
            return frozenset({NamedAxisEffect("i")})

        @override
        def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
            return [examples.SCALAR]

    p = examples.Program()
    first, second = p(Index()), p(Index())
    assert dce(p.returns()).eqns == ()
    assert len(cse(p.returns(*first, *second)).eqns) == 1


def test_dce_in_sub_jaxprs() -> None:
    p = examples.Program(examples.VECTOR)
    p(examples.Sin(), *p.invars)
    wasteful = p.returns(*p.invars)
    p = examples.Program(examples.VECTOR)
    (x,) = p(examples.Call("f", wasteful), *p(examples.Call("f", wasteful), *p.invars))
    first, second = dce(p.returns(x)).eqns
    assert isinstance(first.prim, examples.Call)
    assert isinstance(second.prim, examples.Call)
    assert first.prim.jaxpr is second.prim.jaxpr
    assert first.prim.jaxpr.eqns == ()


def test_dce_mask_of_wrong_length_raises() -> None:
    with pytest.raises(ValueError, match="used_outs has 2 entries for a program of 1 outputs"):
        dce(examples.chain(1), [True, False])
    with pytest.raises(ValueError, match="used_outs has 0 entries"):
        prune(examples.chain(1), [])


def test_dce_prunes_outputs_and_operands_of_primitives() -> None:
    @frozen(eq=False)
    class Lean(Primitive, Prunable):
        """A call primitive that prunes its body."""

        name = "lean"
        body: Jaxpr

        @override
        def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
            assert avals == self.body.in_avals
            return self.body.out_avals

        @override
        def prune(self, used_outs: tuple[bool, ...]) -> tuple[Primitive, tuple[bool, ...], tuple[bool, ...]]:
            body, used_inputs = prune(self.body, used_outs)
            return (self if body is self.body else evolve(self, body=body)), used_inputs, used_outs

    body = examples.Program(examples.VECTOR, examples.SCALAR)
    (s,) = body(examples.Sin(), body.invars[0])
    (t,) = body(examples.Sin(), body.invars[1])
    p = examples.Program(examples.VECTOR, examples.SCALAR)
    x, y = p.invars
    (u,) = p(examples.Sin(), x)
    _, w = p(Lean(body.returns(s, t)), u, y)
    jaxpr = p.returns(w)
    result, used_inputs = prune(jaxpr)
    assert used_inputs == (False, True)
    check_jaxpr(result)
    assert str(result).startswith("{ lambda ; a:f32[]. let\n    b:f32[] = lean[")
    assert prune(result)[0] is result


# ------------------------------------------------------------------ cse


def test_cse_merges_equal_equations() -> None:
    p = examples.Program(examples.VECTOR)
    (x,) = p.invars
    (a,), (b,) = p(examples.Sin(), x), p(examples.Sin(), x)
    (c,), (d,) = p(examples.Add(), a, x), p(examples.Add(), b, x)
    (e,) = p(examples.Add(), x, a)
    assert str(cse(p.returns(a, b, c, d, e))) == (
        "{ lambda ; a:f32[3]. let\n"
        "    b:f32[3] = sin a\n"
        "    c:f32[3] = add b a\n"
        "    d:f32[3] = add a b\n"
        "  in (b, b, c, c, d) }"
    )


def test_cse_compares_parameters_and_literals_by_type_and_bits() -> None:
    p = examples.Program(examples.VECTOR)
    (x,) = p.invars
    outs: list[Atom] = []
    for value in (1, 1.0, True, 0.0, -0.0, (1,), (True,)):
        outs += p(examples.Scale(value), x)
    for literal in (ONE, Literal(1.0, examples.SCALAR), Literal(0.0, examples.SCALAR), Literal(-0.0, examples.SCALAR)):
        outs += p(examples.Add(), x, literal)
    jaxpr = p.returns(*outs)
    assert cse(jaxpr) is jaxpr
    p = examples.Program(examples.VECTOR)
    twice = p.returns(*p(examples.Scale(float("nan")), *p.invars), *p(examples.Scale(float("nan")), *p.invars))
    assert len(cse(twice).eqns) == 1


def test_cse_keeps_effectful_equations() -> None:
    p = examples.Program(examples.VECTOR)
    p(examples.Log("x"), *p.invars)
    p(examples.Log("x"), *p.invars)
    jaxpr = p.returns()
    assert cse(jaxpr) is jaxpr


def test_cse_merges_equal_sub_jaxprs() -> None:
    p = examples.Program(examples.VECTOR)
    outs = [*p(examples.Call("f", examples.chain(2)), *p.invars), *p(examples.Call("f", examples.chain(2)), *p.invars)]
    assert len(cse(p.returns(*outs)).eqns) == 1


# ------------------------------------------------------------------ renumbering and size


def test_renumber() -> None:
    a, b, c = (Var(i, examples.VECTOR) for i in (5, 0, 2))
    jaxpr = Jaxpr((), (a,), (Eqn(examples.Sin(), (a,), (b,)), Eqn(examples.Sin(), (b,), (c,))), (c, ONE))
    assert str(renumber(jaxpr)) == ("{ lambda ; a:f32[3]. let b:f32[3] = sin a; c:f32[3] = sin b in (c, 1.0:f32[]*) }")
    p = examples.Program(examples.VECTOR)
    (x,) = p(examples.Call("f", jaxpr), *p.invars)[:1]
    (eqn,) = renumber(p.returns(x)).eqns
    assert isinstance(eqn.prim, examples.Call)
    assert eqn.prim.jaxpr is renumber(jaxpr)


@pytest.mark.parametrize("transform", PASSES, ids=["dce", "cse", "renumber", "prune"])
def test_long_programs(transform: Pass) -> None:
    jaxpr = examples.chain(5000)
    assert transform(jaxpr) is jaxpr
    unused = evolve(jaxpr, outs=jaxpr.invars)
    assert len(dce(unused).eqns) == 0


@pytest.mark.parametrize("transform", [dce, renumber, lambda j: prune(j)[0]], ids=["dce", "renumber", "prune"])
def test_shared_sub_jaxpr_is_visited_once(transform: Pass) -> None:
    p = examples.Program(examples.VECTOR)
    p(examples.Sin(), *p.invars)
    body = evolve(p.returns(*p.invars), invars=(Var(7, examples.VECTOR),), outs=(Var(7, examples.VECTOR),), eqns=())
    body = examples.nested_calls(body)
    result = transform(body)
    check_jaxpr(result)
    assert len(str(result).splitlines()) < 60 * 6
