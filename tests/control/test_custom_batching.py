"""`custom_vmap` and `sequential_vmap`, compared with JAX where JAX supports the case."""

# The decorators come from either library, whose type is `Any` here.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import JAX_TRANSFORM_TOLERANCE, assert_agree, assert_near, assert_same
from tests.errors import assert_errors
from tracefx.custom_derivatives import ClosedOverTracerError
from tracefx.testing.tolerances import ELEMENTARY

X: Final = np.array([0.5, -1.5, 2.0], np.float32)
Y: Final = np.array([1.0, 3.0, -2.0], np.float32)


def cosine_in_a_batch(lib: Any, np_: Any) -> Any:
    """The rule differs from `vmap` of the function, so the result shows whether the rule was called."""

    @lib.custom_batching.custom_vmap
    def f(x: Any, y: Any) -> Any:
        return np_.sin(x) * y

    @f.def_vmap
    def rule(axis_size: int, in_batched: Any, x: Any, y: Any) -> Any:
        assert type(in_batched) is list
        return np_.cos(x) * y, in_batched[0] or in_batched[1]

    return f


def values(lib: Any, np_: Any) -> Any:
    f = cosine_in_a_batch(lib, np_)
    x, y = np_.asarray(X), np_.asarray(Y)
    return (
        f(x, y),
        lib.jit(f)(x, y),
        lib.vmap(f)(x, y),
        lib.vmap(f, (0, None))(x, y[0]),
        lib.vmap(f, (None, 0))(x[0], y),
        lib.jit(lib.vmap(lib.jit(f)))(x, y),
        lib.vmap(lambda x, y: f(y=y, x=x))(x, y),
        lib.vmap(lambda _: f(x, y))(np_.arange(2)),
    )


def forward_mode(lib: Any, np_: Any) -> Any:
    f = cosine_in_a_batch(lib, np_)
    x, y = np_.asarray(X), np_.asarray(Y)

    def pushed(x: Any, y: Any) -> Any:
        return lib.jvp(f, (x, y), (y, x))

    return (
        pushed(x, y),
        lib.vmap(pushed)(x, y),
        lib.jit(lib.vmap(pushed, (0, None)))(x, y[0]),
        lib.vmap(lambda x: lib.jvp(lib.jit(lambda x: f(x, x)), (x,), (x,)))(x),
        lib.jvp(lib.vmap(f), (x, y), (y, x)),
        lib.vmap(lib.jacfwd(f))(x, y),
    )


def trees(lib: Any, np_: Any) -> Any:
    @lib.custom_batching.custom_vmap
    def f(d: Any, xs: Any) -> Any:
        return {"s": d["a"] + xs[0], "t": (xs[1], d["b"] * 2)}

    @f.def_vmap
    def rule(axis_size: int, in_batched: Any, d: Any, xs: Any) -> Any:
        assert in_batched == [{"a": True, "b": False}, [True, False]], in_batched
        return {"s": d["a"] - xs[0], "t": (xs[1], d["b"] * 4)}, {"s": True, "t": (False, False)}

    x = np_.asarray(X)
    mapped = lib.vmap(f, ({"a": 0, "b": None}, [0, None]), {"s": 0, "t": None})
    return mapped({"a": x, "b": x}, [x, x]), lib.jit(mapped)({"a": x, "b": x}, [x, x])


@pytest.mark.parametrize("case", [values, forward_mode, trees], ids=lambda case: case.__name__)
def test_custom_vmap_agrees_with_jax(case: Callable[[Any, Any], Any]) -> None:
    assert_agree(case)


REVERSE: Final[dict[str, Callable[[Any, Any, Any], Any]]] = {
    "vmap of grad": lambda lib, np_, f: lib.vmap(lib.grad(f, (0, 1)))(np_.asarray(X), np_.asarray(Y)),
    "jit of vmap of grad of jit": lambda lib, np_, f: lib.jit(lib.vmap(lib.grad(lib.jit(f), 1)))(X, Y),
    "vmap of grad, one argument": lambda lib, np_, f: lib.vmap(lib.grad(f, (0, 1)), (0, None))(X, np_.float32(2.0)),
    "grad of vmap": lambda lib, np_, f: lib.grad(lambda x: np_.sum(lib.vmap(f)(x, Y)))(np_.asarray(X)),
    "grad of vmap of jit, of what is alike": lambda lib, np_, f: lib.grad(
        lambda y: np_.sum(lib.vmap(lib.jit(f), (0, None))(X, y))
    )(np_.float32(2.0)),
    "vmap of grad of grad": lambda lib, np_, f: lib.vmap(lib.grad(lib.grad(f)))(np_.asarray(X), np_.asarray(Y)),
    "vmap of hessian": lambda lib, np_, f: lib.vmap(lib.hessian(f))(np_.asarray(X), np_.asarray(Y)),
    "vmap of vjp": lambda lib, np_, f: lib.vmap(lambda x, y: lib.vjp(f, x, y)[1](x))(np_.asarray(X), np_.asarray(Y)),
    "vmap of jacrev of grad": lambda lib, np_, f: lib.vmap(lib.jacrev(lib.grad(f, 1)))(np_.asarray(X), np_.asarray(Y)),
}


