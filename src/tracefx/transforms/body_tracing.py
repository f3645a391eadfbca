"""Users' functions as the bodies of loops and branches: traced once, and fitted to each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast, final

from attrs import evolve, frozen

from tracefx.control.control_flow import rearrange_jaxpr
from tracefx.core import promotion
from tracefx.core.avals import Axes, ShapedArray
from tracefx.core.bounded_cache import insert_bounded
from tracefx.core.handler import varies
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.source_location import library_call_location
from tracefx.core.values import Value
from tracefx.core.varying import DECLARED
from tracefx.errors import TypePromotionError
from tracefx.ops.structural import ConvertElementType, convert_value
from tracefx.passes.dce import renumber
from tracefx.pytrees import trees
from tracefx.pytrees.trees import TreeDef, keystr
from tracefx.transforms.arguments import argument_names, fun_name
from tracefx.transforms.tracing import MAX_TRACES, TRACES, Trace, is_cacheable, trace, trace_key


@final
@frozen
class Adapter:
    """Makes the body of a loop of a user's function that has other arguments or results."""

    adapt: Callable[[Callable[..., Any]], Callable[..., Any]]
    arguments: Callable[..., tuple[Any, ...]]
    """The function's arguments, of the body's."""


def trace_body(
    where: str,
    f: Callable[..., Any],
    in_tree: TreeDef,
    avals: Sequence[ShapedArray],
    adapt: Adapter | None = None,
    along: Callable[[], tuple[Axes, ...]] | None = None,
) -> Trace:
    """The trace of a function of the tree of arguments that `in_tree` builds, `(args, {})`, from the shared cache.

    With `adapt`, that of `adapt.adapt(f)`: it is kept for `f`, as what `adapt` makes does not outlive the call.
    Messages call the tracing `where`. `along` is as for `signature`.
    """
    traces = TRACES.traces(f)
    kind = trace_key(in_tree, tuple(avals), (), along)
    key = kind, ("body", adapt, library_call_location(f))
    known = traces.get(key)
    if known is not None:
        return known
    args, kwargs = in_tree.unflatten(range(in_tree.num_leaves))
    theirs = args if adapt is None else adapt.arguments(*args)
    origins = ["a counter of the loop"] * in_tree.num_leaves
    for place, name in zip(
        trees.leaves(theirs), argument_names(f, fun_name(f), theirs, kwargs, range(len(theirs))), strict=True
    ):
        origins[cast(int, place)] = name
    body = f if adapt is None else adapt.adapt(f)
    made = trace(body, in_tree, tuple(avals), origins, fun_name(f), where, kind.along)
    return insert_bounded(traces, key, made, MAX_TRACES) if is_cacheable(made) else made


@final
class CarryVaryingAxes:
    """Along which checked axes of a mesh the carry of a loop may differ, after any step, and the slices beside it."""

    def __init__(self, slices: Sequence[Value] = ()) -> None:
        self.slices = slices
        self.carry: tuple[Axes, ...] = ()
        self.slice_axes: tuple[Axes, ...] = ()

    def known(self, carry: Sequence[Value], slices: Sequence[ShapedArray]) -> Callable[[], tuple[Axes, ...]]:
        assert len(slices) == len(self.slices)

        def ask() -> tuple[Axes, ...]:
            if not self.carry:
                self.carry, self.slice_axes = tuple(map(varies, carry)), tuple(map(varies, self.slices))
            return self.carry + self.slice_axes

        return ask

    def is_fixed_point(self, step: Trace, n: int) -> bool:
        """Whether the carry is no other after a step, traced as it was known; what is new is known from now on."""
        if not self.carry:  # nobody has asked
            return True
        outs = DECLARED.through(step.jaxpr, [*map(varies, step.consts), *self.carry, *self.slice_axes])
        return not self.widen(outs[:n])

    def join_condition(self, going: Trace) -> bool:
        """Take in along what the end of the loop differs, by its condition; whether any of it was new."""
        if not self.carry:
            return False
        (goes_on,) = DECLARED.through(going.jaxpr, [*map(varies, going.consts), *self.carry])[:1]
        return self.widen([goes_on] * len(self.carry))

    def widen(self, more: Sequence[Axes]) -> bool:
        """Take these in; whether any was new."""
        wider = tuple([a | b for a, b in zip(self.carry, more, strict=True)])
        changed, self.carry = wider != self.carry, wider
        return changed


def trace_step(
    where: str,
    f: Callable[..., Any],
    in_tree: TreeDef,
    carry: Sequence[Value],
    tree: TreeDef,
    slices: Sequence[ShapedArray],
    carry_out: Callable[[Trace], TreeDef],
    adapt: Adapter | None = None,
    along: CarryVaryingAxes | None = None,
) -> tuple[Trace, Jaxpr, list[Value]]:
    """The trace of a loop's body, its program, and the first carry, all carries having the types that steps keep.

    The arguments' leaves are the carry, of structure `tree`, and slices; `carry_out` gives the structure of the carry
    among the results. Where a Python number gives way to another dtype, the body is traced again with that. Where it
    loses the weakness of its type and nothing else it is not: bodies in bodies would be traced again and again. Where a
    carry differs along more axes of a mesh after a step than before, it is traced again too.
    """
    n = len(carry)
    types = [c.aval for c in carry]
    along = along or CarryVaryingAxes()
    while True:
        traced = trace_body(where, f, in_tree, [*types, *slices], adapt, along.known(carry, slices))
        if (out := carry_out(traced)) != tree:
            parts = [user_carry(adapt, t) for t in (tree, out)]
            raise_structure_mismatch(f"{where}: the carry", ("going in", parts[0]), ("coming out", parts[1]))
        outs = traced.jaxpr.out_avals
        settled = promote_carry_types(types, outs[:n])
        if all(a.dtype == b.dtype for a, b in zip(types, settled, strict=True)) and along.is_fixed_point(traced, n):
            break
        types = settled
    require_carry_types(where, user_carry(adapt, tree), settled, outs[:n])
    consts = [c.aval for c in traced.consts]
    step = convert_outputs(convert_inputs(traced.jaxpr, [*consts, *settled, *slices]), [*settled, *outs[n:]])
    return traced, step, [convert_value(c, a.dtype, a.weak_type) for c, a in zip(carry, settled, strict=True)]


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
        bodies.append(t.jaxpr if same else _memoized_rearranged(t.jaxpr, tuple(inputs)))
    return bodies, list(consts.values())


