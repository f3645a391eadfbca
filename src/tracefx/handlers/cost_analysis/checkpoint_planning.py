"""`plan_checkpoints`: divides a program into checkpointed segments, so that its backward pass fits a memory budget.

A plan consists of segments of consecutive equations and of saved values. The backward pass of a segment recomputes its
values from those that its segment reads and from the saved ones. A plan is an ordinary program: a segment is a
`checkpoint` equation with a policy, and a saved value is named by `checkpoint_name`. So each plan is measured exactly,
by the costs and the peak memory of the program that computes its results and its gradients.

The search follows two known methods. Segments are cut where few bytes are live, for a series of sizes (Chen et al.,
"Training deep nets with sublinear memory cost", 2016). In each division, as many values are saved as the budget admits,
in the order of the operations that saving a byte avoids. The plan with the fewest operations wins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, final

from attrs import evolve, frozen

from tracefx.bounded_cache import memoize_on_object
from tracefx.control.call import Call
from tracefx.control.checkpoint import CheckpointName, CheckpointPrimitive
from tracefx.control.checkpointed_loops import sqrt_chunk_length
from tracefx.control.inlining import InlineOptions, inline_calls
from tracefx.control.remat import CheckpointPolicy
from tracefx.control.scan import Scan
from tracefx.core import Value, dtypes
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.primitive import Primitive, Transposable, UndefinedPrimal, Zero
from tracefx.handlers.cost_analysis.cost import format_si
from tracefx.handlers.cost_analysis.equation_costs import EquationCosts
from tracefx.handlers.cost_analysis.execution_counts import CostAssumptions
from tracefx.handlers.cost_analysis.rules import COST_RULES
from tracefx.interpreters.jaxpr_transforms import jvp_jaxpr, unzip_jaxpr
from tracefx.interpreters.stage import stage
from tracefx.interpreters.transpose import backward_pass
from tracefx.ops.elementwise.arithmetic import Sub
from tracefx.ops.elementwise.elementwise import Add
from tracefx.passes.dce import dce
from tracefx.passes.rebuilding import renumber
from tracefx.transforms.checkpoint_policies import (
    dots_saveable,
    dots_with_no_batch_dims_saveable,
    nothing_saveable,
    save_only_these_names,
)

SEGMENT_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64)
"""The numbers of segments that are tried, approximately."""
REFINED_DIVISIONS: Final = 3
"""The number of divisions for which values to save are chosen: those that need the least memory."""
STEPS: Final = 64
"""The number of values that are saved is a multiple of this part of all, approximately."""
POLICIES: Final[tuple[CheckpointPolicy, ...]] = (nothing_saveable, dots_saveable, dots_with_no_batch_dims_saveable)
"""Policies for the whole program that are tried too, so that no plan is worse than theirs."""


@final
@frozen(eq=False)
class CheckpointPlan:
    """A program with checkpoints.

    Attributes:
        jaxpr: The program.
        operations: The operations of its results and gradients, as counted by `count`.
        peak_bytes: The peak memory of computing them.
    """

    jaxpr: Jaxpr
    operations: int
    peak_bytes: int


@memoize_on_object
def plan_checkpoints(jaxpr: Jaxpr, budget: int) -> CheckpointPlan:
    """Returns the plan with the fewest operations within a budget; if none fits, the one with the least memory.

    Args:
        jaxpr: A program without constants.
        budget: The peak memory in bytes, with the inputs, the results, their cotangents and the gradients.
    """
    program = dce(inline_calls(jaxpr, InlineOptions()))
    planner = _Planner(budget)
    plans = [plan for variant in _scan_variants(program) for plan in planner.plans(variant)]
    within = [plan for plan in plans if plan.peak_bytes <= budget]
    if within:
        return min(within, key=lambda plan: (plan.operations, plan.peak_bytes))
    return min(plans, key=lambda plan: (plan.peak_bytes, plan.operations))


def _scan_variants(program: Jaxpr) -> Iterator[Jaxpr]:
    """Yields the program, and if it has scans also with checkpoints for each of their steps and for chunks of these."""
    yield program
    if any(isinstance(eqn.prim, Scan) and eqn.prim.checkpoint is None for eqn in program.eqns):
        for chunked in (False, True):
            eqns = [Eqn(_checkpointed_scan(e.prim, chunked), e.inputs, e.outs, e.source) for e in program.eqns]
            yield evolve(program, eqns=tuple(eqns))


def _checkpointed_scan(prim: Primitive, chunked: bool) -> Primitive:
    if not isinstance(prim, Scan) or prim.checkpoint is not None:
        return prim
    return evolve(prim, checkpoint=sqrt_chunk_length(prim.length) if chunked else 1)


def forward_and_backward(jaxpr: Jaxpr) -> Jaxpr:
    """Returns the program that computes the results of a jaxpr, then the gradients of all inexact inputs.

    Its inputs are those of the jaxpr and the cotangents of the results that depend on inexact inputs.
    """
    active = tuple([dtypes.is_inexact(a.dtype) for a in jaxpr.in_avals])
    derived = jvp_jaxpr(jaxpr, active)
    n = len(derived.consts) + len(active)
    split = unzip_jaxpr(derived.jaxpr, (False,) * n + (True,) * sum(active))
    count = split.out_unknown.count(False)

    def run(*args: Value) -> list[Value]:
        known = eval_jaxpr(split.known, (), [*split.consts, *args[:n]])
        residuals = split.residuals(known[count:], args[:n])
        tangents = [UndefinedPrimal(a) for a in split.unknown.in_avals[len(residuals) :]]
        gradients = backward_pass(split.unknown, (), [*residuals, *tangents], args[n:])
        return [*known[:count], *[ct for ct in gradients if ct is not None and not isinstance(ct, Zero)]]

    staged, _ = stage(run, [*derived.jaxpr.in_avals[:n], *[a.tangent() for a in split.unknown.out_avals]])
    return dce(staged.closed())


@final
@frozen
class _Candidate:
    """A value that may be saved: the operations that it takes to recompute, per byte, and its position."""

    operations_per_byte: float
    position: int
    index: int
    label: str


@final
class _Planner:
    """Makes and measures plans."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._costs = EquationCosts(CostAssumptions(COST_RULES))
        self._bodies: dict[Jaxpr, Jaxpr] = {}
        """One object for all equal segments, so that their derivatives are traced once."""

    def plans(self, program: Jaxpr) -> Iterator[CheckpointPlan]:
        """Yields the best plans of a program for different divisions into segments."""
        plain = self._measure(program)
        yield plain
        if plain.peak_bytes <= self._budget:
            return
        for policy in POLICIES:
            yield self._measure(self._with_segments(program, (0,), {}, frozenset({0}), policy))
        candidates = self._candidates(program)
        divisions = {self._segment_starts(program, count): None for count in SEGMENT_COUNTS}
        smallest = {
            starts: self._measure(self._with_candidates(program, starts, candidates, 0)) for starts in divisions
        }
        yield from smallest.values()
        for starts in sorted(smallest, key=lambda starts: smallest[starts].peak_bytes)[:REFINED_DIVISIONS]:
            if smallest[starts].peak_bytes <= self._budget:
                yield from self._with_most_saved(program, starts, candidates)

    def _with_most_saved(
        self, program: Jaxpr, starts: tuple[int, ...], candidates: Sequence[_Candidate]
    ) -> Iterator[CheckpointPlan]:
        """Yields plans of a division that save more and more candidates, as many as fit, by bisection."""
        fits, exceeds = 0, len(candidates) + 1
        while exceeds - fits > 1 + len(candidates) // STEPS:
            middle = (fits + exceeds) // 2
            plan = self._measure(self._with_candidates(program, starts, candidates, middle))
            yield plan
            if plan.peak_bytes <= self._budget:
                fits = middle
            else:
                exceeds = middle

    def _measure(self, program: Jaxpr) -> CheckpointPlan:
        joint = forward_and_backward(program)
        memory = self._costs.memory.body_memory(joint, (False,) * len(joint.invars))
        peak = sum([a.nbytes for a in joint.in_avals]) + memory.peak.extra_bytes
        return CheckpointPlan(program, self._costs.program(joint).operations, peak)

    # -------------------------------------------------------------- which values to save

    def _candidates(self, program: Jaxpr) -> list[_Candidate]:
        """Returns the values that may be saved, those first that save the most operations per byte, the last first."""
        uses = Counter([x.index for eqn in program.eqns for x in eqn.inputs if type(x) is Var])
        operations: dict[int, int] = {}
        """The operations of computing a value, with those of values that are used for nothing but it."""
        candidates = []
        for position, eqn in enumerate(program.eqns):
            own = self._costs.equation(eqn).operations
            if _is_linear(eqn):
                own += sum([operations.get(x.index, 0) for x in eqn.inputs if type(x) is Var and uses[x.index] == 1])
            is_view = self._costs.memory.kind(eqn.prim) == "view"
            for v in eqn.outs:
                operations[v.index] = own
                if own and v.aval.nbytes and not is_view:
                    label = f"saved: {format_si(v.aval.nbytes, 'B')} avoid {format_si(own)} operations"
                    candidates.append(_Candidate(own / v.aval.nbytes, position, v.index, label))
        return sorted(candidates, key=lambda c: (-c.operations_per_byte, -c.position))

    def _with_candidates(
        self, program: Jaxpr, starts: tuple[int, ...], candidates: Sequence[_Candidate], count: int
    ) -> Jaxpr:
        """Returns the program with checkpointed segments, except those all of whose candidates are saved."""
        labels = {candidate.index: candidate.label for candidate in candidates[:count]}
        recomputed = {bisect_right(starts, candidate.position) - 1 for candidate in candidates[count:]}
        if len(starts) > 1:  # the backward pass starts with the last segment, whose values have just been computed
            recomputed.discard(len(starts) - 1)
        return self._with_segments(program, starts, labels, frozenset([starts[i] for i in recomputed]))

    # -------------------------------------------------------------- segments

    def _segment_starts(self, program: Jaxpr, count: int) -> tuple[int, ...]:
        """Returns the first equations of about `count` segments of similar size, cut where few bytes are live."""
        n = len(program.eqns)
        last_use = {x.index: i for i, eqn in enumerate(program.eqns) for x in eqn.inputs if type(x) is Var}
        last_use |= {x.index: n for x in program.outs if type(x) is Var}
        live, sizes = [0] * (n + 2), []
        for i, eqn in enumerate(program.eqns):
            is_view = self._costs.memory.kind(eqn.prim) == "view"
            sizes.append(0 if is_view else sum([v.aval.nbytes for v in eqn.outs]))
            for v in eqn.outs:
                live[i + 1] += v.aval.nbytes
                live[last_use.get(v.index, i) + 1] -= v.aval.nbytes
        for i in range(n + 1):
            live[i + 1] += live[i]
        most = sum(sizes) / count
        starts, size = [0], 0
        options: list[int] = []
        for i in range(1, n):
            size += sizes[i - 1]
            if size > most and options:
                start = min(options, key=lambda position: (live[position], -position))
                starts.append(start)
                size, options = sum(sizes[start:i]), [j for j in options if j > start]
            if 2 * size >= most:
                options.append(i)
        return tuple(starts)

    def _with_segments(
        self,
        program: Jaxpr,
        starts: tuple[int, ...],
        labels: dict[int, str],
        recomputed: frozenset[int],
        policy: CheckpointPolicy | None = None,
    ) -> Jaxpr:
        """Returns the program with a checkpoint around each segment that starts at an equation in `recomputed`."""
        n = len(program.eqns)
        last_use = {x.index: i for i, eqn in enumerate(program.eqns) for x in eqn.inputs if type(x) is Var}
        last_use |= {x.index: n for x in program.outs if type(x) is Var}
        eqns: list[Eqn] = []
        for start, stop in _ranges(starts, n):
            part = program.eqns[start:stop]
            if start not in recomputed:
                eqns += part
                continue
            inside = {v.index for eqn in part for v in eqn.outs}
            read = {x: None for eqn in part for x in eqn.inputs if type(x) is Var and x.index not in inside}
            outs = [v for eqn in part for v in eqn.outs if last_use.get(v.index, 0) >= stop]
            names = {v.index: RESULT for v in outs} | {i: labels[i] for i in inside & labels.keys()}
            body = _segment(part, tuple(read), outs, names, program.var_count)
            body = self._bodies.setdefault(body, body)
            saving = policy or save_only_these_names(*sorted(set(names.values())))
            eqns.append(Eqn(CheckpointPrimitive(body, policy=saving), tuple(read), tuple(outs), part[0].source))
        return evolve(program, eqns=tuple(eqns))


