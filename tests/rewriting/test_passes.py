"""Properties of every pass: it keeps values, types and effects, also in bodies, and is idempotent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tests.laws.examples import limit_examples
from tests.rewriting.evaluation import Pass, assert_pass_is_sound, results
from tests.rewriting.peepholes import WRAPPERS, operands, peepholes
from tracefx.core import Value, dtypes, from_numpy
from tracefx.core.jaxpr import ClosedJaxpr, Jaxpr
from tracefx.passes.check import check_jaxpr
from tracefx.passes.cse import cse
from tracefx.passes.dce import dce
from tracefx.programs import parse_jaxpr
from tracefx.rewriting import (
    EXACT_RULES,
    FAST_MATH_RULES,
    canonicalize_jaxpr,
    fold_constants,
    hoist_loop_invariants,
    inline,
    optimize,
    rewrite,
    simplify,
)
from tracefx.testing.generated_programs import TransformedProgram
from tracefx.testing.strategies import transformed_control_flow_programs, transformed_programs


def inline_all(jaxpr: Jaxpr) -> Jaxpr:
    return inline(jaxpr, checkpoints=True, custom_rules=True)


def inline_small(jaxpr: Jaxpr) -> Jaxpr:
    return inline(jaxpr, max_eqns=3)


PASSES: Final[Sequence[Pass]] = (
    *(simplify, fold_constants, hoist_loop_invariants, inline, inline_all, inline_small, optimize),
    *(canonicalize_jaxpr, cse, dce),
)
all_passes: Final = pytest.mark.parametrize("change", PASSES, ids=lambda p: p.__name__)


@all_passes
@limit_examples(15, at_length=800)
@given(jaxpr=peepholes(effects=True), data=st.data())
def test_pass_is_sound_on_peepholes(change: Pass, jaxpr: Jaxpr, data: st.DataObject) -> None:
    check_jaxpr(jaxpr)
    assert_pass_is_sound(change, jaxpr, data.draw(operands(jaxpr.in_avals)))


@all_passes
@limit_examples(6, at_length=240)
@given(jaxpr=peepholes(effects=True), wrap=st.sampled_from(WRAPPERS), data=st.data())
def test_pass_is_sound_in_bodies(change: Pass, jaxpr: Jaxpr, wrap: Any, data: st.DataObject) -> None:
    wrapped = wrap(jaxpr)
    check_jaxpr(wrapped)
    assert_pass_is_sound(change, wrapped, data.draw(operands(wrapped.in_avals)))


def program_of(case: TransformedProgram) -> tuple[Jaxpr, list[Value]]:
    args: list[Value] = [from_numpy(x, dtypes.float64) for x in case.inputs()]
    closed = fx.make_jaxpr(case.function(fx, fnp))(*args)
    return closed.jaxpr, [*closed.consts, *args]


@all_passes
@limit_examples(3, at_length=120)
@given(transformed_control_flow_programs())
def test_pass_is_sound_on_control_flow_programs(change: Pass, case: TransformedProgram) -> None:
    assert_pass_is_sound(change, *program_of(case))


@all_passes
@limit_examples(6)
@given(transformed_programs())
def test_pass_is_sound_on_transformed_programs(change: Pass, case: TransformedProgram) -> None:
    assert_pass_is_sound(change, *program_of(case))


@limit_examples(30)
@given(jaxpr=peepholes(), data=st.data())
def test_fast_math_keeps_types_and_terminates(jaxpr: Jaxpr, data: st.DataObject) -> None:
    assert_pass_is_sound(lambda j: simplify(j, fast_math=True), jaxpr, [], exact=False)
    assert_pass_is_sound(lambda j: optimize(j, fast_math=True), jaxpr, [], exact=False)


@limit_examples(15)
@given(transformed_programs())
def test_fast_math_is_approximately_right(case: TransformedProgram) -> None:
    jaxpr, args = program_of(case)
    new = assert_pass_is_sound(lambda j: simplify(j, fast_math=True), jaxpr, args, exact=False)
    assert_near(results(new, args)[0], results(jaxpr, args)[0])


@limit_examples(40)
@given(jaxpr=peepholes(), data=st.data())
def test_passes_on_closed_jaxprs(jaxpr: Jaxpr, data: st.DataObject) -> None:
    """All inputs but the last become constants."""
    values = data.draw(operands(jaxpr.in_avals))
    closed = ClosedJaxpr(Jaxpr(jaxpr.invars[:-1], jaxpr.invars[-1:], jaxpr.eqns, jaxpr.outs), tuple(values[:-1]))
    for change in (fold_constants, optimize, simplify, canonicalize_jaxpr):
        new = change(closed)
        check_jaxpr(new)
        assert (new.in_avals, new.out_avals) == (closed.in_avals, closed.out_avals)
        assert change(new) is new or change(new) == new
        got, _ = results(new.jaxpr, [*new.consts, values[-1]])
        assert_same(got, results(jaxpr, values)[0])


@pytest.mark.parametrize(
    ("wrong", "text", "numbers"),
    [
        ("add_zero", "add a 0.0:f32[]", [-0.0]),
        ("multiply_by_zero", "mul a 0.0:f32[]", [np.nan]),
        ("equal_numbers_cancel", "sub a a", [np.inf]),
        ("divide_by_itself", "div a a", [0.0]),
        ("divide_by_a_number", "div a 3.0:f32[]", [5.0]),
    ],
)
def test_soundness_check_detects_unsound_rule(wrong: str, text: str, numbers: list[float]) -> None:
    (unsound_rule,) = [r for r in FAST_MATH_RULES if r.name == wrong]
    jaxpr = parse_jaxpr(f"{{ lambda ; a:f32[1]. let b:f32[1] = {text} in (b,) }}")
    args: list[Value] = [from_numpy(np.array(numbers, np.float32))]
    assert_pass_is_sound(simplify, jaxpr, args)
    with pytest.raises(AssertionError, match="in place of"):
        assert_pass_is_sound(lambda j: rewrite(j, [unsound_rule]), jaxpr, args)


@limit_examples(3, at_length=120)
@given(transformed_control_flow_programs(max_layers=1))
def test_optimized_program_has_same_derivatives(case: TransformedProgram) -> None:
    jaxpr, args = program_of(case)
    arrays = [np.asarray(x) for x in args]

    def total(run: Any) -> Any:
        return lambda *xs: sum([fnp.sum(y) for y in run(*xs)])

    before, after = [fx.jaxpr_as_fun(ClosedJaxpr(j.closed(), ())) for j in (jaxpr, optimize(jaxpr))]
    float_argnums = tuple([i for i, x in enumerate(arrays) if np.issubdtype(x.dtype, np.floating)])
    got, want = [fx.jit(fx.grad(total(f), float_argnums))(*args) for f in (after, before)]
    assert_near(got, want)


def test_rule_names_are_unique() -> None:
    rules = EXACT_RULES + FAST_MATH_RULES
    assert len({rule.name for rule in rules}) == len(rules)


@limit_examples(40)
@given(jaxpr=peepholes(), data=st.data())
def test_each_rule_is_sound(jaxpr: Jaxpr, data: st.DataObject) -> None:
    drawn_rule = data.draw(st.sampled_from(EXACT_RULES))
    assert_pass_is_sound(lambda j: rewrite(j, [drawn_rule]), jaxpr, data.draw(operands(jaxpr.in_avals)))


@pytest.mark.parametrize(
    "change", [simplify, fold_constants, inline, hoist_loop_invariants, optimize, canonicalize_jaxpr]
)
def test_passes_refuse_functions(change: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"expected a program, as make_jaxpr\(f\)\(\*args\) gives, got <function"):
        change(fnp.sin)
