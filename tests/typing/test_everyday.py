"""Everyday programs, as users of JAX write them: checked by mypy and pyright, and run.

`assert_type` also checks the value at run time. Where mypy infers `Any` for a lambda and pyright the exact type, the
type is an annotation: `y: Array = ...`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import GenericAlias
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin

import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import Array, P, lax, nn, random, tree
from tracefx.tree import TreeDef
from tracefx.typing import ArrayLike

if TYPE_CHECKING:
    from typing import assert_type
else:

    def assert_type(value, kind):
        """Raises AssertionError unless the value has the type."""
        assert conforms(value, kind), f"{value!r} is not of type {kind}"
        return value


def conforms(value: Any, kind: Any) -> bool:
    """Whether a value has a type, of those that this file uses."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any or kind is TreeDef:  # a protocol
        return True
    if origin not in (tuple, list, dict):
        return isinstance(value, kind)
    parts: list[object] = [*value.items()] if origin is dict else [*value]
    if origin is tuple and args[-1] is not Ellipsis:
        return type(value) is tuple and all(map(conforms, parts, args)) and len(parts) == len(args)
    part = GenericAlias(tuple, args) if origin is dict else args[0]
    return type(value) is origin and all(conforms(x, part) for x in parts)


Params = dict[str, Array]
X = fnp.arange(3.0)
M = fnp.eye(3) * 2.0 + 1.0
PARAMS: Params = {"w": X, "b": fnp.ones(())}


class State(NamedTuple):
    position: Array
    velocity: Array


STATE = State(X, fnp.zeros(3))


def square(x: float) -> float:
    return x * x


def cube(x: ArrayLike) -> Array:
    return fnp.asarray(x) ** 3


def product(x: float, y: float) -> float:
    return x * y


def predict(params: Params, x: Array) -> Array:
    return fnp.tanh(params["w"] * x + params["b"])


def loss(params: Params, x: Array) -> Array:
    return (predict(params, x) ** 2).sum()


def loss_and_prediction(params: Params, x: Array) -> tuple[Array, Array]:
    return loss(params, x), predict(params, x)


def nested_loss(params: dict[str, Any], x: Array) -> Array:
    return loss(params["layer"], x)


def scaled(weights: dict[str, float], x: float) -> float:
    return weights["w"] * x


def total(xs: list[float]) -> float:
    return sum(xs)


def energy(state: State) -> Array:
    return fnp.sum(state.velocity**2 + state.position**2)


@fx.jit
def step(params: Params, x: Array) -> Params:
    gradient = fx.grad(loss)(params, x)
    return {name: p - 0.1 * gradient[name] for name, p in params.items()}


@fx.jit(static_argnames="n")
def power(x: ArrayLike, n: int) -> Array:
    return fnp.asarray(x) ** n


@partial(fx.jit, static_argnames=["n"])
def power_by_partial(x: ArrayLike, n: int) -> Array:
    return fnp.asarray(x) ** n


@fx.custom_jvp
def log1pexp(x: Array) -> Array:
    return fnp.log1p(fnp.exp(x))


@log1pexp.defjvp
def log1pexp_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (t,) = primals, tangents
    return log1pexp(x), t * nn.sigmoid(x)


@fx.custom_vjp
def clip_gradient(x: Array) -> Array:
    return x


def clip_forward(x: Array) -> tuple[Array, None]:
    return x, None


def clip_backward(residuals: None, ct: Array) -> tuple[Array]:
    return (fnp.clip(ct, -1.0, 1.0),)


clip_gradient.defvjp(clip_forward, clip_backward)


@fx.checkpoint
def block(x: Array) -> Array:
    return fnp.sin(fnp.sin(x))


