"""Costs of user-defined primitives, user-defined cost rules, and costs as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import pytest
from attrs import frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.primitives import SameTypes
from tracefx.extend import Expandable, Primitive, Value, bind1
from tracefx.handlers import COST_RULES, Cost, Costed, CostRules, OperationCost, count, count_jaxpr
from tracefx.handlers.cost_analysis.cost import format_si
from tracefx.handlers.cost_analysis.rules import Avals
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.elementwise.arithmetic import Mul
from tracefx.ops.elementwise.elementwise import NUMBERS, Add, Elementwise
from tracefx.programs import parse_jaxpr

X = fx.ShapeDtypeStruct((10,), "float32")


class SameType(SameTypes):
    """A unary primitive whose result has the type of its operand."""

    name = "alike"


class Fused(SameType, Costed):
    name = "fused"

    @override
    def cost(self, in_avals: Avals, out_avals: Avals) -> OperationCost:
        return OperationCost(flops=100 * out_avals[0].size, transcendentals=1, bytes_read=7)


@final
@frozen(eq=False)
class Wrong(SameType, Costed):
    @override
    def cost(self, in_avals: Avals, out_avals: Avals) -> OperationCost:
        return 3  # type: ignore[return-value]  # the point


@final
class Composed(SameType, Expandable):
    name = "composed"

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        (x,) = args
        y = fnp.cos(x)
        return [fnp.sin(y) * y + np.arange(10, dtype=np.float32)]


@final
class Forwarding(SameType, Expandable):
    name = "passing"

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return args


class Doubled(Elementwise):
    name = "doubled"
    domain = NUMBERS
    hlo = "none"


@final
class DoubledAndCosted(Doubled, Costed):
    @override
    def cost(self, in_avals: Avals, out_avals: Avals) -> OperationCost:
        return OperationCost(flops=1)


def test_cost_method_of_a_primitive() -> None:
    cost = count(lambda x: bind1(Fused(), x))(X)
    assert (cost.flops, cost.transcendentals) == (1000, 1)
    assert (cost.bytes_read, cost.bytes_written) == (7, 40)  # bytes_written has its default
    assert cost.peak_bytes == 80


def test_primitive_without_a_rule_moves_its_operands() -> None:
    cost = count(lambda x: bind1(SameType(), x))(X)
    assert (cost.flops, cost.transcendentals, cost.integer_ops) == (0, 0, 0)
    assert (cost.bytes_read, cost.bytes_written) == (40, 40)


def test_expandable_primitive_costs_as_its_expansion() -> None:
    cost = count(lambda x: bind1(Composed(), x))(X)
    assert (cost.flops, cost.transcendentals) == (20, 20)
    assert "composed" not in cost.by_operation
    assert cost.peak_bytes == 5 * 40  # the argument, the term to be added, and the product with its operands
    inside = count(lambda x: bind1(Composed(), fnp.exp(x)))(X)
    assert inside.peak_bytes == sum(h.nbytes for h in inside.peak.buffers) == 5 * 40
    assert "exp" not in inside.peak.by_operation  # its operand is freed by then
    passed = count(lambda x: (y := fnp.exp(x), z := bind1(Forwarding(), y), fnp.sin(y) + z * y)[2])(X)
    assert passed.peak_bytes == 4 * 40
    custom_rules = COST_RULES.adding(Composed, lambda prim, ins, outs: OperationCost(flops=1))
    with_custom_rule = count(lambda x: bind1(Composed(), x), rules=custom_rules)(X)
    assert (with_custom_rule.flops, with_custom_rule.peak_bytes) == (1, 80)


def test_rule_of_the_nearest_base_class_applies() -> None:
    def flops(prim: Primitive, rules: CostRules = COST_RULES) -> int:
        return count(lambda x: bind1(prim, x), rules=rules)(X).flops

    assert flops(Doubled()) == 10  # the rule of its base class
    assert flops(DoubledAndCosted()) == 1
    family = COST_RULES.adding(Doubled, lambda prim, ins, outs: OperationCost(flops=5))
    assert flops(Doubled(), family) == 5
    assert flops(DoubledAndCosted(), family) == 1
    assert flops(DoubledAndCosted(), family.adding(DoubledAndCosted, lambda p, i, o: OperationCost(flops=6))) == 6


class Cheaper(Fused):
    pass


class CheaperStill(Cheaper):
    pass


def test_rules_apply_to_subclasses() -> None:
    rules = COST_RULES.adding(Cheaper, lambda prim, ins, outs: OperationCost(flops=2))
    rule_flops = [count(lambda x, p=p: bind1(p, x), rules=rules)(X).flops for p in (Fused(), Cheaper(), CheaperStill())]
    assert rule_flops == [1000, 2, 2]


def test_user_defined_cost_rules() -> None:
    def multiplications(prim: DotGeneral, ins: Avals, outs: Avals) -> OperationCost:
        rule_flops = COST_RULES.rule_for(DotGeneral)
        assert rule_flops is not None
        return OperationCost(flops=rule_flops(prim, ins, outs).flops // 2)

    y = fx.ShapeDtypeStruct((10, 3), "float32")
    custom_rules = COST_RULES.adding(DotGeneral, multiplications).adding(Add, lambda add, ins, outs: OperationCost())
    assert count(lambda x, y: x @ y + 1, rules=custom_rules)(X, y).flops == 30
    assert count(lambda x, y: x @ y + 1)(X, y).flops == 63
    alone = CostRules().adding(Mul, lambda mul, ins, outs: OperationCost(flops=1))
    assert count(lambda x: fnp.sin(x * x), rules=alone)(X).flops == 1
    assert alone.rule_for(Add) is None
    assert repr(alone) == "<CostRules for Mul>"
    assert re.fullmatch(r"<CostRules for \w+, \w+, \w+, \d\d more>", repr(COST_RULES))


def test_invalid_cost_rules_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.cost must return an OperationCost, got 3"):
        count(lambda x: bind1(Wrong(), x))(X)
    with pytest.raises(TypeError, match="a cost rule needs a subclass of Primitive, got <class 'int'>"):
        CostRules().adding(int, lambda prim, ins, outs: OperationCost())  # type: ignore[type-var]  # the point


# ------------------------------------------------------------------ text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9994, "9.99 kB"),
        (9995, "10.0 kB"),
        (99_949, "99.9 kB"),
        (99_950, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (123_456_789, "123 MB"),
        (2 * 10**9, "2.00 GB"),
        (3 * 10**12, "3.00 TB"),
        (4 * 10**15, "4.00 PB"),
        (5 * 10**18, "5.00 EB"),
        (5 * 10**21, "5000.00 EB"),
    ],
)
def test_format_si(number: int, text: str) -> None:
    assert format_si(number, "B") == text


def program_cost() -> Cost:
    return count_jaxpr(
        parse_jaxpr(
            """{ lambda ; x:f32[20,30] y:f32[30,40]. let
                a:f32[20,40] = dot_general[dimension_numbers=(((1,), (0,)), ((), ()))] x y
                b:f32[20,40] = tanh a
                c:f32[20] = reduce_sum[axes=(1,)] b
                d:f32[20] = neg c
            in (d,) }"""
        )
    )


def test_costs_are_displayed_as_reports() -> None:
    cost = count(lambda x: fnp.sin(x * x))(X)
    assert repr(cost) == str(cost) == cost.report()


def test_full_text_of_a_report() -> None:
    assert str(program_cost()) == (
        """\
