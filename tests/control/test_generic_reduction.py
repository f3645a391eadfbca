"""`reduce` and `reduce_window` with arbitrary functions, including cases that JAX does not support."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
from tests.comparison import assert_near
from tracefx import lax
from tracefx.control.generic_reduction import Reduce, ReduceWindow
from tracefx.control.vocabulary import VOCABULARY
from tracefx.handlers import checkify, count
from tracefx.passes.check import check_jaxpr
from tracefx.programs import deserialize, serialize
from tracefx.text.parser import parse_jaxpr

X: Final = np.linspace(-1.0, 2.0, 12, dtype=np.float32).reshape(3, 4)[:, [2, 0, 3, 1]]
XS: Final = np.stack([X, X[::-1], 1 - X])
SAME: Final = (2, 3), (1, 2), "SAME"


def product(a: Any, b: Any) -> Any:
    return a * b + 0.0


def add(a: Any, b: Any) -> Any:
    return a + b


def push_each(F: Any, f: Callable[..., Any], starts: Any) -> Any:
    """Returns the results for all initial values, and their tangents."""
    pairs = [F.jvp(functools.partial(f, start=start), (X,), (XS[1],)) for start in starts]
    return [F.numpy.stack(each) for each in zip(*pairs, strict=True)]


@pytest.mark.parametrize("n", range(8))
def test_noncommutative_reduction_combines_elements_in_order(n: int) -> None:
    """Composition of affine maps doesn't commute; an initial value other than the identity is applied once."""

    def compose(a: Any, b: Any) -> Any:
        return a[0] * b[0], a[1] * b[0] + b[1]

    slopes, offsets = X.reshape(-1)[:n] + 2, X.reshape(-1)[:n]
    want = (3.0, 5.0)
    for a, b in zip(slopes, offsets, strict=True):
        want = compose(want, (a, b))
    both, _ = fx.jvp(lambda x: lax.reduce((x, offsets), (3.0, 5.0), compose, (0,)), (slopes,), (slopes,))
    assert_near(both, want)


def test_gradients_agree_with_prod() -> None:
    """With respect to the array, which has zeros in it, and to the initial value."""
    zeros = X * (X[1, 2] != X)
    f = fx.grad(lambda x, start: lax.reduce(x, start, product, (0, 1)), (0, 1))
    got, of_start = f(zeros, 2.0)
    assert_near(got, 2 * jax.jit(jax.grad(jnp.prod))(zeros))
    assert of_start == 0.0
    assert not np.asarray(got)[0].any()
    want = jax.jit(jax.hessian(lambda x: x.prod(1)[0]))(X)
    assert_near(fx.hessian(lambda x: lax.reduce(x, 1.0, product, (1,))[0])(X), want)


FUNCTIONS_WITH_PRIMITIVES: Final[dict[str, tuple[Callable[[Any, Any], Any], float]]] = {
    "sum": (lax.add, 0.0),
    "prod": (lax.mul, 1.0),
    "max": (lax.max, -np.inf),
    "min": (lax.min, np.inf),
}


@pytest.mark.parametrize("name", FUNCTIONS_WITH_PRIMITIVES)
def test_functions_of_lax_become_primitive_reductions(name: str) -> None:
    """The public functions are wrappers, which hide internal frames, of those that the library calls."""
    function, identity = FUNCTIONS_WITH_PRIMITIVES[name]
    (eqn,) = fx.make_jaxpr(lambda x: lax.reduce(x, identity, function, (1,)))(X).eqns
    assert eqn.prim.name == f"reduce_{name}"
    (eqn,) = fx.make_jaxpr(lambda x: lax.reduce_window(x, identity, function, (2, 2)))(X).eqns
    assert eqn.prim.name == (f"reduce_window_{name}" if name != "prod" else "reduce_window")

    @functools.wraps(function)
    def weighted(a: Any, b: Any) -> Any:
        return function(a, b) * 1.0

    (eqn,) = fx.make_jaxpr(lambda x: lax.reduce(x, identity, weighted, (1,)))(X).eqns
    assert eqn.prim.name == "reduce"


def windows_of(x: Any, f: Callable[[Any], Any], initial: float) -> Any:
    """Computes a windowed reduction by padding and slicing."""
    padded = jnp.pad(x, ((0, 1), (0, 1)), constant_values=initial)
    return jnp.stack([jnp.stack([f(padded[i : i + 2, j : j + 3]) for j in (0, 2)]) for i in range(3)])


def test_windows_have_gradients() -> None:
    """JAX has no reverse mode for them."""

    def windowed(x: Any) -> Any:
        return lax.reduce_window(x, 1.0, product, *SAME)

    def reference(x: Any) -> Any:
        return windows_of(x, jnp.prod, 1.0)

    weights = np.arange(6.0, dtype=np.float32).reshape(3, 2)

    @jax.jit
    def derivatives(x: Any) -> Any:
        return reference(x), jax.jacrev(reference)(x), jax.hessian(lambda x: (reference(x) * weights).sum())(x)

    value, jacobian, hessian = derivatives(X)
    assert_near(windowed(X), value)
    assert_near(fx.jacrev(windowed)(X), jacobian)
    assert_near(fx.jit(fx.jacfwd(windowed))(X), jacobian)
    assert_near(fx.hessian(lambda x: (windowed(x) * weights).sum())(X), hessian)