RESULT: Final = "saved: a result of the segment"


def _ranges(starts: tuple[int, ...], end: int) -> Iterable[tuple[int, int]]:
    return zip(starts, (*starts[1:], end), strict=True)


def _is_linear(eqn: Eqn) -> bool:
    """Whether the derivative of an equation needs none of its operands."""
    if isinstance(eqn.prim, Add | Sub):
        return True
    return isinstance(eqn.prim, Transposable) and sum([type(x) is Var for x in eqn.inputs]) == 1


def _segment(
    eqns: Sequence[Eqn], inputs: tuple[Var, ...], outs: Sequence[Var], labels: dict[int, str], free: int
) -> Jaxpr:
    """Returns a segment as a jaxpr, with names for its saved values."""
    named: dict[int, Var] = {}

    def read(x: Atom) -> Atom:
        return named.get(x.index, x) if type(x) is Var else x

    result = []
    for eqn in eqns:
        result.append(Eqn(eqn.prim, tuple(map(read, eqn.inputs)), eqn.outs, eqn.source))
        for v in eqn.outs:
            if v.index in labels:
                named[v.index] = Var(free + len(named), v.aval)
                result.append(Eqn(CheckpointName(labels[v.index]), (v,), (named[v.index],), eqn.source))
    return renumber(Jaxpr((), inputs, tuple(result), tuple(map(read, outs))))


def call_within_budget(jaxpr: Jaxpr, budget: int, name: str) -> tuple[Primitive, int]:
    """Returns the call of a program with checkpoints for a budget, and the peak memory of its backward pass."""
    plan = plan_checkpoints(jaxpr, budget)
    return Call(name, plan.jaxpr), plan.peak_bytes
