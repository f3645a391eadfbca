"""Users' functions as the bodies of loops and branches: traced once, and fitted to each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast, final

from attrs import evolve, frozen

from tracefx.control.bodies import rearranged
from tracefx.core import promotion, trees
from tracefx.core.avals import ShapedArray
from tracefx.core.bounds import keep
from tracefx.core.errors import TypePromotionError
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.trees import TreeDef, keystr
from tracefx.core.values import Value
from tracefx.ops.basis import ConvertElementType, retyped
from tracefx.transforms.arguments import argument_names, name_of
from tracefx.transforms.tracing import KINDS, TRACES, Trace, keepable, signature, trace


@final
@frozen
class Adapter:
    """Makes the body of a loop of a user's function that has other arguments or results."""

    adapt: Callable[[Callable[..., Any]], Callable[..., Any]]
    arguments: Callable[..., tuple[Any, ...]]
    """The function's arguments, of the body's."""


def trace_body(
    where: str, f: Callable[..., Any], in_tree: TreeDef, avals: Sequence[ShapedArray], adapt: Adapter | None = None
) -> Trace:
    """The trace of a function of the tree of arguments that `in_tree` builds, `(args, {})`, from the shared cache.

    With `adapt`, that of `adapt.adapt(f)`: it is kept for `f`, as what `adapt` makes does not outlive the call.
    Messages call the tracing `where`.
    """
    traces = TRACES.traces(f)
    key = signature(in_tree, tuple(avals), ()), ("body", adapt)
    known = traces.get(key)
    if known is not None:
        return known
    args, kwargs = in_tree.unflatten(range(in_tree.num_leaves))
    theirs = args if adapt is None else adapt.arguments(*args)
    origins = ["a counter of the loop"] * in_tree.num_leaves
    for place, name in zip(
        trees.leaves(theirs), argument_names(f, name_of(f), theirs, kwargs, range(len(theirs))), strict=True
    ):
        origins[cast(int, place)] = name
    made = trace(f if adapt is None else adapt.adapt(f), in_tree, tuple(avals), origins, name_of(f), where)
    return keep(traces, key, made, KINDS) if keepable(made) else made


def common_consts(traced: Sequence[Trace]) -> tuple[list[Jaxpr], list[Value]]:
    """Programs that all take what any of the functions closed over, and these values; one closed over twice is one."""
    consts: dict[int, Value] = {id(c): c for t in traced for c in t.consts}
    places = {key: i for i, key in enumerate(consts)}
    avals = [c.aval for c in consts.values()]
    bodies = []
    for t in traced:
        n = len(t.consts)
        ours = {places[id(c)]: i for i, c in enumerate(t.consts)}
        inputs = [*[ours.get(i, aval) for i, aval in enumerate(avals)], *range(n, len(t.jaxpr.invars))]
        same = inputs == list(range(len(t.jaxpr.invars)))
        bodies.append(t.jaxpr if same else _kept(t.jaxpr, tuple(inputs)))
    return bodies, list(consts.values())


def _kept(jaxpr: Jaxpr, inputs: tuple[int | ShapedArray, ...]) -> Jaxpr:
    return jaxpr.memo.get(("rearranged", inputs), lambda: rearranged(jaxpr, inputs))


def with_outs(jaxpr: Jaxpr, avals: Sequence[ShapedArray]) -> Jaxpr:
    """The program, its outputs converted to these types."""
    wanted = tuple(avals)
    if jaxpr.out_avals == wanted:
        return jaxpr
    return jaxpr.memo.get(("with outs", wanted), lambda: _with_outs(jaxpr, wanted))


