"""Functions with custom rules that close over tracers: where this works, and the errors where it does not."""

# The decorators come from either library, whose type is `Any` here.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.cases import agrees_with_jax
from tests.comparison import assert_near
from tracefx.custom_derivatives import ClosedOverTracerError
from tracefx.testing.tolerances import ELEMENTARY

X: Final = np.array([0.5, -1.5, 2.0], np.float32)


def times_sin_jvp(c: Any) -> Any:
    """Returns a custom_jvp function that closes over `c`, as does its rule, which returns 10 times the derivative."""

    @fx.custom_jvp
    def f(y: Any) -> Any:
        return fnp.sin(y) * c

    f.defjvp(lambda primals, tangents: (f(*primals), 10 * tangents[0] * fnp.cos(primals[0]) * c))
    return f


def times_sin_vjp(c: Any) -> Any:
    @fx.custom_vjp
    def f(y: Any) -> Any:
        return fnp.sin(y) * c

    f.defvjp(lambda y: (f(y), fnp.cos(y)), lambda res, ct: (10 * ct * res * c,))
    return f


FACTORIES: Final = pytest.mark.parametrize("factory", [times_sin_jvp, times_sin_vjp], ids=lambda f: f.__name__)
Factory = Callable[[Any], Any]
SIN, SLOPE = np.sin(np.float32(0.75)), 10 * np.cos(np.float32(0.75))
Y: Final = np.float32(0.75)
A: Final = fnp.asarray(X)

CLOSED_OVER: Final[dict[str, tuple[Callable[[Factory], Any], Any]]] = {
    "vmap": (lambda f: fx.vmap(lambda x: f(x)(Y))(A), X * SIN),
    "vmap of jit": (lambda f: fx.vmap(lambda x: fx.jit(f(x))(Y))(A), X * SIN),
    "jit of vmap of jit": (lambda f: fx.jit(fx.vmap(lambda x: fx.jit(f(x))(Y)))(A), X * SIN),
    "grad in vmap": (lambda f: fx.vmap(lambda x: fx.grad(f(x))(Y))(A), X * SLOPE),
    "grad of jit in vmap": (lambda f: fx.vmap(lambda x: fx.grad(fx.jit(f(x)))(Y))(A), X * SLOPE),
    "jvp of jit in vmap": (lambda f: fx.vmap(lambda x: fx.jvp(fx.jit(f(x)), (Y,), (Y,))[1])(A), X * SLOPE * Y),
    "vmap in grad": (lambda f: fx.grad(lambda y: fx.vmap(lambda x: f(x)(y))(A).sum())(Y), X.sum() * SLOPE),
    "vmap in jit in grad": (
        lambda f: fx.grad(lambda y: fx.jit(lambda x, y: fx.vmap(lambda x: f(x)(y))(x).sum())(X, y))(Y),
        X.sum() * SLOPE,
    ),
    "jit in grad": (lambda f: fx.grad(lambda y: fx.jit(lambda x, y: f(x)(y))(X[0], y))(Y), X[0] * SLOPE),
    "grad in jit": (lambda f: fx.jit(lambda x: fx.grad(f(x))(Y))(A[0]), X[0] * SLOPE),
    "grad of grad of jit": (
        lambda f: fx.grad(fx.grad(lambda y: fx.jit(lambda x, y: f(x)(y))(X[0], y)))(Y),
        -X[0] * 10 * SIN,
    ),
    "jvp in jit": (lambda f: fx.jit(lambda x: fx.jvp(f(x), (Y,), (Y,))[1])(A[0]), X[0] * SLOPE * Y),
    "jvp in vmap in jit": (lambda f: fx.jit(fx.vmap(lambda x: fx.jvp(fx.jit(f(x)), (Y,), (Y,))[1]))(A), X * SLOPE * Y),
    "grad of jvp in jit": (
        lambda f: fx.jit(lambda x: fx.grad(lambda t: fx.jvp(f(x), (Y,), (t,))[1])(Y))(A[0]),
        X[0] * SLOPE,
    ),
    "jvp in jit in vmap": (lambda f: fx.vmap(fx.jit(lambda x: fx.jvp(fx.jit(f(x)), (Y,), (Y,))[1]))(A), X * SLOPE * Y),
    "two batches": (
        lambda f: fx.vmap(lambda x: fx.vmap(lambda y: fx.grad(f(x))(y))(fnp.full(2, Y)))(A),
        np.stack([X, X], 1) * SLOPE,
    ),
    "a jitted call inside": (lambda f: fx.vmap(lambda x: fx.grad(f(fx.jit(lambda z: z * 1.0)(x)))(Y))(A), X * SLOPE),
}


