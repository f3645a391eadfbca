"""`to_jax` of user-defined primitives: exported with their rules, or an error that names the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attrs import frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.primitives import BatchAxes, Tangents, Values
from tracefx.errors import MissingRuleError
from tracefx.extend import (
    Batchable,
    Builder,
    Differentiable,
    Expandable,
    IrValue,
    Lowerable,
    MappedAxis,
    Primitive,
    ShapedArray,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Value,
    Zero,
    bind1,
)
from tracefx.interop.jax import from_jax, to_jax
from tracefx.testing.tolerances import ELEMENTARY

X: Final[Any] = np.array([0.5, 1.5, -2.0], np.float32)


class Typed(Primitive):
    """A primitive whose result has the type of its first operand."""

    __slots__ = ()

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return [avals[0]]


@final
@frozen(eq=False)
class Halved(Typed, Differentiable, Transposable, Batchable, Lowerable):
    """Half of the operand, with a custom derivative of `slope`."""

    name = "halved"
    slope: float

    @override
    def jvp(self, primals: Values, tangents: Tangents) -> tuple[Values, Tangents]:
        (tangent,) = tangents
        assert not isinstance(tangent, Zero)
        return [bind1(self, *primals)], [bind1(Sloped(self.slope), tangent)]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (ct,) = cts
        return [ct if isinstance(ct, Zero) else bind1(self, ct)]

    @override
    def batch(self, axis: MappedAxis, args: Values, dims: BatchAxes) -> tuple[Values, BatchAxes]:
        return [bind1(self, *args)], dims

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        return builder.emit("stablehlo.divide", [x, *builder.emit("stablehlo.add", [x, x], [x.aval])], [x.aval])


@final
@frozen(eq=False)
class Sloped(Typed, Transposable, Batchable, Expandable):
    """`slope` times a tangent. The transpose negates `slope`, which shows that reverse mode uses it."""

    name = "sloped"
    slope: float

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return [fnp.multiply(args[0], self.slope)]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        (ct,) = cts
        return [ct if isinstance(ct, Zero) else bind1(Sloped(-self.slope), ct)]

    @override
    def batch(self, axis: MappedAxis, args: Values, dims: BatchAxes) -> tuple[Values, BatchAxes]:
        return [bind1(self, *args)], dims


@final
class Squared(Typed, Expandable):
    __slots__ = ()
    name = "squared"

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return [fnp.multiply(args[0], args[0])]


@final
class Eager(Typed):
    __slots__ = ()
    name = "eager"


def halved(x: Any) -> fx.Array:
    return bind1(Halved(5.0), x)


def test_compilation_uses_the_lowering_rule() -> None:
    """The lowering rule divides the operand by twice itself, so every result is 0.5."""
    for f in (to_jax(halved), jax.jit(to_jax(halved)), jax.vmap(to_jax(halved))):
        np.testing.assert_array_equal(f(X), np.full(3, 0.5, np.float32))


def test_evaluation_with_disable_jit() -> None:
    with jax.disable_jit():
        np.testing.assert_array_equal(to_jax(halved)(X), np.full(3, 0.5, np.float32))
        np.testing.assert_array_equal(jax.grad(lambda x: to_jax(halved)(x).sum())(X), np.full(3, -5, np.float32))


def test_derivatives_use_the_jvp_and_transpose_rules() -> None:
    f = to_jax(halved)
    np.testing.assert_array_equal(jax.jvp(f, (X,), (X,))[1], 5 * X)
    np.testing.assert_array_equal(jax.vmap(jax.grad(f))(X), np.full(3, -5, np.float32))  # by the transpose rule
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda x: f(x).sum()))(X), np.full(3, -5, np.float32))


def test_expandable_primitives_are_expanded() -> None:
    f = to_jax(lambda x: bind1(Squared(), x))
    assert str(jax.make_jaxpr(f)(X)) == "{ lambda ; a:f32[3]. let b:f32[3] = mul a a in (b,) }"
    np.testing.assert_array_equal(jax.grad(lambda x: f(x).sum())(X), 2 * X)


def test_user_defined_primitives_roundtrip() -> None:
    assert fx.make_jaxpr(from_jax(to_jax(halved)))(X) == fx.make_jaxpr(halved)(X)


def test_primitive_without_lowering_error_names_the_remedy() -> None:
    def f(x: fx.Array) -> fx.Array:
        return bind1(Eager(), x)

    remedy = r"JAX has nothing like the operation 'eager'.*in class Eager, define lower.*rules={'eager': rule}"
    with pytest.raises(MissingRuleError, match=remedy):
        to_jax(f)(X)

    exported_prims: list[Primitive] = []

    def rule(prim: Primitive, x: jax.Array) -> jax.Array:
        exported_prims.append(prim)
        return jnp.sin(x)

    assert_near(jax.grad(lambda x: to_jax(f, rules={"eager": rule})(x).sum())(X), np.cos(X), ELEMENTARY)
    assert exported_prims == [Eager()]


def test_user_rules_take_precedence() -> None:
    f = to_jax(fnp.sin, rules={"sin": lambda prim, x: [jnp.cos(x)]})
    np.testing.assert_array_equal(f(X), jnp.cos(X))
    np.testing.assert_array_equal(to_jax(fnp.sin)(X), jnp.sin(X))
