"""The jaxprs of transformed scans contain no repeated or unnecessary work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_agree
from tests.control.transform_checks import normal
from tests.jaxprs import primitive_names
from tracefx.control.scan import Scan
from tracefx.core.jaxpr import Eqn, Jaxpr
from tracefx.passes.dce import dce

W: Final = normal(4, 4)
H: Final = normal(4)
XS: Final = normal(3, 4)


def program(f: Callable[..., Any], *args: Any) -> Jaxpr:
    return dce(fx.make_jaxpr(f)(*args).jaxpr)


def scans(jaxpr: Jaxpr) -> list[tuple[Eqn, Scan]]:
    return [(eqn, eqn.prim) for eqn in jaxpr.eqns if isinstance(eqn.prim, Scan)]


def shapes(op: Scan) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Returns the shapes of the constants, the carries and the slices."""
    consts, carry, slices = op.split_operands(op.jaxpr.in_avals)
    return [a.shape for a in consts], [a.shape for a in carry], [a.shape for a in slices]


def rnn(w: Any, h: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = fnp.tanh(h @ w + x)
        return h, h * x

    h, ys = fx.lax.scan(step, h, xs)
    return h.sum() + ys.sum()


# ------------------------------------------------------------------ reverse mode


def test_backward_scan_does_not_recompute_the_forward_steps() -> None:
    gradient = program(fx.value_and_grad(rnn, (0, 1, 2)), W, H, XS)
    assert primitive_names(gradient).count("tanh") == 1
    assert (
        primitive_names(gradient).count("dot_general") == 3
    )  # in the forward pass, the backward pass, and for the weight's cotangent
    (first, _), (last, backwards) = scans(gradient)
    assert backwards.reverse
    assert "tanh" not in primitive_names(backwards.jaxpr)
    assert gradient.eqns.index(first) < gradient.eqns.index(last)


def test_weight_cotangent_is_contracted_after_the_loop() -> None:
    gradient = program(fx.grad(rnn), W, H, XS)
    (_, _), (loop, backwards) = scans(gradient)
    assert shapes(backwards)[1] == [(4,)]  # only the cotangent of the state, no sum for the weight
    after = gradient.eqns[gradient.eqns.index(loop) + 1 :]
    (contraction,) = [eqn for eqn in after if eqn.prim.name == "dot_general"]
    assert contraction.outs[0].aval.shape == (4, 4)
    assert all(x.aval.shape == (3, 4) for x in contraction.inputs)


def test_weight_cotangent_of_batched_states_is_contracted_after_the_loop() -> None:
    gradient = program(fx.grad(rnn), W, normal(2, 4), normal(3, 2, 4))
    (_, _), (loop, backwards) = scans(gradient)
    assert shapes(backwards)[1] == [(2, 4)]
    assert "dot_general" in [eqn.prim.name for eqn in gradient.eqns[gradient.eqns.index(loop) :]]


def packed(np_: Any, w: Any, h: Any, x: Any) -> Any:
    return np_.tanh(h @ w[:4] + x @ w[4:8])


def in_gates(np_: Any, w: Any, h: Any, x: Any) -> Any:
    a, b = np_.split(w[:4], 2, 1)
    return np_.concatenate([np_.tanh(h @ a), np_.sin(h @ b)], -1) + x


def with_a_bias(np_: Any, w: Any, h: Any, x: Any) -> Any:
    return np_.tanh(h @ w[1:5] + x * w[0])


@pytest.mark.parametrize("layer", [packed, in_gates, with_a_bias])
def test_cotangents_of_weight_slices_are_contracted_after_the_loop(layer: Callable[..., Any]) -> None:
    def gradient_function(lib: Any, np_: Any) -> Any:
        def loss(w: Any, h: Any, xs: Any) -> Any:
            return lib.lax.scan(lambda h, x: (layer(np_, w, h, x), None), h, xs)[0].sum()

        return lib.grad(loss)

    args = normal(8, 4), normal(2, 4), normal(3, 2, 4)
    loop, backwards = scans(program(gradient_function(fx, fnp), *args))[-1]
    assert shapes(backwards)[1] == [(2, 4)]
    assert all(aval.shape[1:] != (8, 4) for aval in [out.aval for out in loop.outs])
    assert_agree(lambda lib, np_: (gradient_function(lib, np_)(*args), lib.jit(gradient_function(lib, np_))(*args)))


def test_cotangents_without_contraction_are_summed_in_the_loop() -> None:
    def f(b: Any) -> Any:
        return fx.lax.scan(lambda h, x: (fnp.sin(h * b), None), H, XS)[0].sum()

    (_, backwards) = scans(program(fx.grad(f), H))[-1]
    assert shapes(backwards)[1] == [(4,), (4,)]


def test_loop_invariant_values_are_computed_once() -> None:
    def f(w: Any, h: Any) -> Any:
        return fx.lax.scan(lambda h, x: (h * fnp.exp(fnp.sin(w)) + x, None), h, XS)[0].sum()

    gradient = program(fx.grad(f, (0, 1)), H, H)
    for _, loop in scans(gradient)[1:]:
        assert not {"sin", "cos", "exp"} & set(primitive_names(loop.jaxpr))
    (_, first), _ = scans(gradient)
    assert primitive_names(first.jaxpr).count("cos") == 0
    # Each step saves its incoming state, and nothing that is loop-invariant.
    assert [a.shape for a in first.jaxpr.out_avals[first.num_carry :]] == [(4,)]
    assert primitive_names(gradient).count("cos") == 1


def test_xs_and_outputs_are_reused_as_residuals() -> None:
    """The backward pass reads `xs` and the stacked outputs themselves instead of copies saved as residuals."""

    def f(h: Any, xs: Any) -> Any:
        return fx.lax.scan(lambda h, x: (h * x, fnp.exp(x)), h, xs)

    def loss(h: Any, xs: Any) -> Any:
        h, ys = f(h, xs)
        return h.sum() + ys.sum()

    gradient = program(fx.grad(loss, (0, 1)), H, XS)
    (_, first), (last, _) = scans(gradient)
    assert len(first.jaxpr.outs) - first.num_carry == 2  # exp(x) and the incoming state
    assert gradient.invars[1] in last.inputs


def test_cheap_arithmetic_on_residuals_is_recomputed_instead_of_saved() -> None:
    def f(h: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            gate = 1 / (1 + fnp.exp(-(h + x)))
            return h * gate + (1 - gate) * x, None

        return fx.lax.scan(step, h, xs)[0].sum()

    gradient = program(fx.grad(f), H, XS)
    (_, first), (_, backwards) = scans(gradient)
    assert len(first.jaxpr.outs) - first.num_carry == 2  # the exponential and the incoming state
    assert primitive_names(gradient).count("exp") == 1
    assert "div" in primitive_names(backwards.jaxpr)


def test_linear_part_does_not_carry_counters() -> None:
    def f(h: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            n, known, h = c
            return (n + 1, fnp.sin(known), h * known * n), x

        return fx.lax.scan(step, (0, fnp.asarray(H), h), XS)[0]

    value, push = fx.linearize(f, H)
    assert int(value[0]) == 3
    linear = program(push, H)
    (_, loop) = scans(linear)[0]
    assert shapes(loop)[1] == [(4,)]
    assert "sin" not in primitive_names(linear)

    def last(h: Any) -> Any:
        return f(h)[2].sum()

    gradient = program(fx.grad(last), H)
    assert shapes(scans(gradient)[-1][1])[1] == [(4,)]


def test_only_requested_arguments_are_differentiated() -> None:
    def f(a: Any, b: Any) -> Any:
        return fx.lax.scan(lambda c, x: ((fnp.sin(c[0]) + x, fnp.exp(c[1])), None), (a, b), XS)[0]

    def first(a: Any) -> Any:
        return f(a, a)[0].sum()

    gradient = program(fx.grad(first), H)
    assert "exp" not in primitive_names(gradient)
    pushed = program(lambda a: fx.jvp(lambda a: f(a, H), (a,), (a,)), H)
    (_, loop) = scans(pushed)[0]
    assert len(shapes(loop)[1]) == 3  # two states and one tangent


# ------------------------------------------------------------------ dead-code elimination


def test_dce_removes_unused_results_carries_and_operands() -> None:
    def f(h: Any, xs: Any, unused: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            a, b, chain = c
            return (fnp.sin(a), fnp.cos(b) + a, chain * a), (fnp.exp(x[0]), x[1] + unused, fnp.tanh(b))

        return fx.lax.scan(step, (h, h, h), (xs, xs))

    (_, loop) = scans(program(lambda *args: f(*args)[0][2], H, XS, H))[0]
    assert sorted(primitive_names(loop.jaxpr)) == ["mul", "sin"]
    assert shapes(loop) == ([], [(4,), (4,)], [])
    (_, loop) = scans(program(lambda *args: f(*args)[1][0], H, XS, H))[0]
    assert primitive_names(loop.jaxpr) == ["exp"]
    assert shapes(loop) == ([], [], [(4,)])
    assert not scans(program(lambda *args: (f(*args), args[0])[1], H, XS, H))


def test_dce_in_nested_bodies() -> None:
    def f(h: Any) -> Any:
        def outer(c: Any, x: Any) -> Any:
            (a, _), ys = fx.lax.scan(lambda d, y: ((d[0] * y, fnp.sin(d[1])), fnp.exp(y)), (c, c), XS)
            return a, ys

        return fx.lax.scan(outer, h, XS)[0]

    assert not {"sin", "exp"} & set(primitive_names(program(f, H)))


# ------------------------------------------------------------------ batches


def test_vmap_batches_only_batched_carries_and_outputs() -> None:
    def f(h: Any, w: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            n, a, h = c
            return (n + 1, fnp.sin(a), h * a * n), (x, h)

        return fx.lax.scan(step, (0, w, h), XS)

    batch = fx.make_jaxpr(fx.vmap(f, (0, None), out_axes=((None, None, 0), (None, 0))))(normal(2, 4), H).jaxpr
    (_, loop) = scans(batch)[0]
    assert shapes(loop) == ([], [(), (4,), (2, 4)], [(4,)])
    assert [a.shape for a in loop.jaxpr.out_avals] == [(), (4,), (2, 4), (4,), (2, 4)]


def test_carries_that_become_batched_are_batched_from_the_start() -> None:
    def f(k: Any) -> Any:
        return fx.lax.scan(lambda c, x: ((c[1], c[2], c[2] * k), None), (1.0, 2.0, 3.0), None, length=3)[0]

    batch = fx.make_jaxpr(fx.vmap(f))(H).jaxpr
    (_, loop) = scans(batch)[0]
    assert shapes(loop)[1] == [(4,), (4,), (4,)]


# ------------------------------------------------------------------ equality and printing


@pytest.mark.parametrize("option", [{"reverse": True}, {"unroll": 2}, {"checkpoint": 2}, {"length": 3}])
def test_jaxpr_equality(option: dict[str, Any]) -> None:
    def make_jaxpr(**options: Any) -> Jaxpr:
        return fx.make_jaxpr(lambda h: fx.lax.scan(lambda c, x: (c * x, c), h, XS, **options))(H).jaxpr

    assert make_jaxpr() == make_jaxpr()
    assert make_jaxpr(**option) == make_jaxpr(**option)
    assert (make_jaxpr() == make_jaxpr(**option)) == ("length" in option)
    assert hash(scans(make_jaxpr())[0][1]) == hash(scans(make_jaxpr())[0][1])


def test_printed_jaxprs_parse() -> None:
    text = str(fx.make_jaxpr(fx.grad(rnn))(W, H, XS).jaxpr)
    assert "reverse=True" in text
    assert str(fx.programs.parse_jaxpr(text)) == text
