"""Peak live memory of `count`, compared with hand-computed peaks and checked for consistency on many programs."""

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


def live_bytes(cost: Cost) -> dict[str, int]:
    return dict(cost.peak.by_operation)


def peak(f: Callable[..., Any], *args: Any) -> int:
    """The peak in units of an array of 10 floats."""
    nbytes = count(f)(*args).peak_bytes
    assert nbytes % 40 == 0
    return nbytes // 40


X = f32(10)

# ------------------------------------------------------------------ straight-line programs


def test_values_are_live_until_their_last_use() -> None:
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
    assert live_bytes(cost) == {"argument": 40, "sin": 40, "cos": 40, "mul": 40}
    given = count_jaxpr(program, donated=[0])
    assert given.peak_bytes == 3 * 40
    assert live_bytes(given) == {"sin": 40, "cos": 40, "mul": 40}


def test_peak_lists_live_buffers_with_their_origin() -> None:
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


def test_arguments_stay_live_unless_donated() -> None:
    def f(x: Any) -> Any:
        return fnp.sin(fnp.cos(x))

    assert peak(f, X) == 3
    assert peak(fx.jit(f, donate_argnums=0), X) == 2
    # An argument of an inner call is donated only if it is not read afterwards.
    assert peak(fx.jit(lambda x: fx.jit(f)(x), donate_argnums=0), X) == 2
    assert peak(fx.jit(lambda x: (fx.jit(f)(x), x), donate_argnums=0), X) == 3


def test_views_share_the_buffer_of_their_operand() -> None:
    assert peak(lambda x: x.reshape(2, 5) + 1, X) == 2
    assert peak(lambda x: fnp.sin(x).reshape(2, 5)[None] + 1, X) == 3
    assert peak(lambda x: lax.stop_gradient(fnp.sin(x)), X) == 2
    # A view keeps the buffer of its operand alive.
    assert peak(lambda x: fnp.sin(fnp.cos((y := fnp.sin(x)) * 2)) + y.reshape(10), X) == 4
    assert count(lambda x: x.reshape(2, 5))(X).peak_bytes == 40
    assert count(lambda x: x)(X).peak_bytes == 40
    assert count(lambda x: x)(X).peak.operation is None


def test_broadcast_results_have_a_buffer() -> None:
    def f(x: Any) -> Any:
        y = fnp.sin(x)
        return fnp.broadcast_to(y, (4, 10)) * fnp.ones((4, 10))

    cost = count(f)(X)
    assert live_bytes(cost)["broadcast_in_dim"] == 2 * 160  # both operands of the product
    assert cost.peak_bytes == 40 + 3 * 160


def test_updates_reuse_dead_buffers() -> None:
    cost = count(lambda x: lax.dynamic_update_slice(fnp.sin(x), x[:5], (0,)))(X)
    assert cost.by_operation["slice"].bytes_written == 20
    assert cost.peak_bytes == 40 + 40 + 20
    assert peak(lambda x: lax.dynamic_update_slice(x, x, (0,)), X) == 2  # arguments are not overwritten
    updated_copy = count(lambda x: (y := fnp.sin(x)).at[0].set(1.0) + y)(X)
    assert live_bytes(updated_copy) == {"argument": 40, "constant": 4, "sin": 40, "scatter": 40, "add": 40}


def test_unused_arguments_are_counted() -> None:
    cost = count(lambda x, y: x + 1)(X, f32(100))
    assert cost.peak_bytes == 40 + 400 + 40
    assert peak(fx.jit(lambda x, y: x + 1, donate_argnums=1), X, X) == 3


def test_programs_without_arrays_have_no_peak() -> None:
    cost = count(lambda: 1.0)()
    assert (cost.peak_bytes, cost.peak.buffers, cost.peak.operation) == (0, (), None)
    assert cost.intensity == 0.0
    assert count(fnp.sin)(f32(0)).peak_bytes == 0


# ------------------------------------------------------------------ loops and branches


def test_peak_of_a_scan() -> None:
    def f(x: Any, xs: Any) -> Any:
        return lax.scan(lambda c, x: (fnp.sin(c + x), c), x, xs)

    cost = count(f)(X, f32(7, 10))
    # The arguments; the carry, one slice and the stacked results. In a step: the sum and both of its operands.
    # The old carry stays live because it is a result; the new one is added.
    assert cost.peak_bytes == 40 * (1 + 7 + 1 + 7 + 1 + 1)
    assert live_bytes(cost)["scan"] == 40 * (1 + 7 + 1)
    assert live_bytes(cost)["argument"] == 40 * 8
    assert cost.peak.operation == "add"
    # A carry that is not an argument reuses the buffer of its initial value.
    after = count(lambda x, xs: f(fnp.cos(x), xs))(X, f32(7, 10))
    assert after.peak_bytes == cost.peak_bytes
    assert live_bytes(after)["cos"] == 40
    assert live_bytes(after)["scan"] == 40 * 8
    assert count(f)(X, f32(0, 10)).peak_bytes == 40 * 2


def test_scan_steps_free_the_old_carry() -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, _: (fnp.sin(fnp.sin(fnp.sin(c))), None), fnp.cos(x), None, length=9)[0]

    assert peak(f, X) == 3  # the argument, an operand and a result


