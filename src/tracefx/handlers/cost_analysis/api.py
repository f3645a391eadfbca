"""`count`: what a function costs, without running it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, cast

from tracefx.core.jaxpr import ClosedJaxpr, Jaxpr
from tracefx.handlers.cost_analysis.analysis import CostAnalysis
from tracefx.handlers.cost_analysis.cost import Cost
from tracefx.handlers.cost_analysis.execution_counts import BRANCH_POLICIES, BranchPolicy, CostAssumptions
from tracefx.handlers.cost_analysis.rules import COST_RULES, CostRules
from tracefx.passes.dce import dce
from tracefx.transforms.arguments import require_callable
from tracefx.transforms.jit import BoundJitted, Jitted, jit
from tracefx.transforms.transform import WrappedFunction


def count(
    fun: Callable[..., object], *, rules: CostRules = COST_RULES, branches: BranchPolicy = "max", while_steps: int = 1
) -> WrappedFunction[..., Cost]:
    """A function that gives what a call of `fun` costs, for arguments that may be arrays or only types.

    Nothing is run: `fun` is traced, and its program counted without the equations nobody uses, body by body. A scan
    counts as often as it has steps, a `while_loop` with `max_steps` so many times, any other `while_steps` times; its
    line is in `Cost.unbounded`. Of the branches of a `cond` the one with the most operations counts
    (`branches="max"`), that with the fewest (`"min"`), or all of them (`"sum"`). `rules` says what operations cost; to
    those of tracefx, `COST_RULES`, more can be added, and an operation that is `Costed` says it itself.

    A jitted function's static arguments are static here, and its donated arguments' memory is let go of after the
    last use.

    `TypeError` if `fun` is no function or arguments are no arrays; `ValueError` for other `branches`, and for
    `while_steps` below 0.

    >>> import numpy as np
    >>> from tracefx.handlers import count
    >>> cost = count(lambda x, y: x @ y)(np.ones((4, 8), np.float32), np.ones((8, 16), np.float32))
    >>> cost.flops, cost.bytes_read, cost.bytes_written, cost.peak_bytes
    (1024, 640, 256, 896)
    """
    require_callable("count", fun)
    assumed = _assumptions("count", rules, branches, while_steps)
    jitted: Any = fun if isinstance(fun, Jitted | BoundJitted) else jit(fun)

    @functools.wraps(fun)
    def counted(*args: Any, **kwargs: Any) -> Cost:
        call = jitted.trace(*args, **kwargs)
        made = call.trace
        return CostAnalysis(assumed).cost(dce(made.jaxpr), len(made.consts), call.donated, made.name)

    return cast("WrappedFunction[..., Cost]", counted)


def count_jaxpr(
    jaxpr: Jaxpr | ClosedJaxpr,
    *,
    donated: Iterable[int] = (),
    rules: CostRules = COST_RULES,
    branches: BranchPolicy = "max",
    while_steps: int = 1,
) -> Cost:
    """What a run of a program costs, as it stands; `count` says how, and what may be chosen.

    `donated` are the places of the inputs whose memory may be let go of after the last use.

    >>> from tracefx.programs import parse_jaxpr
    >>> count_jaxpr(parse_jaxpr("{ lambda ; x:f32[3]. let y:f32[3] = sin x in (y,) }")).transcendentals
    3
    """
    assumed = _assumptions("count_jaxpr", rules, branches, while_steps)
    if isinstance(jaxpr, ClosedJaxpr):
        jaxpr = jaxpr.jaxpr
    if not isinstance(jaxpr, Jaxpr):
        raise TypeError(f"count_jaxpr takes a Jaxpr or a ClosedJaxpr, got {jaxpr!r} of type {type(jaxpr).__name__}")
    places, n = list(donated), len(jaxpr.constvars)
    for i in places:
        if not 0 <= i < len(jaxpr.invars):
            raise ValueError(f"count_jaxpr: donated names input {i} of a program that has {len(jaxpr.invars)}")
    return CostAnalysis(assumed).cost(jaxpr.closed(), n, [n + i for i in places], "program")


def _assumptions(what: str, rules: CostRules, branches: BranchPolicy, while_steps: int) -> CostAssumptions:
    if not isinstance(rules, CostRules):
        raise TypeError(f"{what}: rules must be CostRules, got {rules!r}; COST_RULES.adding(kind, rule) makes them")
    if branches not in BRANCH_POLICIES:
        raise ValueError(f"{what}: branches must be one of {', '.join(map(repr, BRANCH_POLICIES))}, got {branches!r}")
    if type(while_steps) is not int or while_steps < 0:
        raise ValueError(f"{what}: while_steps must be a number of steps, got {while_steps!r}")
    return CostAssumptions(rules, branches, while_steps)
