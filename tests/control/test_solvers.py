"""`associative_scan`, `custom_linear_solve` and `custom_root`, compared with JAX."""

from __future__ import annotations

from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.cases import agrees_with_jax
from tests.comparison import assert_agree, assert_near
from tests.control.transform_checks import assert_agrees_with_jax, batch_axes_choices, normal
from tests.errors import error_message

lax: Any = fx.lax  # `Any`, since tests also call them with wrong types

B: Final = normal(3)
M: Final = (normal(3, 3, seed=1) * 0.1 + 2 * np.eye(3)).astype(np.float32)


# ------------------------------------------------------------------ associative_scan


@pytest.mark.parametrize("reverse", [False, True])
@agrees_with_jax
def test_associative_scan_lengths(lib: Any, np_: Any, reverse: bool) -> Any:
    def f(xs: Any) -> Any:
        return lib.lax.associative_scan(np_.add, xs, reverse=reverse, axis=1)

    return [lib.jit(f)(normal(2, n)) for n in (0, 1, 2, 3, 4, 5, 8, 13)]


def test_associative_scan_of_a_noncommutative_function() -> None:
    """Composition of affine maps, as pytrees of a matrix and a vector."""

    def combine(a: Any, b: Any) -> Any:
        return {"m": b["m"] @ a["m"], "v": (b["m"] @ a["v"][..., None])[..., 0] + b["v"]}

    def factory(lib: Any, np_: Any) -> Any:
        return lambda m, v: lib.lax.associative_scan(combine, {"m": m, "v": v}, reverse=True)

    assert_agrees_with_jax(factory, (normal(5, 2, 2), normal(5, 2)), [(1, None), (None, 0)], eager=True)


def test_associative_scan_axes_and_dtypes() -> None:
    assert_agree(
        lambda lib, np_: [lib.lax.associative_scan(np_.multiply, normal(2, 3, 2), axis=a) for a in (0, 1, 2, -1, -2)]
    )
    assert_agree(lambda lib, np_: lib.lax.associative_scan(np_.maximum, np.array([3, 1, 4, 1, 5], np.int8)))
    assert_agree(lambda lib, np_: lib.lax.associative_scan(np_.logical_or, np.array([False, True, False])))
    with fx.disable_jit():
        assert_agree(lambda lib, np_: lib.lax.associative_scan(np_.add, normal(5)))


def test_associative_scan_rejects_invalid_arguments() -> None:
    scan = lax.associative_scan
    assert "the same size along axis 0" in error_message(lambda: scan(lambda a, b: a, (B, M[:2])), ValueError)
    assert "must have the same structure" in error_message(lambda: scan(lambda a, b: (a, b), B))
    error_message(lambda: scan(None, B))
    for lib in (fx, jax):
        with pytest.raises((ValueError, IndexError)):
            lib.lax.associative_scan(lambda a, b: a + b, B, axis=1)


# ------------------------------------------------------------------ custom_linear_solve


def richardson(lib: Any, np_: Any, matvec: Any, b: Any) -> Any:
    return lib.lax.while_loop(lambda c: c[0] < 60, lambda c: (c[0] + 1, c[1] + 0.4 * (b - matvec(c[1]))), (0, b))[1]


def solved(lib: Any, np_: Any, **options: Any) -> Any:
    def f(m: Any, b: Any) -> Any:
        def solve(matvec: Any, b: Any) -> Any:
            return richardson(lib, np_, matvec, b)

        return lib.lax.custom_linear_solve(lambda x: m @ x, b, solve, solve, **options)

    return f


def test_linear_solve_agrees_with_jax() -> None:
    assert_agrees_with_jax(solved, (M, B), batch_axes_choices((M, B)), eager=False)


def test_linear_solve_eagerly() -> None:
    assert_agrees_with_jax(solved, (M, B), [(0, None)], eager=True, second=False)
    assert_near(solved(fx, fnp)(M, B), np.linalg.solve(M, B))


@agrees_with_jax
def test_symmetric_linear_solve_with_pytrees_and_aux(lib: Any, np_: Any) -> Any:
    def f(d: Any, b: Any) -> Any:
        def solve(matvec: Any, b: Any) -> Any:
            return {"x": b["x"] / d, "y": (b["y"][0] / 2,)}, {"steps": 3, "size": np_.sum(b["x"])}

        def matvec(x: Any) -> Any:
            return {"x": d * x["x"], "y": (2 * x["y"][0],)}

        return lib.lax.custom_linear_solve(matvec, b, solve, symmetric=True, has_aux=True)

    def loss(d: Any, b: Any) -> Any:
        x, _ = f(d, b)
        return np_.sum(x["x"] ** 2) + x["y"][0] ** 2

    b = {"x": np_.asarray(B), "y": (np_.float32(3),)}
    d = np_.asarray(B) ** 2 + 1
    return f(d, b), lib.jit(lib.grad(loss, (0, 1)))(d, b), lib.vmap(f, (0, None))(d * M, b)