@pytest.mark.parametrize("stack", list(REVERSE))
def test_gradient_under_vmap_differentiates_the_rule(stack: str) -> None:
    """JAX has no reverse mode here: the expected value is the derivative of what the rule computes."""
    got = REVERSE[stack](fx, fnp, cosine_in_a_batch(fx, fnp))
    assert_same(got, REVERSE[stack](jax, jnp, lambda x, y: jnp.cos(x) * y), JAX_TRANSFORM_TOLERANCE)


def test_gradient_without_vmap_differentiates_the_function() -> None:
    f = cosine_in_a_batch(fx, fnp)
    assert_near(fx.grad(f)(0.5, 2.0), 2 * np.cos(0.5), ELEMENTARY)
    assert_near(fx.jit(fx.grad(fx.grad(fx.jit(f))))(0.5, 2.0), -2 * np.sin(0.5), ELEMENTARY)


def test_gradient_of_a_custom_vmap_function_that_differentiates_a_jitted_function() -> None:
    def times_its_slope(x: Any) -> Any:
        y, pull = fx.vjp(fx.jit(fnp.cos), x)
        return pull(y)[0]

    for wrap in (fx.custom_batching.custom_vmap, fx.custom_batching.sequential_vmap):
        f: Any = wrap(times_its_slope)
        if wrap is fx.custom_batching.custom_vmap:
            f.def_vmap(lambda axis_size, in_batched, x: (fx.vmap(times_its_slope)(x), True))
        assert_near(fx.vmap(fx.grad(f))(fnp.asarray(X)), -np.cos(2 * X))
        assert_near(fx.jit(fx.grad(fx.jit(f)))(0.5), -np.cos(1.0))


def test_custom_vmap_inside_custom_vjp() -> None:
    inner = cosine_in_a_batch(fx, fnp)

    @fx.custom_vjp
    def f(x: Any) -> Any:
        return inner(x, x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (inner(ct, x),))
    x = fnp.asarray(X)
    assert_near(fx.vmap(f)(x), np.cos(X) * X, ELEMENTARY)
    assert_near(fx.vmap(fx.grad(f))(x), np.cos(1.0) * X, ELEMENTARY)
    assert_near(fx.vmap(fx.grad(fx.jit(f)))(x), np.cos(1.0) * X, ELEMENTARY)


def test_function_with_batching_and_derivative_rules() -> None:
    def case(lib: Any, np_: Any) -> Any:
        @lib.custom_vjp
        @lib.custom_batching.custom_vmap
        def f(x: Any, y: Any) -> Any:
            return np_.sin(x) * y

        @f.def_vmap
        def f_vmap_rule(axis_size: int, in_batched: Any, xs: Any, ys: Any) -> Any:
            return np_.cos(xs) * ys, True

        f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda res, ct: (np_.cos(res[0]) * ct * res[1], np_.sin(res[0]) * ct))
        x, y = np_.asarray(X), np_.asarray(Y)
        return (
            lib.vmap(f)(x, y),
            lib.grad(f)(x[0], y[0]),
            lib.vmap(lib.grad(f))(x, y),
            lib.jit(lib.vmap(lib.jit(f)))(x, y),
        )

    assert_agree(case)
    with pytest.raises(AttributeError, match="object has no attribute 'defjvp'"):
        fx.custom_vjp(fx.custom_batching.custom_vmap(fnp.sin)).defjvp  # type: ignore[attr-defined]  # noqa: B018


def test_nested_vmap_calls_the_rule_for_the_inner_axis_first() -> None:
    sizes = []

    @fx.custom_batching.custom_vmap
    def f(x: Any) -> Any:
        return fnp.sin(x)

    @f.def_vmap
    def rule(axis_size: int, in_batched: list[bool], x: Any) -> Any:
        sizes.append((axis_size, x.shape))
        return f(x), True

    x = fnp.arange(6.0).reshape(2, 3)
    assert_near(fx.vmap(fx.vmap(f))(x), np.sin(x), ELEMENTARY)
    assert sizes == [(3, (3,)), (2, (2, 3))]


# ------------------------------------------------------------------ closed-over values


def closing(c: Any) -> Any:
    @fx.custom_batching.custom_vmap
    def f(x: Any) -> Any:
        return fnp.sin(x) * c

    f.def_vmap(lambda axis_size, in_batched, x: (fnp.cos(x) * c, True))
    return f


