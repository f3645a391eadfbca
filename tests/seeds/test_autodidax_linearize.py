"""Examples of part 4 of "Autodidax: JAX core from scratch": linearization, partial evaluation, vjp and grad."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.seeds.autodidax import (
    COS,
    SIN,
    Number,
    RecordingHandler,
    all_close,
    deriv,
    f,
    first_order,
    jax_f,
    print_and_parse,
)
from tracefx.extend import (
    Jaxpr,
    Value,
    as_value,
    check_jaxpr,
    current,
    eval_jaxpr,
    handling,
    to_numpy,
)
from tracefx.interpreters.jaxpr_transforms import UnzippedJaxpr, unzip_jaxpr


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    """Enables 64-bit types: the printed results of the examples have 16 digits."""
    with fx.enable_x64(), jax.enable_x64(True):
        yield


# ------------------------------------------------------------------ part 4: linearize


def test_linearize_of_sin() -> None:
    y, sin_lin = fx.linearize(fnp.sin, 3.0)
    all_close(y, SIN)
    all_close(sin_lin(1.0), COS)


def test_linearize_is_jvp_in_two_steps() -> None:
    y, f_lin = fx.linearize(f, 3.0)
    for xdot in (1.0, -2.0, 0.5):
        all_close((y, f_lin(xdot)), fx.jvp(f, (3.0,), (xdot,)))
    all_close(y, 2.7177599838802657)
    all_close(f_lin(1.0), 2.979984993200891)


def composed(x: Number) -> Any:
    y = fnp.sin(x) * 2.0
    return with_cosine(x, y)


def with_cosine(x: Number, y: Number) -> Any:
    return fnp.cos(x) + y


def jitted_composed(x: Number) -> Any:
    y = fnp.sin(x) * 2.0
    return fx.jit(with_cosine)(x, y)


@pytest.mark.parametrize(
    "function",
    [
        composed,
        jitted_composed,
        fx.jit(composed),
        fx.jit(jitted_composed),
        fx.jit(lambda x: fx.jit(jitted_composed)(x)),
    ],
)
def test_linearize_of_nested_jit(function: Callable[[Any], Any]) -> None:
    y, f_lin = fx.linearize(function, 3.0)
    all_close(y, -0.7077524804807109)
    all_close(f_lin(1.0), -2.121105001260758)


@pytest.mark.parametrize(
    "function", [f, composed, fx.jit(f), fx.jit(lambda x: fx.jit(composed)(x) * 2.0)], ids=["f", "g", "jit", "nested"]
)
def test_linear_part_recomputes_nothing(function: Callable[[Any], Any]) -> None:
    with handling(RecordingHandler(current())) as watch:
        _, f_lin = fx.linearize(function, 3.0)
        first = watch.names()
        assert "sin" in first
        assert "cos" in first
        watch.seen.clear()
        f_lin(1.0)
        f_lin(2.0)
    assert watch.names() != []
    assert set(watch.names()) <= {"mul", "neg", "add", "add_any"}


def test_linearize_runs_the_function_once() -> None:
    calls = 0

    def counted(x: Number) -> Any:
        nonlocal calls
        calls += 1
        return f(x)

    with handling(RecordingHandler(current())) as watch:
        _, f_lin = fx.linearize(counted, 3.0)
    assert watch.names().count("sin") == 1
    for xdot in (1.0, 2.0, 3.0):
        f_lin(xdot)
    assert calls == 1


# ------------------------------------------------------------------ part 4: partial evaluation of jaxprs


def unzip_and_check(jaxpr: Jaxpr, unknown: tuple[bool, ...]) -> UnzippedJaxpr:
    """Splits `(a1, a2) -> (b1, b2)` into `a1 -> (b1, res)` and `(res, a2) -> b2`, and checks all types."""
    halves = unzip_jaxpr(jaxpr, unknown)
    for part in (jaxpr, halves.known, halves.unknown):
        check_jaxpr(part)
    a1 = [a for a, u in zip(jaxpr.in_avals, unknown, strict=True) if not u]
    a2 = [a for a, u in zip(jaxpr.in_avals, unknown, strict=True) if u]
    b1 = [b for b, u in zip(jaxpr.out_avals, halves.out_unknown, strict=True) if not u]
    b2 = [b for b, u in zip(jaxpr.out_avals, halves.out_unknown, strict=True) if u]
    new_residuals = iter(halves.known.out_avals[len(b1) :])
    res = [next(new_residuals) if index is None else a1[index] for index in halves.forwarded]
    assert list(new_residuals) == []
    assert halves.consts == ()
    assert list(halves.known.in_avals) == a1
    assert list(halves.known.out_avals[: len(b1)]) == b1
    assert list(halves.unknown.in_avals) == res + a2
    assert list(halves.unknown.out_avals) == b2
    return halves


def run_halves(halves: UnzippedJaxpr, unknown: tuple[bool, ...], args: Sequence[Value]) -> list[Value]:
    """Evaluates a program by evaluating its known and its unknown half."""
    known_args = [a for a, u in zip(args, unknown, strict=True) if not u]
    known_outs = eval_jaxpr(halves.known, (), known_args)
    count = halves.out_unknown.count(False)
    new_residuals = iter(known_outs[count:])
    residuals = [next(new_residuals) if index is None else known_args[index] for index in halves.forwarded]
    unknown_outs = iter(
        eval_jaxpr(halves.unknown, (), [*residuals, *[a for a, u in zip(args, unknown, strict=True) if u]])
    )
    direct_outs = iter(known_outs[:count])
    return [next(unknown_outs) if u else next(direct_outs) for u in halves.out_unknown]


def test_unzip_jaxpr_of_a_jvp() -> None:
    def both(x: Number, xdot: Number) -> Any:
        return fx.jvp(lambda x: -fnp.sin(x), (x,), (xdot,))

    jaxpr = fx.make_jaxpr(both)(3.0, 1.0).jaxpr
    halves = unzip_and_check(jaxpr, (False, True))
    assert halves.out_unknown == (False, True)
    assert [eqn.prim.name for eqn in halves.known.eqns] == ["sin", "cos", "neg"]
    assert [eqn.prim.name for eqn in halves.unknown.eqns] == ["mul", "neg"]
    assert len(halves.known.outs) == 2, "the value, and the cosine"


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "independent": lambda x, y: (fnp.sin(x), fnp.cos(y)),
    "mixed": lambda x, y: (fnp.sin(x) * y, fnp.cos(x)),
    "forwarded": lambda x, y: x * y,
    "identity": lambda x, y: (x, y),
    "constant": lambda x, y: (2.0, x),
    "call": lambda x, y: fx.jit(lambda x, y: (fnp.sin(x) * y, fnp.sin(fnp.sin(x))))(x, y),
    "call in a call": lambda x, y: fx.jit(lambda x: fx.jit(lambda y: fnp.sin(x) * fnp.cos(y))(y) + fnp.exp(x))(x),
    "jvp of a call": lambda x, y: fx.jvp(fx.jit(lambda x: fnp.sin(fnp.sin(x))), (x,), (y,)),
}


@pytest.mark.parametrize("unknown", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_halves_are_well_typed_and_compute_the_same_outputs(name: str, unknown: tuple[bool, ...]) -> None:
    jaxpr = fx.make_jaxpr(PROGRAMS[name])(3.0, 5.0).jaxpr
    halves = unzip_and_check(jaxpr, unknown)
    args = [as_value(3.0), as_value(5.0)]
    for got, want in zip(run_halves(halves, unknown, args), eval_jaxpr(jaxpr, (), args), strict=True):
        all_close(to_numpy(got), to_numpy(want))


def test_known_values_are_computed_in_the_known_half() -> None:
    jaxpr = fx.make_jaxpr(PROGRAMS["call"])(3.0, 5.0).jaxpr
    halves = unzip_and_check(jaxpr, (False, True))
    unknown_names = [prim.name for eqn in halves.unknown.eqns for prim in first_order(eqn.prim)]
    assert unknown_names == ["mul"]


def test_known_inputs_are_forwarded_as_residuals() -> None:
    halves = unzip_and_check(fx.make_jaxpr(PROGRAMS["forwarded"])(3.0, 5.0).jaxpr, (False, True))
    assert halves.forwarded == (0,)
    assert halves.known.outs == ()


def test_halves_contain_no_dead_code() -> None:
    def wasteful(x: Number, y: Number) -> Any:
        fnp.exp(x)
        fnp.exp(y)
        return fnp.sin(x) * fnp.cos(y)

    halves = unzip_and_check(fx.make_jaxpr(wasteful)(3.0, 5.0).jaxpr, (False, True))
    assert [eqn.prim.name for eqn in halves.known.eqns] == ["sin"]
    assert [eqn.prim.name for eqn in halves.unknown.eqns] == ["cos", "mul"]


# ------------------------------------------------------------------ part 4: vjp and grad


def test_vjp_of_sin() -> None:
    y, f_vjp = fx.vjp(fnp.sin, 3.0)
    all_close(y, SIN)
    cotangents = f_vjp(1.0)
    assert type(cotangents) is tuple
    all_close(cotangents, (COS,))


def test_grad() -> None:
    all_close(fx.grad(f)(3.0), 2.979984993200891, jax.grad(jax_f)(3.0))


@pytest.mark.parametrize("jitted", [False, True])
def test_grad_of_nested_functions(jitted: bool) -> None:
    def inner(x: Number) -> Any:
        return fnp.cos(x) * 2.0

    called = fx.jit(inner) if jitted else inner

    def outer(x: Number) -> Any:
        y = x * 2.0
        z = called(y)
        return z

    all_close(fx.grad(outer)(3.0), -4.0 * np.sin(6.0), jax.grad(lambda x: jnp.cos(x * 2.0) * 2.0)(3.0))


def test_grad_requires_a_scalar_output() -> None:
    with pytest.raises(TypeError, match="scalar"):
        fx.grad(fnp.sin)(np.arange(3.0))


# ------------------------------------------------------------------ part 4: nested transformations


def nested(m: Any) -> Callable[[Any], Any]:
    """Nested jitted functions under jvp that close over outer values; `m` is tracefx or JAX."""
    sin = (fnp if m is fx else jnp).sin

    def foo(x: Number) -> Any:
        def bar(y: Number) -> Any:
            def baz(w: Number) -> Any:
                q = m.jit(lambda x: y)(x)
                q = q + m.jit(lambda: y)()
                q = q + m.jit(lambda y: w + y)(y)
                q = m.jit(lambda w: m.jit(sin)(x) * y)(1.0) + q
                return q

            p, t = m.jvp(baz, (x + 1.0,), (y,))
            return t + (x * p)

        return bar(x)

    return foo


F = nested(fx)
JAX_F = nested(jax)

VALUES: dict[str, Callable[[Any], Any]] = {
    "f": F,
    "jit(f)": fx.jit(F),
    "jvp(f)": lambda x: fx.jvp(F, (x,), (5.0,))[0],
    "jvp(jit(f))": lambda x: fx.jvp(fx.jit(F), (x,), (5.0,))[0],
}
DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "grad(f)": fx.grad(F),
    "grad(jit(f))": fx.grad(fx.jit(F)),
    "jit(grad(jit(f)))": fx.jit(fx.grad(fx.jit(F))),
    "jvp(f)": deriv(F),
    "jvp(jit(f))": deriv(fx.jit(F)),
}
SECOND_DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "grad(grad(f))": fx.grad(fx.grad(F)),
    "grad(grad(jit(f)))": fx.grad(fx.grad(fx.jit(F))),
    "grad(jit(grad(f)))": fx.grad(fx.jit(fx.grad(F))),
    "jit(grad(grad(f)))": fx.jit(fx.grad(fx.grad(F))),
    "jvp(grad(f))": deriv(fx.grad(F)),
    "jvp(jit(grad(f)))": deriv(fx.jit(fx.grad(F))),
    "jit(jvp(jit(grad(f))))": fx.jit(deriv(fx.jit(fx.grad(F)))),
}
STACKS = [
    pytest.param(stack, order, id=f"{order}-{name}")
    for order, stacks in (("value", VALUES), ("first", DERIVATIVES), ("second", SECOND_DERIVATIVES))
    for name, stack in stacks.items()
]
POINTS = np.array([3.0, -0.5, 1.25])


@pytest.fixture(scope="module")
def jax_results() -> dict[str, list[Any]]:
    """Returns JAX's results at each of the points."""
    with jax.enable_x64(True):
        functions = {"value": JAX_F, "first": jax.grad(JAX_F), "second": jax.grad(jax.grad(JAX_F))}
        return {order: [float(jax.jit(function)(x)) for x in POINTS] for order, function in functions.items()}


