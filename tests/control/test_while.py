"""`while_loop`, compared with JAX; its reverse mode (with `max_steps`), compared with a scan."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.cases import agrees_with_jax
from tests.comparison import assert_agree, assert_near, assert_same
from tests.control.transform_checks import assert_agrees_with_jax, batch_axes_choices, normal
from tests.errors import error_message
from tests.jaxprs import all_equations, primitive_names
from tracefx.control.while_loop import While
from tracefx.core.jaxpr import Jaxpr
from tracefx.passes.dce import dce
from tracefx.testing.tolerances import ELEMENTARY

lax: Any = fx.lax  # `Any`, since tests also call them with wrong types

X: Final = normal(2)
W: Final = normal(2, 2, seed=1)


def powers(lib: Any, np_: Any) -> Any:
    """Products with a weight; `x` determines the number of steps. One carry is invariant, one is a counter."""

    def f(w: Any, x: Any, limit: Any) -> Any:
        def condition(c: Any) -> Any:
            n, y, _ = c
            return (np_.sum(y * y) < limit) & (n < 6)

        def step(c: Any) -> Any:
            n, y, x = c
            return n + 1, np_.tanh(y @ w) + y * 1.5 + x, x

        return lib.lax.while_loop(condition, step, (0, x, x))

    return f


def counted(lib: Any, np_: Any) -> Any:
    """A loop whose number of steps depends on no floating-point value."""

    def f(w: Any, x: Any) -> Any:
        return lib.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, np_.sin(c[1] @ w)), (0, x))

    return f


# ------------------------------------------------------------------ values and forward mode


def test_all_transformations_agree_with_jax() -> None:
    args = W, X, np.float32(9)
    assert_agrees_with_jax(powers, args, batch_axes_choices(args), reverse=False)


def test_all_transformations_without_jit() -> None:
    assert_agrees_with_jax(powers, (W, X, np.float32(9)), [(0, None, 0)], reverse=False, eager=True)
    assert_agrees_with_jax(counted, (W, X), [(0, None), (None, 1)], reverse=False, eager=True)


def test_loop_without_steps() -> None:
    assert_agrees_with_jax(powers, (W, X, np.float32(0)), [(None, 0, None)], reverse=False)


@agrees_with_jax
def test_carry_dtypes(lib: Any, np_: Any) -> Any:
    def f(n: Any) -> Any:
        def step(c: Any) -> Any:
            k, ok, z, b, d = c
            return k + np.uint8(1), ~ok, z * z, b + b, {"none": None, "k": d["k"] - 1}

        init = np.uint8(0), True, np.complex64(1 + 0.5j), np_.asarray(1.5, "bfloat16"), {"none": None, "k": n}
        return lib.lax.while_loop(lambda c: c[0] < 3, step, init)

    return f(2), lib.jit(f)(2), lib.vmap(f)(np.arange(3))


def test_weakly_typed_carries_are_promoted() -> None:
    def case(lib: Any, np_: Any) -> Any:
        def f(x: Any) -> Any:
            strong = lib.lax.while_loop(lambda c: c < 5, lambda c: c + np.float32(1), 0)
            weak = lib.lax.while_loop(lambda c: c < 5, lambda c: c + 1, 0.5)
            other = lib.lax.while_loop(lambda c: c < 5, lambda c: c * 1.5, 1)
            return strong, weak, other, lib.lax.while_loop(lambda c: c < 5, lambda c: c + x, 0)

        return f(np.float32(2)), lib.jit(f)(np.float32(2))

    assert_agree(case)
    # The first is promoted to the second's type, and the second to the type of the summand.
    a, b = lax.while_loop(lambda c: c[1] < 5, lambda c: (c[1], c[1] + np.float32(2)), (0, 0.0))
    assert (str(a.dtype), float(a), str(b.dtype), float(b)) == ("float32", 4.0, "float32", 6.0)


@agrees_with_jax
def test_vmap_with_batched_conditions_constants_and_carries(lib: Any, np_: Any) -> Any:
    """Batches the condition alone, its constants, the body's constants, or a carry that becomes batched later."""

    def f(limit: Any, a: Any, x: Any) -> Any:
        # The second carry becomes batched only after the first.
        def step(c: Any) -> Any:
            return c[0] + a, c[1] + c[0], c[2], c[3] + 1

        return lib.lax.while_loop(lambda c: c[0] < limit, step, (x, 0.0, a, 0))

    one, many = np.float32(1.5), np_.asarray([1.0, 4.0, 2.5], "float32")
    results = []
    for axes in ((0, None, None), (None, 0, None), (None, None, 0), (0, 0, None)):
        args = [many if a == 0 else one for a in axes]
        results.append(lib.vmap(f, axes)(*args))
        results.append(lib.jit(lib.vmap(lib.vmap(f, axes), axes))(*[np_.stack([x, x]) if x.ndim else x for x in args]))
    return results


