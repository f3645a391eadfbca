"""Short programs as functions of NumPy's arrays: the kernels of their operations, one after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.core.jaxpr import Atom, Eqn, Jaxpr
from tracefx.core.kernel_context import call_kernel
from tracefx.core.literal import Literal
from tracefx.core.values import ConcreteArray, Value
from tracefx.ops.annotations.identity import Identity
from tracefx.ops.operation import HasNumpyKernel
from tracefx.ops.structural import ConvertElementType

Kernel: TypeAlias = Callable[..., Any]
"""From NumPy's arrays to one, or to a sequence of some for a program with several outputs."""
Step: TypeAlias = tuple[Kernel, Sequence[Atom], Sequence[Atom]]
"""A kernel, its operands, and what its results are."""
LONGEST: Final = 40  # operations, and
LARGEST: Final = 1 << 16  # elements; beyond, what calls the kernels takes little of the time
LARGEST_KEPT: Final = 1 << 12  # elements of what is computed once and kept


def replay(jaxpr: Jaxpr, consts: Sequence[Value]) -> Kernel | None:
    """What a program, whose first inputs are `consts`, computes of NumPy's arrays: what its operations give when they
    are evaluated one by one.

    What depends on no input is computed now. None if the program is long or its arrays are large, or if one of its
    operations is not evaluated by NumPy.
    """
    count = len(consts)
    eqns = _needed(jaxpr.eqns, jaxpr.outs)
    sizes = [out.aval.size for eqn in eqns for out in eqn.outs]
    if len(eqns) > LONGEST or max(sizes, default=0) > LARGEST:
        return None
    known: dict[Atom, NDArray] = {}  # what depends on no input
    for v, c in zip(jaxpr.invars[:count], consts, strict=True):
        if type(c) is not ConcreteArray:
            return None
        known[v] = c.numpy()
    examples: dict[Atom, NDArray] = {v: np.zeros(v.aval.shape, v.aval.dtype) for v in jaxpr.invars[count:]}
    inputs = list(examples)
    same: dict[Atom, Atom] = {}
    steps: list[Step] = []
    for eqn in eqns:
        operands = [same.get(x, x) for x in eqn.inputs]
        for x in operands:
            if isinstance(x, Literal):
                known[x] = x.numpy()
        if _changes_nothing(eqn):
            same[eqn.outs[0]] = operands[0]
            continue
        kernel = eqn.prim.numpy_kernel(*[x.aval for x in operands]) if isinstance(eqn.prim, HasNumpyKernel) else None
        if kernel is None:
            return None
        constant = all(x in known for x in operands)
        if constant and max([out.aval.size for out in eqn.outs]) > LARGEST_KEPT:
            return None
        found = call_kernel(kernel, *[known[x] if x in known else examples[x] for x in operands])
        avals = [out.aval for out in eqn.outs]
        results: list[Any] = [found] if len(avals) == 1 else list(found)
        if [type(r) is np.ndarray and r.dtype for r in results] != [a.dtype for a in avals]:
            results = [np.asarray(r, a.dtype) for r, a in zip(results, avals, strict=True)]
            kernel = functools.partial(_with_dtypes, kernel, avals)
        (known if constant else examples).update(zip(eqn.outs, results, strict=True))
        if not constant:
            steps.append((kernel, operands, eqn.outs))
    outs = [same.get(x, x) for x in jaxpr.outs]
    known.update({x: x.numpy() for x in outs if isinstance(x, Literal)})
    return _in_order(steps, inputs, known, outs)


def _in_order(
    steps: Sequence[Step], inputs: Sequence[Atom], known: dict[Atom, NDArray], outs: Sequence[Atom]
) -> Kernel:
    """One function of the inputs that takes the steps."""
    single = len(outs) == 1
    if single and not steps and outs[0] in known:
        (constant,) = [known[x] for x in outs]
        return lambda *_: constant.copy()
    if single and len(steps) == 1 and [*steps[0][1]] == [*inputs] and [*steps[0][2]] == [*outs]:
        return steps[0][0]
    names: dict[Atom, str] = {x: f"x{i}" for i, x in enumerate(inputs)}
    used = dict.fromkeys([x for _, operands, _ in steps for x in operands] + [*outs])
    names |= {x: f"c{i}" for i, x in enumerate([x for x in used if x in known])}
    scope: dict[str, Any] = {names[x]: known[x] for x in used if x in known}
    lines = [f"def run({', '.join([names[x] for x in inputs])}):"]
    for i, (kernel, operands, results) in enumerate(steps):
        names |= {x: f"v{i}_{j}" for j, x in enumerate(results)}
        scope[f"k{i}"] = kernel
        given = ", ".join([names[x] for x in operands])
        lines.append(f"    {', '.join([names[x] for x in results])} = k{i}({given})")
    found = [names[x] for x in outs]
    lines.append(f"    return {found[0] if single else '[' + ', '.join(found) + ']'}")
    exec("\n".join(lines), scope)  # of numbered names alone: a step in a loop takes as long as a kernel
    run: Kernel = scope["run"]
    return run


def _changes_nothing(eqn: Eqn) -> bool:
    """Whether the numbers stay as they are."""
    same = eqn.inputs[0].aval.dtype is eqn.outs[0].aval.dtype if len(eqn.inputs) == len(eqn.outs) == 1 else False
    return same and isinstance(eqn.prim, ConvertElementType | Identity)


def _needed(eqns: Sequence[Eqn], outs: Sequence[Atom]) -> list[Eqn]:
    """The equations that the outputs depend on."""
    wanted, found = set(outs), []
    for eqn in reversed(eqns):
        if not wanted.isdisjoint(eqn.outs):
            found.append(eqn)
            wanted.update(eqn.inputs)
    return found[::-1]


def _with_dtypes(kernel: Kernel, avals: Sequence[ShapedArray], *args: NDArray) -> Any:
    found = kernel(*args)
    if len(avals) == 1:
        return np.asarray(found, avals[0].dtype)
    return [np.asarray(x, aval.dtype) for x, aval in zip(found, avals, strict=True)]
