"""A JAX core built up from scratch, part by part: what each part's programs do there, tracefx does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attrs import field, frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.core.parser import parse_jaxpr
from tracefx.extend import (
    Array,
    CarriesJaxprs,
    ClosedJaxpr,
    Eqn,
    Handler,
    Jaxpr,
    JaxprTypeError,
    Primitive,
    ShapedArray,
    Value,
    Var,
    as_value,
    check_jaxpr,
    current,
    eval_jaxpr,
    handling,
    to_numpy,
)
from tracefx.handlers.derived import Unzipped, unzip_jaxpr

Number = Any
"""A Python number, an array or a tracer: what the programs below are written for."""

COS, SIN = float(np.cos(3.0)), float(np.sin(3.0))


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    """The programs' printed results have 16 digits."""
    with fx.enable_x64(), jax.enable_x64(True):
        yield


def f(x: Number) -> Any:
    y = fnp.sin(x) * 2.0
    z = -y + x
    return z


def jax_f(x: Number) -> Any:
    y = jnp.sin(x) * 2.0
    z = -y + x
    return z


def deriv(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: fx.jvp(f, (x,), (1.0,))[1]


def all_close(*values: Any) -> None:
    for v1, v2 in itertools.pairwise(values):
        np.testing.assert_allclose(v1, v2)


@final
@frozen(eq=False)
class Watch(Handler):
    """Changes nothing, and keeps the operations that pass by."""

    title = "watch"
    inner: Handler
    seen: list[Primitive] = field(factory=list)

    @property
    @override
    def below(self) -> Handler:
        return self.inner

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        self.seen.append(prim)
        return self.inner.bind(prim, args)

    def names(self) -> list[str]:
        """Names of the operations that computed something, those in the bodies of others included."""
        return [inner.name for prim in self.seen for inner in first_order(prim)]


def first_order(prim: Primitive) -> list[Primitive]:
    """The operation, or those in its bodies if it has some."""
    if isinstance(prim, CarriesJaxprs):
        return [inner for body in prim.jaxprs() for eqn in body.eqns for inner in first_order(eqn.prim)]
    return [prim]


def read_back(jaxpr: Jaxpr) -> Jaxpr:
    """The program, printed and parsed."""
    return parse_jaxpr(str(jaxpr), {prim.name: type(prim) for prim in operations(jaxpr)})


def operations(jaxpr: Jaxpr) -> Iterator[Primitive]:
    for eqn in jaxpr.eqns:
        yield eqn.prim
        if isinstance(eqn.prim, CarriesJaxprs):
            for body in eqn.prim.jaxprs():
                yield from operations(body)


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


def test_containers_of_outputs() -> None:
    y, ydot = fx.jvp(containers, (3.0,), (1.0,))
    for out, (hi, (x, sine)) in (
        (y, (2.7177599838802657, (3.0, 0.2822400161197344))),
        (ydot, (2.979984993200891, (1.0, -1.9799849932008908))),
    ):
        assert list(out) == ["hi", "there"]
        assert type(out["there"]) is list
        all_close(out["hi"], hi)
        all_close(out["there"], [x, sine])


def test_containers_of_inputs() -> None:
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


def test_containers_must_agree() -> None:
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


def test_vmap_of_what_does_not_depend_on_the_batch() -> None:
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


def test_what_is_printed_reads_back() -> None:
    jaxpr = fx.make_jaxpr(fx.jit(f))(3.0).jaxpr
    assert read_back(jaxpr) == jaxpr


def test_operations_on_constants_are_staged() -> None:
    closed = fx.make_jaxpr(lambda: fnp.multiply(2.0, 2.0))()
    assert [eqn.prim.name for eqn in closed.eqns] == ["mul"]
    assert closed.consts == ()
    assert closed.text("jax") == str(jax.make_jaxpr(lambda: jax.lax.mul(2.0, 2.0))())
    assert fx.jaxpr_as_fun(closed)()[0] == 4.0


def test_types_are_checked() -> None:
    closed = fx.make_jaxpr(f)(3.0)
    check_jaxpr(closed)
    jaxpr = closed.jaxpr
    first, *rest = jaxpr.eqns
    stranger = Var(jaxpr.var_count, jaxpr.invars[0].aval)
    with pytest.raises(JaxprTypeError, match="bound nowhere before"):
        check_jaxpr(Jaxpr((), jaxpr.invars, tuple(rest), jaxpr.outs))
    with pytest.raises(JaxprTypeError, match="bound nowhere before"):
        check_jaxpr(Jaxpr((), jaxpr.invars, jaxpr.eqns, (stranger,)))
    with pytest.raises(JaxprTypeError, match="bound already"):
        check_jaxpr(Jaxpr((), jaxpr.invars, (first, Eqn(first.prim, first.inputs, jaxpr.invars)), jaxpr.invars))
    vector = Var(1, ShapedArray((3,), np.dtype(np.float64)))
    with pytest.raises(JaxprTypeError, match=r"sin gives f64\[\]\*, but variable b is f64\[3\]"):
        check_jaxpr(Jaxpr((), jaxpr.invars, (Eqn(first.prim, first.inputs, (vector,)),), jaxpr.invars))


def test_evaluating_a_jaxpr_can_be_transformed() -> None:
    closed = fx.make_jaxpr(f)(3.0)

    def again(x: Number) -> Any:
        return fx.jaxpr_as_fun(closed)(x)[0]

    all_close(again(3.0), f(3.0))
    all_close(fx.jvp(again, (3.0,), (1.0,))[1], 2.979984993200891)
    all_close(fx.grad(again)(3.0), 2.979984993200891)
    all_close(fx.vmap(again)(np.arange(3.0)), jax_f(np.arange(3.0)))
    all_close(fx.jit(again)(3.0), f(3.0))
    assert fx.make_jaxpr(again)(3.0) == closed


def test_staging_inside_of_transformations_is_staging() -> None:
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
    """The function of the seed, jitted, which says how often it was traced."""

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
    np.testing.assert_allclose(ys, [0.0, -0.68294197, 0.18140515], rtol=1e-7)
    fx.vmap(traced.jitted, (0,))(np.arange(5.0))
    assert traced.count == 1, "traced for one element, whatever the size of the batch"


def test_jit_of_jit() -> None:
    all_close(fx.jit(lambda x: fx.jit(f)(x) + fx.jit(f)(x))(3.0), 2 * 2.7177599838802657)


def test_arrays_on_the_device_have_operators() -> None:
    y = fx.jit(f)(3.0)
    expected = 2.7177599838802657
    assert y.buffer is not None, "what jit gives stays on the device"
    assert y.shape == ()
    assert y.ndim == 0
    assert y.dtype == np.dtype(np.float64)
    for ours, number in (
        (-y, -expected),
        (y + 1.0, expected + 1.0),
        (1.0 + y, 1.0 + expected),
        (y * 2.0, expected * 2.0),
        (2.0 * y, expected * 2.0),
        (y * y, expected * expected),
        (fnp.sin(y), np.sin(expected)),
    ):
        assert isinstance(ours, Array)
        all_close(ours, number)
    assert y > 2.0
    assert not y > 3.0
    assert np.asarray(y) == float(y)
    assert str(y) == str(np.float64(float(y)))
    assert repr(y) == f"Array({float(y):.8f}, dtype=float64, weak_type=True)"


def test_arrays_on_the_device_go_in_again() -> None:
    y = fx.jit(f)(3.0)
    all_close(fx.jit(f)(y), jax_f(jax_f(3.0)))
    all_close(fx.jvp(fx.jit(f), (y,), (1.0,))[1], deriv(f)(y))


# ------------------------------------------------------------------ part 4: linearize


def test_linearize_of_sin() -> None:
    y, sin_lin = fx.linearize(fnp.sin, 3.0)
    all_close(y, SIN)
    all_close(sin_lin(1.0), COS)


def test_linearize_is_jvp_in_two_steps() -> None:
    y, f_lin = fx.linearize(f, 3.0)
    for xdot in (1.0, -2.0, 0.5):
        all_close((y, f_lin(xdot)), fx.jvp(f, (3.0,), (xdot,)))
    all_close(y, 2.7177599838802657)
    all_close(f_lin(1.0), 2.979984993200891)


def composed(x: Number) -> Any:
    y = fnp.sin(x) * 2.0
    return with_cosine(x, y)


def with_cosine(x: Number, y: Number) -> Any:
    return fnp.cos(x) + y


def jitted_composed(x: Number) -> Any:
    y = fnp.sin(x) * 2.0
    return fx.jit(with_cosine)(x, y)


@pytest.mark.parametrize(
    "function",
    [
        composed,
        jitted_composed,
        fx.jit(composed),
        fx.jit(jitted_composed),
        fx.jit(lambda x: fx.jit(jitted_composed)(x)),
    ],
)
def test_linearize_of_nested_jit(function: Callable[[Any], Any]) -> None:
    y, f_lin = fx.linearize(function, 3.0)
    all_close(y, -0.7077524804807109)
    all_close(f_lin(1.0), -2.121105001260758)


@pytest.mark.parametrize(
    "function", [f, composed, fx.jit(f), fx.jit(lambda x: fx.jit(composed)(x) * 2.0)], ids=["f", "g", "jit", "nested"]
)
def test_the_linear_part_does_no_work_again(function: Callable[[Any], Any]) -> None:
    with handling(Watch(current())) as watch:
        _, f_lin = fx.linearize(function, 3.0)
        first = watch.names()
        assert "sin" in first
        assert "cos" in first
        watch.seen.clear()
        f_lin(1.0)
        f_lin(2.0)
    assert watch.names() != []
    assert set(watch.names()) <= {"mul", "neg", "add", "add_any"}


def test_linearize_runs_the_function_once() -> None:
    calls = 0

    def counted(x: Number) -> Any:
        nonlocal calls
        calls += 1
        return f(x)

    with handling(Watch(current())) as watch:
        _, f_lin = fx.linearize(counted, 3.0)
    assert watch.names().count("sin") == 1
    for xdot in (1.0, 2.0, 3.0):
        f_lin(xdot)
    assert calls == 1


# ------------------------------------------------------------------ part 4: partial evaluation of jaxprs


def halves_fit(jaxpr: Jaxpr, unknown: tuple[bool, ...]) -> Unzipped:
    """`(a1, a2) -> (b1, b2)` in two: `known: a1 -> (b1, res)`, `unknown: (res, a2) -> b2`. Types fit in every place."""
    halves = unzip_jaxpr(jaxpr, unknown)
    for each in (jaxpr, halves.known, halves.unknown):
        check_jaxpr(each)
    a1 = [a for a, u in zip(jaxpr.in_avals, unknown, strict=True) if not u]
    a2 = [a for a, u in zip(jaxpr.in_avals, unknown, strict=True) if u]
    b1 = [b for b, u in zip(jaxpr.out_avals, halves.out_unknown, strict=True) if not u]
    b2 = [b for b, u in zip(jaxpr.out_avals, halves.out_unknown, strict=True) if u]
    fresh = iter(halves.known.out_avals[len(b1) :])
    res = [next(fresh) if place is None else a1[place] for place in halves.forwarded]
    assert list(fresh) == []
    assert halves.consts == ()
    assert list(halves.known.in_avals) == a1
    assert list(halves.known.out_avals[: len(b1)]) == b1
    assert list(halves.unknown.in_avals) == res + a2
    assert list(halves.unknown.out_avals) == b2
    return halves


def run_halves(halves: Unzipped, unknown: tuple[bool, ...], args: Sequence[Value]) -> list[Value]:
    """The program's outputs, by way of its two halves."""
    known_args = [a for a, u in zip(args, unknown, strict=True) if not u]
    early = eval_jaxpr(halves.known, (), known_args)
    count = halves.out_unknown.count(False)
    fresh = iter(early[count:])
    residuals = [next(fresh) if place is None else known_args[place] for place in halves.forwarded]
    late = iter(eval_jaxpr(halves.unknown, (), [*residuals, *[a for a, u in zip(args, unknown, strict=True) if u]]))
    outs = iter(early[:count])
    return [next(late) if u else next(outs) for u in halves.out_unknown]


def test_the_derivative_of_a_program_in_two_halves() -> None:
    def both(x: Number, xdot: Number) -> Any:
        return fx.jvp(lambda x: -fnp.sin(x), (x,), (xdot,))

    jaxpr = fx.make_jaxpr(both)(3.0, 1.0).jaxpr
    halves = halves_fit(jaxpr, (False, True))
    assert halves.out_unknown == (False, True)
    assert [eqn.prim.name for eqn in halves.known.eqns] == ["sin", "cos", "neg"]
    assert [eqn.prim.name for eqn in halves.unknown.eqns] == ["mul", "neg"]
    assert len(halves.known.outs) == 2, "the value, and the cosine"


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "independent": lambda x, y: (fnp.sin(x), fnp.cos(y)),
    "mixed": lambda x, y: (fnp.sin(x) * y, fnp.cos(x)),
    "forwarded": lambda x, y: x * y,
    "identity": lambda x, y: (x, y),
    "constant": lambda x, y: (2.0, x),
    "call": lambda x, y: fx.jit(lambda x, y: (fnp.sin(x) * y, fnp.sin(fnp.sin(x))))(x, y),
    "call in a call": lambda x, y: fx.jit(lambda x: fx.jit(lambda y: fnp.sin(x) * fnp.cos(y))(y) + fnp.exp(x))(x),
    "jvp of a call": lambda x, y: fx.jvp(fx.jit(lambda x: fnp.sin(fnp.sin(x))), (x,), (y,)),
}


