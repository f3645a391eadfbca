"""Types of user-defined handlers: rules, options and `here`."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, assert_type

from attrs import evolve, field

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import ops
from tracefx.extend import (
    Array,
    Comparison,
    Interpreter,
    LinearOperation,
    Primitive,
    ShapedArray,
    SourceLocation,
    Value,
    bind1,
    here,
    rule,
)


class Bounded:
    def bounds(self, *operands: Value) -> Value:
        return operands[0]


class Careful(Interpreter):
    limit: float = 80.0
    names: tuple[str, ...] = field(default=(), kw_only=True)
    has_state: ClassVar[bool] = True

    @rule(ops.Exp)
    def exp(self, op: ops.Exp, x: Value) -> Value:
        assert_type(here(), SourceLocation)
        assert_type(here().scope, tuple[str, ...])
        return bind1(op, fnp.minimum(x, self.limit))

    @rule(ops.Log, ops.Log1p)
    def logs(self, op: ops.Log | ops.Log1p, x: Value) -> Value:
        return bind1(op, x)

    @rule(ops.Sin, ops.Cos, ops.Tan, ops.Sinh, ops.Cosh, ops.Tanh)
    def more_than_five(self, op: Primitive, x: Value) -> list[Value]:
        return [bind1(op, x)]

    @rule(ops.Add, family=LinearOperation)
    def linear(self, op: Primitive, *xs: Value) -> Value:
        return bind1(op, *xs)

    @rule(family=Comparison)
    def _(self, op: Comparison, x: Value, y: Value) -> Value:
        return bind1(op, x, y)

    @rule(capability=Bounded)
    def _(self, op: Bounded, *xs: Value) -> Value:
        return op.bounds(*xs)

    @rule(ops.Exp2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    def another_class(self, op: ops.Exp, x: Value) -> Value:
        return x

    @rule(ops.Expm1, ops.Abs)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    def too_narrow(self, op: ops.Expm1, x: Value) -> Value:
        return x


class Narrower(Interpreter):
    @rule(family=LinearOperation)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    def narrower_than_the_family(self, op: ops.Neg, x: Value) -> Value:
        return x


class Pair(NamedTuple):
    x: Array
    y: Array


class Pairs(Interpreter[Pair], eq=False):
    def aval_of(self, value: Pair) -> ShapedArray:  # type: ignore[explicit-override]
        return value.x.aval


def options_are_typed() -> None:
    careful = Careful(50.0, names=("a",))
    assert_type(careful.limit, float)
    assert_type(evolve(careful, limit=1.0), Careful)
    fx.handle(fnp.exp, careful)
    Careful("50")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Careful(50.0, ("a",))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Careful(width=1.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    careful.limit = 3.0  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def own_values_are_typed(pair: Pair) -> None:
    with Pairs().running() as h:
        assert_type(h.unwrap(h.wrap(pair)), Pair | Value)
        h.wrap((1, 2))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
