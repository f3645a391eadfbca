"""`Instrument`: a handler that reports every operation of a program, with its location and its runtime values.

Values are reported through `debug_callback`, so a report is made when the value is computed: immediately in eager code,
and from within the running program in compiled code, once for each iteration of a loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, Final, Never, Protocol, TypeAlias, cast, final

from attrs import evolve, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize_on_object
from tracefx.control.callback import DebugCallback, FlatCallback
from tracefx.control.control_flow import rearrange_jaxpr
from tracefx.control.scan import Scan
from tracefx.control.while_loop import While
from tracefx.core import Literal, ShapedArray, Value, dtypes, float0
from tracefx.core.dtypes import is_key
from tracefx.core.effects import DebugEffect
from tracefx.core.jaxpr import Eqn, Jaxpr, Var
from tracefx.core.primitive import Expandable, Primitive
from tracefx.extend import SourceLocation, here
from tracefx.interpreters.body_transform import (
    BodyKind,
    BodyName,
    BodyTransformable,
    CollectedSpec,
    TransformedBody,
    ValueSpec,
)
from tracefx.interpreters.callables import HasCallables
from tracefx.interpreters.interpreter import Interpreter
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.random.prng import RandomUnwrap
from tracefx.pytrees import trees
from tracefx.settings import X64

_COUNT: Final = "count"
"""The note of a run: the index of its last operation."""
STEP_AVAL: Final = ShapedArray((), dtypes.int32)
RuntimeCallback: TypeAlias = Callable[..., None]
"""Called at run time: with the computed arrays, or without arguments when the program reaches an operation or body."""


@final
@frozen
class OperationInfo:
    """A traced operation.

    Attributes:
        prim: the primitive.
        operands: the abstract values (shape and dtype) of its operands.
        results: those of its results; empty in `OperationHooks.before`, which runs before there are any.
        location: the line of user code it comes from.
        enclosing_bodies: the bodies that contain it, outermost first.

    >>> import tracefx.numpy as fnp
    >>> from tracefx.handlers import explain
    >>> (operation,) = explain(fnp.sin)(fnp.ones(3)).operations
    >>> operation.applied.name, operation.applied.operands
    ('sin', (f32[3],))
    """

    prim: Primitive
    operands: tuple[ShapedArray, ...]
    results: tuple[ShapedArray, ...]
    location: SourceLocation
    enclosing_bodies: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The primitive's name, for a call with that of the called function: `sin`, `jit(layer)`."""
        return self.prim.profile_name

    @property
    def has_bodies(self) -> bool:
        """Whether it has sub-jaxprs (a call, a loop, a branch, ...), whose operations follow it."""
        return isinstance(self.prim, (BodyTransformable, HasCallables))

    @property
    def file(self) -> str:
        """The source file; empty if it is unknown."""
        return self.location.file

    @property
    def line(self) -> int:
        """The line number; 0 if it is unknown."""
        return self.location.line


def relative_path(file: str) -> str:
    """Returns a file's path relative to the current directory, or unchanged if it is outside of it."""
    folder = os.path.join(os.getcwd(), "")
    return file.removeprefix(folder)


Position: TypeAlias = tuple[int | str, ...]
"""The path to an operation: its index in its body, after the indices and names of the enclosing bodies."""


class OperationHooks(Protocol):
    """The functions that `Instrument` calls for each operation, while the program is traced or eagerly evaluated."""

    @property
    def cache_key(self) -> Hashable:
        """A cache key: equal for hooks with equal reports. None if every program must be interpreted anew."""

    @property
    def counts_steps(self) -> bool:
        """Whether the callback at the start of a loop iteration takes its number, `i32[]`, counted from 0."""

    def before(self, position: Position, op: OperationInfo, depth: int) -> RuntimeCallback | None:
        """Returns the callback to run when the program reaches an operation with sub-jaxprs.

        None means no callback, and no deeper nesting `depth` for its bodies.
        """

    def enter_body(self, body: BodyName, jaxpr: Jaxpr, depth: int) -> RuntimeCallback | None:
        """Returns the callback to run when the program enters a body, or None."""

    def after(self, position: Position, op: OperationInfo, depth: int) -> RuntimeCallback | None:
        """Returns the callback to run with the results of an operation, or None.

        For an operation with sub-jaxprs, `before` has been called as well.
        """


@final
@frozen
class NextStep(Primitive, Expandable):
    """Increments a loop's step counter, which is part of the program, so that several threads may run the program."""

    name: ClassVar[str] = "next_step"

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        if avals != (STEP_AVAL,):
            raise TypeError(f"next_step takes {STEP_AVAL}, got ({', '.join(map(str, avals))})")
        return [STEP_AVAL]

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return [add(args[0], Literal(1, STEP_AVAL))]


@memoize_on_object
def _with_step_counter(op: Scan | While) -> Scan | While:
    """Returns the loop with a step counter as its first carry."""
    if isinstance(op, Scan):
        return evolve(op, jaxpr=_body_with_step_counter(op.jaxpr, op.num_consts), num_carry=op.num_carry + 1)
    n = op.cond_nconsts
    cond = rearrange_jaxpr(op.cond_jaxpr, [*range(n), STEP_AVAL, *range(n, len(op.cond_jaxpr.invars))])
    return evolve(op, cond_jaxpr=cond, body_jaxpr=_body_with_step_counter(op.body_jaxpr, op.body_nconsts))


