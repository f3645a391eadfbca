"""Tracing of users' functions as bodies of loops and branches, and conversion of the traced bodies to common types."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, final

from attrs import evolve, frozen

from tracefx.bounded_cache import memoize_on_object
from tracefx.control.control_flow import rearrange_jaxpr
from tracefx.core import Literal, ShapedArray, Value, accepts
from tracefx.core.avals import NOT_VARYING, MeshAxes, join_vma
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.errors import TypePromotionError
from tracefx.interpreters.refs import Ref
from tracefx.ops import promotion
from tracefx.ops.structural import ConvertElementType, convert_value
from tracefx.passes.rebuilding import renumber
from tracefx.pytrees import trees
from tracefx.pytrees.trees import TreeDef, keystr
from tracefx.source_location import library_call_location
from tracefx.transforms.arguments import argument_names, fun_name
from tracefx.transforms.tracing import TRACES, Trace, cache_trace, trace, trace_key


@final
@frozen
class Adapter:
    """Converts a user's function to the body of a loop, which has other arguments or results."""

    adapt: Callable[[Callable[..., Any]], Callable[..., Any]]
    arguments: Callable[..., tuple[Any, ...]]
    """Returns the arguments of the function, given those of the body."""


def trace_body(
    where: str,
    f: Callable[..., Any],
    in_tree: TreeDef,
    avals: Sequence[ShapedArray],
    adapt: Adapter | None = None,
    *,
    writes_refs: bool = False,
) -> Trace:
    """Returns the trace of a function of the arguments `(args, {})` that `in_tree` builds, from the shared cache.

    With `adapt` it is the trace of `adapt.adapt(f)`, cached under `f`, because the adapted function does not outlive
    the call. `where` is the name of the tracing in messages, `writes_refs` an argument of `trace`.
    """
    traces = TRACES.of(f)
    key = trace_key(in_tree, tuple(avals), ()), ("body", adapt, library_call_location(f), writes_refs)
    known = traces.get(key)
    if known is not None:
        return known
    args, kwargs = in_tree.unflatten(range(in_tree.num_leaves))
    theirs = args if adapt is None else adapt.arguments(*args)
    origins = ["a counter of the loop"] * in_tree.num_leaves
    for position, name in zip(
        trees.leaves(theirs), argument_names(f, fun_name(f), theirs, kwargs, range(len(theirs))), strict=True
    ):
        origins[position] = name
    body = f if adapt is None else adapt.adapt(f)
    new = trace(body, in_tree, tuple(avals), origins, fun_name(f), where, writes_refs=writes_refs)
    return cache_trace(traces, key, new)


def trace_step(
    where: str,
    f: Callable[..., Any],
    in_tree: TreeDef,
    carry: Sequence[Value],
    tree: TreeDef,
    slices: Sequence[ShapedArray],
    carry_out: Callable[[Trace], TreeDef],
    adapt: Adapter | None = None,
    carry_vma: MeshAxes = NOT_VARYING,
) -> tuple[Trace, Jaxpr, list[Value]]:
    """Traces the body of a loop until the types of its carry are the same before and after a step.

    The arguments' leaves are the carry, of structure `tree`, and slices. References that the body writes are a part of
    the loop's carry before it: the last of the trace's `consts`, and the first outputs. `carry_out` returns the
    structure of the carry among the results. `carry_vma` are mesh axes over which all carries vary. The body is traced
    again if the dtype of a weakly typed carry is promoted, and if a carry varies over more mesh axes after a step than
    before. It is not traced again if a carry only loses its weak type: for nested loops, that would take exponentially
    many traces.

    Returns:
        The trace, its jaxpr with converted inputs and outputs, and the first carry, converted.
    """
    n = len(carry)
    types = [c.aval.with_vma(c.aval.vma | carry_vma) for c in carry]
    while True:
        traced = trace_body(where, f, in_tree, [*types, *slices], adapt, writes_refs=True)
        if (out := carry_out(traced)) != tree:
            parts = [user_carry(adapt, t) for t in (tree, out)]
            raise_structure_mismatch(f"{where}: the carry", ("going in", parts[0]), ("coming out", parts[1]))
        outs = traced.out_avals
        promoted = promote_carry_types(types, outs[:n])
        if all(a.dtype == b.dtype and a.vma == b.vma for a, b in zip(types, promoted, strict=True)):
            break
        types = promoted
    require_carry_types(where, user_carry(adapt, tree), promoted, outs[:n])
    consts = [c.aval for c in traced.consts]
    written = [ref.aval.contents for ref in traced.written]
    out_avals = [*written, *promoted, *outs[n:]]
    step = convert_outputs(convert_inputs(traced.jaxpr, [*consts, *promoted, *slices]), out_avals)
    return traced, step, [convert_value(c, a.dtype, a.weak_type) for c, a in zip(carry, promoted, strict=True)]


