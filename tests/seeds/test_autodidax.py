"""Examples of parts 1 to 3 of "Autodidax: JAX core from scratch", run with tracefx."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.seeds.autodidax import COS, SIN, Number, all_close, deriv, f, jax_f, print_and_parse
from tracefx.extend import (
    Array,
    ClosedJaxpr,
    Eqn,
    Jaxpr,
    JaxprTypeError,
    ShapedArray,
    Var,
    check_jaxpr,
)


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    """Enables 64-bit types: the printed results of the examples have 16 digits."""
    with fx.enable_x64(), jax.enable_x64(True):
        yield


# ------------------------------------------------------------------ part 1: evaluation


def test_evaluation() -> None:
    all_close(f(3.0), 2.7177599838802657, jax_f(3.0))


# ------------------------------------------------------------------ part 1: jvp


def test_jvp_of_sin() -> None:
    y, sin_deriv_at_3 = fx.jvp(fnp.sin, (3.0,), (1.0,))
    all_close(y, SIN)
    all_close(sin_deriv_at_3, COS)


def test_jvp_of_a_function() -> None:
    y, ydot = fx.jvp(f, (3.0,), (1.0,))
    all_close(y, 2.7177599838802657)
    all_close(ydot, 2.979984993200891)


def test_derivatives_of_derivatives() -> None:
    all_close(deriv(fnp.sin)(3.0), COS)
    all_close(deriv(deriv(fnp.sin))(3.0), -SIN)
    all_close(deriv(deriv(deriv(fnp.sin)))(3.0), -COS)
    all_close(deriv(deriv(deriv(deriv(fnp.sin))))(3.0), SIN)
    all_close(deriv(deriv(f))(3.0), jax.grad(jax.grad(jax_f))(3.0))


def branching(x: Number) -> Any:
    if x > 0.0:
        return 2.0 * x
    return x


@pytest.mark.parametrize("differentiate", [deriv, fx.grad])
def test_python_control_flow(differentiate: Callable[[Any], Any]) -> None:
    assert differentiate(branching)(3.0) == 2.0
    assert differentiate(branching)(-3.0) == 1.0


def test_python_control_flow_around_a_power() -> None:
    square_or_nothing = fx.grad(lambda x: x**2 if x > 0 else 0.0)
    assert square_or_nothing(3.0) == 6.0
    assert square_or_nothing(-3.0) == 0.0


# ------------------------------------------------------------------ part 1: pytrees


def containers(x: Number) -> dict[str, Any]:
    y = fnp.sin(x) * 2.0
    z = -y + x
    return {"hi": z, "there": [x, y]}


def test_pytrees_of_outputs() -> None:
    y, ydot = fx.jvp(containers, (3.0,), (1.0,))
    for out, (hi, (x, sine)) in (
        (y, (2.7177599838802657, (3.0, 0.2822400161197344))),
        (ydot, (2.979984993200891, (1.0, -1.9799849932008908))),
    ):
        assert list(out) == ["hi", "there"]
        assert type(out["there"]) is list
        all_close(out["hi"], hi)
        all_close(out["there"], [x, sine])


def test_pytrees_of_inputs() -> None:
    def from_containers(tree: dict[str, Any]) -> Any:
        x, y = tree["there"]
        return tree["hi"] * x + fnp.sin(y)

    tree = {"hi": 2.0, "there": [3.0, 5.0]}
    tangent = {"hi": 1.0, "there": [10.0, 100.0]}
    y, ydot = fx.jvp(from_containers, (tree,), (tangent,))
    all_close(y, 6.0 + np.sin(5.0))
    all_close(ydot, 3.0 + 20.0 + 100.0 * np.cos(5.0))
    gradient = fx.grad(from_containers)(tree)
    assert gradient["hi"] == 3.0
    all_close(gradient["there"], [2.0, np.cos(5.0)])


def test_pytree_structures_must_match() -> None:
    with pytest.raises(TypeError, match="structure"):
        fx.jvp(containers, (3.0,), ([1.0],))


# ------------------------------------------------------------------ part 1: vmap


def add_one_to_a_scalar(scalar: Number) -> Any:
    assert fnp.ndim(scalar) == 0
    return 1 + scalar


def test_vmap() -> None:
    vector_in = np.arange(3.0)
    vector_out = fx.vmap(add_one_to_a_scalar, (0,))(vector_in)
    np.testing.assert_array_equal(vector_out, [1.0, 2.0, 3.0])


def test_nested_vmap() -> None:
    matrix_in = np.arange(6.0).reshape(2, 3)
    matrix_out = fx.vmap(fx.vmap(add_one_to_a_scalar, (0,)), (0,))(matrix_in)
    np.testing.assert_array_equal(matrix_out, matrix_in + 1)
    columns_first = fx.vmap(fx.vmap(add_one_to_a_scalar, (0,)), (1,))(matrix_in)
    np.testing.assert_array_equal(columns_first, matrix_in.T + 1)


def test_vmap_of_an_unbatched_output() -> None:
    np.testing.assert_array_equal(fx.vmap(lambda x: np.arange(2.0))(np.zeros(3)), [[0.0, 1.0]] * 3)
    np.testing.assert_array_equal(
        fx.vmap(lambda x: fx.vmap(lambda y: x + y)(np.arange(2.0)))(np.arange(3.0)),
        np.arange(3.0)[:, None] + np.arange(2.0),
    )


def forward_jacobian(f: Callable[[Any], Any], x: np.ndarray[Any, Any]) -> Any:
    def pushfwd(v: Number) -> Any:
        return fx.jvp(f, (x,), (v,))[1]

    vecs_in = np.eye(np.size(x)).reshape(np.shape(x) * 2)
    return fx.vmap(pushfwd, (0,))(vecs_in)


def test_forward_jacobian_over_vmap() -> None:
    x = np.arange(3.0)
    expected = np.diag(np.cos(x))
    all_close(forward_jacobian(fnp.sin, x), expected, fx.jacfwd(fnp.sin)(x), jax.jacfwd(jnp.sin)(x))


# ------------------------------------------------------------------ part 2: jaxprs


def test_make_jaxpr() -> None:
    closed = fx.make_jaxpr(lambda x: 2.0 * x)(3.0)
    assert isinstance(closed, ClosedJaxpr)
    assert str(closed) == "{ lambda ; a:f64[]*. let b:f64[]* = mul 2.0:f64[]* a in (b,) }"
    assert closed.text("jax") == str(jax.make_jaxpr(lambda x: 2.0 * x)(3.0))
    check_jaxpr(closed)
    scalar = ShapedArray((), np.dtype(np.float64), weak_type=True)
    assert closed.in_avals == (scalar,)
    assert closed.out_avals == (scalar,)


def test_printed_jaxprs_parse() -> None:
    jaxpr = fx.make_jaxpr(fx.jit(f))(3.0).jaxpr
    assert print_and_parse(jaxpr) == jaxpr


def test_operations_on_constants_are_staged() -> None:
    closed = fx.make_jaxpr(lambda: fnp.multiply(2.0, 2.0))()
    assert [eqn.prim.name for eqn in closed.eqns] == ["mul"]
    assert closed.consts == ()
    assert closed.text("jax") == str(jax.make_jaxpr(lambda: jax.lax.mul(2.0, 2.0))())
    assert fx.jaxpr_as_fun(closed)()[0] == 4.0


def test_check_jaxpr_rejects_invalid_jaxprs() -> None:
    closed = fx.make_jaxpr(f)(3.0)
    check_jaxpr(closed)
    jaxpr = closed.jaxpr
    first, *rest = jaxpr.eqns
    unbound = Var(jaxpr.var_count, jaxpr.invars[0].aval)
    with pytest.raises(JaxprTypeError, match="bound nowhere before"):
        check_jaxpr(Jaxpr((), jaxpr.invars, tuple(rest), jaxpr.outs))
    with pytest.raises(JaxprTypeError, match="bound nowhere before"):
        check_jaxpr(Jaxpr((), jaxpr.invars, jaxpr.eqns, (unbound,)))
    with pytest.raises(JaxprTypeError, match="bound already"):
        check_jaxpr(Jaxpr((), jaxpr.invars, (first, Eqn(first.prim, first.inputs, jaxpr.invars)), jaxpr.invars))
    vector = Var(1, ShapedArray((3,), np.dtype(np.float64)))
    with pytest.raises(JaxprTypeError, match=r"sin gives f64\[\]\*, but variable b is f64\[3\]"):
        check_jaxpr(Jaxpr((), jaxpr.invars, (Eqn(first.prim, first.inputs, (vector,)),), jaxpr.invars))


def test_evaluating_a_jaxpr_can_be_transformed() -> None:
    closed = fx.make_jaxpr(f)(3.0)

    def evaluated(x: Number) -> Any:
        return fx.jaxpr_as_fun(closed)(x)[0]

    all_close(evaluated(3.0), f(3.0))
    all_close(fx.jvp(evaluated, (3.0,), (1.0,))[1], 2.979984993200891)
    all_close(fx.grad(evaluated)(3.0), 2.979984993200891)
    all_close(fx.vmap(evaluated)(np.arange(3.0)), jax_f(np.arange(3.0)))
    all_close(fx.jit(evaluated)(3.0), f(3.0))
    assert fx.make_jaxpr(evaluated)(3.0) == closed


def test_make_jaxpr_of_jvp() -> None:
    closed = fx.make_jaxpr(deriv(fnp.sin))(3.0)
    assert [eqn.prim.name for eqn in closed.eqns] == ["sin", "cos", "mul"]
    check_jaxpr(closed)


# ------------------------------------------------------------------ part 3: jit


def test_jit_traces_once(capsys: pytest.CaptureFixture[str]) -> None:
    @fx.jit
    def traced(x: Number, y: Number) -> Any:
        print("tracing!")  # noqa: T201
        return fnp.sin(x) * fnp.cos(y)

    all_close(traced(3.0, 4.0), np.sin(3.0) * np.cos(4.0))
    assert capsys.readouterr().out == "tracing!\n"
    all_close(traced(4.0, 5.0), np.sin(4.0) * np.cos(5.0))
    assert capsys.readouterr().out == ""


def test_jit_of_a_reduction() -> None:
    total = fx.jit(lambda x: fnp.sum(x, axis=0))
    assert total(np.array([1.0, 2.0, 3.0])) == 6.0
    np.testing.assert_array_equal(total(np.ones((2, 3))), [2.0, 2.0, 2.0])


def test_jit_of_derivatives() -> None:
    all_close(deriv(deriv(f))(3.0), fx.jit(deriv(deriv(f)))(3.0))


class TracedOnce:
    """The example's function under `jit`, with a count of its traces."""

    def __init__(self) -> None:
        self.count = 0
        self.jitted = fx.jit(self.run)

    def run(self, x: Number) -> Any:
        self.count += 1
        y = fnp.sin(x) * 2.0
        z = -y + x
        return z


