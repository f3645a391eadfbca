"""Peak live memory: the buffers that exist at once if a program's equations run in order.

The operands and results of an equation exist together, and a value exists until after its last use. There is no fusion,
and no rematerialization except what the program contains. Buffers are shared as by XLA: a view aliases its operand, an
in-place update reuses the buffer of an operand that is not used later, and a loop carry that of its initial value.
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
from tracefx.core import ShapedArray
from tracefx.core.jaxpr import Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.handlers.cost_analysis.execution_counts import Expansions, only_body
from tracefx.handlers.cost_analysis.rules import CostRules, is_bitcast
from tracefx.ops.annotations.optimization_barrier import OptimizationBarrier
from tracefx.ops.elementwise.bit_representation import BitcastConvertType
from tracefx.ops.elementwise.selection import StopGradient
from tracefx.ops.indexing.dynamic_slicing import DynamicUpdateSlice
from tracefx.ops.indexing.gather_scatter_add import ScatterOperation
from tracefx.ops.shape.shape import Squeeze
from tracefx.ops.structural import BroadcastInDim, ConvertElementType, Reshape
from tracefx.source_location import Provenance, SourceLocation

VIEWS: Final = (Reshape, Squeeze, StopGradient, BitcastConvertType, OptimizationBarrier, CheckpointName)
"""Primitives whose results alias their operands."""
IN_PLACE: Final = (DynamicUpdateSlice, ScatterOperation)
"""Primitives that update their first operand in place if it is not used later."""


def user_location(source: Provenance | None) -> SourceLocation | None:
    """Returns a source location without its `named_scope`s."""
    if source is None:
        return None
    position = source.resolve()
    return SourceLocation(position.file, position.line, position.function) if position.scope else position


@final
@frozen
class LiveBuffer:
    """A buffer in memory.

    Attributes:
        aval: its shape and dtype.
        operation: the name of the primitive that made it, or `argument` or `constant`.
        line: the line of user code that made it, or None.

    >>> import tracefx.numpy as fnp
    >>> from tracefx.handlers import count
    >>> [str(buffer.aval) for buffer in count(lambda x: x @ x)(fnp.ones((8, 8))).peak.buffers]
    ['f32[8,8]', 'f32[8,8]']
    """

    aval: ShapedArray
    operation: str
    line: SourceLocation | None

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.aval.nbytes

    @override
    def __str__(self) -> str:
        where = "" if self.line is None else f" at {self.line}"
        return f"{self.aval} of {self.operation}{where}"


@final
@frozen
class Peak:
    """The point of highest live memory in a program.

    Attributes:
        nbytes: the live memory in bytes.
        operation: the name of the primitive that runs at that point, or None for a program without equations.
        line: its line of user code, or None.
        buffers: the live buffers, largest first.

    >>> import tracefx.numpy as fnp
    >>> from tracefx.handlers import count
    >>> peak = count(lambda x: x @ x)(fnp.ones((8, 8))).peak
    >>> peak.nbytes, peak.operation
    (512, 'dot_general')
    """

    nbytes: int
    operation: str | None
    line: SourceLocation | None
    buffers: tuple[LiveBuffer, ...]

    @property
    def by_operation(self) -> Mapping[str, int]:
        """The bytes by the primitive that made them, largest first."""
        sizes: dict[str, int] = {}
        for each in self.buffers:
            sizes[each.operation] = sizes.get(each.operation, 0) + each.nbytes
        return MappingProxyType(dict(sorted(sizes.items(), key=lambda row: -row[1])))

    @property
    def by_line(self) -> Mapping[SourceLocation | None, int]:
        """The bytes by the line that made them, largest first; None for arguments and constants."""
        sizes: dict[SourceLocation | None, int] = {}
        for each in self.buffers:
            sizes[each.line] = sizes.get(each.line, 0) + each.nbytes
        return MappingProxyType(dict(sorted(sizes.items(), key=lambda row: -row[1])))


# ------------------------------------------------------------------ memory of sub-jaxprs


@final
@frozen(eq=False)
class RelativePeak:
    """The point of highest live memory of a jaxpr, relative to its inputs."""

    extra_bytes: int
    """The live bytes beyond those of all inputs; inputs freed by then are subtracted."""
    buffers: tuple[LiveBuffer, ...]
    freed_inputs: frozenset[int]
    """The indices of the inputs that are freed by then."""
    at: tuple[str, SourceLocation | None] | None
    """The primitive's name and its line."""