@FACTORIES
@pytest.mark.parametrize("name", list(CLOSED_OVER))
def test_functions_and_rules_may_close_over_tracers(name: str, factory: Factory) -> None:
    case, want = CLOSED_OVER[name]
    assert_near(case(factory), want)


DIFFERENTIATED: Final[dict[str, Callable[[Factory], Any]]] = {
    "grad": lambda f: fx.grad(lambda x: f(x)(Y))(1.0),
    "grad, of an argument too": lambda f: fx.grad(lambda x: f(x)(x))(1.0),
    "grad of jit": lambda f: fx.grad(fx.jit(lambda x: f(x)(Y)))(1.0),
    "jit of grad": lambda f: fx.jit(fx.grad(lambda x: f(x)(Y)))(1.0),
    "a jitted function": lambda f: fx.grad(lambda x: fx.jit(f(x))(Y))(1.0),
    "vmap of grad": lambda f: fx.vmap(fx.grad(lambda x: f(x)(Y)))(A),
    "grad of vmap": lambda f: fx.grad(lambda z: fx.vmap(lambda x: f(x)(Y))(z).sum())(A),
    "jvp": lambda f: fx.jvp(lambda x: f(x)(Y), (1.0,), (1.0,)),
}


@FACTORIES
@pytest.mark.parametrize("name", list(DIFFERENTIATED))
def test_differentiating_a_closed_over_value_is_an_error(name: str, factory: Factory) -> None:
    with pytest.raises(ClosedOverTracerError, match=r"(?s)\bf\b.*closure_convert") as caught:
        DIFFERENTIATED[name](factory)
    assert isinstance(caught.value, TypeError)


def test_closed_over_value_without_tangent_is_allowed() -> None:
    gradient = fx.grad(lambda x: times_sin_jvp(fx.lax.stop_gradient(x))(x))
    assert_near(gradient(2.0), 10 * np.cos(2.0) * 2.0, ELEMENTARY)


@agrees_with_jax
def test_closure_convert_turns_differentiated_closed_over_values_into_arguments(lib: Any, np_: Any) -> Any:
    @partial(lib.custom_vjp, nondiff_argnums=(0,))
    def solved(objective: Any, x: Any, *consts: Any) -> Any:
        return objective(x, *consts)

    def bwd(objective: Any, res: Any, ct: Any) -> Any:
        x, consts = res
        return ct * x, *[3 * ct * h for h in consts]

    solved.defvjp(lambda objective, x, *consts: (solved(objective, x, *consts), (x, consts)), bwd)

    def f(c: Any) -> Any:
        converted, consts = lib.closure_convert(lambda x: x * c, np_.float32(2.0))
        return solved(converted, np_.float32(2.0), *consts)

    c = np_.float32(5.0)
    return lib.grad(f)(c), lib.jit(lib.grad(f))(c), lib.vmap(lib.grad(lib.jit(f)))(np_.asarray(X))


def test_converted_function_checks_the_structure_of_its_arguments() -> None:
    converted, consts = fx.closure_convert(lambda pair: pair[0] * pair[1], (1.0, 2.0))
    assert consts == []
    assert float(converted((3.0, 4.0))) == 12.0
    with pytest.raises(TypeError, match="(?s)structure.*example_args"):
        converted([3.0, 4.0])
