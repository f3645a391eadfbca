"""Export rules for host callbacks and calls of kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import jax
import numpy as np
from jax.experimental import io_callback
from jax.extend.mlir import ir

from tracefx.control.callback import (
    CallbackPrimitive,
    DebugCallback,
    DebugPrimitive,
    DebugPrint,
    IOCallback,
    PureCallback,
)
from tracefx.control.ffi_call import FfiAttribute, FfiCall
from tracefx.core import ConcreteArray, NDArray, ShapedArray, dtypes
from tracefx.core.primitive import Primitive
from tracefx.interop.jax.exporting_programs import Exporter, ExportRule
from tracefx.interop.jax.values import type_from_jax


def _host_function(prim: CallbackPrimitive, args: Sequence[jax.Array]) -> Callable[..., Sequence[NDArray]]:
    """Returns the host side of a callback, as a function of the arrays that JAX passes to it."""
    avals = [type_from_jax(jax.typeof(x)) for x in args]

    def call(*arrays: Any) -> Sequence[NDArray]:
        return [out.numpy() for out in prim.run(list(map(ConcreteArray, avals, map(np.asarray, arrays))))]

    call.__name__ = prim.name
    return call


def _result_structs(prim: CallbackPrimitive) -> list[jax.ShapeDtypeStruct]:
    types: Sequence[ShapedArray] = prim.abstract_eval()
    return [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in types]


def export_pure_callback(prim: PureCallback, args: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """Exports a `pure_callback`."""
    results: Sequence[jax.Array] = jax.pure_callback(_host_function(prim, args), _result_structs(prim), *args)
    return results


def _io_callback(exporter: Exporter, prim: IOCallback, args: Sequence[jax.Array]) -> Sequence[jax.Array]:
    results: Sequence[jax.Array] = io_callback(
        _host_function(prim, args), _result_structs(prim), *args, ordered=prim.ordered
    )
    return results


def _debug_callback(exporter: Exporter, prim: DebugPrimitive, args: Sequence[jax.Array]) -> Sequence[jax.Array]:
    (effect,) = prim.effects
    call = _host_function(prim, args)

    def run(*arrays: Any) -> None:
        call(*arrays)

    jax.debug.callback(run, *args, ordered=effect.ordered)
    return ()


def _ffi_call(exporter: Exporter, prim: FfiCall, args: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """Exports a call of a kernel; both libraries call kernels of one registry, XLA's."""
    with ir.Context():
        attributes = {name: _attribute_value(ir.Attribute.parse(text)) for name, text in prim.attributes}
    layouts: dict[str, Any] = {}
    if prim.layouts is not None:
        layouts = {
            "input_layouts": [layout[::-1] for layout in prim.layouts.operands],
            "output_layouts": [layout[::-1] for layout in prim.layouts.results],
            "input_output_aliases": dict(prim.layouts.aliases),
        }
    call = jax.ffi.ffi_call(
        prim.target,
        [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in prim.result_avals],
        has_side_effect=prim.has_side_effect,
        vmap_method=prim.vmap_method,
        **layouts,
    )
    results: Sequence[jax.Array] = call(*args, **attributes)
    return results


def _attribute_value(attribute: Any) -> FfiAttribute:
    """Returns the value of an attribute that JAX converts to this attribute."""
    if isinstance(attribute, ir.DictAttr):
        items: Any = attribute  # jaxlib's annotations lack the iteration
        return {item.name: _attribute_value(item.attr) for item in items}
    if isinstance(attribute, ir.ArrayAttr):
        return tuple(map(_attribute_value, attribute))
    if isinstance(attribute, ir.DenseElementsAttr):
        return np.array(attribute)
    if isinstance(attribute, ir.BoolAttr | ir.StringAttr):
        value: bool | str = attribute.value
        return value
    name = str(attribute.type)
    kind = {"f": "float", "i": "int", "u": "uint", "b": "bfloat"}[name[0]]
    scalar: np.generic = dtypes.as_dtype(kind + name.lstrip("buif"), exact=True).type(attribute.value)
    return scalar


RULES: Final[Mapping[type[Primitive], ExportRule]] = MappingProxyType(
    {IOCallback: _io_callback, DebugCallback: _debug_callback, DebugPrint: _debug_callback, FfiCall: _ffi_call}
)