EMPTY_PEAK: Final = RelativePeak(0, (), frozenset(), None)


@final
@frozen(eq=False)
class BodyMemory:
    """The memory of a jaxpr: its peak, and the buffer number of each output.

    Outputs with equal numbers share a buffer; numbers below the number of inputs are the inputs' buffers.
    """

    peak: RelativePeak
    outs: tuple[int, ...]


@final
@frozen(eq=False)
class EquationMemory:
    """The memory of an equation with sub-jaxprs: its peak, and for each result the index of the operand it reuses.

    A negative number is a new buffer; equal numbers are the same buffer.
    """

    peak: RelativePeak
    outs: tuple[int, ...]


@final
@frozen
class MemoryLevels:
    """The live memory of a jaxpr beyond its inputs, before, during and after one equation."""

    before: int
    during: int
    after: int
    last: tuple[bool, ...]
    """For each operand, whether its buffer is free after the equation."""


@final
class PeakMemoryAnalysis:
    """Computes the peaks of jaxprs, each once for each set of inputs that may be freed."""

    def __init__(self, rules: CostRules, expansions: Expansions) -> None:
        self._rules = rules
        self._expansions = expansions
        self._known: dict[tuple[int, tuple[bool, ...]], tuple[Jaxpr, BodyMemory]] = {}
        self._kinds: dict[type[Primitive], str] = {}

    def body_memory(self, jaxpr: Jaxpr, dying: tuple[bool, ...]) -> BodyMemory:
        """Returns the memory of a jaxpr without constants that may free the inputs marked in `dying`."""
        key = (id(jaxpr), dying)
        entry = self._known.get(key)
        if entry is None:
            at = _Execution(self, jaxpr, dying)
            outs = at.run_all()
            peak = (
                EMPTY_PEAK if at.peak_index is None else _Execution(self, jaxpr, dying).peak_at(at.peak_index, at.peak)
            )
            entry = self._known[key] = jaxpr, BodyMemory(peak, outs)
        return entry[1]

    def timeline(self, jaxpr: Jaxpr, dying: tuple[bool, ...]) -> list[MemoryLevels]:
        """Returns the live memory around each equation of a jaxpr without constants; the largest is its peak.

        >>> from tracefx.handlers.cost_analysis.rules import COST_RULES
        >>> from tracefx.programs import parse_jaxpr
        >>> program = parse_jaxpr("{ lambda ; x:f32[2]. let y:f32[2] = sin x; z:f32[2] = sin y in (z,) }")
        >>> steps = PeakMemoryAnalysis(COST_RULES, Expansions()).timeline(program, (False,))
        >>> [(at.before, at.during, at.after) for at in steps]
        [(0, 8, 8), (8, 16, 8)]
        """
        run = _Execution(self, jaxpr, dying)
        levels = []
        for k, (eqn, unused) in enumerate(zip(jaxpr.eqns, jaxpr.last_uses, strict=True)):
            before, last = run.live, run.last(eqn, unused)
            run.peak = before  # so that the new peak is that of this equation
            run.step(k, eqn, unused)
            levels.append(MemoryLevels(before, run.peak, run.live, last))
        return levels

    def kind(self, prim: Primitive) -> str:
        """Returns how a primitive uses buffers: `view`, `may view`, `in place`, `carries` (a body) or `plain`."""
        kind = self._kinds.get(type(prim))
        if kind is None:
            kind = self._kinds[type(prim)] = self._kind_of(prim)
        return kind

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

    # -------------------------------------------------------------- equations with sub-jaxprs

    def equation_memory(self, eqn: Eqn, dying: tuple[bool, ...]) -> EquationMemory:
        """Returns the memory of an equation with sub-jaxprs; `dying` marks the operands that may be freed."""
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
        memory = self.body_memory(body, dying)
        n = len(dying)
        return EquationMemory(memory.peak, tuple([p if p < n else n - 1 - p for p in memory.outs]))

    def _expanded(self, eqn: Eqn, dying: tuple[bool, ...]) -> EquationMemory:
        body, n = self._expansions.of(eqn)
        memory = self.body_memory(body, (*(False,) * n, *dying))
        consts = [LiveBuffer(v.aval, "constant", user_location(eqn.source)) for v in body.invars[:n]]
        freed = frozenset([i - n for i in memory.peak.freed_inputs])
        peak = _add_buffers(RelativePeak(memory.peak.extra_bytes, memory.peak.buffers, freed, memory.peak.at), consts)
        first = len(body.invars)
        return EquationMemory(peak, tuple([p - n if n <= p < first else -1 - p for p in memory.outs]))

    def _scan(self, prim: Scan, eqn: Eqn, dying: tuple[bool, ...]) -> EquationMemory:
        n, m, count = prim.num_consts, prim.num_consts + prim.num_carry, len(eqn.inputs)
        outs = [i if dying[i] else -1 - i for i in range(n, m)]
        results = eqn.outs[prim.num_carry :]
        line = user_location(eqn.source)
        buffers = [LiveBuffer(v.aval, prim.name, line) for v in results]
        positions = (*outs, *[-1 - count - i for i in range(len(results))])
        if not prim.length:
            first = [LiveBuffer(eqn.outs[i - n].aval, prim.name, line) for i in range(n, m) if not dying[i]]
            return EquationMemory(_add_buffers(EMPTY_PEAK, buffers + first), positions)
        step = self.body_memory(prim.jaxpr, (*(False,) * n, *(True,) * (count - n))).peak
        fresh = {i: LiveBuffer(eqn.outs[i - n].aval, prim.name, line) for i in range(n, m) if not dying[i]}
        fresh |= {i: LiveBuffer(prim.jaxpr.invars[i].aval, prim.name, line) for i in range(m, count)}
        return EquationMemory(_add_buffers(_add_step_inputs(step, fresh), buffers), positions)

    def _while(self, prim: While, eqn: Eqn, dying: tuple[bool, ...]) -> EquationMemory:
        n, m = prim.cond_nconsts, prim.cond_nconsts + prim.body_nconsts
        carry = range(m, len(eqn.inputs))
        fresh = {
            i: LiveBuffer(eqn.outs[i - m].aval, prim.name, user_location(eqn.source)) for i in carry if not dying[i]
        }
        condition = self.body_memory(prim.cond_jaxpr, (False,) * len(prim.cond_jaxpr.invars)).peak
        step = self.body_memory(prim.body_jaxpr, (*(False,) * (m - n), *(True,) * len(carry))).peak
        body = RelativePeak(step.extra_bytes, step.buffers, frozenset([i + n for i in step.freed_inputs]), step.at)
        largest = body if body.extra_bytes >= condition.extra_bytes else condition
        return EquationMemory(_add_step_inputs(largest, fresh), tuple([i if dying[i] else -1 - i for i in carry]))

    def _cond(self, prim: Cond, eqn: Eqn, dying: tuple[bool, ...]) -> EquationMemory:
        line = user_location(eqn.source)
        peaks = []
        for branch in prim.branches:
            memory = self.body_memory(branch, dying)
            seen: set[int] = set()
            copies = []  # of operands and of repeated outputs, since every result of cond has its own buffer
            for position, v in zip(memory.outs, eqn.outs, strict=True):
                if position < len(dying) or position in seen:
                    copies.append(LiveBuffer(v.aval, prim.name, line))
                seen.add(position)
            peaks.append(_add_buffers(memory.peak, copies))
        largest = max(peaks, key=lambda p: p.extra_bytes)
        freed = frozenset([i + 1 for i in largest.freed_inputs])
        return EquationMemory(
            RelativePeak(largest.extra_bytes, largest.buffers, freed, largest.at), _fresh_buffers(eqn.outs)
        )