def test_closed_over_values_may_be_traced() -> None:
    x = fnp.asarray(X)
    assert_near(fx.vmap(lambda c: closing(c)(0.5))(x), np.sin(np.float32(0.5)) * X, ELEMENTARY)
    assert_near(fx.jit(lambda c: fx.vmap(closing(c))(x))(2.0), 2 * np.cos(X), ELEMENTARY)
    assert_near(fx.jit(lambda c: fx.vmap(fx.jit(closing(c)))(x))(2.0), 2 * np.cos(X), ELEMENTARY)
    assert_near(fx.vmap(lambda y: fx.vmap(lambda c: closing(c)(y))(x))(x)[1], np.cos(X[1]) * X, ELEMENTARY)


def test_batched_or_differentiated_closed_over_values_are_rejected() -> None:
    x = fnp.asarray(X)
    assert_errors(
        (lambda: fx.vmap(lambda x: closing(x)(x))(x), ClosedOverTracerError, "closed-over"),
        (lambda: fx.vmap(lambda x: fx.jit(closing(x))(x))(x), ClosedOverTracerError, "closes over"),
        (lambda: fx.grad(lambda x: closing(x)(x))(1.0), ClosedOverTracerError, "closure_convert"),
    )


# ------------------------------------------------------------------ invalid rules


def test_rule_output_and_out_batched_structures_are_checked() -> None:
    def mapped(rule: Callable[..., Any]) -> Any:
        f: Any = fx.custom_batching.custom_vmap(lambda x: {"a": x})
        f.def_vmap(rule)
        return fx.jit(lambda x: fx.vmap(fx.jit(lambda x: f(x)))(x))(fnp.ones(3))

    assert mapped(lambda n, b, x: ({"a": x * 2}, True))["a"].tolist() == [2.0] * 3
    with pytest.raises(TypeError, match=r"must return a pair \(output, out_batched\)"):
        mapped(lambda n, b, x: {"a": x})
    with pytest.raises(ValueError, match="out_batched of .* must have the structure"):
        mapped(lambda n, b, x: ({"a": x}, {"b": True}))
    assert_errors(
        (lambda: mapped(lambda n, b, x: ({"a": x}, {"a": 0})), TypeError, r"\['a'\] is batched must be a bool, got 0"),
        (lambda: mapped(lambda n, b, x: ({"a": fnp.ones(2)}, True)), ValueError, r"f32\[2\] does not have the size 3"),
        (lambda: mapped(lambda n, b, x: (x, True)), TypeError, "structure"),
        (lambda: mapped(lambda n, b, x: ({"a": x}, False)), TypeError, r"(?s)\['a'\] *f32\[\] *f32\[3\]"),
    )


# ------------------------------------------------------------------ sequential_vmap


def test_sequential_vmap_lowers_to_a_loop() -> None:
    def case(lib: Any, np_: Any) -> Any:
        f = lib.custom_batching.sequential_vmap(lambda x, y: np_.sin(x) * y["a"])
        x, y = np_.asarray(X), {"a": np_.asarray(Y)}
        two = np_.ones((2, 3))
        return (
            f(x, y),
            lib.vmap(f)(x, y),
            lib.jit(lib.vmap(f, (0, None)))(x, {"a": x[0]}),
            lib.vmap(lib.vmap(f, (0, None)), (0, None))(two, y),
            lib.vmap(lambda x: lib.jvp(lambda x: f(x, {"a": x}), (x,), (x,)))(x),
        )

    assert_agree(case)
    f = fx.custom_batching.sequential_vmap(lambda x: fnp.sin(x) * x)
    assert_near(fx.vmap(fx.grad(f))(fnp.asarray(X)), np.cos(X) * X + np.sin(X))
    program = str(fx.make_jaxpr(fx.vmap(f))(fnp.asarray(X)))
    assert "scan" in program
    assert "custom_vmap_call" in program


@pytest.mark.parametrize(
    "rule", [lambda n, batched, x: (x, True), lambda n, batched, x: ([x, x], True)], ids=["one array", "a list"]
)
@pytest.mark.parametrize(("lib", "np_"), [(fx, fnp), (jax, jnp)], ids=["tracefx", "jax"])
def test_rule_with_mismatched_output_structure_is_rejected(lib: Any, np_: Any, rule: Any) -> None:
    f = lib.custom_batching.custom_vmap(lambda x: (np_.sin(x), x))
    f.def_vmap(rule)
    for run in (lib.vmap(f), lib.jit(lib.vmap(f)), lib.vmap(lib.jit(f))):
        with pytest.raises((ValueError, TypeError), match="structure"):
            run(X)


def test_rule_with_mismatched_output_types_is_rejected() -> None:
    f: Any = fx.custom_batching.custom_vmap(lambda x: fnp.sin(x))
    f.def_vmap(lambda n, batched, x: (x[:, None], True))
    with pytest.raises(TypeError, match="the same types"):
        fx.vmap(f)(X)
