"""Time per equation in programs of 10,000, 50,000 and 100,000 equations; it is constant where a stage is linear.

`python -m benchmarks.length [EQUATIONS ...]`

Python's garbage collector is enabled, as for users. A full collection visits all live objects and occurs whenever their
number has grown by a quarter. Each stage starts after a collection; its argument is made before.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tracefx as fx
from tracefx import lax
from tracefx.core import as_value
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.jaxpr import Jaxpr
from tracefx.passes.check import check_jaxpr
from tracefx.passes.cse import cse
from tracefx.passes.dce import dce
from tracefx.programs import parse_jaxpr

LENGTHS = (10_000, 50_000, 100_000)
X = np.float32(0.5)


def orbit(length: int) -> Callable[[Any], Any]:
    """Returns a new function of `length` operations, multiplications and additions of numbers between 0 and 1.

    Traces are cached by function, so each measurement needs a new one.
    """

    def f(x: Any) -> Any:
        for _ in range(length // 2):
            x = lax.add(lax.mul(x, x), 0.25)
        return x

    return f


def traced(length: int) -> Jaxpr:
    return fx.make_jaxpr(orbit(length))(X).jaxpr


def _evaluate(jaxpr: Jaxpr) -> object:
    return eval_jaxpr(jaxpr, (), [as_value(X)])


Stage = tuple[Callable[[int], Any], Callable[[Any], object]]
"""A function that makes the argument of the stage from a length, and the stage."""

STAGES: dict[str, Stage] = {
    "trace": (orbit, lambda f: fx.make_jaxpr(f)(X)),
    "check types": (traced, check_jaxpr),
    "print": (traced, str),
    "parse": (lambda length: str(traced(length)), parse_jaxpr),
    "hash": (traced, hash),
    "compare": (lambda length: (traced(length), traced(length)), lambda pair: pair[0] == pair[1]),
    "dce, nothing to do": (traced, dce),
    "dce, all of it": (traced, lambda jaxpr: dce(jaxpr, [False])),
    "cse": (traced, cse),
    "evaluate": (traced, _evaluate),
    "jvp, evaluated": (orbit, lambda f: fx.jvp(f, (X,), (X,))),
    "vmap, evaluated": (orbit, lambda f: fx.vmap(f)(np.full(3, X))),
    "grad, evaluated": (orbit, lambda f: fx.grad(f)(X)),
    "grad, traced": (orbit, lambda f: fx.make_jaxpr(fx.grad(f))(X)),
    "grad of jit, traced": (orbit, lambda f: fx.make_jaxpr(fx.grad(fx.jit(f)))(X)),
    "lower": (lambda length: fx.jit(orbit(length), repeats="inline").trace(X), lambda stage: stage.lower()),
}


def microseconds(name: str, length: int) -> float:
    """Returns the CPU time of a stage per equation, in microseconds."""
    make, run = STAGES[name]
    argument = make(length)
    gc.collect()
    start = time.process_time()
    run(argument)
    return (time.process_time() - start) / length * 1e6


def main(lengths: tuple[int, ...] = LENGTHS) -> None:
    print(f"{'µs per equation':24}" + "".join(f"{n:>12,}" for n in lengths))
    for name in STAGES:
        microseconds(name, 1000)
        print(f"{name:24}" + "".join(f"{microseconds(name, n):12.2f}" for n in lengths), flush=True)


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or LENGTHS)
