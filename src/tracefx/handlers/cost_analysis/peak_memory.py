"""Peak live memory: the values of a program that exist at once, if it runs in its order.

An operation's operands and results exist together, and a value until after its last use. Nothing is fused and nothing
computed again but what the program says. What XLA does with places is done with them here: views share the place of
what they show, an update in place takes that of the operand nobody reads any more, a loop's carry that of the values
it begins with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, final

from attrs import frozen
from typing_extensions import override

from tracefx.control.checkpoint import CheckpointName
from tracefx.control.cond import Cond
from tracefx.control.scan import Scan
from tracefx.control.while_loop import While
from tracefx.core.avals import ShapedArray
from tracefx.core.jaxpr import Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.core.source_location import Provenance, SourceLocation
from tracefx.handlers.cost_analysis.execution_counts import Expansions, only_body
from tracefx.handlers.cost_analysis.rules import CostRules, is_bitcast
from tracefx.ops.annotations.optimization_barrier import OptimizationBarrier
from tracefx.ops.elementwise.bit_representation import BitcastConvertType
from tracefx.ops.elementwise.selection import StopGradient
from tracefx.ops.indexing.dynamic_slicing import DynamicUpdateSlice
from tracefx.ops.indexing.gather_scatter_add import ScatterOperation
from tracefx.ops.shape.shape import Squeeze
from tracefx.ops.structural import BroadcastInDim, ConvertElementType, Reshape

VIEWS: Final = (Reshape, Squeeze, StopGradient, BitcastConvertType, OptimizationBarrier, CheckpointName)
"""Operations each of whose results is an operand, in the same place."""
IN_PLACE: Final = (DynamicUpdateSlice, ScatterOperation)
"""Operations that write into their first operand, if nobody needs it any more."""


def user_location(source: Provenance | None) -> SourceLocation | None:
    """Where something was written, whatever the `named_scope`s around it."""
    if source is None:
        return None
    place = source.resolve()
    return SourceLocation(place.file, place.line, place.function) if place.scope else place


@final
@frozen
class LiveBuffer:
    """A value in memory: its type, the operation that made it (`argument` and `constant` among them), and where."""

    aval: ShapedArray
    operation: str
    line: SourceLocation | None

    @property
    def nbytes(self) -> int:
        return self.aval.nbytes

    @override
    def __str__(self) -> str:
        where = "" if self.line is None else f" at {self.line}"
        return f"{self.aval} of {self.operation}{where}"


@final
@frozen
class Peak:
    """The moment at which a program holds most: how much, what runs then, and the values it holds, largest first."""

    nbytes: int
    operation: str | None
    line: SourceLocation | None
    buffers: tuple[LiveBuffer, ...]

    @property
    def by_operation(self) -> Mapping[str, int]:
        """Bytes by the operation that made them, most first."""
        sizes: dict[str, int] = {}
        for each in self.buffers:
            sizes[each.operation] = sizes.get(each.operation, 0) + each.nbytes
        return MappingProxyType(dict(sorted(sizes.items(), key=lambda row: -row[1])))

    @property
    def by_line(self) -> Mapping[SourceLocation | None, int]:
        """Bytes by the line that made them, most first; arguments and constants have none."""
        sizes: dict[SourceLocation | None, int] = {}
        for each in self.buffers:
            sizes[each.line] = sizes.get(each.line, 0) + each.nbytes
        return MappingProxyType(dict(sorted(sizes.items(), key=lambda row: -row[1])))


# ------------------------------------------------------------------ a program inside of another


@final
@frozen(eq=False)
class RelativePeak:
    """The moment at which a program holds most beside its inputs."""

    extra_bytes: int
    """Bytes beside those of the inputs: less than those held, where inputs are gone by then."""
    buffers: tuple[LiveBuffer, ...]
    freed_inputs: frozenset[int]
    """The places of the inputs that are gone by then."""
    at: tuple[str, SourceLocation | None] | None
    """The operation and its line."""


EMPTY_PEAK: Final = RelativePeak(0, (), frozenset(), None)


@final
@frozen(eq=False)
class BodyMemory:
    """What running a program takes: its peak, and for every output its place.

    Outputs of one place are one value; places below the number of inputs are inputs.
    """

    peak: RelativePeak
    outs: tuple[int, ...]


@final
@frozen(eq=False)
class EquationMemory:
    """What an operation that carries programs does: its peak, and for every result the operand in whose place it is.

    A negative number stands for a place of its own, the same number for the same place.
    """

    peak: RelativePeak
    outs: tuple[int, ...]


@final
@frozen
class MemoryLevels:
    """What a program holds beside its inputs around one equation: before it, while it runs, and after it."""

    before: int
    during: int
    after: int
    last: tuple[bool, ...]
    """For every operand whether its place is nobody's after the equation."""


