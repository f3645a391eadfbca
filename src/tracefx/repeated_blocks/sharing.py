"""Shares one body among equal blocks: each block becomes a call of the same jaxpr, which is compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.inlining import InlineOptions, inline_calls
from tracefx.control.scan import Scan
from tracefx.core import Literal, ShapedArray
from tracefx.core.jaxpr import Atom, Eqn, HasBody, Jaxpr, Var
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import Primitive
from tracefx.core.repeated_blocks import DeclinedRun, RepeatedBlocks, SharedRun
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops.indexing.dynamic_slicing import DynamicSlice
from tracefx.ops.shape.slicing import Slice
from tracefx.passes.rebuilding import map_subjaxprs
from tracefx.repeated_blocks.blocks import Declined, Repeat, Slot, Uses, find_repeats, join_small_blocks
from tracefx.repeated_blocks.locations import divide_locations, merge_locations
from tracefx.repeated_blocks.residuals import recompute_residuals
from tracefx.repeated_blocks.runs import equation_count
from tracefx.source_location import Provenance

LEAST_COUNT: Final = 3
"""The least number of equal blocks that are shared."""

LEAST_SAVED: Final = 250
"""The least number of equations that need not be compiled for the runs of a program to be shared."""

LEAST_SAVED_IN_RUN: Final = 100
"""The least number of equations that each run must save."""

LEAST_EQUATIONS: Final = 100
"""Blocks of fewer equations are joined: the compiler does not fuse operations across the borders of blocks."""

MOST_MEMORY: Final = 0.1
"""How much more memory temporaries may take if blocks are shared, as a part of what they take without."""

_INDEX: Final = ShapedArray((), np.dtype(np.int32))


@final
@frozen(eq=False)
class SharedBlock(HasBody, Primitive, Lowerable):
    """Calls the body that equal blocks share. It exists only while a program is lowered.

    Args:
        jaxpr: The body, without observable effects. Its inputs are what a block takes from outside.
        partitioned: Whether the program is one for several devices, of which XLA partitions each call on its own.
    """

    name = "shared_block"
    jaxpr: Jaxpr
    partitioned: bool = False

    profile_name = ""  # the names of a block's operations are those without sharing

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return self.jaxpr.out_avals

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [out.spec for out in self.jaxpr.out_avals]

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return builder.call(self.name, self.jaxpr, operands, inlined=False, partitioned=self.partitioned)


@final
@frozen(eq=False)
class SharedProgram:
    """A program in which runs of equal blocks share their bodies.

    Args:
        jaxpr: The program.
        bodies: The shared bodies; none if there are no such runs.
        report: What was found, in the program and in its sub-jaxprs.
    """

    jaxpr: Jaxpr
    bodies: tuple[Jaxpr, ...]
    report: RepeatedBlocks


def inline_all_calls(jaxpr: Jaxpr) -> Jaxpr:
    """Returns an equal program in which calls are replaced by their equations."""
    return inline_calls(jaxpr, InlineOptions())


def share_repeats(
    jaxpr: Jaxpr,
    least_count: int = LEAST_COUNT,
    least_saved: int = LEAST_SAVED,
    least_saved_in_run: int = LEAST_SAVED_IN_RUN,
    least_equations: int = LEAST_EQUATIONS,
    partitioned: bool = False,
    nested: bool = True,
    spares_memory: bool = False,
) -> SharedProgram:
    """Replaces runs of equal blocks by calls of one body; if `nested`, in sub-jaxprs and in the bodies, too.

    Calls are inlined first, so that blocks are found also if each is a jitted function. If no blocks are found, the
    program stays as it is.

    Args:
        jaxpr: The program, without constants.
        least_count: The least number of equal blocks, at least 2. 3 by default.
        least_saved: The least number of equations that the runs of a jaxpr must save together. 250 by default.
        least_saved_in_run: The least number of equations that each run must save, if that is less. 100 by default.
        least_equations: Blocks of fewer equations are joined. 100 by default.
        partitioned: Whether the program is one for several devices. XLA copies its functions for each call, and does
            not inline the copies, so each block gets a body with its own source locations.
        nested: Whether blocks are shared in sub-jaxprs and in shared bodies, too. True by default.
        spares_memory: Whether the body of a loop of few steps stays as it is if with shared blocks each step would
            store its slices. False by default.

    Returns:
        An equal program.
    """
    in_run = min(least_saved, least_saved_in_run)
    sharing = _Sharing(least_count, least_saved, in_run, least_equations, partitioned, nested, spares_memory)
    program = sharing.share(jaxpr if sharing.is_small(jaxpr) else inline_all_calls(jaxpr))
    report = RepeatedBlocks(tuple(sharing.shared), tuple(sharing.declined))
    return SharedProgram(program if sharing.bodies else jaxpr, tuple(sharing.bodies), report)


@final
@frozen(eq=False)
class _Sharing:
    """One application of `share_repeats`."""

    least_count: int
    least_saved: int
    least_saved_in_run: int
    least_equations: int
    partitioned: bool
    nested: bool
    spares_memory: bool
    shared: list[SharedRun] = field(factory=list, init=False)
    declined: list[DeclinedRun] = field(factory=list, init=False)
    bodies: list[Jaxpr] = field(factory=list, init=False)
    results: dict[int, tuple[Jaxpr, Jaxpr]] = field(factory=dict, init=False)
    """The results by the identity of the jaxpr, which the first element keeps alive."""

    def is_small(self, jaxpr: Jaxpr) -> bool:
        """Whether no run of blocks in a jaxpr can save enough."""
        return equation_count(jaxpr) < self.least_saved * self.least_count // (self.least_count - 1)

    def share(self, jaxpr: Jaxpr) -> Jaxpr:
        """Returns the program with shared bodies; the same object if there is nothing to share."""
        if self.is_small(jaxpr):
            return jaxpr
        if id(jaxpr) not in self.results:
            self.results[id(jaxpr)] = jaxpr, self._share(jaxpr)
        return self.results[id(jaxpr)][1]

    def _share(self, jaxpr: Jaxpr) -> Jaxpr:
        found, declined = find_repeats(jaxpr, self.least_count, self.least_saved, self.least_saved_in_run)
        self.declined.extend([_declined(jaxpr, d) for d in declined])
        jaxpr, found = recompute_residuals(*_with_dynamic_slices(jaxpr, found), self.least_count)
        uses = Uses.of(jaxpr)
        eqns: list[Eqn] = []
        done = 0
        for repeat in found:
            joined = join_small_blocks(uses, repeat, self.least_count, self.least_equations)
            eqns += map(self._enter, jaxpr.eqns[done : joined.start])
            eqns += self._calls(uses, joined)
            done = joined.stop
        eqns += map(self._enter, jaxpr.eqns[done:])
        return Jaxpr(jaxpr.constvars, jaxpr.invars, tuple(eqns), jaxpr.outs)

    def _enter(self, eqn: Eqn) -> Eqn:
        """Shares blocks in the sub-jaxprs of an equation."""
        shared, bodies = len(self.shared), len(self.bodies)
        prim = map_subjaxprs(eqn.prim, self.share) if self.nested else eqn.prim
        if self.spares_memory and isinstance(prim, Scan) and prim is not eqn.prim:
            stored = _bytes_of_slices(prim)
            if stored > MOST_MEMORY * (prim.length * stored + _largest_value(prim.jaxpr)):
                reason = f"each of the {prim.length} steps of the loop would store {stored:,} bytes of slices"
                runs = self.shared[shared:]
                self.declined.extend([DeclinedRun(r.count, r.equations, r.source, reason) for r in runs])
                del self.shared[shared:], self.bodies[bodies:]
                return eqn
        return eqn if prim is eqn.prim else Eqn(prim, eqn.inputs, eqn.outs, eqn.source)

    def _calls(self, uses: Uses, repeat: Repeat) -> list[Eqn]:
        """Returns the calls of a run, each preceded by the equations whose parameters differ between the blocks."""
        starts = range(repeat.start, repeat.stop, repeat.period)
        blocks = [uses.eqns[start : start + repeat.period] for start in starts]
        kept = [q for q in range(repeat.period) if q not in repeat.separate]
        body = _Body(blocks)
        calls_at, body_at = divide_locations([[block[q].source for q in kept] for block in blocks])
        for q, location in zip(kept, body_at, strict=True):
            body.add(q, location)
        needed = [
            (q, o)
            for q in kept
            for o in range(len(blocks[0][q].outs))
            if any(uses.read_from(block[q].outs[o], s + repeat.period) for block, s in zip(blocks, starts, strict=True))
        ]
        program = body.program(needed)
        prims = (
            self._partitioned_blocks(program, blocks, kept)
            if self.partitioned
            else [self._block(program)] * len(blocks)
        )
        self.shared.append(SharedRun(repeat.count, len(kept), repeat.saved, blocks[0][kept[0]].source))
        calls: list[Eqn] = []
        for b, (block, prim) in enumerate(zip(blocks, prims, strict=True)):
            calls += [block[q] for q in sorted(repeat.separate)]
            outs = tuple([block[q].outs[o] for q, o in needed])
            calls.append(Eqn(prim, tuple([column[b] for column in body.columns]), outs, calls_at[b]))
        return calls

    def _block(self, body: Jaxpr) -> SharedBlock:
        """Returns a call of a body, in which blocks are shared, too."""
        program = self.share(body) if self.nested else body
        self.bodies.append(program)
        return SharedBlock(program, self.partitioned)

    def _partitioned_blocks(
        self, body: Jaxpr, blocks: Sequence[Sequence[Eqn]], kept: Sequence[int]
    ) -> list[SharedBlock]:
        """Returns the calls of blocks that have a body each, with the block's own source locations."""
        prims = []
        for block in blocks:
            found, declined = len(self.shared), len(self.declined)
            own = [block[q] for q in kept]
            eqns = [Eqn(o.prim, e.inputs, e.outs, o.source) for o, e in zip(own, body.eqns, strict=True)]
            prims.append(self._block(Jaxpr((), body.invars, tuple(eqns), body.outs)))
            if len(prims) > 1:  # the runs of equal blocks in equal bodies are reported once
                del self.shared[found:], self.declined[declined:]
        return prims