@pytest.mark.parametrize("stack", ["jvp", "vmap", "jacfwd of jacfwd", "vmap of jvp", "jvp of vmap", "linearize", "jit"])
@agrees_with_jax
def test_closed_over_tracers_of_every_transformation(lib: Any, np_: Any, stack: str) -> Any:
    def f(y: Any) -> Any:
        return lib.lax.while_loop(lambda c: np_.abs(c * c - y) > 1e-3, lambda c: 0.5 * (c + y / c), np.float32(1))

    one, many = np.float32(2), np_.asarray([2.0, 9.0], "float32")

    def pushed(y: Any) -> Any:
        return lib.jvp(f, (y,), (y,))

    return {
        "jvp": lambda: pushed(one),
        "vmap": lambda: lib.vmap(f)(many),
        "jacfwd of jacfwd": lambda: lib.jacfwd(lib.jacfwd(f))(one),
        "vmap of jvp": lambda: lib.vmap(pushed)(many),
        "jvp of vmap": lambda: lib.jvp(lib.vmap(f), (many,), (many,)),
        "linearize": lambda: lib.linearize(f, one)[1](one),
        "jit": lambda: lib.jit(f)(one),
    }[stack]()


def test_nested_while_loops() -> None:
    def factory(lib: Any, np_: Any) -> Any:
        def f(x: Any, y: Any) -> Any:
            def outer(c: Any) -> Any:
                n, x = c
                _, x = lib.lax.while_loop(lambda d: d[0] < n, lambda d: (d[0] + 1, np_.sin(d[1]) * y), (0, x))
                return n + 1, lib.lax.cond(x > 0, lambda: x * 2, lambda: x - y)

            return lib.lax.while_loop(lambda c: c[0] < 3, outer, (0, x))

        return f

    assert_agrees_with_jax(factory, (np.float32(0.5), np.float32(1.25)), [(0, None), (None, 0)], reverse=False)


def test_while_loop_inside_scan() -> None:
    def factory(lib: Any, np_: Any) -> Any:
        def f(x: Any, ys: Any) -> Any:
            def step(c: Any, y: Any) -> Any:
                c = lib.lax.while_loop(lambda c: c < 4.0, lambda c: np_.abs(c) * 1.5 + y * y + 0.1, c)
                return c * 0.5, c

            return lib.lax.scan(step, x, ys)

        return f

    assert_agrees_with_jax(factory, (np.float32(0.5), X), [(0, None), (None, 0)], reverse=False)


# ------------------------------------------------------------------ reverse mode


def bounded(lib: Any, np_: Any, max_steps: int) -> Any:
    """A bounded while_loop in tracefx; in JAX, a scan whose steps do nothing once the condition fails."""

    def loop(condition: Any, step: Any, init: Any) -> Any:
        if lib is fx:
            return lax.while_loop(condition, step, init, max_steps=max_steps)

        def conditional_step(c: Any, _: Any) -> Any:
            return lib.lax.cond(condition(c), step, lambda c: c, c), None

        return lib.lax.scan(conditional_step, init, None, length=max_steps)[0]

    def f(w: Any, x: Any, limit: Any) -> Any:
        def step(c: Any) -> Any:
            return {"n": c["n"] + 1, "y": np_.tanh(c["y"] @ w) + c["y"] * 1.5, "none": None}

        return loop(lambda c: np_.sum(c["y"] * c["y"]) < limit, step, {"n": 0, "y": x, "none": None})

    return f


