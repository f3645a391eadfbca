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

from tracefx.control.checkpoint import Name
from tracefx.control.cond import Cond
from tracefx.control.scan import Scan
from tracefx.control.while_loop import While
from tracefx.core.avals import ShapedArray
from tracefx.core.jaxpr import CarriesJaxprs, Eqn, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.core.source import Place, Provenance
from tracefx.handlers.counting.bodies import Expansions, one_program
from tracefx.handlers.counting.rules import CostRules, keeps_places
from tracefx.ops.barrier import OptimizationBarrier
from tracefx.ops.basis import BroadcastInDim, ConvertElementType, Reshape
from tracefx.ops.dynamic import DynamicUpdateSlice
from tracefx.ops.indexing import Scattering
from tracefx.ops.representation import BitcastConvertType
from tracefx.ops.selection import StopGradient
from tracefx.ops.shape import Squeeze

VIEWS: Final = (Reshape, Squeeze, StopGradient, BitcastConvertType, OptimizationBarrier, Name)
"""Operations each of whose results is an operand, in the same place."""
IN_PLACE: Final = (DynamicUpdateSlice, Scattering)
"""Operations that write into their first operand, if nobody needs it any more."""


def line_of(source: Provenance | None) -> Place | None:
    """Where something was written, whatever the `named_scope`s around it."""
    if source is None:
        return None
    place = source.place()
    return Place(place.file, place.line, place.function) if place.scope else place


@final
@frozen
class LiveBuffer:
    """A value in memory: its type, the operation that made it (`argument` and `constant` among them), and where."""

    aval: ShapedArray
    operation: str
    line: Place | None

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
    line: Place | None
    held: tuple[LiveBuffer, ...]

    @property
    def by_operation(self) -> Mapping[str, int]:
        """Bytes by the operation that made them, most first."""
        sizes: dict[str, int] = {}
        for each in self.held:
            sizes[each.operation] = sizes.get(each.operation, 0) + each.nbytes
        return MappingProxyType(dict(sorted(sizes.items(), key=lambda row: -row[1])))

    @property
    def by_line(self) -> Mapping[Place | None, int]:
        """Bytes by the line that made them, most first; arguments and constants have none."""
        sizes: dict[Place | None, int] = {}
        for each in self.held:
            sizes[each.line] = sizes.get(each.line, 0) + each.nbytes
        return MappingProxyType(dict(sorted(sizes.items(), key=lambda row: -row[1])))


# ------------------------------------------------------------------ a program inside of another


@final
@frozen(eq=False)
class Moment:
    """The moment at which a program holds most beside its inputs."""

    more: int
    """Bytes beside those of the inputs: less than those held, where inputs are gone by then."""
    held: tuple[LiveBuffer, ...]
    gone: frozenset[int]
    """The places of the inputs that are gone by then."""
    at: tuple[str, Place | None] | None
    """The operation and its line."""


IDLE: Final = Moment(0, (), frozenset(), None)


@final
@frozen(eq=False)
class Inside:
    """What running a program takes: its peak, and for every output its place.

    Outputs of one place are one value; places below the number of inputs are inputs.
    """

    peak: Moment
    outs: tuple[int, ...]


@final
@frozen(eq=False)
class Effect:
    """What an operation that carries programs does: its peak, and for every result the operand in whose place it is.

    A negative number stands for a place of its own, the same number for the same place.
    """

    peak: Moment
    outs: tuple[int, ...]


@final
@frozen
class Level:
    """What a program holds beside its inputs around one equation: before it, while it runs, and after it."""

    before: int
    during: int
    after: int
    last: tuple[bool, ...]
    """For every operand whether its place is nobody's after the equation."""


