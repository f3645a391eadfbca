"""`CostAnalysis`: counts a program, looking at each sub-jaxpr once and multiplying by the number of its runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast, final

from tracefx.control.while_loop import While
from tracefx.core.jaxpr import ClosedJaxpr, Eqn, Jaxpr
from tracefx.filtered_tracebacks import api_boundary
from tracefx.handlers.cost_analysis.cost import Cost, Work
from tracefx.handlers.cost_analysis.equation_costs import EquationCosts
from tracefx.handlers.cost_analysis.execution_counts import BRANCH_POLICIES, BranchPolicy, CostAssumptions
from tracefx.handlers.cost_analysis.peak_memory import LiveBuffer, Peak, user_location
from tracefx.handlers.cost_analysis.rules import COST_RULES, CostRules
from tracefx.passes.dce import dce
from tracefx.source_location import LazySourceLocation, Provenance, SourceLocation
from tracefx.transforms.arguments import require_callable
from tracefx.transforms.function_types import WrappedFunction
from tracefx.transforms.jit import BoundJitted, Jitted, jit

K = TypeVar("K")
WorkSums: TypeAlias = list[int]
"""The fields of a `Work` while they are summed."""
ScopePath: TypeAlias = tuple[str, ...]
ScopePathCounts: TypeAlias = dict[ScopePath, int]
"""The number of runs of a body, by the path of `named_scope`s around it."""
MAX_SCOPE_PATHS: Final = 256
"""With more paths to a body only the outermost scope counts, since their number can grow exponentially."""


@final
class CostAnalysis:
    """Counts one program."""

    def __init__(self, assumed: CostAssumptions) -> None:
        self._assumed = assumed
        self._costs = EquationCosts(assumed)
        self._by_operation: dict[str, WorkSums] = {}
        self._by_line: dict[object, WorkSums] = {}
        self._places: dict[object, Provenance | None] = {}
        self._unbounded: dict[SourceLocation | None, None] = {}

    def cost(self, jaxpr: Jaxpr, constants: int, donated: Sequence[int], name: str) -> Cost:
        """Returns the cost of a jaxpr whose first inputs are constants; inputs at `donated` may be freed early."""
        paths: dict[int, ScopePathCounts] = {id(jaxpr): {(): 1}}
        by_scope: dict[str, WorkSums] = {}
        for body in self._topological_order(jaxpr):
            reached = paths[id(body)]
            count = sum(reached.values())
            if not count:
                continue
            within: dict[ScopePath, WorkSums] = {}
            for eqn in body.eqns:
                scope = () if eqn.source is None else eqn.source.scope
                work = self._costs.self_work(eqn)
                if work.runs:
                    self._add(eqn, work, count, within.setdefault(scope, [0] * 6))
                for inner, repeated in self._costs.executed_bodies(eqn):
                    paths[id(inner)] = _merge_scope_paths(paths.get(id(inner), {}), reached, scope, repeated)
                if type(eqn.prim) is While and eqn.prim.max_steps is None:
                    self._unbounded[user_location(eqn.source)] = None
            for path, times in reached.items():
                for scope, sums in within.items():
                    names = (*path, *scope)
                    for depth in range(len(names)):
                        _accumulate(by_scope.setdefault("/".join(names[: depth + 1]), [0] * 6), sums, times)
        by_line: dict[SourceLocation | None, WorkSums] = {}
        for key, sums in self._by_line.items():
            line = user_location(self._places[key])
            _accumulate(by_line.setdefault(line, [0] * 6), sums)
        total = [0] * 6
        for sums in self._by_operation.values():
            _accumulate(total, sums)
        sizes = [a.nbytes for a in jaxpr.in_avals]
        return Cost(
            name,
            Work(*total),
            _sort_by_cost(self._by_operation),
            _sort_by_cost(by_line),
            _sort_by_cost(by_scope),
            self._peak(jaxpr, constants, donated),
            sum(sizes[constants:]),
            sum(sizes[:constants]),
            sum(a.nbytes for a in jaxpr.out_avals),
            tuple(self._unbounded),
            self._assumed.while_steps,
        )

    def _add(self, eqn: Eqn, work: Work, count: int, scope: WorkSums) -> None:
        """Adds an equation that runs `count` times to the totals, and one run of it to the sums of its scope."""
        source = eqn.source
        key = (id(source.code), source.lasti) if type(source) is LazySourceLocation else source
        line = self._by_line.get(key)
        if line is None:
            line = self._by_line[key] = [0] * 6
            self._places[key] = source  # keeps the code object alive, whose id is the key
        name = eqn.prim.name
        operation = self._by_operation.get(name)
        if operation is None:
            operation = self._by_operation[name] = [0] * 6
        for sums, times in ((operation, count), (line, count), (scope, 1)):
            sums[0] += times
            sums[1] += times * work.flops
            sums[2] += times * work.transcendentals
            sums[3] += times * work.integer_ops
            sums[4] += times * work.bytes_read
            sums[5] += times * work.bytes_written

    # -------------------------------------------------------------- the whole program

    def _topological_order(self, jaxpr: Jaxpr) -> list[Jaxpr]:
        """Returns the jaxpr and all counted sub-jaxprs, each once and before those that it runs."""
        order: list[Jaxpr] = []
        seen: set[int] = set()

        def visit(body: Jaxpr) -> None:
            seen.add(id(body))
            for eqn in body.eqns:
                for inner, _ in self._costs.executed_bodies(eqn):
                    if id(inner) not in seen:
                        visit(inner)
            order.append(body)

        visit(jaxpr)
        order.reverse()
        return order

    def _peak(self, jaxpr: Jaxpr, constants: int, donated: Sequence[int]) -> Peak:
        donated_set = set(donated)
        dying = tuple([i in donated_set for i in range(len(jaxpr.invars))])
        peak = self._costs.memory.body_memory(jaxpr, dying).peak
        inputs = [
            LiveBuffer(v.aval, "constant" if i < constants else "argument", None)
            for i, v in enumerate(jaxpr.invars)
            if i not in peak.freed_inputs
        ]
        held = sorted([*inputs, *peak.buffers], key=lambda h: -h.nbytes)
        operation, line = peak.at or (None, None)
        return Peak(sum(a.nbytes for a in jaxpr.in_avals) + peak.extra_bytes, operation, line, tuple(held))


def _accumulate(sums: WorkSums, more: WorkSums, times: int = 1) -> None:
    for i, n in enumerate(more):
        sums[i] += times * n


def _merge_scope_paths(
    known: ScopePathCounts, outside: ScopePathCounts, scope: ScopePath, repeated: int
) -> ScopePathCounts:
    """Adds the paths through one more equation to the paths that reach a body."""
    for path, times in outside.items():
        inside = (*path, *scope)
        known[inside] = known.get(inside, 0) + times * repeated
    if len(known) <= MAX_SCOPE_PATHS:
        return known
    shorter: ScopePathCounts = {}
    for path, times in known.items():
        shorter[path[:1]] = shorter.get(path[:1], 0) + times
    return shorter


def _sort_by_cost(sums: dict[K, WorkSums]) -> dict[K, Work]:
    """Returns the rows sorted by decreasing operations, then bytes."""
    works = {key: Work(*each) for key, each in sums.items()}
    order = sorted(works.items(), key=lambda row: (-row[1].operations, -row[1].bytes_accessed, str(row[0])))
    return dict(order)


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