def test_jit() -> None:
    assert_type(step(PARAMS, X), Params)
    assert_type(power(2.0, n=3), Array)
    assert_type(power(np.ones(3), 2), Array)
    y: Array = power_by_partial(2.0, n=3)  # mypy infers Any
    assert_type(fx.jit(loss)(PARAMS, X), Array)
    assert_type(fx.jit(fx.grad(loss))(PARAMS, X), Params)
    assert_type(fx.jit(loss).lower(PARAMS, X).as_text(), str)
    assert_type(y.shape, tuple[int, ...])
    fx.jit(lambda x: x * 2.0)(X)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]


def test_grad_of_numbers() -> None:
    assert_type(fx.grad(square)(3.0), Array)
    assert_type(fx.grad(fx.grad(square))(3.0), Array)
    assert_type(fx.jit(fx.grad(square))(3.0), Array)
    assert_type(fx.vmap(fx.grad(cube))(X), Array)
    assert_type(fx.grad(cube)(3.0), Array)
    assert_type(fx.grad(cube)(np.float32(3.0)), Array)
    assert_type(fx.grad(product, argnums=1)(3.0, 2.0), Array)
    assert_type(fx.grad(product, argnums=(0, 1))(3.0, 2.0), tuple[Array, Array])
    assert_type(fx.value_and_grad(square)(3.0), tuple[Array, Array])
    assert_type(fx.value_and_grad(product, (0, 1))(3.0, 2.0), tuple[Array, tuple[Array, Array]])


def test_grad_of_trees() -> None:
    assert_type(fx.grad(loss)(PARAMS, X), Params)
    assert_type(fx.grad(loss, argnums=1)(PARAMS, X), Array)
    assert_type(fx.grad(loss, argnums=(0, 1))(PARAMS, X), tuple[Params, Array])
    assert_type(fx.grad(scaled)({"w": 2.0}, 3.0), Params)
    assert_type(fx.grad(scaled, argnums=1)({"w": 2.0}, 3.0), Array)
    assert_type(fx.grad(total)([1.0, 2.0]), list[Array])
    assert_type(fx.grad(nested_loss)({"layer": PARAMS}, X), Any)
    assert_type(fx.value_and_grad(nested_loss)({"layer": PARAMS}, X), tuple[Array, Any])
    assert_type(fx.grad(energy)(STATE), State)
    assert_type(fx.grad(energy)(STATE).velocity, Array)


def test_value_and_grad_with_aux() -> None:
    assert_type(fx.value_and_grad(loss)(PARAMS, X), tuple[Array, Params])
    (value, prediction), gradient = fx.value_and_grad(loss_and_prediction, has_aux=True)(PARAMS, X)
    assert_type(value, Array)
    assert_type(prediction, Array)
    assert_type(gradient, Params)
    assert_type(fx.grad(loss_and_prediction, has_aux=True)(PARAMS, X), tuple[Params, Array])
    train = fx.jit(fx.value_and_grad(loss_and_prediction, has_aux=True))
    assert_type(train(PARAMS, X), tuple[tuple[Array, Array], Params])


def test_derivatives_of_lambdas() -> None:
    assert_type(fx.grad(lambda x: x * x)(3.0), Any)
    assert_type(fx.grad(lambda params: (params["w"] ** 2).sum())(PARAMS)["w"], Any)
    assert_type(fx.hessian(lambda v: fnp.sum(v**3))(X), Any)
    assert_type(fx.jacfwd(lambda v: v * v)(X), Any)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    gradient: Array = fx.grad(lambda x: fnp.sum(fnp.sin(x)))(X)
    assert_type(gradient, Array)


def test_jacobians() -> None:
    assert_type(fx.jacfwd(fnp.sin)(X), Array)
    assert_type(fx.jacrev(predict, argnums=1)(PARAMS, X), Array)
    assert_type(fx.jacrev(predict)(PARAMS, X), Params)
    assert_type(fx.jacobian(square)(3.0), Array)
    assert_type(fx.hessian(square)(3.0), Array)
    assert_type(fx.hessian(loss, argnums=1)(PARAMS, X), Array)
    assert_type(fx.jit(fx.hessian(square))(3.0), Array)