def _fresh_buffers(outs: Sequence[Var]) -> tuple[int, ...]:
    return tuple([-1 - i for i in range(len(outs))])


def _add_buffers(peak: RelativePeak, held: Sequence[LiveBuffer]) -> RelativePeak:
    """Returns the peak with more buffers that are live throughout."""
    return RelativePeak(
        peak.extra_bytes + sum(h.nbytes for h in held), (*peak.buffers, *held), peak.freed_inputs, peak.at
    )


def _add_step_inputs(peak: RelativePeak, fresh: Mapping[int, LiveBuffer]) -> RelativePeak:
    """Returns the peak of a loop body with inputs that are new buffers; those that are not freed by then are live."""
    more = peak.extra_bytes + sum(h.nbytes for h in fresh.values())
    live = [h for i, h in fresh.items() if i not in peak.freed_inputs]
    return RelativePeak(more, (*peak.buffers, *live), peak.freed_inputs - fresh.keys(), peak.at)


# ------------------------------------------------------------------ one jaxpr, equation by equation


@final
class _Execution:
    """Simulates the buffers of a jaxpr: their sizes and how many variables that are still read use each."""

    def __init__(self, memory: PeakMemoryAnalysis, jaxpr: Jaxpr, dying: tuple[bool, ...]) -> None:
        assert not jaxpr.constvars
        self.memory = memory
        self.jaxpr = jaxpr
        self.dying = dying
        self.buffer_of = [-1] * jaxpr.var_count
        self.sizes: list[int] = []
        self.use_counts: list[int] = []
        self.producers: list[tuple[Eqn, ShapedArray] | None] = []
        """The equation and type of each buffer; None for inputs, which the caller made."""
        self.live = 0
        """The live bytes beyond the inputs; freed inputs are subtracted."""
        self.peak = 0
        self.peak_index: int | None = None
        for v, may_free in zip(jaxpr.invars, dying, strict=True):
            self.buffer_of[v.index] = len(self.sizes)
            self.sizes.append(v.aval.nbytes)
            self.use_counts.append(1 if may_free else 2)  # the second use is the caller's
            self.producers.append(None)

    def run_all(self) -> tuple[int, ...]:
        """Runs all equations and returns the buffers of the outputs."""
        uses = self.jaxpr.last_uses
        for k, eqn in enumerate(self.jaxpr.eqns):
            self.step(k, eqn, uses[k])
        return self.outs()

    def outs(self) -> tuple[int, ...]:
        """Returns the buffers of the outputs; literals get new ones."""
        free = len(self.sizes)
        return tuple([self.buffer_of[x.index] if type(x) is Var else free + i for i, x in enumerate(self.jaxpr.outs)])

    def peak_at(self, highest: int, peak: int) -> RelativePeak:
        """Runs the jaxpr up to the equation at its peak and returns the values that are live while that one runs."""
        jaxpr = self.jaxpr
        for k in range(highest):
            self.step(k, jaxpr.eqns[k], jaxpr.last_uses[k])
        eqn = jaxpr.eqns[highest]
        freed = {i for i in range(len(jaxpr.invars)) if not self.use_counts[i]}
        inner: Iterable[LiveBuffer] = ()
        at: tuple[str, SourceLocation | None] = eqn.prim.name, user_location(eqn.source)
        freed_operands: set[int] = set()
        if self.memory.kind(eqn.prim) == "carries":
            inner_peak = self.memory.equation_memory(eqn, self.last(eqn, jaxpr.last_uses[highest])).peak
            inner, at = inner_peak.buffers, inner_peak.at or at
            freed_operands = {
                self.buffer_of[x.index]
                for i, x in enumerate(eqn.inputs)
                if i in inner_peak.freed_inputs and type(x) is Var
            }
            freed |= {p for p in freed_operands if p < len(jaxpr.invars)}
        else:
            self.step(highest, eqn, ())
        held = [
            LiveBuffer(maker[1], maker[0].prim.name, user_location(maker[0].source))
            for p, maker in enumerate(self.producers)
            if maker is not None and self.use_counts[p] and p not in freed_operands
        ]
        return RelativePeak(peak, (*held, *inner), frozenset(freed), at)

    def step(self, k: int, eqn: Eqn, unused: Sequence[int]) -> None:
        """Runs one equation and frees the buffers that are not used later."""
        kind = self.memory.kind(eqn.prim)
        if kind == "carries":
            self.step_bodies(k, eqn, unused)
        else:
            if kind == "plain" or (kind == "may view" and not self.is_bitcast(eqn)):
                for v in eqn.outs:
                    self.allocate(eqn, v)
            elif kind != "in place":
                for v, x in zip(eqn.outs, eqn.inputs, strict=True):
                    self.alias(eqn, v, self.buffer_of[x.index] if type(x) is Var else None)
            else:
                x = eqn.inputs[0]
                self.alias(
                    eqn, eqn.outs[0], self.buffer_of[x.index] if type(x) is Var and self.last(eqn, unused)[0] else None
                )
            self.update_peak(k, self.live)
        for index in unused:
            position = self.buffer_of[index]
            self.use_counts[position] -= 1
            if not self.use_counts[position]:
                self.live -= self.sizes[position]

    @staticmethod
    def is_bitcast(eqn: Eqn) -> bool:
        x = eqn.inputs[0]
        return type(x) is Var and is_bitcast(eqn.prim, x.aval, eqn.outs[0].aval)

    def step_bodies(self, k: int, eqn: Eqn, unused: Sequence[int]) -> None:
        """Runs an equation with sub-jaxprs, whose own peak includes the buffers made and freed inside."""
        effect = self.memory.equation_memory(eqn, self.last(eqn, unused))
        self.update_peak(k, self.live + effect.peak.extra_bytes)
        own: dict[int, int] = {}
        for v, out in zip(eqn.outs, effect.outs, strict=True):
            x = eqn.inputs[out] if out >= 0 else None
            self.alias(eqn, v, self.buffer_of[x.index] if type(x) is Var else own.get(out))
            own[out] = self.buffer_of[v.index]

    def last(self, eqn: Eqn, unused: Sequence[int]) -> tuple[bool, ...]:
        """Returns for each operand whether its buffer is free after the equation."""
        positions = [self.buffer_of[x.index] if type(x) is Var else -1 for x in eqn.inputs]
        return tuple(
            [
                type(x) is Var and x.index in unused and self.use_counts[p] == 1 and positions.count(p) == 1
                for x, p in zip(eqn.inputs, positions, strict=True)
            ]
        )

    def update_peak(self, k: int, live: int) -> None:
        if live > self.peak:
            self.peak, self.peak_index = live, k

    def allocate(self, eqn: Eqn, v: Var) -> None:
        """Makes a new buffer for a value."""
        size = v.aval.nbytes
        self.buffer_of[v.index] = len(self.sizes)
        self.sizes.append(size)
        self.use_counts.append(1)
        self.producers.append((eqn, v.aval))
        self.live += size

    def alias(self, eqn: Eqn, v: Var, position: int | None) -> None:
        """Puts a value into an existing buffer, or into a new one."""
        if position is None:
            self.allocate(eqn, v)
        else:
            self.buffer_of[v.index] = position
            self.use_counts[position] += 1