def _with_dynamic_slices(jaxpr: Jaxpr, repeats: Sequence[Repeat]) -> tuple[Jaxpr, list[Repeat]]:
    """Makes slices that differ between the blocks in their start dynamic, so that the blocks share them.

    Returns the same object if there are none.
    The compiler makes a kernel of each static slice, because its start is a constant of the kernel.
    """
    eqns, new_repeats = list(jaxpr.eqns), []
    for repeat in repeats:
        separate = set(repeat.separate)
        for q in repeat.separate:
            positions = range(repeat.start + q, repeat.stop, repeat.period)
            if all(_has_dynamic_form(eqns[i].prim) for i in positions):
                separate.discard(q)
                for i in positions:
                    eqns[i] = _dynamic_slice(eqns[i])
        saved = repeat.saved + (repeat.count - 1) * (len(repeat.separate) - len(separate))
        new_repeats.append(evolve(repeat, separate=frozenset(separate), saved=saved))
    if list(repeats) == new_repeats:
        return jaxpr, new_repeats
    return Jaxpr(jaxpr.constvars, jaxpr.invars, tuple(eqns), jaxpr.outs), new_repeats


def _has_dynamic_form(prim: Primitive) -> bool:
    if not isinstance(prim, Slice) or prim.strides is not None:
        return False
    return max(prim.limit_indices, default=0) <= np.iinfo(np.int32).max


