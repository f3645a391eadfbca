"""`Report`, the progress of a loop, and the primitive `tick` that makes reports at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

from attrs import frozen
from typing_extensions import override

from tracefx.control.callback import DebugCallback, FlatCallback
from tracefx.control.cond import INDEX_AVAL, Cond
from tracefx.core import Array, ArrayLike, ShapedArray, Value, as_value, dtypes, show_avals, to_numpy
from tracefx.core.effects import DebugEffect
from tracefx.core.handler import bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Batchable, BatchDims, Differentiable, Expandable, MappedAxis, Primitive, Tangent
from tracefx.extend import SourceLocation
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
"""Stands for an unknown number of iterations."""

_REPORTED_BITS: Final = 5
"""Loops of unknown length report iterations whose number has only zeros after the leading bit and this many more."""


@final
@frozen
class LoopSite:
    """A loop in a program.

    Attributes:
        name: `scan`, `while_loop` or `fori_loop`.
        location: the line of user code that it comes from.
        depth: the number of enclosing reported loops.
    """

    name: str
    location: SourceLocation
    depth: int

    @property
    def label(self) -> str:
        """The name, and the file and line, as progress bars show them."""
        return f"{self.name} {self.location.file.rpartition('/')[2]}:{self.location.line}"

    @override
    def __str__(self) -> str:
        return f"{self.name} in {self.location}"


@final
@frozen
class Report:
    """The progress of a loop.

    Attributes:
        loop: the loop. Its count starts anew each time it runs.
        done: the number of iterations done.
        total: the number of all iterations, or the upper bound of a bounded `while_loop`; None if it is unknown.
        finished: whether the loop has ended, so this is its last report.

    >>> from tracefx import lax
    >>> from tracefx.handlers import progress
    >>> reports = []
    >>> program = lambda x: lax.fori_loop(0, 100, lambda i, x: x + 1, x)
    >>> y = progress(program, show=reports.append)(0)
    >>> reports[-1].loop.name, reports[-1].done, reports[-1].total, reports[-1].finished
    ('scan', 100, 100, True)
    """

    loop: LoopSite
    done: int
    total: int | None
    finished: bool


ReportCallback: TypeAlias = Callable[[Report], None]


@final
@frozen(eq=False)
class Reporter:
    """Makes a report from the numbers that a program passes to it."""

    loop: LoopSite
    show: ReportCallback
    finished: bool
    """Whether the report is made after the loop, not after an iteration."""

    def __call__(self, done: ArrayLike, total: ArrayLike) -> None:
        steps, known = [int(to_numpy(as_value(x))) for x in (done, total)]
        self.show(Report(self.loop, steps, None if known < 0 else known, self.finished or steps == known))


@final
@frozen(eq=False)
class Tick(Primitive, Differentiable, Batchable, Expandable):
    """Reports the progress of a loop now and then.

    Its operands, all `i32[]`, are the number of iterations done, the number of all, and the interval between reports;
    0 stands for an interval that grows with the count. Of a batch, which runs until its last element is done, the
    largest numbers are reported.
    """

    name = "tick"
    reporter: Reporter

    effects = frozenset({DebugEffect()})

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
        """Returns whether this iteration is reported: a `bool[]`."""
        one = constant_like_aval(COUNT_AVAL, 1)
        if self.reporter.finished:  # due if some iteration was reported and the last one was not
            first = select_with_aval(
                eq(every, constant_like_aval(COUNT_AVAL, 0)),
                constant_like_aval(COUNT_AVAL, 2 << _REPORTED_BITS),
                every,
                COUNT_AVAL,
            )
            return bitwise_and(ge(done, first), ne(done, total))
        # All bits of the count after the leading few must be zero.
        bits = max(
            sub(constant_like_aval(COUNT_AVAL, 31 - _REPORTED_BITS), clz(done)), constant_like_aval(COUNT_AVAL, 0)
        )
        mask = sub(shift_left(one, bits), one)
        due_growing = bitwise_and(
            eq(bitwise_and(done, mask), constant_like_aval(COUNT_AVAL, 0)),
            ge(done, constant_like_aval(COUNT_AVAL, 2 << _REPORTED_BITS)),
        )
        due_regular = bitwise_or(eq(rem(done, max(every, one)), constant_like_aval(COUNT_AVAL, 0)), eq(done, total))
        return select_with_aval(eq(every, constant_like_aval(COUNT_AVAL, 0)), due_growing, due_regular, PREDICATE_AVAL)

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, *primals), []

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        largest = [
            x if d is None else reduce_max(batch_first(x, d, axis), (0,)) for x, d in zip(args, dims, strict=True)
        ]
        return bind(self, *largest), []


def _empty_branch() -> Jaxpr:
    jaxpr, _ = stage(lambda *xs: [], [COUNT_AVAL, COUNT_AVAL])
    return jaxpr
