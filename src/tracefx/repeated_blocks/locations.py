"""Source lines and scopes of shared blocks, divided between the calls and the body so that each copy has its own.

XLA inlines the calls after it has compiled the body. It puts the scopes of a call before those of an operation of the
body, and an operation without a line gets the line of the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TypeAlias

from tracefx.core.jaxpr import Eqn, HasSubjaxprs, Jaxpr
from tracefx.core.primitive import Primitive
from tracefx.passes.rebuilding import map_subjaxprs
from tracefx.source_location import LazySourceLocation, NamedScopes, Provenance, SourceLocation, with_scope

Locations: TypeAlias = list[Provenance | None]


def divide_locations(blocks: Sequence[Sequence[Provenance | None]]) -> tuple[Locations, Locations]:
    """Divides the locations of equal blocks into those of their calls and those of the body's equations.

    The scopes that a block's equations have in common are those of its call. If the equations of a block have
    several scopes that differ from block to block, as in a block of three layers, the call has their range,
    `layer_3..layer_5`, and an equation of the body says which of them it means, `2_of_3`.

    Args:
        blocks: For each block, the location of each equation; at least one of each.

    Returns:
        The locations of the calls, and those of the body's equations. A call has the line of the first equation
        whose line differs from block to block, such equations of the body have no line.
    """
    scopes = [[() if s is None else s.scope for s in block] for block in blocks]
    prefixes = [_common_prefix(block) for block in scopes]
    heads: list[tuple[NamedScopes, ...]] = []
    tails: list[NamedScopes] = []
    for column in zip(*scopes, strict=True):
        rests = [scope[len(prefix) :] for scope, prefix in zip(column, prefixes, strict=True)]
        tail = _common_prefix([rest[::-1] for rest in rests])[::-1]
        heads.append(tuple([rest[: len(rest) - len(tail)] for rest in rests]))
        tails.append(tail)
    differing = list(dict.fromkeys([head for head in heads if any(head)]))
    positions = {head: f"{i}_of_{len(differing)}" for i, head in enumerate(differing, 1) if len(differing) > 1}
    columns = list(zip(*blocks, strict=True))
    own_lines = [_line_differs(column) for column in columns]
    first = own_lines.index(True) if any(own_lines) else 0
    calls = []
    for b, prefix in enumerate(prefixes):
        names = ["/".join(head[b]) for head in differing if head[b]]
        calls.append(with_scope(columns[first][b], (*prefix, *_range(names))))
    body = [
        with_scope(
            SourceLocation("", 0, "") if own else column[0], (*([positions[head]] if head in positions else ()), *tail)
        )
        for own, column, head, tail in zip(own_lines, columns, heads, tails, strict=True)
    ]
    return calls, body


def merge_locations(prims: Sequence[Primitive]) -> Primitive:
    """Returns a primitive like equal ones, whose sub-jaxprs have the locations that all have in common.

    Names of scopes that differ are given as a range, `layer_0..layer_11`.
    """
    first = prims[0]
    if not isinstance(first, HasSubjaxprs) or all(p is first for p in prims):
        return first
    rows = zip(*[p.jaxprs() for p in prims if isinstance(p, HasSubjaxprs)], strict=True)
    merged = {id(row[0]): _merge(row) for row in rows}
    return map_subjaxprs(first, lambda jaxpr: merged[id(jaxpr)])


def _merge(jaxprs: Sequence[Jaxpr]) -> Jaxpr:
    first = jaxprs[0]
    if all(jaxpr is first for jaxpr in jaxprs):
        return first
    eqns = [
        Eqn(merge_locations([e.prim for e in row]), row[0].inputs, row[0].outs, _merge_column([e.source for e in row]))
        for row in zip(*[jaxpr.eqns for jaxpr in jaxprs], strict=True)
    ]
    return Jaxpr(first.constvars, first.invars, tuple(eqns), first.outs)


def _merge_column(column: Sequence[Provenance | None]) -> Provenance | None:
    scopes = [() if s is None else s.scope for s in column]
    if len({*map(len, scopes)}) == 1:
        scope = tuple([name for names in zip(*scopes, strict=True) for name in _range(names)])
    else:
        scope = _common_prefix(scopes)
    return with_scope(SourceLocation("", 0, "") if _line_differs(column) else column[0], scope)


def _common_prefix(scopes: Sequence[NamedScopes]) -> NamedScopes:
    names = zip(*scopes, strict=False)
    return tuple([name for name, *_ in takewhile(lambda column: len({*column}) == 1, names)])


def _range(names: Sequence[str]) -> NamedScopes:
    """Returns the only name, or the first and the last as a range; nothing if there are no names."""
    if not names:
        return ()
    return (names[0] if len({*names}) == 1 else f"{names[0]}..{names[-1]}",)


def _line_differs(column: Sequence[Provenance | None]) -> bool:
    """Whether locations are of several lines."""
    if len({(s.code, s.lasti) if isinstance(s, LazySourceLocation) else s for s in column}) == 1:
        return False
    locations = [None if s is None else s.resolve() for s in column]
    return len({None if s is None else (s.file, s.line) for s in locations}) > 1