def test_jvp_of_jit_traces_once() -> None:
    traced = TracedOnce()
    y, ydot = fx.jvp(traced.jitted, (3.0,), (1.0,))
    assert traced.count == 1
    all_close(y, 2.7177599838802657)
    all_close(ydot, 2.979984993200891)
    y, ydot = fx.jvp(traced.jitted, (3.0,), (1.0,))
    assert traced.count == 1, "not traced again"
    all_close(ydot, 2.979984993200891)


def test_grad_of_jit_traces_once() -> None:
    traced = TracedOnce()
    for _ in range(2):
        all_close(fx.grad(traced.jitted)(3.0), 2.979984993200891)
    assert traced.count == 1
    all_close(fx.jit(fx.grad(fx.jit(f)))(3.0), 2.979984993200891)


def test_vmap_of_jit() -> None:
    traced = TracedOnce()
    ys = fx.vmap(traced.jitted, (0,))(np.arange(3.0))
    all_close(ys, [jax_f(x) for x in np.arange(3.0)])
    fx.vmap(traced.jitted, (0,))(np.arange(5.0))
    assert traced.count == 1, "traced for one element, whatever the size of the batch"


def test_jit_of_jit() -> None:
    all_close(fx.jit(lambda x: fx.jit(f)(x) + fx.jit(f)(x))(3.0), 2 * 2.7177599838802657)


def test_device_arrays_have_operators() -> None:
    y = fx.jit(f)(3.0)
    expected = 2.7177599838802657
    assert y.buffer is not None, "what jit gives stays on the device"
    assert y.shape == ()
    assert y.ndim == 0
    assert y.dtype == np.dtype(np.float64)
    for result, want in (
        (-y, -expected),
        (y + 1.0, expected + 1.0),
        (1.0 + y, 1.0 + expected),
        (y * 2.0, expected * 2.0),
        (2.0 * y, expected * 2.0),
        (y * y, expected * expected),
        (fnp.sin(y), np.sin(expected)),
    ):
        assert isinstance(result, Array)
        all_close(result, want)
    assert y > 2.0
    assert not y > 3.0
    assert np.asarray(y) == float(y)
    assert str(y) == str(np.float64(float(y)))
    assert repr(y) == f"Array({float(y):.8f}, dtype=float64, weak_type=True)"


def test_device_arrays_as_arguments() -> None:
    y = fx.jit(f)(3.0)
    all_close(fx.jit(f)(y), jax_f(jax_f(3.0)))
    all_close(fx.jvp(fx.jit(f), (y,), (1.0,))[1], deriv(f)(y))