def test_peak_of_a_while_loop_is_in_its_condition_or_body() -> None:
    assert peak(lambda x: lax.while_loop(lambda c: c[0] < 1, lambda c: c + 1, fnp.cos(x)), X) == 3

    def with_large_condition(x: Any) -> Any:
        return lax.while_loop(lambda c: fnp.sum(fnp.outer(c, c)) < 1, lambda c: c + 1, fnp.cos(x))

    cost = count(with_large_condition)(X)
    assert cost.peak.operation == "mul"
    assert cost.peak_bytes > 400


def test_peak_of_a_cond_is_that_of_its_largest_branch() -> None:
    cost = count(lambda p, x: lax.cond(p, lambda x: fnp.sin(fnp.cos(x)), lambda x: x, x))(Struct((), bool), X)
    assert cost.peak_bytes == 1 + 4 + 3 * 40  # the predicate, and the index it is converted to
    copied = count(lambda p, x: lax.cond(p, lambda x: x, lambda x: x, x))(Struct((), bool), X)
    assert copied.peak_bytes == 1 + 4 + 2 * 40
    both = count(lambda p, x: lax.cond(p, lambda y: (y, y), lambda y: (-y, y), fnp.sin(x)))(Struct((), bool), X)
    assert both.peak_bytes == 1 + 4 + 4 * 40  # results have separate buffers
    assert live_bytes(both)["cond"] + live_bytes(both).get("neg", 0) == 80


def checked_peak(cost: Cost) -> int:
    """Returns the peak after checking that it is the sum of the live buffers."""
    assert sum(h.nbytes for h in cost.peak.buffers) == cost.peak_bytes
    return cost.peak_bytes


def squares(x: Any) -> Any:
    """Reaches its peak after its operand is freed: a matrix and the two rows it is made of."""
    y = fnp.sin(x)
    return fnp.sum((y[:, None] * 2) @ (y[None] * 3))


def test_operands_freed_before_the_peak_are_not_counted() -> None:
    expected_peak = 40 + 400 + 2 * 40
    assert checked_peak(count(lambda x: squares(fnp.cos(x)))(X)) == expected_peak
    called = count(lambda x: fx.jit(squares)(fnp.cos(x)))(X)
    assert checked_peak(called) == expected_peak
    assert "cos" not in live_bytes(called)

    def loop_of_squares(x: Any, limit: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < limit, lambda c: c + squares(c), x)

    checked_peak(count(loop_of_squares)(X, 2.0))
    checked_peak(count(fx.jit(loop_of_squares, donate_argnums=0))(X, 2.0))
    overwriting = lambda x, limit: lax.while_loop(  # noqa: E731
        lambda c: c[0] < limit, lambda c: fnp.full(10, squares(c)), x
    )
    overwriting_peak = checked_peak(count(overwriting)(X, 2.0))
    assert overwriting_peak == expected_peak + 4  # the limit; the initial carry is freed
    branching = count(lambda p, x: lax.cond(p, squares, fnp.sum, fnp.cos(x)))(Struct((), bool), X)
    assert checked_peak(branching) == expected_peak + 1 + 4
    assert "cos" not in live_bytes(branching)


def test_operand_passed_twice_is_counted_once() -> None:
    def both(a: Any, b: Any) -> Any:
        return fnp.sin(a) + fnp.cos(b)

    cost = count(lambda x: (y := fnp.exp(x), fx.jit(both)(y, y))[1])(X)
    assert checked_peak(cost) == 5 * 40


def test_values_forwarded_by_a_call_keep_their_buffer() -> None:
    @fx.jit
    def forward_argument(x: Any) -> Any:
        return x, x * 2

    def f(x: Any) -> Any:
        y = fnp.cos(x)
        same, double = forward_argument(y)
        return fnp.sin(double) * y + same

    assert checked_peak(count(f)(X)) == 4 * 40  # the argument, a product and its two operands


def test_scan_results_have_buffers() -> None:
    def f(x: Any, xs: Any) -> Any:
        c, ys = lax.scan(lambda c, x: (c + x, c), x, xs)
        return (c[:, None] @ c[None]).sum() + ys.sum()

    cost = count(f)(X, f32(3, 10))
    assert live_bytes(cost)["scan"] == 40 + 120
    assert checked_peak(cost) == 40 + 120 + 40 + 120 + 400


# ------------------------------------------------------------------ user-defined primitives


@frozen(eq=False)
class Both(Primitive, HasSubjaxprs, Lowerable):
    """Runs two sub-jaxprs on its operand and returns one of the results."""

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


def test_bodies_of_a_user_defined_primitive_are_counted_once_each() -> None:
    bodies = tuple([fx.make_jaxpr(f)(X).jaxpr for f in (fnp.sin, lambda x: fnp.cos(fnp.cos(x) + x))])
    cost = count(lambda x: bind1(Both(bodies), x))(X)
    assert (cost.flops, cost.transcendentals) == (10, 30)
    assert cost.peak_bytes == 40 * (2 + 2)


# ------------------------------------------------------------------ invariants of all programs


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_invariants_of_everyday_programs(case: Case) -> None:
    check_invariants(case.function_of(OURS), case.arguments)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_invariants_of_model_gradients(model: Callable[..., Any]) -> None:
    loss, params, example = model(fx, fnp)
    check_invariants(fx.grad(loss, allow_int=True), (params, example))


def check_invariants(f: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Checks that the tables and the live buffers add up, and that `jit` does not change the cost."""
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
