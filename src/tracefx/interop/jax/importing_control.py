"""Import rules for primitives with sub-jaxprs: calls, loops, branches, checkpoints, linear solvers, reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import jax
import numpy as np
from jax.extend.core import Primitive as JaxPrimitive
from jax.extend.core import primitives

from tracefx.control.checkpoint import CheckpointPrimitive
from tracefx.control.composite import ArrayAttribute, Attributes, AttributeValue, Composite
from tracefx.control.cond import Cond
from tracefx.control.linear_solve import LinearSolve
from tracefx.control.remat import CheckpointPolicy
from tracefx.control.scan import Scan
from tracefx.control.while_loop import While
from tracefx.core import Array, ShapedArray, Value
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import as_array, bind
from tracefx.core.jaxpr import HasSubjaxprs, Jaxpr
from tracefx.core.primitive import Primitive
from tracefx.interop.jax.importing_programs import (
    ImportedProgram,
    Importer,
    ImportRule,
    JaxEquation,
    JaxJaxpr,
    input_types,
    result_types,
    retype_values,
)
from tracefx.interop.jax.parameters import parameters_to_jax
from tracefx.interop.jax.values import type_to_jax
from tracefx.ops.elementwise.selection import select
from tracefx.ops.reductions.reduction import reduce_or
from tracefx.ops.structural import broadcast_in_dim
from tracefx.pytrees import trees
from tracefx.transforms import checkpoint_policies
from tracefx.transforms.body_tracing import common_consts, convert_outputs
from tracefx.transforms.reductions import reduce, reduce_window
from tracefx.transforms.tracing import Trace

# ------------------------------------------------------------------ calls


def _inline_rule(parameter: str) -> ImportRule:
    def rule(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
        return importer.run(eqn.params[parameter], args)

    return rule


def _callee(eqn: JaxEquation) -> JaxJaxpr:
    """Returns the jaxpr of `composite` or `eval_jaxpr`: parameter `call_jaxpr` since JAX 0.11, `jaxpr` before."""
    program: JaxJaxpr = eqn.params["call_jaxpr" if "call_jaxpr" in eqn.params else "jaxpr"]
    return program


def _eval_jaxpr(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    return importer.run(_callee(eqn), args)


def _composite(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    program = importer.program(_callee(eqn), [x.aval for x in args])
    attributes: Attributes = tuple([(key, _attribute(leaves, tree)) for key, leaves, tree in params["attributes"]])
    prim = Composite(params["name"], attributes, int(params["version"]), program.jaxpr)
    return bind(prim, *program.consts, *args)


def _attribute(leaves: Sequence[Any], tree: Any) -> AttributeValue | tuple[AttributeValue, ...]:
    value = jax.tree_util.tree_unflatten(tree, [_single(getattr(leaf, "val", leaf)) for leaf in leaves])
    return tuple(value) if isinstance(value, tuple | list) else value


def _single(value: Any) -> AttributeValue:
    if isinstance(value, bool | int | float | str):
        return value
    return ArrayAttribute.of(np.asarray(value))


# ------------------------------------------------------------------ checkpoints

_POLICIES: Final[tuple[tuple[CheckpointPolicy, Callable[..., Any]], ...]] = (
    (checkpoint_policies.everything_saveable, jax.checkpoint_policies.everything_saveable),
    (checkpoint_policies.nothing_saveable, jax.checkpoint_policies.nothing_saveable),
    (checkpoint_policies.dots_saveable, jax.checkpoint_policies.dots_saveable),
    (checkpoint_policies.checkpoint_dots, jax.checkpoint_policies.checkpoint_dots),
    (
        checkpoint_policies.dots_with_no_batch_dims_saveable,
        jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    ),
    (
        checkpoint_policies.checkpoint_dots_with_no_batch_dims,
        jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims,
    ),
)
"""Pairs of equivalent checkpoint policies: tracefx's and JAX's."""


_PRIMITIVES: Final[Mapping[str, JaxPrimitive]] = MappingProxyType(
    {p.name: p for p in vars(primitives).values() if isinstance(p, JaxPrimitive)}
)


def policy_from_jax(jax_policy: Callable[..., Any] | None) -> CheckpointPolicy | None:
    """Converts a checkpoint policy of JAX. Offloading a residual to the host becomes saving it."""
    if jax_policy is None:
        return None
    for equivalent, jax_equivalent in _POLICIES:
        if jax_policy is jax_equivalent:
            return equivalent
    policy = jax_policy

    def adapted(prim: Primitive, *avals: ShapedArray) -> bool:
        if (primitive := _PRIMITIVES.get(prim.name)) is None or isinstance(prim, HasSubjaxprs):
            return False
        decision = policy(primitive, *map(type_to_jax, avals), **parameters_to_jax(prim))
        return decision if isinstance(decision, bool) else type(decision).__name__ != "RecomputeType"

    return adapted


def _checkpoint(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    return bind_checkpoint(importer, eqn.params, args)


def bind_checkpoint(importer: Importer, params: Mapping[str, Any], args: Sequence[Value]) -> Sequence[Value]:
    """Binds a checkpoint primitive from the parameters of JAX's."""
    program = importer.program(params["jaxpr"], [x.aval for x in args])
    policy = policy_from_jax(params["policy"])
    # JAX may have one flag per operand; tracefx has one for the whole function.
    prevent = params["prevent_cse"]
    prevent = any(prevent) if isinstance(prevent, tuple) else prevent
    prim = CheckpointPrimitive(program.jaxpr, params.get("differentiated", False), policy, prevent)
    return bind(prim, *program.consts, *args)