@pytest.mark.parametrize("max_steps", [1, 5, 12])
def test_bounded_loop_gradient_agrees_with_a_scan(max_steps: int) -> None:
    """With fewer steps than the bound, and with the bound reached."""
    axes = [(None, 0, None)] if max_steps == 5 else ()
    assert_agrees_with_jax(
        lambda lib, np_: bounded(lib, np_, max_steps), (W, X, np.float32(9)), axes, second=max_steps == 5
    )


@pytest.mark.parametrize("limit", [0.0, 40.0])
def test_bounded_loop_without_jit(limit: float) -> None:
    assert_agrees_with_jax(
        lambda lib, np_: bounded(lib, np_, 7), (W, X, np.float32(limit)), [(0, None, None)], eager=True, second=False
    )


def test_steps_after_the_condition_fails_produce_no_nan() -> None:
    """Once the condition fails, neither the body nor its derivative runs."""

    def root(a: Any) -> Any:
        return lax.while_loop(lambda c: c[1] < 2, lambda c: (fnp.sqrt(c[0]) - a, c[1] + 1), (a * 16, 0), max_steps=9)[0]

    # sqrt(sqrt(16 a) - a) - a
    got = fx.grad(root)(1.0)
    assert_near(got, 0.5 / np.sqrt(3) * (2.0 - 1) - 1, ELEMENTARY)
    assert_near(fx.jit(fx.grad(root))(1.0), got, ELEMENTARY)


def test_reverse_mode_without_max_steps_is_an_error_that_names_it() -> None:
    def f(x: Any) -> Any:
        return counted(fx, fnp)(W, x)[1].sum()

    text = error_message(lambda: fx.grad(f)(X), ValueError)
    assert "max_steps" in text
    assert error_message(lambda: fx.jit(fx.grad(f))(X), ValueError) == text
    assert error_message(lambda: fx.vmap(fx.grad(f))(W), ValueError) == text
    with pytest.raises(ValueError, match="while_loop"):
        jax.grad(lambda x: counted(jax, jnp)(W, x)[1].sum())(X)


@agrees_with_jax
def test_reverse_mode_around_loops_that_need_no_derivative(lib: Any, np_: Any) -> Any:
    """A loop that depends on no differentiated argument, and an integer loop."""

    def f(x: Any) -> Any:
        n, y = counted(lib, np_)(W, X)
        k = lib.lax.while_loop(lambda k: k < n, lambda k: k + 1, (x > 0).astype("int32"))
        return np_.sum(y) * x * k

    return lib.grad(f)(np.float32(0.5)), lib.jit(lib.grad(f))(np.float32(0.5))


# ------------------------------------------------------------------ jaxprs


def whiles(jaxpr: Jaxpr) -> list[While]:
    return [eqn.prim for eqn in all_equations(jaxpr) if isinstance(eqn.prim, While)]


def test_equal_jaxprs_compare_equal() -> None:
    args = W, X, np.float32(9)
    first, second = [fx.make_jaxpr(powers(fx, fnp))(*args).jaxpr for _ in range(2)]
    assert first == second
    assert whiles(first)[0] == whiles(second)[0]
    assert first != fx.make_jaxpr(counted(fx, fnp))(W, X).jaxpr


def test_dce_removes_unused_carries() -> None:
    def f(x: Any) -> Any:
        def step(c: Any) -> Any:
            n, a, b, used, late = c
            return n + 1, fnp.sin(a), fnp.cos(b) * a, used * 2, late + used

        return lax.while_loop(lambda c: c[0] < 3, step, (0, x, x, x, x))[3]

    (loop,) = whiles(dce(fx.make_jaxpr(f)(X).jaxpr))
    assert primitive_names(loop.body_jaxpr) == ["add", "mul"]
    assert len(loop.body_jaxpr.outs) == 2
    unused = fx.make_jaxpr(lambda x: (f(x), x)[1])(X).jaxpr
    assert not whiles(dce(unused))


