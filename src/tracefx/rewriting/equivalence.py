"""Canonical order of equations, and equivalence of jaxprs up to it."""

from __future__ import annotations

from attrs import evolve

from tracefx.bounded_cache import memoize_on_object
from tracefx.core import Literal, Value
from tracefx.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Var
from tracefx.core.primitive import Primitive
from tracefx.passes.rebuilding import is_observable, map_subjaxprs
from tracefx.rewriting.closed_jaxprs import J, map_jaxpr


def canonicalize_jaxpr(jaxpr: J) -> J:
    """Puts equations into a canonical order, merges equal ones (CSE) and drops unused ones (DCE), in sub-jaxprs too.

    Equations with observable effects come first, in their original order, each after the equations that it depends
    on; then those that the outputs depend on, from the first output to the last. The constants of a `ClosedJaxpr` are
    sorted by first use, without unused ones. Takes linear time.

    Args:
        jaxpr: a `Jaxpr` or `ClosedJaxpr`.

    Returns:
        The canonical program, of the same type as `jaxpr`; the same object if it is canonical already.

    >>> from tracefx.programs import parse_jaxpr
    >>> canonicalize_jaxpr(parse_jaxpr("{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = cos a in (c, b) }"))
    { lambda ; a:f32[]. let b:f32[] = cos a; c:f32[] = sin a in (b, c) }
    """
    if isinstance(jaxpr, ClosedJaxpr):
        new = _with_constants_in_order(_canonicalize(jaxpr.jaxpr), jaxpr.consts)
        return jaxpr if new.jaxpr is jaxpr.jaxpr else new
    return map_jaxpr(jaxpr, _canonicalize)


def equivalent(a: Jaxpr | ClosedJaxpr, b: Jaxpr | ClosedJaxpr) -> bool:
    """Whether two programs are equal up to variable names, equation order, duplicate and dead computations.

    They are equivalent if `canonicalize_jaxpr` maps both to equal programs. Ignored differences: names of variables;
    the order of equations, in sub-jaxprs too, as long as the order of effects is the same; duplicate equations; unused
    equations. Significant differences: the order of operands (`x + y` and `y + x`), algebraic identities (use
    `simplify`), names of called functions, a call as against its body (`inline` both first), unused outputs of loops
    and branches (`dce` both first).

    Args:
        a: a `Jaxpr` or `ClosedJaxpr`.
        b: a program of the same type. Constants of `ClosedJaxpr`s are compared by shape, dtype and bits.

    Returns:
        A Python bool.

    Raises:
        TypeError: `a` and `b` are not two `Jaxpr`s or two `ClosedJaxpr`s.

    >>> from tracefx.programs import parse_jaxpr
    >>> a = parse_jaxpr("{ lambda ; x:f32[]. let y:f32[] = sin x; z:f32[] = cos x in (y, z) }")
    >>> b = parse_jaxpr("{ lambda ; x:f32[]. let z:f32[] = cos x; u:f32[] = exp x; y:f32[] = sin x in (y, z) }")
    >>> a == b, equivalent(a, b)
    (False, True)
    """
    if isinstance(a, ClosedJaxpr) and isinstance(b, ClosedJaxpr):
        return canonicalize_jaxpr(a) == canonicalize_jaxpr(b)
    if isinstance(a, Jaxpr) and isinstance(b, Jaxpr):
        return canonicalize_jaxpr(a) == canonicalize_jaxpr(b)
    raise TypeError(f"equivalent compares two jaxprs or two closed jaxprs, got {type(a).__name__}, {type(b).__name__}")


@memoize_on_object
def _canonicalize(jaxpr: Jaxpr) -> Jaxpr:
    new = _in_canonical_order(jaxpr)
    return jaxpr if new == jaxpr else new


def _in_canonical_order(jaxpr: Jaxpr) -> Jaxpr:
    binders = [Var(i, v.aval) for i, v in enumerate(jaxpr.constvars + jaxpr.invars)]
    atoms: dict[int, Atom] = dict(zip([v.index for v in jaxpr.constvars + jaxpr.invars], binders, strict=True))
    makers = {v.index: eqn for eqn in jaxpr.eqns for v in eqn.outs}
    eqns: list[Eqn] = []
    known: dict[tuple[Primitive, tuple[Atom, ...]], tuple[Var, ...]] = {}
    done: set[int] = set()
    count = len(binders)

    def read(x: Atom) -> Atom:
        return x if isinstance(x, Literal) else atoms[x.index]

    def write(eqn: Eqn) -> None:
        nonlocal count
        prim, inputs = map_subjaxprs(eqn.prim, _canonicalize), tuple(map(read, eqn.inputs))
        pure = not is_observable(prim)
        outs = known.get((prim, inputs)) if pure else None
        if outs is None:
            outs = tuple([Var(count + i, v.aval) for i, v in enumerate(eqn.outs)])
            count += len(outs)
            eqns.append(Eqn(prim, inputs, outs, eqn.source))
            if pure:
                known[prim, inputs] = outs
        atoms.update(zip([v.index for v in eqn.outs], outs, strict=True))

    def need(*wanted: Eqn) -> None:
        todo = [(eqn, False) for eqn in reversed(wanted)]
        while todo:
            eqn, ready = todo.pop()
            if ready:
                write(eqn)
            elif id(eqn) not in done:
                done.add(id(eqn))
                todo.append((eqn, True))
                for x in reversed(eqn.inputs):
                    if isinstance(x, Var) and x.index in makers:
                        todo.append((makers[x.index], False))

    for eqn in jaxpr.eqns:
        if is_observable(eqn.prim):
            need(eqn)
    for x in jaxpr.outs:
        if isinstance(x, Var) and x.index in makers:
            need(makers[x.index])
    n = len(jaxpr.constvars)
    return Jaxpr(tuple(binders[:n]), tuple(binders[n:]), tuple(eqns), tuple(map(read, jaxpr.outs)))


def _with_constants_in_order(jaxpr: Jaxpr, consts: tuple[Value, ...]) -> ClosedJaxpr:
    atoms = [x for eqn in jaxpr.eqns for x in eqn.inputs] + list(jaxpr.outs)
    first = {x.index: None for x in atoms if isinstance(x, Var)}
    values = {v.index: (v, x) for v, x in zip(jaxpr.constvars, consts, strict=True)}
    used = [values[i] for i in first if i in values]
    constvars = tuple([v for v, _ in used])
    closed = jaxpr if constvars == jaxpr.constvars else evolve(jaxpr, constvars=constvars)
    return ClosedJaxpr(_canonicalize(closed), tuple([x for _, x in used]))