# ------------------------------------------------------------------ loops and branches


def _scan_counts(params: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the numbers of constants and carries of a `scan`.

    Since JAX 0.11 `ft_in` groups the operands into constants, carries and slices; before, two parameters count them.
    """
    if "ft_in" not in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(consts), len(carry)


def _scan(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    num_consts, num_carry = _scan_counts(params)
    n, m = num_consts, num_consts + num_carry
    carry = input_types(params["jaxpr"])[n:m]
    slices = [x.aval.without_axis(0) for x in args[m:]]
    program = importer.program(params["jaxpr"], [*[x.aval for x in args[:n]], *carry, *slices])
    outs = program.jaxpr.out_avals
    body = convert_outputs(program.jaxpr, [*carry, *outs[len(carry) :]])
    prim = Scan(
        body,
        length=params["length"],
        num_carry=len(carry),
        num_consts=len(program.consts) + n,
        reverse=params["reverse"],
        unroll=int(params["unroll"]),
    )
    return bind(prim, *program.consts, *args[:n], *retype_values(args[n:m], carry), *args[m:])


def _while(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    n, m = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    carry = input_types(params["body_jaxpr"])[params["body_nconsts"] :]
    cond_consts, body_consts = args[:n], args[n:m]
    cond = importer.program(params["cond_jaxpr"], [*[x.aval for x in cond_consts], *carry])
    body = importer.program(params["body_jaxpr"], [*[x.aval for x in body_consts], *carry])
    cond_consts, body_consts = [*cond.consts, *cond_consts], [*body.consts, *body_consts]
    step = convert_outputs(body.jaxpr, carry)
    if cond.jaxpr.out_avals[0].shape:
        cond, step = _batched_while(importer, cond.jaxpr, step, len(cond_consts), carry)
        body_consts = [*cond_consts, *body_consts]
    prim = While(body_jaxpr=step, body_nconsts=len(body_consts), cond_jaxpr=cond.jaxpr, cond_nconsts=len(cond_consts))
    return bind(prim, *cond_consts, *body_consts, *retype_values(args[m:], carry))


def _batched_while(
    importer: Importer, cond: Jaxpr, body: Jaxpr, count: int, carry: Sequence[ShapedArray]
) -> tuple[ImportedProgram, Jaxpr]:
    """Converts the loop that results from `jax.vmap` of a `while` whose predicate is batched.

    The loop runs while any predicate holds, and its body updates the batch elements whose predicate holds. The body
    takes the `count` constants of the condition before its own.
    """
    size, (pred_aval,) = len(carry), cond.out_avals

    def any_holds(*values: Value) -> Sequence[Value]:
        return [reduce_or(eval_jaxpr(cond, (), values)[0], range(pred_aval.ndim))]

    def step(*values: Value) -> Sequence[Value]:
        olds = values[len(values) - size :]
        (holds,) = eval_jaxpr(cond, (), [*values[:count], *olds])
        news = eval_jaxpr(body, (), values[count:])
        masks = [broadcast_in_dim(holds, x.aval.shape, range(pred_aval.ndim)) for x in olds]
        return [select(mask, new, old) for mask, new, old in zip(masks, news, olds, strict=True)]

    new_body = importer.staged(step, [*cond.in_avals[:count], *body.in_avals])
    return importer.staged(any_holds, cond.in_avals), convert_outputs(new_body.jaxpr, carry)


def _cond(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    index, *operands = args
    avals = [x.aval for x in operands]
    branches = [importer.program(branch, avals) for branch in eqn.params["branches"]]
    bodies, consts = common_consts([_as_trace(branch) for branch in branches])
    return bind(Cond(tuple([convert_outputs(body, result_types(eqn)) for body in bodies])), index, *consts, *operands)


def _as_trace(program: ImportedProgram) -> Trace:
    return Trace(program.jaxpr, program.consts, trees.structure(()), "branch")


# ------------------------------------------------------------------ solvers and reductions


def _linear_solve(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Makes all sub-jaxprs take all constants; in JAX each takes its own only."""
    programs, lengths = eqn.params["jaxprs"], eqn.params["const_lengths"]
    count = sum(lengths)
    avals = [*[x.aval for x in args[:count]], *[x.aval.strong() for x in args[count:]]]
    bodies: list[ImportedProgram | None] = []
    start = 0
    for jax_jaxpr, length in zip(programs, lengths, strict=True):
        bodies.append(
            None
            if jax_jaxpr is None
            else importer.staged(_with_own_constants(importer, jax_jaxpr, start, count), avals)
        )
        start += length
    traced = [_as_trace(body) for body in bodies if body is not None]
    jaxprs, consts = common_consts(traced)
    size = len(args) - count
    converted = iter([convert_outputs(j, [*avals[count:], *j.out_avals[size:]]) for j in jaxprs])
    matvec, vecmat, solve, transpose_solve = [None if body is None else next(converted) for body in bodies]
    assert matvec is not None
    assert solve is not None
    prim = LinearSolve(len(consts) + count, matvec, solve, vecmat, transpose_solve)
    return bind(prim, *consts, *args[:count], *retype_values(args[count:], avals[count:]))


def _with_own_constants(
    importer: Importer, jax_jaxpr: JaxJaxpr, start: int, count: int
) -> Callable[..., Sequence[Value]]:
    """Runs a jaxpr of JAX that takes, of all `count` constants, its own ones, which begin at index `start`."""
    num_inputs = len(input_types(jax_jaxpr))

    def run(*values: Value) -> Sequence[Value]:
        operands = values[count:]
        return importer.run(jax_jaxpr, [*values[start : start + num_inputs - len(operands)], *operands])

    return run


def _reducer(importer: Importer, jax_jaxpr: JaxJaxpr, consts: Sequence[Value]) -> Callable[[Any, Any], Any]:
    def computation(a: Sequence[Array], b: Sequence[Array]) -> list[Array]:
        return [as_array(x) for x in importer.run(jax_jaxpr, [*consts, *a, *b])]

    return computation


def _reduce(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    n = len(args) // 2
    operands, init_values = [list(map(as_array, part)) for part in (args[:n], args[n:])]
    computation = _reducer(importer, eqn.params["jaxpr"], ())
    results: Sequence[Value] = reduce(operands, init_values, computation, eqn.params["dimensions"])
    return results


def _reduce_window(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    n, params = len(args) // 2, eqn.params
    operands, init_values = [list(map(as_array, part)) for part in (args[:n], args[n:])]
    computation = _reducer(importer, params["jaxpr"], list(map(importer.constant, params["consts"])))
    results: Sequence[Value] = reduce_window(
        operands,
        init_values,
        computation,
        params["window_dimensions"],
        params["window_strides"],
        params["padding"],
        params["base_dilation"],
        params["window_dilation"],
    )
    return results


RULES: Final[Mapping[str, ImportRule]] = MappingProxyType(
    {
        "call": _inline_rule("call_jaxpr"),
        "closed_call": _inline_rule("call_jaxpr"),
        "composite": _composite,
        "cond": _cond,
        "custom_linear_solve": _linear_solve,
        "custom_partitioning": _inline_rule("call"),
        "eval_jaxpr": _eval_jaxpr,
        "program_order": _inline_rule("call_jaxpr"),
        "reduce": _reduce,
        "reduce_window": _reduce_window,
        "remat2": _checkpoint,
        "scan": _scan,
        "while": _while,
    }
)
"""Import rules by name of JAX's primitive."""