WINDOWS: Final = {
    "plain": ((2, 2), (1, 1), "VALID"),
    "padded": ((3, 2), (1, 2), ((2, 1), (0, 1))),
    "removed": ((2, 2), (1, 1), ((-1, 0), (0, 1))),
    "dilated": ((2, 3), (2, 1), "SAME", (2, 3), (1, 2)),
    "only padding": ((2, 1), (1, 1), ((2, 2), (0, 0))),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_padding_is_not_combined_with_initial_values(name: str) -> None:
    """Neither by derivatives nor by batched calls; JAX has only the forward mode, and no batches of initial values."""

    def windowed(F: Any, function: Callable[[Any, Any], Any], x: Any, start: Any) -> Any:
        return F.lax.reduce_window(x, start, function, *WINDOWS[name])

    starts = np.array([0.0, 1.0, 2.5], np.float32)
    functions: list[Callable[[Any, Any], Any]] = [add, product]
    for function in functions:
        pushed = jax.jit(functools.partial(push_each, jax, functools.partial(windowed, jax, function)))
        primals, tangents = pushed(starts)
        assert_near(push_each(fx, functools.partial(windowed, fx, function), starts), [primals, tangents])
        assert_near(fx.vmap(functools.partial(windowed, fx, function, X))(starts), primals)
        for start, primal, tangent in zip(starts, primals, tangents, strict=True):
            pull = fx.vjp(functools.partial(windowed, fx, function, start=start), X)[1]
            assert_near((pull(primal)[0] * XS[1]).sum(), (primal * tangent).sum())


def test_vmap_over_initial_values() -> None:
    initials = np.array([1.0, 2.0, -1.0], np.float32)
    result = fx.vmap(lambda x, s: lax.reduce(x, s, product, (1,)), (0, 0))(XS, initials)
    assert_near(result, XS.prod(2) * initials[:, None])
    result = fx.vmap(lambda s: lax.reduce_window(X, s, product, (3, 4)))(initials)
    assert_near(result, X.prod() * initials[:, None, None])
    result = fx.vmap(lambda x: lax.reduce_window(x, 1.0, product, (3, 1)), in_axes=2, out_axes=2)(XS.transpose(1, 2, 0))
    assert_near(result, XS.prod(1)[:, None].transpose(1, 2, 0))


def test_reduction_function_may_close_over_values() -> None:
    """Concrete closed-over scalars stay in a `reduce`; traced values, which XLA's reduction cannot take, do not."""
    scale = fx.numpy.array(2.0)
    known = fx.make_jaxpr(lambda x: lax.reduce(x, 0.0, lambda a, b: a + b + 0 * scale, (0,)))(X)
    assert [type(eqn.prim) for eqn in known.eqns] == [Reduce]
    traced = fx.jit(lambda s: lax.reduce(X, 0.0, lambda a, b: a + s * b, (1,)))(1.0)
    assert_near(traced, X.sum(1))
    table = fx.numpy.array([0.0, 1.0])
    assert_near(lax.reduce(X, 0.0, lambda a, b: a + b * table[1], (1,)), X.sum(1))
    scale_gradient = fx.grad(lambda s: lax.reduce_window(X, 0.0, lambda a, b: a + b + s * 0, (3, 4)).sum())(1.0)
    assert scale_gradient == 0.0


def test_jaxprs_with_reductions_round_trip_through_text() -> None:
    def f(x: Any) -> Any:
        return lax.reduce(lax.reduce_window(x, 1.0, product, *SAME), 1.0, product, (1,))

    program = fx.make_jaxpr(f)(X)
    assert [type(eqn.prim) for eqn in program.eqns] == [ReduceWindow, Reduce]
    check_jaxpr(program.jaxpr)
    assert parse_jaxpr(str(program.jaxpr), VOCABULARY) == program.jaxpr
    assert deserialize(serialize(program)) == program


def test_handlers_interpret_the_reduction_function() -> None:
    def f(x: Any) -> Any:
        return lax.reduce(lax.log(x), 0.0, lambda a, b: a + b * 1.0, (0,))

    error, out = checkify(f)(X[:1] * 0 + 1)
    assert error.get() is None
    assert_near(out, np.zeros(4))
    assert count(f)(X).flops > 0


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(
        TypeError, match=r"reduce of <lambda> at .*: it must return \(f32\[\]\), the types .*, got \(bool\[\]\)"
    ):
        lax.reduce(X, 1.0, lambda a, b: a > b, (0,))
    with pytest.raises(ValueError, match="init_values must have the structure of operands"):
        lax.reduce((X, X), 1.0, product, (0,))
    with pytest.raises(ValueError, match="initial values must have no axes"):
        lax.reduce(X, X, product, (0,))
    with pytest.raises(NotImplementedError, match="must have no effects"):
        lax.reduce(X, 1.0, lambda a, b: (fx.debug.print("{}", a), a * b)[1], (0,))
    with pytest.raises(TypeError, match="window_strides must be positive"):
        lax.reduce_window(X, 1.0, product, (2, 2), (0, 1), ((0, 0), (0, 0)))
