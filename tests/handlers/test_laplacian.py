"""The forward Laplacian, compared with the trace of JAX's Hessian."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attrs import frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import assert_errors, untyped
from tests.laws.examples import sampled
from tests.primitives import SameTypes, Tangents, Values
from tracefx import lax
from tracefx.extend import Differentiable, NDArray, Primitive, Value, Zero, bind1
from tracefx.handlers import LaplacianArray, LaplacianRule, forward_laplacian, laplacian, value_and_laplacian
from tracefx.testing import Ulps, check_interpretation
from tracefx.testing.tolerances import DERIVATIVE

jax.config.update("jax_explicit_x64_dtypes", "allow")
Function = Callable[..., Any]
X = np.array([0.3, -0.8, 1.2, 0.55, -0.1, 0.9])
RNG = np.random.default_rng(0)
W1, W2, W3 = RNG.normal(size=(6, 8)), RNG.normal(size=(8, 8)), RNG.normal(size=(8,))
A, B, C = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
PLACES = np.array([[0, 2], [5, 2], [1, 1]])


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with fx.enable_x64(), jax.enable_x64(True):
        yield


def trace_of(f: Function) -> Function:
    return lambda x: jnp.trace(jax.hessian(f)(x), axis1=-2, axis2=-1)


def hessian_trace(f: Function, x: Any) -> Any:
    return jax.jit(trace_of(f))(x)


close: Final = partial(assert_near, tolerance=DERIVATIVE)


def check_laplacian(program: Callable[[Any, Any], Any]) -> None:
    """Compares value, Jacobian and Laplacian at `X` with JAX's; the first argument of the program is a NumPy API."""
    f, jax_f = partial(program, fnp), partial(program, jnp)
    value, jacobian, result = forward_laplacian(f)(X)
    close(value, f(X))
    close(jacobian, jax.jit(jax.jacfwd(jax_f))(X))
    close(result, hessian_trace(jax_f, X))


def network(m: Any, x: Any) -> Any:
    return m.tanh(m.tanh(x @ W1) @ W2) @ W3


def matrices_first(m: Any, x: Any) -> Any:
    return m.sin(W2.T @ m.tanh(W1.T @ x))


def attention(m: Any, x: Any) -> Any:
    x = x.reshape(2, 3)
    scores = (x @ A) @ (x @ B).T
    weights = m.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)) @ m.tanh(x @ C)


def two_particles(m: Any, x: Any) -> Any:
    """A function of two particles: a product of orbitals times a factor that depends on their distance."""
    r = x.reshape(2, 3)
    gaps = r[:, None] - r[None, :]
    far = m.sqrt((gaps * gaps).sum(-1) + 1.0)
    return m.exp(-far.sum() / 10 - (x**2).sum()) * (r[0, 0] * r[1, 1] - r[0, 1] * r[1, 0])


PARTICLES: dict[str, Callable[[Any, Any], Any]] = {
    # Each row of `r` depends on its own inputs only; `d` has the same shape and depends on all inputs.
    "ij,kj->ik": lambda r, d: (r, r),
    "ij,ik->jk": lambda r, d: (r, r * r),
    "ij,kl->ijkl": lambda r, d: (r, r * 2.0),
    "ij,ij->": lambda r, d: (r, r * r),
    "ji,ik->jk": lambda r, d: (d.T, r),
    "ij,jk->ik": lambda r, d: (d @ d.T, r),
    "ji,jk->ik": lambda r, d: (r, d @ d.T),
    "ijk,ljk->il": lambda r, d: (r[:, :, None] * r[:, None, :], d[:, :, None] * r[:, None, :]),
    "ijk,jk->i": lambda r, d: (d.T[:, :, None] * d, r),
    "bi,bij->bj": lambda r, d: (r, r[:, :, None] * r[:, None, :]),
    "ik,jk->ij": lambda r, d: (r.reshape(6, 1), d.reshape(6, 1)),
    "ia,jb->ijab": lambda r, d: (r.reshape(6, 1), r),
    "ij,jk->ki": lambda r, d: (r, (r * r).reshape(2, 3)),
}


@pytest.mark.parametrize("spec", PARTICLES)
def test_einsum_keeps_row_sparsity(spec: str) -> None:
    def f(m: Any, x: Any) -> Any:
        r = m.sin(x.reshape(3, 2) @ B[:2, :2])
        return m.tanh(m.einsum(spec, *PARTICLES[spec](r, r * x.mean())))

    check_laplacian(f)


