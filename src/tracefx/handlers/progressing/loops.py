"""Loops that tell how far they are: the same loops, with a carry that counts steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, Final, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.bodies import alone
from tracefx.control.call import Call
from tracefx.control.scan import Scan
from tracefx.control.while_loop import While
from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import ROOT, bind
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var, eval_jaxpr
from tracefx.core.literal import Literal
from tracefx.core.source import here
from tracefx.core.values import Value
from tracefx.handlers.progressing.reports import COUNT, UNKNOWN, LoopSite, Reporter, Show, Tick
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.interpreters.stage import stage
from tracefx.ops.arithmetic import div, sub
from tracefx.ops.arithmetic import max as larger
from tracefx.ops.basis import convert, filled
from tracefx.ops.comparison import Lt
from tracefx.ops.elementwise import Add, add
from tracefx.ops.selection import clamp

OFTEN: Final = 100
"""How often the outermost loop is told of, if its length is known, and the length from which one inside is."""
SELDOM: Final = 10
"""How often a loop inside of another one is told of."""


@final
@frozen(eq=False)
class Progress(Interpreter):
    """Has a rule for loops alone, and enters their bodies."""

    title: ClassVar[str] = "progress"
    everything = True
    show: Show = field(kw_only=True)
    every: int | None = field(kw_only=True)
    depth: int = field(kw_only=True)
    inside: int = field(default=0, kw_only=True)
    """In how many loops that are told of it is."""

    @property
    @override
    def rules(self) -> Rules[Progress, Value]:
        return RULES

    @property
    @override
    def key(self) -> Hashable:
        return self.show, self.every, self.depth, self.inside

    def steps_from(self, total: int) -> int | None:
        """How many steps there are from one report to the next, for a loop of `total`; `None` if there are none."""
        if self.inside >= self.depth or total < 2 or (self.inside and total < OFTEN):
            return None
        return -(-total // self.reports) if self.every is None else self.every

    def every_of(self, total: Value) -> Value:
        """The same for a loop whose length is known when it runs, if at all."""
        if self.every is not None:
            return Literal(self.every, COUNT)
        if isinstance(total, Literal):
            return Literal(max(-(-int(total.val.real) // self.reports), 0), COUNT)
        each = div(add(total, filled(COUNT, self.reports - 1)), filled(COUNT, self.reports))
        return larger(each, filled(COUNT, 1))

    @property
    def reports(self) -> int:
        """How often a loop is told of."""
        return SELDOM if self.inside else OFTEN

    def site(self, name: str) -> LoopSite:
        source = here()
        return LoopSite(name, None if source is None else source.place(), self.inside)


# ------------------------------------------------------------------ scan


def _scan(handler: Progress, op: Scan, *args: Value) -> Sequence[Value]:
    every = handler.steps_from(op.length)
    if every is None:
        return op.entered(handler, args)
    if handler.inner is ROOT:
        return _as_program(handler, op, args)
    site = handler.site("scan")
    consts, carry, arrays = op.parts(args)
    total, often = [Literal(n, COUNT) for n in (op.length, every)]

    def step(*xs: Value) -> list[Value]:
        count, rest = xs[op.num_consts], [*xs[: op.num_consts], *xs[op.num_consts + 1 :]]
        outs = eval_jaxpr(op.jaxpr, (), rest)
        done = add(count, Literal(1, COUNT))
        bind(Tick(Reporter(site, handler.show, False)), done, total, often)
        return [done, *outs]

    const_avals, carry_avals, slice_avals = op.parts(op.jaxpr.in_avals)
    body = _staged(step, [*const_avals, COUNT, *carry_avals, *slice_avals])
    counting = evolve(op, jaxpr=body, num_carry=op.num_carry + 1)
    inside = evolve(handler, inside=handler.inside + 1)
    return counting.entered(inside, [*consts, Literal(0, COUNT), *carry, *arrays])[1:]


# ------------------------------------------------------------------ while


def _while(handler: Progress, op: While, *args: Value) -> Sequence[Value]:
    if handler.inside >= handler.depth:
        return op.entered(handler, args)
    if handler.inner is ROOT:
        return _as_program(handler, op, args)
    cond_consts, body_consts, carry = op.parts(args)
    total = _steps_of(op, args)
    site = handler.site("while_loop" if total is None else "fori_loop")
    if total is None:
        total = Literal(UNKNOWN if op.max_steps is None else op.max_steps, COUNT)
    every = handler.every_of(total)
    n, m = op.cond_nconsts, op.body_nconsts

    def ask(*xs: Value) -> list[Value]:
        return eval_jaxpr(op.cond_jaxpr, (), [*xs[:n], *xs[n + 1 :]])

    def step(*xs: Value) -> list[Value]:
        (all_steps, often), rest = xs[:2], xs[2:]
        outs = eval_jaxpr(op.body_jaxpr, (), [*rest[:m], *rest[m + 1 :]])
        done = add(rest[m], Literal(1, COUNT))
        bind(Tick(Reporter(site, handler.show, False)), done, all_steps, often)
        return [done, *outs]

    asking, doing = op.cond_jaxpr.in_avals, op.body_jaxpr.in_avals
    counting = While(
        _staged(step, [COUNT, COUNT, *doing[:m], COUNT, *doing[m:]]),
        m + 2,
        _staged(ask, [*asking[:n], COUNT, *asking[n:]]),
        n,
        op.max_steps,
    )
    inside = evolve(handler, inside=handler.inside + 1)
    operands = [*cond_consts, total, every, *body_consts, Literal(0, COUNT), *carry]
    done, *outs = counting.entered(inside, operands)
    # Of a loop of known length the last step is the last report: the number of its steps would not wait for them.
    bind(Tick(Reporter(site, handler.show, True)), done, total, every)
    return outs


def _steps_of(op: While, args: Sequence[Value]) -> Value | None:
    """How many steps a loop takes that counts from one number up to another, as `fori_loop` does; `None` for others."""
    cond, body, n = op.cond_jaxpr, op.body_jaxpr, op.cond_nconsts
    if len(cond.eqns) != 1 or op.max_steps is not None:
        return None
    (asked,) = cond.eqns
    if type(asked.prim) is not Lt or asked.outs != cond.outs or not dtypes.is_integer(asked.inputs[0].aval.dtype):
        return None
    cond_consts, _, initial = op.parts(args)
    count, end = [_place(cond, x) for x in asked.inputs]
    if count is None or count < n:
        return None
    carry, outs = body.invars[op.body_nconsts :], body.outs
    if not any(e.outs == (outs[count - n],) and _adds_one(e, carry[count - n]) for e in body.eqns):
        return None
    bound = asked.inputs[1]
    if isinstance(bound, Literal):
        last: Value = bound
    elif end is not None and end < n:
        last = cond_consts[end]
    elif end is not None and outs[end - n] == carry[end - n]:
        last = initial[end - n]
    else:
        return None
    wide = ShapedArray((), dtypes.int64)  # in which nothing is out of range
    steps = sub(convert(last, wide.dtype), convert(initial[count - n], wide.dtype))
    return convert(clamp(filled(wide, 0), steps, filled(wide, dtypes.iinfo(COUNT.dtype).max)), COUNT.dtype)


def _place(jaxpr: Jaxpr, x: Atom) -> int | None:
    """Which input of a program it is, if it is one."""
    return jaxpr.invars.index(x) if isinstance(x, Var) and x in jaxpr.invars else None


def _adds_one(eqn: Eqn, count: Var) -> bool:
    x, y = eqn.inputs if len(eqn.inputs) == 2 else (None, None)
    return type(eqn.prim) is Add and x == count and isinstance(y, Literal) and y.val == 1


# ------------------------------------------------------------------ what both need


def _as_program(handler: Progress, op: Scan | While, args: Sequence[Value]) -> Sequence[Value]:
    """A loop that is evaluated, as a program that is kept: so one that runs again is not compiled again."""
    avals = [x.aval for x in args]
    program = op.memo.get("program", lambda: alone(op, avals))
    return Call(op.name, program).entered(handler, args)


def _staged(f: Callable[..., Sequence[Value]], avals: Sequence[ShapedArray]) -> Jaxpr:
    jaxpr, consts = stage(f, avals)
    assert not consts
    return jaxpr


RULES: Final = Rules[Progress, Value]().on(Scan, _scan).on(While, _while)
