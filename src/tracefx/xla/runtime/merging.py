"""Merging of portable artifacts into a module: their functions become private functions of the module."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np
from attrs import frozen
from jaxlib.mlir import ir

from tracefx.xla.runtime.bindings import InvalidModuleError, JaxRuntimeError, refine_shapes
from tracefx.xla.runtime.mlir import (
    add_function,
    at_end,
    create,
    dense_attr,
    mlir_context,
    symbol_attr,
    unknown_location,
)
from tracefx.xla.runtime.portable import read_portable


@final
@frozen(eq=False)
class MergedFunction:
    """A function that was merged into a module, and the kernels that it and the functions that it calls call."""

    symbol: str
    kernels: frozenset[str]


def merge_artifact(
    target: ir.Module,
    data: bytes,
    operands: Sequence[ir.Type],
    results: Sequence[ir.Type],
    name: str,
    unique: Callable[[str], str],
    index: int | None = None,
) -> MergedFunction:
    """Adds the functions of a portable artifact to a module. Returns the one that corresponds to its `main`.

    Args:
        target: The module.
        data: The artifact.
        operands: The types of the function's parameters. They may differ from those of `main` in which sizes are known.
        results: The types of its results, likewise.
        name: The symbol for `main`. Other functions keep theirs, as far as possible.
        unique: Returns a symbol that the module does not have, derived from a given one.
        index: The platform index, if `main` takes one that is known. None by default.

    Raises:
        InvalidModuleError: If the artifact cannot be read, or its shapes do not fit the operands.
    """
    source = read_portable(data)
    main = _functions(source)["main"]
    main_type = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    for attribute in ("arg_attrs", "res_attrs"):  # they are about the parameters of executables
        if attribute in main.attributes:
            del main.attributes[attribute]
    if index is not None or [*operands] != main_type.inputs or [*results] != main_type.results:
        _add_adapter(source, main, main_type, operands, results, index)
        if all(isinstance(t, ir.RankedTensorType) and t.has_static_shape for t in operands):
            source = _refine(source)
    functions = _functions(source)
    symbols: dict[str, str] = {}
    for old in functions:
        new = unique(name if old == "main" else old)
        while new in functions and new != old:  # references to the other function would be renamed too
            new = unique(new)
        symbols[old] = new
    for old, function in functions.items():
        ir.SymbolTable.replace_all_symbol_uses(old, symbols[old], source.operation)
        ir.SymbolTable.set_symbol_name(function, symbols[old])
        if function.name == "func.func":
            ir.SymbolTable.set_visibility(function, "private")
    kernels: set[str] = set()
    for function in functions.values():
        _collect_kernels(function, kernels)
        function.clone(ip=at_end(target.body))
    return MergedFunction(symbols["main"], frozenset(kernels))


def _functions(module: ir.Module) -> dict[str, ir.Operation]:
    """Returns the operations of a module by their symbols: functions, and meshes."""
    return {ir.StringAttr(op.attributes["sym_name"]).value: op.operation for op in module.body}


def _add_adapter(
    module: ir.Module,
    callee: ir.Operation,
    callee_type: ir.FunctionType,
    operands: Sequence[ir.Type],
    results: Sequence[ir.Type],
    index: int | None,
) -> None:
    """Makes a function of other types the `main` of a module; it calls the previous one."""
    symbol = "adapted_main"
    while symbol in _functions(module):
        symbol += "_"
    ir.SymbolTable.replace_all_symbol_uses("main", symbol, module.operation)
    ir.SymbolTable.set_symbol_name(callee, symbol)
    ir.SymbolTable.set_visibility(callee, "private")
    body = add_function(module, "main", operands, results)
    where = at_end(body)

    def convert(values: Sequence[ir.Value[ir.Type]], types: Sequence[ir.Type]) -> list[ir.Value[ir.Type]]:
        return [
            value if value.type == t else create("stablehlo.convert", [t], [value], ip=where).result
            for value, t in zip(values, types, strict=True)
        ]

    with unknown_location():
        values: list[ir.Value[ir.Type]] = []
        if index is not None:
            value = dense_attr(np.array(index, np.int32))
            values += create("stablehlo.constant", [value.type], attributes={"value": value}, ip=where).results
        values = convert([*values, *body.arguments], callee_type.inputs)
        call = create("func.call", callee_type.results, values, {"callee": symbol_attr(symbol)}, ip=where)
        create("func.return", [], convert(call.results, results), ip=where)


def _refine(module: ir.Module) -> ir.Module:
    """Returns a module whose `main` has known sizes with all sizes known, and without the code of other platforms."""
    data = io.BytesIO()
    module.operation.write_bytecode(data)
    try:
        refined = refine_shapes(data.getvalue(), True, True, True)
        return ir.Module.parse(refined, mlir_context())
    except (JaxRuntimeError, ValueError, ir.MLIRError) as error:
        raise InvalidModuleError(str(error)) from error


_COMPILER_TARGETS: Final = frozenset(
    {
        *("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "shape_assertion", "annotate_device_placement"),
        *("ApproxTopK", "Eigh", "LuDecomposition", "ProductOfElementaryHouseholderReflectors", "Qr", "tpu_custom_call"),
    }
)
"""Targets of custom calls that the compiler (in the second line, that for TPUs) implements, besides StableHLO's."""


def _collect_kernels(operation: ir.Operation, kernels: set[str]) -> None:
    """Adds the targets of the custom calls in an operation, except those that the compiler implements."""
    if operation.name == "stablehlo.custom_call":
        target = ir.StringAttr(operation.attributes["call_target_name"]).value
        if target not in _COMPILER_TARGETS and not target.startswith("stablehlo."):
            kernels.add(target)
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                _collect_kernels(op.operation, kernels)
