"""`count` and `count_jaxpr`: the cost of a function or a program, without running it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, cast

from tracefx.core.jaxpr import ClosedJaxpr, Jaxpr
from tracefx.core.traceback_filtering import api_boundary
from tracefx.handlers.cost_analysis.analysis import CostAnalysis
from tracefx.handlers.cost_analysis.cost import Cost
from tracefx.handlers.cost_analysis.execution_counts import BRANCH_POLICIES, BranchPolicy, CostAssumptions
from tracefx.handlers.cost_analysis.rules import COST_RULES, CostRules
from tracefx.passes.dce import dce
from tracefx.transforms.arguments import require_callable
from tracefx.transforms.function_types import WrappedFunction
from tracefx.transforms.jit import BoundJitted, Jitted, jit


def count(
    fun: Callable[..., object], *, rules: CostRules = COST_RULES, branches: BranchPolicy = "max", while_steps: int = 1
) -> WrappedFunction[..., Cost]:
    """Returns a function that computes the cost of a call of `fun`, without running it.

    `fun` is traced, and the equations of its jaxpr are counted after dead-code elimination, each sub-jaxpr as often as
    it runs. A scan counts by its length, a `while_loop` by its `max_steps` if it has one.

    Args:
        fun: the function. Static and donated arguments of a jitted function remain so; the buffer of a donated
            argument counts as free after its last use.
        rules: the table of costs. `COST_RULES` has those of tracefx and can be extended by `adding`; a primitive that
            is `Costed` brings its own.
        branches: how branches of a `cond` count: only the one with the most operations (`"max"`) or the fewest
            (`"min"`), or all of them (`"sum"`).
        while_steps: the assumed number of iterations of a `while_loop` without `max_steps`; the source lines of such
            loops are listed in `Cost.unbounded`.

    Returns:
        A function that takes the arguments of `fun`, as arrays or as `ShapeDtypeStruct`s, and returns a `Cost`.

    Raises:
        TypeError: if `fun` is not callable or an argument is not an array.
        ValueError: if `branches` is none of the three or `while_steps` is negative.

    >>> import numpy as np
    >>> from tracefx.handlers import count
    >>> cost = count(lambda x, y: x @ y)(np.ones((4, 8), np.float32), np.ones((8, 16), np.float32))
    >>> cost.flops, cost.bytes_read, cost.bytes_written, cost.peak_bytes
    (1024, 640, 256, 896)
    """
    require_callable("count", fun)
    assumed = _assumptions("count", rules, branches, while_steps)
    jitted: Any = fun if isinstance(fun, Jitted | BoundJitted) else jit(fun)

    @api_boundary
    @functools.wraps(fun)
    def counted(*args: Any, **kwargs: Any) -> Cost:
        call = jitted.trace(*args, **kwargs)
        trace = call.trace
        return CostAnalysis(assumed).cost(dce(trace.jaxpr), len(trace.consts), call.donated, trace.name)

    return cast("WrappedFunction[..., Cost]", counted)


def count_jaxpr(
    jaxpr: Jaxpr | ClosedJaxpr,
    *,
    donated: Iterable[int] = (),
    rules: CostRules = COST_RULES,
    branches: BranchPolicy = "max",
    while_steps: int = 1,
) -> Cost:
    """Computes the cost of one run of a jaxpr as it is, without dead-code elimination.

    Args:
        jaxpr: the program.
        donated: the indices of the inputs whose buffers may be freed after their last use.
        rules: as for `count`.
        branches: as for `count`.
        while_steps: as for `count`.

    Returns:
        The cost.

    Raises:
        TypeError: if `jaxpr` is not a program.
        ValueError: if `donated` has an index out of range, and as for `count`.

    >>> from tracefx.programs import parse_jaxpr
    >>> count_jaxpr(parse_jaxpr("{ lambda ; x:f32[3]. let y:f32[3] = sin x in (y,) }")).transcendentals
    3
    """
    assumed = _assumptions("count_jaxpr", rules, branches, while_steps)
    if isinstance(jaxpr, ClosedJaxpr):
        jaxpr = jaxpr.jaxpr
    if not isinstance(jaxpr, Jaxpr):
        raise TypeError(f"count_jaxpr takes a Jaxpr or a ClosedJaxpr, got {jaxpr!r} of type {type(jaxpr).__name__}")
    indices, n = list(donated), len(jaxpr.constvars)
    for i in indices:
        if not 0 <= i < len(jaxpr.invars):
            raise ValueError(f"count_jaxpr: donated names input {i} of a program that has {len(jaxpr.invars)}")
    return CostAnalysis(assumed).cost(jaxpr.closed(), n, [n + i for i in indices], "program")


def _assumptions(what: str, rules: CostRules, branches: BranchPolicy, while_steps: int) -> CostAssumptions:
    if not isinstance(rules, CostRules):
        raise TypeError(f"{what}: rules must be CostRules, got {rules!r}; use COST_RULES.adding(kind, rule)")
    if branches not in BRANCH_POLICIES:
        raise ValueError(f"{what}: branches must be one of {', '.join(map(repr, BRANCH_POLICIES))}, got {branches!r}")
    if type(while_steps) is not int or while_steps < 0:
        raise ValueError(f"{what}: while_steps must be a number of steps, got {while_steps!r}")
    return CostAssumptions(rules, branches, while_steps)