def test_only_reverse_mode_requires_transpose_solve() -> None:
    def f(lib: Any) -> Any:
        return lambda b: lib.lax.custom_linear_solve(lambda x: 2 * x, b, lambda _, b: b / 2).sum()

    assert_agree(lambda lib, np_: lib.jvp(f(lib), (B,), (B,)))
    assert "transpose_solve" in error_message(lambda: fx.grad(f(fx))(B))
    with pytest.raises(TypeError):
        jax.grad(f(jax))(B)


def test_linear_solve_in_loops() -> None:
    def factory(lib: Any, np_: Any) -> Any:
        def f(m: Any, b: Any) -> Any:
            return lib.lax.scan(lambda b, _: (solved(lib, np_)(m, b) + b, None), b, None, length=2)[0]

        return f

    assert_agrees_with_jax(factory, (M, B), [(None, 0)], second=False)


def test_linear_solve_rejects_invalid_arguments() -> None:
    solve = lax.custom_linear_solve
    assert error_message(lambda: solve(lambda x: (x,), B, lambda _, b: b)) == (
        "custom_linear_solve: b and the result of matvec must have the same structure:\n"
        "  b      : one array\n"
        "  matvec : a tuple of length 1"
    )
    text = error_message(lambda: solve(lambda x: x[:2], B, lambda _, b: b))
    assert "f32[3]" in text
    assert "f32[2]" in text
    assert "f32[1,3]" in error_message(lambda: solve(lambda x: x, B, lambda _, b: b[None]))
    assert "has_aux" in error_message(lambda: solve(lambda x: x, B, lambda _, b: b, has_aux=True))


# ------------------------------------------------------------------ custom_root


def cube_root(lib: Any, np_: Any) -> Any:
    def f(a: Any) -> Any:
        def newton(f: Any, x: Any) -> Any:
            return lib.lax.while_loop(lambda x: np_.abs(f(x)) > 1e-5, lambda x: x - f(x) / (3 * x * x), x)

        return lib.lax.custom_root(
            lambda x: x**3 - a, np_.ones_like(a) * 2, newton, lambda g, y: y / g(np_.ones_like(y))
        )

    return f


def test_root_agrees_with_jax() -> None:
    assert_agrees_with_jax(cube_root, (np.float32(5),), [], eager=True)


@agrees_with_jax
def test_root_under_nested_transformations(lib: Any, np_: Any) -> Any:
    f = cube_root(lib, np_)
    a = np_.asarray([5.0, 9.0], "float32")
    return (
        lib.vmap(lib.grad(f))(a),
        lib.jit(lib.vmap(lib.grad(lib.grad(f))))(a),
        lib.grad(lambda a: np_.sum(lib.vmap(f)(a)))(a),
        lib.jit(lib.hessian(f))(np.float32(5)),
    )


@agrees_with_jax
def test_root_of_a_system_with_aux(lib: Any, np_: Any) -> Any:
    def f(m: Any, b: Any) -> Any:
        def solve(f: Any, x: Any) -> Any:
            x = lib.lax.fori_loop(0, 60, lambda _, x: {"x": x["x"] - 0.4 * f(x)["x"]}, x)
            return x, {"size": np_.sum(x["x"])}

        def tangent_solve(g: Any, y: Any) -> Any:
            def inner(g: Any, y: Any) -> Any:
                return {"x": richardson(lib, np_, lambda v: g({"x": v})["x"], y["x"])}

            return lib.lax.custom_linear_solve(g, y, inner, inner)

        return lib.lax.custom_root(lambda x: {"x": m @ x["x"] - b}, {"x": b}, solve, tangent_solve, has_aux=True)

    def loss(m: Any, b: Any) -> Any:
        return np_.sum(f(m, b)[0]["x"] ** 2)

    return f(M, B)[0], lib.jit(lib.grad(loss, (0, 1)))(M, B), lib.jit(lib.vmap(lib.grad(loss), (None, 0)))(M, M)


def test_root_rejects_invalid_arguments() -> None:
    def root(f: Any, solve: Any) -> Any:
        return lax.custom_root(f, B, solve, lambda g, y: y)

    assert "must have the same structure" in error_message(lambda: root(lambda x: (x,), lambda f, x: x))
    assert "f32[2]" in error_message(lambda: root(lambda x: x, lambda f, x: x[:2]))


def test_custom_root_names_its_invalid_functions() -> None:
    untyped: Any = fx.lax.custom_root

    def f(x: fx.Array) -> fx.Array:
        return x * x - 2.0

    message = error_message(lambda: untyped(f, 1.0, lambda f, x: x, 3))
    assert message.startswith("custom_root: tangent_solve must be a function, got 3 of type int")
    with pytest.raises(TypeError, match="^custom_root: the result of tangent_solve must be an array or a number, got"):
        fx.grad(lambda a: untyped(lambda x: x * x - a, 1.0, lambda f, x: x, lambda g, y: g))(2.0)
