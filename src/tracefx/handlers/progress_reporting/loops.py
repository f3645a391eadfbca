"""`Progress`, the handler that adds a counter and reports to loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, final

from attrs import evolve, field

from tracefx.control.call import Call
from tracefx.control.scan import Scan
from tracefx.control.while_loop import While
from tracefx.core import Literal, ShapedArray, Value, dtypes
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import ROOT, bind
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.extend import here
from tracefx.handlers.progress_reporting.reports import (
    COUNT_AVAL,
    UNKNOWN_LENGTH,
    LoopSite,
    ReportCallback,
    Reporter,
    Tick,
)
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rule_methods import rule
from tracefx.interpreters.stage import stage
from tracefx.ops.elementwise.arithmetic import div, sub
from tracefx.ops.elementwise.arithmetic import max as larger
from tracefx.ops.elementwise.comparison import Lt
from tracefx.ops.elementwise.elementwise import Add, add
from tracefx.ops.elementwise.selection import clamp
from tracefx.ops.structural import constant_like_aval, convert

OUTER_REPORTS: Final = 100
"""The number of reports of an outermost loop of known length, and the shortest length of a reported inner loop."""
INNER_REPORTS: Final = 10
"""The number of reports of an inner loop of known length."""


@final
class Progress(Interpreter):
    """Rewrites loops to report their progress and interprets their bodies."""

    title: ClassVar[str] = "progress"
    show: ReportCallback = field(kw_only=True)
    every: int | None = field(kw_only=True)
    depth: int = field(kw_only=True)
    nesting: int = field(default=0, kw_only=True)
    """The number of enclosing reported loops."""

    def report_interval(self, total: int) -> int | None:
        """Returns the number of iterations between reports of a loop of length `total`, or None for no reports."""
        if self.nesting >= self.depth or total < 2 or (self.nesting and total < OUTER_REPORTS):
            return None
        return -(-total // self.num_reports) if self.every is None else self.every

    def traced_report_interval(self, total: Value) -> Value:
        """Returns the interval for a loop whose length is known at run time, if at all: an `i32[]`."""
        if self.every is not None:
            return Literal(self.every, COUNT_AVAL)
        if isinstance(total, Literal):
            return Literal(max(-(-int(total.val.real) // self.num_reports), 0), COUNT_AVAL)
        each = div(
            add(total, constant_like_aval(COUNT_AVAL, self.num_reports - 1)),
            constant_like_aval(COUNT_AVAL, self.num_reports),
        )
        return larger(each, constant_like_aval(COUNT_AVAL, 1))

    @property
    def num_reports(self) -> int:
        """The number of reports of a loop of known length."""
        return INNER_REPORTS if self.nesting else OUTER_REPORTS

    def loop_site(self, name: str) -> LoopSite:
        """Returns the loop site of the operation that is being bound."""
        return LoopSite(name, here(), self.nesting)

    @rule(Scan)
    def scan(self, op: Scan, *args: Value) -> Sequence[Value]:
        every = self.report_interval(op.length)
        if every is None:
            return op.transform_bodies(self, args)
        if self.inner is ROOT:
            return _bind_as_call(self, op, args)
        site = self.loop_site("scan")
        consts, carry, arrays = op.split_operands(args)
        total, interval = [Literal(n, COUNT_AVAL) for n in (op.length, every)]

        def step(*xs: Value) -> list[Value]:
            count, operands = xs[op.num_consts], [*xs[: op.num_consts], *xs[op.num_consts + 1 :]]
            outs = eval_jaxpr(op.jaxpr, (), operands)
            done = add(count, Literal(1, COUNT_AVAL))
            bind(Tick(Reporter(site, self.show, False)), done, total, interval)
            return [done, *outs]

        const_avals, carry_avals, slice_avals = op.split_operands(op.jaxpr.in_avals)
        body = _stage_without_consts(step, [*const_avals, COUNT_AVAL, *carry_avals, *slice_avals])
        counting = evolve(op, jaxpr=body, num_carry=op.num_carry + 1)
        inside = evolve(self, nesting=self.nesting + 1).start(self.inner)
        return counting.transform_bodies(inside, [*consts, Literal(0, COUNT_AVAL), *carry, *arrays])[1:]

    @rule(While)
    def while_loop(self, op: While, *args: Value) -> Sequence[Value]:
        if self.nesting >= self.depth:
            return op.transform_bodies(self, args)
        if self.inner is ROOT:
            return _bind_as_call(self, op, args)
        cond_consts, body_consts, carry = op.split_operands(args)
        total = _trip_count(op, args)
        site = self.loop_site("while_loop" if total is None else "fori_loop")
        if total is None:
            total = Literal(UNKNOWN_LENGTH if op.max_steps is None else op.max_steps, COUNT_AVAL)
        every = self.traced_report_interval(total)
        n, m = op.cond_nconsts, op.body_nconsts

        def condition(*xs: Value) -> list[Value]:
            return eval_jaxpr(op.cond_jaxpr, (), [*xs[:n], *xs[n + 1 :]])

        def step(*xs: Value) -> list[Value]:
            (all_steps, interval), loop_operands = xs[:2], xs[2:]
            outs = eval_jaxpr(op.body_jaxpr, (), [*loop_operands[:m], *loop_operands[m + 1 :]])
            done = add(loop_operands[m], Literal(1, COUNT_AVAL))
            bind(Tick(Reporter(site, self.show, False)), done, all_steps, interval)
            return [done, *outs]

        asking, doing = op.cond_jaxpr.in_avals, op.body_jaxpr.in_avals
        counting = While(
            _stage_without_consts(step, [COUNT_AVAL, COUNT_AVAL, *doing[:m], COUNT_AVAL, *doing[m:]]),
            m + 2,
            _stage_without_consts(condition, [*asking[:n], COUNT_AVAL, *asking[n:]]),
            n,
            op.max_steps,
        )
        inside = evolve(self, nesting=self.nesting + 1).start(self.inner)
        operands = [*cond_consts, total, every, *body_consts, Literal(0, COUNT_AVAL), *carry]
        done, *outs = counting.transform_bodies(inside, operands)
        # For a known length the last iteration makes the last report: the count after the loop could be folded to a
        # constant and reported before the loop ends.
        bind(Tick(Reporter(site, self.show, True)), done, total, every)
        return outs


def _trip_count(op: While, args: Sequence[Value]) -> Value | None:
    """Returns the number of iterations of a loop that counts from one integer to another like `fori_loop`, or None."""
    cond, body, n = op.cond_jaxpr, op.body_jaxpr, op.cond_nconsts
    if len(cond.eqns) != 1 or op.max_steps is not None:
        return None
    (comparison,) = cond.eqns
    if (
        type(comparison.prim) is not Lt
        or comparison.outs != cond.outs
        or not dtypes.is_integer(comparison.inputs[0].aval.dtype)
    ):
        return None
    cond_consts, _, initial = op.split_operands(args)
    count, end = [_input_index(cond, x) for x in comparison.inputs]
    if count is None or count < n:
        return None
    carry, outs = body.invars[op.body_nconsts :], body.outs
    if not any(e.outs == (outs[count - n],) and _is_increment(e, carry[count - n]) for e in body.eqns):
        return None
    bound = comparison.inputs[1]
    if isinstance(bound, Literal):
        last: Value = bound
    elif end is not None and end < n:
        last = cond_consts[end]
    elif end is not None and outs[end - n] == carry[end - n]:
        last = initial[end - n]
    else:
        return None
    wide = ShapedArray((), dtypes.int64)  # the difference cannot overflow
    steps = sub(convert(last, wide.dtype), convert(initial[count - n], wide.dtype))
    return convert(
        clamp(constant_like_aval(wide, 0), steps, constant_like_aval(wide, dtypes.iinfo(COUNT_AVAL.dtype).max)),
        COUNT_AVAL.dtype,
    )


def _input_index(jaxpr: Jaxpr, x: Atom) -> int | None:
    """Returns the index of the input that `x` is, or None."""
    return jaxpr.invars.index(x) if isinstance(x, Var) and x in jaxpr.invars else None


def _is_increment(eqn: Eqn, count: Var) -> bool:
    """Returns whether an equation adds 1 to `count`."""
    x, y = eqn.inputs if len(eqn.inputs) == 2 else (None, None)
    return type(eqn.prim) is Add and x is not None and bool(x == count) and isinstance(y, Literal) and y.val == 1


def _bind_as_call(handler: Progress, op: Scan | While, args: Sequence[Value]) -> Sequence[Value]:
    """Binds an eagerly evaluated loop as a call with a memoized jaxpr, so that running it again does not recompile."""
    return Call(op.name, op.as_jaxpr(tuple([x.aval for x in args]))).transform_bodies(handler, args)


def _stage_without_consts(f: Callable[..., Sequence[Value]], avals: Sequence[ShapedArray]) -> Jaxpr:
    jaxpr, consts = stage(f, avals)
    assert not consts
    return jaxpr
