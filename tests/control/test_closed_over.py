"""Functions with rules of their own that close over what is traced: where that works, and what is said where not."""

# mypy: untyped-calls-exclude="jax"
# The decorators are those of either library, which is `Any` here.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.closeness import assert_near
from tests.transforms.oracle import agree
from tracefx.custom_derivatives import ClosedOverTracerError
from tracefx.testing.tolerances import ELEMENTARY

X: Final = np.array([0.5, -1.5, 2.0], np.float32)


def times_sin_jvp(c: Any) -> Any:
    """Closes over `c`, in the function and in its rule, which gives ten times the derivative."""

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


KINDS: Final = pytest.mark.parametrize("made", [times_sin_jvp, times_sin_vjp], ids=lambda f: f.__name__)
Made = Callable[[Any], Any]
SIN, SLOPE = np.sin(np.float32(0.75)), 10 * np.cos(np.float32(0.75))
Y: Final = np.float32(0.75)

CLOSED_OVER: Final[dict[str, tuple[Callable[[Made], Any], Any]]] = {
    "vmap": (lambda f: fx.vmap(lambda x: f(x)(Y))(fnp.asarray(X)), X * SIN),
    "vmap of jit": (lambda f: fx.vmap(lambda x: fx.jit(f(x))(Y))(fnp.asarray(X)), X * SIN),
    "jit of vmap of jit": (lambda f: fx.jit(fx.vmap(lambda x: fx.jit(f(x))(Y)))(fnp.asarray(X)), X * SIN),
    "grad in vmap": (lambda f: fx.vmap(lambda x: fx.grad(f(x))(Y))(fnp.asarray(X)), X * SLOPE),
    "grad of jit in vmap": (lambda f: fx.vmap(lambda x: fx.grad(fx.jit(f(x)))(Y))(fnp.asarray(X)), X * SLOPE),
    "jvp of jit in vmap": (
        lambda f: fx.vmap(lambda x: fx.jvp(fx.jit(f(x)), (Y,), (Y,))[1])(fnp.asarray(X)),
        X * SLOPE * Y,
    ),
    "vmap in grad": (
        lambda f: fx.grad(lambda y: fx.vmap(lambda x: f(x)(y))(fnp.asarray(X)).sum())(Y),
        X.sum() * SLOPE,
    ),
    "vmap in jit in grad": (
        lambda f: fx.grad(lambda y: fx.jit(lambda x, y: fx.vmap(lambda x: f(x)(y))(x).sum())(X, y))(Y),
        X.sum() * SLOPE,
    ),
    "jit in grad": (lambda f: fx.grad(lambda y: fx.jit(lambda x, y: f(x)(y))(X[0], y))(Y), X[0] * SLOPE),
    "grad in jit": (lambda f: fx.jit(lambda x: fx.grad(f(x))(Y))(fnp.asarray(X[0])), X[0] * SLOPE),
    "grad of grad of jit": (
        lambda f: fx.grad(fx.grad(lambda y: fx.jit(lambda x, y: f(x)(y))(X[0], y)))(Y),
        -X[0] * 10 * SIN,
    ),
    "jvp in jit": (lambda f: fx.jit(lambda x: fx.jvp(f(x), (Y,), (Y,))[1])(fnp.asarray(X[0])), X[0] * SLOPE * Y),
    "jvp in vmap in jit": (
        lambda f: fx.jit(fx.vmap(lambda x: fx.jvp(fx.jit(f(x)), (Y,), (Y,))[1]))(fnp.asarray(X)),
        X * SLOPE * Y,
    ),
    "grad of jvp in jit": (
        lambda f: fx.jit(lambda x: fx.grad(lambda t: fx.jvp(f(x), (Y,), (t,))[1])(Y))(fnp.asarray(X[0])),
        X[0] * SLOPE,
    ),
    "jvp in jit in vmap": (
        lambda f: fx.vmap(fx.jit(lambda x: fx.jvp(fx.jit(f(x)), (Y,), (Y,))[1]))(fnp.asarray(X)),
        X * SLOPE * Y,
    ),
    "two batches": (
        lambda f: fx.vmap(lambda x: fx.vmap(lambda y: fx.grad(f(x))(y))(fnp.full(2, Y)))(fnp.asarray(X)),
        np.stack([X, X], 1) * SLOPE,
    ),
    "a jitted call inside": (
        lambda f: fx.vmap(lambda x: fx.grad(f(fx.jit(lambda z: z * 1.0)(x)))(Y))(fnp.asarray(X)),
        X * SLOPE,
    ),
}


