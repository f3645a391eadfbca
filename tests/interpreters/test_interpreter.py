"""Interpreters (handlers with rules): custom values, state and collected values in all control flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, ClassVar, Final, NamedTuple, Never, TypeAlias, final

import numpy as np
import pytest
from attrs.exceptions import FrozenInstanceError
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import untyped
from tracefx import extend, lax
from tracefx.control.checkpoint import CheckpointName
from tracefx.control.scan import Scan
from tracefx.errors import HandlerStateError
from tracefx.extend import (
    Array,
    EscapedTracerError,
    Interpreter,
    LinearOperation,
    Primitive,
    Value,
    bind1,
    current,
    rule,
)
from tracefx.ops.elementwise.arithmetic import Mul
from tracefx.ops.elementwise.comparison import Gt, Lt
from tracefx.ops.elementwise.elementwise import Add
from tracefx.ops.elementwise.selection import SelectN
from tracefx.ops.elementwise.transcendental import Cos, Sin
from tracefx.ops.structural import ConvertElementType
from tracefx.testing.tolerances import ELEMENTARY

# ------------------------------------------------------------------ custom values: forward mode


class Dual(NamedTuple):
    primal: extend.Array
    tangent: extend.Array


DualOrValue: TypeAlias = Dual | extend.Value


@final
class Duals(Interpreter[Dual]):
    """Forward mode with rules for products, sines, cosines and linear operations."""

    @override
    def aval_of(self, value: Dual) -> extend.ShapedArray:
        return value.primal.aval

    @override
    def lift(self, x: extend.Value) -> Dual:
        return Dual(extend.as_array(x), fnp.zeros_like(extend.as_array(x)))

    @override
    def strip(self, value: Dual) -> extend.Value:
        return value.primal

    def as_dual(self, x: Dual | extend.Value) -> Dual:
        return x if isinstance(x, Dual) else self.lift(x)

    @rule(Mul)
    def mul(self, op: Mul, x: DualOrValue, y: DualOrValue) -> Dual:
        a, b = self.as_dual(x), self.as_dual(y)
        return Dual(a.primal * b.primal, a.primal * b.tangent + a.tangent * b.primal)

    @rule(Sin)
    def sin(self, op: Sin, x: Dual) -> Dual:
        return Dual(fnp.sin(x.primal), fnp.cos(x.primal) * x.tangent)

    @rule(Cos)
    def cos(self, op: Cos, x: Dual) -> Dual:
        return Dual(fnp.cos(x.primal), -fnp.sin(x.primal) * x.tangent)

    @rule(Gt, Lt)
    def compare(self, op: Gt | Lt, *xs: DualOrValue) -> Value:
        return bind1(op, *[x.primal if isinstance(x, Dual) else x for x in xs])

    @rule(Add, ConvertElementType, SelectN, family=LinearOperation)
    def linear(self, op: Primitive, *xs: DualOrValue) -> Dual:
        duals = [self.as_dual(x) for x in xs]
        return Dual(bind1(op, *[d.primal for d in duals]), bind1(op, *[d.tangent for d in duals]))


def push(f: Callable[..., Any], x: Any, t: Any) -> tuple[Any, Any]:
    with Duals().running() as h:
        out = f(h.wrap(Dual(fnp.asarray(x), fnp.asarray(t))))
    result = h.unwrap(out)
    return (result.primal, result.tangent) if isinstance(result, Dual) else (result, fnp.zeros_like(out))


def straight(x: Any) -> Any:
    return fnp.sin(x) * x + 2.0 * x


def scanned(x: Any) -> Any:
    carry, ys = lax.scan(lambda c, y: (c * fnp.sin(y) + x, c * y), x, fnp.stack([x, x * 2.0, x + 1.0]))
    return carry + ys.sum()


def scanned_from_a_number(x: Any) -> Any:
    """The carry becomes one of the handler's values in the first step."""
    carry, ys = lax.scan(lambda c, y: (c * x + y, c), fnp.asarray(1.0), fnp.arange(4.0), reverse=True)
    return carry + ys.sum()


def two_carries(x: Any) -> Any:
    """The second carry becomes one of the handler's values one step after the first."""
    (a, b), _ = lax.scan(lambda c, _: ((c[1] * 2.0, x), None), (1.0, 1.0), None, length=2)
    return a + b


