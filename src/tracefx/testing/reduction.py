"""Making a program that breaks a law smaller, while it breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, final

import numpy as np
from attrs import evolve, frozen

from tracefx.core import dtypes
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import CURRENT
from tracefx.core.jaxpr import Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.core.values import Value, to_numpy
from tracefx.interpreters.stage import stage
from tracefx.passes.dce import renumber
from tracefx.testing.subjects import array_of_type

MAX_CHECKS: Final = 200
"""How many programs are tried: one takes as long as the law does."""


@final
@frozen(eq=False)
class Candidate:
    """A program with constants, and arguments."""

    jaxpr: Jaxpr
    consts: Sequence[Value]
    args: tuple[Value, ...]

    def run(self, *xs: Value) -> list[Value]:
        return eval_jaxpr(self.jaxpr, self.consts, xs)


FailurePredicate: TypeAlias = Callable[[Candidate], bool]


def shrink(whole: Candidate, breaks: FailurePredicate) -> Candidate | None:
    """The smallest program found that still breaks the law, cut out of one that may break it; `None` if that doesn't.

    It is one operation, wherever in the program, if one alone breaks it; else as few equations as are needed together.
    """
    if not breaks(whole):
        return None
    budget = iter(range(MAX_CHECKS))

    def tried(candidate: Candidate) -> bool:
        return next(budget, None) is not None and breaks(candidate)

    found = next(filter(tried, _single_equations(whole)), None) or _minimal_equations(whole, tried)
    return _arguments_to_ones(found, tried)


# ------------------------------------------------------------------ one operation


def _single_equations(whole: Candidate) -> Iterator[Candidate]:
    """The operations of a program, each a program of its own at the operands that it gets; those inside others first.

    Of a loop it is the first step that counts, of a condition the branch that is chosen.
    """
    seen: set[tuple[object, ...]] = set()
    for prim, operands in _applied_primitives(whole.jaxpr, [*whole.consts, *whole.args]):
        try:
            key = (prim, *[a.aval for a in operands])
            if key in seen:
                continue
            seen.add(key)
            single = _single_equation(prim, operands)
        except Exception:  # it has no types, or is no value: then it is part of something larger
            continue
        yield single


def _applied_primitives(jaxpr: Jaxpr, args: Sequence[Value]) -> Iterator[tuple[Primitive, list[Value]]]:
    for eqn, operands, _ in _evaluate_equations(jaxpr, args):
        if isinstance(eqn.prim, HasSubjaxprs):
            for body in eqn.prim.jaxprs():
                inner = _operands_of_body(body, operands)
                if inner is not None:
                    yield from _applied_primitives(body, inner)
        yield eqn.prim, operands


def _evaluate_equations(jaxpr: Jaxpr, args: Sequence[Value]) -> Iterator[tuple[Eqn, list[Value], Sequence[Value]]]:
    """Each equation with its operands and results. It ends where evaluation does."""
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
    """What a body gets of the operands of its operation, judged by types: the last ones, or rows of them."""
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
    """One operation as a program: literals stay what they are, an operand that comes twice is one input."""
    places: dict[int, int] = {}
    args: list[Value] = []
    for x in operands:
        if not isinstance(x, Literal) and id(x) not in places:
            places[id(x)] = len(args)
            args.append(x)

    def run(*xs: Value) -> Sequence[Value]:
        return CURRENT.get().bind(prim, [xs[places[id(x)]] if id(x) in places else x for x in operands])

    jaxpr, consts = stage(run, [a.aval for a in args])
    return Candidate(jaxpr, tuple(consts), tuple(args))


# ------------------------------------------------------------------ several


def _minimal_equations(whole: Candidate, tried: FailurePredicate) -> Candidate:
    """As few equations as break the law together: for the first outputs that do, those that can't be cut."""
    jaxpr = whole.jaxpr
    env: dict[int, Value] = dict(
        zip([v.index for v in (*jaxpr.constvars, *jaxpr.invars)], [*whole.consts, *whole.args], strict=True)
    )
    for eqn, _, outs in _evaluate_equations(jaxpr, [*whole.consts, *whole.args]):
        env.update(zip([v.index for v in eqn.outs], outs, strict=True))
    eqns = [eqn for eqn in jaxpr.eqns if all(v.index in env for v in eqn.outs)]
    prefixes = [eqns[: i + 1] for i in range(len(eqns))]
    kept = next((prefix for prefix in prefixes if tried(_backward_slice(prefix, env))), None)
    if kept is None:
        return whole
    for eqn in kept[:-1]:
        fewer = [e for e in kept if e is not eqn]
        if tried(_backward_slice(fewer, env)):
            kept = fewer
    return _backward_slice(kept, env)


def _backward_slice(eqns: Sequence[Eqn], env: dict[int, Value]) -> Candidate:
    """Those of the equations that the last one needs; what these read of others are inputs."""
    outs = eqns[-1].outs
    needed = {v.index for v in outs}
    kept: list[Eqn] = []
    for eqn in reversed(eqns):
        if any(v.index in needed for v in eqn.outs):
            kept.insert(0, eqn)
            needed.update([x.index for x in eqn.inputs if isinstance(x, Var)])
    bound = {v.index for eqn in kept for v in eqn.outs}
    inputs: dict[int, Var] = {}
    for x in [x for eqn in kept for x in eqn.inputs]:
        if isinstance(x, Var) and x.index not in bound:
            inputs.setdefault(x.index, x)
    part = Jaxpr((), tuple(inputs.values()), tuple(kept), outs)
    return Candidate(renumber(part), (), tuple([env[i] for i in inputs]))


# ------------------------------------------------------------------ plain numbers


def _arguments_to_ones(found: Candidate, tried: FailurePredicate) -> Candidate:
    """The same program at ones in the place of arguments, wherever it breaks the law there too."""
    for i, x in enumerate(found.args):
        if dtypes.is_bool(x.aval.dtype) or not x.aval.size:
            continue
        ones = array_of_type(np.ones(x.aval.shape), x.aval)
        candidate = evolve(found, args=(*found.args[:i], ones, *found.args[i + 1 :]))
        if np.any(to_numpy(x) != 1) and tried(candidate):
            found = candidate
    return found