def common_consts(traced: Sequence[Trace]) -> tuple[list[Jaxpr], list[Value]]:
    """Returns programs that all take the closed-over values of all the traces, and these values.

    A value or reference that several functions close over is included once.
    """
    sources = _common_sources(traced)
    positions = {id(source): i for i, source in enumerate(sources)}
    consts = [source[...] if isinstance(source, Ref) else source for source in sources]
    avals = [c.aval for c in consts]
    bodies = []
    for t in traced:
        n = len(t.closed_over)
        ours = {positions[id(source)]: i for i, source in enumerate(t.closed_over)}
        inputs = [*[ours.get(i, aval) for i, aval in enumerate(avals)], *range(n, len(t.jaxpr.invars))]
        same = inputs == list(range(len(t.jaxpr.invars)))
        bodies.append(t.jaxpr if same else rearranged(t.jaxpr, tuple(inputs)))
    return bodies, consts


def _common_sources(traced: Sequence[Trace]) -> list[Value | Ref]:
    """Returns the values and references that any of several functions closes over."""
    return list({id(source): source for t in traced for source in t.closed_over}.values())


rearranged: Final = memoize_on_object(rearrange_jaxpr)


def with_all_writes(traced: Sequence[Trace], bodies: Sequence[Jaxpr]) -> list[Jaxpr]:
    """Returns the programs of `common_consts` that all write the same references, those of `written_by_any`.

    A program that does not write a reference returns its contents unchanged.
    """
    written = written_by_any(traced)
    positions = {id(source): i for i, source in enumerate(_common_sources(traced))}
    result = []
    for t, body in zip(traced, bodies, strict=True):
        first = tuple([t.written.index(ref) if ref in t.written else ~positions[id(ref)] for ref in written])
        result.append(
            body if first == tuple(range(len(t.written))) else _with_first_outputs(body, len(t.written), first)
        )
    return result


def written_by_any(traced: Sequence[Trace]) -> list[Ref]:
    """Returns the references that any of several functions writes."""
    return list(dict.fromkeys([ref for t in traced for ref in t.written]))


@memoize_on_object
def _with_first_outputs(jaxpr: Jaxpr, replaced: int, outputs: tuple[int, ...]) -> Jaxpr:
    """Returns the program with other outputs in place of the first `replaced`: output `i`, or input `~i`."""
    new = [jaxpr.outs[i] if i >= 0 else jaxpr.invars[~i] for i in outputs]
    return evolve(jaxpr, outs=(*new, *jaxpr.outs[replaced:]))


def convert_inputs(jaxpr: Jaxpr, avals: Sequence[ShapedArray]) -> Jaxpr:
    """Returns the program with inputs of the types `avals`, which it converts."""
    given = tuple(avals)
    if jaxpr.in_avals == given:
        return jaxpr
    return _convert_inputs(jaxpr, given)


@memoize_on_object
def _convert_inputs(jaxpr: Jaxpr, avals: tuple[ShapedArray, ...]) -> Jaxpr:
    indices = itertools.count(jaxpr.var_count)
    invars = [v if v.aval == aval else Var(next(indices), aval) for v, aval in zip(jaxpr.invars, avals, strict=True)]
    given: dict[Atom, Var] = {v: new for v, new in zip(jaxpr.invars, invars, strict=True) if v is not new}
    same: dict[Atom, Var] = {}  # results of conversions to the new type of an input, which are that input
    eqns = []
    for eqn in jaxpr.eqns:
        new = given.get(eqn.inputs[0]) if isinstance(eqn.prim, ConvertElementType) else None
        if new is not None and new.aval == eqn.outs[0].aval:
            same[eqn.outs[0]] = new
        else:
            eqns.append(evolve(eqn, inputs=tuple([same.get(a, a) for a in eqn.inputs])))
    outs = tuple([same.get(a, a) for a in jaxpr.outs])
    read = {a for eqn in eqns for a in eqn.inputs}.union(outs)
    back = [
        Eqn(ConvertElementType(v.aval.dtype, v.aval.weak_type), (new,), (v,))
        for v, new in zip(jaxpr.invars, invars, strict=True)
        if v is not new and v in read
    ]
    return renumber(evolve(jaxpr, invars=tuple(invars), eqns=(*back, *eqns), outs=outs))