@final
class Memory:
    """Peaks of programs. Each is looked at once, for each set of inputs that nobody needs afterwards."""

    def __init__(self, rules: CostRules, expansions: Expansions) -> None:
        self._rules = rules
        self._expansions = expansions
        self._known: dict[tuple[int, tuple[bool, ...]], tuple[Jaxpr, Inside]] = {}
        self._kinds: dict[type[Primitive], str] = {}

    def inside(self, jaxpr: Jaxpr, dying: tuple[bool, ...]) -> Inside:
        """The peak of a program without constants, if it may let go of the inputs that are `dying`."""
        key = (id(jaxpr), dying)
        found = self._known.get(key)
        if found is None:
            at = _Run(self, jaxpr, dying)
            last = at.to_the_end()
            moment = IDLE if at.highest is None else _Run(self, jaxpr, dying).moment_at(at.highest, at.peak)
            found = self._known[key] = jaxpr, Inside(moment, last)
        return found[1]

    def course(self, jaxpr: Jaxpr, dying: tuple[bool, ...]) -> list[Level]:
        """What a program without constants holds from equation to equation; the largest is its peak.

        >>> from tracefx.handlers.counting.rules import COST_RULES
        >>> from tracefx.programs import parse_jaxpr
        >>> program = parse_jaxpr("{ lambda ; x:f32[2]. let y:f32[2] = sin x; z:f32[2] = sin y in (z,) }")
        >>> [(at.before, at.during, at.after) for at in Memory(COST_RULES, Expansions()).course(program, (False,))]
        [(0, 8, 8), (8, 16, 8)]
        """
        run = _Run(self, jaxpr, dying)
        course = []
        for k, (eqn, unused) in enumerate(zip(jaxpr.eqns, jaxpr.last_uses, strict=True)):
            before, last = run.live, run.last(eqn, unused)
            run.peak = before  # so that it comes to be this equation's
            run.step(k, eqn, unused)
            course.append(Level(before, run.peak, run.live, last))
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
        if isinstance(prim, CarriesJaxprs):
            return "carries"
        return "carries" if self._expansions.needed(prim, self._rules) else "plain"

    # -------------------------------------------------------------- operations that carry programs

    def effect(self, eqn: Eqn, dying: tuple[bool, ...]) -> Effect:
        prim = eqn.prim
        body = one_program(prim)
        if body is not None:
            return self._called(body, dying)
        if isinstance(prim, Scan):
            return self._scan(prim, eqn, dying)
        if isinstance(prim, While):
            return self._while(prim, eqn, dying)
        if isinstance(prim, Cond):
            return self._cond(prim, eqn, dying[1:])
        if self._expansions.needed(prim, self._rules):
            return self._expanded(eqn, dying)
        assert isinstance(prim, CarriesJaxprs)
        own = [LiveBuffer(v.aval, prim.name, line_of(eqn.source)) for v in eqn.outs]
        peaks = [self.inside(j, (False,) * len(j.invars)).peak for j in prim.jaxprs()]
        largest = max(peaks, key=lambda p: p.more, default=IDLE)
        return Effect(_with(largest, own), _own_places(eqn.outs))

    def _called(self, body: Jaxpr, dying: tuple[bool, ...]) -> Effect:
        inside = self.inside(body, dying)
        n = len(dying)
        return Effect(inside.peak, tuple([p if p < n else n - 1 - p for p in inside.outs]))

    def _expanded(self, eqn: Eqn, dying: tuple[bool, ...]) -> Effect:
        body, n = self._expansions.of(eqn)
        inside = self.inside(body, (*(False,) * n, *dying))
        consts = [LiveBuffer(v.aval, "constant", line_of(eqn.source)) for v in body.invars[:n]]
        gone = frozenset([i - n for i in inside.peak.gone])
        peak = _with(Moment(inside.peak.more, inside.peak.held, gone, inside.peak.at), consts)
        first = len(body.invars)
        return Effect(peak, tuple([p - n if n <= p < first else -1 - p for p in inside.outs]))

    def _scan(self, prim: Scan, eqn: Eqn, dying: tuple[bool, ...]) -> Effect:
        n, m, count = prim.num_consts, prim.num_consts + prim.num_carry, len(eqn.inputs)
        outs = [i if dying[i] else -1 - i for i in range(n, m)]
        results = eqn.outs[prim.num_carry :]
        line = line_of(eqn.source)
        buffers = [LiveBuffer(v.aval, prim.name, line) for v in results]
        places = (*outs, *[-1 - count - i for i in range(len(results))])
        if not prim.length:
            first = [LiveBuffer(eqn.outs[i - n].aval, prim.name, line) for i in range(n, m) if not dying[i]]
            return Effect(_with(IDLE, buffers + first), places)
        step = self.inside(prim.jaxpr, (*(False,) * n, *(True,) * (count - n))).peak
        fresh = {i: LiveBuffer(eqn.outs[i - n].aval, prim.name, line) for i in range(n, m) if not dying[i]}
        fresh |= {i: LiveBuffer(prim.jaxpr.invars[i].aval, prim.name, line) for i in range(m, count)}
        return Effect(_with(_taken(step, fresh), buffers), places)

    def _while(self, prim: While, eqn: Eqn, dying: tuple[bool, ...]) -> Effect:
        n, m = prim.cond_nconsts, prim.cond_nconsts + prim.body_nconsts
        carry = range(m, len(eqn.inputs))
        fresh = {i: LiveBuffer(eqn.outs[i - m].aval, prim.name, line_of(eqn.source)) for i in carry if not dying[i]}
        asked = self.inside(prim.cond_jaxpr, (False,) * len(prim.cond_jaxpr.invars)).peak
        step = self.inside(prim.body_jaxpr, (*(False,) * (m - n), *(True,) * len(carry))).peak
        ours = Moment(step.more, step.held, frozenset([i + n for i in step.gone]), step.at)
        largest = ours if ours.more >= asked.more else asked
        return Effect(_taken(largest, fresh), tuple([i if dying[i] else -1 - i for i in carry]))

    def _cond(self, prim: Cond, eqn: Eqn, dying: tuple[bool, ...]) -> Effect:
        line = line_of(eqn.source)
        peaks = []
        for branch in prim.branches:
            inside = self.inside(branch, dying)
            seen: set[int] = set()
            copies = []  # of operands, and of what is given twice: all results have places of their own
            for place, v in zip(inside.outs, eqn.outs, strict=True):
                if place < len(dying) or place in seen:
                    copies.append(LiveBuffer(v.aval, prim.name, line))
                seen.add(place)
            peaks.append(_with(inside.peak, copies))
        largest = max(peaks, key=lambda p: p.more)
        gone = frozenset([i + 1 for i in largest.gone])
        return Effect(Moment(largest.more, largest.held, gone, largest.at), _own_places(eqn.outs))


