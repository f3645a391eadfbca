"""A handler that lets somebody watch a program: every operation, where it stands, and its values when it runs.

What is shown of a value goes through `debug_callback`, so it is shown when the value is computed: at once where the
program is evaluated, and from within where it is compiled, once for each step of a loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, Final, Never, Protocol, TypeAlias, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.bodies import rearranged
from tracefx.control.callback import DebugCallback, HostFunction
from tracefx.control.scan import Scan
from tracefx.control.while_loop import While
from tracefx.core import dtypes, trees
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import float0, is_key
from tracefx.core.effects import Debugging
from tracefx.core.entering import Collected, Enterable, Entered, Form
from tracefx.core.handler import Handler
from tracefx.core.jaxpr import Eqn, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.primitive import Expandable, HoldsFunctions, Primitive
from tracefx.core.settings import X64
from tracefx.core.source import Place, here
from tracefx.core.values import Value
from tracefx.interpreters.interpreter import Interpreter
from tracefx.ops.elementwise import add
from tracefx.ops.keys import RandomUnwrap

COUNT: Final = ShapedArray((), dtypes.int32)
Show: TypeAlias = Callable[..., None]
"""Called with arrays when these are computed, or with none when the program gets there."""


@final
@frozen
class Applied:
    """An operation of a program.

    `operands` and `results` are types; an operation that holds functions has no results before it is done. `place`
    is the line of the user's code it comes from. `inside` says in which bodies it is, from the outermost on.
    """

    prim: Primitive
    operands: tuple[ShapedArray, ...]
    results: tuple[ShapedArray, ...]
    place: Place | None
    inside: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The operation's name, and that of the function it calls: `sin`, `jit(layer)`."""
        return self.prim.profile_name

    @property
    def has_bodies(self) -> bool:
        """Whether it is a call, a loop, a branch or the like, whose own operations follow it."""
        return isinstance(self.prim, (Enterable, HoldsFunctions))

    @property
    def file(self) -> str:
        return "" if self.place is None else self.place.file

    @property
    def line(self) -> int:
        return 0 if self.place is None else self.place.line


def short(file: str) -> str:
    """The name of a file, seen from the current directory if it is below it."""
    folder = os.path.join(os.getcwd(), "")
    return file.removeprefix(folder)


Position: TypeAlias = tuple[int | str, ...]
"""Where an operation is in a program: its number in its body, before that the body's name and its operation's."""


class Watcher(Protocol):
    """What wants to know of the operations. All is asked while the program is traced, or evaluated."""

    @property
    def key(self) -> Hashable:
        """Equal for watchers that show the same; `None` if programs must be watched anew each time."""
        ...

    @property
    def counts_steps(self) -> bool:
        """Whether what is shown at the start of a loop's step takes the number of the step, `i32[]`, from 0 on."""
        ...

    def before(self, position: Position, op: Applied, depth: int) -> Show | None:
        """What to show where the program gets to an operation with bodies. With `None`, it counts for no depth."""
        ...

    def entering(self, body: str, jaxpr: Jaxpr, depth: int) -> Show | None:
        """What to show where the program gets into a body."""
        ...

    def after(self, position: Position, op: Applied, depth: int) -> Show | None:
        """What to do with the results of an operation. `before` was asked if it has bodies."""
        ...


@final
@frozen
class NextStep(Primitive, Expandable):
    """The number of the next step of a loop: the program's own count, so that several threads can run the program."""

    name: ClassVar[str] = "next_step"

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        if avals != (COUNT,):
            raise TypeError(f"next_step takes {COUNT}, got ({', '.join(map(str, avals))})")
        return [COUNT]

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return [add(args[0], Literal(1, COUNT))]


def _counted(op: Scan | While) -> Scan | While:
    """The loop with the number of its step as the first carry."""
    return op.memo.get("counted", lambda: _with_count(op))


def _with_count(op: Scan | While) -> Scan | While:
    if isinstance(op, Scan):
        return evolve(op, jaxpr=_counting(op.jaxpr, op.num_consts), num_carry=op.num_carry + 1)
    n = op.cond_nconsts
    cond = rearranged(op.cond_jaxpr, [*range(n), COUNT, *range(n, len(op.cond_jaxpr.invars))])
    return evolve(op, cond_jaxpr=cond, body_jaxpr=_counting(op.body_jaxpr, op.body_nconsts))