def test_vmap_with_unbatched_condition_needs_no_select() -> None:
    same_for_all = fx.make_jaxpr(fx.vmap(counted(fx, fnp), (None, 0)))(W, W).jaxpr
    (loop,) = whiles(same_for_all)
    assert "select_n" not in primitive_names(same_for_all)
    assert [a.shape for a in loop.body_jaxpr.out_avals] == [(), (2, 2)]
    assert "select_n" in primitive_names(
        fx.make_jaxpr(fx.vmap(powers(fx, fnp), (None, 0, None)))(W, W, np.float32(9)).jaxpr
    )


def test_vmap_keeps_invariant_carries_unbatched() -> None:
    """Also with a batched condition, a carry that no step changes stays unbatched."""

    def f(limit: Any, k: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < limit, lambda c: (c[0] + c[1], c[1]), (0.0, k))

    batch = fx.make_jaxpr(fx.vmap(f, (0, None), out_axes=(0, None)))(X, np.float32(1)).jaxpr
    (loop,) = whiles(batch)
    assert [a.shape for a in loop.body_jaxpr.out_avals] == [(2,), (2,), ()]


def test_linearize_keeps_carries_known_that_depend_on_known_values() -> None:
    def f(x: Any) -> Any:
        def step(c: Any) -> Any:
            return c[0] + 1, fnp.exp(c[1]) * 0.1, fnp.sin(c[2]) * c[1]

        return lax.while_loop(lambda c: c[0] < 3, step, (0, fnp.asarray(X), x))

    # The counter and the second carry are concrete after linearization, before the linear part runs.
    outs = fx.vjp(lambda x: lax.stop_gradient(f(x)[1]), X)[0]
    np.testing.assert_array_equal(outs, f(X)[1])

    def program(x: Any) -> Any:
        (n, y, _), _ = fx.linearize(f, x)
        return n, y

    loops = whiles(dce(fx.make_jaxpr(program)(X).jaxpr))
    assert len(loops) == 1
    assert "sin" not in primitive_names(loops[0].body_jaxpr)


def test_condition_and_body_are_traced_once() -> None:
    seen = []

    def condition(c: Any) -> Any:
        seen.append("goes")
        return c[0] < 3

    def step(c: Any) -> Any:
        seen.append("step")
        return c[0] + 1, fnp.sin(c[1])

    def f(x: Any) -> Any:
        return lax.while_loop(condition, step, (0, x))[1].sum()

    x = fnp.asarray(X)
    for _ in range(3):
        f(x)
        fx.jvp(f, (x,), (x,))
        fx.vmap(f)(fnp.asarray(W))
        fx.jacfwd(f)(x)
    assert sorted(seen) == ["goes", "step"]


def test_bounded_loop_functions_are_traced_once() -> None:
    seen = []

    def step(c: Any) -> Any:
        seen.append("step")
        return c * 1.5

    def condition(c: Any) -> Any:
        return c < 4.0

    for _ in range(3):
        fx.grad(lambda x: lax.while_loop(condition, step, x, max_steps=5))(fnp.float32(1))
    assert len(seen) == 1


def test_with_jit_disabled_every_step_runs_in_python() -> None:
    seen: list[float] = []

    def step(c: Any) -> Any:
        seen.append(float(c))
        return c * 2

    with fx.disable_jit():
        assert float(lax.while_loop(lambda c: c < 6, step, 1.0)) == 8.0
        assert float(lax.while_loop(lambda c: c < 6, step, 1.0, max_steps=2)) == 4.0
        assert float(fx.grad(lambda x: lax.while_loop(lambda c: c < 6, lambda c: c * 2, x))(1.0)) == 8.0
    assert seen == [1.0, 2.0, 4.0, 1.0, 2.0]


# ------------------------------------------------------------------ invalid arguments