def _memoized_rearranged(jaxpr: Jaxpr, inputs: tuple[int | ShapedArray, ...]) -> Jaxpr:
    return jaxpr.memo.get(("rearranged", inputs), lambda: rearrange_jaxpr(jaxpr, inputs))


def convert_inputs(jaxpr: Jaxpr, avals: Sequence[ShapedArray]) -> Jaxpr:
    """The program, its inputs converted from these types."""
    given = tuple(avals)
    if jaxpr.in_avals == given:
        return jaxpr
    return jaxpr.memo.get(("with ins", given), lambda: _convert_inputs(jaxpr, given))


def _convert_inputs(jaxpr: Jaxpr, avals: tuple[ShapedArray, ...]) -> Jaxpr:
    indices = itertools.count(jaxpr.var_count)
    invars = [v if v.aval == aval else Var(next(indices), aval) for v, aval in zip(jaxpr.invars, avals, strict=True)]
    given: dict[Atom, Var] = {v: new for v, new in zip(jaxpr.invars, invars, strict=True) if v is not new}
    same: dict[Atom, Var] = {}  # what the program converts to the type that is given
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
    """The program, its outputs converted to these types."""
    wanted = tuple(avals)
    if jaxpr.out_avals == wanted:
        return jaxpr
    return jaxpr.memo.get(("with outs", wanted), lambda: _convert_outputs(jaxpr, wanted))


def _convert_outputs(jaxpr: Jaxpr, avals: tuple[ShapedArray, ...]) -> Jaxpr:
    indices = itertools.count(jaxpr.var_count)
    eqns = list(jaxpr.eqns)
    outs: list[Atom] = []
    for out, aval in zip(jaxpr.outs, avals, strict=True):
        if out.aval == aval:
            outs.append(out)
        elif isinstance(out, Literal):
            literal = convert_value(out, aval.dtype, aval.weak_type)
            assert isinstance(literal, Literal)
            outs.append(literal)
        else:
            var = Var(next(indices), aval)
            eqns.append(Eqn(ConvertElementType(aval.dtype, aval.weak_type), (out,), (var,)))
            outs.append(var)
    return evolve(jaxpr, eqns=tuple(eqns), outs=tuple(outs))


# ------------------------------------------------------------------ types that have to agree


def common_type(avals: Sequence[ShapedArray]) -> ShapedArray | None:
    """The type that values of these types share, weak if all of them are; `None` if there is none."""
    first = avals[0]
    if any(a.shape != first.shape or a.dtype != first.dtype for a in avals):
        return None
    return first if all(a.weak_type for a in avals) else first.strong()


def promotes_to(aval: ShapedArray, to: ShapedArray) -> bool:
    """Whether a value of the type `aval`, a Python number's, becomes `to` when the two meet."""
    if not aval.weak_type or aval.shape != to.shape:
        return False
    kinds = [(aval.dtype, True), (to.dtype, to.weak_type)]
    try:
        return promotion.promote(kinds) == (to.dtype, to.weak_type)
    except TypePromotionError:
        return False


def promote_carry_types(avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> list[ShapedArray]:
    """The types of a loop's carry that goes in with the types `avals` and comes back with `outs`.

    Python numbers give way to what the first step makes of them, and are none any more if that has another dtype.
    """
    return [
        (out if out.dtype == aval.dtype else out.strong()) if promotes_to(aval, out) else aval
        for aval, out in zip(avals, outs, strict=True)
    ]


def raise_structure_mismatch(what: str, ours: tuple[str, TreeDef], theirs: tuple[str, TreeDef]) -> NoReturn:
    (name, tree), (other, other_tree) = ours, theirs
    width = max(len(name), len(other))
    both = f"  {name:{width}} : {tree}\n  {other:{width}} : {other_tree}"
    difference = trees.first_difference(tree, other_tree)
    if difference is not None and difference.path:
        both += f"\nThe first difference is at {keystr(difference.path)}:\n{difference.show(name, other)}"
    raise TypeError(f"{what} must have one structure:\n{both}")


def require_matching_types(
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


def user_carry(adapt: Adapter | None, carry: TreeDef) -> TreeDef:
    """Of a loop's carry what is the user's: what an adapter adds stands before it."""
    if adapt is None or not carry.num_leaves:
        return carry
    return trees.structure(carry.unflatten(range(carry.num_leaves))[-1])


def require_carry_types(where: str, tree: TreeDef, types: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> None:
    """A `TypeError` unless a loop's carry, or the part of it that the tree is of, keeps its types."""
    added = len(types) - tree.num_leaves
    types, outs = types[added:], outs[added:]
    fits = [common_type((a, b)) == a for a, b in zip(types, outs, strict=True)]
    remedy = "Convert or broadcast it, so that it keeps its type from step to step."
    require_matching_types(f"{where}: the carry", tree, ("going in", types), ("coming out", outs), fits, remedy)