def test_jvp_and_vjp() -> None:
    assert_type(fx.jvp(square, (3.0,), (1.0,)), tuple[Array, Array])
    assert_type(fx.jvp(loss, (PARAMS, X), (PARAMS, X)), tuple[Array, Array])
    value, pull = fx.vjp(square, 3.0)
    assert_type(value, Array)
    assert_type(pull(1.0), tuple[Array])
    assert_type(fx.vjp(product, 3.0, 2.0)[1](1.0), tuple[Array, Array])
    assert_type(fx.vjp(loss, PARAMS, X)[1](1.0), tuple[Params, Array])
    (gradient,) = fx.vjp(energy, STATE)[1](1.0)
    assert_type(gradient, State)
    untyped: Any = PARAMS
    cotangents: tuple[Any, Any] = fx.vjp(loss, untyped, X)[1](1.0)  # pyright infers Any
    assert_type(cotangents[0]["w"], Any)
    out, push = fx.linearize(square, 3.0)
    assert_type(out, Array)
    assert_type(push(1.0), Array)


def test_vmap() -> None:
    assert_type(fx.vmap(predict, in_axes=(None, 0))(PARAMS, fnp.ones((4, 3))), Array)
    assert_type(fx.jit(fx.vmap(predict, in_axes=(None, 0)))(PARAMS, fnp.ones((4, 3))), Array)
    per_example = fx.vmap(fx.grad(loss), in_axes=(None, 0))
    assert_type(per_example(PARAMS, fnp.ones((4, 3))), Params)
    fx.vmap(lambda x: x * 2.0)(X)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]


def test_loops() -> None:
    carry: Array
    sums: Array
    carry, sums = lax.scan(lambda c, x: (c + x, c), 0.0, X)
    carry, sums = lax.scan(lambda c, x: (c + x, c), 0.0, np.arange(3.0))
    state, positions = lax.scan(move, STATE, X)
    assert_type(state, State)
    assert_type(positions, Array)
    assert_type(lax.scan(move, STATE, np.arange(3.0)), tuple[State, Array])
    assert_type(lax.scan(accumulate, 0.0, {"a": X, "b": X}), tuple[Array, Array])
    assert_type(lax.while_loop(below_hundred, double, 1), Array)
    assert_type(lax.while_loop(below_hundred, double, fnp.ones(())), Array)
    counted: Array = lax.while_loop(lambda i: i < 10, lambda i: i + 1, 0)
    steps, x = lax.while_loop(goes_on, halve, (0, X))
    assert_type(steps, Array)
    assert_type(x, Array)
    assert_type(lax.fori_loop(0, 3, multiply, 1), Array)
    product: Array = lax.fori_loop(1, 4, lambda i, p: p * i, 1)
    assert_type(lax.fori_loop(0, 3, advance, STATE), State)
    assert_type(carry + sums + counted + product, Array)


def move(state: State, x: Array) -> tuple[State, Array]:
    return State(state.position + x, state.velocity), state.position


def accumulate(total: Array, xs: Params) -> tuple[Array, Array]:
    return total + xs["a"] * xs["b"], total


def below_hundred(x: Array) -> Array:
    return x < 100


def double(x: Array) -> Array:
    return x * 2


def goes_on(carry: tuple[Array, Array]) -> Array:
    return carry[0] < 3


def halve(carry: tuple[Array, Array]) -> tuple[Array, Array]:
    return carry[0] + 1, carry[1] / 2.0


def multiply(i: Array, x: Array) -> Array:
    return x * (i + 1)


def advance(i: Array, state: State) -> State:
    return State(state.position + state.velocity, state.velocity)


