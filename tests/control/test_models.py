"""Models written for JAX, run with either library: only the import differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_agree, assert_same
from tests.control.models import MODELS
from tests.laws.examples import sampled
from tracefx.testing.tolerances import DERIVATIVE


def direction(tree: Any) -> Any:
    return jax.tree.map(lambda a: np.cos(np.arange(np.size(a), dtype=np.float32)).reshape(np.shape(a)), tree)


def batch(tree: Any) -> Any:
    return jax.tree.map(lambda a: np.stack([a, (a * np.float32(0.9)).astype(a.dtype)]), tree)


def derivatives(lib: Any, model: Callable[..., Any], np_: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Returns a function for value, gradient, directional derivative and Hessian-vector product, and its arguments."""
    loss, params, example = model(lib, np_)

    def run(params: Any, direction: Any, example: Any) -> Any:
        return lib.jvp(lambda p: lib.value_and_grad(loss)(p, example), (params,), (direction,))

    return run, (params, direction(params), example)


def gradients_by_example(lib: Any, model: Callable[..., Any], np_: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    loss, params, example = model(lib, np_)
    return lib.vmap(lib.value_and_grad(loss), (None, 0)), (params, batch(example))


def by_parameters(lib: Any, model: Callable[..., Any], np_: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    loss, params, example = model(lib, np_)
    return lib.vmap(loss, (0, None)), (batch(params), example)


def assert_models_agree(
    case: Callable[..., tuple[Callable[..., Any], tuple[Any, ...]]],
    model: Callable[..., Any],
    jax_model: Callable[..., Any],
) -> None:
    f, args = case(fx, model, fnp)
    traced = 0

    def counted(*args: Any) -> Any:
        nonlocal traced
        traced += 1
        return f(*args)

    jitted = fx.jit(counted)
    got, again = jitted(*args), jitted(*args)
    assert traced == 1
    g, args = case(jax, jax_model, jnp)
    want = jax.jit(g)(*args)
    assert_same(got, again)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(got) if x.dtype != jax.dtypes.float0)
    # Rounding errors accumulate over steps with hundreds of operations each.
    assert_same(got, want, DERIVATIVE, weak=False)


# The second time that JAX reaches a custom_jvp in a scan, it differentiates the function, not its rule.
UNROLLED = {"clipped_and_straight"}


@pytest.mark.parametrize("name", sampled([name for name in MODELS if name != "fixed_point"], 2))
def test_derivatives(name: str) -> None:
    model = MODELS[name]
    assert_models_agree(derivatives, model, unrolled(model) if name in UNROLLED else model)


@pytest.mark.parametrize(
    "name",
    [
        *("lstm", "clipped_and_straight", "adaptive", "collisions", "metropolis", "fixed_point", "equilibrium"),
        *("conjugate_gradients", "newton", "beam", "edit_distance", "moments", "powers"),
    ],
)
def test_gradients_by_example(name: str) -> None:
    assert_models_agree(gradients_by_example, MODELS[name], MODELS[name])


@pytest.mark.parametrize("name", ["adaptive", "collisions", "newton", "beam", "fixed_point", "synchronized"])
def test_batches_of_parameters(name: str) -> None:
    """Conditions, predicates and indices that are batched."""
    assert_models_agree(by_parameters, MODELS[name], MODELS[name])


class Loops:
    """The `lax` module with `scan` replaced by a Python loop."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jax.lax, name)

    def scan(self, f: Any, init: Any, xs: Any) -> Any:
        carry, ys = init, []
        for x in xs:
            carry, y = f(carry, x)
            ys.append(y)
        return carry, jax.tree.map(lambda *each: jnp.stack(each), *ys)


class Unrolled:
    lax = Loops()

    def __getattr__(self, name: str) -> Any:
        return getattr(jax, name)


def unrolled(model: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, np_: model(Unrolled(), np_)


# ------------------------------------------------------------------ errors


def test_forward_mode_over_custom_vjp_with_a_loop_in_its_backward_pass() -> None:
    """The forward rule calls the function itself, so forward mode would have to transpose the backward pass."""
    run, args = derivatives(fx, MODELS["fixed_point"], fnp)
    with pytest.raises(TypeError, match="forward-mode differentiation of fixed transposes its backward pass"):
        run(*args)
    run, args = derivatives(jax, MODELS["fixed_point"], jnp)
    with pytest.raises((TypeError, jax.errors.UnexpectedTracerError)):
        run(*args)


def test_unbounded_loop_in_a_backward_pass() -> None:
    @fx.custom_vjp
    def halved(x: Any) -> Any:
        return x / 2

    def backward(_: None, ct: Any) -> Any:
        return (fx.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, c[1] / 2), (0, ct))[1],)

    halved.defvjp(lambda x: (x / 2, None), backward)
    assert fx.grad(halved)(2.0) == 0.5
    with pytest.raises(
        TypeError, match="forward-mode differentiation of halved transposes its backward pass"
    ) as raised:
        fx.jvp(halved, (2.0,), (1.0,))
    assert "max_steps=n" in str(raised.value.__cause__)


def type_error_message(f: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(TypeError) as raised:
        f(*args)
    return str(raised.value)


def test_errors_name_the_traced_argument_and_function() -> None:
    def body(i: Any, value: Any) -> Any:
        return value if i > 0 else -value

    def table(i: Any, value: Any) -> Any:
        return value + np.arange(3)[i]

    def step(value: Any) -> Any:
        return float(value)

    loop, while_loop = fx.lax.fori_loop, fx.lax.while_loop
    message = type_error_message(loop, 0, 3, body, 1.0)
    assert "under fori_loop of body only its shape and dtype, bool[], are known" in message
    assert "lax.cond" in message
    assert "the argument `i` of table" in type_error_message(loop, 0, 3, table, 1.0)
    assert "tracefx.numpy.asarray" in type_error_message(loop, 0, 3, table, 1.0)
    assert "the argument `i` of table" in type_error_message(fx.jit(lambda n: loop(0, n, table, 1.0)), 3)
    assert "the argument `value` of step" in type_error_message(
        lambda: while_loop(lambda v: v < 3, step, 1.0, max_steps=3)
    )
    assert "under while_loop of step only" in type_error_message(lambda: while_loop(lambda v: v < 3, step, 1.0))
    assert "under map of step only" in type_error_message(fx.lax.map, step, np.ones(3))
    assert "the argument `value` of step" in type_error_message(fx.lax.map, step, np.ones(3))
    message = type_error_message(fx.jit(lambda n: fx.lax.scan(lambda c, x: (c, x), 0.0, None, length=n)), 3)
    assert "length must be a concrete integer, but the argument `n` of <lambda> is traced" in message
    assert "use fori_loop or while_loop" in message
    assert "under cond only" in type_error_message(fx.lax.cond, True, step, step, 1.0)
    assert "under checkpoint only" in type_error_message(fx.checkpoint(step), 1.0)


def test_leaked_carry_is_named_in_the_error() -> None:
    leaked = []

    def step(carry: Any, _: None) -> Any:
        leaked.append(carry)
        return carry, None

    def f(x: Any) -> Any:
        return fx.lax.scan(step, x, None, length=2)[0] + leaked[0]

    assert "was made by scan of step, as the argument `carry` of step," in type_error_message(fx.jit(f), 1.0)


def test_structure_mismatch_errors_show_the_first_difference() -> None:
    init = {"layers": [(1.0, 2.0), (1.0, {"a": 2.0, "b": 3.0})], "n": 0}
    message = type_error_message(
        fx.lax.while_loop, lambda c: c["n"] < 3, lambda c: {**c, "layers": [(1.0, 2.0), (1.0, {"a": 2.0})]}, init
    )
    assert message.splitlines()[3:] == [
        "The first difference is at ['layers'][1][1]:",
        "  going in: a dict with the keys 'a', 'b'",
        "  coming out: a dict with the keys 'a'",
        "  only in going in: 'b'",
    ]
    message = type_error_message(fx.lax.cond, True, lambda: (None, 1.0), lambda: (1.0, 1.0))
    assert "The first difference is at [0]:" in message
    assert "cond_fun must return a boolean scalar, got i32[]" in type_error_message(
        fx.lax.while_loop, lambda x: x, lambda x: x, 3
    )


# ------------------------------------------------------------------ number of traces


def test_nested_bodies_are_traced_once() -> None:
    """The first carry is a Python number, later ones are arrays."""
    xs = np.ones(2, np.float32)

    def case(lib: Any, np_: Any) -> tuple[int, Any]:
        traced = 0

        def nested(depth: int, y: Any) -> Any:
            nonlocal traced
            if depth == 0:
                traced += 1
                return np_.sin(y)

            def loop(i: Any, state: Any) -> Any:
                return state[0] + nested(depth - 1, y), state[1] * 2

            def step(total: Any, x: Any) -> Any:
                return total + lib.lax.fori_loop(0, 2, loop, (0.0, 1.0))[0] * x, total * 2

            total, totals = lib.lax.scan(step, 0.0, xs)
            return total + np_.sum(totals)

        out = lib.jit(lambda y: nested(2, y))(np.float32(0.5))
        return traced, out

    assert_agree(case)
    assert case(fx, fnp)[0] == 1


def test_value_closed_over_by_all_functions_of_a_solve_is_one_operand() -> None:
    matrix = np.diag([2.0, 4.0])

    def f(matrix: Any, b: Any) -> Any:
        def solve(matvec: Any, b: Any) -> Any:
            return fx.lax.fori_loop(0, 9, lambda _, x: x + 0.3 * (b - matvec(x)), b)

        return fx.lax.custom_linear_solve(lambda x: matrix @ x, b, solve, symmetric=True)

    (eqn,) = [e for e in fx.make_jaxpr(f)(matrix, np.ones(2)).eqns if e.prim.name == "custom_linear_solve"]
    assert [str(a.aval) for a in eqn.inputs] == ["f32[2,2]", "f32[2]"]
