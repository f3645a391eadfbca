"""What loops tell of how far they are, and the operation that tells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

from attrs import frozen
from typing_extensions import override

from tracefx.control.callback import DebugCallback, FlatCallback
from tracefx.control.cond import INDEX_AVAL, Cond
from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray, show_avals
from tracefx.core.effects import DebugEffect, Effects
from tracefx.core.handler import bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Batchable, Differentiable, Expandable, MappedAxis, Primitive, Tangent
from tracefx.core.source_location import SourceLocation
from tracefx.core.values import Value, as_value, to_numpy
from tracefx.interpreters.stage import stage
from tracefx.ops.elementwise.arithmetic import max, rem, sub
from tracefx.ops.elementwise.bit_representation import clz
from tracefx.ops.elementwise.bitwise import bitwise_and, bitwise_or, shift_left
from tracefx.ops.elementwise.comparison import eq, ge, ne
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.reductions.reduction import reduce_max
from tracefx.ops.structural import batch_first, constant_like_aval, convert
from tracefx.pytrees import trees

COUNT_AVAL: Final = ShapedArray((), dtypes.int32)
PREDICATE_AVAL: Final = ShapedArray((), dtypes.bool_)
UNKNOWN_LENGTH: Final = -1
"""In the place of a number of steps that nobody knows."""

_REPORTED_BITS: Final = 5
"""Of a loop that may be of any length every step is told whose number has at most so many bits below the first."""


@final
@frozen
class LoopSite:
    """A loop in a program. Each time that it runs it counts from the beginning."""

    name: str
    place: SourceLocation | None
    depth: int
    """In how many loops that are shown it is."""

    @override
    def __str__(self) -> str:
        return self.name if self.place is None else f"{self.name} in {self.place}"


@final
@frozen
class Report:
    """How far a loop is: after `done` steps, of `total` if that is known. No more follow once it is `finished`.

    Where the loop may end before, `total` is the number of steps that it never has more of.
    """

    loop: LoopSite
    done: int
    total: int | None
    finished: bool


ReportCallback: TypeAlias = Callable[[Report], None]


@final
@frozen(eq=False)
class Reporter:
    """Makes a report of the numbers that a program gives."""

    loop: LoopSite
    show: ReportCallback
    finished: bool
    """Whether the loop is done, and not just a step of it."""

    def __call__(self, done: ArrayLike, total: ArrayLike) -> None:
        steps, known = [int(to_numpy(as_value(x))) for x in (done, total)]
        self.show(Report(self.loop, steps, None if known < 0 else known, self.finished or steps == known))


@final
@frozen(eq=False)
class Tick(Primitive, Differentiable, Batchable, Expandable):
    """Tells how far a loop is, now and then: of the number of steps done, the number of all, and `every`, how many
    steps there are from one report to the next; 0 stands for an `every` that grows with the steps.

    Of a batch, which goes on until the last element is done, the greatest number is told.
    """

    name = "tick"
    reporter: Reporter

    @property
    @override
    def effects(self) -> Effects:
        return frozenset({DebugEffect()})

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        if avals != (COUNT_AVAL, COUNT_AVAL, COUNT_AVAL):
            raise TypeError(f"tick takes three numbers of type {COUNT_AVAL}, got ({show_avals(avals)})")
        return []

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        done, total, _ = args
        if to_numpy(self.is_due(*args)):
            self.reporter(done, total)
        return []

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        done, total, _ = args
        showing = Cond((_empty_branch(), self._callback_branch()))
        bind(showing, convert(self.is_due(*args), INDEX_AVAL.dtype), done, total)
        return []

    def _callback_branch(self) -> Jaxpr:
        tree = trees.structure(((0, 0), {}))
        call = DebugCallback(FlatCallback(self.reporter, tree, None, False), DebugEffect())
        jaxpr, _ = stage(lambda *xs: bind(call, *xs), [COUNT_AVAL, COUNT_AVAL])
        return jaxpr

    def is_due(self, done: Value, total: Value, every: Value) -> Array:
        """Whether this step is told."""
        one = constant_like_aval(COUNT_AVAL, 1)
        if self.reporter.finished:  # if a step was, and the last was not the one that had to be
            first = select_with_aval(
                eq(every, constant_like_aval(COUNT_AVAL, 0)),
                constant_like_aval(COUNT_AVAL, 2 << _REPORTED_BITS),
                every,
                COUNT_AVAL,
            )
            return bitwise_and(ge(done, first), ne(done, total))
        # The number of bits behind the first few has to be all zeros.
        bits = max(
            sub(constant_like_aval(COUNT_AVAL, 31 - _REPORTED_BITS), clz(done)), constant_like_aval(COUNT_AVAL, 0)
        )
        mask = sub(shift_left(one, bits), one)
        grows = bitwise_and(
            eq(bitwise_and(done, mask), constant_like_aval(COUNT_AVAL, 0)),
            ge(done, constant_like_aval(COUNT_AVAL, 2 << _REPORTED_BITS)),
        )
        steady = bitwise_or(eq(rem(done, max(every, one)), constant_like_aval(COUNT_AVAL, 0)), eq(done, total))
        return select_with_aval(eq(every, constant_like_aval(COUNT_AVAL, 0)), grows, steady, PREDICATE_AVAL)

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, *primals), []

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        largest = [
            x if d is None else reduce_max(batch_first(x, d, axis), (0,)) for x, d in zip(args, dims, strict=True)
        ]
        return bind(self, *largest), []


def _empty_branch() -> Jaxpr:
    jaxpr, _ = stage(lambda *xs: [], [COUNT_AVAL, COUNT_AVAL])
    return jaxpr