@KINDS
@pytest.mark.parametrize("place", list(CLOSED_OVER))
def test_functions_and_rules_close_over_tracers(place: str, made: Made) -> None:
    case, want = CLOSED_OVER[place]
    assert_near(case(made), want)


DIFFERENTIATED: Final[dict[str, Callable[[Made], Any]]] = {
    "grad": lambda f: fx.grad(lambda x: f(x)(Y))(1.0),
    "grad, of an argument too": lambda f: fx.grad(lambda x: f(x)(x))(1.0),
    "grad of jit": lambda f: fx.grad(fx.jit(lambda x: f(x)(Y)))(1.0),
    "jit of grad": lambda f: fx.jit(fx.grad(lambda x: f(x)(Y)))(1.0),
    "a jitted function": lambda f: fx.grad(lambda x: fx.jit(f(x))(Y))(1.0),
    "vmap of grad": lambda f: fx.vmap(fx.grad(lambda x: f(x)(Y)))(fnp.asarray(X)),
    "grad of vmap": lambda f: fx.grad(lambda z: fx.vmap(lambda x: f(x)(Y))(z).sum())(fnp.asarray(X)),
    "jvp": lambda f: fx.jvp(lambda x: f(x)(Y), (1.0,), (1.0,)),
}


@KINDS
@pytest.mark.parametrize("place", list(DIFFERENTIATED))
def test_what_is_closed_over_is_not_differentiated(place: str, made: Made) -> None:
    with pytest.raises(ClosedOverTracerError, match=r"(?s)\bf\b.*closure_convert") as caught:
        DIFFERENTIATED[place](made)
    assert isinstance(caught.value, TypeError)


def test_a_constant_of_what_is_closed_over_is_fine() -> None:
    gradient = fx.grad(lambda x: times_sin_jvp(fx.lax.stop_gradient(x))(x))
    assert_near(gradient(2.0), 10 * np.cos(2.0) * 2.0, ELEMENTARY)


def test_closure_convert_makes_arguments_of_what_is_differentiated() -> None:
    def minimize(lib: Any, np_: Any) -> Any:
        @partial(lib.custom_vjp, nondiff_argnums=(0,))
        def solved(objective: Any, x: Any, *held: Any) -> Any:
            return objective(x, *held)

        def bwd(objective: Any, res: Any, ct: Any) -> Any:
            x, held = res
            return ct * x, *[3 * ct * h for h in held]

        solved.defvjp(lambda objective, x, *held: (solved(objective, x, *held), (x, held)), bwd)

        def f(c: Any) -> Any:
            converted, held = lib.closure_convert(lambda x: x * c, np_.float32(2.0))
            return solved(converted, np_.float32(2.0), *held)

        c = np_.float32(5.0)
        return lib.grad(f)(c), lib.jit(lib.grad(f))(c), lib.vmap(lib.grad(lib.jit(f)))(np_.asarray(X))

    agree(minimize)


def test_a_converted_function_is_for_arguments_of_the_same_kind() -> None:
    converted, held = fx.closure_convert(lambda pair: pair[0] * pair[1], (1.0, 2.0))
    assert held == []
    assert float(converted((3.0, 4.0))) == 12.0
    with pytest.raises(TypeError, match="(?s)structure.*example_args"):
        converted([3.0, 4.0])