def branching(x: Any) -> Any:
    return lax.cond(x > 0.5, lambda x: fnp.sin(x) * x, lambda x: fnp.ones_like(x), x)


def switched(x: Any) -> Any:
    return lax.switch(2, [lambda x: x, lambda x: x * x, lambda x: fnp.sin(x), lambda x: 1.0 + 0 * x], x)


def looping(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 10.0, lambda c: (c[0] * 2.0, c[1] + x), (x, 0.0))[1]


def repeated(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: c * x + 1.0, x)


def checkpointed(x: Any) -> Any:
    return fx.checkpoint(lambda x: fnp.sin(x) * x)(x) * 2.0


@fx.custom_jvp
def ruled(x: Any) -> Any:
    return fnp.sin(x) * x


ruled.defjvps(lambda t, ans, x: 100.0 * t)


@fx.custom_vjp
def pulled(x: Any) -> Any:
    return fnp.sin(x) * x


pulled.defvjp(lambda x: (fnp.sin(x) * x, None), lambda _, ct: (100.0 * ct,))


def nested(x: Any) -> Any:
    def step(c: Any, y: Any) -> Any:
        c = lax.cond(c < 1.0, lambda c: lax.fori_loop(0, 2, lambda i, d: d * y, c), fx.jit(lambda c: fnp.sin(c)), c)
        return c, c * x

    carry, ys = lax.scan(step, x, fnp.arange(3.0))
    return carry + ys.sum()


PROGRAMS: Final = (
    *(straight, scanned, scanned_from_a_number, two_carries, branching, switched, looping, repeated),
    *(checkpointed, nested),
)
each_program: Final = pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)


@each_program
@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["plain", "jit inside"])
def test_handler_interprets_control_flow(f: Callable[..., Any], wrap: Callable[..., Any]) -> None:
    want = fx.jvp(f, (0.7,), (1.0,))
    assert_near(push(wrap(f), 0.7, 1.0), want, ELEMENTARY)
    assert_near(fx.jit(lambda x: push(wrap(f), x, 1.0))(0.7), want, ELEMENTARY)


@each_program
def test_handler_under_vmap_and_grad(f: Callable[..., Any]) -> None:
    xs = np.array([0.7, 0.2, 1.5], np.float32)
    want = fx.vmap(lambda x: fx.jvp(f, (x,), (1.0,))[1])(xs)
    assert_near(fx.vmap(lambda x: push(f, x, 1.0)[1])(xs), want)
    second = fx.jacfwd(lambda x: fx.jvp(f, (x,), (1.0,))[1])(0.7)
    assert_near(fx.jacfwd(lambda x: push(f, x, 1.0)[1])(0.7), second)
    if f is not looping:  # an unbounded loop, which has no reverse mode
        assert_near(fx.grad(lambda x: push(f, x, 1.0)[1])(0.7), second)


@each_program
def test_handler_around_derivatives(f: Callable[..., Any]) -> None:
    """The handler also sees the operations of derivatives."""
    second = fx.jacfwd(fx.jacfwd(f))(0.7)
    assert_near(push(fx.jacfwd(f), 0.7, 1.0)[1], second)


