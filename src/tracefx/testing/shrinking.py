"""`shrink`: reduces a program that violates a law, while it still does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, final

import numpy as np
from attrs import evolve, frozen

from tracefx.core import Literal, Value, dtypes, to_numpy
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT
from tracefx.core.jaxpr import Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.interpreters.stage import stage
from tracefx.passes.rebuilding import renumber
from tracefx.testing.subjects import array_of_type

MAX_CHECKS: Final = 200
"""The maximum number of candidates that are checked: each check takes as long as the law does."""


@final
@frozen(eq=False)
class Candidate:
    """A program with its constants and arguments."""

    jaxpr: Jaxpr
    consts: Sequence[Value]
    args: tuple[Value, ...]

    def run(self, *xs: Value) -> list[Value]:
        """Evaluates the program."""
        return eval_jaxpr(self.jaxpr, self.consts, xs)


FailurePredicate: TypeAlias = Callable[[Candidate], bool]
"""Whether a candidate violates the law."""


def shrink(whole: Candidate, breaks: FailurePredicate) -> Candidate | None:
    """Returns the smallest part found of a program that violates a law, or None if the program itself does not.

    The result is a single equation, at any depth, if one suffices; otherwise a minimal sequence of equations.
    """
    if not breaks(whole):
        return None
    budget = iter(range(MAX_CHECKS))

    def breaks_within_budget(candidate: Candidate) -> bool:
        return next(budget, None) is not None and breaks(candidate)

    smallest = next(filter(breaks_within_budget, _single_equations(whole)), None) or _minimal_equations(
        whole, breaks_within_budget
    )
    return _arguments_to_ones(smallest, breaks_within_budget)


# ------------------------------------------------------------------ single equations


def _single_equations(whole: Candidate) -> Iterator[Candidate]:
    """Yields each equation of a program as a program at the operands it gets, those of sub-jaxprs first.

    A loop contributes its first step, a conditional the branch taken.
    """
    seen: set[tuple[object, ...]] = set()
    for prim, operands in _applied_primitives(whole.jaxpr, [*whole.consts, *whole.args]):
        try:
            key = (prim, *[a.aval for a in operands])
            if key in seen:
                continue
            seen.add(key)
            candidate = _single_equation(prim, operands)
        except Exception:  # it can't be staged alone, e.g. for operands without an aval
            continue
        yield candidate


def _applied_primitives(jaxpr: Jaxpr, args: Sequence[Value]) -> Iterator[tuple[Primitive, list[Value]]]:
    """Yields each primitive applied by a program with its operands, those of sub-jaxprs first."""
    for eqn, operands, _ in _evaluate_equations(jaxpr, args):
        if isinstance(eqn.prim, HasSubjaxprs):
            for body in eqn.prim.jaxprs():
                inner = _operands_of_body(body, operands)
                if inner is not None:
                    yield from _applied_primitives(body, inner)
        yield eqn.prim, operands


def _evaluate_equations(jaxpr: Jaxpr, args: Sequence[Value]) -> Iterator[tuple[Eqn, list[Value], Sequence[Value]]]:
    """Yields each equation with its operands and results, until evaluation fails."""
    env = {v.index: x for v, x in zip((*jaxpr.constvars, *jaxpr.invars), args, strict=True)}
    for eqn in jaxpr.eqns:
        operands = [env[x.index] if isinstance(x, Var) else x for x in eqn.inputs]
        try:
            outs = CURRENT.get().bind(eqn.prim, operands)
        except Exception:
            return
        env.update(zip([v.index for v in eqn.outs], outs, strict=True))
        yield eqn, operands, outs


def _operands_of_body(body: Jaxpr, operands: Sequence[Value]) -> list[Value] | None:
    """Returns the arguments of a body among the operands of its equation, judged by avals; None if they don't match.

    They are the last operands, or the first row of each.
    """
    n = len(body.invars)
    if n > len(operands):
        return None
    inner: list[Value] = []
    for aval, x in zip(body.in_avals, operands[len(operands) - n :], strict=True):
        if x.aval.shape == aval.shape and x.aval.dtype == aval.dtype:
            inner.append(x if x.aval == aval else array_of_type(to_numpy(x), aval))
        elif x.aval.shape[1:] == aval.shape and x.aval.dtype == aval.dtype and x.aval.shape[0]:
            inner.append(array_of_type(to_numpy(x)[0], aval))
        else:
            return None
    return inner


def _single_equation(prim: Primitive, operands: Sequence[Value]) -> Candidate:
    """Returns a program of one equation: literals stay literals, and repeated operands become one input."""
    input_indices: dict[int, int] = {}
    args: list[Value] = []
    for x in operands:
        if not isinstance(x, Literal) and id(x) not in input_indices:
            input_indices[id(x)] = len(args)
            args.append(x)

    def run(*xs: Value) -> Sequence[Value]:
        return CURRENT.get().bind(prim, [xs[input_indices[id(x)]] if id(x) in input_indices else x for x in operands])

    jaxpr, consts = stage(run, [a.aval for a in args])
    return Candidate(jaxpr, tuple(consts), tuple(args))


# ------------------------------------------------------------------ several equations


def _minimal_equations(whole: Candidate, breaks: FailurePredicate) -> Candidate:
    """Returns a minimal program: the shortest violating prefix of the equations, without those that can be removed."""
    jaxpr = whole.jaxpr
    env: dict[int, Value] = dict(
        zip([v.index for v in (*jaxpr.constvars, *jaxpr.invars)], [*whole.consts, *whole.args], strict=True)
    )
    for eqn, _, outs in _evaluate_equations(jaxpr, [*whole.consts, *whole.args]):
        env.update(zip([v.index for v in eqn.outs], outs, strict=True))
    eqns = [eqn for eqn in jaxpr.eqns if all(v.index in env for v in eqn.outs)]
    prefixes = [eqns[: i + 1] for i in range(len(eqns))]
    needed = next((prefix for prefix in prefixes if breaks(_backward_slice(prefix, env))), None)
    if needed is None:
        return whole
    for eqn in needed[:-1]:
        fewer = [e for e in needed if e is not eqn]
        if breaks(_backward_slice(fewer, env)):
            needed = fewer
    return _backward_slice(needed, env)


def _backward_slice(eqns: Sequence[Eqn], env: dict[int, Value]) -> Candidate:
    """Returns the equations that the last one depends on; other values that they read become inputs."""
    outs = eqns[-1].outs
    needed = {v.index for v in outs}
    sliced: list[Eqn] = []
    for eqn in reversed(eqns):
        if any(v.index in needed for v in eqn.outs):
            sliced.insert(0, eqn)
            needed.update([x.index for x in eqn.inputs if isinstance(x, Var)])
    bound = {v.index for eqn in sliced for v in eqn.outs}
    inputs: dict[int, Var] = {}
    for x in [x for eqn in sliced for x in eqn.inputs]:
        if isinstance(x, Var) and x.index not in bound:
            inputs.setdefault(x.index, x)
    part = Jaxpr((), tuple(inputs.values()), tuple(sliced), outs)
    return Candidate(renumber(part), (), tuple([env[i] for i in inputs]))


# ------------------------------------------------------------------ simpler arguments


def _arguments_to_ones(smallest: Candidate, breaks: FailurePredicate) -> Candidate:
    """Replaces arguments by ones where the law is still violated."""
    for i, x in enumerate(smallest.args):
        if dtypes.is_bool(x.aval.dtype) or not x.aval.size:
            continue
        ones = array_of_type(np.ones(x.aval.shape), x.aval)
        candidate = evolve(smallest, args=(*smallest.args[:i], ones, *smallest.args[i + 1 :]))
        if np.any(to_numpy(x) != 1) and breaks(candidate):
            smallest = candidate
    return smallest
