"""Tracing of a program of 2,000 operations and of its gradient. Each repetition traces a new function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks.harness import Subject
from tracefx import lax

GROUP = "tracing"
ROUNDS: Final = 500
FEW_ROUNDS: Final = 50
"""For second derivatives, for which JAX takes a thousand times as long as for the program itself."""

LOWERINGS: Final = 15

Operations: TypeAlias = tuple[Any, Any, Any, Any]
OUR_LAX: Final[Operations] = lax.sin, lax.mul, lax.add, lax.neg
JAX_LAX: Final[Operations] = jax.lax.sin, jax.lax.mul, jax.lax.add, jax.lax.neg
OUR_NUMPY: Final[Operations] = fnp.sin, fnp.multiply, fnp.add, fnp.negative
JAX_NUMPY: Final[Operations] = jnp.sin, jnp.multiply, jnp.add, jnp.negative


def chain(operations: Operations, rounds: int = ROUNDS) -> Callable[[Any], Any]:
    """Returns a new function of four operations per round; traces are cached by function."""
    sin, multiply, add, negative = operations

    def f(x: Any) -> Any:
        for _ in range(rounds):
            x = add(sin(x), negative(multiply(x, x)))
        return x

    return f


def subjects() -> Iterator[Subject]:
    x, number = np.zeros(8, np.float32), np.float32(0.5)
    for title, ours, theirs, bounds in (
        ("lax", OUR_LAX, JAX_LAX, (0.25, 0.25)),
        ("numpy", OUR_NUMPY, JAX_NUMPY, (0.15, 0.20)),
    ):
        yield Subject(
            GROUP,
            f"make_jaxpr, 2,000 operations, {title}",
            lambda f=ours: fx.make_jaxpr(chain(f))(x),  # type: ignore[misc]  # bound in the loop
            lambda f=theirs: jax.make_jaxpr(chain(f))(x),  # type: ignore[misc]  # as above
            bounds[0],
            blocks=25,
        )
        yield Subject(
            GROUP,
            f"make_jaxpr of their gradient, {title}",
            lambda f=ours: fx.make_jaxpr(fx.grad(chain(f)))(number),  # type: ignore[misc]  # as above
            lambda f=theirs: jax.make_jaxpr(jax.grad(chain(f)))(number),  # type: ignore[misc]  # as above
            bounds[1],
            blocks=9,
            calls=1,
        )
    yield Subject(
        GROUP,
        "make_jaxpr of a second derivative, 200 operations",
        lambda: fx.make_jaxpr(fx.grad(fx.grad(chain(OUR_LAX, FEW_ROUNDS))))(number),
        lambda: jax.make_jaxpr(jax.grad(jax.grad(chain(JAX_LAX, FEW_ROUNDS))))(number),
        0.15,
        blocks=9,
        calls=1,
    )

    our_jaxpr, jax_jaxpr = fx.make_jaxpr(chain(OUR_LAX, 750))(x), jax.make_jaxpr(chain(JAX_LAX, 750))(x)
    yield Subject(GROUP, "printing 3,000 equations", lambda: str(our_jaxpr), lambda: str(jax_jaxpr), 0.70, blocks=15)

    # Lowered programs are cached, so each repetition has its own program, which is traced before.
    our_programs = iter([fx.jit(chain(OUR_LAX)).trace(x) for _ in range(LOWERINGS)])
    jax_programs = iter([jax.jit(chain(JAX_LAX)).trace(x) for _ in range(LOWERINGS)])
    yield Subject(
        GROUP,
        "lowering of 2,000 operations",
        lambda: next(our_programs).lower(),
        lambda: next(jax_programs).lower(),
        0.30,
        blocks=LOWERINGS,
        calls=1,
    )