def _with_outs(jaxpr: Jaxpr, avals: tuple[ShapedArray, ...]) -> Jaxpr:
    indices = itertools.count(jaxpr.var_count)
    eqns = list(jaxpr.eqns)
    outs: list[Atom] = []
    for out, aval in zip(jaxpr.outs, avals, strict=True):
        if out.aval == aval:
            outs.append(out)
        elif isinstance(out, Literal):
            literal = retyped(out, aval.dtype, aval.weak_type)
            assert isinstance(literal, Literal)
            outs.append(literal)
        else:
            var = Var(next(indices), aval)
            eqns.append(Eqn(ConvertElementType(aval.dtype, aval.weak_type), (out,), (var,)))
            outs.append(var)
    return evolve(jaxpr, eqns=tuple(eqns), outs=tuple(outs))


# ------------------------------------------------------------------ types that have to agree


def joined(avals: Sequence[ShapedArray]) -> ShapedArray | None:
    """The type that values of these types share, weak if all of them are; `None` if there is none."""
    first = avals[0]
    if any(a.shape != first.shape or a.dtype != first.dtype for a in avals):
        return None
    return first if all(a.weak_type for a in avals) else first.strong()


def gives_way(aval: ShapedArray, to: ShapedArray) -> bool:
    """Whether a value of the type `aval`, a Python number's, becomes `to` when the two meet."""
    if not aval.weak_type or aval.shape != to.shape:
        return False
    kinds = [(aval.dtype, True), (to.dtype, to.weak_type)]
    try:
        return promotion.promote(kinds) == (to.dtype, to.weak_type)
    except TypePromotionError:
        return False


def fitted(avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> list[ShapedArray]:
    """The types of a loop's carry that goes in with the types `avals` and comes back with `outs`.

    Python numbers give way to what the first step makes of them, and are none any more if that has another dtype.
    """
    return [
        (out if out.dtype == aval.dtype else out.strong()) if gives_way(aval, out) else aval
        for aval, out in zip(avals, outs, strict=True)
    ]


def differ_in_structure(what: str, ours: tuple[str, TreeDef], theirs: tuple[str, TreeDef]) -> NoReturn:
    (name, tree), (other, other_tree) = ours, theirs
    width = max(len(name), len(other))
    both = f"  {name:{width}} : {tree}\n  {other:{width}} : {other_tree}"
    difference = trees.first_difference(tree, other_tree)
    if difference is not None and difference.path:
        both += f"\nThe first difference is at {keystr(difference.path)}:\n{difference.show(name, other)}"
    raise TypeError(f"{what} must have one structure:\n{both}")


def require_types(
    what: str,
    tree: TreeDef,
    ours: tuple[str, Sequence[ShapedArray]],
    theirs: tuple[str, Sequence[ShapedArray]],
    fits: Sequence[bool],
    remedy: str,
) -> None:
    """A `TypeError` that shows, side by side, the types of the leaves that don't fit."""
    if all(fits):
        return
    (name, avals), (other, other_avals) = ours, theirs
    paths = [keystr(path) for path, _ in trees.flatten_with_path(tree.unflatten(range(tree.num_leaves)))[0]]
    rows = [
        (path or "(the value itself)", str(a), str(b))
        for path, a, b, fit in zip(paths, avals, other_avals, fits, strict=True)
        if not fit
    ]
    heads = ("leaf", name, other)
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(3)]
    lines = [
        "  " + "  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in [heads, *rows]
    ]
    raise TypeError("\n".join([f"{what} must have one type each:", *lines, remedy]))


def users_part(adapt: Adapter | None, carry: TreeDef) -> TreeDef:
    """Of a loop's carry what is the user's: what an adapter adds stands before it."""
    if adapt is None or not carry.num_leaves:
        return carry
    return trees.structure(carry.unflatten(range(carry.num_leaves))[-1])


def require_carry(where: str, tree: TreeDef, types: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> None:
    """A `TypeError` unless a loop's carry, or the part of it that the tree is of, keeps its types."""
    added = len(types) - tree.num_leaves
    types, outs = types[added:], outs[added:]
    fits = [joined((a, b)) == a for a, b in zip(types, outs, strict=True)]
    remedy = "Convert or broadcast it, so that it keeps its type from step to step."
    require_types(f"{where}: the carry", tree, ("going in", types), ("coming out", outs), fits, remedy)
