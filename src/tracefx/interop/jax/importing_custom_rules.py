"""Rules for JAX's primitives that hold functions of the user's: derivatives, batching rules, callbacks.

Those of derivatives and batches are functions of JAX, which JAX traces when they are asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NoReturn, final

import jax
import numpy as np
from attrs import frozen

from tracefx.control.callables import closed_over_error, derive
from tracefx.control.control_flow import drop_zeros, nonzero_mask, select_masked
from tracefx.control.custom_jvp import CustomJVP
from tracefx.control.custom_vjp import CustomVJP, ForwardResult
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import as_array, bind
from tracefx.core.primitive import Tangent, Zero
from tracefx.core.values import Value
from tracefx.interop.jax.importing_programs import ImportedProgram, Importer, ImportRule, JaxEquation
from tracefx.interop.jax.values import as_jax, type_from_jax, type_to_jax
from tracefx.interpreters.jaxpr_transforms import Mask
from tracefx.ops.structural import instantiate
from tracefx.transforms.callbacks import debug_callback, debug_print, io_callback, pure_callback
from tracefx.transforms.custom_batching import custom_vmap
from tracefx.transforms.linear_calls import linear_call
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct

# ------------------------------------------------------------------ derivatives


@final
class _JaxRule:
    """Stands for a rule of JAX where it is shown, and for itself where rules are compared."""

    def __init__(self, name: str) -> None:
        self.__qualname__ = name

    def __call__(self, *args: object) -> NoReturn:
        raise TypeError(f"the rule {self.__qualname__} is a function of JAX: only JAX can call it")


def _function_name(eqn: JaxEquation) -> str:
    """The name of the function that an equation calls."""
    return str(eqn.params["call_jaxpr"].jaxpr.debug_info.func_name)


def _apply_equation(eqn: JaxEquation, args: Sequence[Any]) -> list[Any]:
    """The results of an equation in JAX, whose transformations find its rules."""
    primitive: Any = eqn.primitive  # whose methods have no types
    found: list[Any] = primitive.bind(*args, **primitive.get_bind_params(dict(eqn.params)))
    return found


def _merge_operands(mask: Mask, fixed: Sequence[Any], moved: Sequence[Any]) -> list[Any]:
    """All operands, those in the mask as they are moved."""
    given = iter(moved)
    return [next(given) if m else x for m, x in zip(mask, fixed, strict=True)]


@final
@frozen(eq=False)
class CustomRule:
    """What an equation of JAX with a user-defined rule holds, whatever names its parameters have."""

    label: str
    """The name of the function."""
    program: ImportedProgram
    """What the function does."""
    num_consts: int
    """How many operands, the first ones, are closed-over values."""
    symbolic_zeros: bool


def _custom_jvp(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    program = translation.program(params["call_jaxpr"], [x.aval for x in args])
    rule = CustomRule(_function_name(eqn), program, params["num_consts"], params["symbolic_zeros"])
    return bind_custom_jvp(translation, eqn, args, rule, str(params["jvp_jaxpr_fun"].debug_info.func_name))


def bind_custom_jvp(
    translation: Importer, eqn: JaxEquation, args: Sequence[Value], custom: CustomRule, jvp_name: str
) -> Sequence[Value]:
    """Binds an equation whose derivatives are those that `jax.jvp` finds for it."""
    label, program = custom.label, custom.program
    held, closed = len(program.consts), len(program.consts) + custom.num_consts
    shown = _JaxRule(jvp_name)
    derived: dict[tuple[Mask, tuple[ShapedArray, ...]], ImportedProgram] = {}

    @derive(shown)
    def rule(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        mask = nonzero_mask(tangents)
        if any(mask[:closed]):
            raise closed_over_error(label)
        mask, primals = mask[held:], primals[held:]
        avals = tuple([x.aval for x in primals])
        key = mask, avals
        if (known := derived.get(key)) is None:
            known = derived[key] = _jvp_program(translation, eqn, mask, avals)
        found = eval_jaxpr(known.jaxpr, (), [*known.consts, *primals, *drop_zeros(tangents)])
        n = len(eqn.outvars)
        outs, moved = found[:n], iter(found[n:])
        return outs, [next(moved) if dtypes.is_inexact(o.aval.dtype) else Zero(o.aval.tangent()) for o in outs]

    prim = CustomJVP(label, program.jaxpr, rule, closed, custom.symbolic_zeros)
    return bind(prim, *program.consts, *args)


def _jvp_program(translation: Importer, eqn: JaxEquation, mask: Mask, avals: Sequence[ShapedArray]) -> ImportedProgram:
    """Outputs, and tangents of those that have any, from the operands and the tangents of those in the mask."""
    n = len(avals)

    def both(*values: Any) -> list[Any]:
        primals = values[:n]

        def f(*moved: Any) -> list[Any]:
            return _apply_equation(eqn, _merge_operands(mask, primals, moved))

        outs, tangents = jax.jvp(f, select_masked(primals, mask), list(values[n:]))
        return [*outs, *[t for t in tangents if t.dtype != dtypes.float0]]

    given = [*avals, *[a.tangent() for a in select_masked(avals, mask)]]
    theirs = _operand_types(eqn)
    return translation.program(translation.trace_like(both, given, [*theirs, *select_masked(theirs, mask)]), given)


def _operand_types(eqn: JaxEquation) -> list[Any]:
    """JAX's types of the operands."""
    return [v.aval for v in eqn.invars]


