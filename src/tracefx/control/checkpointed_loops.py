"""Splits long loops into checkpointed chunks, so that the backward pass stores the residuals of a few chunks only.

A loop of `n` steps becomes a loop over chunks, each of which saves only its initial carry and recomputes its steps in
the backward pass; chunks may be split into chunks. With chunks of about `sqrt(n)` steps, about `2 * sqrt(n)` carries
and steps are stored. With a tree of chunks, as many as the tree has levels, each of which costs one more forward run
(Griewank and Walther, "Algorithm 799: revolve", 2000, gives the optimal schedules).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final

from tracefx.control.checkpoint import CheckpointPrimitive
from tracefx.control.sow import IN_CHECKPOINTED_LOOP, mark_uncollectable
from tracefx.core import Value
from tracefx.core.handler import bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import Primitive
from tracefx.interpreters.stage import stage
from tracefx.ops.shape.shape import concatenate
from tracefx.ops.shape.slicing import slice as cut
from tracefx.ops.structural import reshape

BINOMIAL_BRANCHING: Final = 4
"""The branching of the tree that "binomial" builds: the number with the least memory for the steps it recomputes."""

ScanFactory = Callable[[Jaxpr, int], Primitive]
"""Returns a scan of a body and a number of steps, with the constants, carry and direction of the original scan."""


def chunk_lengths(checkpoint: int | str, length: int) -> tuple[int, ...]:
    """Returns the lengths of the chunks, of the chunks within them, and so on, in decreasing order."""
    if isinstance(checkpoint, int):
        return (checkpoint,) if checkpoint < length else ()
    lengths = []
    while length > BINOMIAL_BRANCHING:
        length = -(-length // BINOMIAL_BRANCHING)
        lengths.append(length)
    return tuple(lengths)


def sqrt_chunk_length(length: int) -> int:
    """Returns the chunk length with the least memory for one level of chunks."""
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
    """Returns the jaxpr of a scan whose steps are in checkpointed chunks.

    Args:
        body: the body of the scan.
        loop: builds a scan of a body and a number of steps.
        num_consts: the number of constants.
        num_carry: the number of carries.
        length: the number of steps.
        reverse: whether the steps run from last to first.
        pieces: the lengths of the chunks, of chunks within them, and so on.
        guarded: if given, makes a chunk conditional.
    """
    body, avals = mark_uncollectable(body, IN_CHECKPOINTED_LOOP), body.in_avals
    first = num_consts + num_carry

    def run(*args: Value) -> list[Value]:
        if not pieces:
            return list(bind(loop(body, length), *args))
        size = pieces[0]
        chunk = checkpoint_scan(body, loop, num_consts, num_carry, size, reverse, pieces[1:], guarded)
        checkpointed = _checkpointed(chunk if guarded is None else guarded(chunk))
        count, remaining = divmod(length, size)
        consts, arrays = args[:num_consts], args[first:]
        carry: Sequence[Value] = args[num_consts:first]
        # The remaining steps run last, in either direction.
        start = remaining if reverse else 0
        sliced = [_slice_rows(x, start, start + count * size) for x in arrays]
        grouped = [reshape(x, (count, size, *x.aval.shape[1:])) for x in sliced]
        outs = bind(loop(checkpointed, count), *consts, *carry, *grouped)
        carry, results = outs[:num_carry], outs[num_carry:]
        joined: Sequence[Value] = [reshape(y, (count * size, *y.aval.shape[2:])) for y in results]
        if remaining:
            at = 0 if reverse else count * size
            shorter = tuple([p for p in pieces if p < remaining])
            last = checkpoint_scan(body, loop, num_consts, num_carry, remaining, reverse, shorter, guarded)
            outs = bind(
                CheckpointPrimitive(last, prevent_cse=False),
                *consts,
                *carry,
                *[_slice_rows(x, at, at + remaining) for x in arrays],
            )
            carry, last_results = outs[:num_carry], outs[num_carry:]
            pairs = [(b, a) if reverse else (a, b) for a, b in zip(joined, last_results, strict=True)]
            joined = [concatenate(pair, 0) for pair in pairs]
        return [*carry, *joined]

    stacked = [a.with_axis(length, 0) for a in avals[first:]]
    jaxpr, consts = stage(run, [*avals[:first], *stacked])
    assert not consts
    return jaxpr


def _checkpointed(piece: Jaxpr) -> Jaxpr:
    """Returns a jaxpr of one checkpoint equation; the enclosing loop separates `piece` from its recomputation."""
    jaxpr, _ = stage(lambda *args: bind(CheckpointPrimitive(piece, prevent_cse=False), *args), piece.in_avals)
    return jaxpr


def _slice_rows(x: Value, start: int, stop: int) -> Value:
    shape = x.aval.shape
    if stop - start == shape[0]:
        return x
    zeros = itertools.repeat(0, len(shape) - 1)
    return cut(x, (start, *zeros), (stop, *shape[1:]))
