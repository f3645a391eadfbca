"""Helpers for the tests of the examples of "Autodidax: JAX core from scratch"."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from attrs import field, frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.jaxprs import all_equations
from tracefx.extend import (
    Handler,
    HasSubjaxprs,
    Jaxpr,
    Primitive,
    Value,
)
from tracefx.testing.tolerances import ELEMENTARY
from tracefx.text.parser import parse_jaxpr

Number = Any
"""A Python number, an array or a tracer: the argument type of the programs below."""

COS, SIN = float(np.cos(3.0)), float(np.sin(3.0))


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
        assert_near(v1, v2, ELEMENTARY)


@final
@frozen(eq=False)
class RecordingHandler(Handler):
    """Records the primitives that it sees and passes them to the inner handler."""

    title = "watch"
    inner: Handler
    seen: list[Primitive] = field(factory=list)

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        self.seen.append(prim)
        return self.inner.bind(prim, args)

    def names(self) -> list[str]:
        """Returns the names of the first-order primitives seen, including those in sub-jaxprs."""
        return [inner.name for prim in self.seen for inner in first_order(prim)]


def first_order(prim: Primitive) -> list[Primitive]:
    """Returns the primitive itself, or the first-order primitives of its sub-jaxprs if it has any."""
    if isinstance(prim, HasSubjaxprs):
        return [inner for body in prim.jaxprs() for eqn in body.eqns for inner in first_order(eqn.prim)]
    return [prim]


def print_and_parse(jaxpr: Jaxpr) -> Jaxpr:
    """Prints and parses a jaxpr."""
    return parse_jaxpr(str(jaxpr), {eqn.prim.name: type(eqn.prim) for eqn in all_equations(jaxpr)})