def _body_with_step_counter(body: Jaxpr, n: int) -> Jaxpr:
    """Returns a loop body that takes the counter after its `n` constants and returns the next count first."""
    body = rearrange_jaxpr(body, [*range(n), STEP_AVAL, *range(n, len(body.invars))])
    after = Var(body.var_count, STEP_AVAL)
    return evolve(body, eqns=(*body.eqns, Eqn(NextStep(), (body.invars[n],), (after,))), outs=(after, *body.outs))


@final
class Instrument(Interpreter[Never, None]):
    """Passes every operation on unchanged and reports it to its hooks."""

    title: str
    hooks: OperationHooks
    with_values: bool = True
    position: Position = ()
    enclosing_bodies: tuple[str, ...] = ()
    depth: int = 0
    body: BodyName | None = None
    """The name of the body to interpret, until `interpret` starts to."""
    hidden: bool = False
    """Whether `before` gave no callback for the operation whose bodies are interpreted."""
    step_input: int | None = None
    """The index of the body's input that is the step counter."""

    @property
    @override
    def cache_key(self) -> Hashable:
        own = self.hooks.cache_key
        if own is None:
            return None
        return own, self.with_values, self.depth, self.body, self.hidden, self.step_input, self.enclosing_bodies

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        if isinstance(prim, NextStep):
            return self.inner.bind(prim, args)
        position, location = (*self.position, self._next_index()), here()
        operands = tuple([a.aval for a in args])
        loop = prim if isinstance(prim, (Scan, While)) and self.hooks.counts_steps else None
        if not isinstance(prim, (BodyTransformable, HasCallables)):
            outs = self.inner.bind(prim, args)
        else:
            op = OperationInfo(prim, operands, (), location, self.enclosing_bodies)
            show = self.hooks.before(position, op, self.depth)
            if show is not None:
                self.emit_callback(show, ())
            inside = evolve(
                self,
                position=position,
                enclosing_bodies=(*self.enclosing_bodies, op.name),
                depth=self.depth + (show is not None),
                hidden=show is None,
                step_input=None,
            ).start(self.inner)
            outs = Interpreter.bind(inside, prim, args) if loop is None else inside.bind_with_step_counter(loop, args)
        op = OperationInfo(prim, operands, tuple([x.aval for x in outs]), location, self.enclosing_bodies)
        show = self.hooks.after(position, op, self.depth)
        if show is not None:
            self.emit_callback(show, outs if self.with_values else ())
        return outs

    def bind_with_step_counter(self, op: Scan | While, args: Sequence[Value]) -> Sequence[Value]:
        """Interprets a loop extended by a step counter."""
        before = op.num_consts if isinstance(op, Scan) else op.cond_nconsts + op.body_nconsts
        step_input = op.num_consts if isinstance(op, Scan) else op.body_nconsts
        counted = evolve(self, step_input=step_input).start(self.inner)
        return Interpreter.bind(
            counted, _with_step_counter(op), [*args[:before], Literal(0, STEP_AVAL), *args[before:]]
        )[1:]

    def emit_callback(self, show: RuntimeCallback, values: Sequence[Value]) -> None:
        operands = [self._printable(x) for x in values if x.aval.dtype != float0]
        function = FlatCallback(show, trees.structure((tuple(operands), {})), None, X64.value)
        self.inner.bind(DebugCallback(function, DebugEffect(ordered=True)), operands)

    def _printable(self, x: Value) -> Value:
        """Returns the value to report: for random keys their words."""
        return self.inner.bind(RandomUnwrap(), [x])[0] if is_key(x.aval.dtype) else x

    def _next_index(self) -> int:
        """Returns the index of the next operation of the body."""
        notes = self.run.notes
        notes[_COUNT] = index = cast(int, notes.get(_COUNT, -1)) + 1
        return index

    @override
    def transform_body(
        self,
        jaxpr: Jaxpr,
        inputs: Sequence[ValueSpec],
        name: BodyName,
        *,
        outs: Sequence[ValueSpec | None] = (),
        state: ValueSpec | None = None,
        collected: Sequence[CollectedSpec] = (),
        plain: bool = False,
    ) -> TransformedBody:
        body = evolve(
            self,
            position=(*self.position, str(name)),
            body=name,
            enclosing_bodies=(*self.enclosing_bodies[:-1], str(name)),
        ).start(self.inner)
        return Interpreter.transform_body(
            body, jaxpr, inputs, name, outs=outs, state=state, collected=collected, plain=plain
        )

    @override
    def interpret(self, jaxpr: Jaxpr, args: Sequence[Value]) -> Sequence[Value]:
        if self.body is None:
            return Interpreter.interpret(self, jaxpr, args)
        show = None if self.hidden else self.hooks.enter_body(self.body, jaxpr, self.depth)
        if show is not None:
            is_step = self.body.kind is BodyKind.STEP
            self.emit_callback(show, [args[self.step_input]] if is_step and self.step_input is not None else ())
        inside = evolve(self, depth=self.depth + (show is not None), body=None).start(self.inner)
        return Interpreter.interpret(inside, jaxpr, args)