def _counting(body: Jaxpr, n: int) -> Jaxpr:
    """The body of a loop, which takes the count after `n` constants and gives it first."""
    body = rearranged(body, [*range(n), COUNT, *range(n, len(body.invars))])
    after = Var(body.var_count, COUNT)
    return evolve(body, eqns=(*body.eqns, Eqn(NextStep(), (body.invars[n],), (after,))), outs=(after, *body.outs))


@final
class _Tally:
    """How many operations there have been in a body."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> int:
        self.count += 1
        return self.count - 1


@final
@frozen(eq=False)
class Watch(Interpreter[Never, None]):
    """Hands every operation on as it is, and shows it to a watcher."""

    title: str
    watcher: Watcher
    with_values: bool = True
    position: Position = ()
    inside: tuple[str, ...] = ()
    depth: int = 0
    body: str | None = None
    """What is entered, until it is run."""
    quiet: bool = False
    """Whether the operation whose bodies are entered was not shown."""
    count: int | None = None
    """Which input of the body is the number of the step."""
    tally: _Tally = field(factory=_Tally)

    everything: ClassVar[bool] = True

    @property
    @override
    def key(self) -> Hashable:
        own = self.watcher.key
        if own is None:
            return None
        return own, self.with_values, self.depth, self.body, self.quiet, self.count, self.inside

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        if isinstance(prim, NextStep):
            return self.inner.bind(prim, args)
        position, source = (*self.position, self.tally.next()), here(1)
        place = None if source is None else source.place()
        operands = tuple([a.aval for a in args])
        loop = prim if isinstance(prim, (Scan, While)) and self.watcher.counts_steps else None
        if not isinstance(prim, (Enterable, HoldsFunctions)):
            outs = self.inner.bind(prim, args)
        else:
            op = Applied(prim, operands, (), place, self.inside)
            show = self.watcher.before(position, op, self.depth)
            if show is not None:
                self.show(show, ())
            inside = evolve(
                self,
                position=position,
                inside=(*self.inside, op.name),
                depth=self.depth + (show is not None),
                quiet=show is None,
                count=None,
                tally=_Tally(),
            )
            outs = Interpreter.bind(inside, prim, args) if loop is None else inside.bind_counted(loop, args)
        op = Applied(prim, operands, tuple([x.aval for x in outs]), place, self.inside)
        show = self.watcher.after(position, op, self.depth)
        if show is not None:
            self.show(show, outs if self.with_values else ())
        return outs

    def bind_counted(self, op: Scan | While, args: Sequence[Value]) -> Sequence[Value]:
        """Interpret a loop whose steps are counted."""
        before = op.num_consts if isinstance(op, Scan) else op.cond_nconsts + op.body_nconsts
        counted = evolve(self, count=op.num_consts if isinstance(op, Scan) else op.body_nconsts)
        return Interpreter.bind(counted, _counted(op), [*args[:before], Literal(0, COUNT), *args[before:]])[1:]

    def show(self, show: Show, values: Sequence[Value]) -> None:
        given = [self._numbers(x) for x in values if x.aval.dtype != float0]
        function = HostFunction(show, trees.structure((tuple(given), {})), None, X64.value)
        self.inner.bind(DebugCallback(function, Debugging(ordered=True)), given)

    def _numbers(self, x: Value) -> Value:
        """Random keys are shown by their words."""
        return self.inner.bind(RandomUnwrap(), [x])[0] if is_key(x.aval.dtype) else x

    @override
    def within(self, handler: Handler) -> Watch:
        return evolve(self, inner=handler, tally=_Tally())

    @override
    def enter(
        self,
        jaxpr: Jaxpr,
        inputs: Sequence[Form],
        what: str,
        *,
        outs: Sequence[Form | None] = (),
        state: Form | None = None,
        collected: Sequence[Collected] = (),
        bare: bool = False,
    ) -> Entered:
        body = evolve(self, position=(*self.position, what), body=what, inside=(*self.inside[:-1], what))
        return Interpreter.enter(body, jaxpr, inputs, what, outs=outs, state=state, collected=collected, bare=bare)

    @override
    def run(self, jaxpr: Jaxpr, args: Sequence[Value]) -> Sequence[Value]:
        if self.body is None:
            return Interpreter.run(self, jaxpr, args)
        show = None if self.quiet else self.watcher.entering(self.body, jaxpr, self.depth)
        if show is not None:
            is_step = self.body.startswith("a step of ")
            self.show(show, [args[self.count]] if is_step and self.count is not None else ())
        inside = evolve(self, depth=self.depth + (show is not None), body=None)
        return Interpreter.run(inside, jaxpr, args)