@pytest.mark.parametrize("stacks", [VALUES, DERIVATIVES, SECOND_DERIVATIVES], ids=["values", "first", "second"])
def test_stacks_of_nested_calls_agree_with_each_other(stacks: dict[str, Callable[[Any], Any]]) -> None:
    all_close(*[stack(3.0) for stack in stacks.values()])


@pytest.mark.parametrize(("stack", "order"), STACKS)
def test_nested_calls(stack: Callable[[Any], Any], order: str, jax_results: dict[str, list[Any]]) -> None:
    all_close(stack(3.0), jax_results[order][0])


@pytest.mark.parametrize(("stack", "order"), STACKS)
def test_vmap_of_nested_calls(stack: Callable[[Any], Any], order: str, jax_results: dict[str, list[Any]]) -> None:
    all_close(fx.vmap(stack)(POINTS), jax_results[order])


@pytest.mark.parametrize(("stack", "order"), STACKS)
def test_jit_of_vmap_of_nested_calls(
    stack: Callable[[Any], Any], order: str, jax_results: dict[str, list[Any]]
) -> None:
    all_close(fx.jit(fx.vmap(stack))(POINTS), jax_results[order])


@pytest.mark.parametrize("stack", [*VALUES.values(), *DERIVATIVES.values(), *SECOND_DERIVATIVES.values()])
def test_programs_of_nested_calls_are_well_typed(stack: Callable[[Any], Any]) -> None:
    for function, argument in ((stack, 3.0), (fx.vmap(stack), POINTS)):
        closed = fx.make_jaxpr(function)(argument)
        check_jaxpr(closed)
        assert print_and_parse(closed.jaxpr) == closed.jaxpr
