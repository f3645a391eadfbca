"""A JAX primitive that wraps any tracefx primitive, for those without a counterpart in JAX.

Its jvp, transpose and batching rules run the wrapped primitive's own rules. So user-defined derivatives are preserved,
as are the rules of user-defined primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import jax
from jax.extend.core import Primitive as JaxPrimitive
from jax.interpreters import ad, batching, mlir

from tracefx.control.callback import PureCallback
from tracefx.core import ShapedArray
from tracefx.core.backend import BACKEND
from tracefx.core.jaxpr import single_eqn_jaxpr
from tracefx.core.primitive import Batchable, Differentiable, Expandable, MappedAxis, Primitive, Transposable
from tracefx.errors import MissingRuleError
from tracefx.interop.jax.exporting_callbacks import export_pure_callback
from tracefx.interop.jax.exporting_programs import Exporter, constant_to_jax, jax_settings, samples_differently
from tracefx.interop.jax.values import JaxType, type_from_jax, type_to_jax
from tracefx.interpreters.jaxpr_transforms import batch_jaxpr, jvp_jaxpr, transpose_jaxpr
from tracefx.interpreters.masks import select_unmasked
from tracefx.lowering import Lowerable
from tracefx.pytrees import trees
from tracefx.transforms.jax_export_format import JaxExport

OPERATION_P: Final = JaxPrimitive("tracefx_operation")
"""Applies the tracefx primitive `operation`; `export` is the exporter to run its rules with."""
OPERATION_P.multiple_results = True


def export_fallback(export: Exporter, prim: Primitive, args: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """Wraps a primitive without a counterpart in JAX; one that has only an expansion is expanded instead."""
    if export.has_counterpart(prim):
        return bind_tracefx_operation(export, prim, args)
    if isinstance(prim, Expandable) and not isinstance(prim, Differentiable | Transposable | Batchable):
        return export.run_function(prim.expand, _types_of(args), args)
    if not isinstance(prim, Expandable | Lowerable):
        raise MissingRuleError(
            f"to_jax: JAX has nothing like the operation {prim.name!r}, which has no rule to compile it by: in class "
            f"{type(prim).__name__}, define lower(self, builder, *operands) or expand(self, *args), or pass "
            f"rules={{{prim.name!r}: rule}} to to_jax, where rule(operation, *arrays) computes the results with JAX"
        )
    return bind_tracefx_operation(export, prim, args)


def bind_tracefx_operation(export: Exporter, prim: Primitive, args: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """Binds the wrapper of a primitive."""
    results: Sequence[jax.Array] = OPERATION_P.bind(*args, operation=prim, export=export)
    return results


# ------------------------------------------------------------------ evaluation and lowering


def _types_of(args: Sequence[jax.Array]) -> list[ShapedArray]:
    return [type_from_jax(jax.typeof(x)) for x in args]


def _abstract_eval(*avals: JaxType, operation: Primitive, export: Exporter) -> list[JaxType]:
    return [type_to_jax(a) for a in operation.abstract_eval(*map(type_from_jax, avals))]


def _impl(*args: jax.Array, operation: Primitive, export: Exporter) -> Sequence[jax.Array]:
    """Evaluates or lowers the wrapped primitive: by JAX's counterpart, its expansion, or its own lowering rule."""
    if isinstance(operation, PureCallback):
        return export_pure_callback(operation, args)
    if export.has_counterpart(operation) and not samples_differently(operation, args):
        return export.bind(operation, args)
    avals = _types_of(args)
    if isinstance(operation, Expandable):
        return export.run_function(operation.expand, avals, args)
    return _compile_operation(operation, tuple(avals))(*args)


_PLATFORMS: Final[Mapping[str, str]] = MappingProxyType({"gpu": "cuda"})


def _compile_operation(operation: Primitive, avals: tuple[ShapedArray, ...]) -> Callable[..., Sequence[jax.Array]]:
    """Compiles a primitive by its own lowering rule, as an exported program that JAX can call."""
    program = single_eqn_jaxpr(operation, [a.strong() for a in avals])
    backend = jax.default_backend()
    platforms = (_PLATFORMS.get(backend, backend),)
    module, kept_inputs = BACKEND.value.serialize_portable(program, (), operation.name, platforms)
    in_tree, out_tree = trees.structure((tuple(avals), {})), trees.structure(list(program.out_avals))
    export = JaxExport(
        operation.name, in_tree, out_tree, program.in_avals, program.out_avals, platforms, module, kept_inputs
    )
    call: Callable[..., Sequence[jax.Array]] = jax.export.deserialize(bytearray(export.encode())).call
    return call


# ------------------------------------------------------------------ transformations


def _jvp(
    primals: Sequence[jax.Array], tangents: Sequence[Any], *, operation: Primitive, export: Exporter
) -> tuple[list[jax.Array], list[Any]]:
    nonzero_tangents = [t for t in tangents if not isinstance(t, ad.Zero)]
    with jax_settings():
        program = single_eqn_jaxpr(operation, _types_of(primals))
        derived = jvp_jaxpr(program, tuple([not isinstance(t, ad.Zero) for t in tangents]))
    results = export.run(derived.jaxpr, [*map(constant_to_jax, derived.consts), *primals, *nonzero_tangents])
    n = len(derived.out_nonzero)
    out_tangents = iter(results[n:])
    return results[:n], [
        next(out_tangents) if nonzero else ad.Zero(type_to_jax(aval.tangent()))
        for nonzero, aval in zip(derived.out_nonzero, program.out_avals, strict=True)
    ]


def _transpose(cts: Sequence[Any], *args: Any, operation: Primitive, export: Exporter) -> list[Any]:
    linear = tuple([ad.is_undefined_primal(a) for a in args])
    avals = [type_from_jax(a.aval) if m else type_from_jax(jax.typeof(a)) for a, m in zip(args, linear, strict=True)]
    nonzero_cts = [ct for ct in cts if not isinstance(ct, ad.Zero)]
    with jax_settings():
        nonzero = tuple([not isinstance(ct, ad.Zero) for ct in cts])
        derived = transpose_jaxpr(single_eqn_jaxpr(operation, avals), linear, nonzero)
    outs = export.run(
        derived.jaxpr, [*map(constant_to_jax, derived.consts), *select_unmasked(args, linear), *nonzero_cts]
    )
    in_cts, is_nonzero = iter(outs), iter(derived.in_nonzero)
    return [
        None if not m else next(in_cts) if next(is_nonzero) else ad.Zero(type_to_jax(aval.tangent()))
        for m, aval in zip(linear, avals, strict=True)
    ]


def _batch(
    axis: Any, args: Sequence[jax.Array], dims: Sequence[int | None], *, operation: Primitive, export: Exporter
) -> tuple[list[jax.Array], Sequence[int | None]]:
    batched_avals = _types_of(args)
    avals = [a if d is None else a.without_axis(d) for a, d in zip(batched_avals, dims, strict=True)]
    with jax_settings():
        derived = batch_jaxpr(single_eqn_jaxpr(operation, avals), MappedAxis(axis.size, axis.name), tuple(dims))
    return export.run(derived.jaxpr, [*map(constant_to_jax, derived.consts), *args]), derived.out_dims


OPERATION_P.def_abstract_eval(_abstract_eval)
OPERATION_P.def_impl(_impl)
ad.primitive_jvps[OPERATION_P] = _jvp
ad.primitive_transposes[OPERATION_P] = _transpose
batching.fancy_primitive_batchers[OPERATION_P] = _batch
mlir.register_lowering(OPERATION_P, mlir.lower_fun(_impl, multiple_results=True))