def test_branches() -> None:
    assert_type(lax.cond(True, double, fnp.sin, X), Array)
    assert_type(lax.cond(X.sum() > 0, double, fnp.sin, 3.0), Array)
    y: Array = lax.cond(True, lambda x: x.sum() + 1.0, lambda x: x.sum() * 2.0, X)
    z: Array = lax.cond(True, lambda p, x: p["w"] * x, lambda p, x: p["b"] + x, PARAMS, X)
    assert_type(lax.cond(True, lambda: X, lambda: X + 1.0), Array)
    assert_type(lax.cond(True, predict, predict, PARAMS, X), Array)
    assert_type(lax.switch(1, [double, fnp.sin, fnp.cos], X), Array)
    assert_type(lax.switch(fnp.argmax(X), [double, fnp.sin], 2.0), Array)
    assert_type(lax.select(X > 0, X, -X), Array)
    assert_type(y + z, Array)


def test_other_loops() -> None:
    assert_type(lax.map(double, X), Array)
    assert_type(lax.associative_scan(fnp.add, X), Array)
    assert_type(fx.checkpoint(loss)(PARAMS, X), Array)
    assert_type(fx.grad(fx.checkpoint(loss))(PARAMS, X), Params)
    assert_type(block(X), Array)


def test_custom_rules() -> None:
    assert_type(log1pexp(X), Array)
    assert_type(fx.grad(log1pexp)(fnp.ones(())), Array)
    assert_type(clip_gradient(X), Array)
    assert_type(fx.vjp(clip_gradient, X)[1](X), tuple[Array])


def test_programs() -> None:
    assert_type(fx.make_jaxpr(loss)(PARAMS, X), fx.ClosedJaxpr)
    assert_type(fx.eval_shape(loss, PARAMS, X).shape, tuple[int, ...])
    assert_type(fx.eval_shape(loss, PARAMS, X).dtype, np.dtype)


def test_trees() -> None:
    updated: Params = tree.map(lambda p, g: p - 0.1 * g, PARAMS, PARAMS)  # mypy infers Any
    assert_type(tree.map(double, PARAMS), Params)
    assert_type(tree.map(double, STATE), State)
    assert_type(tree.map(double, {"layer": PARAMS}), dict[str, Params])
    assert_type(tree.map(fnp.add, [X, M], [X, M]), list[Array])
    assert_type(tree.map(fnp.where, (X > 0, X > 1), (X, X), (X, X)), tuple[Array, Array])
    assert_type(tree.map(np.shape, PARAMS), Any)
    assert_type(tree.map(lambda x: x.shape, PARAMS), Any)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType, reportUnknownMemberType]
    assert_type(tree.map(str.upper, {"a": "b"}), Any)
    leaves, treedef = tree.flatten(updated)
    assert_type(treedef, TreeDef)
    assert_type(len(leaves), int)
    assert_type(tree.structure(PARAMS).num_leaves, int)


def test_random() -> None:
    key = random.key(0)
    assert_type(key, Array)
    key, subkey = random.split(key)
    assert_type(subkey, Array)
    assert_type(random.normal(key, (3,)), Array)
    assert_type(random.uniform(key), Array)
    assert_type(random.randint(key, (2,), 0, 10), Array)
    assert_type(random.permutation(key, 5), Array)


def test_numpy_functions() -> None:
    assert_type(fnp.sin(1.0), Array)
    assert_type(fnp.add(1, X), Array)
    assert_type(fnp.maximum(X, 0.0), Array)
    assert_type(fnp.where(X > 1, X, 0.0), Array)
    assert_type(fnp.mean(X, axis=0), Array)
    assert_type(fnp.concatenate([X, X]), Array)
    assert_type(fnp.stack([X, np.ones(3)]), Array)
    assert_type(fnp.zeros_like(X), Array)
    assert_type(fnp.linspace(0.0, 1.0, 5), Array)
    assert_type(fnp.array([1.0, 2.0]), Array)
    assert_type(fnp.einsum("ij,j->i", M, X), Array)
    assert_type(fnp.dot(X, X), Array)
    assert_type(fnp.allclose(X, X), Array)


