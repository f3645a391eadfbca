"""Replay of small programs: calls the NumPy kernels of their primitives one after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from tracefx.core import ConcreteArray, DType, Literal, NDArray, ShapedArray, Value, dtypes
from tracefx.core.dtypes import is_key
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr
from tracefx.core.kernel_context import call_kernel
from tracefx.ops.annotations.identity import Identity
from tracefx.ops.elementwise.selection import SelectN
from tracefx.ops.operation import HasNumpyKernel
from tracefx.ops.structural import BroadcastInDim, ConvertElementType
from tracefx.transforms.generated_calls import define

Kernel: TypeAlias = Callable[..., Any]
"""A function of NumPy arrays that returns one array, or a sequence of them for a program with several outputs."""

_MAX_CONSTANT_SIZE: Final = 1 << 12
"""The largest constant, in elements, that a plan may hold."""


def replay_kernels(
    jaxpr: Jaxpr, consts: Sequence[Value], in_dtypes: Sequence[DType], max_steps: int, max_size: int
) -> Kernel | None:
    """Returns a function of NumPy arrays that computes what the program computes.

    Equations that depend on no input are evaluated here, once.

    Args:
        jaxpr: The program. Its first inputs are `consts`.
        consts: The constants.
        in_dtypes: The dtypes of the arrays to which the function is applied: those of the other inputs, or those to
            which the program converts them.
        max_steps: The largest number of kernels.
        max_size: The largest number of elements of an array.

    Returns:
        The function; None if the program is larger, or has random keys or a primitive without a NumPy kernel.
    """
    inputs = jaxpr.invars[len(consts) :]
    eqns = _needed_eqns(jaxpr)
    avals = [x.aval for x in inputs] + [out.aval for eqn in eqns for out in eqn.outs]
    if any(aval.size > max_size or is_key(aval.dtype) for aval in avals):
        return None
    known: dict[Atom, NDArray] = {x: x.numpy() for x in jaxpr.outs if isinstance(x, Literal)}
    for v, c in zip(jaxpr.invars, consts, strict=False):
        if type(c) is not ConcreteArray:
            return None
        known[v] = c.numpy()
    examples: dict[Atom, NDArray] = {
        v: np.zeros(v.aval.shape, dtype) for v, dtype in zip(inputs, in_dtypes, strict=True)
    }
    aliases: dict[Atom, Atom] = {}
    narrow: dict[Atom, Atom] = {}  # the operands of broadcasts by their results
    steps: list[tuple[Kernel, Sequence[Atom], Sequence[Atom]]] = []
    for eqn in eqns:
        operands = [aliases.get(x, x) for x in eqn.inputs]
        known.update({x: x.numpy() for x in operands if isinstance(x, Literal)})
        hosts = [known[x] if x in known else examples[x] for x in operands]
        if isinstance(eqn.prim, ConvertElementType | Identity) and [x.dtype for x in hosts] == [eqn.outs[0].aval.dtype]:
            aliases[eqn.outs[0]] = operands[0]
            continue
        kernel = eqn.prim.numpy_kernel(*[x.aval for x in eqn.inputs]) if isinstance(eqn.prim, HasNumpyKernel) else None
        if (isinstance(kernel, np.ufunc) or _is_where(eqn)) and any(x in narrow for x in operands):
            shapes = [narrow.get(x, x).aval.shape for x in operands]
            if np.broadcast_shapes(*shapes) == eqn.outs[0].aval.shape:  # NumPy broadcasts by itself
                operands = [narrow.get(x, x) for x in operands]
                hosts = [known[x] if x in known else examples[x] for x in operands]
        elif isinstance(eqn.prim, BroadcastInDim):
            rank, out_rank = eqn.inputs[0].aval.ndim, len(eqn.prim.shape)
            if eqn.prim.broadcast_dimensions == tuple(range(out_rank - rank, out_rank)):  # as NumPy aligns axes
                narrow[eqn.outs[0]] = operands[0]
        is_constant = all(x in known for x in operands)
        if kernel is None or (is_constant and any(out.aval.size > _MAX_CONSTANT_SIZE for out in eqn.outs)):
            return None
        results, kernel = _checked(kernel, [out.aval for out in eqn.outs], hosts)
        (known if is_constant else examples).update(zip(eqn.outs, results, strict=True))
        if not is_constant:
            steps.append((kernel, operands, eqn.outs))
    outs = [aliases.get(x, x) for x in jaxpr.outs]
    needed, used = [], set(outs)
    for step in reversed(steps):
        if not used.isdisjoint(step[2]):
            needed.append(step)
            used.update(step[1])
    if len(needed) > max_steps:
        return None
    return _in_order(needed[::-1], inputs, known, outs)


def _is_where(eqn: Eqn) -> bool:
    """Whether the kernel of the equation is `np.where`."""
    return isinstance(eqn.prim, SelectN) and eqn.inputs[0].aval.dtype == dtypes.bool_


def converted_dtype(jaxpr: Jaxpr, x: Atom) -> DType:
    """Returns the dtype to which a program converts an input, if it does nothing else with it; the input's otherwise.

    Numbers are not converted to a dtype that excludes some numbers of their kind.
    """
    converted = {
        eqn.outs[0].aval.dtype if isinstance(eqn.prim, ConvertElementType) else x.aval.dtype
        for eqn in jaxpr.eqns
        if x in eqn.inputs
    }
    if len(converted) != 1 or x in jaxpr.outs:
        return x.aval.dtype
    (dtype,) = converted
    return dtype if dtypes.is_inexact(dtype) or not dtypes.is_inexact(x.aval.dtype) else x.aval.dtype


def _needed_eqns(jaxpr: Jaxpr) -> list[Eqn]:
    """Returns the equations that the outputs depend on."""
    needed: set[Atom] = set(jaxpr.outs)
    eqns = []
    for eqn in reversed(jaxpr.eqns):
        if not needed.isdisjoint(eqn.outs):
            eqns.append(eqn)
            needed.update(eqn.inputs)
    return eqns[::-1]


def _checked(kernel: Kernel, avals: Sequence[ShapedArray], operands: Sequence[object]) -> tuple[list[NDArray], Kernel]:
    """Calls a kernel; returns its results, and the kernel with a conversion if its results have other dtypes."""
    result = call_kernel(kernel, *operands)
    results = [result] if len(avals) == 1 else list(result)
    numpy_dtypes = [r.dtype if isinstance(r, np.ndarray | np.generic) else None for r in results]
    if numpy_dtypes == [aval.dtype for aval in avals]:
        return results, kernel
    converted = [np.asarray(r, aval.dtype) for r, aval in zip(results, avals, strict=True)]
    return converted, functools.partial(_convert_results, kernel, avals)


def _convert_results(kernel: Kernel, avals: Sequence[ShapedArray], *args: NDArray) -> Any:
    result = kernel(*args)
    if len(avals) == 1:
        return np.asarray(result, avals[0].dtype)
    return [np.asarray(r, aval.dtype) for r, aval in zip(result, avals, strict=True)]


def _in_order(
    steps: Sequence[tuple[Kernel, Sequence[Atom], Sequence[Atom]]],
    inputs: Sequence[Atom],
    known: dict[Atom, NDArray],
    outs: Sequence[Atom],
) -> Kernel:
    """Returns one function of the inputs that runs the kernels in order.

    Constants are copied to the outputs, which may be donated.
    """
    if len(steps) == 1:
        ((kernel, operands, results),) = steps
        if [*operands] == [*inputs] and [*results] == [*outs]:
            return kernel
    names: dict[Atom, str] = {x: f"x{i}" for i, x in enumerate(inputs)}
    variables: dict[str, object] = {}
    used = dict.fromkeys([*outs, *[x for _, operands, _ in steps for x in operands]])
    for i, x in enumerate([x for x in used if x in known]):
        names[x], variables[f"c{i}"] = f"c{i}", known[x]
    lines = [f"def replay({', '.join(names[x] for x in inputs)}):"]
    for i, (kernel, operands, results) in enumerate(steps):
        variables[f"k{i}"] = kernel
        names.update({x: f"r{i}_{j}" for j, x in enumerate(results)})
        targets = ", ".join([names[x] for x in results])
        lines.append(f"    {targets} = k{i}({', '.join([names[x] for x in operands])})")
    values = [f"{names[x]}.copy()" if x in known else names[x] for x in outs]
    lines.append(f"    return {values[0]}" if len(values) == 1 else f"    return [{', '.join(values)}]")
    return define("\n".join(lines), variables)
