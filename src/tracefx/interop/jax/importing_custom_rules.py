"""Import rules for primitives that contain user functions: custom derivatives, custom batching rules, callbacks.

Derivative and batching rules are functions of JAX; JAX traces them when tracefx applies the rule.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NoReturn, final

import jax
import numpy as np
from attrs import evolve, frozen

from tracefx.control.callables import closed_over_error, derive
from tracefx.control.custom_jvp import CustomJVP
from tracefx.control.custom_vjp import CustomVJP, ForwardResult
from tracefx.control.ffi_call import FfiAttribute, FfiCall, mlir_attribute
from tracefx.core import Array, ShapedArray, Value, as_value, dtypes
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import as_array, bind
from tracefx.core.primitive import Tangent
from tracefx.interop.jax.importing_programs import ImportedProgram, Importer, ImportRule, JaxEquation
from tracefx.interop.jax.values import as_jax, type_from_jax, type_to_jax
from tracefx.interpreters.masks import (
    Mask,
    drop_zeros,
    insert_zeros,
    merge_masked,
    nonzero_mask,
    select_masked,
    select_unmasked,
)
from tracefx.lowering import KernelLayouts
from tracefx.ops.structural import instantiate
from tracefx.transforms.callbacks import debug_callback, debug_print, io_callback, pure_callback
from tracefx.transforms.custom_batching import custom_vmap
from tracefx.transforms.exporting import load
from tracefx.transforms.linear_calls import linear_call
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct
from tracefx.xla.attributes import row_major_layouts

# ------------------------------------------------------------------ derivatives


@final
class _JaxRule:
    """A placeholder for a rule written with JAX: names it in `repr`, and compares by identity."""

    def __init__(self, name: str) -> None:
        self.__qualname__ = name

    def __call__(self, *args: object) -> NoReturn:
        raise TypeError(f"the rule {self.__qualname__} is written with JAX: only JAX can call it")


def _function_name(eqn: JaxEquation) -> str:
    """Returns the name of the function that an equation calls."""
    return str(eqn.params["call_jaxpr"].jaxpr.debug_info.func_name)


def _apply_equation(eqn: JaxEquation, args: Sequence[Any]) -> list[Any]:
    """Binds an equation in JAX, so that JAX's transformations apply its rules."""
    primitive: Any = eqn.primitive  # its methods are untyped
    outs: list[Any] = primitive.bind(*args, **primitive.get_bind_params(dict(eqn.params)))
    return outs


@final
@frozen(eq=False)
class CustomRule:
    """The parts of a JAX equation with a user-defined rule, independent of JAX's parameter names."""

    label: str
    """The name of the function."""
    program: ImportedProgram
    """The imported primal function."""
    num_consts: int
    """How many of the leading operands are closed-over values."""
    symbolic_zeros: bool


