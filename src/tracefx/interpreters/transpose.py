"""Transposition: running a linear program backwards, from cotangents of outputs to cotangents of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tracefx.core.handler import CURRENT, bind1
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from tracefx.core.literal import Literal
from tracefx.core.primitive import Expandable, Linear, Tangent, Transposable, Zero, missing
from tracefx.core.source import ORIGIN, at
from tracefx.core.values import Value
from tracefx.interpreters.stage import stage
from tracefx.ops.assembling import Assembly
from tracefx.ops.cutting import Slice
from tracefx.ops.elementwise import ADD

_Reached: TypeAlias = dict[int, Value | Assembly]
"""What is known of cotangents, by the index of the variable."""


def backward(
    jaxpr: Jaxpr, consts: Sequence[Value], args: Sequence[Value | Linear], cts: Sequence[Tangent]
) -> list[Tangent | None]:
    """Cotangents of the `Linear` arguments of a jaxpr from those of its outputs; `None` for the other arguments.

    The outputs must be linear in those arguments together. Equations that no linear argument reaches are evaluated
    first; the others are transposed in reverse. A cotangent that nothing reaches stays a `Zero`.
    """
    token = ORIGIN.set(ORIGIN.get())
    try:
        return _backward(jaxpr, consts, args, cts)
    finally:
        ORIGIN.reset(token)


def _backward(
    jaxpr: Jaxpr, consts: Sequence[Value], args: Sequence[Value | Linear], cts: Sequence[Tangent]
) -> list[Tangent | None]:
    handler = CURRENT.get()
    env: dict[int, Value | Linear] = {}
    for v, x in zip(jaxpr.constvars, consts, strict=True):
        env[v.index] = x
    for v, arg in zip(jaxpr.invars, args, strict=True):
        env[v.index] = arg

    linear: list[tuple[Eqn, list[Value | Linear]]] = []
    for eqn in jaxpr.eqns:
        operands: list[Value | Linear] = []
        known: list[Value] = []
        for a in eqn.inputs:
            operand = a if type(a) is Literal else env[a.index]
            operands.append(operand)
            if type(operand) is not Linear:
                known.append(operand)
        if len(known) == len(operands):
            ORIGIN.set(eqn.source)
            for v, x in zip(eqn.outs, handler.bind(eqn.prim, known), strict=True):
                env[v.index] = x
        else:
            linear.append((eqn, operands))
            for v in eqn.outs:
                env[v.index] = Linear(v.aval)

    reached: _Reached = {}

    for atom, ct in zip(jaxpr.outs, cts, strict=True):
        if type(atom) is Var:
            _accumulate(reached, atom, env[atom.index], ct)
    for eqn, operands in reversed(linear):
        out_cts: list[Tangent] = []
        for v in eqn.outs:
            if v.index in reached:
                out_cts = [_take(reached, v) for v in eqn.outs]
                break
        else:
            continue
        ORIGIN.set(eqn.source)
        prim = eqn.prim
        if type(prim) is Slice and prim.strides is None:
            _accumulate_window(reached, eqn, prim, out_cts[0])
            continue
        in_cts = (
            prim.transpose(out_cts, *operands) if isinstance(prim, Transposable) else _expanded(eqn, out_cts, operands)
        )
        for atom, operand, in_ct in zip(eqn.inputs, operands, in_cts, strict=True):
            if in_ct is not None:
                _accumulate(reached, atom, operand, in_ct)
    return [_take(reached, v) if type(x) is Linear else None for v, x in zip(jaxpr.invars, args, strict=True)]


def _accumulate(reached: _Reached, atom: Atom, operand: Value | Linear, ct: Tangent) -> None:
    if type(ct) is not Zero and type(operand) is Linear:
        assert type(atom) is Var
        before = reached.get(atom.index)
        if type(before) is Assembly:
            before.add(ct)
        else:
            reached[atom.index] = ct if before is None else bind1(ADD, before, ct)


def _accumulate_window(reached: _Reached, eqn: Eqn, window: Slice, ct: Tangent) -> None:
    (atom,) = eqn.inputs
    assert type(atom) is Var
    assert type(ct) is not Zero
    before = reached.get(atom.index)
    if type(before) is not Assembly:
        reached[atom.index] = before = Assembly(atom.aval, before, eqn.source)
    before.add_window(window, ct)


def _take(reached: _Reached, v: Var) -> Tangent:
    ct = reached.pop(v.index, None)
    if ct is None:
        return Zero(v.aval.tangent())
    if type(ct) is not Assembly:
        return ct
    ORIGIN.set(ct.source)
    return ct.total()


def _expanded(eqn: Eqn, cts: Sequence[Tangent], operands: Sequence[Value | Linear]) -> Sequence[Tangent | None]:
    """The cotangents of an operation that has no `transpose`, by the smaller ones it is made of."""
    prim = eqn.prim
    if isinstance(prim, Expandable):
        body, consts = stage(prim.expand, [a.aval for a in eqn.inputs])
        return backward(body, consts, operands, cts)
    raise missing(
        prim,
        "transpose",
        "inherit from Transposable and define transpose(self, cts, *args), or from Expandable; the operation"
        f"{at(eqn.source)} is met where only linear ones can be: in a function that is transposed",
    )
