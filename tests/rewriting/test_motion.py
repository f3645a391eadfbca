"""Constant folding, inlining, loop-invariant code motion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near, assert_same
from tests.rewriting.evaluation import assert_pass_is_sound, results
from tracefx.core import Value, from_numpy
from tracefx.core.jaxpr import ClosedJaxpr, HasSubjaxprs, Jaxpr
from tracefx.passes.check import check_jaxpr
from tracefx.programs import parse_jaxpr
from tracefx.rewriting import fold_constants, hoist_loop_invariants, inline, optimize

lax: Final = fx.lax
X: Final = from_numpy(np.array([0.5, -0.0, np.inf], np.float32))
K: Final = from_numpy(np.array([2.0, np.nan, -1.0], np.float32))


def trace(f: Any, *args: Any) -> Jaxpr:
    """Traces a function to a jaxpr whose constants are inputs."""
    return fx.make_jaxpr(f)(*args).jaxpr.closed()


def names(jaxpr: Jaxpr | ClosedJaxpr) -> list[str]:
    return [eqn.prim.name for eqn in jaxpr.eqns]


def body(jaxpr: Jaxpr | ClosedJaxpr, name: str, index: int = 0) -> Jaxpr:
    prim = next(eqn.prim for eqn in jaxpr.eqns if eqn.prim.name == name)
    assert isinstance(prim, HasSubjaxprs)
    return prim.jaxprs()[index]


def program(text: str) -> Jaxpr:
    return parse_jaxpr(f"{{ lambda ; {text} }}")


# ------------------------------------------------------------------ loops


def test_hoist_out_of_scan() -> None:
    def f(x: Any, k: Any) -> Any:
        return lax.scan(lambda c, r: (c * lax.sin(k) + r, lax.sin(k)), x, fnp.stack([x, k]))

    new = assert_pass_is_sound(hoist_loop_invariants, trace(f, X, K), [X, K])
    assert names(new) == ["stack", "sin", "sin", "scan"]
    assert names(body(new, "scan")) == ["mul", "add"]


def test_hoist_out_of_scan_of_length_zero() -> None:
    def f(x: Any, k: Any) -> Any:
        return lax.scan(lambda c, r: (c / k + r, k / r), x, fnp.zeros((0, 3), "float32"))

    new = assert_pass_is_sound(hoist_loop_invariants, trace(f, X, K), [X, K])
    jaxpr = trace(lambda x, k: lax.while_loop(lambda c: fnp.sum(c) > 1e9, lambda c: c + 1 / lax.sin(k), x), X, K)
    new = assert_pass_is_sound(hoist_loop_invariants, jaxpr, [K, X])
    assert names(new)[-1] == "while"
    assert len(new.eqns) > 1


def test_hoist_out_of_while_body_and_condition() -> None:
    def f(x: Any, k: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < fnp.sum(lax.exp(k)), lambda c: (c[0] + 1, c[1] * lax.cos(k)), (0.0, x))

    k = from_numpy(np.ones(3, np.float32))
    new = assert_pass_is_sound(hoist_loop_invariants, trace(f, X, k), [X, k])
    assert "exp" in names(new)
    assert "cos" in names(new)
    assert names(body(new, "while", 0)) == ["convert_element_type", "lt"]
    assert "cos" not in names(body(new, "while", 1))


def test_hoist_out_of_nested_loops() -> None:
    def f(x: Any, k: Any) -> Any:
        def outer(c: Any, _: Any) -> Any:
            return lax.scan(lambda d, _: (d * lax.sin(k) + lax.cos(c), None), x, None, length=2)[0], None

        return lax.scan(outer, x, None, length=2)[0]

    new = assert_pass_is_sound(hoist_loop_invariants, trace(f, X, K), [X, K])
    assert names(new) == ["sin", "scan"]
    assert names(body(new, "scan")) == ["cos", "scan"]
    assert names(body(body(new, "scan"), "scan")) == ["mul", "add"]


def test_unchanged_carry_is_invariant() -> None:
    def f(x: Any, k: Any) -> Any:
        return lax.scan(lambda c, _: ((c[0] * lax.sin(c[1]), c[1]), None), (x, k), None, length=3)[0]

    assert "sin" in names(assert_pass_is_sound(hoist_loop_invariants, trace(f, X, K), [X, K]))

    def g(x: Any, k: Any) -> Any:
        return lax.while_loop(lambda c: fnp.max(c[0]) < lax.exp(c[1]), lambda c: (c[0] + 1, c[1]), (x, k))

    zero, one = [from_numpy(np.array(n, np.float32)) for n in (0, 1)]
    assert "exp" in names(assert_pass_is_sound(hoist_loop_invariants, trace(g, zero, one), [zero, one]))


def test_invariant_cond_is_hoisted_whole() -> None:
    def f(x: Any, k: Any, p: Any) -> Any:
        return lax.scan(lambda c, _: (c * lax.cond(p > 0, lax.sin, lax.cos, k), None), x, None, length=2)[0]

    one = from_numpy(np.array(1, np.float32))
    new = assert_pass_is_sound(hoist_loop_invariants, trace(f, X, K, one), [X, K, one])
    assert "cond" in names(new)
    assert names(body(new, "scan")) == ["mul"]


def test_unused_operands_do_not_prevent_hoisting() -> None:
    def f(x: Any, k: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return c * lax.cond(k[0] > 0, lambda k, c: lax.sin(k), lambda k, c: lax.cos(k), k, c), None

        return lax.scan(step, x, None, length=2)[0]

    assert "cond" in names(assert_pass_is_sound(hoist_loop_invariants, trace(f, X, K), [X, K]))


def test_effects_stay() -> None:
    def shown(x: Any, k: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            fx.debug.print("{}", lax.sin(k))
            return c + 1, None

        return lax.scan(step, x, None, length=2)[0]

    new = assert_pass_is_sound(hoist_loop_invariants, trace(shown, X, K), [X, K])
    assert names(new) == ["sin", "scan"]
    assert "debug_print" in names(body(new, "scan"))


def test_cheap_operations_are_hoisted_only_with_expensive_ones() -> None:
    k = from_numpy(np.array(2, np.float32))
    broadcast = lambda x, k: lax.scan(lambda c, _: (c + fnp.broadcast_to(k, (3,)), None), x, None, length=2)[0]  # noqa: E731
    jaxpr = trace(broadcast, X, k)
    assert hoist_loop_invariants(jaxpr) is jaxpr

    def f(x: Any, k: Any) -> Any:
        return lax.scan(lambda c, _: (c + lax.sin(fnp.broadcast_to(k, (3,))), None), x, None, length=2)[0]

    new = assert_pass_is_sound(hoist_loop_invariants, trace(f, X, k), [X, k])
    assert names(new) == ["broadcast_in_dim", "sin", "scan"]
    assert names(body(new, "scan")) == ["add"]


STEPS_THAT_STAY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "equations in branches": lambda c, k: lax.cond(c[0] > 0, lambda c: c * lax.sin(k), lambda c: c + 1, c),
    "callbacks": lambda c, k: c + fx.pure_callback(np.sin, fx.ShapeDtypeStruct((3,), "float32"), k),
    "possibly infinite loops": lambda c, k: (
        c + fx.jit(lambda k: lax.while_loop(lambda y: y[0] < 9, lambda y: y * y, k))(k)
    ),
}


@pytest.mark.parametrize("length", [0, 2])
@pytest.mark.parametrize("name", STEPS_THAT_STAY)
def test_equations_that_stay(name: str, length: int) -> None:
    step = STEPS_THAT_STAY[name]
    jaxpr = trace(lambda x, k: lax.scan(lambda c, _: (step(c, k), None), x, None, length)[0], X, K)
    assert hoist_loop_invariants(jaxpr) is jaxpr


def test_exchanged_carries_are_not_invariant() -> None:
    jaxpr = trace(lambda x, k: lax.scan(lambda c, _: ((c[1], c[0]), lax.sin(c[1])), (x, k), None, length=3), X, K)
    assert hoist_loop_invariants(jaxpr) is jaxpr


def test_grad_and_vmap_of_hoisted_program() -> None:
    def f(x: Any, k: Any) -> Any:
        return fnp.sum(lax.scan(lambda c, _: (c * lax.sin(k) + k, None), x, None, length=3)[0])

    x, k = fnp.array([0.5, 1.0]), fnp.array([1.0, 2.0])
    closed = hoist_loop_invariants(fx.make_jaxpr(f)(x, k))
    run = fx.jaxpr_as_fun(closed)
    got = fx.grad(lambda x, k: run(x, k)[0], (0, 1))(x, k)
    assert_near(got, fx.grad(f, (0, 1))(x, k))
    xs = fnp.stack([x, k])
    assert_near(fx.vmap(lambda x: run(x, k)[0])(xs), fx.vmap(lambda x: f(x, k))(xs))


# ------------------------------------------------------------------ calls


def test_inline_nested_calls() -> None:
    g = fx.jit(lambda x: lax.sin(x) * 2)
    h = fx.jit(lambda x, y: (g(x) + y, x))
    new = assert_pass_is_sound(inline, trace(lambda x, k: h(x, g(k)), X, K), [X, K])
    assert names(new) == ["sin", "mul", "sin", "mul", "add"]


def test_inline_max_eqns() -> None:
    small, large = fx.jit(lambda x: lax.sin(x)), fx.jit(lambda x: lax.sin(lax.cos(lax.exp(x))))
    jaxpr = trace(lambda x: large(small(x)), X)
    assert names(inline(jaxpr, max_eqns=1)) == ["sin", "jit"]
    assert names(inline(jaxpr, max_eqns=0)) == ["jit", "jit"]
    assert names(inline(jaxpr, max_eqns=3)) == ["sin", "exp", "cos", "sin"]


def test_inline_checkpoints_and_custom_rules_on_request() -> None:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return lax.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 7))
    jaxpr = trace(lambda x: f(fx.checkpoint(lax.cos)(x)), X)
    assert inline(jaxpr) is jaxpr
    assert names(inline(jaxpr, checkpoints=True)) == ["cos", "custom_jvp_call"]
    assert names(inline(jaxpr, checkpoints=True, custom_rules=True)) == ["cos", "sin"]


def test_inline_keeps_order_of_effects() -> None:
    def shown(x: Any) -> Any:
        fx.debug.print("{}", x)
        return x + 1

    def f(x: Any) -> Any:
        y = fx.jit(shown)(x)
        fx.debug.print("between {}", y)
        return fx.jit(shown)(y)

    new = assert_pass_is_sound(inline, trace(f, X), [X])
    assert names(new) == ["debug_print", "add", "debug_print", "debug_print", "add"]


def test_inline_in_bodies() -> None:
    g = fx.jit(lax.sin)
    new = assert_pass_is_sound(
        inline, trace(lambda x: lax.scan(lambda c, _: (g(c), None), x, None, length=2)[0], X), [X]
    )
    assert names(body(new, "scan")) == ["sin"]


def test_inlined_equations_have_body_lines_and_call_scopes() -> None:
    def g(x: Any) -> Any:
        with fx.named_scope("inner"):
            return lax.sin(x)

    def f(x: Any) -> Any:
        with fx.named_scope("outer"):
            return fx.jit(g)(x)

    (eqn,) = inline(fx.make_jaxpr(f)(X)).eqns
    assert eqn.source is not None
    assert eqn.source.scope == ("outer", "jit(g)", "inner")
    assert eqn.source.resolve().line == g.__code__.co_firstlineno + 2


# ------------------------------------------------------------------ constant folding


def test_fold_scalars_to_literals() -> None:
    jaxpr = program(
        "a:f32[]. let b:f32[] = add 1.0:f32[] 2.0:f32[]; c:f32[] = mul b 2.0:f32[]; d:f32[] = add a c in (d, b)"
    )
    assert fold_constants(jaxpr) == program("a:f32[]. let b:f32[] = add a 6.0:f32[] in (b, 3.0:f32[])")


@pytest.mark.parametrize("number", ["nan", "-0.0", "inf"])
def test_fold_special_float_values(number: str) -> None:
    jaxpr = program(f"a:f32[]. let b:f32[] = mul {number}:f32[] 1.0:f32[]; c:f32[] = add a b in (c, b)")
    new = assert_pass_is_sound(fold_constants, jaxpr, [from_numpy(np.array(1, np.float32))])
    assert names(new) == ["add"]


def test_fold_arrays_that_reduce_to_scalars() -> None:
    text = (
        "a:i32[]. let b:i32[4] = iota[dtype=int32 shape=(4,) dimension=0]; c:i32[] = reduce_sum[axes=(0,)] b; "
        "d:i32[] = add a c in (d,)"
    )
    assert fold_constants(program(text)) == program("a:i32[]. let b:i32[] = add a 6:i32[] in (b,)")
    assert fold_constants(program(text), max_size=3) is not None
    unchanged = program(text)
    assert fold_constants(unchanged, max_size=3) is unchanged


def test_fold_constants_of_closed_jaxpr() -> None:
    c = fnp.arange(3.0)
    closed = fx.make_jaxpr(lambda x: x * (c + 1) + fnp.sum(c))(X)
    new = fold_constants(closed)
    check_jaxpr(new)
    assert names(new) == ["mul", "add"]
    assert [np.asarray(k).tolist() for k in new.consts] == [[1.0, 2.0, 3.0]]
    assert "3.0:f32[]" in str(new)
    assert_same(results(new.jaxpr, [*new.consts, X])[0], results(closed.jaxpr, [*closed.consts, X])[0])
    assert fold_constants(new) is new


def test_large_constants_are_not_folded() -> None:
    c = fnp.zeros(2000)
    closed = fx.make_jaxpr(lambda x: x * (c + 1))(c)
    assert fold_constants(closed) is closed
    assert names(fold_constants(closed, max_size=2000)) == ["mul"]


def test_effects_callbacks_and_calls_are_not_folded() -> None:
    def shown(x: Any) -> Any:
        fx.debug.print("{}", fnp.float32(1))
        y = fx.pure_callback(lambda v: v, fx.ShapeDtypeStruct((), "float32"), fnp.float32(1))
        return fx.jit(lambda: lax.sin(fnp.float32(1)))() + y + lax.platform_dependent(default=lambda: fnp.float32(1))

    closed = fx.make_jaxpr(shown)(X)
    expected_names = {"debug_print", "pure_callback", "jit"}
    assert expected_names <= set(names(fold_constants(closed)))


def test_traced_constants_are_not_folded() -> None:
    folded: list[ClosedJaxpr] = []

    def f(x: Any) -> Any:
        closed = fx.make_jaxpr(lambda y: y * (x + 1.0))(X)
        folded.append(fold_constants(closed))
        return x

    fx.jit(f)(X)
    assert names(folded[0]) == ["add", "mul"]


def test_fold_in_loop_bodies() -> None:
    jaxpr = trace(lambda x: lax.scan(lambda c, _: (c * lax.add(1.0, 1.0), None), x, None, length=2)[0], X)
    assert names(body(assert_pass_is_sound(fold_constants, jaxpr, [X]), "scan")) == ["mul"]


# ------------------------------------------------------------------ all passes together


def test_optimize_applies_all_passes() -> None:
    def f(x: Any, k: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            gain = fx.jit(lambda k: lax.sin(k) * 1.0)(k)
            return -(-(c * gain)).T.T, fnp.sum(gain) * 0

        return lax.scan(step, x, None, length=3)[0]

    new = assert_pass_is_sound(optimize, trace(f, X, K), [X, K])
    assert names(new) == ["sin", "scan"]
    assert names(body(new, "scan")) == ["mul"]


def test_compiled_optimized_program_gives_same_result() -> None:
    def f(x: Any, k: Any) -> Any:
        return lax.scan(lambda c, r: (c * fx.jit(lax.sin)(k) + r * 1.0, c), x, fnp.stack([x, k]))[1]

    x, k = fnp.array([0.5, 2.0, 1.0]), fnp.array([1.0, 2.0, 0.25])
    closed = optimize(fx.make_jaxpr(f)(x, k))
    args: list[Value] = [x, k]
    assert_near(fx.jit(fx.jaxpr_as_fun(closed))(*args)[0], fx.jit(f)(x, k))