program: 48.8 kflop, 800 transcendentals, 0 integer ops
13.7 kB read, 6.56 kB written: 2.41 flop/B
13.6 kB at the peak in tanh: arguments 7.20 kB, constants 0 B, results 80 B

operation    runs   flops    share  transcend.  int ops     read  written  at peak
dot_general     1  48.0 k   98.4 %           0        0  7.20 kB  3.20 kB  3.20 kB
tanh            1       0    0.0 %         800        0  3.20 kB  3.20 kB  3.20 kB
reduce_sum      1     780    1.6 %           0        0  3.20 kB     80 B
neg             1      20    0.0 %           0        0     80 B     80 B
argument                                                                   7.20 kB

line         runs   flops    share  transcend.  int ops     read  written  at peak
(no line)       4  48.8 k  100.0 %         800        0  13.7 kB  6.56 kB  13.6 kB"""
    )


def test_short_report_sums_the_remaining_rows() -> None:
    lines = program_cost().report(1).splitlines()
    assert lines[5].split()[:2] == ["dot_general", "1"]
    assert " ".join(lines[6].split()) == "(4 more) 3 800 1.6 % 800 0 6.48 kB 3.36 kB 10.4 kB"


def test_files_with_the_same_name_are_distinguished() -> None:
    namespace: dict[str, Any] = {}
    for folder in ("a", "b"):
        exec(compile(f"def {folder}(x): return x + 1", f"/{folder}/same.py", "exec"), namespace)
    f, g = namespace["a"], namespace["b"]
    text = str(count(lambda x: f(g(x)))(X))
    assert "\nsame.py:1 (a) " in text
    g.__code__ = g.__code__.replace(co_qualname="a")
    text = str(count(lambda x: f(g(x)))(X))
    assert "\n/a/same.py:1 (a) " in text
    assert "\n/b/same.py:1 (a) " in text


def test_report_lists_named_scopes() -> None:
    def f(x: Any) -> Any:
        with fx.named_scope("outer"), fx.named_scope("inner"):
            return fnp.sin(x)

    text = str(count(f)(X))
    assert "\nscope " in text
    assert "\nouter/inner " in text
    assert "\nscope " not in str(program_cost())
