"""Portable artifacts: StableHLO modules as bytes with compatibility guarantees across versions and platforms."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from tracefx.xla.runtime.bindings import AnyArray, InvalidModuleError, JaxRuntimeError, read_artifact, write_artifact
from tracefx.xla.runtime.mlir import dense_attr, module_text, new_context, stablehlo, unknown_location


def _target_version() -> str:
    """Returns the StableHLO version that consumers have who update at least every four weeks."""
    return stablehlo.get_version_from_compatibility_requirement(stablehlo.StablehloCompatibilityRequirement.WEEK_4)


def portable_artifact(
    module: ir.Module, constants: Sequence[AnyArray] = (), first: int = 0, *, spread: bool = False
) -> bytes:
    """Serializes a module as a portable artifact.

    Args:
        module: the module.
        constants: arrays that replace the arguments of `main` from index `first` on.
        first: the index of the first argument to replace.
        spread: whether the module is for several devices; its Shardy annotations are then kept, as in JAX's exports.

    Raises:
        InvalidModuleError: if StableHLO can't serialize the module.
    """
    try:
        data = write_artifact(module, _target_version(), spread)
        if not constants:
            return data
        context = new_context()  # a temporary context, so that large constants are freed
        with context, ir.Location.unknown(context):
            copy = read_artifact(data)
            _inline_constants(copy, constants, first, context)
            return write_artifact(copy, _target_version(), spread)
    except JaxRuntimeError as error:
        raise InvalidModuleError(str(error)) from error


def _inline_constants(module: ir.Module, constants: Sequence[AnyArray], first: int, context: ir.Context) -> None:
    (main,) = [op for op in module.body if ir.StringAttr(op.attributes["sym_name"]).value == "main"]
    block = main.regions[0].blocks[0]
    start = ir.InsertionPoint.at_block_begin(block)
    last = first + len(constants)
    for argument, array in zip(list(block.arguments)[first:last], constants, strict=True):
        attributes: dict[str, ir.Attribute] = {"value": dense_attr(array, context=context)}
        constant = ir.Operation.create("stablehlo.constant", [argument.type], attributes=attributes, ip=start)
        argument.replace_all_uses_with(constant.result)
    for _ in constants:
        block.erase_argument(first)
    function_type = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    inputs = [*function_type.inputs[:first], *function_type.inputs[last:]]
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, function_type.results))
    if "arg_attrs" in main.attributes:
        argument_attributes = list(ir.ArrayAttr(main.attributes["arg_attrs"]))
        main.attributes["arg_attrs"] = ir.ArrayAttr.get([*argument_attributes[:first], *argument_attributes[last:]])


def read_portable(data: bytes) -> ir.Module:
    """Parses a portable artifact to a module in the process's context.

    Raises:
        InvalidModuleError: if StableHLO can't read it.
    """
    try:
        with unknown_location():
            return read_artifact(data)
    except JaxRuntimeError as error:
        raise InvalidModuleError(str(error)) from error


def portable_text(data: bytes) -> str:
    """Returns the MLIR text of a portable artifact; raises as `read_portable` does."""
    context = new_context()
    try:
        with context, ir.Location.unknown(context):
            return module_text(read_artifact(data))
    except JaxRuntimeError as error:
        raise InvalidModuleError(str(error)) from error
