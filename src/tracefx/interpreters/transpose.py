"""Transposition: runs a linear jaxpr backwards, from output cotangents to input cotangents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tracefx.core import Literal, Value
from tracefx.core.handler import CURRENT, bind1
from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.core.primitive import Expandable, ExtractsWindow, Tangent, Transposable, UndefinedPrimal, Zero, is_builtin
from tracefx.errors import MissingRuleError
from tracefx.interpreters.stage import stage
from tracefx.ops.annotations.reshard import any_sharded, with_type_of, without_type_sharding
from tracefx.ops.elementwise.elementwise import ADD, Elementwise
from tracefx.ops.shape.slice_cotangents import SliceCotangents
from tracefx.source_location import SOURCE, at_location

_Cotangents: TypeAlias = dict[int, Value | SliceCotangents]
"""The cotangents accumulated so far, by index of the variable."""


def backward_pass(
    jaxpr: Jaxpr, consts: Sequence[Value], args: Sequence[Value | UndefinedPrimal], cts: Sequence[Tangent]
) -> list[Tangent | None]:
    """Computes the cotangents of the `UndefinedPrimal` arguments of a jaxpr.

    The outputs must be jointly linear in those arguments. Equations that depend on no linear argument are evaluated
    first; the others are transposed in reverse order. A cotangent that no equation contributes to stays a `Zero`.

    Args:
        jaxpr: the jaxpr to transpose.
        consts: the values of its constants.
        args: its arguments, with `UndefinedPrimal` for those to transpose with respect to.
        cts: the cotangents of its outputs.

    Returns:
        A cotangent for each `UndefinedPrimal` argument, `None` for the others.
    """
    token = SOURCE.set(SOURCE.get())
    try:
        return _backward(jaxpr, consts, args, cts)
    finally:
        SOURCE.reset(token)


def _backward(
    jaxpr: Jaxpr, consts: Sequence[Value], args: Sequence[Value | UndefinedPrimal], cts: Sequence[Tangent]
) -> list[Tangent | None]:
    handler = CURRENT.get()
    env: dict[int, Value | UndefinedPrimal] = {}
    for v, x in zip(jaxpr.constvars, consts, strict=True):
        env[v.index] = x
    for v, arg in zip(jaxpr.invars, args, strict=True):
        env[v.index] = arg

    linear: list[tuple[Eqn, list[Value | UndefinedPrimal]]] = []
    for eqn in jaxpr.eqns:
        operands: list[Value | UndefinedPrimal] = []
        known: list[Value] = []
        for a in eqn.inputs:
            operand = a if type(a) is Literal else env[a.index]
            operands.append(operand)
            if type(operand) is not UndefinedPrimal:
                known.append(operand)
        if len(known) == len(operands):
            SOURCE.set(eqn.source)
            for v, x in zip(eqn.outs, handler.bind(eqn.prim, known), strict=True):
                env[v.index] = x
        else:
            linear.append((eqn, operands))
            for v in eqn.outs:
                env[v.index] = UndefinedPrimal(v.aval)

    reached: _Cotangents = {}

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
        SOURCE.set(eqn.source)
        prim = eqn.prim
        if _is_sharded(eqn):
            out_cts = [ct if isinstance(ct, Zero) else without_type_sharding(ct) for ct in out_cts]
            operands = [
                UndefinedPrimal(x.aval.with_explicit_sharding(None))
                if isinstance(x, UndefinedPrimal)
                else without_type_sharding(x)
                for x in operands
            ]
        window = prim.window if isinstance(prim, ExtractsWindow) else None
        if window is not None:
            _accumulate_window(reached, eqn, window, out_cts[0])
            continue
        in_cts = (
            prim.transpose(out_cts, *operands)
            if isinstance(prim, Transposable)
            else _transpose_expansion(eqn, out_cts, operands)
        )
        for atom, operand, in_ct in zip(eqn.inputs, operands, in_cts, strict=True):
            if in_ct is not None:
                _accumulate(reached, atom, operand, in_ct)
    return [_take(reached, v) if type(x) is UndefinedPrimal else None for v, x in zip(jaxpr.invars, args, strict=True)]


def _accumulate(reached: _Cotangents, atom: Atom, operand: Value | UndefinedPrimal, ct: Tangent) -> None:
    if type(ct) is not Zero and type(operand) is UndefinedPrimal:
        assert type(atom) is Var
        if ct.aval.explicit_sharding is not atom.aval.explicit_sharding:
            ct = with_type_of(ct, atom.aval)
        before = reached.get(atom.index)
        if type(before) is SliceCotangents:
            before.add(ct)
        else:
            reached[atom.index] = ct if before is None else bind1(ADD, before, ct)


def _accumulate_window(
    reached: _Cotangents, eqn: Eqn, window: tuple[Sequence[int], Sequence[int]], ct: Tangent
) -> None:
    (atom,) = eqn.inputs
    assert type(atom) is Var
    assert type(ct) is not Zero
    before = reached.get(atom.index)
    if type(before) is not SliceCotangents:
        reached[atom.index] = before = SliceCotangents(atom.aval, before, eqn.source)
    before.add_window(*window, ct)


def _is_sharded(eqn: Eqn) -> bool:
    """Whether the rule of an equation is applied without the shardings in types, which cotangents get afterwards.

    A rule may broadcast, contract or scatter cotangents, which has no unique sharding although that of the result, the
    sharding of the operand, is known. The rules of primitives with sub-jaxprs depend on the types in these, and those
    of elementwise ones compute elementwise.
    """
    return any_sharded((*eqn.inputs, *eqn.outs)) and not isinstance(eqn.prim, HasSubjaxprs | Elementwise)


def _take(reached: _Cotangents, v: Var) -> Tangent:
    ct = reached.pop(v.index, None)
    if ct is None:
        return Zero(v.aval.tangent())
    if type(ct) is not SliceCotangents:
        return ct
    SOURCE.set(ct.source)
    return with_type_of(ct.total(), v.aval)


def _transpose_expansion(
    eqn: Eqn, cts: Sequence[Tangent], operands: Sequence[Value | UndefinedPrimal]
) -> Sequence[Tangent | None]:
    """Transposes an equation whose primitive has no `transpose` rule, by transposing its expansion."""
    prim = eqn.prim
    if isinstance(prim, Expandable):
        body, consts = stage(prim.expand, [a.aval for a in eqn.inputs])
        return backward_pass(body, consts, operands, cts)
    if is_builtin(prim):
        remedy = "The rule of a custom_jvp, too, must be linear in the tangents"
    else:
        remedy = (
            f"If your primitive {type(prim).__name__} is linear, inherit from Transposable and define "
            "transpose(self, cts, *args)"
        )
    raise MissingRuleError(
        f"a transposed function must be linear, but {prim.name}{at_location(eqn.source)} has no transpose rule. "
        + remedy
    )