@pytest.mark.parametrize("unknown", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_both_halves_have_the_right_types_and_together_do_the_same(name: str, unknown: tuple[bool, ...]) -> None:
    jaxpr = fx.make_jaxpr(PROGRAMS[name])(3.0, 5.0).jaxpr
    halves = halves_fit(jaxpr, unknown)
    args = [as_value(3.0), as_value(5.0)]
    for ours, whole in zip(run_halves(halves, unknown, args), eval_jaxpr(jaxpr, (), args), strict=True):
        all_close(to_numpy(ours), to_numpy(whole))


def test_what_is_known_is_not_put_off() -> None:
    jaxpr = fx.make_jaxpr(PROGRAMS["call"])(3.0, 5.0).jaxpr
    halves = halves_fit(jaxpr, (False, True))
    later = [prim.name for eqn in halves.unknown.eqns for prim in first_order(eqn.prim)]
    assert later == ["mul"]


def test_an_input_that_is_needed_later_is_handed_past_the_known_half() -> None:
    halves = halves_fit(fx.make_jaxpr(PROGRAMS["forwarded"])(3.0, 5.0).jaxpr, (False, True))
    assert halves.forwarded == (0,)
    assert halves.known.outs == ()


def test_neither_half_does_what_nobody_needs() -> None:
    def wasteful(x: Number, y: Number) -> Any:
        fnp.exp(x)
        fnp.exp(y)
        return fnp.sin(x) * fnp.cos(y)

    halves = halves_fit(fx.make_jaxpr(wasteful)(3.0, 5.0).jaxpr, (False, True))
    assert [eqn.prim.name for eqn in halves.known.eqns] == ["sin"]
    assert [eqn.prim.name for eqn in halves.unknown.eqns] == ["cos", "mul"]


# ------------------------------------------------------------------ part 4: vjp and grad


def test_vjp_of_sin() -> None:
    y, f_vjp = fx.vjp(fnp.sin, 3.0)
    all_close(y, SIN)
    cotangents = f_vjp(1.0)
    assert type(cotangents) is tuple
    all_close(cotangents, (COS,))


def test_grad() -> None:
    all_close(fx.grad(f)(3.0), 2.979984993200891, jax.grad(jax_f)(3.0))


@pytest.mark.parametrize("jitted", [False, True])
def test_grad_of_a_function_of_a_function(jitted: bool) -> None:
    def inner(x: Number) -> Any:
        return fnp.cos(x) * 2.0

    called = fx.jit(inner) if jitted else inner

    def outer(x: Number) -> Any:
        y = x * 2.0
        z = called(y)
        return z

    all_close(fx.grad(outer)(3.0), -4.0 * np.sin(6.0), jax.grad(lambda x: jnp.cos(x * 2.0) * 2.0)(3.0))


def test_grad_asks_for_a_scalar() -> None:
    with pytest.raises(TypeError, match="scalar"):
        fx.grad(fnp.sin)(np.arange(3.0))


# ------------------------------------------------------------------ part 4: everything at once


def nested(m: Any) -> Callable[[Any], Any]:
    """Calls in calls in a jvp, closing over everything around them; `m` is tracefx or JAX."""
    sin = (fnp if m is fx else jnp).sin

    def foo(x: Number) -> Any:
        def bar(y: Number) -> Any:
            def baz(w: Number) -> Any:
                q = m.jit(lambda x: y)(x)
                q = q + m.jit(lambda: y)()
                q = q + m.jit(lambda y: w + y)(y)
                q = m.jit(lambda w: m.jit(sin)(x) * y)(1.0) + q
                return q

            p, t = m.jvp(baz, (x + 1.0,), (y,))
            return t + (x * p)

        return bar(x)

    return foo


F = nested(fx)
JAX_F = nested(jax)

VALUES: dict[str, Callable[[Any], Any]] = {
    "f": F,
    "jit(f)": fx.jit(F),
    "jvp(f)": lambda x: fx.jvp(F, (x,), (5.0,))[0],
    "jvp(jit(f))": lambda x: fx.jvp(fx.jit(F), (x,), (5.0,))[0],
}
DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "grad(f)": fx.grad(F),
    "grad(jit(f))": fx.grad(fx.jit(F)),
    "jit(grad(jit(f)))": fx.jit(fx.grad(fx.jit(F))),
    "jvp(f)": deriv(F),
    "jvp(jit(f))": deriv(fx.jit(F)),
}
SECOND_DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "grad(grad(f))": fx.grad(fx.grad(F)),
    "grad(grad(jit(f)))": fx.grad(fx.grad(fx.jit(F))),
    "grad(jit(grad(f)))": fx.grad(fx.jit(fx.grad(F))),
    "jit(grad(grad(f)))": fx.jit(fx.grad(fx.grad(F))),
    "jvp(grad(f))": deriv(fx.grad(F)),
    "jvp(jit(grad(f)))": deriv(fx.jit(fx.grad(F))),
    "jit(jvp(jit(grad(f))))": fx.jit(deriv(fx.jit(fx.grad(F)))),
}
STACKS = [
    pytest.param(stack, order, id=f"{order}-{name}")
    for order, stacks in (("value", VALUES), ("first", DERIVATIVES), ("second", SECOND_DERIVATIVES))
    for name, stack in stacks.items()
]
POINTS = np.array([3.0, -0.5, 1.25])