def convert_outputs(jaxpr: Jaxpr, avals: Sequence[ShapedArray]) -> Jaxpr:
    """Returns the program with outputs converted to the types `avals`."""
    wanted = tuple(avals)
    if accepts(wanted, jaxpr.out_avals):
        return jaxpr
    return _convert_outputs(jaxpr, wanted)


@memoize_on_object
def _convert_outputs(jaxpr: Jaxpr, avals: tuple[ShapedArray, ...]) -> Jaxpr:
    indices = itertools.count(jaxpr.var_count)
    eqns = list(jaxpr.eqns)
    outs: list[Atom] = []
    for out, aval in zip(jaxpr.outs, avals, strict=True):
        if accepts((aval,), (out.aval,)):
            outs.append(out)
        elif isinstance(out, Literal):
            outs.append(convert_value(out, aval.dtype, aval.weak_type))
        else:
            var = Var(next(indices), aval.with_vma(out.aval.vma))
            eqns.append(Eqn(ConvertElementType(aval.dtype, aval.weak_type), (out,), (var,)))
            outs.append(var)
    return evolve(jaxpr, eqns=tuple(eqns), outs=tuple(outs))


# ------------------------------------------------------------------ matching types


def common_type(avals: Sequence[ShapedArray]) -> ShapedArray | None:
    """Returns the common type of values of these types; None if shapes, dtypes or shardings differ.

    It is weak if all are weak, and varies over the mesh axes of all.
    """
    first = avals[0].with_vma(join_vma(avals))
    kinds = {(a.shape, a.dtype, a.explicit_sharding) for a in avals}
    if len(kinds) > 1:
        return None
    return first if all(a.weak_type for a in avals) else first.strong()


def promotes_to(aval: ShapedArray, to: ShapedArray) -> bool:
    """Whether a weakly typed value of the type `aval` is promoted to the type `to` when both are operands."""
    if not aval.weak_type or aval.shape != to.shape:
        return False
    kinds = [(aval.dtype, True), (to.dtype, to.weak_type)]
    try:
        return promotion.promote(kinds) == (to.dtype, to.weak_type)
    except TypePromotionError:
        return False


def promote_carry_types(avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> list[ShapedArray]:
    """Returns the types of a loop's carry that has the types `avals` before a step and `outs` after it.

    A weakly typed carry takes the type that the first step returns; it is strongly typed if that has another dtype. The
    carry varies over the mesh axes of both types.
    """
    promoted = [
        (out if out.dtype == aval.dtype else out.strong()) if promotes_to(aval, out) else aval
        for aval, out in zip(avals, outs, strict=True)
    ]
    return [p.with_vma(aval.vma | out.vma) for p, aval, out in zip(promoted, avals, outs, strict=True)]


def raise_structure_mismatch(what: str, ours: tuple[str, TreeDef], theirs: tuple[str, TreeDef]) -> NoReturn:
    """Raises a TypeError that shows two different structures, each with its name, and the first difference."""
    (name, tree), (other, other_tree) = ours, theirs
    width = max(len(name), len(other))
    lines = [
        f"  {each:{width}} : {trees.show_structure(structure, 'one array')}"
        for each, structure in ((name, tree), (other, other_tree))
    ]
    text = "\n".join(lines)
    difference = trees.first_difference(tree, other_tree)
    if difference is not None and difference.path:
        text += f"\nThe first difference is at {keystr(difference.path)}:\n{difference.show(name, other)}"
    raise TypeError(f"{what} must have the same structure:\n{text}")


def require_matching_types(
    what: str,
    tree: TreeDef,
    ours: tuple[str, Sequence[ShapedArray]],
    theirs: tuple[str, Sequence[ShapedArray]],
    fits: Sequence[bool],
    remedy: str,
) -> None:
    """Raises a TypeError with a table of the leaves whose types differ, unless all of `fits` are true."""
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
    raise TypeError("\n".join([f"{what} must have the same types:", *lines, remedy]))


def user_carry(adapt: Adapter | None, carry: TreeDef) -> TreeDef:
    """Returns the structure of the user's part of a loop's carry: an adapter adds its own parts before it."""
    if adapt is None or not carry.num_leaves:
        return carry
    return trees.structure(carry.unflatten(range(carry.num_leaves))[-1])


def require_carry_types(where: str, tree: TreeDef, types: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> None:
    """Raises a TypeError unless a loop's carry keeps its types; only the leaves of `tree` are compared."""
    added = len(types) - tree.num_leaves
    types, outs = types[added:], outs[added:]
    fits = [common_type((a, b)) == a for a, b in zip(types, outs, strict=True)]
    remedy = "Convert or broadcast it, so that it keeps its type from step to step."
    require_matching_types(f"{where}: the carry", tree, ("going in", types), ("coming out", outs), fits, remedy)
