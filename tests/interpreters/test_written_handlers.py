"""Typical user-written handlers: one rule for all operations, closures over their values, and common mistakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Never, TypeAlias, final

import numpy as np
import pytest
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx import extend, lax, ops
from tracefx.extend import Array, Interpreter, current, handling, rule
from tracefx.ops.elementwise.transcendental import Sin
from tracefx.testing import IdentityHandler, check_primitive
from tracefx.testing.tolerances import ELEMENTARY

# ------------------------------------------------------------------ operands that are constants of the program


class WithOperators(Interpreter):
    """Computes by the operators and methods of the operands, which may be numbers of the program."""

    @rule(ops.Add)
    def add(self, op: ops.Add, x: extend.Value, y: extend.Value) -> extend.Value:
        return (x + 1.0) + (1.0 * y) - x.sum() + y.astype(y.dtype).reshape(y.shape)[...]

    @rule(ops.Max)
    def maximum(self, op: ops.Max, x: extend.Value, y: extend.Value) -> extend.Value:
        return fnp.where((x >= y) | (x == 2.0 * y) & (y != 7.0), x, y) - abs(-x[()])

    @rule(ops.DynamicSlice)
    def slice(self, op: ops.DynamicSlice, x: extend.Value, start: extend.Value) -> extend.Value:
        return fnp.stack([x[start + i] for i in range(op.slice_sizes[0])])


def constants_program(x: Array) -> Array:
    y = fnp.maximum(x + 3.0, 1.0) + fnp.add(2.0, x[0])
    return y + lax.dynamic_slice(y, (1,), (2,)).sum()


def plain_meaning(x: Array) -> Array:
    """What `constants_program` computes under `WithOperators`."""

    def add(x: Array, y: Array) -> Array:
        return x + 1.0 + y - x.sum() + y

    def maximum(x: Array, y: Array) -> Array:
        return fnp.maximum(x, y) - abs(x)

    y = add(maximum(add(x, fnp.float32(3.0)), fnp.float32(1.0)), add(fnp.float32(2.0), x[0]))
    return add(y, y[1:3].sum())


Transform: TypeAlias = Callable[[Callable[[Array], Array]], Callable[[Array], Array]]


def looped(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: lax.scan(lambda y, _: (f(y), None), x, None, length=2)[0]


CONSTANT_OPERANDS: Final[Mapping[str, Callable[[Transform], Transform]]] = {
    "evaluated": lambda handle: handle,
    "compiled": lambda handle: lambda f: fx.jit(handle(f)),
    "in a compiled call": lambda handle: lambda f: handle(fx.jit(f)),
    "in a loop": lambda handle: lambda f: handle(looped(f)),
    "in a compiled loop": lambda handle: lambda f: fx.jit(looped(handle(f))),
    "in a branch": lambda handle: lambda f: handle(lambda x: lax.cond(x[0] > 0.0, f, lambda x: x, x)),
    "differentiated": lambda handle: lambda f: fx.grad(lambda x: handle(f)(x).sum()),
    "batched": lambda handle: lambda f: lambda x: fx.vmap(handle(f))(fnp.stack([x, x + x])),
}


@pytest.mark.parametrize("context", CONSTANT_OPERANDS)
def test_rules_compute_with_constants_as_with_arrays(context: str) -> None:
    """Numbers of the program have the operators and methods of arrays, wherever a rule meets them."""
    transform = CONSTANT_OPERANDS[context]
    x = fnp.array([1.5, -2.0, 0.25, 3.0], dtype="float32")
    got = transform(lambda f: fx.handle(f, WithOperators()))(constants_program)(x)
    assert_near(got, transform(lambda f: f)(plain_meaning)(x), ELEMENTARY)


def test_literals_are_arrays_that_programs_can_compare() -> None:
    two, same, index = extend.as_value(2.0), extend.as_value(2.0), extend.as_value(1)
    assert isinstance(two, extend.Literal)
    assert (two.shape, two.ndim, two.size, float(two), f"{two:.1f}") == ((), 0, 1, 2.0, "2.0")
    assert {two: "found"}[same] == "found"  # type: ignore[index]  # a key of programs
    assert two != extend.as_value(2)  # as atoms of programs, since the dtypes differ
    assert (two == np.arange(3.0)).tolist() == [False, False, True]
    assert (np.arange(3.0) != two).tolist() == [True, True, False]
    assert ("abc"[index], int(fnp.arange(3)[index])) == ("b", 1)
    for result in (two + 1, two.copy(), fnp.asarray(two), extend.as_array(two), fx.jit(lambda x: x)(two)):
        assert not isinstance(result, extend.Literal)
    with pytest.raises(AttributeError, match=r"Literal\(val=2.0, aval=f32\[\]\*\) has no sharding: it is a constant"):
        _ = two.sharding


# ------------------------------------------------------------------ one rule for all operations


class Marked(NamedTuple):
    x: extend.Array
    marks: extend.Array


@final
class Marking(Interpreter[Marked]):
    """Counts the operations on the path from the input to each value."""

    @override
    def aval_of(self, value: Marked) -> extend.ShapedArray:
        return value.x.aval

    @override
    def lift(self, x: extend.Value) -> Marked:
        return Marked(extend.as_array(x), fnp.zeros(x.aval.shape, np.int32))

    @override
    def strip(self, value: Marked) -> extend.Value:
        return value.x

    @rule(family=extend.Primitive)
    def mark(self, op: extend.Primitive, *xs: Marked | extend.Value) -> list[Marked | extend.Value]:
        most = fnp.stack([x.marks.max() for x in xs if isinstance(x, Marked)]).max()
        outs = extend.bind(op, *[x.x if isinstance(x, Marked) else x for x in xs])
        return [Marked(extend.as_array(out), fnp.full(out.aval.shape, most + 1)) for out in outs]


def marks(f: Callable[[Any], Any], x: float) -> tuple[float, int]:
    with Marking().running() as h:
        out = h.unwrap(f(h.wrap(h.lift(fnp.asarray(x)))))
    assert isinstance(out, Marked)
    return float(out.x), int(out.marks)


@fx.custom_jvp
def with_jvp_rule(x: Any) -> Any:
    return fnp.sin(x) * 2.0


with_jvp_rule.defjvps(lambda t, ans, x: 7.0 * t)


@fx.custom_vjp
def with_vjp_rule(x: Any) -> Any:
    return fnp.sin(x) * 3.0


with_vjp_rule.defvjp(lambda x: (with_vjp_rule(x), x), lambda r, ct: (5.0 * ct * r,))


@pytest.mark.parametrize("f", [with_jvp_rule, with_vjp_rule])
def test_rule_for_all_primitives_does_not_apply_to_custom_rule_calls(f: Any) -> None:
    assert marks(f, 0.5)[1] == 2
    assert marks(fx.jit(f), 0.5)[1] == 2


def closing_jvp(x: Any) -> Any:
    @fx.custom_jvp
    def g(y: Any) -> Any:
        return y * x

    g.defjvps(lambda t, ans, y: t * 3.0)
    return g(2.0)


def closing_vjp(x: Any) -> Any:
    @fx.custom_vjp
    def g(y: Any) -> Any:
        return y * x

    g.defvjp(lambda y: (g(y), y), lambda r, ct: (ct * 3.0,))
    return g(2.0)


def closing_vmap(x: Any) -> Any:
    @fx.custom_batching.custom_vmap
    def g(y: Any) -> Any:
        return y * x

    g.def_vmap(lambda size, batched, y: (y * x, True))
    return g(2.0)


@pytest.mark.parametrize("f", [closing_jvp, closing_vjp, closing_vmap])
@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit])
def test_functions_with_custom_rules_may_close_over_handler_values(f: Any, wrap: Callable[..., Any]) -> None:
    assert marks(wrap(f), 0.5) == (1.0, 1)


def test_functions_without_handler_values_keep_their_custom_rule() -> None:
    def f(x: Any) -> Any:
        with Marking().running():
            return with_jvp_rule(x)

    assert fx.grad(f)(0.5) == 7.0
    assert fx.grad(fx.jit(f))(0.5) == 7.0


def test_functions_with_python_control_flow_on_values_are_not_retraced() -> None:
    @fx.custom_jvp
    def kinked(x: Any) -> Any:
        return 2.0 * x if x > 0.0 else x

    kinked.defjvps(lambda t, ans, x: 7.0 * t)

    def f(x: Any) -> Any:
        with Marking().running():
            return kinked(x)

    assert fx.grad(f)(0.5) == 7.0


# ------------------------------------------------------------------ state with several parts


@final
class Tally(Interpreter[Never, Mapping[str, Array]]):
    """Counts operations by name."""

    has_state: ClassVar[bool] = True

    @rule(Sin)
    def see(self, op: extend.Primitive, *xs: extend.Value) -> Sequence[extend.Value]:
        counts = self.current_state
        self.set_state({**counts, op.name: counts.get(op.name, fnp.int32(0)) + 1})
        return extend.bind(op, *xs)


def tally(f: Callable[[Any], Any], **start: Any) -> Callable[[Any], tuple[Any, Mapping[str, Array]]]:
    def g(x: Any) -> tuple[Any, Mapping[str, Array]]:
        with Tally().running(start) as h:
            out = f(x)
        return out, h.current_state

    return g


def repeated(x: Any) -> Any:
    return lax.scan(lambda c, _: (with_jvp_rule(c) * with_vjp_rule(x), None), x, None, length=2)[0]


def test_state_in_the_linear_part_of_a_custom_vjp_function() -> None:
    def tangent(x: Any) -> Any:
        return fx.jvp(repeated, (x,), (1.0,))[1]

    out, counts = tally(tangent, sin=0)(0.7)
    assert_near(out, tangent(0.7))
    assert counts["sin"] == 4


def test_parts_of_the_state_are_arrays() -> None:
    @fx.custom_batching.custom_vmap
    def g(x: Any) -> Any:
        return fnp.sin(x)

    g.def_vmap(lambda size, batched, x: (fnp.sin(x), True))

    def f(x: Any) -> Any:
        return tally(lambda x: fnp.sin(g(x)), sin=0)(x)[0]

    assert_near(fx.vmap(f)(fnp.array([0.5, 1.0])), np.sin(np.sin([0.5, 1.0])), ELEMENTARY)
    assert_near(fx.jvp(f, (0.5,), (1.0,))[1], np.cos(np.sin(0.5)) * np.cos(0.5), ELEMENTARY)


def test_state_must_keep_its_structure_in_loops() -> None:
    assert tally(fnp.sin)(0.5)[1] == {"sin": 1}
    with pytest.raises(TypeError, match=r"takes the state .* initialize all its parts before"):
        tally(repeated)(0.5)


# ------------------------------------------------------------------ common mistakes


@final
class Giving(Interpreter):
    """The rule for `sin` returns `out`."""

    out: object

    @rule(Sin)
    def return_out(self, op: Sin, x: extend.Value) -> Any:
        return self.out


def run_with_output(out: object) -> Any:
    return fx.handle(fnp.sin, Giving(out))(0.5)


@pytest.mark.parametrize(
    "out", [None, 2, fnp.ones(1), fnp.ones((), "int32"), Marked(fnp.ones(()), fnp.ones(())), [], [1.0, 1.0], (1.0, 1.0)]
)
def test_rule_must_return_the_outputs_of_the_primitive(out: object) -> None:
    where = r"Giving.return_out \(.*test_written_handlers.py:\d+\) for sin at .*test_written_handlers.py:\d+"
    with pytest.raises(TypeError, match=where + r" \(run_with_output\) returned .*, expected f32\[\]$"):
        run_with_output(out)


@pytest.mark.parametrize("out", [2.0, np.float32(2.0), np.asarray(2.0, np.float32), fnp.asarray(2.0)])
def test_rule_may_return_numbers_in_a_list(out: object) -> None:
    assert run_with_output(out) == 2.0
    assert run_with_output([out]) == 2.0
    assert run_with_output((out,)) == 2.0


def test_passing_a_handler_class_is_an_error() -> None:
    before = current()
    for wrong in (Tally, Tally(), IdentityHandler):
        with pytest.raises(TypeError, match=r"got .*(Tally|IdentityHandler).*handling\(MyHandler\(current\(\)\)\)"):
            handling(wrong)  # type: ignore[type-var]
    assert current() is before


# ------------------------------------------------------------------ linear solves

UNSOLVED: Final = 1e-5
"""Residual at which the solver stops; the rounding error of values near 1 is a hundredth of it."""


@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit])
def test_solver_is_not_differentiated_under_a_handler_with_state(wrap: Callable[..., Any]) -> None:
    def solve(matvec: Callable[[Any], Any], b: Any) -> Any:
        def step(y: Any) -> Any:
            return y + fnp.sin(b - matvec(y)) * 0.5

        return lax.while_loop(lambda y: abs(matvec(y) - b) > UNSOLVED, step, b)

    def f(x: Any) -> Any:
        return lax.custom_linear_solve(lambda v: v * x, fnp.sin(x), solve, symmetric=True)

    counted = tally(wrap(f), sin=0)
    out, counts = counted(0.7)
    assert abs(0.7 * float(out) - np.sin(0.7)) <= 1.1 * UNSOLVED
    assert counts["sin"] > 3
    slope, counts = fx.grad(counted, has_aux=True)(0.7)
    assert abs(0.7 * float(slope) - (np.cos(0.7) - float(out))) <= 1.1 * UNSOLVED
    assert counts["sin"] > 3


# ------------------------------------------------------------------ families, as authors of primitives import them


@final
class Softsign(extend.Smooth):
    """`x / (1 + abs(x))`, a primitive that inherits the rules of its family."""

    __slots__ = ()
    name = "softsign"
    domain = extend.Domain("floats", lambda dtype: dtype.kind == "f")

    @override
    def kernel(self, *args: extend.NDArray) -> extend.NDArray:
        (x,) = args
        return np.asarray(x / (1 + np.abs(x)))

    @override
    def jvp_term(self, i: int, tangent: extend.Value, out: extend.Value, *primals: extend.Value) -> extend.Tangent:
        scale = 1.0 - abs(extend.as_array(out))
        return extend.as_array(tangent) * scale * scale

    @override
    def emit_elementwise(
        self, builder: extend.Builder, out: extend.ShapedArray, *operands: extend.IrValue
    ) -> extend.IrValue:
        (x,) = operands
        one = builder.constant(np.ones(out.shape, out.dtype))
        (size,) = builder.emit("stablehlo.abs", [x], [out])
        (divisor,) = builder.emit("stablehlo.add", [size, one], [out])
        return builder.emit("stablehlo.divide", [x, divisor], [out])[0]


def test_primitive_of_a_family_has_its_rules() -> None:
    report = check_primitive(Softsign(), [np.array([0.5, -2.0], np.float32)])
    assert not report.skipped
    with pytest.raises(TypeError, match=r"softsign takes floats, but operand 0 is i32\[\]"):
        extend.bind1(Softsign(), np.int32(1))


@final
class FamilyTrace(Interpreter):
    """Records the names of the applied primitives with the family whose rule handles them."""

    names: list[tuple[str, str]]

    def apply(self, family: str, op: extend.Primitive, *xs: extend.Value) -> Sequence[extend.Value]:
        self.names.append((family, op.name))
        return extend.bind(op, *xs)

    @rule(family=extend.Smooth)
    def smooth(self, op: extend.Smooth, *xs: extend.Value) -> Sequence[extend.Value]:
        return self.apply("smooth", op, *xs)

    @rule(family=extend.Comparison)
    def comparison(self, op: extend.Comparison, *xs: extend.Value) -> Sequence[extend.Value]:
        return self.apply("comparison", op, *xs)

    @rule(family=extend.NonDifferentiable)
    def non_differentiable(self, op: extend.NonDifferentiable, *xs: extend.Value) -> Sequence[extend.Value]:
        return self.apply("non-differentiable", op, *xs)

    @rule(family=extend.LinearOperation)
    def linear(self, op: extend.LinearOperation, *xs: extend.Value) -> Sequence[extend.Value]:
        return self.apply("linear", op, *xs)

    @rule(family=extend.Reduction)
    def reduction(self, op: extend.Reduction, *xs: extend.Value) -> Sequence[extend.Value]:
        return self.apply("reduction", op, *xs)


def test_rule_for_a_family_handles_its_members() -> None:
    def f(x: extend.Array) -> extend.Array:
        y = extend.bind1(Softsign(), lax.log(x))
        return lax.reduce_max(lax.rev(lax.floor(y), (0,)), (0,)) < 1.0

    names: list[tuple[str, str]] = []
    fx.handle(f, FamilyTrace(names))(fnp.ones(2))
    assert names == [
        ("smooth", "log"),
        ("smooth", "softsign"),
        ("non-differentiable", "floor"),
        ("linear", "rev"),
        ("reduction", "reduce_max"),
        ("comparison", "lt"),
    ]
