"""Static types of transformed functions. Checked by mypy and pyright; the functions are never called.

Both report an `ignore` that is not needed, so an invalid call that is no longer rejected fails the check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, assert_type

import tracefx as fx
from tracefx import Array
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.jvp import JVP
from tracefx.transforms.jit import Jitted
from tracefx.transforms.transform import Preserving, TransformOf

Params = dict[str, Array]


def loss(params: Params, x: Array, scale: float = 1.0) -> Array:
    return (params["w"] * x * scale).sum()


def loss_and_count(params: Params, x: Array) -> tuple[Array, int]:
    return (params["w"] * x).sum(), 1


def four(a: Array, b: Params, c: float, d: list[Array]) -> Array:
    return a


def four_and_count(a: Array, b: Params, c: float, d: list[Array]) -> tuple[Array, str]:
    return a, ""


def no_arguments() -> float:
    return 0.0


def square(x: Array) -> Array:
    return x * x


def jit_keeps_the_signature(params: Params, x: Array) -> None:
    f = fx.jit(loss)
    assert_type(f(params, x), Array)
    assert_type(f(params, x=x, scale=2.0), Array)
    f(params)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    f(params, "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    f(params, x, size=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(f.lower(params, x).compile()(params, x), Array)
    f.lower(params)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(f.lower(params, x).as_text(), str)
    fx.jit(3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    fx.jit(loss, static_argnums="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@fx.jit
def decorated(x: Array, n: int) -> list[Array]:
    return [x] * n


@fx.jit(static_argnums=1, inline=True)
def decorated_with_options(x: Array, n: int) -> list[Array]:
    return [x] * n


def jit_is_a_decorator(x: Array) -> None:
    assert_type(decorated(x, 2), list[Array])
    assert_type(decorated_with_options(x, n=2), list[Array])
    decorated(x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    decorated_with_options(x, "2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fx.jit(static=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


class Layer:
    w: Array

    def __init__(self, w: Array) -> None:
        self.w = w

    def loss(self, x: Array) -> Array:
        return (self.w * x).sum()

    @fx.jit
    def apply(self, x: Array, bias: float = 0.0) -> Array:
        return self.w * x + bias

    @fx.jit(static_argnums=0)
    def apply_static(self, x: Array) -> tuple[Array, Array]:
        return self.w, x

    @fx.vmap
    def rows(self, x: Array) -> Array:
        return self.w * x

    @partial(fx.jit, static_argnums=0)
    def through_partial(self, x: Array, bias: float = 0.0) -> Array:
        return self.w * x + bias

    @partial(fx.grad, argnums=1)
    def slope(self, x: Array) -> Array:
        return self.w * x

    @fx.named_call
    def named(self, x: Array) -> Array:
        return self.w * x


def methods_are_bound(layer: Layer, x: Array) -> None:
    assert_type(layer.apply(x), Array)
    assert_type(layer.apply(x, bias=1.0), Array)
    assert_type(layer.apply_static(x), tuple[Array, Array])
    assert_type(layer.rows(x), Array)
    assert_type(layer.named(x), Array)
    assert_type(Layer.apply(layer, x), Array)
    layer.through_partial(x, 1.0)  # mypy loses the overloads in a partial application
    layer.slope(x)
    assert_type(fx.grad(Layer.loss, argnums=1)(layer, x), Array)
    assert_type(fx.grad(layer.loss)(x), Array)
    layer.apply()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    layer.apply(layer, x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    layer.apply_static("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    layer.rows(x, x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def vmap_keeps_the_signature(params: Params, x: Array) -> None:
    f = fx.vmap(loss, in_axes=(None, 0), axis_name="batch")
    assert_type(f(params, x), Array)
    assert_type(f(params, x=x, scale=2.0), Array)
    f(x, params)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    f(params, x, size=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(fx.jit(fx.vmap(loss))(params, x), Array)
    fx.vmap(loss, axis_size="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(fx.named_call(loss, name="loss")(params, x), Array)


def grad_returns_arrays_in_the_structure_of_the_argument(a: Array, b: Params, c: float, d: list[Array]) -> None:
    assert_type(fx.grad(four)(a, b, c, d), Array)
    assert_type(fx.grad(four, 0)(a, b, c, d), Array)
    assert_type(fx.grad(four, 1)(a, b, c, d), Params)
    assert_type(fx.grad(four, argnums=2)(a, b, c, d), Array)
    assert_type(fx.grad(four, argnums=3)(a, b, c, d), list[Array])
    assert_type(fx.grad(four, (0, 1))(a, b, c, d), tuple[Array, Params])
    assert_type(fx.grad(four, (2, 3))(a, b, c, d), tuple[Any, ...])
    assert_type(fx.grad(four, [1])(a, b, c, d), tuple[Any, ...])
    assert_type(fx.grad(loss)(b, a, scale=2.0), Params)
    assert_type(fx.grad(loss, holomorphic=True, allow_int=False)(b, a), Params)
    assert_type(fx.jit(fx.grad(loss))(b, a, scale=2.0), Params)
    assert_type(fx.grad(fx.jit(loss))(b, a, scale=2.0), Params)
    assert_type(fx.vmap(fx.grad(loss), in_axes=(None, 0))(b, a), Params)
    assert_type(fx.grad(fx.grad(square))(a), Array)


def grad_with_aux(a: Array, b: Params, c: float, d: list[Array]) -> None:
    assert_type(fx.grad(loss_and_count, has_aux=True)(b, a), tuple[Params, int])
    assert_type(fx.grad(four_and_count, 1, has_aux=True)(a, b, c, d), tuple[Params, str])
    assert_type(fx.grad(four_and_count, 2, True)(a, b, c, d), tuple[Array, str])
    assert_type(fx.grad(four_and_count, argnums=3, has_aux=True)(a, b, c, d), tuple[list[Array], str])
    assert_type(fx.grad(four_and_count, (0, 1), has_aux=True)(a, b, c, d), tuple[tuple[Array, Params], str])
    assert_type(fx.grad(four_and_count, [2], has_aux=True)(a, b, c, d), tuple[tuple[Any, ...], str])


def value_and_grad_returns_both(a: Array, b: Params, c: float, d: list[Array], n: int, ns: Sequence[int]) -> None:
    assert_type(fx.value_and_grad(four)(a, b, c, d), tuple[Array, Array])
    assert_type(fx.value_and_grad(four, 1)(a, b, c, d), tuple[Array, Params])
    assert_type(fx.value_and_grad(four, 2)(a, b, c, d), tuple[Array, Array])
    assert_type(fx.value_and_grad(four, 3)(a, b, c, d), tuple[Array, list[Array]])
    assert_type(fx.value_and_grad(four, (0, 1))(a, b, c, d), tuple[Array, tuple[Array, Params]])
    assert_type(fx.value_and_grad(four, n)(a, b, c, d), tuple[Array, Any])
    assert_type(fx.value_and_grad(four, ns)(a, b, c, d), tuple[Array, tuple[Any, ...]])
    assert_type(fx.value_and_grad(loss_and_count, has_aux=True)(b, a), tuple[tuple[Array, int], Params])
    assert_type(fx.value_and_grad(four_and_count, 1, has_aux=True)(a, b, c, d), tuple[tuple[Array, str], Params])
    assert_type(fx.value_and_grad(four_and_count, 3, has_aux=True)(a, b, c, d), tuple[tuple[Array, str], list[Array]])
    assert_type(fx.jit(fx.value_and_grad(loss))(b, a, scale=2.0), tuple[Array, Params])


def grad_refuses(a: Array, b: Params) -> None:
    fx.grad(no_arguments)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fx.grad(loss, has_aux=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    fx.grad(loss, argnums="params")  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    fx.grad(loss)(a, b)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fx.grad(loss)(b)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fx.grad(loss)(b, a, size=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fx.grad(loss)(params=b, x=a)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fx.value_and_grad(loss, has_aux=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def jvp_and_vjp(a: Array, b: Params, c: float) -> None:
    assert_type(fx.jvp(loss, (b, a), (b, a)), tuple[Array, Array])
    assert_type(fx.jvp(loss, [b, a], [b, a]), tuple[Array, Array])
    assert_type(fx.jvp(loss_and_count, (b, a), (b, a), has_aux=True), tuple[Array, Array, int])
    fx.jvp(loss, (b,), (b,))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    fx.jvp(loss, b, b)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]

    value, pull = fx.vjp(loss, b, a)
    assert_type(value, Array)
    assert_type(pull(value), tuple[Params, Array])
    assert_type(pull(1.0), tuple[Params, Array])
    pull("1")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    _, _, count = fx.vjp(loss_and_count, b, a, has_aux=True)
    assert_type(count, int)
    fx.vjp(loss, b)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    fx.vjp(loss, b, a, has_aux=True)  # type: ignore[call-arg, call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]

    value, push = fx.linearize(loss, b, a)
    assert_type(value, Array)
    assert_type(push(b, a), Array)
    push(a, b)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(fx.linearize(loss_and_count, b, a, has_aux=True)[2], int)

    assert_type(fx.linear_transpose(square, a)(a), tuple[Any, ...])


def jacobians(a: Array, b: Params) -> None:
    assert_type(fx.jacfwd(square)(a), Array)
    assert_type(fx.jacrev(square)(a), Array)
    assert_type(fx.hessian(square)(a), Array)
    assert_type(fx.jacrev(loss_and_count, has_aux=True)(b, a), tuple[Any, int])
    fx.jacfwd(square)(b)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    fx.jacrev(loss, argnums=1)(a, b)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    fx.hessian(loss, has_aux=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def programs(a: Array, b: Params) -> None:
    assert_type(fx.make_jaxpr(loss)(b, a), fx.ClosedJaxpr)
    assert_type(fx.make_jaxpr(loss, return_shape=True)(b, a), tuple[fx.ClosedJaxpr, fx.ShapeDtypeStruct])
    fx.make_jaxpr(loss)(a, b)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(fx.eval_shape(loss, b, fx.ShapeDtypeStruct((), "float32")), fx.ShapeDtypeStruct)


def transforms_are_typed(a: Array, b: Params, c: float, d: list[Array]) -> None:
    assert_type(fx.Jit()(loss)(b, a, scale=2.0), Array)
    assert_type(fx.Jit()(loss).lower(b, a).as_text(), str)
    assert_type(fx.Vmap()(loss)(b, a, scale=2.0), Array)
    assert_type(fx.IdentityTransform()(loss)(b, a, scale=2.0), Array)
    assert_type(fx.Grad()(loss)(b, a, scale=2.0), Params)
    assert_type(fx.Grad(1)(four)(a, b, c, d), Params)
    assert_type(fx.Grad(argnums=2)(four)(a, b, c, d), Array)
    assert_type(fx.Grad(3)(four)(a, b, c, d), list[Array])
    assert_type(fx.Grad((0, 1))(four)(a, b, c, d), tuple[Array, Params])
    assert_type(fx.Grad([0, 1])(four)(a, b, c, d), tuple[Any, ...])
    assert_type(fx.Grad(has_aux=True)(loss_and_count)(b, a), tuple[Params, int])
    assert_type(fx.Grad(1, has_aux=True)(four_and_count)(a, b, c, d), tuple[Params, str])
    assert_type(fx.ValueAndGrad()(loss)(b, a, scale=2.0), tuple[Array, Params])
    assert_type(fx.ValueAndGrad(1)(four)(a, b, c, d), tuple[Array, Params])
    assert_type(fx.ValueAndGrad(has_aux=True)(loss_and_count)(b, a), tuple[tuple[Array, int], Params])
    assert_type(fx.Jvp()(loss)((b, a, c), (b, a, c)), tuple[Array, Array])
    assert_type(fx.Jvp(has_aux=True)(loss_and_count)((b, a), (b, a)), tuple[Array, Array, int])
    fx.Grad()(no_arguments)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fx.Grad(1)(square)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fx.Grad(has_aux=True)(loss)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fx.Grad(argnums="x")  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    fx.Jit()(loss)(a, b)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fx.Jit(static=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fx.Jvp()(loss)((b,), (b,))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def compositions_are_typed(a: Array, b: Params, c: float, d: list[Array], n: int, aux: bool) -> None:
    both = fx.Jit() @ fx.Vmap(in_axes=(None, 0))
    assert_type(both, TransformOf[Preserving])
    assert_type(both(loss)(b, a, scale=2.0), Array)
    both(loss)(a, b)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    both(loss)(b, a, size=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    pipeline = fx.Jit() @ fx.Vmap(in_axes=0) @ fx.Grad()
    assert_type(pipeline(loss)(b, a, scale=2.0), Params)
    pipeline(loss)(b)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    pipeline(no_arguments)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type((fx.Jit() @ (fx.Vmap() @ fx.Grad(1)))(four)(a, b, c, d), Params)
    assert_type((fx.Jit() @ fx.ValueAndGrad(has_aux=True))(loss_and_count)(b, a), tuple[tuple[Array, int], Params])
    assert_type((fx.Grad() @ fx.Jit() @ fx.Grad())(square)(a), Array)
    assert_type((fx.NamedCall("f") @ fx.IdentityTransform())(loss)(b, a), Array)
    assert_type((fx.Jit() @ fx.JacRev())(loss)(b, a), Any)
    (fx.Jit() @ fx.JacRev())(loss)(a, b)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type((fx.Jit() @ fx.Grad(n, aux))(loss)(b, a, scale=2.0), Any)
    fx.Jit() @ square  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]


def transforms_of_untyped_functions(f: Callable[..., Any], g: Callable[[Any, Any], Any], x: Array) -> None:
    # Where several overloads match, mypy infers Any; the test is that the calls are allowed.
    fx.grad(f)(x)
    fx.grad(g, 1)(x, x)
    fx.grad(g, (0, 1))(x, x)
    fx.value_and_grad(g, 1)(x, x)
    fx.value_and_grad(g, 1, has_aux=True)(x, x)
    fx.jacfwd(g)(x, x)
    fx.hessian(f, argnums=1)(x, x)
    fx.make_jaxpr(f, return_shape=True)(x)
    fx.Grad(1)(g)(x, x)
    (fx.Jit() @ fx.Grad())(f)(x)
    fx.grad(lambda y: y * y)(1.0)
    fx.jacrev(lambda y: y * y)(x)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    fx.jit(lambda y: y * y)(x)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    fx.vjp(lambda y: y * y, x)
    fx.jvp(lambda y: y * y, (x,), (x,))


def calling_any_transform(transform: fx.Transform, x: Array) -> None:
    assert_type(transform(square), Callable[..., Any])
    assert_type(fx.Jit() @ transform, fx.Transform)
    assert_type(transform @ fx.Jit(), fx.Transform)
    calling_any_transform(fx.Jit() @ fx.Grad(), x)
    calling_any_transform(fx.Jvp() @ fx.Grad(), x)
    fx.Transform()  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]


def handlers_are_typed(handler: Batch) -> None:
    assert_type(fx.Vmap(axis_size=3).over(handler), Batch)
    assert_type(fx.Jvp().over(handler), JVP)
    (fx.Vmap(axis_size=3) @ fx.Vmap(axis_size=4)).over(handler)
    (fx.Vmap(axis_size=3) @ fx.Jvp()).over(handler)
    fx.Jit().over(handler)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    (fx.Jit() @ fx.Vmap(axis_size=3)).over(handler)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def jitted_is_assignable_to_callable(f: Jitted[[Array], Array]) -> Callable[[Array], Array]:
    return f
