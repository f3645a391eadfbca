"""A counting handler and stacks of transformations for tests of handlers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.core import Value
from tracefx.core.handler import Handler
from tracefx.core.primitive import Primitive

Stack: TypeAlias = Callable[[Callable[[Any], Any]], Callable[[Any], object]]

X: Final = np.array([0.5, -1.5, 2.0], np.float32)


@final
@frozen(eq=False)
class CountingHandler(Handler):
    """Counts the operations that it sees and passes them to the inner handler."""

    title = "counting"
    inner: Handler
    seen: Counter[str] = field(factory=Counter, init=False)

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        self.seen[prim.name] += 1
        return self.inner.bind(prim, args)


def summed(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: fnp.sum(f(x))


def pushed(f: Callable[[Any], Any]) -> Callable[[Any], object]:
    return lambda x: fx.jvp(f, (x,), (x,))


def linearized(f: Callable[[Any], Any]) -> Callable[[Any], object]:
    return lambda x: fx.linearize(f, x)[1](x)


def pulled(f: Callable[[Any], Any]) -> Callable[[Any], object]:
    def run(x: Any) -> object:
        y, pull = fx.vjp(f, x)
        return pull(y)

    return run


STACKS: Final[dict[str, Stack]] = {
    "nothing": lambda f: f,
    "jit": fx.jit,
    "vmap": fx.vmap,
    "grad": lambda f: fx.grad(summed(f)),
    "jvp": pushed,
    "vjp": pulled,
    "linearize": linearized,
    "make_jaxpr": fx.make_jaxpr,
    "jacfwd": fx.jacfwd,
    "jacrev": fx.jacrev,
    "hessian": lambda f: fx.hessian(summed(f)),
    "linear_transpose": lambda f: lambda x: fx.linear_transpose(lambda t: fx.jvp(f, (x,), (t,))[1], x)(x),
    "jit of vmap": lambda f: fx.jit(fx.vmap(f)),
    "vmap of jit": lambda f: fx.vmap(fx.jit(f)),
    "jit of grad": lambda f: fx.jit(fx.grad(summed(f))),
    "grad of jit": lambda f: fx.grad(summed(fx.jit(f))),
    "vmap of grad": lambda f: fx.vmap(fx.grad(f)),
    "grad of vmap": lambda f: fx.grad(summed(fx.vmap(f))),
    "jvp of vjp": lambda f: pushed(pulled(f)),
    "jit of vmap of grad of jit": lambda f: fx.jit(fx.vmap(fx.grad(fx.jit(f)))),
    "vmap of vmap": lambda f: lambda x: fx.vmap(fx.vmap(f))(x[None]),
    "grad of grad": lambda f: fx.vmap(fx.grad(fx.grad(f))),
    "make_jaxpr of vmap of jvp": lambda f: fx.make_jaxpr(fx.vmap(pushed(f))),
    "jit of linearize of jit": lambda f: fx.jit(linearized(fx.jit(f))),
}


def wave(x: Any) -> Any:
    """A test program with constants, a nested call, and a value that is used twice."""
    y = fnp.sin(x) * 2.0
    z = fnp.where(y > 0.5, y, x * x)
    return fnp.exp(z - y) + fx.jit(fnp.cos)(z)
