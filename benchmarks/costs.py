"""Costs of one operation of each kind: lines of code, time of evaluation, time of tracing.

`python -m benchmarks.costs`
"""

from __future__ import annotations

import inspect
import timeit
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
from attrs import frozen

import tracefx as fx
from tracefx import lax
from tracefx.control.call import Call
from tracefx.core import ConcreteArray, Value, from_numpy
from tracefx.core.primitive import Primitive
from tracefx.interpreters.stage import stage
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.elementwise.transcendental import Sin
from tracefx.ops.indexing.gather_scatter_add import Gather
from tracefx.ops.structural import ReduceSum

VECTOR = from_numpy(np.ones(8, np.float32))
MATRIX = from_numpy(np.ones((8, 8), np.float32))
ROWS = from_numpy(np.arange(3, dtype=np.int32)[:, None])
TAKE_ROWS = lax.GatherDimensionNumbers((1,), (0,), (0,))
REPEATED = 1000


@frozen
class Subject:
    prim: type[Primitive]
    apply: Callable[..., Value]
    args: Sequence[ConcreteArray]


SUBJECTS = {
    "unary: sin": Subject(Sin, lax.sin, [VECTOR]),
    "reduction: reduce_sum": Subject(ReduceSum, lambda x: lax.reduce_sum(x, (0,)), [VECTOR]),
    "dot: dot_general": Subject(DotGeneral, lax.dot, [MATRIX, MATRIX]),
    "gather": Subject(Gather, lambda x, i: lax.gather(x, i, TAKE_ROWS, (1, 8)), [MATRIX, ROWS]),
    "call: jit": Subject(Call, fx.jit(lambda x: x + x), [VECTOR]),
}


def microseconds(f: Callable[[], object], number: int) -> float:
    return median(timeit.repeat(f, number=number, repeat=15)) / number * 1e6


def staging(subject: Subject) -> float:
    """Returns the microseconds that tracing an operation takes, from traces of different lengths."""
    avals = [a.aval for a in subject.args]

    def traced(times: int) -> float:
        def repeated(*args: Value) -> list[Value]:
            return [subject.apply(*args) for _ in range(times)][-1:]

        return microseconds(lambda: stage(repeated, avals), 1)

    return (traced(REPEATED + 1) - traced(1)) / REPEATED


def main() -> None:
    print(f"{'':24}{'lines':>8}{'eager':>12}{'staged':>12}")
    for name, subject in SUBJECTS.items():
        lines = len(inspect.getsource(subject.prim).splitlines())
        eager = microseconds(lambda s=subject: s.apply(*s.args), 1000)  # type: ignore[misc]  # bound in the loop
        print(f"{name:24}{lines:8}{eager:9.1f} us{staging(subject):9.1f} us")


if __name__ == "__main__":
    main()