@pytest.mark.parametrize("f", [ruled, pulled], ids=["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["plain", "jit inside"])
def test_handler_interprets_functions_with_custom_rules(f: Any, wrap: Callable[..., Any]) -> None:
    """Custom rules do not apply to this handler's values, so the handler interprets the function itself."""
    want = fx.jvp(straight, (0.7,), (1.0,))[1] - 2.0
    assert_near(push(wrap(f), 0.7, 1.0)[1], want, ELEMENTARY)


def test_custom_values_as_scanned_inputs() -> None:
    xs, ts = fnp.arange(6.0).reshape(3, 2), fnp.ones((3, 2))

    def f(xs: Any) -> Any:
        return lax.scan(lambda c, x: (c + x[0] * x[1], c), 0.0, xs)[0]

    assert_near(push(f, xs, ts), fx.jvp(f, (xs,), (ts,)), ELEMENTARY)


def test_missing_rule_error_lists_the_options() -> None:
    with pytest.raises(extend.MissingRuleError) as caught:
        push(fnp.tanh, 0.5, 1.0)
    for word in ("tanh", "@rule(Tanh)", "@rule(family="):
        assert word in str(caught.value)
    assert "Expandable" not in str(caught.value)  # a class of tracefx cannot be changed

    class Own(extend.Primitive):
        name = "own"

    with pytest.raises(extend.MissingRuleError, match=r"in class Own, inherit from Expandable; or .*@rule\(Own\), or"):
        push(lambda x: extend.bind1(Own(), x), 0.5, 1.0)


def test_custom_values_convert_to_bool_but_not_to_numpy() -> None:
    def f(x: Any) -> Any:
        return x * 2.0 if x > 0 else x

    assert push(f, 1.0, 3.0)[1] == 6.0
    h = Duals().start(current())
    with pytest.raises(EscapedTracerError, match="a tracer of duals, which has no meaning outside"):
        fx.handle(lambda: h.wrap(Dual(fnp.ones(()), fnp.ones(()))), lambda inner: h.frame)()
    with pytest.raises(TypeError, match="NumPy"):
        push(np.sin, 1.0, 3.0)


# ------------------------------------------------------------------ collected values


@final
class Gather(Interpreter):
    has_state: ClassVar[bool] = True

    @rule(CheckpointName)
    def named(self, op: CheckpointName, x: extend.Value) -> Sequence[extend.Value]:
        self.collect(op.label, x)
        return [x]


def gathered(f: Callable[..., Any]) -> Callable[..., tuple[Any, Mapping[Any, Any]]]:
    def g(*args: Any) -> tuple[Any, Mapping[Any, Any]]:
        with Gather().running() as h:
            out = f(*args)
        return out, dict(h.collected)

    return g


def naming(x: Any) -> Any:
    y = fx.checkpoint_name(fnp.sin(x), "a")

    def step(c: Any, z: Any) -> Any:
        c = fx.checkpoint_name(c * z, "b")
        return c, c

    c, _ = lax.scan(step, y, fnp.arange(3.0) + 1)
    d = lax.cond(c > 0, lambda c: fx.checkpoint_name(c * 2, "c"), lambda c: c, c)
    e = lax.cond(c < 0, lambda c: fx.checkpoint_name(c * 2, "d"), lambda c: c, d)
    return lax.while_loop(lambda c: fx.checkpoint_name(c, "f") < 10.0, lambda c: fx.checkpoint_name(c * 2.0, "e"), e)


def expected_values(x: float) -> dict[str, Any]:
    a = np.sin(x)
    b = np.array([a, 2 * a, 6 * a])
    c = 12 * a
    e, f = 0.0, c
    while f < 10.0:
        e = f = f * 2.0
    return {"a": a, "b": b, "c": c, "d": 0.0, "e": e, "f": f}


@pytest.mark.parametrize("f", [naming, fx.jit(naming)], ids=["plain", "jit inside"])
@pytest.mark.parametrize("x", [0.5, 1.2], ids=["some steps", "no step"])
def test_values_are_collected_from_loops_and_branches(f: Callable[..., Any], x: float) -> None:
    want = expected_values(x)
    for run in (gathered(f), fx.jit(gathered(f))):
        out, collected = run(x)
        assert set(collected) == set(want)
        for name, value in want.items():
            assert_near(collected[name], value, ELEMENTARY, what=name)
        assert_near(out, want["f"], ELEMENTARY)


def test_collected_values_under_vmap_and_grad() -> None:
    xs = fnp.array([0.5, 0.25])
    _, collected = fx.vmap(gathered(naming))(xs)
    for i, x in enumerate([0.5, 0.25]):
        for name, value in expected_values(x).items():
            assert_near(collected[name][i], value, ELEMENTARY, what=name)
    slope = fx.grad(lambda x: gathered(lambda x: fx.checkpoint_name(fnp.sin(x), "a") * 2.0)(x)[1]["a"])(0.5)
    assert_near(slope, np.cos(0.5), ELEMENTARY)


def test_collecting_two_values_under_one_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="already collected a value under the name 'a'"):
        gathered(lambda x: fx.checkpoint_name(fx.checkpoint_name(x, "a"), "a"))(1.0)
    with pytest.raises(TypeError, match="'a' in branch 1 of cond"):
        gathered(
            lambda x: lax.cond(
                x > 0,
                lambda x: fx.checkpoint_name(x, "a"),
                lambda x: fx.checkpoint_name(fnp.stack([x, x]), "a").sum(),
                x,
            )
        )(1.0)


# ------------------------------------------------------------------ state


@final
class Count(Interpreter[Any, Array]):
    """Counts the sines that are computed."""

    has_state: ClassVar[bool] = True

    @rule(Sin)
    def increment(self, op: Sin, x: extend.Value) -> Sequence[extend.Value]:
        self.set_state(self.current_state + 1)
        return extend.bind(op, x)


def counted(f: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    def g(*args: Any) -> tuple[Any, Any]:
        with Count().running(fnp.asarray(0)) as h:
            out = f(*args)
        return out, h.current_state

    return g


def sines(x: Any) -> Any:
    c, _ = lax.scan(lambda c, z: (fnp.sin(c), z), x, None, 5)
    c = lax.cond(c > 0, lambda c: fnp.sin(fnp.sin(c)), lambda c: c, c)
    c = fx.checkpoint(lambda c: fnp.sin(c))(c)
    return lax.while_loop(lambda c: fnp.sin(c[0]) > 0.3, lambda c: (fnp.sin(c[0]), c[1]), (c, x))[0]


def expected_sines(x: float) -> tuple[float, int]:
    n = 0

    def sin(x: float) -> float:
        nonlocal n
        n += 1
        return float(np.sin(np.float32(x)))

    for _ in range(5):
        x = sin(x)
    if x > 0:
        x = sin(sin(x))
    x = sin(x)
    while sin(x) > 0.3:
        x = sin(x)
    return x, n


@pytest.mark.parametrize("f", [sines, fx.jit(sines)], ids=["plain", "jit inside"])
@pytest.mark.parametrize("x", [0.5, 0.1, -0.5])
def test_state_is_threaded_through_loops_and_branches(f: Callable[..., Any], x: float) -> None:
    want = expected_sines(x)
    for run in (counted(f), fx.jit(counted(f))):
        assert_near(run(x), want)


def test_state_under_vmap_and_grad() -> None:
    xs = [0.5, 0.1, -0.5]
    outs, counts = fx.vmap(counted(fx.jit(sines)))(fnp.array(xs))
    assert_near(np.stack([outs, counts], 1), list(map(expected_sines, xs)))
    slope, count = fx.jacfwd(counted(lambda x: fnp.sin(fnp.sin(x))), has_aux=True)(0.5)
    assert count == 2
    assert_near(slope, np.cos(np.sin(0.5)) * np.cos(0.5), ELEMENTARY)


def test_loops_that_do_not_change_the_state_do_not_carry_it() -> None:
    def carries(f: Callable[..., Any]) -> list[int]:
        return [e.prim.num_carry for e in fx.make_jaxpr(f)(1.0).eqns if isinstance(e.prim, Scan)]

    def doubled(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, c: c * 2.0, x)

    def repeated_sine(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, c: fnp.sin(c), x)

    assert carries(counted(doubled)) == carries(doubled)
    assert carries(counted(repeated_sine)) == [n + 1 for n in carries(repeated_sine)]


@pytest.mark.parametrize("f", [ruled, pulled], ids=["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["plain", "jit inside"])
def test_custom_rules_apply_under_a_handler_with_state(f: Any, wrap: Callable[..., Any]) -> None:
    slope, count = fx.grad(counted(wrap(f)), has_aux=True)(0.5)
    assert (slope, count) == (100.0, 1)
    slope, _ = fx.grad(gathered(wrap(f)), has_aux=True)(0.5)
    assert slope == 100.0


# ------------------------------------------------------------------ interceptors


@final
class Doubled(Interpreter):
    """Doubles the result of every sine."""

    @rule(Sin)
    def double(self, op: Sin, x: Value) -> Value:
        return bind1(op, x) * 2.0


@pytest.mark.parametrize("f", [ruled, pulled], ids=["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit], ids=["plain", "jit inside"])
def test_interceptors_act_in_functions_with_custom_rules_and_keep_the_rules(f: Any, wrap: Callable[..., Any]) -> None:
    g = fx.handle(wrap(f), Doubled())
    assert_near(g(0.5), 2 * np.sin(0.5) * 0.5, ELEMENTARY)
    assert fx.grad(g)(0.5) == 100.0
    assert fx.jit(fx.grad(g))(0.5) == 100.0


def test_handlers_are_transformations() -> None:
    pipeline = fx.Jit() @ fx.Handle(Doubled()) @ fx.Grad()
    assert_near(pipeline(lambda x: -fnp.cos(x))(0.5), 2 * np.sin(0.5), ELEMENTARY)
    assert pipeline == fx.Jit() @ fx.Handle(Doubled()) @ fx.Grad()
    with pytest.raises(TypeError, match="handler to handler"):
        untyped(fx.handle)(fnp.sin, current())
    with pytest.raises(TypeError, match=r"got its class: write Doubled\(\)"):
        untyped(fx.handle)(fnp.sin, Doubled)


def test_transformed_jaxpr_is_cached() -> None:
    f = fx.jit(lambda x: fnp.sin(x))
    g = fx.handle(f, Doubled())
    first, second = [fx.make_jaxpr(g)(0.5).eqns[0].prim for _ in range(2)]
    assert first.jaxpr is second.jaxpr  # type: ignore[attr-defined]  # both are calls


def test_the_same_handler_applied_twice() -> None:
    assert_near(fx.handle(fx.handle(fx.jit(fnp.sin), Doubled()), Doubled())(0.5), 4 * np.sin(0.5), ELEMENTARY)


def test_exceptions_restore_the_context() -> None:
    before = extend.current()
    with pytest.raises(ZeroDivisionError):
        fx.handle(lambda x: fx.jit(lambda x: 1 / 0)(x), Doubled())(1.0)
    assert current() is before


# ------------------------------------------------------------------ interpreters are values


@final
class Scaled(Interpreter[Never, Array]):
    """Multiplies the result of every sine; its state is the number of sines."""

    factor: float
    has_state: ClassVar[bool] = True

    @rule(Sin)
    def scale(self, op: Sin, x: Value) -> Value:
        self.set_state(self.current_state + 1)
        return bind1(op, x) * self.factor


def scaled(interpreter: Scaled, f: Callable[[Any], Any], x: float) -> tuple[Array, int]:
    with interpreter.running(fnp.asarray(0)) as h:
        out = f(x)
    return out, int(h.current_state)


def test_interpreters_are_equal_by_their_options_also_while_they_run() -> None:
    assert Scaled(2.0) == Scaled(2.0) != Scaled(3.0)
    assert len({Scaled(2.0), Scaled(2.0), Scaled(3.0)}) == 2
    assert repr(Scaled(2.0)) == "Scaled(factor=2.0)"
    with Scaled(2.0).running(fnp.asarray(0)) as h:
        assert h == Scaled(2.0)
        assert h is not Scaled(2.0)
    with pytest.raises(FrozenInstanceError):
        Scaled(2.0).factor = 3.0  # type: ignore[misc]  # wrong on purpose


def test_runs_of_one_interpreter_are_separate() -> None:
    """A run in a run, a run after a run, and a run after one that raised an exception."""
    double = Scaled(2.0)

    def inside(x: Any) -> Any:
        assert scaled(double, fnp.sin, x)[1] == 1
        return fnp.sin(fnp.sin(x))

    assert scaled(double, inside, 0.5)[1] == 3
    with pytest.raises(ZeroDivisionError):
        scaled(double, lambda x: fnp.sin(x) / (1 // 0), 0.5)
    for _ in range(2):
        out, count = scaled(double, fx.jit(fnp.sin), 0.5)
        assert_near(out, 2 * np.sin(0.5), ELEMENTARY)
        assert count == 1


def test_one_interpreter_runs_in_several_threads_at_once() -> None:
    double, barrier = Scaled(2.0), Barrier(4)

    def run(n: int) -> int:
        def repeated_sine(x: Any) -> Any:
            for _ in range(n):
                barrier.wait()
                x = fnp.sin(x)
            return x

        return scaled(double, repeated_sine, 0.5)[1]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, [5] * 4)) == [5] * 4


def test_state_needs_a_run() -> None:
    for use in (
        lambda: Scaled(2.0).current_state,
        lambda: Scaled(2.0).set_state(fnp.asarray(0)),
        lambda: Duals().inner,
    ):
        with pytest.raises(HandlerStateError, match=r"(Scaled\(factor=2.0\)|Duals\(\)) is not running"):
            use()
    with pytest.raises(TypeError, match="Duals has a state or collects values, so its class must set has_state"):
        untyped(Duals().running)(0).__enter__()