@final
@frozen(eq=False)
class _VjpPrograms:
    """The forward pass, from operands to outputs and residuals; the backward pass, from residuals and cotangents."""

    forward: ImportedProgram
    backward: ImportedProgram


def _custom_vjp(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    program = translation.program(params["call_jaxpr"], [x.aval for x in args])
    rule = CustomRule(_function_name(eqn), program, params["num_consts"], params["symbolic_zeros"])
    names = [str(params[key].debug_info.func_name) for key in ("fwd_jaxpr_thunk", "bwd")]
    return bind_custom_vjp(translation, eqn, args, rule, *names)


def bind_custom_vjp(
    translation: Importer, eqn: JaxEquation, args: Sequence[Value], custom: CustomRule, fwd_name: str, bwd_name: str
) -> Sequence[Value]:
    """Binds an equation whose forward and backward passes are those that `jax.vjp` finds for it."""
    label, program = custom.label, custom.program
    held, closed = len(program.consts), len(program.consts) + custom.num_consts
    known: dict[tuple[Mask, tuple[ShapedArray, ...]], _VjpPrograms] = {}
    bwd, n = _JaxRule(bwd_name), len(eqn.outvars)

    @derive(_JaxRule(fwd_name))
    def fwd(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        if any(perturbed[:closed]):
            raise closed_over_error(label)
        mask, avals = perturbed[held:], tuple([x.aval for x in primals[held:]])
        if (passes := known.get((mask, avals))) is None:
            passes = known[mask, avals] = _vjp_programs(translation, eqn, mask, avals)
        found = eval_jaxpr(passes.forward.jaxpr, (), [*passes.forward.consts, *primals[held:]])

        @derive(bwd, mask, avals)
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
            given = [instantiate(ct) for ct in cts if ct.aval.dtype != dtypes.float0]
            back = iter(eval_jaxpr(passes.backward.jaxpr, (), [*passes.backward.consts, *residuals, *given]))
            unmoved = [Zero(x.aval.tangent()) for x in primals[:held]]
            return [*unmoved, *[next(back) if m else Zero(a.tangent()) for m, a in zip(mask, avals, strict=True)]]

        return ForwardResult(found[:n], found[n:], pull)

    prim = CustomVJP(label, program.jaxpr, fwd, bwd, closed, custom.symbolic_zeros)
    return bind(prim, *program.consts, *args)


def _vjp_programs(translation: Importer, eqn: JaxEquation, mask: Mask, avals: Sequence[ShapedArray]) -> _VjpPrograms:
    n = len(eqn.outvars)
    structure: Any = None

    def forward(*primals: Any) -> list[Any]:
        nonlocal structure

        def f(*moved: Any) -> list[Any]:
            return _apply_equation(eqn, _merge_operands(mask, primals, moved))

        outs, pull = jax.vjp(f, *select_masked(primals, mask))
        residuals, structure = jax.tree_util.tree_flatten(pull)
        return [*outs, *residuals]

    traced = translation.trace_like(forward, avals, _operand_types(eqn))
    first = translation.program(traced, avals)
    outs = first.jaxpr.out_avals
    live = [dtypes.is_inexact(a.dtype) for a in outs[:n]]
    count = len(outs) - n

    def backward(*values: Any) -> list[Any]:
        pull = jax.tree_util.tree_unflatten(structure, values[:count])
        given = iter(values[count:])
        cts = [
            next(given) if alive else np.zeros(a.shape, dtypes.float0) for alive, a in zip(live, outs[:n], strict=True)
        ]
        return list(pull(cts))

    given = [*outs[n:], *[a.tangent() for a in select_masked(outs[:n], live)]]
    theirs = [v.aval for v in traced.jaxpr.outvars]
    types = [*theirs[n:], *select_masked(theirs[:n], live)]
    return _VjpPrograms(first, translation.program(translation.trace_like(backward, given, types), given))


def _linear_call(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    consts, held = params["num_callee_consts"], params["num_callee_consts"] + params["num_res"]

    def forwards(residuals: Sequence[Array], linear: Sequence[Array]) -> list[Array]:
        return _arrays(translation.run(params["callee"], [*residuals, *linear]))

    def backwards(residuals: Sequence[Array], cts: Sequence[Array]) -> list[Array]:
        transpose, own = params["transpose_thunk"]()
        values = [*map(translation.constant, own), *residuals[consts:], *cts]
        return _arrays(translation.run(transpose, values))

    return linear_call(forwards, backwards, _arrays(args[:held]), _arrays(args[held:]))


def _arrays(values: Sequence[Value]) -> list[Array]:
    return [as_array(x) for x in values]


# ------------------------------------------------------------------ batches


def _custom_vmap(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    in_tree = params["in_tree"]

    @custom_vmap
    def call(*operands: Array) -> list[Array]:
        return _arrays(translation.run(params["call"], operands))

    @call.def_vmap
    def rule(axis_size: int, in_batched: list[bool], *operands: Array) -> tuple[list[Array], list[bool]]:
        out_batched: list[bool] = []

        def theirs(*xs: Any) -> list[Any]:
            batched = list(jax.tree_util.tree_unflatten(in_tree, in_batched))
            out, flags = params["rule"](axis_size, batched, *jax.tree_util.tree_unflatten(in_tree, xs))
            out_batched.extend(jax.tree_util.tree_leaves(flags))
            return jax.tree_util.tree_leaves(out)

        avals = [x.aval for x in operands]
        traced = translation.trace(theirs, list(map(type_to_jax, avals)))
        return _arrays(translation.run(traced, operands)), out_batched

    call.__name__ = str(params["call"].jaxpr.debug_info.func_name)
    return call(*_arrays(args))


# ------------------------------------------------------------------ the host


def _with_jax_arrays(callback: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the user's, which gets arrays of JAX, as it does in JAX."""

    @functools.wraps(getattr(callback, "callback_func", callback))
    def call(*args: Array) -> Any:
        return callback(*[as_jax(x) for x in args])

    return call


def _structs(avals: Sequence[Any]) -> list[ShapeDtypeStruct]:
    types = list(map(type_from_jax, avals))
    return [ShapeDtypeStruct(a.shape, a.dtype) for a in types]


def _pure_callback(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    results = _structs(params["result_avals"])
    found: Sequence[Value] = pure_callback(
        _with_jax_arrays(params["callback"]), results, *_arrays(args), vmap_method=params["vmap_method"]
    )
    return found


def _io_callback(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    results = _structs(params["result_avals"])
    found: Sequence[Value] = io_callback(
        _with_jax_arrays(params["callback"]), results, *_arrays(args), ordered=params["ordered"]
    )
    return found


def _debug_callback(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    ordered = "Ordered" in str(params["effect"])
    debug_callback(
        _with_jax_arrays(params["callback"]), *_arrays(args), ordered=ordered, partitioned=params["partitioned"]
    )
    return ()


def _debug_print(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    static, given = dict(params["static_args"]), iter(_arrays(args))
    leaves = [static[i] if i in static else next(given) for i in range(params["in_tree"].num_leaves)]
    call_args, call_kwargs = jax.tree_util.tree_unflatten(params["in_tree"], leaves)
    with np.printoptions(**dict(params["np_printoptions"])):
        debug_print(
            params["fmt"],
            *call_args,
            ordered=params["ordered"],
            partitioned=params["partitioned"],
            skip_format_check=True,
            **call_kwargs,
        )
    return ()


RULES: Final[Mapping[str, ImportRule]] = MappingProxyType(
    {
        "custom_jvp_call": _custom_jvp,
        "custom_vjp_call": _custom_vjp,
        "custom_vmap_call": _custom_vmap,
        "debug_callback": _debug_callback,
        "debug_print": _debug_print,
        "io_callback": _io_callback,
        "linear_call": _linear_call,
        "pure_callback": _pure_callback,
    }
)
"""By the names of JAX's primitives."""
