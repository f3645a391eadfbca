"""`linear_call`: linear functions with a custom transpose."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.cases import agrees_with_jax
from tests.comparison import assert_near
from tracefx.custom_derivatives import linear_call
from tracefx.testing.tolerances import ELEMENTARY

X: Final = np.array([0.5, -1.5, 2.0], np.float32)


def divided(lib: Any, r: Any, x: Any) -> Any:
    """The transpose is 7 times the true one, so the result shows whether it was called."""
    return lib.custom_derivatives.linear_call(lambda r, x: x / r, lambda r, ct: 7 * ct / r, r, x)


def transposed(lib: Any, f: Any, one: Any) -> Any:
    return lambda y: lib.linear_transpose(f, one)(y)[0]


@agrees_with_jax
def test_custom_transpose_is_used_and_transposes_back(lib: Any, np_: Any) -> Any:
    one = np_.float32(1.0)

    def f(x: Any) -> Any:
        return x + divided(lib, np_.float32(3.0), x)

    once = transposed(lib, f, one)
    twice = transposed(lib, once, one)
    back = lib.jit(transposed(lib, lib.jit(f), one))
    return f(one), once(one), twice(one), transposed(lib, twice, one)(one), lib.grad(f)(one), back(one)


@agrees_with_jax
def test_pytree_arguments(lib: Any, np_: Any) -> Any:
    def forwards(r: Any, x: Any) -> Any:
        return {"y": x["a"] * r[0], "z": x["b"] * r[1]}

    def backwards(r: Any, ct: Any) -> Any:
        return {"a": ct["y"] * r[0] * 2, "b": ct["z"] * r[1] * 3}

    def f(x: Any) -> Any:
        return lib.custom_derivatives.linear_call(forwards, backwards, (X, X + 1), x)

    x = {"a": np_.asarray(X), "b": np_.asarray(X)}
    return f(x), lib.vjp(f, x)[1](f(x)), lib.jit(lambda x: lib.vjp(f, x)[1](f(x)))(x)


@agrees_with_jax
def test_transposes_that_make_a_new_function_at_each_call(lib: Any, np_: Any) -> Any:
    def call(f: Any, g: Any, r: Any, x: Any) -> Any:
        back = lambda r, ct: call(lambda r, y: g(r, y), lambda r, y: f(r, y), r, ct)  # noqa: E731
        return lib.custom_derivatives.linear_call(lambda r, y: f(r, y), back, r, x)

    def f(x: Any) -> Any:
        return call(lambda r, x: x * r, lambda r, ct: 5 * ct * r, np_.float32(3.0), x)

    one = np_.float32(1.0)
    once = transposed(lib, f, one)
    thrice = transposed(lib, transposed(lib, once, one), one)
    return f(one), once(one), thrice(one), lib.jit(thrice)(one), lib.jit(lib.grad(f))(one)


@agrees_with_jax
def test_self_adjoint_map_whose_transpose_is_itself(lib: Any, np_: Any) -> Any:
    def scaled(r: Any, x: Any) -> Any:
        return lib.custom_derivatives.linear_call(lambda r, x: x * r, scaled, r, x)

    def f(x: Any) -> Any:
        return scaled(np_.float32(3.0), x)

    one = np_.float32(1.0)
    once = transposed(lib, f, one)
    twice = transposed(lib, once, one)
    return (
        f(one),
        once(one),
        twice(one),
        lib.jit(lib.grad(f))(one),
        lib.grad(lib.jit(f))(one),
    )


def test_functions_that_close_over_tracers() -> None:
    def f(r: Any, x: Any) -> Any:
        return linear_call(lambda _, x: x * r, lambda _, ct: 7 * ct * r, (), x) ** 2

    assert fx.jit(f)(3.0, 2.0) == 36.0
    assert fx.jit(fx.grad(f, argnums=1))(3.0, 2.0) == 7 * 36.0


def test_transpose_of_the_transpose_of_functions_that_close_over_tracers() -> None:
    def twice(r: Any) -> Any:
        def f(x: Any) -> Any:
            return linear_call(lambda _, x: x * r, lambda _, ct: 7 * ct * r, (), x)

        return transposed(fx, transposed(fx, f, 1.0), 1.0)(2.0)

    assert twice(3.0) == fx.jit(twice)(3.0) == 6.0


def test_self_adjoint_map_that_closes_over_tracers() -> None:
    def f(r: Any, x: Any) -> Any:
        def scaled(_: Any, x: Any) -> Any:
            return linear_call(lambda _, x: x * r, scaled, (), x)

        return scaled((), x) ** 2

    assert fx.jit(fx.grad(f, argnums=1))(3.0, 2.0) == 36.0
    assert fx.jit(fx.vmap(fx.grad(f, argnums=1)))(fnp.arange(3.0), fnp.ones(3)).tolist() == [0.0, 2.0, 8.0]


def test_vmap_and_derivatives_with_respect_to_residuals() -> None:
    x, r = fnp.asarray(X), fnp.asarray(X + 3)
    for of in (fx.jit, lambda f: f):
        f = of(lambda r, x: divided(fx, r, x))
        assert_near(fx.vmap(f)(r, x), X / (X + 3), ELEMENTARY)
        assert_near(fx.vmap(f, (0, None))(r, 2.0), 2 / (X + 3), ELEMENTARY)
        by_r, by_x = fx.vmap(fx.grad(f, (0, 1)))(r, x)
        assert_near(by_x, 7 / (X + 3), ELEMENTARY)
        assert_near(by_r, -X / (X + 3) ** 2, ELEMENTARY)
        assert_near(fx.vmap(fx.grad(f), (0, None))(r, 2.0), -2 / (X + 3) ** 2, ELEMENTARY)
        assert_near(fx.grad(lambda x, f=f: fx.vmap(f, (0, None))(r, x).sum())(2.0), (7 / (X + 3)).sum(), ELEMENTARY)
        assert_near(fx.jvp(f, (r, x), (r, x))[1], 0 * X, ELEMENTARY)


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(TypeError, match="linear arguments must be floats or complex numbers, got i32"):
        linear_call(lambda r, x: x, lambda r, ct: ct, (), 1)
    with pytest.raises(TypeError, match="structure"):
        fx.grad(lambda x: linear_call(lambda r, x: x, lambda r, ct: (ct, ct), (), x))(1.0)
    with pytest.raises(TypeError, match=r"(?s)f32\[\] *f32\[3\]"):
        fx.grad(lambda x: linear_call(lambda r, x: x, lambda r, ct: fnp.ones(3), (), x))(1.0)