def test_arrays() -> None:
    assert_type(X[0], Array)
    assert_type(M[0, 1:], Array)
    assert_type(M[:, None, ...], Array)
    assert_type(X[X > 1], Array)
    assert_type(X.at[0].set(1.0), Array)
    assert_type(M.at[0, :].add(X), Array)
    assert_type(X.reshape(1, 3).T, Array)
    assert_type(X.sum().item(), bool | int | float | complex)
    assert_type(float(X.sum()), float)
    assert_type(X.astype(fnp.int32), Array)
    assert_type(X.shape, tuple[int, ...])
    assert_type(list(X), list[Array])


def test_operators() -> None:
    assert_type(X + 1, Array)
    assert_type(2.0 * X - 1j, Array)
    assert_type(1 / (1 + X), Array)
    assert_type(X**2 % 3, Array)
    assert_type(-X @ M, Array)
    assert_type(X + np.ones(3), Array)
    assert_type(X * np.float32(2.0), Array)
    assert_type(np.float32(2.0) * X, Array)
    assert_type(M @ np.ones(3), Array)
    assert_type((X > 0) & (X < 2), Array)
    assert_type(X == 1.0, Array)


def test_linalg_and_nn() -> None:
    assert_type(fnp.linalg.solve(M, X), Array)
    assert_type(fnp.linalg.norm(X), Array)
    assert_type(fnp.linalg.inv(M), Array)
    assert_type(fnp.linalg.eigh(M).eigenvalues, Array)
    q, r = fnp.linalg.qr(M)
    assert_type(q @ r, Array)
    assert_type(nn.relu(X), Array)
    assert_type(nn.softmax(X), Array)
    assert_type(nn.one_hot(fnp.arange(3), 3), Array)
    assert_type(nn.logsumexp(X), Array)


def test_lax_functions() -> None:
    assert_type(lax.add(X, X), Array)
    assert_type(lax.stop_gradient(X), Array)
    assert_type(lax.dynamic_slice(X, (0,), (2,)), Array)
    assert_type(lax.top_k(X, 2), tuple[Array, Array])
    assert_type(lax.cumsum(X), Array)


def test_shard_map() -> None:
    mesh = fx.make_mesh((1,), ("x",))

    def shifted(x: Array) -> Array:
        return x - lax.pmax(x.max(), "x")

    assert_type(fx.shard_map(shifted, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(X), Array)


def test_collectives() -> None:
    def collect(x: Array, params: Params) -> tuple[Array, Params]:
        assert_type(lax.psum(1, "i"), int)
        assert_type(lax.pmean((x, x), "i"), tuple[Array, Array])
        assert_type(lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]), Array)
        assert_type(lax.all_gather(x, "i"), Array)
        return assert_type(lax.psum(x, "i"), Array), assert_type(lax.pmin(params, "i"), Params)

    total, smallest = fx.vmap(collect, in_axes=(0, None), axis_name="i")(X, PARAMS)
    assert_type(total, Array)
    assert_type(smallest, Params)


def test_solvers_and_reductions() -> None:
    def residual(x: Array) -> Array:
        return x * x - 2.0

    def newton(f: Callable[[Array], Array], guess: Array) -> Array:
        return guess - f(guess) / (2.0 * guess)

    def divide(g: Callable[[Array], Array], y: Array) -> Array:
        return y / g(fnp.ones(()))

    def times_two(x: Array) -> Array:
        return 2.0 * x

    assert_type(lax.custom_root(residual, fnp.asarray(1.5), newton, divide), Array)
    assert_type(lax.custom_root(residual, 1.5, newton, divide), Array)
    assert_type(lax.custom_linear_solve(times_two, fnp.asarray(3.0), divide), Array)
    assert_type(lax.reduce(X, 0.0, lax.add, (0,)), Array)
    assert_type(lax.reduce_window(X, 0.0, lax.add, (2,)), Array)


def test_array_likes_have_operators() -> None:
    def affine(x: ArrayLike) -> Array:
        y = 2 * x + 1
        return fnp.asarray(x**2 - x / 3) + fnp.asarray(y)

    for x in (X, np.ones(3), np.float32(2.0), np.bool_(True), True, 2, 2.0, 2j):
        assert_type(affine(x), Array)