WITHIN_ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "sums": lambda m, r: (r * r).sum(1) * m.sin(r).sum(0)[0],
    "sums of all": lambda m, r: (r * r).sum(1).sum() + (r**2).sum(0),
    "extremes": lambda m, r: r.max(1) * r.min(0)[1],
    "shapes": lambda m, r: m.broadcast_to((r * r).reshape(3, 1, 2), (3, 4, 2)).transpose(0, 2, 1),
    "first axis moved": lambda m, r: m.broadcast_to(r * r, (4, 3, 2)).transpose(2, 1, 0) * r.T[:, :, None],
    "choices": lambda m, r: m.where(r > 0, r, r * r) + m.maximum(r, 0.1) + m.clip(r, -0.2, 0.2) / (2 + r),
    "with inputs": lambda m, r: r.reshape(6)[:3] + r[:, 1] ** 2,
    "with what depends on all": lambda m, r: r * r.sum() + m.exp(r) * (r @ r.T @ r),
    "distances": lambda m, r: m.sqrt(((r[:, None] - r[None]) ** 2).sum(-1) + 1),
    "means and variances": lambda m, r: (r - r.mean(1, keepdims=True)) / m.sqrt(m.var(r, 1, keepdims=True) + 0.1),
}


@pytest.mark.parametrize("name", WITHIN_ROWS)
def test_rowwise_primitives_keep_row_sparsity(name: str) -> None:
    check_laplacian(lambda m, x: WITHIN_ROWS[name](m, m.sin(x.reshape(3, 2) @ B[:2, :2])))


def test_row_sparsity_is_kept_until_the_sum() -> None:
    """For 50 points with two coordinates, no value has derivatives by all 100 inputs before the final sum."""
    w = np.ones((2, 4))

    def f(x: Any) -> Any:
        return fnp.tanh(x.reshape(50, 2) @ w).sum(1)

    program = fx.make_jaxpr(lambda x: laplacian(f)(x).sum())(np.ones(100))
    assert max(out.aval.size for eqn in program.jaxpr.eqns for out in eqn.outs) == 2 * 50 * 4


BY_LIBRARY: dict[str, Callable[[Any, Any], Any]] = {
    "network": network,
    "matrices first": matrices_first,
    "attention": attention,
    "wave function": two_particles,
    "linear": lambda m, x: x @ W1,
    "quadratic form": lambda m, x: x @ (W1 @ W1.T) @ x,
    "products with itself": lambda m, x: x * x * m.sin(x),
    "quotients": lambda m, x: m.stack([x / (1 + x * x), 1 / (2 + x), x / 3.0, (x[0] / (2 + x)), x[::-1] / (3 + x)]),
    "powers": lambda m, x: m.stack([x**3, x**2.0, (1 + x * x) ** 1.5, (2.0 + x) ** x, 2.0**x, (x[1] + 3) ** x]),
    "two operands": lambda m, x: m.arctan2(x[:3], x[3:] + 2.0) + m.logaddexp(x[:3], x[3:]),
    "scalars among arrays": lambda m, x: m.sin(x[0]) * x + x[1] - x * x[2] + m.exp(x[0] * x),
    "norms": lambda m, x: m.sqrt((x * x).sum()) + m.abs(x).sum(),
    "sum of seeds": lambda m, x: m.sin(x.sum()) * (x * x).sum(),
    "shapes": lambda m, x: m.transpose(m.sin(x.reshape(2, 3)), (1, 0)).reshape(6) * m.tile(x[:2], 3),
    "joining": lambda m, x: m.stack([m.concatenate([x[3:] * x[:3], m.ones(3)]), m.pad(x[1:3] ** 2, (2, 2))]),
    "selection": lambda m, x: m.where(x > 0.2, m.sin(x), x**3) + m.clip(x * x, 0.1, 0.5) + m.maximum(x**2, 0.3),
    "extremes": lambda m, x: m.stack([(x**3).max(), (m.sin(x) * x).min()]),
    "reductions": lambda m, x: m.stack([m.prod(x), m.sin(x).reshape(2, 3).prod(0).sum(), x.mean(), m.var(x)]),
    "cumulative": lambda m, x: m.stack([m.cumsum(x * x), m.cumprod(x), m.cumsum(m.sin(x))]),
    "indexing": lambda m, x: (x * x)[PLACES] * m.sin(x)[PLACES[::-1]],
    "still": lambda m, x: m.floor(x) * x * x + m.sign(x) * m.round(x) + m.argmax(x) * x[0] ** 2,
    "special": lambda m, x: m.log1p(x * x) + m.expm1(x) + m.arcsin(x / 2) + m.cosh(x) + m.sqrt(x + 1),
    "a constant": lambda m, x: m.arange(3.0),
    "no axes": lambda m, x: m.sin(x[0]),
    "complex": lambda m, x: m.exp(1j * x) * x + m.abs(x + 1j * x * x) ** 2,
    "parts": lambda m, x: m.real(m.exp((0.3 + 1j) * x)) * m.imag((x + 2j) ** 3) + m.conj(x * 1j).imag,
}


