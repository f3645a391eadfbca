"""Peak live memory, against peaks found by hand, and what must be true of every program's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attrs import frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks.compiled import EVERYDAY, Case, models
from benchmarks.libraries import OURS
from tests.control.models import MODELS
from tracefx import lax
from tracefx.core.jaxpr import Jaxpr
from tracefx.extend import Builder, HasSubjaxprs, IrValue, Lowerable, Primitive, ShapedArray, bind1
from tracefx.handlers import Cost, LiveBuffer, count, count_jaxpr
from tracefx.programs import parse_jaxpr

Struct = fx.ShapeDtypeStruct
CASES = {case.name: case for case in (*models(2), *EVERYDAY)}


def f32(*shape: int) -> Any:
    return Struct(shape, np.float32)


def held(cost: Cost) -> dict[str, int]:
    return dict(cost.peak.by_operation)


def peak(f: Callable[..., Any], *args: Any) -> int:
    """In arrays of 10 floats."""
    nbytes = count(f)(*args).peak_bytes
    assert nbytes % 40 == 0
    return nbytes // 40


X = f32(10)

# ------------------------------------------------------------------ straight programs


def test_a_value_is_held_until_its_last_use() -> None:
    program = parse_jaxpr(
        """{ lambda ; x:f32[10]. let
            a:f32[10] = sin x
            b:f32[10] = cos a
            c:f32[10] = mul a b
            d:f32[10] = neg c
        in (d,) }"""
    )
    cost = count_jaxpr(program)
    assert cost.peak_bytes == 4 * 40  # the argument, and the product with its operands
    assert cost.peak.operation == "mul"
    assert held(cost) == {"argument": 40, "sin": 40, "cos": 40, "mul": 40}
    given = count_jaxpr(program, donated=[0])
    assert given.peak_bytes == 3 * 40
    assert held(given) == {"sin": 40, "cos": 40, "mul": 40}


def test_the_peak_says_what_is_held_and_where_it_was_made() -> None:
    def f(x: Any) -> Any:
        y = x[:, None] @ x[None]
        return fnp.sum(y * 2)

    cost = count(f)(X)
    first = f.__code__.co_firstlineno
    (product, doubled, *others) = cost.peak.buffers
    assert (product.aval, product.nbytes) == (ShapedArray((10, 10), np.dtype("float32")), 400)
    assert (product.operation, doubled.operation) == ("dot_general", "mul")
    assert product.line is not None
    assert doubled.line is not None
    assert (product.line.line - first, doubled.line.line - first) == (1, 2)
    assert others == [LiveBuffer(ShapedArray((10,), np.dtype("float32")), "argument", None)]
    assert str(product).startswith("f32[10,10] of dot_general at ")
    assert cost.peak.line == doubled.line
    assert cost.peak_bytes == 400 + 400 + 40


def test_arguments_stay_unless_they_are_donated() -> None:
    def f(x: Any) -> Any:
        return fnp.sin(fnp.cos(x))

    assert peak(f, X) == 3
    assert peak(fx.jit(f, donate_argnums=0), X) == 2
    # What a call inside is given is donated only if nobody reads it afterwards.
    assert peak(fx.jit(lambda x: fx.jit(f)(x), donate_argnums=0), X) == 2
    assert peak(fx.jit(lambda x: (fx.jit(f)(x), x), donate_argnums=0), X) == 3


def test_views_are_where_their_operands_are() -> None:
    assert peak(lambda x: x.reshape(2, 5) + 1, X) == 2
    assert peak(lambda x: fnp.sin(x).reshape(2, 5)[None] + 1, X) == 3
    assert peak(lambda x: lax.stop_gradient(fnp.sin(x)), X) == 2
    # A view keeps its operand's place, whoever else is done with it.
    assert peak(lambda x: fnp.sin(fnp.cos((y := fnp.sin(x)) * 2)) + y.reshape(10), X) == 4
    assert count(lambda x: x.reshape(2, 5))(X).peak_bytes == 40
    assert count(lambda x: x)(X).peak_bytes == 40
    assert count(lambda x: x)(X).peak.operation is None


def test_what_is_larger_than_its_operand_has_a_place_of_its_own() -> None:
    def f(x: Any) -> Any:
        y = fnp.sin(x)
        return fnp.broadcast_to(y, (4, 10)) * fnp.ones((4, 10))

    cost = count(f)(X)
    assert held(cost)["broadcast_in_dim"] == 2 * 160  # both operands of the product
    assert cost.peak_bytes == 40 + 3 * 160


def test_an_update_takes_the_place_of_what_nobody_needs() -> None:
    def updated(x: Any) -> Any:
        return lax.dynamic_update_slice(fnp.sin(x), x[:5], (0,))

    cost = count(updated)(X)
    assert cost.by_operation["slice"].bytes_written == 20
    assert cost.peak_bytes == 40 + 40 + 20
    assert peak(lambda x: lax.dynamic_update_slice(x, x, (0,)), X) == 2  # arguments are not written to
    updated_copy = count(lambda x: (y := fnp.sin(x)).at[0].set(1.0) + y)(X)
    assert held(updated_copy) == {"argument": 40, "constant": 4, "sin": 40, "scatter": 40, "add": 40}


def test_an_unused_argument_is_there_all_the_same() -> None:
    cost = count(lambda x, y: x + 1)(X, f32(100))
    assert cost.peak_bytes == 40 + 400 + 40
    assert peak(fx.jit(lambda x, y: x + 1, donate_argnums=1), X, X) == 3


def test_nothing_at_all() -> None:
    cost = count(lambda: 1.0)()
    assert (cost.peak_bytes, cost.peak.buffers, cost.peak.operation) == (0, (), None)
    assert cost.intensity == 0.0
    assert count(fnp.sin)(f32(0)).peak_bytes == 0


# ------------------------------------------------------------------ loops and branches


def test_a_scan_holds_its_carry_its_results_and_one_step() -> None:
    def f(x: Any, xs: Any) -> Any:
        return lax.scan(lambda c, x: (fnp.sin(c + x), c), x, xs)

    cost = count(f)(X, f32(7, 10))
    # The arguments; the carry, a slice of the array and the results. In a step: the sum beside both of its operands.
    # Then the old carry is still there, as it is a result, and the new one.
    assert cost.peak_bytes == 40 * (1 + 7 + 1 + 7 + 1 + 1)
    assert held(cost)["scan"] == 40 * (1 + 7 + 1)
    assert held(cost)["argument"] == 40 * 8
    assert cost.peak.operation == "add"
    # A carry that is not an argument is in the place of the value that the loop begins with.
    after = count(lambda x, xs: f(fnp.cos(x), xs))(X, f32(7, 10))
    assert after.peak_bytes == cost.peak_bytes
    assert held(after)["cos"] == 40
    assert held(after)["scan"] == 40 * 8
    assert count(f)(X, f32(0, 10)).peak_bytes == 40 * 2


def test_steps_let_go_of_the_carry() -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, _: (fnp.sin(fnp.sin(fnp.sin(c))), None), fnp.cos(x), None, length=9)[0]

    assert peak(f, X) == 3  # the argument, an operand and a result


def test_a_while_loop_holds_what_its_condition_or_its_body_does() -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 1, lambda c: c + 1, fnp.cos(x))

    assert peak(f, X) == 3

    def asking(x: Any) -> Any:
        return lax.while_loop(lambda c: fnp.sum(fnp.outer(c, c)) < 1, lambda c: c + 1, fnp.cos(x))

    cost = count(asking)(X)
    assert cost.peak.operation == "mul"
    assert cost.peak_bytes > 400


def test_a_branch_holds_what_the_largest_of_them_does() -> None:
    def f(p: Any, x: Any) -> Any:
        return lax.cond(p, lambda x: fnp.sin(fnp.cos(x)), lambda x: x, x)

    cost = count(f)(Struct((), bool), X)
    assert cost.peak_bytes == 1 + 4 + 3 * 40  # the predicate, and the index it becomes
    copied = count(lambda p, x: lax.cond(p, lambda x: x, lambda x: x, x))(Struct((), bool), X)
    assert copied.peak_bytes == 1 + 4 + 2 * 40
    both = count(lambda p, x: lax.cond(p, lambda y: (y, y), lambda y: (-y, y), fnp.sin(x)))(Struct((), bool), X)
    assert both.peak_bytes == 1 + 4 + 4 * 40  # results have places of their own
    assert held(both)["cond"] + held(both).get("neg", 0) == 80


def adds_up(cost: Cost) -> int:
    """The peak, if it is what the values that are held come to."""
    assert sum(h.nbytes for h in cost.peak.buffers) == cost.peak_bytes
    return cost.peak_bytes


def squares(x: Any) -> Any:
    """Holds most when its operand is gone: a matrix, and the two rows it is made of."""
    y = fnp.sin(x)
    return fnp.sum((y[:, None] * 2) @ (y[None] * 3))


def test_operands_that_are_gone_by_the_peak_are_not_held() -> None:
    most = 40 + 400 + 2 * 40
    assert adds_up(count(lambda x: squares(fnp.cos(x)))(X)) == most
    called = count(lambda x: fx.jit(squares)(fnp.cos(x)))(X)
    assert adds_up(called) == most
    assert "cos" not in held(called)

    def looping(x: Any, limit: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < limit, lambda c: c + squares(c), x)

    adds_up(count(looping)(X, 2.0))
    adds_up(count(fx.jit(looping, donate_argnums=0))(X, 2.0))
    forgetting = lambda x, limit: lax.while_loop(  # noqa: E731
        lambda c: c[0] < limit, lambda c: fnp.full(10, squares(c)), x
    )
    alone = adds_up(count(forgetting)(X, 2.0))
    assert alone == most + 4  # the limit; of the carry that the loop begins with, nothing is left
    branching = count(lambda p, x: lax.cond(p, squares, fnp.sum, fnp.cos(x)))(Struct((), bool), X)
    assert adds_up(branching) == most + 1 + 4
    assert "cos" not in held(branching)


def test_an_operand_that_is_given_twice_stays() -> None:
    def both(a: Any, b: Any) -> Any:
        return fnp.sin(a) + fnp.cos(b)

    cost = count(lambda x: (y := fnp.exp(x), fx.jit(both)(y, y))[1])(X)
    assert adds_up(cost) == 5 * 40


def test_what_a_call_hands_on_stays_where_it_is() -> None:
    @fx.jit
    def handing_on(x: Any) -> Any:
        return x, x * 2

    def f(x: Any) -> Any:
        y = fnp.cos(x)
        same, double = handing_on(y)
        return fnp.sin(double) * y + same

    assert adds_up(count(f)(X)) == 4 * 40  # the argument, a product of two, one of which is what was handed on


def test_what_a_scan_gives_has_places_of_its_own() -> None:
    def f(x: Any, xs: Any) -> Any:
        c, ys = lax.scan(lambda c, x: (c + x, c), x, xs)
        return (c[:, None] @ c[None]).sum() + ys.sum()

    cost = count(f)(X, f32(3, 10))
    assert held(cost)["scan"] == 40 + 120
    assert adds_up(cost) == 40 + 120 + 40 + 120 + 400


# ------------------------------------------------------------------ what others write


@frozen(eq=False)
class Both(Primitive, HasSubjaxprs, Lowerable):
    """Runs two programs on its operand and gives one of the results."""

    name = "both"
    bodies: tuple[Jaxpr, ...]

    @override
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        return self.bodies

    @override
    def with_jaxprs(self, *jaxprs: Jaxpr) -> Both:
        return Both(jaxprs)

    @override
    def abstract_eval(self, *avals: ShapedArray) -> list[ShapedArray]:
        return [avals[0]]

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> list[IrValue]:
        raise NotImplementedError


def test_the_programs_of_an_operation_of_others_are_counted_once_each() -> None:
    bodies = tuple([fx.make_jaxpr(f)(X).jaxpr for f in (fnp.sin, lambda x: fnp.cos(fnp.cos(x) + x))])
    cost = count(lambda x: bind1(Both(bodies), x))(X)
    assert (cost.flops, cost.transcendentals) == (10, 30)
    assert cost.peak_bytes == 40 * (2 + 2)


# ------------------------------------------------------------------ every program


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_everyday_programs(case: Case) -> None:
    whole(case.function_of(OURS), case.arguments)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_models(model: Callable[..., Any]) -> None:
    loss, params, example = model(fx, fnp)
    whole(fx.grad(loss, allow_int=True), (params, example))


def whole(f: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """The tables add up, values at the peak do, and `jit` changes nothing."""
    cost = count(f)(*args)
    for field in ("runs", "flops", "transcendentals", "integer_ops", "bytes_read", "bytes_written"):
        sums = {sum(getattr(row, field) for row in rows.values()) for rows in (cost.by_operation, cost.by_line)}
        assert sums == {getattr(cost.total, field)}
    assert sum(h.nbytes for h in cost.peak.buffers) == cost.peak_bytes
    assert sum(cost.peak.by_line.values()) == sum(cost.peak.by_operation.values()) == cost.peak_bytes
    assert cost.peak_bytes >= cost.argument_bytes + cost.constant_bytes
    inside = count(lambda *xs: fx.jit(f)(*xs))(*args)
    assert inside.total == cost.total
    assert inside.by_operation == cost.by_operation
    assert inside.peak_bytes == cost.peak_bytes
    assert str(cost).count("\n") > 5