@pytest.fixture(scope="module")
def oracle() -> dict[str, list[Any]]:
    """What JAX says at each of the points."""
    with jax.enable_x64(True):
        functions = {"value": JAX_F, "first": jax.grad(JAX_F), "second": jax.grad(jax.grad(JAX_F))}
        return {order: [float(jax.jit(function)(x)) for x in POINTS] for order, function in functions.items()}


@pytest.mark.parametrize("stacks", [VALUES, DERIVATIVES, SECOND_DERIVATIVES], ids=["values", "first", "second"])
def test_nested_calls_agree_with_each_other(stacks: dict[str, Callable[[Any], Any]]) -> None:
    all_close(*[stack(3.0) for stack in stacks.values()])


@pytest.mark.parametrize(("stack", "order"), STACKS)
def test_nested_calls(stack: Callable[[Any], Any], order: str, oracle: dict[str, list[Any]]) -> None:
    all_close(stack(3.0), oracle[order][0])


@pytest.mark.parametrize(("stack", "order"), STACKS)
def test_vmap_of_nested_calls(stack: Callable[[Any], Any], order: str, oracle: dict[str, list[Any]]) -> None:
    all_close(fx.vmap(stack)(POINTS), oracle[order])


@pytest.mark.parametrize(("stack", "order"), STACKS)
def test_jit_of_vmap_of_nested_calls(stack: Callable[[Any], Any], order: str, oracle: dict[str, list[Any]]) -> None:
    all_close(fx.jit(fx.vmap(stack))(POINTS), oracle[order])


@pytest.mark.parametrize("stack", [*VALUES.values(), *DERIVATIVES.values(), *SECOND_DERIVATIVES.values()])
def test_programs_of_nested_calls_are_well_typed(stack: Callable[[Any], Any]) -> None:
    for function, argument in ((stack, 3.0), (fx.vmap(stack), POINTS)):
        closed = fx.make_jaxpr(function)(argument)
        check_jaxpr(closed)
        assert read_back(closed.jaxpr) == closed.jaxpr