@pytest.mark.parametrize("name", sampled(BY_LIBRARY, 2))
def test_laplacian_is_the_trace_of_the_hessian(name: str) -> None:
    f = BY_LIBRARY[name]
    traced_f: Function = lambda x: f(fnp, x)  # noqa: E731
    parts: Function = lambda x: jnp.stack([jnp.real(f(jnp, x)), jnp.imag(f(jnp, x))])  # noqa: E731
    want, slopes = hessian_trace(parts, X), jax.jit(jax.jacfwd(parts))(X)
    value, jacobian, result = forward_laplacian(traced_f)(X)
    assert result.dtype == value.dtype
    assert result.shape == value.shape
    close(value, traced_f(X))
    close([np.real(result), np.imag(result)], want)
    close([np.real(jacobian), np.imag(jacobian)], slopes)
    close(fx.jit(laplacian(traced_f))(X), result)
    close(laplacian(fx.jit(traced_f))(X), result)
    rows = np.stack([X, X[::-1], X * 0.5])
    for each, row in zip(fx.vmap(laplacian(traced_f))(rows), rows, strict=True):
        close(each, laplacian(traced_f)(row))


def scanned(x: Any) -> Any:
    """The carry and the scanned slices vary, and so does a closed-over value."""

    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        state, count = carry
        state = fnp.sin(state @ A[:, :3]) * row + x[:3]
        return (state, count + 1), (state * state, count * 2.0)

    (state, _), (rows, counts) = lax.scan(step, (fnp.ones(3), 0), x.reshape(2, 3))
    return state.sum() + (rows * counts[:, None]).sum(0)


def scanned_unrolled(x: Any) -> Any:
    state, rows = jnp.ones(3), []
    for i, row in enumerate(x.reshape(2, 3)):
        state = jnp.sin(state @ A[:, :3]) * row + x[:3]
        rows.append(state * state * (i * 2.0))
    return state.sum() + sum(rows)


def nested(x: Any) -> Any:
    def outer(carry: Any, row: Any) -> tuple[Any, Any]:
        total = lax.fori_loop(0, 3, lambda i, c: fnp.sin(c) * row.sum() + i, carry)
        return lax.cond(row[0] > 0, lambda c: c * c, lambda c: c + 1.0, total), row * total

    carry, rows = lax.scan(outer, 0.5, x.reshape(2, 3))
    return carry + rows.sum()


def nested_unrolled(x: Any) -> Any:
    carry: Any = 0.5
    rows = []
    for row in x.reshape(2, 3):
        total: Any = carry
        for i in range(3):
            total = jnp.sin(total) * row.sum() + i
        carry = jnp.where(row[0] > 0, total * total, total + 1.0)
        rows.append(row * total)
    return carry + sum(r.sum() for r in rows)


def doubled(x: Any) -> Any:
    """Doubles until the value is large; the second carry is constant at first and varies later."""
    return lax.while_loop(lambda c: c[0] < 10.0, lambda c: (c[0] * 2.0 + c[1] ** 2, c[1] * x[1]), (x[2], 1.5))


def doubled_unrolled(x: Any) -> Any:
    y, z = x[2], jnp.asarray(1.5)
    for _ in range(2):  # the number of steps from X
        y, z = y * 2.0 + z**2, z * x[1]
    return jnp.stack([y, z])


@fx.custom_jvp
def with_custom_jvp(x: Any) -> Any:
    return fnp.abs(x)


with_custom_jvp.defjvps(lambda t, ans, x: t * fnp.tanh(x))


@fx.custom_vjp
def with_custom_vjp(x: Any) -> Any:
    return fnp.sin(x) * 2.0


with_custom_vjp.defvjp(lambda x: (fnp.sin(x) * 2.0, x), lambda x, ct: (ct * x**2,))