def test_carry_type_and_structure_mismatch_is_rejected() -> None:
    def widens(c: Any) -> Any:
        return {"n": c["n"] + np.float32(0.5), "y": c["y"][None]}

    def restructures(c: Any) -> Any:
        return c["n"], c["y"]

    init = {"n": np.int32(0), "y": X}
    loop = lax.while_loop
    assert error_message(lambda: loop(lambda c: True, widens, init)) == (
        "while_loop of widens: the carry must have the same types:\n"
        "  leaf   going in  coming out\n"
        "  ['n']  i32[]     f32[]\n"
        "  ['y']  f32[2]    f32[1,2]\n"
        "Convert or broadcast it, so that it keeps its type from step to step."
    )
    assert error_message(lambda: loop(lambda c: True, restructures, init)) == (
        "while_loop of restructures: the carry must have the same structure:\n"
        "  going in   : a dict with the keys 'n', 'y'\n"
        "  coming out : a tuple of length 2"
    )
    # With an internal step counter in the carry, messages still show the user's carry.
    widened = error_message(lambda: loop(lambda c: True, widens, init))
    restructured = error_message(lambda: loop(lambda c: True, restructures, init))
    assert error_message(lambda: loop(lambda c: True, widens, init, max_steps=3)) == widened
    assert error_message(lambda: loop(lambda c: True, restructures, init, max_steps=3)) == restructured

    def counted(n: Any) -> Any:
        return lax.fori_loop(0, n, lambda i, c: widens(c), init)

    for run in (counted, fx.jit(counted)):
        assert error_message(partial(run, 3)).splitlines()[1:] == widened.splitlines()[1:]


def test_invalid_conditions_are_rejected() -> None:
    def body(c: Any) -> Any:
        return c

    for condition, shown in ((lambda c: c, "f32[2]"), (lambda c: c.sum(), "f32[]"), (lambda c: c > 0, "bool[2]")):
        text = error_message(partial(lax.while_loop, condition, body, X))
        assert error_message(partial(lax.while_loop, condition, body, X, max_steps=3)) == text
        assert text.startswith("while_loop of body: cond_fun must return a boolean scalar, got ")
        assert shown in text
    assert "boolean" in error_message(lambda: lax.while_loop(lambda c: (True, True), lambda c: c, X))
    assert "boolean" in error_message(lambda: lax.while_loop(lambda c: c.sum(), lambda c: c, X, max_steps=3))


@pytest.mark.parametrize("max_steps", [0, -1, 1.5, True, "4"])
def test_invalid_max_steps_is_rejected(max_steps: Any) -> None:
    def body(c: Any) -> Any:
        return c

    text = error_message(lambda: lax.while_loop(lambda c: False, body, 1.0, max_steps=max_steps), ValueError)
    assert text == f"while_loop of body: max_steps must be a positive integer, got {max_steps!r}"


def test_exception_in_a_function_restores_the_context() -> None:
    def bad(c: Any) -> Any:
        raise KeyError("mine")

    assert error_message(lambda: lax.while_loop(lambda c: c > 0, bad, 1.0), KeyError) == "'mine'"
    assert (
        error_message(lambda: fx.jit(fx.vmap(lambda x: lax.while_loop(bad, lambda c: c, x)))(X), KeyError) == "'mine'"
    )


# ------------------------------------------------------------------ invariant carries


def _loop(F: Any, step: Any, init: Any) -> Any:
    return F.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, *step(*s[1:])), (0, *init))


INVARIANT: Final[dict[str, Any]] = {
    "grad": lambda F, N: F.grad(lambda x: _loop(F, lambda y: (y,), (x * x,))[1] * x)(2.0),
    "grad, compiled": lambda F, N: F.jit(F.grad(lambda x: _loop(F, lambda y: (y,), (x * x,))[1] * x))(2.0),
    "beside one that reads it": lambda F, N: F.grad(
        lambda x: _loop(F, lambda y, z: (y, F.lax.stop_gradient(y * z)), (x, 1.0))[1] * 2
    )(2.0),
    "beside one of integers": lambda F, N: F.grad(
        lambda x: _loop(F, lambda y, n: (y, n + y.astype("int32")), (x, 0))[1]
    )(2.0),
    "bounds that are traced": lambda F, N: F.jit(F.grad(lambda x, n: F.lax.fori_loop(0, n, lambda i, s: s, x * 3)))(
        2.0, 4
    ),
    "no step": lambda F, N: F.grad(lambda x: F.lax.fori_loop(0, N.int32(0), lambda i, s: s, x * 3))(2.0),
    "vmap of grad, condition batched": lambda F, N: F.vmap(
        F.grad(lambda x: F.lax.while_loop(lambda s: s[0] < x, lambda s: (s[0] + 1, s[1]), (0.0, x * x))[1])
    )(N.arange(3.0)),
    "grad of vmap, condition batched": lambda F, N: F.grad(
        lambda xs: F.vmap(lambda x: F.lax.while_loop(lambda s: s[0] < x, lambda s: (s[0] + 1, s[1]), (0.0, x * x))[1])(
            xs
        ).sum()
    )(N.arange(3.0)),
    "jacrev": lambda F, N: F.jacrev(lambda x: _loop(F, lambda y: (y,), (x * x,))[1])(N.arange(2.0)),
    "hessian": lambda F, N: F.hessian(lambda x: _loop(F, lambda y: (y,), (x**3,))[1])(2.0),
    "linear_transpose": lambda F, N: F.linear_transpose(lambda x: _loop(F, lambda y: (y,), (x,))[1], 2.0)(
        N.asarray(3.0)
    ),
    "linearize": lambda F, N: F.linearize(lambda x: _loop(F, lambda y: (y,), (x * x,))[1], 2.0)[1](1.0),
}


