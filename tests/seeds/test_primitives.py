"""Defining a primitive: `multiply_add` gets one rule after another, and errors name each missing rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attrs import frozen
from attrs.exceptions import FrozenInstanceError
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx.extend import (
    Array,
    ArrayLike,
    Batchable,
    Builder,
    Differentiable,
    Eval,
    Expandable,
    IrValue,
    Lowerable,
    MappedAxis,
    MissingRuleError,
    NDArray,
    Primitive,
    ShapedArray,
    Tangent,
    Tracer,
    Transposable,
    UndefinedPrimal,
    Value,
    Zero,
    batch_first,
    bind,
    bind1,
    check_jaxpr,
    current,
    instantiate,
)
from tracefx.testing.tolerances import ELEMENTARY

# ------------------------------------------------------------------ the primitive, rule by rule


@frozen(eq=False)
class WithoutRules(Primitive):
    name = "multiply_add"


@frozen(eq=False)
class Evaluated(WithoutRules):
    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        x, y, z = args
        return [np.add(np.multiply(x, y), z)]


def types(x: ShapedArray, y: ShapedArray, z: ShapedArray) -> Sequence[ShapedArray]:
    if not x.shape == y.shape == z.shape:
        raise TypeError(f"multiply_add takes operands of one shape, got {x}, {y} and {z}")
    return [ShapedArray(x.shape, x.dtype)]


@frozen(eq=False)
class Typed(Evaluated):
    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return types(*avals)


@frozen(eq=False)
class OnlyTyped(WithoutRules):
    """Has `abstract_eval` but no `impl`."""

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return types(*avals)


@frozen(eq=False)
class Compiled(Typed, Lowerable):
    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        x, y, z = operands
        (product,) = builder.emit("stablehlo.multiply", [x, y], [x.aval])
        return builder.emit("stablehlo.add", [product, z], [x.aval])


def push(
    prim: Primitive, primals: Sequence[Value], tangents: Sequence[Tangent]
) -> tuple[Sequence[Value], Sequence[Tangent]]:
    x, y, z = primals
    dx, dy, dz = [instantiate(t) for t in tangents]
    inner = bind1(prim, x, dy, dz)
    return bind(prim, x, y, z), [bind1(prim, dx, y, inner)]


@frozen(eq=False)
class Pushed(Compiled, Differentiable):
    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return push(self, primals, tangents)


@frozen(eq=False)
class PushedOnly(Evaluated, Differentiable):
    """Has `jvp` but no `abstract_eval`, which only the tracing of the linear part needs."""

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return push(self, primals, tangents)


@frozen(eq=False)
class Pulled(Pushed, Transposable):
    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (ct,), (x, y, z) = cts, args
        ct = instantiate(ct)
        zeros = instantiate(Zero(ct.aval))
        if isinstance(x, UndefinedPrimal):
            assert not isinstance(y, UndefinedPrimal), "a product of two unknowns is not linear"
            ct_x, ct_y = bind1(self, ct, y, zeros), None
        else:
            ct_x, ct_y = None, bind1(self, x, ct, zeros) if isinstance(y, UndefinedPrimal) else None
        return [ct_x, ct_y, ct if isinstance(z, UndefinedPrimal) else None]


@frozen(eq=False)
class MultiplyAdd(Pulled, Batchable):
    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        return bind(self, *[batch_first(x, d, axis) for x, d in zip(args, dims, strict=True)]), [0]


def square_add(prim: Primitive) -> Callable[[ArrayLike, ArrayLike], Array]:
    """Returns a function that computes `a * a + b` with one operation."""

    def square_add_prim(a: ArrayLike, b: ArrayLike) -> Array:
        return bind1(prim, a, a, b)

    return square_add_prim


NUMBERS = [2.0, 10.0]
VECTORS = np.array([2.0, 3.0], np.float32), np.array([10.0, 20.0], np.float32)


def missing_rule_message(rule: str, kind: type[Primitive]) -> str:
    """Returns a pattern for the start of the message: the primitive, the missing rule and the class."""
    if rule == "transpose":
        return (
            f"^a transposed function must be linear, but multiply_add at .* If your primitive {kind.__name__} is linear"
        )
    return f"^primitive 'multiply_add' has no {rule} rule: in class {kind.__name__}, "


# ------------------------------------------------------------------ composition of existing operations


def square_add_numpy(a: ArrayLike, b: ArrayLike) -> Array:
    return fnp.add(fnp.multiply(a, a), b)


def test_composition_of_existing_operations() -> None:
    assert square_add_numpy(2.0, 10.0) == 14.0
    assert fx.grad(square_add_numpy)(2.0, 10.0) == 4.0


def test_transformed_functions_are_called_with_tracers() -> None:
    seen: list[object] = []

    def watched(a: ArrayLike, b: ArrayLike) -> Array:
        seen.extend([a, b])
        return square_add_numpy(a, b)

    watched(2.0, 10.0)
    assert not any(isinstance(x, Tracer) for x in seen)
    seen.clear()
    fx.grad(watched)(2.0, 10.0)
    a, b = seen
    assert isinstance(a, Tracer)
    assert int(a) == 2, "a tracer of differentiation has a value"
    assert type(b) is float
    seen.clear()
    fx.jit(watched)(2.0, 10.0)
    assert all(isinstance(x, Tracer) for x in seen)


# ------------------------------------------------------------------ one rule after another


@pytest.mark.parametrize(
    ("kind", "rule", "call"),
    [
        (WithoutRules, "impl", lambda f: f(*NUMBERS)),
        (OnlyTyped, "impl", lambda f: f(*NUMBERS)),
        (Evaluated, "abstract_eval", lambda f: fx.jit(f)(*NUMBERS)),
        (Evaluated, "abstract_eval", lambda f: fx.make_jaxpr(f)(*NUMBERS)),
        (Evaluated, "abstract_eval", lambda f: fx.eval_shape(f, *NUMBERS)),
        (PushedOnly, "abstract_eval", lambda f: fx.grad(f)(*NUMBERS)),
        (Typed, "lower", lambda f: fx.jit(f)(*NUMBERS)),
        (Typed, "lower", lambda f: fx.jit(f).lower(*NUMBERS)),
        (Compiled, "jvp", lambda f: fx.jvp(f, (2.0, 10.0), (1.0, 1.0))),
        (Compiled, "jvp", lambda f: fx.jit(lambda x, t: fx.jvp(f, x, t))((2.0, 10.0), (1.0, 1.0))),
        (Compiled, "jvp", lambda f: fx.jvp(fx.jit(f), (2.0, 10.0), (1.0, 1.0))),
        (Compiled, "jvp", lambda f: fx.grad(f)(*NUMBERS)),
        (Pushed, "transpose", lambda f: fx.grad(f)(*NUMBERS)),
        (Pushed, "transpose", lambda f: fx.jit(fx.grad(f))(*NUMBERS)),
        (Pushed, "transpose", lambda f: fx.grad(fx.jit(f))(*NUMBERS)),
        (Pulled, "batch", lambda f: fx.vmap(f)(*VECTORS)),
        (Pulled, "batch", lambda f: fx.jit(fx.vmap(f))(*VECTORS)),
        (Pulled, "batch", lambda f: fx.vmap(fx.jit(f))(*VECTORS)),
    ],
)
def test_error_names_the_missing_rule(kind: type[Primitive], rule: str, call: Callable[[Any], object]) -> None:
    with pytest.raises(MissingRuleError, match=missing_rule_message(rule, kind)) as failed:
        call(square_add(kind()))
    assert isinstance(failed.value, NotImplementedError)
    assert f"define {rule}(" in str(failed.value), "the message says what to write"
    assert re.search(r" at \S*test_primitives\.py:\d+ \(", str(failed.value)), "the message names the user's line"
    assert isinstance(current(), Eval), "a failed call leaves the handler as it was"


def test_evaluation_needs_only_impl() -> None:
    out = square_add(Evaluated())(2.0, 10.0)
    assert out == 14.0
    assert out.shape == ()
    assert out.dtype == np.float32


@pytest.mark.parametrize(
    ("rule", "transform"),
    [("jvp", fx.grad), ("batch", lambda f: fx.vmap(f, in_axes=(0, None))), ("lower", fx.jit)],
    ids=["jvp", "batch", "lower"],
)
def test_error_names_a_declared_but_undefined_rule(rule: str, transform: Callable[..., Callable[..., object]]) -> None:
    class Promised(Typed, Differentiable, Batchable, Lowerable):
        __slots__ = ()

    with pytest.raises(MissingRuleError, match=f"'multiply_add' has no {rule} rule: in class Promised, define {rule}"):
        transform(square_add(Promised()))(fnp.ones(2) if rule == "batch" else 2.0, 10.0)  # type: ignore[abstract]  # abstract on purpose


def test_forward_mode_needs_no_abstract_eval() -> None:
    out, tangent = fx.jvp(square_add(PushedOnly()), (2.0, 10.0), (1.0, 1.0))
    assert (float(out), float(tangent)) == (14.0, 5.0)


def test_impl_results_are_checked_against_abstract_eval() -> None:
    @frozen(eq=False)
    class Wrong(Typed):
        @override
        def impl(self, *args: NDArray) -> Sequence[NDArray]:
            return [np.zeros(3, np.float32)]

    with pytest.raises(
        TypeError, match=r"Wrong\.impl .* returned \[a NumPy array float32\[3\]\], expected the list \[f32"
    ):
        square_add(Wrong())(2.0, 10.0)


def test_number_of_results_of_lower_is_checked() -> None:
    @frozen(eq=False)
    class Generous(Typed, Lowerable):
        @override
        def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
            return operands

    with pytest.raises(
        TypeError, match=r"Generous\.lower .* returned \(f32\[\], f32\[\], f32\[\]\), expected the list \[f32"
    ):
        fx.jit(square_add(Generous()))(2.0, 10.0)


def test_abstract_eval_can_reject_operands() -> None:
    prim = MultiplyAdd()
    with pytest.raises(TypeError, match=r"operands of one shape, got f32\[2\], f32\[2\] and f32\[\]"):
        fx.jit(lambda x, y: bind1(prim, x, x, y))(VECTORS[0], 1.0)


def test_jit() -> None:
    assert fx.jit(square_add(Compiled()))(2.0, 10.0) == 14.0


def test_jit_with_a_static_argument() -> None:
    assert fx.jit(square_add(Compiled()), static_argnums=1)(2.0, 10.0) == 14.0


def test_lowered_text_contains_the_emitted_operations() -> None:
    text = fx.jit(square_add(Compiled())).lower(2.0, 10.0).as_text()
    assert text.count("stablehlo.multiply") == 1
    assert text.count("stablehlo.add") == 1


def test_jvp() -> None:
    out, tangent = fx.jvp(square_add(Pushed()), (2.0, 10.0), (1.0, 1.0))
    assert (float(out), float(tangent)) == (14.0, 5.0)


def test_jit_of_jvp() -> None:
    f = square_add(Pushed())
    out, tangent = fx.jit(lambda primals, tangents: fx.jvp(f, primals, tangents))((2.0, 10.0), (1.0, 1.0))
    assert (float(out), float(tangent)) == (14.0, 5.0)


def test_jvp_binds_the_operation_three_times() -> None:
    f = square_add(Pushed())
    closed = fx.make_jaxpr(lambda x, t: fx.jvp(f, x, t))((2.0, 10.0), (1.0, 1.0))
    assert [eqn.prim for eqn in closed.eqns] == [Pushed()] * 3
    check_jaxpr(closed)


def test_zero_tangents_are_symbolic() -> None:
    seen: list[Sequence[Tangent]] = []

    @frozen(eq=False)
    class Watched(Pulled):
        @override
        def jvp(
            self, primals: Sequence[Value], tangents: Sequence[Tangent]
        ) -> tuple[Sequence[Value], Sequence[Tangent]]:
            seen.append(tangents)
            return push(self, primals, tangents)

    assert fx.grad(square_add(Watched()))(2.0, 10.0) == 4.0
    (tangents,) = seen
    assert [isinstance(t, Zero) for t in tangents] == [False, False, True]


def test_grad() -> None:
    f = square_add(Pulled())
    assert fx.grad(f)(2.0, 10.0) == 4.0
    assert fx.grad(f, argnums=1)(2.0, 10.0) == 1.0
    assert [*map(float, fx.grad(f, argnums=(0, 1))(2.0, 10.0))] == [4.0, 1.0]


def test_jit_of_grad() -> None:
    assert fx.jit(fx.grad(square_add(Pulled())))(2.0, 10.0) == 4.0


def test_vmap() -> None:
    np.testing.assert_array_equal(fx.vmap(square_add(MultiplyAdd()))(*VECTORS), [14.0, 29.0])


def test_jit_of_vmap() -> None:
    np.testing.assert_array_equal(fx.jit(fx.vmap(square_add(MultiplyAdd())))(*VECTORS), [14.0, 29.0])


# ------------------------------------------------------------------ with all rules

WHOLE = square_add(MultiplyAdd())


def jax_square_add(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.add(jnp.multiply(a, a), b)


@pytest.mark.parametrize(
    "stack",
    [
        lambda m, f: m.vmap(f, in_axes=(0, None))(VECTORS[0], 10.0),
        lambda m, f: m.vmap(f, in_axes=(None, 0))(2.0, VECTORS[1]),
        lambda m, f: m.jit(m.vmap(m.jit(f)))(*VECTORS),
        lambda m, f: m.vmap(m.vmap(f, in_axes=(None, 0)), in_axes=(0, None))(*VECTORS),
        lambda m, f: m.vmap(m.grad(f))(*VECTORS),
        lambda m, f: m.jit(m.vmap(m.grad(f)))(*VECTORS),
        lambda m, f: m.grad(m.jit(m.grad(f)))(2.0, 10.0),
        lambda m, f: m.jvp(m.grad(f), (2.0, 10.0), (1.0, 1.0)),
        lambda m, f: m.jvp(m.vmap(m.jit(f)), VECTORS, VECTORS),
        lambda m, f: m.linearize(f, 2.0, 10.0)[1](3.0, 5.0),
        lambda m, f: m.vjp(f, 2.0, 10.0)[1](3.0),
        lambda m, f: m.grad(lambda a, b: m.vmap(f)(a, b)[1])(*VECTORS),
    ],
)
def test_all_transformations_agree_with_jax(stack: Callable[[Any, Any], object]) -> None:
    got, want = stack(fx, WHOLE), stack(jax, jax_square_add)
    got_leaves, want_leaves = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got_leaves) == len(want_leaves)
    for x, y in zip(got_leaves, want_leaves, strict=True):
        np.testing.assert_array_equal(x, y)


def test_primitives_are_frozen_values() -> None:
    assert MultiplyAdd() == MultiplyAdd()
    assert hash(MultiplyAdd()) == hash(MultiplyAdd())
    assert MultiplyAdd() != Pulled()
    with pytest.raises(FrozenInstanceError):
        MultiplyAdd().name = "another"  # type: ignore[misc]  # assignment on purpose


def test_primitive_is_printed_by_its_name() -> None:
    closed = fx.make_jaxpr(WHOLE)(2.0, 10.0)
    assert closed.text() == "{ lambda ; a:f32[]* b:f32[]*. let c:f32[] = multiply_add a a b in (c,) }"


# ------------------------------------------------------------------ rules with constants

WEIGHTS = np.array([1.0, -2.0, 4.0], np.float32)


@frozen(eq=False)
class WeightedSine(Primitive, Expandable):
    name = "weighted_sine"

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return [fnp.sin(fnp.multiply(args[0], WEIGHTS))]


def weighted_sine(x: Array) -> Array:
    return bind1(WeightedSine(), x).sum()


def jax_weighted_sine(x: jax.Array) -> jax.Array:
    return jnp.sin(x * WEIGHTS).sum()


@pytest.mark.parametrize(
    "stack",
    [
        lambda m, f, x: m.jit(f)(x),
        lambda m, f, x: m.grad(f)(x),
        lambda m, f, x: m.jvp(m.jit(f), (x,), (x,)),
        lambda m, f, x: m.grad(m.jit(f))(x),
        lambda m, f, x: m.linearize(m.jit(f), x)[1](x),
        lambda m, f, x: m.grad(m.jit(lambda x: m.jit(f)(x) * x[1]))(x),
        lambda m, f, x: m.vmap(m.jit(f))(x[:, None] * x),
        lambda m, f, x: m.vmap(m.grad(m.jit(f)))(x[:, None] * x),
        lambda m, f, x: m.jvp(m.grad(m.jit(f)), (x,), (x,)),
        lambda m, f, x: m.jit(m.grad(m.jit(f)))(x),
    ],
)
def test_rules_may_use_constant_arrays(stack: Callable[[Any, Any, Any], object]) -> None:
    x = np.array([0.5, 0.25, -1.0], np.float32)
    got, want = stack(fx, weighted_sine, fnp.asarray(x)), stack(jax, jax_weighted_sine, jnp.asarray(x))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert_near(a, b, ELEMENTARY)
