"""`grad`, `value_and_grad`, `jvp`, `vjp`, `linearize`, `linear_transpose`, against JAX."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import JAX_TRANSFORM_TOLERANCE, Case, assert_agree, assert_same
from tests.interpreters.stacks import CountingHandler
from tracefx.core import dtypes
from tracefx.core.handler import current, handling
from tracefx.lax import stop_gradient

X: Final = np.array([0.5, -1.5, 2.0], np.float32)
M: Final = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)
C: Final = np.array([0.5 + 1j, -1.5 - 0.25j], np.complex64)
I: Final = np.array([3, 1, 2], np.int32)  # noqa: E741
FLOAT0: Final = jax.dtypes.float0


class Pair(NamedTuple):
    left: Any
    right: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Weights:
    w: Any
    b: Any
    name: str = dataclasses.field(metadata={"static": True})


def quadratic(F: Any, N: Any) -> Any:
    return lambda x, y: N.sum(x * y * y + N.sin(x))


CASES: Final[dict[str, Case]] = {
    # ------------------------------------------------------------------ grad
    "grad of a scalar": lambda F, N: F.grad(lambda x: N.sin(x) * x)(2.0),
    "grad of a numpy scalar": lambda F, N: F.grad(lambda x: N.sin(x) * x)(np.float32(2.0)),
    "grad of a numpy array": lambda F, N: F.grad(lambda x: N.sum(N.sin(x) * x))(X),
    "grad in float16": lambda F, N: F.grad(lambda x: N.sum(N.sin(x) * x))(X.astype(np.float16)),
    "grad twice": lambda F, N: F.grad(F.grad(lambda x: N.sin(x) * x * x))(2.0),
    "grad thrice": lambda F, N: F.grad(F.grad(F.grad(lambda x: N.exp(x) * x * x)))(0.5),
    "argnums 1": lambda F, N: F.grad(quadratic(F, N), 1)(X, X + 1),
    "argnums -1": lambda F, N: F.grad(quadratic(F, N), -1)(X, X + 1),
    "argnums tuple": lambda F, N: F.grad(quadratic(F, N), (0, 1))(X, X + 1),
    "argnums list": lambda F, N: F.grad(quadratic(F, N), [1, 0])(X, X + 1),
    "argnums tuple of one": lambda F, N: F.grad(quadratic(F, N), (1,))(X, X + 1),
    "argnums negative tuple": lambda F, N: F.grad(quadratic(F, N), (-2, 1))(X, X + 1),
    "has_aux": lambda F, N: F.grad(lambda x: (N.sum(x * x), {"x": N.cos(x), "n": 3, "s": "word"}), has_aux=True)(X),
    "has_aux, a list": lambda F, N: F.grad(lambda x: [N.sum(x * x), N.cos(x)], has_aux=True)(X),
    "has_aux that is None": lambda F, N: F.grad(lambda x: (N.sum(x * x), None), has_aux=True)(X),
    "value_and_grad": lambda F, N: F.value_and_grad(lambda x: N.sum(x * x * x))(X),
    "value_and_grad has_aux": lambda F, N: F.value_and_grad(lambda x: (N.sum(x * x), [x * 2, x]), has_aux=True)(X),
    "value_and_grad argnums": lambda F, N: F.value_and_grad(quadratic(F, N), (0, 1))(X, X),
    "kwargs": lambda F, N: F.grad(lambda x, *, scale: N.sum(x * scale["s"]))(X, scale={"s": 3.0}),
    "unused argument": lambda F, N: F.grad(lambda x, y: N.sum(x), (0, 1))(X, M),
    "constant function": lambda F, N: F.grad(lambda x: 3.0)(X),
    "output is the input": lambda F, N: F.grad(lambda x: x)(np.float32(2)),
    "value is the input": lambda F, N: F.value_and_grad(lambda x: x)(2.0),
    "holomorphic": lambda F, N: F.grad(lambda z: N.sum(z * z * z), holomorphic=True)(C),
    "a real function of complex numbers": lambda F, N: F.grad(lambda z: N.sum(N.abs(z) ** 2 * N.imag(z)))(C),
    "holomorphic exp": lambda F, N: F.grad(lambda z: N.sum(N.exp(z)), holomorphic=True)(C),
    "real loss of complex inside": lambda F, N: F.grad(lambda x: N.sum(N.real((x + 2j) * (x - 1j))))(X),
    "allow_int": lambda F, N: F.grad(lambda i: N.sum(i * X), allow_int=True)(I),
    "allow_int mixed": lambda F, N: F.grad(lambda x, i: N.sum(x * i), (0, 1), allow_int=True)(X, I),
    "allow_int bool": lambda F, N: F.grad(lambda b: N.sum(N.where(b, X, 0.0)), allow_int=True)(X > 0),
    "through integers": lambda F, N: F.grad(lambda x: N.sum(x.astype(np.int32).astype(np.float32) * x))(X),
    "pytree in": lambda F, N: F.grad(lambda p: N.sum(p["a"] * p["b"][0]) + p["b"][1])({"a": X, "b": [X, 2.0]}),
    "None inside": lambda F, N: F.grad(lambda p: N.sum(p[0]) * 2.0)((X, None)),
    "named tuple": lambda F, N: F.grad(lambda p: N.sum(p.left * p.right))(Pair(X, 3.0)),
    "dataclass": lambda F, N: F.grad(lambda p: N.sum(N.tanh(p.w @ X + p.b)))(Weights(M, X[:2], "layer")),
    "closure over array": lambda F, N: F.grad(lambda y: N.sum(y * N.asarray(X) * N.sin(N.asarray(X))))(X),
    "closure over tracer": lambda F, N: F.grad(lambda x: F.grad(lambda y: N.sum(x * y * x))(X).sum())(X),
    "perturbation confusion": lambda F, N: F.grad(lambda x: x * F.grad(lambda y: x + y)(1.0))(1.0),
    "nested in has_aux": lambda F, N: F.grad(lambda x: F.grad(lambda y: (x * y * y, x * y), has_aux=True)(x)[1])(3.0),
    "Python control flow": lambda F, N: F.grad(lambda x: x * x if x > 1 else -x)(3.0),
    "a leaf used twice": lambda F, N: F.grad(lambda p: N.sum(p[0] * p[1]))([X, X]),
    "grad of jit": lambda F, N: F.grad(F.jit(quadratic(F, N)), (0, 1))(X, X),
    "jit of grad": lambda F, N: F.jit(F.grad(quadratic(F, N), (0, 1)))(X, X),
    "jit of grad of jit": lambda F, N: F.jit(F.grad(F.jit(quadratic(F, N)), 1))(X, X),
    "jit of value_and_grad, trees": lambda F, N: F.jit(
        F.value_and_grad(lambda p, x: N.sum(N.tanh(p["w"] @ x + p["b"])))
    )({"w": M, "b": X[:2]}, X),
    "grad through int inside jit": lambda F, N: F.grad(F.jit(lambda x, i: N.sum(x * i)), (0, 1), allow_int=True)(X, I),
    "weak float": lambda F, N: F.grad(lambda x: 2 * x)(3.0),
    "broadcasting": lambda F, N: F.grad(lambda m, x: N.sum(m * x), (0, 1))(M, X),
    "broadcasting of a scalar": lambda F, N: F.grad(lambda m, x: N.sum(m * x), (0, 1))(M, 2.0),
    "stop at max": lambda F, N: F.grad(lambda x: N.max(x) * N.min(x))(X),
    "empty tree": lambda F, N: F.grad(lambda p: 1.0)({}),
    # ------------------------------------------------------------------ jvp
    "jvp": lambda F, N: F.jvp(lambda x: N.sin(x) * x, (2.0,), (1.0,)),
    "jvp of arrays": lambda F, N: F.jvp(lambda x, y: N.sin(x) * y, (X, X), (X + 1, X)),
    "jvp lists": lambda F, N: F.jvp(lambda x, y: N.sin(x) * y, [X, X], [X + 1, X]),
    "jvp pytree": lambda F, N: F.jvp(
        lambda p: {"out": p["a"] * p["b"], "n": None}, ({"a": X, "b": X},), ({"a": X, "b": -X},)
    ),
    "jvp has_aux": lambda F, N: F.jvp(lambda x: (N.sin(x), (x * 2, "w")), (X,), (X,), has_aux=True),
    "jvp float0": lambda F, N: F.jvp(lambda x, i: (x * i, i + 1), (X, I), (X, np.zeros(3, FLOAT0))),
    "jvp only ints": lambda F, N: F.jvp(lambda i: i * 2, (I,), (np.zeros(3, FLOAT0),)),
    "jvp bool output": lambda F, N: F.jvp(lambda x: x > 0, (X,), (X,)),
    "jvp constant output": lambda F, N: F.jvp(lambda x: (N.asarray(X) * 2.0, x), (X,), (X,)),
    "jvp twice": lambda F, N: F.jvp(lambda x: F.jvp(lambda y: N.sin(y) * x, (x,), (1.0,))[1], (2.0,), (1.0,)),
    "jvp of grad": lambda F, N: F.jvp(F.grad(lambda x: N.sum(N.sin(x) ** 2)), (X,), (X,)),
    "grad of jvp": lambda F, N: F.grad(lambda x: N.sum(F.jvp(N.sin, (x,), (x,))[1]))(X),
    "jvp of jit": lambda F, N: F.jvp(F.jit(lambda x, i: (x * i, i)), (X, I), (X, np.zeros(3, FLOAT0))),
    "jit of jvp": lambda F, N: F.jit(lambda x, t: F.jvp(N.sin, (x,), (t,)))(X, X),
    "jvp of a python tangent": lambda F, N: F.jvp(N.sin, (np.float32(1.0),), (1.0,)),
    # ------------------------------------------------------------------ vjp
    "vjp": lambda F, N: (lambda y, pull: (y, pull(X)))(*F.vjp(N.sin, X)),
    "vjp of two": lambda F, N: (lambda y, pull: (y, pull(X)))(*F.vjp(lambda x, y: x * y, X, X + 1)),
    "vjp trees": lambda F, N: (lambda y, pull: (y, pull({"s": X, "t": [X]})))(
        *F.vjp(lambda p: {"s": p[0] * 2, "t": [p[1] * p[0]]}, (X, X))
    ),
    "vjp has_aux": lambda F, N: (lambda y, pull, aux: (y, pull(X), aux))(
        *F.vjp(lambda x: (x * x, [x, 1]), X, has_aux=True)
    ),
    "vjp float0": lambda F, N: (lambda y, pull: (y, pull(X)))(*F.vjp(lambda x, i: x * i, X, I)),
    "vjp int output": lambda F, N: (lambda y, pull: (y, pull((X, np.zeros(3, FLOAT0)))))(
        *F.vjp(lambda x, i: (x * i, i), X, I)
    ),
    "vjp of jit": lambda F, N: (lambda y, pull: (y, pull((X, np.zeros(3, FLOAT0)))))(
        *F.vjp(F.jit(lambda x, i: (x * i, i)), X, I)
    ),
    "vjp constant": lambda F, N: (lambda y, pull: (y, pull(X)))(*F.vjp(lambda x: N.asarray(X), X)),
    "vjp pulled twice": lambda F, N: (lambda y, pull: (pull(X), pull(2 * X)))(*F.vjp(N.sin, X)),
    "jit of pull": lambda F, N: (lambda y, pull: F.jit(pull)(X))(*F.vjp(N.sin, X)),
    "vmap of pull": lambda F, N: (lambda y, pull: F.vmap(pull)(np.eye(3, dtype=np.float32)))(*F.vjp(N.sin, X)),
    "vjp complex": lambda F, N: (lambda y, pull: (y, pull(C)))(*F.vjp(lambda z: z * z, C)),
    # ------------------------------------------------------------------ linearize
    "linearize": lambda F, N: (lambda y, push: (y, push(1.0), push(2.0)))(*F.linearize(lambda x: N.sin(x) * x, 3.0)),
    "linearize trees": lambda F, N: (lambda y, push: (y, push((X, X))))(
        *F.linearize(lambda p: {"o": p[0] * p[1]}, (X, X))
    ),
    "linearize has_aux": lambda F, N: (lambda y, push, aux: (y, push(X), aux))(
        *F.linearize(lambda x: (x * x, {"a": x}), X, has_aux=True)
    ),
    "linearize float0": lambda F, N: (lambda y, push: (y, push(X, np.zeros(3, FLOAT0))))(
        *F.linearize(lambda x, i: (x * i, i), X, I)
    ),
    "linearize of nested jit": lambda F, N: (lambda y, push: (y, push(X)))(
        *F.linearize(F.jit(lambda x: N.sin(x) * F.jit(lambda z: z * x)(x)), X)
    ),
    "linearize constant": lambda F, N: (lambda y, push: (y, push(X)))(*F.linearize(lambda x: N.asarray(X), X)),
    "grad of linearize": lambda F, N: F.grad(lambda x: N.sum(F.linearize(N.sin, x)[1](X)))(X),
    "vmap of push": lambda F, N: (lambda y, push: F.vmap(push)(np.eye(3, dtype=np.float32)))(*F.linearize(N.sin, X)),
    # ------------------------------------------------------------------ linear_transpose
    "linear_transpose": lambda F, N: F.linear_transpose(lambda x: 3 * x, 1.0)(2.0),
    "linear_transpose matrix": lambda F, N: F.linear_transpose(lambda x: M @ x, X)(X[:2]),
    "linear_transpose trees": lambda F, N: F.linear_transpose(
        lambda p: (p["a"] + p["b"], 2 * p["a"]), {"a": X, "b": X}
    )((X, -X)),
    "linear_transpose two": lambda F, N: F.linear_transpose(lambda x, y: x - 2 * y, X, X)(X),
    "linear_transpose of types": lambda F, N: F.linear_transpose(lambda x: 3 * x, F.ShapeDtypeStruct((3,), np.float32))(
        X
    ),
    "linear_transpose of jit": lambda F, N: F.linear_transpose(F.jit(lambda x: M @ x * 2), X)(X[:2]),
    "linear_transpose unused": lambda F, N: F.linear_transpose(lambda x, y: x * 2, X, X)(X),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_jax(name: str) -> None:
    assert_agree(CASES[name])


# ------------------------------------------------------------------ enable_x64


@pytest.mark.parametrize("enabled", [True, False])
def test_value_and_grad_respects_enable_x64(enabled: bool) -> None:
    with fx.enable_x64(enabled):
        result = fx.value_and_grad(lambda x: fnp.sum(fnp.sin(x)))(X.astype(np.float64))
    with jax.enable_x64(enabled):
        expected = jax.value_and_grad(lambda x: jax.numpy.sum(jax.numpy.sin(x)))(X.astype(np.float64))
    assert_same(result, expected, JAX_TRANSFORM_TOLERANCE)


# ------------------------------------------------------------------ number of evaluations


def wave(x: Any) -> Any:
    return fnp.exp(fnp.sin(x)) * fnp.cos(x)


def test_linearize_calls_the_function_once_and_jvp_reuses_residuals() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(1)
        return wave(x)

    with handling(CountingHandler(current())) as count:
        _, push = fx.linearize(f, X)
    assert (count.seen["exp"], count.seen["sin"]) == (1, 2)  # the derivative of cos needs the sine too
    with handling(CountingHandler(current())) as count:
        push(X)
        push(X)
    assert not count.seen.keys() & {"sin", "cos", "exp"}
    assert count.seen["mul"] > 0
    assert len(calls) == 1


def test_linearized_jit_contains_only_linear_operations() -> None:
    _, push = fx.linearize(fx.jit(wave), X)
    text = str(fx.make_jaxpr(push)(X))
    assert "mul" in text
    assert all(f" {work} " not in text for work in ("sin", "cos", "exp"))


def test_zero_tangents_and_cotangents_are_symbolic() -> None:
    """Constants have no tangents, and outputs without a cotangent cost nothing."""

    def f(x: Any, y: Any) -> Any:
        fnp.sin(y)
        return fnp.sum(x * 2.0)

    with handling(CountingHandler(current())) as count:
        fx.grad(f)(X, X)
    assert count.seen["cos"] == 0  # sin(y) is evaluated, but not differentiated
    with handling(CountingHandler(current())) as count:
        _, pull = fx.vjp(lambda x: (fnp.sin(x), x * 2.0), X)
        count.seen.clear()
        pull((X, X))
    both = count.seen["mul"]
    assert both == 2


def test_gradient_of_unused_leaf_is_zeros_of_its_type() -> None:
    g = fx.grad(lambda p: fnp.sum(p["x"]))({"x": X, "unused": M})
    np.testing.assert_array_equal(np.asarray(g["unused"]), np.zeros((2, 3), np.float32))


# ------------------------------------------------------------------ identities


def test_transforms_keep_name_and_docstring() -> None:
    def loss(x: Any) -> Any:
        """What it says."""
        return x

    for transformed in (fx.grad(loss), fx.value_and_grad(loss), fx.jit(loss), fx.vmap(loss), fx.jacfwd(loss)):
        assert (transformed.__name__, transformed.__doc__) == ("loss", "What it says.")


def test_grad_of_namedtuple_is_namedtuple() -> None:
    g = fx.grad(lambda p: fnp.sum(p.left * p.right))(Pair(X, X))
    assert isinstance(g, Pair)


def test_jvp_refuses_float_tangents_for_integers() -> None:
    """float0 is the tangent dtype of an integer; other dtypes are refused."""
    with pytest.raises(TypeError, match=r"jvp.*float0\[3\], since primals\[0\] is an integer .* f32\[3\]"):
        fx.jvp(lambda i: i, (I,), (X,))


# ------------------------------------------------------------------ conversions that would lose the derivative

LOSSES: Final[dict[str, Any]] = {
    "numpy": lambda x: np.sin(x),
    "asarray": lambda x: np.asarray(x) * x,
    "float": lambda x: float(x) * x,
    "complex": lambda x: complex(x).real * x,
    "item": lambda x: x.item() * x,
    "tolist": lambda x: x.tolist() * x,
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("transform", [fx.grad, fx.jacfwd, lambda f: lambda x: fx.jvp(f, (x,), (x,))])
def test_conversion_of_differentiated_tracer_raises(name: str, transform: Any) -> None:
    with pytest.raises(TypeError, match=r"of type f32\[\] is differentiated at .*: it would have no derivative"):
        transform(LOSSES[name])(np.float32(2.0))


@pytest.mark.parametrize("name", LOSSES)
def test_undifferentiated_values_are_concrete(name: str) -> None:
    """Neither a value behind `stop_gradient` nor an argument outside of argnums is traced."""
    concrete_two = fnp.asarray(np.float32(2.0))
    stopped = fx.grad(lambda x: x * LOSSES[name](stop_gradient(x)))(np.float32(2.0))
    assert float(stopped) == float(LOSSES[name](concrete_two))
    assert float(fx.grad(lambda x, y: x * LOSSES[name](y))(np.float32(1.0), concrete_two)) == float(stopped)


@pytest.mark.parametrize("convert", [bool, int])
def test_bool_and_int_of_differentiated_values_are_allowed(convert: Any) -> None:
    assert_agree(lambda F, N: F.grad(lambda x: x * convert(x))(2.5))


# ------------------------------------------------------------------ integers


def _both(F: Any, N: Any) -> Any:
    return F.vjp(lambda x: (x * 2, (x * 0).astype("int32"), x > 1), N.ones(2))[1]


INTEGER_COTANGENTS: Final[dict[str, Any]] = {
    "float0": lambda N: np.zeros(2, dtypes.float0),
    "int32": lambda N: N.ones(2, "int32"),
    "numpy": lambda N: np.ones(2, np.int32),
    "int8": lambda N: N.ones(2, "int8"),
    "float32": lambda N: N.ones(2),
    "bool": lambda N: N.ones(2, bool),
}


@pytest.mark.parametrize("name", INTEGER_COTANGENTS)
def test_cotangents_of_integer_outputs_have_any_dtype(name: str) -> None:
    assert_agree(lambda F, N: _both(F, N)((N.ones(2), INTEGER_COTANGENTS[name](N), INTEGER_COTANGENTS[name](N))))


@pytest.mark.parametrize("wrong", [0, np.zeros(3, np.int32), np.zeros(3, dtypes.float0), None], ids=str)
def test_invalid_integer_cotangents_raise_as_in_jax(wrong: Any) -> None:
    for F, N in ((fx, fnp), (jax, jnp)):
        with pytest.raises(ValueError, match="vjp|VJP"):
            _both(F, N)((N.ones(2), wrong, N.ones(2, bool)))
        with pytest.raises(ValueError, match="vjp|VJP"):
            F.vjp(lambda x: x * 2, N.ones(2))[1](N.ones(2, "float16"))


LINEAR: Final[dict[str, Any]] = {
    "mul": lambda F, N: (lambda x: x * 2, N.arange(3), N.arange(3)),
    "types alone": lambda F, N: (lambda x: x * 2, F.ShapeDtypeStruct((3,), "int32"), N.arange(3)),
    "used twice": lambda F, N: (lambda x: x + x, N.arange(3, dtype="int8"), N.arange(3, dtype="int8")),
    "slice": lambda F, N: (lambda x: x[1:], N.arange(3), N.arange(2)),
    "gather": lambda F, N: (lambda x: x[N.array([0, 0])], N.arange(3), N.arange(2)),
    "concatenate": lambda F, N: (lambda x: N.concatenate([x, -x]), N.arange(3), N.arange(6)),
    "cumsum": lambda F, N: (lambda x: N.cumsum(x), N.arange(3), N.arange(3)),
    "where": lambda F, N: (lambda x: N.where(N.array([True, False, True]), x, 0), N.arange(3), N.arange(3)),
    "jit": lambda F, N: (F.jit(lambda x: x * 2), N.arange(3), N.arange(3)),
    "scan": lambda F, N: (
        lambda x: F.lax.scan(lambda c, z: (c + z, c * 2), N.zeros((), "int32"), x),
        N.arange(3),
        (N.asarray(2, "int32"), N.arange(3)),
    ),
    "closed over": lambda F, N: (partial(N.multiply, N.arange(3) + 1), N.arange(3), N.arange(3)),
    "floats": lambda F, N: (partial(N.multiply, N.arange(3) + 1.0), N.arange(3.0), N.arange(3.0)),
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_functions_of_integers_are_transposed(name: str) -> None:
    def case(F: Any, N: Any) -> Any:
        f, x, ct = LINEAR[name](F, N)
        transposed = F.linear_transpose(f, x)
        return transposed(ct), F.jit(lambda g, ct: g(ct))(transposed, ct)  # the transposed function is a pytree

    assert_agree(case)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.astype("float32"),
        lambda x: x.astype("int32"),
        lambda x: x.astype("bool"),
        lambda x: (x, x.astype("float32")),
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_linear_transpose_refuses_functions_between_integers_and_floats(f: Any, dtype: str) -> None:
    for F, N in ((fx, fnp), (jax, jnp)):
        x = N.ones(3, dtype)
        kinds = {np.dtype(y.dtype).kind for y in jax.tree.leaves(F.eval_shape(f, x))} | {np.dtype(dtype).kind}
        if len(kinds) > 1:
            with pytest.raises(TypeError, match="linear_transpose"):
                F.linear_transpose(f, x)(f(x))


def test_linear_transpose_leaves_are_closed_over_values() -> None:
    y = fnp.arange(3.0) + 1
    assert [leaf.tolist() for leaf in fx.tree.leaves(fx.linear_transpose(lambda x: x * y, y))] == [[1, 2, 3]]
