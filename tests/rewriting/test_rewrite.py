"""The engine: what rules may do, in which order they apply, and what they are refused."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.laws.examples import limit_examples
from tests.rewriting.evaluation import assert_pass_is_sound, results
from tests.rewriting.peepholes import operands, peepholes
from tracefx.core.avals import ShapedArray
from tracefx.core.jaxpr import ClosedJaxpr, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.values import Value, from_numpy
from tracefx.extend import bind, bind1
from tracefx.ops.elementwise.arithmetic import Mul, Neg, Sub
from tracefx.ops.elementwise.elementwise import Add
from tracefx.ops.elementwise.powers import IntegerPow
from tracefx.ops.elementwise.transcendental import Cos, Exp, Log, Sin
from tracefx.ops.shape.shape import Split
from tracefx.ops.structural import ConvertElementType, Transpose
from tracefx.passes.check import check_jaxpr
from tracefx.passes.rebuilding import renumber
from tracefx.programs import parse_jaxpr
from tracefx.rewriting import (
    Apply,
    InputTerm,
    RewriteError,
    RewriteLoopError,
    RewriteRule,
    RewriteTypeError,
    Term,
    optimize,
    rewrite,
    rule,
    simplify,
)
from tracefx.testing.tolerances import ELEMENTARY

F32: Final = ShapedArray((), np.dtype("float32"))


def program(text: str) -> Jaxpr:
    jaxpr = parse_jaxpr(f"{{ lambda ; {text} }}")
    check_jaxpr(jaxpr)
    return jaxpr


def names(jaxpr: Jaxpr) -> list[str]:
    return [eqn.prim.name for eqn in jaxpr.eqns]


@rule(Neg)
def double_neg(term: Term) -> Term | None:
    match term:
        case Apply(Neg(), (Apply(Neg(), (x,)),)):
            return x
        case _:
            return None


@rule(Sin)
def sin_to_cos(term: Apply) -> Value:
    return fx.lax.cos(*term.operands)


@rule(Mul)
def square(term: Apply) -> Value | None:
    x, y = term.operands
    return fx.lax.square(x) if x is y else None


@rule(IntegerPow)
def unfolded_power(term: Apply) -> Value | None:
    match term:
        case Apply(IntegerPow(n), (x,)) if n > 1:
            return fx.lax.mul(x, fx.lax.integer_pow(x, n - 1))
        case Apply(IntegerPow(1), (x,)):
            return x
        case _:
            return None


# ------------------------------------------------------------------ what rules do


def test_a_chain_goes_at_once() -> None:
    jaxpr = program(
        "a:f32[]. let b:f32[] = neg a; c:f32[] = neg b; d:f32[] = neg c; e:f32[] = neg d; f:f32[] = neg e in (f, e)"
    )
    assert rewrite(jaxpr, [double_neg]) == program("a:f32[]. let b:f32[] = neg a in (b, a)")


def test_what_a_rule_makes_is_rewritten_too() -> None:
    jaxpr = program("a:f32[]. let b:f32[] = integer_pow[y=3] a in (b,)")
    made = rewrite(jaxpr, [unfolded_power, square])
    assert made == program("a:f32[]. let b:f32[] = square a; c:f32[] = mul a b in (c,)")


def test_the_first_rule_applies() -> None:
    jaxpr = program("a:f32[]. let b:f32[] = sin a in (b,)")
    first = RewriteRule("first", lambda term: fx.lax.exp(*term.operands), (Sin,))
    assert names(rewrite(jaxpr, [first, sin_to_cos])) == ["exp"]
    assert names(rewrite(jaxpr, [sin_to_cos, first])) == ["cos"]


def test_operators_and_functions_of_arrays_make_terms() -> None:
    @rule(Log)
    def log_of_exp_sum(term: Apply) -> Value | None:
        match term:
            case Apply(Log(), (Apply(Add(), (Apply(Exp(), (x,)), Apply(Exp(), (y,)))),)):
                top = fnp.maximum(x, y)
                return top + fnp.log1p(fnp.exp(-fnp.abs(fx.lax.sub(x, y))))
            case _:
                return None

    jaxpr = program(
        "a:f32[2] b:f32[2]. let c:f32[2] = exp a; d:f32[2] = exp b; e:f32[2] = add c d; f:f32[2] = log e in (f,)"
    )
    made = rewrite(jaxpr, [log_of_exp_sum])
    check_jaxpr(made)
    args: list[Value] = [from_numpy(np.array(x, np.float32)) for x in ([1000.0, 1.0], [999.0, 2.0])]
    (out,) = results(made, args)[0]
    assert_near(out, np.logaddexp([1000.0, 1.0], [999.0, 2.0]), ELEMENTARY)


def test_a_rule_may_call_what_is_compiled() -> None:
    called = RewriteRule("called", lambda term: fx.jit(lambda x: fx.lax.cos(x) * 2.0)(term.operands[0]), (Sin,))
    made = rewrite(program("a:f32[]. let b:f32[] = sin a in (b,)"), [called])
    check_jaxpr(made)
    assert names(made) == ["jit"]


def test_patterns_bind_parameters_and_numbers() -> None:
    @rule(Transpose)
    def forget(term: Apply) -> Value | None:
        match term:
            case Apply(Transpose((1, 0) as order), (Apply(Mul(), (x, Literal(2.0))),)):
                assert order == (1, 0)
                return bind1(term.prim, fx.lax.add(x, x))
            case _:
                return None

    before = "a:f32[2,3]. let b:f32[2,3] = mul a {n}:f32[]; c:f32[3,2] = transpose[permutation=(1, 0)] b in (c,)"
    assert names(rewrite(program(before.format(n="2.0")), [forget])) == ["add", "transpose"]
    unchanged = program(before.format(n="3.0"))
    assert rewrite(unchanged, [forget]) is unchanged


def test_a_rule_without_roots_is_asked_about_all() -> None:
    asked: list[str] = []

    def look(term: Apply) -> None:
        asked.append(term.prim.name)

    jaxpr = program("a:f32[]. let b:f32[] = sin a; c:f32[] = cos b in (c,)")
    assert rewrite(jaxpr, [RewriteRule("look", look)]) is jaxpr
    assert asked == ["sin", "cos"]


def test_a_rule_about_a_capability() -> None:
    found: list[Any] = []
    jaxpr = fx.make_jaxpr(lambda x: fx.jit(fx.lax.sin)(x) + 1.0)(1.0)
    rewrite(jaxpr, [RewriteRule("carry", lambda term: found.append(term), (HasSubjaxprs,))])
    assert [t.prim.name for t in found] == ["jit"]


def test_what_terms_tell() -> None:
    seen: list[Apply] = []
    jaxpr = program("a:f32[] b:i32[]*. let c:f32[] = sin a; d:f32[] = mul c 2.0:f32[] in (d,)")
    rewrite(jaxpr, [RewriteRule("look", lambda term: seen.append(term), (Mul,))])
    (term,) = seen
    inner, number = term.operands
    assert isinstance(inner, Apply)
    assert isinstance(number, Literal)
    assert isinstance(inner.operands[0], InputTerm)
    assert str(term) == "mul(sin(a:f32[]), 2.0:f32[])"
    assert (term.aval, term.out, term.outputs) == (F32, 0, (term,))
    with pytest.raises(TypeError, match="has a type but no value"):
        float(term)


# ------------------------------------------------------------------ several outputs


SPLIT: Final = "a:f32[5]. let b:f32[2] c:f32[3] = split[sizes=(2, 3) axis=0] a; d:f32[3] = neg c in (b, d)"


@rule(Split)
def split_to_slices(term: Apply) -> list[Value]:
    match term:
        case Apply(Split(sizes, axis), (x,)):
            assert axis == 0
            ends = np.cumsum(sizes)
            return [fx.lax.slice(x, (int(e - n),), (int(e),)) for n, e in zip(sizes, ends, strict=True)]
        case _:
            raise AssertionError


def test_an_operation_of_several_outputs_is_replaced_as_a_whole() -> None:
    made = assert_pass_is_sound(
        lambda j: rewrite(j, [split_to_slices]), program(SPLIT), [from_numpy(np.arange(5, dtype=np.float32))]
    )
    assert names(made) == ["slice", "slice", "neg"]


def test_an_output_is_seen_through() -> None:
    @rule(Neg)
    def of_second(term: Apply) -> Value | None:
        match term:
            case Apply(Neg(), (Apply(Split(), (_,)) as part,)) if part.out == 1:
                return fx.lax.sin(part.outputs[1])
            case _:
                return None

    assert names(rewrite(program(SPLIT), [of_second])) == ["split", "sin"]


def test_operations_of_several_outputs_may_come_in() -> None:
    @rule(Sin)
    def both(term: Apply) -> Value:
        first, second = bind(Split((1, 1), 0), *term.operands)
        return fx.lax.concatenate([second, first], 0)

    made = rewrite(program("a:f32[2]. let b:f32[2] = sin a in (b,)"), [both])
    check_jaxpr(made)
    assert names(made) == ["split", "concatenate"]


def test_a_wrong_number_of_outputs_is_refused() -> None:
    one = RewriteRule("one", lambda term: fx.lax.slice(term.operands[0], (0,), (2,)), (Split,))
    with pytest.raises(
        RewriteTypeError, match=r"'one' returned 1 values for split, which has 2 outputs \(f32\[2\], f32"
    ):
        rewrite(program(SPLIT), [one])


# ------------------------------------------------------------------ types


@pytest.mark.parametrize(
    ("replace", "told"),
    [
        (lambda x: fx.lax.convert_element_type(x, "bfloat16"), r"sin\(a:f32\[\]\) from f32\[\] to bf16\[\]"),
        (lambda x: fx.lax.broadcast(x, (2,)), r"from f32\[\] to f32\[2\]"),
        (lambda x: Literal(1.0, ShapedArray((), np.dtype("float32"), weak_type=True)), r"from f32\[\] to f32\[\]\*"),
    ],
)
def test_a_rule_that_changes_a_type_is_refused(replace: Any, told: str) -> None:
    wrong = RewriteRule("wrong", lambda term: replace(*term.operands), (Sin,))
    with pytest.raises(RewriteTypeError, match=rf"the rule 'wrong' changes the type of .*{told}"):
        rewrite(program("a:f32[]. let b:f32[] = sin a in (b,)"), [wrong])


def test_the_line_of_the_equation_is_told() -> None:
    jaxpr = fx.make_jaxpr(lambda x: fx.lax.sin(x))(fnp.float32(1))
    wrong = RewriteRule("wrong", lambda term: fx.lax.convert_element_type(term.operands[0], "bfloat16"), (Sin,))
    with pytest.raises(RewriteTypeError, match=r"at .*test_rewrite\.py:\d+ \("):
        rewrite(jaxpr, [wrong])


def test_what_is_no_value_is_refused() -> None:
    jaxpr = program("a:f32[]. let b:f32[] = sin a in (b,)")
    with pytest.raises(RewriteTypeError, match=r"returned 1.0 for sin\(a:f32\[\]\): it must return a term"):
        rewrite(jaxpr, [RewriteRule("number", lambda term: 1.0, (Sin,))])  # type: ignore[arg-type,return-value]  # is the point
    with pytest.raises(TypeError, match=r"rewrite takes rules, .* got <function"):
        rewrite(jaxpr, [lambda term: None])  # type: ignore[list-item]  # is the point
    with pytest.raises(TypeError, match="roots must be classes of operations, such as Neg, got 'sin'"):
        RewriteRule("x", lambda term: None, ("sin",))  # type: ignore[arg-type]  # is the point
    with pytest.raises(ValueError, match="limit must be positive, got 0"):
        rewrite(jaxpr, [], limit=0)


def test_arrays_are_refused_numbers_are_not() -> None:
    jaxpr = program("a:f32[2]. let b:f32[2] = sin a in (b,)")
    with pytest.raises(RewriteError, match=r"array of type f32\[2\] is an operand of mul") as caught:
        rewrite(jaxpr, [RewriteRule("array", lambda t: fx.lax.mul(t.operands[0], np.ones(2, np.float32)), (Sin,))])
    assert "in the rule 'array' about sin(a:f32[2])" in caught.value.__notes__[0]
    made = rewrite(jaxpr, [RewriteRule("number", lambda t: fx.lax.mul(t.operands[0], fnp.float32(2)), (Sin,))])
    assert made == program("a:f32[2]. let b:f32[2] = mul a 2.0:f32[] in (b,)")


def test_terms_of_another_program_are_refused() -> None:
    kept: list[Value] = []
    jaxpr = program("a:f32[]. let b:f32[] = sin a in (b,)")
    rewrite(jaxpr, [RewriteRule("keep", lambda t: kept.append(t.operands[0]))])
    with pytest.raises(fx.extend.EscapedTracerError):
        rewrite(jaxpr, [RewriteRule("late", lambda t: kept[0])])


def test_an_error_of_a_rule_names_it() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        rewrite(program("a:f32[]. let b:f32[] = sin a in (b,)"), [RewriteRule("bad", lambda term: 1 // 0)])  # type: ignore[arg-type,return-value]  # is the point
    assert caught.value.__notes__ == ["in the rule 'bad' about sin(a:f32[])"]
    assert fx.extend.current() is fx.extend.handling(fx.extend.current())._handler


# ------------------------------------------------------------------ loops


@rule(Add)
def add_to_mul(term: Apply) -> Value:
    return fx.lax.mul(*term.operands)


@rule(Mul)
def mul_to_sub(term: Apply) -> Value:
    return fx.lax.sub(*term.operands)


@rule(Sub)
def sub_to_add(term: Apply) -> Value:
    return fx.lax.add(*term.operands)


def test_rules_that_undo_each_other() -> None:
    jaxpr = program("a:f32[] b:f32[]. let c:f32[] = add a b in (c,)")
    with pytest.raises(
        RewriteLoopError, match="'add_to_mul', 'mul_to_sub', 'sub_to_add' would go on forever"
    ) as caught:
        rewrite(jaxpr, [add_to_mul, mul_to_sub, sub_to_add])
    assert "add(a:f32[], b:f32[]) by 'add_to_mul'; then mul(a:f32[], b:f32[]) by 'mul_to_sub'" in str(caught.value)
    assert names(rewrite(jaxpr, [add_to_mul, mul_to_sub])) == ["sub"]


def test_the_way_into_a_circle_is_no_part_of_it() -> None:
    jaxpr = program("a:f32[] b:f32[]. let c:f32[] = sin a in (c,)")
    enter = RewriteRule("enter", lambda t: fx.lax.add(t.operands[0], t.operands[0]), (Sin,))
    with pytest.raises(RewriteLoopError) as caught:
        rewrite(jaxpr, [enter, add_to_mul, mul_to_sub, sub_to_add])
    assert "enter" not in str(caught.value)


@pytest.mark.parametrize(
    "grow",
    [
        lambda t: fx.lax.mul(t, fnp.float32(1)),  # what is replaced is part of what replaces it
        lambda t: fx.lax.mul(fx.lax.sin(*t.operands), fnp.float32(1)),
    ],
)
def test_a_rule_that_grows_around_itself(grow: Any) -> None:
    with pytest.raises(RewriteLoopError, match=r"the rule 'grow' would go on forever: sin\(a:f32\[\]\)"):
        rewrite(program("a:f32[]. let b:f32[] = sin a in (b,)"), [RewriteRule("grow", grow, (Sin,))])


def test_a_rule_that_grows_ever_more() -> None:
    grow = RewriteRule("grow", lambda t: fx.lax.sin(fx.lax.mul(t.operands[0], fnp.float32(2))), (Sin,))
    jaxpr = program("a:f32[]. let b:f32[] = sin a in (b,)")
    with pytest.raises(
        RewriteLoopError, match=r"more than 1000 times in rewriting sin\(a:f32\[\]\), most recently the"
    ):
        rewrite(jaxpr, [grow])


def test_many_steps_are_no_loop() -> None:
    jaxpr = program("a:f32[]. let b:f32[] = integer_pow[y=700] a in (b,)")
    assert len(rewrite(jaxpr, [unfolded_power]).eqns) == 699
    with pytest.raises(RewriteLoopError, match="pass rewrite a larger limit"):
        rewrite(jaxpr, [unfolded_power], limit=100)


def test_a_rule_that_doubles_forever_ends() -> None:
    def double(term: Apply) -> Value:
        x, n = term.operands[0], fnp.float32(2)
        return fx.lax.add(fx.lax.sin(fx.lax.mul(x, n)), fx.lax.sin(fx.lax.sub(x, n)))

    with pytest.raises(RewriteLoopError):
        rewrite(program("a:f32[]. let b:f32[] = sin a in (b,)"), [RewriteRule("double", double, (Sin,))])


def test_programs_that_nest_forever() -> None:
    jaxpr = program("a:f32[]. let b:f32[] = sin a in (b,)")
    called = RewriteRule("called", lambda t: fx.jit(lambda x: fx.lax.sin(x))(t.operands[0]), (Sin,))
    with pytest.raises(RewriteLoopError, match="rewrite a program to one that contains the same program, .* sin a in"):
        rewrite(jaxpr, [called])

    def deeper(term: Apply) -> Value:
        return fx.jit(lambda x: fx.lax.sin(fx.lax.mul(x, float(np.random.default_rng().random()))))(term.operands[0])

    with pytest.raises(RewriteLoopError, match="nested without end"):
        rewrite(jaxpr, [RewriteRule("deeper", deeper, (Sin,))])


def test_a_limit_of_one() -> None:
    jaxpr = program("a:f32[]. let b:f32[] = sin a; c:f32[] = sin b in (c,)")
    assert names(rewrite(jaxpr, [sin_to_cos], limit=1)) == ["cos", "cos"]


def test_giving_the_same_back_changes_nothing() -> None:
    same = RewriteRule("same", lambda t: bind1(t.prim, *t.operands), (Sin,))
    itself = RewriteRule("itself", lambda t: t)
    jaxpr = program("a:f32[]. let b:f32[] = sin a in (b,)")
    assert rewrite(jaxpr, [same, itself]) is jaxpr
    assert names(rewrite(jaxpr, [same, sin_to_cos])) == ["cos"]


# ------------------------------------------------------------------ effects, bodies, provenance


def test_effects_stay_where_they_are() -> None:
    def f(x: fx.Array) -> fx.Array:
        fx.debug.print("{}", fx.lax.neg(fx.lax.neg(x)))
        y = fx.lax.sin(x)
        fx.debug.print("{}", y)
        return fx.lax.cos(x)

    made = rewrite(fx.make_jaxpr(f)(fnp.float32(1)), [double_neg, sin_to_cos]).jaxpr
    assert names(made) == ["debug_print", "cos", "debug_print", "cos"]


def test_a_rule_brings_no_effects() -> None:
    def shown(term: Apply) -> Value:
        fx.debug.print("{}", term.operands[0])
        return term.operands[0]

    with pytest.raises(RewriteError, match="cannot add effects to a program, but debug_print has Debug"):
        rewrite(program("a:f32[]. let b:f32[] = sin a in (b,)"), [RewriteRule("shown", shown)])


def test_in_bodies_of_bodies() -> None:
    def f(x: fx.Array, n: fx.Array) -> fx.Array:
        def step(c: fx.Array, _: None) -> tuple[fx.Array, fx.Array]:
            called = fx.jit(lambda y: fx.lax.sin(fx.lax.neg(fx.lax.neg(y))))
            return fx.lax.cond(n > 0, lambda y: fx.lax.neg(fx.lax.neg(fx.lax.sin(y))), called, c), c

        return fx.lax.scan(step, x, None, length=2)[0]

    jaxpr = fx.make_jaxpr(f)(fnp.float32(1), fnp.int32(1))
    made = rewrite(jaxpr, [double_neg, sin_to_cos])
    check_jaxpr(made)
    assert "neg" not in str(made)
    assert "sin" not in str(made)
    assert str(made).count("cos") == 2
    assert rewrite(made, [double_neg, sin_to_cos]) is made


def test_a_body_that_several_equations_share_is_rewritten_once() -> None:
    asked: list[int] = []

    def count(term: Apply) -> None:
        asked.append(1)

    g = fx.jit(fx.lax.sin)
    jaxpr = fx.make_jaxpr(lambda x: g(g(g(x))))(1.0)
    rewrite(jaxpr, [RewriteRule("count", count, (Sin,))])
    assert len(asked) == 1


def test_lines_are_kept() -> None:
    jaxpr = fx.make_jaxpr(lambda x: fx.lax.exp(fx.lax.sin(x)))(1.0)
    made = rewrite(jaxpr, [sin_to_cos])
    assert [str(e.source) for e in made.eqns] == [str(e.source) for e in jaxpr.eqns]


def test_programs_that_rules_run_keep_theirs() -> None:
    def chosen(x: fx.Array) -> fx.Array:
        return fx.lax.exp(x)

    program = fx.make_jaxpr(lambda x: fx.lax.switch(fnp.int32(0), [chosen, fx.lax.cos], x))(fnp.float32(1))
    (eqn,) = [e for e in optimize(program).eqns if e.prim.name == "exp"]
    assert eqn.source is not None
    assert eqn.source.resolve().line == chosen.__code__.co_firstlineno + 1


def test_closed_programs_keep_their_constants() -> None:
    c = fnp.arange(3.0)
    jaxpr = fx.make_jaxpr(lambda x: fx.lax.sin(x) * c)(c)
    made = rewrite(jaxpr, [sin_to_cos])
    assert isinstance(made, ClosedJaxpr)
    assert made.consts == jaxpr.consts
    check_jaxpr(made)
    assert rewrite(jaxpr, [double_neg]) is jaxpr


def test_what_nobody_uses_lets_rules_apply_again() -> None:
    """A carry that goes with what used it makes of the loop another one."""

    def step(carry: tuple[fx.Array, fx.Array], _: None) -> tuple[tuple[fx.Array, fx.Array], None]:
        return (carry[0] + 1.0, carry[1] * 2.0), None

    def f(x: fx.Array) -> fx.Array:
        a, b = fx.lax.scan(step, (x, x), None, length=3)[0]
        return fx.lax.add(a, fx.lax.mul(b, 0.0))

    drop = RewriteRule("drop", lambda t: t.operands[0] if isinstance(t.operands[1], Apply) else None, (Add,))
    jaxpr = fx.make_jaxpr(f)(fnp.float32(1)).jaxpr
    made = assert_pass_is_sound(
        lambda j: rewrite(j, [drop]), jaxpr, [from_numpy(np.float32(1).reshape(1))], exact=False
    )
    assert len(made.eqns[0].outs) == 1


@limit_examples(50)
@given(jaxpr=peepholes(), data=st.data())
def test_without_rules_nothing_changes(jaxpr: Jaxpr, data: st.DataObject) -> None:
    assert rewrite(jaxpr, []) is jaxpr
    never = RewriteRule("never", lambda term: None)
    assert rewrite(jaxpr, [never]) is jaxpr


@rule(ConvertElementType)
def converted_flat(term: Apply) -> Value | None:
    match term:
        case Apply(ConvertElementType(dtype, False), (InputTerm() as x,)) if x.aval.ndim > 1:
            flat = fx.lax.reshape(x, (x.aval.size,))
            return fx.lax.reshape(fx.lax.convert_element_type(flat, dtype), x.aval.shape)
        case _:
            return None


@limit_examples(50)
@given(jaxpr=peepholes(), data=st.data())
def test_rules_among_others_change_no_value(jaxpr: Jaxpr, data: st.DataObject) -> None:
    args = data.draw(operands(jaxpr.in_avals))
    made = assert_pass_is_sound(lambda j: rewrite(j, [converted_flat, double_neg]), jaxpr, args)
    assert renumber(made) is made


# ------------------------------------------------------------------ length


def chain(n: int) -> Jaxpr:
    vs = [Var(i, F32) for i in range(n + 1)]
    prims = (Sin(), Cos(), Exp())
    eqns = tuple([Eqn(prims[i % 3], (vs[i],), (vs[i + 1],)) for i in range(n)])
    return Jaxpr((), (vs[0],), eqns, (vs[n],))


def test_long_programs() -> None:
    jaxpr = chain(30_000)
    assert simplify(jaxpr) is jaxpr
    asked = 0

    def count(term: Apply) -> None:
        nonlocal asked
        asked += 1

    assert rewrite(jaxpr, [RewriteRule("count", count)]) is jaxpr
    assert asked == 30_000
    assert len(rewrite(jaxpr, [sin_to_cos]).eqns) == 30_000


def test_a_long_program_that_goes() -> None:
    vs = [Var(i, F32) for i in range(20_001)]
    jaxpr = Jaxpr((), (vs[0],), tuple([Eqn(Neg(), (vs[i],), (vs[i + 1],)) for i in range(20_000)]), (vs[-1],))
    assert rewrite(jaxpr, [double_neg]) == program("a:f32[]. let in (a,)")
