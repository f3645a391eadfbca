"""Long loops in checkpointed pieces: memory for the backward pass of a few pieces in place of every step.

A loop of `n` steps becomes a loop over pieces, each of which keeps only the carry it began with and runs its steps
again when the backward pass gets to it; pieces may be cut into pieces. With pieces of about the square root of `n`,
carries and steps kept are about twice that root; with pieces in a tree, as many as it has levels, each of which runs
forward once more (Griewank and Walther, "Algorithm 799: revolve", 2000, says what the best schedules can do).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final

from tracefx.control.checkpoint import CheckpointPrimitive
from tracefx.control.sow import IN_CHECKPOINTED_LOOP, mark_uncollectable
from tracefx.core.handler import bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Primitive
from tracefx.core.values import Value
from tracefx.interpreters.stage import stage
from tracefx.ops.shape.shape import concatenate
from tracefx.ops.shape.slicing import slice as cut
from tracefx.ops.structural import reshape

BINOMIAL_BRANCHING: Final = 4
"""Of the tree that "binomial" makes: of all numbers the one with the least memory for the steps it repeats."""

ScanFactory = Callable[[Jaxpr, int], Primitive]
"""A scan of this body with so many steps; it has the constants, carry and direction of the one that is cut."""


def chunk_lengths(checkpoint: int | str, length: int) -> tuple[int, ...]:
    """The lengths of the pieces, of pieces of pieces, and so on, each less than the one before."""
    if isinstance(checkpoint, int):
        return (checkpoint,) if checkpoint < length else ()
    found = []
    while length > BINOMIAL_BRANCHING:
        length = -(-length // BINOMIAL_BRANCHING)
        found.append(length)
    return tuple(found)


def sqrt_chunk_length(length: int) -> int:
    """The length of pieces with the least memory if they are not cut themselves."""
    return max(1, math.isqrt(length))


def checkpoint_scan(
    body: Jaxpr,
    loop: ScanFactory,
    num_consts: int,
    num_carry: int,
    length: int,
    reverse: bool,
    pieces: tuple[int, ...],
    guarded: Callable[[Jaxpr], Jaxpr] | None = None,
) -> Jaxpr:
    """The program of a scan whose steps are in checkpointed pieces of the given lengths.

    `guarded` makes of a piece one that may be passed over.
    """
    body, avals = mark_uncollectable(body, IN_CHECKPOINTED_LOOP), body.in_avals
    first = num_consts + num_carry

    def run(*args: Value) -> list[Value]:
        if not pieces:
            return list(bind(loop(body, length), *args))
        size = pieces[0]
        piece = checkpoint_scan(body, loop, num_consts, num_carry, size, reverse, pieces[1:], guarded)
        checkpointed = _checkpointed(piece if guarded is None else guarded(piece))
        count, rest = divmod(length, size)
        consts, arrays = args[:num_consts], args[first:]
        carry: Sequence[Value] = args[num_consts:first]
        # The steps that are left over come last, whichever way the loop runs.
        start = rest if reverse else 0
        whole = [_slice_rows(x, start, start + count * size) for x in arrays]
        grouped = [reshape(x, (count, size, *x.aval.shape[1:])) for x in whole]
        outs = bind(loop(checkpointed, count), *consts, *carry, *grouped)
        carry, results = outs[:num_carry], outs[num_carry:]
        joined: Sequence[Value] = [reshape(y, (count * size, *y.aval.shape[2:])) for y in results]
        if rest:
            at = 0 if reverse else count * size
            shorter = tuple([p for p in pieces if p < rest])
            last = checkpoint_scan(body, loop, num_consts, num_carry, rest, reverse, shorter, guarded)
            outs = bind(
                CheckpointPrimitive(last, prevent_cse=False),
                *consts,
                *carry,
                *[_slice_rows(x, at, at + rest) for x in arrays],
            )
            carry, ends = outs[:num_carry], outs[num_carry:]
            pairs = [(b, a) if reverse else (a, b) for a, b in zip(joined, ends, strict=True)]
            joined = [concatenate(pair, 0) for pair in pairs]
        return [*carry, *joined]

    stacked = [a.with_axis(length, 0) for a in avals[first:]]
    jaxpr, consts = stage(run, [*avals[:first], *stacked])
    assert not consts
    return jaxpr


def _checkpointed(piece: Jaxpr) -> Jaxpr:
    """The program of one equation, a checkpoint of `piece`. A loop stands between it and what it repeats."""
    jaxpr, _ = stage(lambda *args: bind(CheckpointPrimitive(piece, prevent_cse=False), *args), piece.in_avals)
    return jaxpr


def _slice_rows(x: Value, start: int, stop: int) -> Value:
    shape = x.aval.shape
    if stop - start == shape[0]:
        return x
    zeros = itertools.repeat(0, len(shape) - 1)
    return cut(x, (start, *zeros), (stop, *shape[1:]))