def _custom_jvp(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    program = importer.program(params["call_jaxpr"], [x.aval for x in args])
    rule = CustomRule(_function_name(eqn), program, params["num_consts"], params["symbolic_zeros"])
    return bind_custom_jvp(importer, eqn, args, rule, str(params["jvp_jaxpr_fun"].debug_info.func_name))


def bind_custom_jvp(
    importer: Importer, eqn: JaxEquation, args: Sequence[Value], custom: CustomRule, jvp_name: str
) -> Sequence[Value]:
    """Binds a `custom_jvp` equation whose derivatives `jax.jvp` computes."""
    label, program = custom.label, custom.program
    num_program_consts, num_closed_over = len(program.consts), len(program.consts) + custom.num_consts
    displayed_rule = _JaxRule(jvp_name)
    jvp_programs: dict[tuple[Mask, tuple[ShapedArray, ...]], ImportedProgram] = {}

    @derive(displayed_rule)
    def rule(primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        mask = nonzero_mask(tangents)
        if any(mask[:num_closed_over]):
            raise closed_over_error(label)
        mask, primals = mask[num_program_consts:], primals[num_program_consts:]
        avals = tuple([x.aval for x in primals])
        key = mask, avals
        if (jvp_program := jvp_programs.get(key)) is None:
            jvp_program = jvp_programs[key] = _jvp_program(importer, eqn, mask, avals)
        results = eval_jaxpr(jvp_program.jaxpr, (), [*jvp_program.consts, *primals, *drop_zeros(tangents)])
        n = len(eqn.outvars)
        outs = [x.aval for x in results[:n]]
        return results[:n], insert_zeros(results[n:], [dtypes.is_inexact(a.dtype) for a in outs], outs)

    prim = CustomJVP(label, program.jaxpr, rule, num_closed_over, custom.symbolic_zeros)
    return bind(prim, *program.consts, *args)


def _jvp_program(importer: Importer, eqn: JaxEquation, mask: Mask, avals: Sequence[ShapedArray]) -> ImportedProgram:
    """Imports the jvp: maps operands and the tangents in the mask to outputs and the tangents of inexact outputs."""
    n = len(avals)

    def both(*values: Any) -> list[Any]:
        primals = values[:n]

        def f(*perturbed: Any) -> list[Any]:
            return _apply_equation(eqn, merge_masked(mask, perturbed, select_unmasked(primals, mask)))

        outs, tangents = jax.jvp(f, select_masked(primals, mask), list(values[n:]))
        return [*outs, *[t for t in tangents if t.dtype != dtypes.float0]]

    in_avals = [*avals, *[a.tangent() for a in select_masked(avals, mask)]]
    jax_types = _operand_types(eqn)
    return importer.program(
        importer.trace_like(both, in_avals, [*jax_types, *select_masked(jax_types, mask)]), in_avals
    )


def _operand_types(eqn: JaxEquation) -> list[Any]:
    """Returns JAX's types of the operands."""
    return [v.aval for v in eqn.invars]


@final
@frozen(eq=False)
class _VjpPrograms:
    """The forward pass, from operands to outputs and residuals; the backward pass, from residuals and cotangents."""

    forward: ImportedProgram
    backward: ImportedProgram


def _custom_vjp(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    program = importer.program(params["call_jaxpr"], [x.aval for x in args])
    rule = CustomRule(_function_name(eqn), program, params["num_consts"], params["symbolic_zeros"])
    names = [str(params[key].debug_info.func_name) for key in ("fwd_jaxpr_thunk", "bwd")]
    return bind_custom_vjp(importer, eqn, args, rule, *names)


def bind_custom_vjp(
    importer: Importer, eqn: JaxEquation, args: Sequence[Value], custom: CustomRule, fwd_name: str, bwd_name: str
) -> Sequence[Value]:
    """Binds a `custom_vjp` equation whose forward and backward passes `jax.vjp` computes."""
    label, program = custom.label, custom.program
    num_program_consts, num_closed_over = len(program.consts), len(program.consts) + custom.num_consts
    vjp_programs: dict[tuple[Mask, tuple[ShapedArray, ...]], _VjpPrograms] = {}
    bwd, n = _JaxRule(bwd_name), len(eqn.outvars)

    @derive(_JaxRule(fwd_name))
    def fwd(primals: Sequence[Value], perturbed: Mask) -> ForwardResult:
        if any(perturbed[:num_closed_over]):
            raise closed_over_error(label)
        mask, avals = perturbed[num_program_consts:], tuple([x.aval for x in primals[num_program_consts:]])
        if (passes := vjp_programs.get((mask, avals))) is None:
            passes = vjp_programs[mask, avals] = _vjp_programs(importer, eqn, mask, avals)
        results = eval_jaxpr(passes.forward.jaxpr, (), [*passes.forward.consts, *primals[num_program_consts:]])

        @derive(bwd, mask, avals)
        def pull(residuals: Sequence[Value], cts: Sequence[Tangent]) -> list[Tangent]:
            nonzero_cts = [instantiate(ct) for ct in cts if ct.aval.dtype != dtypes.float0]
            in_cts = eval_jaxpr(passes.backward.jaxpr, (), [*passes.backward.consts, *residuals, *nonzero_cts])
            return insert_zeros(in_cts, (*(False,) * num_program_consts, *mask), [x.aval for x in primals])

        return ForwardResult(results[:n], results[n:], pull)

    prim = CustomVJP(label, program.jaxpr, fwd, bwd, num_closed_over, custom.symbolic_zeros)
    return bind(prim, *program.consts, *args)


def _vjp_programs(importer: Importer, eqn: JaxEquation, mask: Mask, avals: Sequence[ShapedArray]) -> _VjpPrograms:
    n = len(eqn.outvars)
    structure: Any = None

    def forward(*primals: Any) -> list[Any]:
        nonlocal structure

        def f(*perturbed: Any) -> list[Any]:
            return _apply_equation(eqn, merge_masked(mask, perturbed, select_unmasked(primals, mask)))

        outs, pull = jax.vjp(f, *select_masked(primals, mask))
        residuals, structure = jax.tree_util.tree_flatten(pull)
        return [*outs, *residuals]

    traced = importer.trace_like(forward, avals, _operand_types(eqn))
    first = importer.program(traced, avals)
    outs = first.jaxpr.out_avals
    has_cotangent = [dtypes.is_inexact(a.dtype) for a in outs[:n]]
    count = len(outs) - n

    def backward(*values: Any) -> list[Any]:
        pull = jax.tree_util.tree_unflatten(structure, values[:count])
        inexact_cts = iter(values[count:])
        cts = [
            next(inexact_cts) if inexact else np.zeros(a.shape, dtypes.float0)
            for inexact, a in zip(has_cotangent, outs[:n], strict=True)
        ]
        return list(pull(cts))

    in_avals = [*outs[n:], *[a.tangent() for a in select_masked(outs[:n], has_cotangent)]]
    jax_types = [v.aval for v in traced.jaxpr.outvars]
    in_types = [*jax_types[n:], *select_masked(jax_types[:n], has_cotangent)]
    return _VjpPrograms(first, importer.program(importer.trace_like(backward, in_avals, in_types), in_avals))


def _linear_call(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    consts, num_residuals = params["num_callee_consts"], params["num_callee_consts"] + params["num_res"]

    def forwards(residuals: Sequence[Array], linear: Sequence[Array]) -> list[Array]:
        return _arrays(importer.run(params["callee"], [*residuals, *linear]))

    def backwards(residuals: Sequence[Array], cts: Sequence[Array]) -> list[Array]:
        transpose, jax_consts = params["transpose_thunk"]()
        values = [*map(importer.constant, jax_consts), *residuals[consts:], *cts]
        return _arrays(importer.run(transpose, values))

    return linear_call(forwards, backwards, _arrays(args[:num_residuals]), _arrays(args[num_residuals:]))


def _arrays(values: Sequence[Value]) -> list[Array]:
    return [as_array(x) for x in values]


# ------------------------------------------------------------------ batching


def _custom_vmap(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    in_tree = params["in_tree"]

    @custom_vmap
    def call(*operands: Array) -> list[Array]:
        return _arrays(importer.run(params["call"], operands))

    @call.def_vmap
    def rule(axis_size: int, in_batched: list[bool], *operands: Array) -> tuple[list[Array], list[bool]]:
        out_batched: list[bool] = []

        def jax_rule(*xs: Any) -> list[Any]:
            batched = list(jax.tree_util.tree_unflatten(in_tree, in_batched))
            out, flags = params["rule"](axis_size, batched, *jax.tree_util.tree_unflatten(in_tree, xs))
            out_batched.extend(jax.tree_util.tree_leaves(flags))
            return jax.tree_util.tree_leaves(out)

        avals = [x.aval for x in operands]
        traced = importer.trace(jax_rule, list(map(type_to_jax, avals)))
        return _arrays(importer.run(traced, operands)), out_batched

    call.__name__ = str(params["call"].jaxpr.debug_info.func_name)
    return call(*_arrays(args))


# ------------------------------------------------------------------ callbacks


def _with_jax_arrays(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a host callback so that it gets JAX arrays, as it does in JAX."""

    @functools.wraps(getattr(callback, "callback_func", callback))
    def call(*args: Array) -> Any:
        return callback(*[as_jax(x) for x in args])

    return call


def _structs(avals: Sequence[Any]) -> list[ShapeDtypeStruct]:
    struct_avals = list(map(type_from_jax, avals))
    return [ShapeDtypeStruct(a.shape, a.dtype) for a in struct_avals]


def _callback_rule(call: Callable[..., Any], option: str) -> ImportRule:
    """Returns the rule of a callback with results; `option` is a parameter with the same name in both libraries."""

    def rule(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
        callback, results = _with_jax_arrays(eqn.params["callback"]), _structs(eqn.params["result_avals"])
        outs: Sequence[Value] = call(callback, results, *_arrays(args), **{option: eqn.params[option]})
        return outs

    return rule


def _debug_callback(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    ordered = "Ordered" in str(params["effect"])
    debug_callback(
        _with_jax_arrays(params["callback"]), *_arrays(args), ordered=ordered, partitioned=params["partitioned"]
    )
    return ()


def _debug_print(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    params = eqn.params
    static, arrays = dict(params["static_args"]), iter(_arrays(args))
    leaves = [static[i] if i in static else next(arrays) for i in range(params["in_tree"].num_leaves)]
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


def _ffi_call(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Imports a call of a kernel; both libraries call kernels of one registry, XLA's."""
    params = eqn.params
    target = params["target_name"]
    if params["custom_call_api_version"] != 4:
        raise NotImplementedError(f"ffi_call of {target!r} uses an interface older than XLA's typed one (version 4)")
    attributes = [
        (name, mlir_attribute(_attribute_value(value), f"ffi_call of {target!r}: the attribute {name!r}"))
        for name, value in params["attributes"]
    ]
    results = tuple(map(type_from_jax, params["result_avals"]))
    avals = [x.aval for x in args]
    default = row_major_layouts(avals, results)
    layouts = KernelLayouts(
        tuple(params["input_layouts"]),
        tuple(params["output_layouts"]),
        tuple(params["input_output_aliases"]),
        max([a.ndim for a in (*avals, *results)], default=0),
    )
    effectful, method = params["has_side_effect"], params["vmap_method"]
    is_default = evolve(layouts, core_ndim=default.core_ndim) == default
    prim = FfiCall(target, results, tuple(sorted(attributes)), effectful, method, None if is_default else layouts)
    return bind(prim, *args)


def _call_exported(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    """Imports a call of an exported function. The custom rule around it, which JAX binds, has its derivative."""
    exported = eqn.params["exported"]
    flat = dataclasses.replace(
        exported,
        in_tree=jax.tree.structure((tuple(exported.in_avals), {})),
        out_tree=jax.tree.structure(list(exported.out_avals)),
    )
    return list(map(as_value, load(flat.serialize()).call(*args)))


def _attribute_value(value: Any) -> FfiAttribute:
    """Returns the value of an attribute, which JAX wraps to make it hashable."""
    if hasattr(value, "val"):
        value = value.val
    if isinstance(value, tuple):
        return [_attribute_value(x) for x in value]
    if hasattr(value, "items"):
        return {k: _attribute_value(v) for k, v in value.items()}
    attribute: FfiAttribute = value
    return attribute


RULES: Final[Mapping[str, ImportRule]] = MappingProxyType(
    {
        "call_exported": _call_exported,
        "custom_jvp_call": _custom_jvp,
        "custom_vjp_call": _custom_vjp,
        "custom_vmap_call": _custom_vmap,
        "debug_callback": _debug_callback,
        "debug_print": _debug_print,
        "ffi_call": _ffi_call,
        "io_callback": _callback_rule(io_callback, "ordered"),
        "linear_call": _linear_call,
        "pure_callback": _callback_rule(pure_callback, "vmap_method"),
    }
)
"""Import rules by name of JAX's primitive."""