def _own_places(outs: Sequence[Var]) -> tuple[int, ...]:
    return tuple([-1 - i for i in range(len(outs))])


def _with(peak: Moment, held: Sequence[LiveBuffer]) -> Moment:
    """The moment, with more values that are held all along."""
    return Moment(peak.more + sum(h.nbytes for h in held), (*peak.held, *held), peak.gone, peak.at)


def _taken(peak: Moment, fresh: Mapping[int, LiveBuffer]) -> Moment:
    """The moment of a step, for which inputs were made that are no operands: those not yet gone are held."""
    more = peak.more + sum(h.nbytes for h in fresh.values())
    still = [h for i, h in fresh.items() if i not in peak.gone]
    return Moment(more, (*peak.held, *still), peak.gone - fresh.keys(), peak.at)


# ------------------------------------------------------------------ one program, from its first equation to its last


@final
class _Run:
    """Places, with their sizes and how many variables that are still read are in them."""

    def __init__(self, memory: Memory, jaxpr: Jaxpr, dying: tuple[bool, ...]) -> None:
        assert not jaxpr.constvars
        self.memory = memory
        self.jaxpr = jaxpr
        self.dying = dying
        self.place = [-1] * jaxpr.var_count
        self.sizes: list[int] = []
        self.readers: list[int] = []
        self.makers: list[tuple[Eqn, ShapedArray] | None] = []
        """Of what the program makes; its inputs are their callers'."""
        self.live = 0
        """Beside the inputs; what is gone of these is taken off."""
        self.peak = 0
        self.highest: int | None = None
        for v, let_go in zip(jaxpr.invars, dying, strict=True):
            self.place[v.index] = len(self.sizes)
            self.sizes.append(v.aval.nbytes)
            self.readers.append(1 if let_go else 2)  # the second reader is whoever called
            self.makers.append(None)

    def to_the_end(self) -> tuple[int, ...]:
        """Run all of it; the places of the outputs."""
        uses = self.jaxpr.last_uses
        for k, eqn in enumerate(self.jaxpr.eqns):
            self.step(k, eqn, uses[k])
        return self.outs()

    def outs(self) -> tuple[int, ...]:
        free = len(self.sizes)
        return tuple([self.place[x.index] if type(x) is Var else free + i for i, x in enumerate(self.jaxpr.outs)])

    def moment_at(self, highest: int, peak: int) -> Moment:
        """Run up to an equation, and say what is held while it runs."""
        jaxpr = self.jaxpr
        for k in range(highest):
            self.step(k, jaxpr.eqns[k], jaxpr.last_uses[k])
        eqn = jaxpr.eqns[highest]
        gone = {i for i in range(len(jaxpr.invars)) if not self.readers[i]}
        inner: Iterable[LiveBuffer] = ()
        at: tuple[str, Place | None] = eqn.prim.name, line_of(eqn.source)
        hidden: set[int] = set()
        if self.memory.kind(eqn.prim) == "carries":
            moment = self.memory.effect(eqn, self.last(eqn, jaxpr.last_uses[highest])).peak
            inner, at = moment.held, moment.at or at
            hidden = {self.place[x.index] for i, x in enumerate(eqn.inputs) if i in moment.gone and type(x) is Var}
            gone |= {p for p in hidden if p < len(jaxpr.invars)}
        else:
            self.step(highest, eqn, ())
        held = [
            LiveBuffer(maker[1], maker[0].prim.name, line_of(maker[0].source))
            for p, maker in enumerate(self.makers)
            if maker is not None and self.readers[p] and p not in hidden
        ]
        return Moment(peak, (*held, *inner), frozenset(gone), at)

    def step(self, k: int, eqn: Eqn, unused: Sequence[int]) -> None:
        """Run one equation, and let go of what is not used after it."""
        kind = self.memory.kind(eqn.prim)
        if kind == "carries":
            self.carry(k, eqn, unused)
        else:
            if kind == "plain" or (kind == "may view" and not self.keeps_places(eqn)):
                for v in eqn.outs:
                    self.make(eqn, v)
            elif kind != "in place":
                for v, x in zip(eqn.outs, eqn.inputs, strict=True):
                    self.share(eqn, v, self.place[x.index] if type(x) is Var else None)
            else:
                x = eqn.inputs[0]
                self.share(
                    eqn, eqn.outs[0], self.place[x.index] if type(x) is Var and self.last(eqn, unused)[0] else None
                )
            self.reach(k, self.live)
        for index in unused:
            place = self.place[index]
            self.readers[place] -= 1
            if not self.readers[place]:
                self.live -= self.sizes[place]

    @staticmethod
    def keeps_places(eqn: Eqn) -> bool:
        x = eqn.inputs[0]
        return type(x) is Var and keeps_places(eqn.prim, x.aval, eqn.outs[0].aval)

    def carry(self, k: int, eqn: Eqn, unused: Sequence[int]) -> None:
        """Run an equation that carries programs; what is made and let go inside is in its own peak."""
        effect = self.memory.effect(eqn, self.last(eqn, unused))
        self.reach(k, self.live + effect.peak.more)
        own: dict[int, int] = {}
        for v, out in zip(eqn.outs, effect.outs, strict=True):
            x = eqn.inputs[out] if out >= 0 else None
            self.share(eqn, v, self.place[x.index] if type(x) is Var else own.get(out))
            own[out] = self.place[v.index]

    def last(self, eqn: Eqn, unused: Sequence[int]) -> tuple[bool, ...]:
        """For every operand whether its place is nobody's after the equation."""
        places = [self.place[x.index] if type(x) is Var else -1 for x in eqn.inputs]
        return tuple(
            [
                type(x) is Var and x.index in unused and self.readers[p] == 1 and places.count(p) == 1
                for x, p in zip(eqn.inputs, places, strict=True)
            ]
        )

    def reach(self, k: int, live: int) -> None:
        if live > self.peak:
            self.peak, self.highest = live, k

    def make(self, eqn: Eqn, v: Var) -> None:
        """A place for a new value."""
        size = v.aval.nbytes
        self.place[v.index] = len(self.sizes)
        self.sizes.append(size)
        self.readers.append(1)
        self.makers.append((eqn, v.aval))
        self.live += size

    def share(self, eqn: Eqn, v: Var, place: int | None) -> None:
        """A value in a place that is there, or in a new one."""
        if place is None:
            self.make(eqn, v)
        else:
            self.place[v.index] = place
            self.readers[place] += 1