@pytest.mark.parametrize("name", INVARIANT)
def test_invariant_carries_have_the_derivative_of_the_identity(name: str) -> None:
    assert_agree(INVARIANT[name])


@pytest.mark.parametrize("step", [lambda y, z: (y, y * z), lambda y, z: (z, y)], ids=["read", "exchanged"])
def test_reverse_mode_through_changed_carries_is_rejected(step: Any) -> None:
    with pytest.raises(ValueError, match=r"through the loop at \S*test_while\.py:\d+ \("):
        fx.grad(lambda x: sum(_loop(fx, step, (x, x))[1:]))(2.0)


# ------------------------------------------------------------------ bounds of fori_loop

BOUNDS: Final[dict[str, Any]] = {
    "floats": lambda F, N: F.lax.fori_loop(1.0, 3.0, lambda i, c: c + i, 0.0),
    "floats, truncated": lambda F, N: F.lax.fori_loop(1.5, 3.5, lambda i, c: c + i, 0.0),
    "floats, traced": lambda F, N: F.jit(lambda a, b: F.lax.fori_loop(a, b, lambda i, c: c + i, 0.0))(1.5, 3.4),
    "floats, differentiated": lambda F, N: F.grad(lambda x: F.lax.fori_loop(0.0, 3.0, lambda i, c: c * x, x))(2.0),
    "floats of 16 bits": lambda F, N: F.lax.fori_loop(N.float16(1), N.float16(3), lambda i, c: c + i, 0),
    "unroll=0": lambda F, N: F.lax.fori_loop(0, 3, lambda i, c: c + i, 0, unroll=0),
    "a narrow loop variable": lambda F, N: F.lax.fori_loop(N.int32(1), N.int32(3), lambda i, c: c + i, N.int8(0)),
    "narrow bounds": lambda F, N: F.lax.fori_loop(N.int8(1), 3, lambda i, c: c + i, 0),
}
REFUSED_BOUNDS: Final = [(0, 3.0), (0.0, 3), (True, 3), (0j, 3), (0j, 3j), ([0], 3)]


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("disabled", [False, True])
def test_fori_loop_bounds_agree_with_jax(name: str, disabled: bool) -> None:
    def loop(F: Any, N: Any) -> Any:
        with F.disable_jit(disabled):
            return N.asarray(BOUNDS[name](F, N))

    assert_same(loop(fx, fnp), loop(jax, jnp))  # both eagerly: the bounds are concrete


@pytest.mark.parametrize(("lower", "upper"), REFUSED_BOUNDS, ids=str)
def test_fori_loop_rejects_invalid_bounds(lower: Any, upper: Any) -> None:
    with pytest.raises(TypeError, match="lower"):
        fx.lax.fori_loop(lower, upper, lambda i, c: c, 0.0)


@pytest.mark.parametrize("bounds", [(0, 0), (3, 0)])
@agrees_with_jax
def test_loop_without_steps_with_jit_disabled(F: Any, N: Any, bounds: tuple[int, int]) -> Any:
    with F.disable_jit():
        return F.lax.fori_loop(*bounds, lambda i, c: (c[0] + i, c[1]), (N.zeros(2), N.ones(3)))