@final
class PeakMemoryAnalysis:
    """Peaks of programs. Each is looked at once, for each set of inputs that nobody needs afterwards."""

    def __init__(self, rules: CostRules, expansions: Expansions) -> None:
        self._rules = rules
        self._expansions = expansions
        self._known: dict[tuple[int, tuple[bool, ...]], tuple[Jaxpr, BodyMemory]] = {}
        self._kinds: dict[type[Primitive], str] = {}

    def body_memory(self, jaxpr: Jaxpr, dying: tuple[bool, ...]) -> BodyMemory:
        """The peak of a program without constants, if it may let go of the inputs that are `dying`."""
        key = (id(jaxpr), dying)
        found = self._known.get(key)
        if found is None:
            at = _Execution(self, jaxpr, dying)
            last = at.run_all()
            moment = (
                EMPTY_PEAK if at.peak_index is None else _Execution(self, jaxpr, dying).peak_at(at.peak_index, at.peak)
            )
            found = self._known[key] = jaxpr, BodyMemory(moment, last)
        return found[1]

    def timeline(self, jaxpr: Jaxpr, dying: tuple[bool, ...]) -> list[MemoryLevels]:
        """What a program without constants holds from equation to equation; the largest is its peak.

            >>> from tracefx.handlers.cost_analysis.rules import COST_RULES
            >>> from tracefx.programs import parse_jaxpr
            >>> program = parse_jaxpr("{ lambda ; x:f32[2]. let y:f32[2] = sin x; z:f32[2] = sin y in (z,) }")
            >>> steps = PeakMemoryAnalysis(COST_RULES, Expansions()).course(program, (False,))
        >>> [(at.before, at.during, at.after) for at in steps]
            [(0, 8, 8), (8, 16, 8)]
        """
        run = _Execution(self, jaxpr, dying)
        course = []
        for k, (eqn, unused) in enumerate(zip(jaxpr.eqns, jaxpr.last_uses, strict=True)):
            before, last = run.live, run.last(eqn, unused)
            run.peak = before  # so that it comes to be this equation's
            run.step(k, eqn, unused)
            course.append(MemoryLevels(before, run.peak, run.live, last))
        return course

    def kind(self, prim: Primitive) -> str:
        """Whether an operation is a `view` or `may view`, `carries` programs, writes `in place`, or is `plain`."""
        found = self._kinds.get(type(prim))
        if found is None:
            found = self._kinds[type(prim)] = self._kind_of(prim)
        return found

    def _kind_of(self, prim: Primitive) -> str:
        if isinstance(prim, VIEWS):
            return "view"
        if isinstance(prim, (BroadcastInDim, ConvertElementType)):
            return "may view"
        if isinstance(prim, IN_PLACE):
            return "in place"
        if isinstance(prim, HasSubjaxprs):
            return "carries"
        return "carries" if self._expansions.is_expanded(prim, self._rules) else "plain"

    # -------------------------------------------------------------- operations that carry programs

    def equation_memory(self, eqn: Eqn, dying: tuple[bool, ...]) -> EquationMemory:
        prim = eqn.prim
        body = only_body(prim)
        if body is not None:
            return self._called(body, dying)
        if isinstance(prim, Scan):
            return self._scan(prim, eqn, dying)
        if isinstance(prim, While):
            return self._while(prim, eqn, dying)
        if isinstance(prim, Cond):
            return self._cond(prim, eqn, dying[1:])
        if self._expansions.is_expanded(prim, self._rules):
            return self._expanded(eqn, dying)
        assert isinstance(prim, HasSubjaxprs)
        own = [LiveBuffer(v.aval, prim.name, user_location(eqn.source)) for v in eqn.outs]
        peaks = [self.body_memory(j, (False,) * len(j.invars)).peak for j in prim.jaxprs()]
        largest = max(peaks, key=lambda p: p.extra_bytes, default=EMPTY_PEAK)
        return EquationMemory(_add_buffers(largest, own), _fresh_buffers(eqn.outs))

    def _called(self, body: Jaxpr, dying: tuple[bool, ...]) -> EquationMemory:
        inside = self.body_memory(body, dying)
        n = len(dying)
        return EquationMemory(inside.peak, tuple([p if p < n else n - 1 - p for p in inside.outs]))

    def _expanded(self, eqn: Eqn, dying: tuple[bool, ...]) -> EquationMemory:
        body, n = self._expansions.of(eqn)
        inside = self.body_memory(body, (*(False,) * n, *dying))
        consts = [LiveBuffer(v.aval, "constant", user_location(eqn.source)) for v in body.invars[:n]]
        gone = frozenset([i - n for i in inside.peak.freed_inputs])
        peak = _add_buffers(RelativePeak(inside.peak.extra_bytes, inside.peak.buffers, gone, inside.peak.at), consts)
        first = len(body.invars)
        return EquationMemory(peak, tuple([p - n if n <= p < first else -1 - p for p in inside.outs]))

    def _scan(self, prim: Scan, eqn: Eqn, dying: tuple[bool, ...]) -> EquationMemory:
        n, m, count = prim.num_consts, prim.num_consts + prim.num_carry, len(eqn.inputs)
        outs = [i if dying[i] else -1 - i for i in range(n, m)]
        results = eqn.outs[prim.num_carry :]
        line = user_location(eqn.source)
        buffers = [LiveBuffer(v.aval, prim.name, line) for v in results]
        places = (*outs, *[-1 - count - i for i in range(len(results))])
        if not prim.length:
            first = [LiveBuffer(eqn.outs[i - n].aval, prim.name, line) for i in range(n, m) if not dying[i]]
            return EquationMemory(_add_buffers(EMPTY_PEAK, buffers + first), places)
        step = self.body_memory(prim.jaxpr, (*(False,) * n, *(True,) * (count - n))).peak
        fresh = {i: LiveBuffer(eqn.outs[i - n].aval, prim.name, line) for i in range(n, m) if not dying[i]}
        fresh |= {i: LiveBuffer(prim.jaxpr.invars[i].aval, prim.name, line) for i in range(m, count)}
        return EquationMemory(_add_buffers(_add_step_inputs(step, fresh), buffers), places)

    def _while(self, prim: While, eqn: Eqn, dying: tuple[bool, ...]) -> EquationMemory:
        n, m = prim.cond_nconsts, prim.cond_nconsts + prim.body_nconsts
        carry = range(m, len(eqn.inputs))
        fresh = {
            i: LiveBuffer(eqn.outs[i - m].aval, prim.name, user_location(eqn.source)) for i in carry if not dying[i]
        }
        asked = self.body_memory(prim.cond_jaxpr, (False,) * len(prim.cond_jaxpr.invars)).peak
        step = self.body_memory(prim.body_jaxpr, (*(False,) * (m - n), *(True,) * len(carry))).peak
        ours = RelativePeak(step.extra_bytes, step.buffers, frozenset([i + n for i in step.freed_inputs]), step.at)
        largest = ours if ours.extra_bytes >= asked.extra_bytes else asked
        return EquationMemory(_add_step_inputs(largest, fresh), tuple([i if dying[i] else -1 - i for i in carry]))

    def _cond(self, prim: Cond, eqn: Eqn, dying: tuple[bool, ...]) -> EquationMemory:
        line = user_location(eqn.source)
        peaks = []
        for branch in prim.branches:
            inside = self.body_memory(branch, dying)
            seen: set[int] = set()
            copies = []  # of operands, and of what is given twice: all results have places of their own
            for place, v in zip(inside.outs, eqn.outs, strict=True):
                if place < len(dying) or place in seen:
                    copies.append(LiveBuffer(v.aval, prim.name, line))
                seen.add(place)
            peaks.append(_add_buffers(inside.peak, copies))
        largest = max(peaks, key=lambda p: p.extra_bytes)
        gone = frozenset([i + 1 for i in largest.freed_inputs])
        return EquationMemory(
            RelativePeak(largest.extra_bytes, largest.buffers, gone, largest.at), _fresh_buffers(eqn.outs)
        )