LOOPS: dict[str, tuple[Function, Function]] = {
    "scan": (scanned, scanned_unrolled),
    "nested": (nested, nested_unrolled),
    "cond": (
        lambda x: lax.cond(x[0] > 0, lambda x: fnp.sin(x) * x, lambda x: fnp.ones(6), x * x),
        lambda x: jnp.sin(x * x) * x * x,
    ),
    "a branch that doesn't vary": (
        lambda x: lax.switch(1, [lambda x: x * x, lambda x: fnp.ones(6), lambda x: x], x),
        lambda x: jnp.ones(6) + 0 * x,
    ),
    "scan backwards": (
        lambda x: lax.scan(lambda c, y: (c * y + 1.0, c * c), x[0], x, reverse=True)[1],
        lambda x: jax.lax.scan(lambda c, y: (c * y + 1.0, c * c), x[0], x, reverse=True)[1],
    ),
    "while": (lambda x: fnp.stack(doubled(x)), doubled_unrolled),
    "checkpoint": (lambda x: fx.checkpoint(lambda x: fnp.sin(x) * x.sum())(x), lambda x: jnp.sin(x) * x.sum()),
    "jit": (fx.jit(lambda x: fx.jit(fnp.sin)(x) * x), lambda x: jnp.sin(x) * x),
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("how", [lambda f: f, fx.jit])
def test_laplacian_in_loops_branches_and_calls(name: str, how: Callable[[Function], Function]) -> None:
    traced_f, jax_f = LOOPS[name]
    close(how(laplacian(traced_f))(X), hessian_trace(jax_f, X))
    close(laplacian(how(traced_f))(X), hessian_trace(jax_f, X))
    _, jacobian, _ = how(forward_laplacian(traced_f))(X)
    close(jacobian, jax.jit(jax.jacfwd(jax_f))(X))


def test_custom_derivatives_are_used() -> None:
    result = forward_laplacian(with_custom_jvp)(X)
    close(result.jacobian, np.diag(np.tanh(X)))
    close(result.laplacian, 1 - np.tanh(X) ** 2)
    result = forward_laplacian(lambda x: with_custom_vjp(x * 2.0))(X)
    close(result.jacobian, np.diag((2 * X) ** 2 * 2.0))
    close(result.laplacian, 16.0 * X)


def test_laplacian_composes_with_grad_in_both_orders() -> None:
    traced_f: Function = lambda x: two_particles(fnp, x)  # noqa: E731
    jax_f: Function = lambda x: two_particles(jnp, x)  # noqa: E731
    close(fx.grad(laplacian(traced_f))(X), jax.jit(jax.grad(trace_of(jax_f)))(X))
    close(laplacian(fx.grad(traced_f))(X), hessian_trace(jax.grad(jax_f), X))
    close(laplacian(laplacian(traced_f))(X), hessian_trace(trace_of(jax_f), X))
    close(laplacian(fx.vmap(fnp.sin))(X), -np.sin(X))
    want = jax.jit(jax.grad(lambda x: trace_of(scanned_unrolled)(x).sum()))(X)
    close(fx.grad(lambda x: laplacian(scanned)(x).sum())(X), want)


def test_laplacian_inside_a_loop() -> None:
    rows = np.stack([X, X * 0.5])
    _, result = lax.scan(lambda c, x: (c, laplacian(lambda x: two_particles(fnp, x))(x)), 0.0, rows)
    close(result, [hessian_trace(lambda x: two_particles(jnp, x), row) for row in rows])


def test_arguments_and_results_may_be_pytrees() -> None:
    def f(p: Any, scale: Any) -> Any:
        return {"a": p["x"] ** 3 * scale, "b": (p["x"][:, None] * p["y"] ** 2).sum(), "c": fnp.ones(2)}

    p = {"x": np.array([1.0, 2.0]), "y": np.array([[1.0, 2.0, 3.0]])}
    value, jacobian, result = forward_laplacian(f)(p, 2.0)
    close(value["a"], [2.0, 16.0])
    close(result["a"], [12.0, 24.0])
    close(result["b"], 2 * 3 * 3.0)
    close(result["c"], [0.0, 0.0])
    assert jacobian["a"]["x"].shape == (2, 2)
    assert jacobian["a"]["y"].shape == (2, 1, 3)
    assert jacobian["b"]["y"].shape == (1, 3)
    close(jacobian["b"]["y"], 6.0 * p["y"])
    both = laplacian(lambda x, y: (x * x * y * y).sum(), (0, 1))(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    close(both, 2 * (1 + 4 + 9 + 16))
    close(laplacian(lambda x, y: (x * y**2).sum(), argnums=-1)(np.array([1.0, 2.0]), np.array([3.0, 4.0])), 6.0)
    value, result = value_and_laplacian(f)(p, scale=2.0)
    close(result["a"], [12.0, 24.0])


def test_laplacian_keeps_dtypes() -> None:
    x = np.array([0.5, 1.5], np.float32)
    assert laplacian(lambda x: x**3)(x).dtype == np.float32
    close(laplacian(lambda x: x.astype(np.float64) ** 3)(x), [3.0, 9.0])
    assert laplacian(lambda x: (x**3).astype(fnp.bfloat16))(x).dtype == fnp.bfloat16
    assert float(laplacian(lambda x: x**3)(2.0)) == 12.0


def test_empty_arrays() -> None:
    empty = np.zeros((0, 3))
    assert laplacian(lambda x: x**2)(empty).shape == (0, 3)
    assert float(laplacian(lambda x: (x**2).sum())(empty)) == 0.0
    assert forward_laplacian(lambda x: fnp.sin(x).sum(0))(empty).jacobian.shape == (3, 0, 3)


def test_laplacian_computes_no_hessian() -> None:
    """No array in the program is as large as a Hessian, and the identity matrix of input tangents is not multiplied."""
    n, width = 64, 5
    w = np.ones((n, width))
    eqns = fx.make_jaxpr(laplacian(lambda x: fnp.tanh(x @ w).sum()))(np.ones(n)).jaxpr.eqns
    assert max(out.aval.size for eqn in eqns for out in eqn.outs) == n * width
    assert sum(eqn.prim.name == "dot_general" for eqn in eqns) == 1


def test_laplacian_function_pickles_and_keeps_its_name() -> None:
    function = laplacian(softened_square)
    assert function.__name__ == "softened_square"
    close(pickle.loads(pickle.dumps(function))(X), 12 * X**2)


def softened_square(x: Any) -> Any:
    return x**4


# ------------------------------------------------------------------ user-defined primitives


class Cube(SameTypes, Differentiable):
    name = "cube"

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return [args[0] ** 3]

    @override
    def jvp(self, primals: Values, tangents: Tangents) -> tuple[Values, Tangents]:
        (x,), (t,) = primals, tangents
        assert not isinstance(t, Zero)
        return [bind1(self, x)], [fnp.multiply(fnp.multiply(x, x), fnp.multiply(t, 3.0))]


@frozen(eq=False)
class Marked(Primitive, LaplacianRule):
    name = "marked"

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return [args[0]]

    @override
    def laplacian(self, *operands: LaplacianArray | Value) -> Sequence[LaplacianArray | Value]:
        (x,) = operands
        assert isinstance(x, LaplacianArray)
        return [LaplacianArray(x.value, x.jacobian, fnp.full(x.shape, 7.0), x.size)]


def test_user_defined_primitives() -> None:
    close(laplacian(lambda x: bind1(Cube(), x) * x)(X), 12 * X**2)
    close(laplacian(lambda x: bind1(Marked(), x * 2.0))(X), np.full(6, 7.0))


# ------------------------------------------------------------------ errors


def test_error_messages() -> None:
    with pytest.raises(TypeError, match=r"laplacian of .* differentiated arguments must be floats, got i64\[3\]"):
        laplacian(lambda x: x * 1.0)(np.arange(3))
    assert_errors(
        (lambda: laplacian(lambda x: x)(1j), TypeError, r"must be floats, got c128\[\]"),
        (lambda: laplacian(fnp.argmax)(X), TypeError, r"outputs must be floats or complex numbers, got i64\[\]"),
        (lambda: laplacian(fnp.sin, 2)(X), ValueError, r"laplacian of sin: argnums 2 names argument 2"),
        (lambda: untyped(laplacian)(3), TypeError, "laplacian takes a function, got 3"),
        (lambda: untyped(laplacian)(fnp.sin, "x"), TypeError, "argnums"),
    )
    with pytest.raises(TypeError, match="needs a concrete value, but .* would lose what laplacian stores"):
        laplacian(lambda x: np.asarray(x))(X)


# ------------------------------------------------------------------ handler laws


def test_laplacian_obeys_the_handler_laws() -> None:
    def meaning(f: Function) -> Function:
        return lambda x: fx.tree.map(lambda h: fnp.trace(h, axis1=-2, axis2=-1), fx.hessian(f)(x))

    # the results are as far apart as derivatives may be, but values may have any size
    assert not check_interpretation(laplacian, meaning=meaning, ulps=Ulps(f64=64, f32=64)).skipped
