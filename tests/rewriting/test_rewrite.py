"""The rewrite engine: application order of rules, replacement of terms, and errors."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import untyped
from tests.laws.examples import limit_examples
from tests.rewriting.evaluation import assert_pass_is_sound, results
from tests.rewriting.peepholes import operands, peepholes
from tracefx.core import Literal, ShapedArray, Value, from_numpy
from tracefx.core.jaxpr import ClosedJaxpr, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.extend import Interpreter, bind, bind1
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


# ------------------------------------------------------------------ application of rules


def test_chain_of_negations_is_removed_in_one_pass() -> None:
    jaxpr = program(
        "a:f32[]. let b:f32[] = neg a; c:f32[] = neg b; d:f32[] = neg c; e:f32[] = neg d; f:f32[] = neg e in (f, e)"
    )
    assert rewrite(jaxpr, [double_neg]) == program("a:f32[]. let b:f32[] = neg a in (b, a)")


def test_result_of_a_rule_is_rewritten() -> None:
    jaxpr = program("a:f32[]. let b:f32[] = integer_pow[y=3] a in (b,)")
    result = rewrite(jaxpr, [unfolded_power, square])
    assert result == program("a:f32[]. let b:f32[] = square a; c:f32[] = mul a b in (c,)")


def test_first_matching_rule_applies() -> None:
    jaxpr = program("a:f32[]. let b:f32[] = sin a in (b,)")
    first = RewriteRule("first", lambda term: fx.lax.exp(*term.operands), (Sin,))
    assert names(rewrite(jaxpr, [first, sin_to_cos])) == ["exp"]
    assert names(rewrite(jaxpr, [sin_to_cos, first])) == ["cos"]


def test_rules_may_use_operators_and_array_functions() -> None:
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
    result = rewrite(jaxpr, [log_of_exp_sum])
    check_jaxpr(result)
    args: list[Value] = [from_numpy(np.array(x, np.float32)) for x in ([1000.0, 1.0], [999.0, 2.0])]
    (out,) = results(result, args)[0]
    assert_near(out, np.logaddexp([1000.0, 1.0], [999.0, 2.0]), ELEMENTARY)


def test_rules_may_call_jitted_functions() -> None:
    called = RewriteRule("called", lambda term: fx.jit(lambda x: fx.lax.cos(x) * 2.0)(term.operands[0]), (Sin,))
    result = rewrite(program("a:f32[]. let b:f32[] = sin a in (b,)"), [called])
    check_jaxpr(result)
    assert names(result) == ["jit"]


def test_patterns_match_parameters_and_literals() -> None:
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


def test_rule_without_roots_examines_all_equations() -> None:
    examined: list[str] = []

    def look(term: Apply) -> None:
        examined.append(term.prim.name)

    jaxpr = program("a:f32[]. let b:f32[] = sin a; c:f32[] = cos b in (c,)")
    assert rewrite(jaxpr, [RewriteRule("look", look)]) is jaxpr
    assert examined == ["sin", "cos"]


def test_rule_root_may_be_an_abstract_class() -> None:
    matched: list[Any] = []
    jaxpr = fx.make_jaxpr(lambda x: fx.jit(fx.lax.sin)(x) + 1.0)(1.0)
    rewrite(jaxpr, [RewriteRule("carry", lambda term: matched.append(term), (HasSubjaxprs,))])
    assert [t.prim.name for t in matched] == ["jit"]


def test_attributes_of_terms() -> None:
    terms: list[Apply] = []
    jaxpr = program("a:f32[] b:i32[]*. let c:f32[] = sin a; d:f32[] = mul c 2.0:f32[] in (d,)")
    rewrite(jaxpr, [RewriteRule("look", lambda term: terms.append(term), (Mul,))])
    (term,) = terms
    inner, number = term.operands
    assert isinstance(inner, Apply)
    assert isinstance(number, Literal)
    assert isinstance(inner.operands[0], InputTerm)
    assert str(term) == "mul(sin(a:f32[]), 2.0:f32[])"
    assert (term.aval, term.out, term.outputs) == (F32, 0, (term,))
    with pytest.raises(
        TypeError, match=r"escaped tracer: Apply\(f32\[\]\) was made by rewriting but used by `float\(\)`"
    ):
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


def test_all_outputs_of_an_equation_are_replaced_together() -> None:
    result = assert_pass_is_sound(
        lambda j: rewrite(j, [split_to_slices]), program(SPLIT), [from_numpy(np.arange(5, dtype=np.float32))]
    )
    assert names(result) == ["slice", "slice", "neg"]


def test_rule_may_use_other_outputs_of_an_operand() -> None:
    @rule(Neg)
    def of_second(term: Apply) -> Value | None:
        match term:
            case Apply(Neg(), (Apply(Split(), (_,)) as part,)) if part.out == 1:
                return fx.lax.sin(part.outputs[1])
            case _:
                return None

    assert names(rewrite(program(SPLIT), [of_second])) == ["split", "sin"]


def test_rule_may_introduce_equations_with_several_outputs() -> None:
    @rule(Sin)
    def both(term: Apply) -> Value:
        first, second = bind(Split((1, 1), 0), *term.operands)
        return fx.lax.concatenate([second, first], 0)

    result = rewrite(program("a:f32[2]. let b:f32[2] = sin a in (b,)"), [both])
    check_jaxpr(result)
    assert names(result) == ["split", "concatenate"]


def test_wrong_number_of_outputs_is_refused() -> None:
    one = RewriteRule("one", lambda term: fx.lax.slice(term.operands[0], (0,), (2,)), (Split,))
    with pytest.raises(
        RewriteTypeError, match=r"'one' returned 1 values for split, which has 2 outputs \(f32\[2\], f32"
    ):
        rewrite(program(SPLIT), [one])


# ------------------------------------------------------------------ types


@pytest.mark.parametrize(
    ("replace", "message"),
    [
        (lambda x: fx.lax.convert_element_type(x, "bfloat16"), r"sin\(a:f32\[\]\) from f32\[\] to bf16\[\]"),
        (lambda x: fx.lax.broadcast(x, (2,)), r"from f32\[\] to f32\[2\]"),
        (lambda x: Literal(1.0, ShapedArray((), np.dtype("float32"), weak_type=True)), r"from f32\[\] to f32\[\]\*"),
    ],
)
def test_rule_that_changes_a_type_is_refused(replace: Any, message: str) -> None:
    wrong = RewriteRule("wrong", lambda term: replace(*term.operands), (Sin,))
    with pytest.raises(RewriteTypeError, match=rf"the rule 'wrong' changes the type of .*{message}"):
        rewrite(program("a:f32[]. let b:f32[] = sin a in (b,)"), [wrong])


def test_type_error_contains_the_source_line() -> None:
    jaxpr = fx.make_jaxpr(lambda x: fx.lax.sin(x))(fnp.float32(1))
    wrong = RewriteRule("wrong", lambda term: fx.lax.convert_element_type(term.operands[0], "bfloat16"), (Sin,))
    with pytest.raises(RewriteTypeError, match=r"at .*test_rewrite\.py:\d+ \("):
        rewrite(jaxpr, [wrong])


def test_invalid_rules_and_results_are_refused() -> None:
    jaxpr = program("a:f32[]. let b:f32[] = sin a in (b,)")
    with pytest.raises(RewriteTypeError, match=r"returned 1.0 for sin\(a:f32\[\]\): it must return a term"):
        rewrite(jaxpr, [RewriteRule("number", lambda term: 1.0, (Sin,))])  # type: ignore[arg-type,return-value]  # is the point
    with pytest.raises(TypeError, match=r"rewrite takes rules, .* got <function"):
        rewrite(jaxpr, [lambda term: None])  # type: ignore[list-item]  # is the point
    with pytest.raises(TypeError, match=r"takes a sequence of rules, got the rule 'r': put it into a list"):
        untyped(rewrite)(jaxpr, RewriteRule("r", lambda term: None, ()))
    with pytest.raises(TypeError, match=r"takes classes of primitives, got <function .*, or @rule\(\), with paren"):
        untyped(rule)(lambda term: term)
    with pytest.raises(TypeError, match="roots must be classes of operations, such as Neg, got 'sin'"):
        untyped(RewriteRule)("x", lambda term: None, ("sin",))
    with pytest.raises(ValueError, match="limit must be positive, got 0"):
        rewrite(jaxpr, [], limit=0)


def test_rewrite_rules_cannot_be_methods_of_interpreters() -> None:
    with pytest.raises(TypeError, match=r"takes one argument, the term, but .*sine\(self, .*test_rewrite\.py:\d+\).*"):

        class Handler(Interpreter):
            @rule(Sin)  # type: ignore[arg-type]  # the wrong one of two functions with this name
            def sine(self, op: Sin, x: Value) -> Value:
                return bind1(op, x)


def test_rules_may_introduce_scalars_but_not_arrays() -> None:
    jaxpr = program("a:f32[2]. let b:f32[2] = sin a in (b,)")
    with pytest.raises(RewriteError, match=r"array of type f32\[2\] is an operand of mul") as caught:
        rewrite(jaxpr, [RewriteRule("array", lambda t: fx.lax.mul(t.operands[0], np.ones(2, np.float32)), (Sin,))])
    assert "in the rule 'array' about sin(a:f32[2])" in caught.value.__notes__[0]
    result = rewrite(jaxpr, [RewriteRule("number", lambda t: fx.lax.mul(t.operands[0], fnp.float32(2)), (Sin,))])
    assert result == program("a:f32[2]. let b:f32[2] = mul a 2.0:f32[] in (b,)")


def test_leaked_terms_are_refused() -> None:
    leaked: list[Value] = []
    jaxpr = program("a:f32[]. let b:f32[] = sin a in (b,)")
    rewrite(jaxpr, [RewriteRule("keep", lambda t: leaked.append(t.operands[0]))])
    with pytest.raises(fx.extend.EscapedTracerError):
        rewrite(jaxpr, [RewriteRule("late", lambda t: leaked[0])])


def test_exception_in_a_rule_names_the_rule() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        rewrite(program("a:f32[]. let b:f32[] = sin a in (b,)"), [RewriteRule("bad", lambda term: 1 // 0)])  # type: ignore[arg-type,return-value]  # is the point
    assert caught.value.__notes__ == ["in the rule 'bad' about sin(a:f32[])"]
    assert fx.extend.current() is fx.extend.handling(fx.extend.current())._handler


# ------------------------------------------------------------------ termination


@rule(Add)
def add_to_mul(term: Apply) -> Value:
    return fx.lax.mul(*term.operands)


@rule(Mul)
def mul_to_sub(term: Apply) -> Value:
    return fx.lax.sub(*term.operands)


@rule(Sub)
def sub_to_add(term: Apply) -> Value:
    return fx.lax.add(*term.operands)


def test_cyclic_rules_raise() -> None:
    jaxpr = program("a:f32[] b:f32[]. let c:f32[] = add a b in (c,)")
    with pytest.raises(
        RewriteLoopError, match="'add_to_mul', 'mul_to_sub', 'sub_to_add' would go on forever"
    ) as caught:
        rewrite(jaxpr, [add_to_mul, mul_to_sub, sub_to_add])
    assert "add(a:f32[], b:f32[]) by 'add_to_mul'; then mul(a:f32[], b:f32[]) by 'mul_to_sub'" in str(caught.value)
    assert names(rewrite(jaxpr, [add_to_mul, mul_to_sub])) == ["sub"]


def test_cycle_error_omits_rules_before_the_cycle() -> None:
    jaxpr = program("a:f32[] b:f32[]. let c:f32[] = sin a in (c,)")
    enter = RewriteRule("enter", lambda t: fx.lax.add(t.operands[0], t.operands[0]), (Sin,))
    with pytest.raises(RewriteLoopError) as caught:
        rewrite(jaxpr, [enter, add_to_mul, mul_to_sub, sub_to_add])
    assert "enter" not in str(caught.value)


@pytest.mark.parametrize(
    "grow",
    [
        lambda t: fx.lax.mul(t, fnp.float32(1)),  # the replaced term is part of its replacement
        lambda t: fx.lax.mul(fx.lax.sin(*t.operands), fnp.float32(1)),
    ],
)
def test_rule_that_contains_its_own_match_raises(grow: Any) -> None:
    with pytest.raises(RewriteLoopError, match=r"the rule 'grow' would go on forever: sin\(a:f32\[\]\)"):
        rewrite(program("a:f32[]. let b:f32[] = sin a in (b,)"), [RewriteRule("grow", grow, (Sin,))])


def test_rule_with_growing_results_raises() -> None:
    grow = RewriteRule("grow", lambda t: fx.lax.sin(fx.lax.mul(t.operands[0], fnp.float32(2))), (Sin,))
    jaxpr = program("a:f32[]. let b:f32[] = sin a in (b,)")
    with pytest.raises(
        RewriteLoopError, match=r"more than 1000 times in rewriting sin\(a:f32\[\]\), most recently the"
    ):
        rewrite(jaxpr, [grow])


def test_many_rewrites_are_no_loop() -> None:
    jaxpr = program("a:f32[]. let b:f32[] = integer_pow[y=700] a in (b,)")
    assert len(rewrite(jaxpr, [unfolded_power]).eqns) == 699
    with pytest.raises(RewriteLoopError, match="pass rewrite a larger limit"):
        rewrite(jaxpr, [unfolded_power], limit=100)


def test_rule_that_doubles_terms_raises() -> None:
    def double(term: Apply) -> Value:
        x, n = term.operands[0], fnp.float32(2)
        return fx.lax.add(fx.lax.sin(fx.lax.mul(x, n)), fx.lax.sin(fx.lax.sub(x, n)))

    with pytest.raises(RewriteLoopError):
        rewrite(program("a:f32[]. let b:f32[] = sin a in (b,)"), [RewriteRule("double", double, (Sin,))])


def test_unbounded_nesting_raises() -> None:
    jaxpr = program("a:f32[]. let b:f32[] = sin a in (b,)")
    called = RewriteRule("called", lambda t: fx.jit(lambda x: fx.lax.sin(x))(t.operands[0]), (Sin,))
    with pytest.raises(RewriteLoopError, match="rewrite a program to one that contains the same program, .* sin a in"):
        rewrite(jaxpr, [called])

    def deeper(term: Apply) -> Value:
        return fx.jit(lambda x: fx.lax.sin(fx.lax.mul(x, float(np.random.default_rng().random()))))(term.operands[0])

    with pytest.raises(RewriteLoopError, match="nested without end"):
        rewrite(jaxpr, [RewriteRule("deeper", deeper, (Sin,))])


def test_limit_of_one_rewrites_each_equation_once() -> None:
    jaxpr = program("a:f32[]. let b:f32[] = sin a; c:f32[] = sin b in (c,)")
    assert names(rewrite(jaxpr, [sin_to_cos], limit=1)) == ["cos", "cos"]


def test_returning_an_equal_term_changes_nothing() -> None:
    same = RewriteRule("same", lambda t: bind1(t.prim, *t.operands), (Sin,))
    itself = RewriteRule("itself", lambda t: t)
    jaxpr = program("a:f32[]. let b:f32[] = sin a in (b,)")
    assert rewrite(jaxpr, [same, itself]) is jaxpr
    assert names(rewrite(jaxpr, [same, sin_to_cos])) == ["cos"]


# ------------------------------------------------------------------ effects, bodies, provenance


def test_rewriting_keeps_order_of_effects() -> None:
    def f(x: fx.Array) -> fx.Array:
        fx.debug.print("{}", fx.lax.neg(fx.lax.neg(x)))
        y = fx.lax.sin(x)
        fx.debug.print("{}", y)
        return fx.lax.cos(x)

    result = rewrite(fx.make_jaxpr(f)(fnp.float32(1)), [double_neg, sin_to_cos]).jaxpr
    assert names(result) == ["debug_print", "cos", "debug_print", "cos"]


def test_rules_must_not_add_effects() -> None:
    def shown(term: Apply) -> Value:
        fx.debug.print("{}", term.operands[0])
        return term.operands[0]

    with pytest.raises(RewriteError, match="cannot add effects to a program, but debug_print has Debug"):
        rewrite(program("a:f32[]. let b:f32[] = sin a in (b,)"), [RewriteRule("shown", shown)])


def test_rewrite_in_nested_bodies() -> None:
    def f(x: fx.Array, n: fx.Array) -> fx.Array:
        def step(c: fx.Array, _: None) -> tuple[fx.Array, fx.Array]:
            called = fx.jit(lambda y: fx.lax.sin(fx.lax.neg(fx.lax.neg(y))))
            return fx.lax.cond(n > 0, lambda y: fx.lax.neg(fx.lax.neg(fx.lax.sin(y))), called, c), c

        return fx.lax.scan(step, x, None, length=2)[0]

    jaxpr = fx.make_jaxpr(f)(fnp.float32(1), fnp.int32(1))
    result = rewrite(jaxpr, [double_neg, sin_to_cos])
    check_jaxpr(result)
    assert "neg" not in str(result)
    assert "sin" not in str(result)
    assert str(result).count("cos") == 2
    assert rewrite(result, [double_neg, sin_to_cos]) is result


def test_shared_body_is_rewritten_once() -> None:
    examined: list[int] = []

    def count(term: Apply) -> None:
        examined.append(1)

    g = fx.jit(fx.lax.sin)
    jaxpr = fx.make_jaxpr(lambda x: g(g(g(x))))(1.0)
    rewrite(jaxpr, [RewriteRule("count", count, (Sin,))])
    assert len(examined) == 1


def test_rewritten_equations_keep_source_lines() -> None:
    jaxpr = fx.make_jaxpr(lambda x: fx.lax.exp(fx.lax.sin(x)))(1.0)
    result = rewrite(jaxpr, [sin_to_cos])
    assert [str(e.source) for e in result.eqns] == [str(e.source) for e in jaxpr.eqns]


def test_inlined_branch_keeps_its_source_lines() -> None:
    def chosen(x: fx.Array) -> fx.Array:
        return fx.lax.exp(x)

    program = fx.make_jaxpr(lambda x: fx.lax.switch(fnp.int32(0), [chosen, fx.lax.cos], x))(fnp.float32(1))
    (eqn,) = [e for e in optimize(program).eqns if e.prim.name == "exp"]
    assert eqn.source is not None
    assert eqn.source.resolve().line == chosen.__code__.co_firstlineno + 1


def test_closed_jaxpr_keeps_its_constants() -> None:
    c = fnp.arange(3.0)
    jaxpr = fx.make_jaxpr(lambda x: fx.lax.sin(x) * c)(c)
    result = rewrite(jaxpr, [sin_to_cos])
    assert isinstance(result, ClosedJaxpr)
    assert result.consts == jaxpr.consts
    check_jaxpr(result)
    assert rewrite(jaxpr, [double_neg]) is jaxpr


def test_rules_apply_again_after_dce() -> None:
    """Removing an unused carry replaces the loop by a new one, to which rules apply again."""

    def step(carry: tuple[fx.Array, fx.Array], _: None) -> tuple[tuple[fx.Array, fx.Array], None]:
        return (carry[0] + 1.0, carry[1] * 2.0), None

    def f(x: fx.Array) -> fx.Array:
        a, b = fx.lax.scan(step, (x, x), None, length=3)[0]
        return fx.lax.add(a, fx.lax.mul(b, 0.0))

    drop = RewriteRule("drop", lambda t: t.operands[0] if isinstance(t.operands[1], Apply) else None, (Add,))
    jaxpr = fx.make_jaxpr(f)(fnp.float32(1)).jaxpr
    result = assert_pass_is_sound(
        lambda j: rewrite(j, [drop]), jaxpr, [from_numpy(np.float32(1).reshape(1))], exact=False
    )
    assert len(result.eqns[0].outs) == 1


@limit_examples(50)
@given(jaxpr=peepholes(), data=st.data())
def test_rewriting_without_matching_rules_returns_the_same_object(jaxpr: Jaxpr, data: st.DataObject) -> None:
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
def test_rules_together_are_sound(jaxpr: Jaxpr, data: st.DataObject) -> None:
    args = data.draw(operands(jaxpr.in_avals))
    result = assert_pass_is_sound(lambda j: rewrite(j, [converted_flat, double_neg]), jaxpr, args)
    assert renumber(result) is result


# ------------------------------------------------------------------ long programs


def chain(n: int) -> Jaxpr:
    vs = [Var(i, F32) for i in range(n + 1)]
    prims = (Sin(), Cos(), Exp())
    eqns = tuple([Eqn(prims[i % 3], (vs[i],), (vs[i + 1],)) for i in range(n)])
    return Jaxpr((), (vs[0],), eqns, (vs[n],))


def test_rewriting_long_programs() -> None:
    jaxpr = chain(30_000)
    assert simplify(jaxpr) is jaxpr
    examined = 0

    def count(term: Apply) -> None:
        nonlocal examined
        examined += 1

    assert rewrite(jaxpr, [RewriteRule("count", count)]) is jaxpr
    assert examined == 30_000
    assert len(rewrite(jaxpr, [sin_to_cos]).eqns) == 30_000


def test_long_program_that_is_removed() -> None:
    vs = [Var(i, F32) for i in range(20_001)]
    jaxpr = Jaxpr((), (vs[0],), tuple([Eqn(Neg(), (vs[i],), (vs[i + 1],)) for i in range(20_000)]), (vs[-1],))
    assert rewrite(jaxpr, [double_neg]) == program("a:f32[]. let in (a,)")