def _fresh_buffers(outs: Sequence[Var]) -> tuple[int, ...]:
    return tuple([-1 - i for i in range(len(outs))])


def _add_buffers(peak: RelativePeak, held: Sequence[LiveBuffer]) -> RelativePeak:
    """The moment, with more values that are held all along."""
    return RelativePeak(
        peak.extra_bytes + sum(h.nbytes for h in held), (*peak.buffers, *held), peak.freed_inputs, peak.at
    )


def _add_step_inputs(peak: RelativePeak, fresh: Mapping[int, LiveBuffer]) -> RelativePeak:
    """The moment of a step, for which inputs were made that are no operands: those not yet gone are held."""
    more = peak.extra_bytes + sum(h.nbytes for h in fresh.values())
    still = [h for i, h in fresh.items() if i not in peak.freed_inputs]
    return RelativePeak(more, (*peak.buffers, *still), peak.freed_inputs - fresh.keys(), peak.at)


# ------------------------------------------------------------------ one program, from its first equation to its last


@final
class _Execution:
    """Places, with their sizes and how many variables that are still read are in them."""

    def __init__(self, memory: PeakMemoryAnalysis, jaxpr: Jaxpr, dying: tuple[bool, ...]) -> None:
        assert not jaxpr.constvars
        self.memory = memory
        self.jaxpr = jaxpr
        self.dying = dying
        self.place = [-1] * jaxpr.var_count
        self.sizes: list[int] = []
        self.use_counts: list[int] = []
        self.producers: list[tuple[Eqn, ShapedArray] | None] = []
        """Of what the program makes; its inputs are their callers'."""
        self.live = 0
        """Beside the inputs; what is gone of these is taken off."""
        self.peak = 0
        self.peak_index: int | None = None
        for v, let_go in zip(jaxpr.invars, dying, strict=True):
            self.place[v.index] = len(self.sizes)
            self.sizes.append(v.aval.nbytes)
            self.use_counts.append(1 if let_go else 2)  # the second reader is whoever called
            self.producers.append(None)

    def run_all(self) -> tuple[int, ...]:
        """Run all of it; the places of the outputs."""
        uses = self.jaxpr.last_uses
        for k, eqn in enumerate(self.jaxpr.eqns):
            self.step(k, eqn, uses[k])
        return self.outs()

    def outs(self) -> tuple[int, ...]:
        free = len(self.sizes)
        return tuple([self.place[x.index] if type(x) is Var else free + i for i, x in enumerate(self.jaxpr.outs)])

    def peak_at(self, highest: int, peak: int) -> RelativePeak:
        """Run up to an equation, and say what is held while it runs."""
        jaxpr = self.jaxpr
        for k in range(highest):
            self.step(k, jaxpr.eqns[k], jaxpr.last_uses[k])
        eqn = jaxpr.eqns[highest]
        gone = {i for i in range(len(jaxpr.invars)) if not self.use_counts[i]}
        inner: Iterable[LiveBuffer] = ()
        at: tuple[str, SourceLocation | None] = eqn.prim.name, user_location(eqn.source)
        hidden: set[int] = set()
        if self.memory.kind(eqn.prim) == "carries":
            moment = self.memory.equation_memory(eqn, self.last(eqn, jaxpr.last_uses[highest])).peak
            inner, at = moment.buffers, moment.at or at
            hidden = {
                self.place[x.index] for i, x in enumerate(eqn.inputs) if i in moment.freed_inputs and type(x) is Var
            }
            gone |= {p for p in hidden if p < len(jaxpr.invars)}
        else:
            self.step(highest, eqn, ())
        held = [
            LiveBuffer(maker[1], maker[0].prim.name, user_location(maker[0].source))
            for p, maker in enumerate(self.producers)
            if maker is not None and self.use_counts[p] and p not in hidden
        ]
        return RelativePeak(peak, (*held, *inner), frozenset(gone), at)

    def step(self, k: int, eqn: Eqn, unused: Sequence[int]) -> None:
        """Run one equation, and let go of what is not used after it."""
        kind = self.memory.kind(eqn.prim)
        if kind == "carries":
            self.step_bodies(k, eqn, unused)
        else:
            if kind == "plain" or (kind == "may view" and not self.is_bitcast(eqn)):
                for v in eqn.outs:
                    self.allocate(eqn, v)
            elif kind != "in place":
                for v, x in zip(eqn.outs, eqn.inputs, strict=True):
                    self.alias(eqn, v, self.place[x.index] if type(x) is Var else None)
            else:
                x = eqn.inputs[0]
                self.alias(
                    eqn, eqn.outs[0], self.place[x.index] if type(x) is Var and self.last(eqn, unused)[0] else None
                )
            self.update_peak(k, self.live)
        for index in unused:
            place = self.place[index]
            self.use_counts[place] -= 1
            if not self.use_counts[place]:
                self.live -= self.sizes[place]

    @staticmethod
    def is_bitcast(eqn: Eqn) -> bool:
        x = eqn.inputs[0]
        return type(x) is Var and is_bitcast(eqn.prim, x.aval, eqn.outs[0].aval)

    def step_bodies(self, k: int, eqn: Eqn, unused: Sequence[int]) -> None:
        """Run an equation that carries programs; what is made and let go inside is in its own peak."""
        effect = self.memory.equation_memory(eqn, self.last(eqn, unused))
        self.update_peak(k, self.live + effect.peak.extra_bytes)
        own: dict[int, int] = {}
        for v, out in zip(eqn.outs, effect.outs, strict=True):
            x = eqn.inputs[out] if out >= 0 else None
            self.alias(eqn, v, self.place[x.index] if type(x) is Var else own.get(out))
            own[out] = self.place[v.index]

    def last(self, eqn: Eqn, unused: Sequence[int]) -> tuple[bool, ...]:
        """For every operand whether its place is nobody's after the equation."""
        places = [self.place[x.index] if type(x) is Var else -1 for x in eqn.inputs]
        return tuple(
            [
                type(x) is Var and x.index in unused and self.use_counts[p] == 1 and places.count(p) == 1
                for x, p in zip(eqn.inputs, places, strict=True)
            ]
        )

    def update_peak(self, k: int, live: int) -> None:
        if live > self.peak:
            self.peak, self.peak_index = live, k

    def allocate(self, eqn: Eqn, v: Var) -> None:
        """A place for a new value."""
        size = v.aval.nbytes
        self.place[v.index] = len(self.sizes)
        self.sizes.append(size)
        self.use_counts.append(1)
        self.producers.append((eqn, v.aval))
        self.live += size

    def alias(self, eqn: Eqn, v: Var, place: int | None) -> None:
        """A value in a place that is there, or in a new one."""
        if place is None:
            self.allocate(eqn, v)
        else:
            self.place[v.index] = place
            self.use_counts[place] += 1