def _dynamic_slice(eqn: Eqn) -> Eqn:
    assert isinstance(eqn.prim, Slice)
    starts = [Literal(start, _INDEX) for start in eqn.prim.start_indices]
    return Eqn(DynamicSlice(eqn.outs[0].aval.shape), (*eqn.inputs, *starts), eqn.outs, eqn.source)


@final
class _Body:
    """Builds the body that the blocks share, from the equations of the first block."""

    def __init__(self, blocks: Sequence[Sequence[Eqn]]) -> None:
        self.blocks = blocks
        self.columns: dict[tuple[Atom, ...], Var] = {}
        """The inputs, by the operand of each block's call."""
        self.atoms: dict[int, Var] = {}
        """The body's variables, by the index of the first block's."""
        self.eqns: list[Eqn] = []
        self.count = 0

    def bind(self, aval: ShapedArray) -> Var:
        """Returns the next variable."""
        self.count += 1
        return Var(self.count - 1, aval)

    def add(self, q: int, location: Provenance | None) -> None:
        """Adds the equation at position `q` of the blocks, with its location."""
        first = self.blocks[0][q]
        inputs = tuple([self.read(q, i) for i in range(len(first.inputs))])
        outs = tuple([self.bind(v.aval) for v in first.outs])
        self.atoms.update(zip([v.index for v in first.outs], outs, strict=True))
        prim = merge_locations([block[q].prim for block in self.blocks])
        self.eqns.append(Eqn(prim, inputs, outs, location))

    def read(self, q: int, i: int) -> Atom:
        """Returns the atom for operand `i` at position `q`: a value of the body, an input or a common literal."""
        first = self.blocks[0][q].inputs[i]
        if type(first) is Var and first.index in self.atoms:
            return self.atoms[first.index]
        column = tuple([block[q].inputs[i] for block in self.blocks])
        if type(first) is Literal and all(x == first for x in column):
            return first
        if column not in self.columns:
            self.columns[column] = self.bind(first.aval)
        return self.columns[column]

    def program(self, outs: Sequence[Slot]) -> Jaxpr:
        """Returns the body with the results at some slots of the blocks as outputs."""
        results = tuple([self.atoms[self.blocks[0][q].outs[o].index] for q, o in outs])
        return Jaxpr((), tuple(self.columns.values()), tuple(self.eqns), results)


def _bytes_of_slices(scan: Scan) -> int:
    """Returns the bytes of the slices that the shared blocks of a step take or give.

    Without blocks they are not stored: the compiler reads slices where they are used, and writes them where they go.
    """
    blocks = [e for e in scan.jaxpr.eqns if isinstance(e.prim, SharedBlock)]
    read = {x.index for e in blocks for x in e.inputs if type(x) is Var}
    bound = {v.index for e in blocks for v in e.outs}
    slices = [v for v in scan.split_operands(scan.jaxpr.invars)[2] if v.index in read]
    results = [x for x in scan.jaxpr.outs[scan.num_carry :] if type(x) is Var and x.index in bound]
    return max(sum(v.aval.nbytes for v in slices), sum(v.aval.nbytes for v in results))


def _largest_value(jaxpr: Jaxpr) -> int:
    """Returns the bytes of the largest result of an equation."""
    return max([v.aval.nbytes for e in jaxpr.eqns for v in e.outs], default=0)


def _declined(jaxpr: Jaxpr, declined: Declined) -> DeclinedRun:
    stretch = declined.stretch
    count = (stretch.stop - stretch.start) // stretch.period
    return DeclinedRun(count, stretch.period, jaxpr.eqns[stretch.start].source, declined.reason)
