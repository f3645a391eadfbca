"""Portable artifacts: StableHLO as bytes that other versions of it read, for years and on other platforms."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from tracefx.xla.runtime.bindings import AnyArray, InvalidModuleError, JaxRuntimeError, read_artifact, write_artifact
from tracefx.xla.runtime.mlir import dense_attr, module_text, new_context, stablehlo, unknown_location


def _target_version() -> str:
    """The version of StableHLO that all have who update once a month."""
    return stablehlo.get_version_from_compatibility_requirement(stablehlo.StablehloCompatibilityRequirement.WEEK_4)


def portable_artifact(
    module: ir.Module, constants: Sequence[AnyArray] = (), first: int = 0, *, spread: bool = False
) -> bytes:
    """The module as a portable artifact; the arguments of `main` from `first` on become constants, if any are given.

    If it is `spread`, for several devices, what it says to Shardy stays as it is, as in what JAX exports.

    Raises:
        InvalidModuleError: if StableHLO can't write the module.
    """
    try:
        data = write_artifact(module, _target_version(), spread)
        if not constants:
            return data
        context = new_context()  # so that large constants don't stay
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
        made = ir.Operation.create("stablehlo.constant", [argument.type], attributes=attributes, ip=start)
        argument.replace_all_uses_with(made.result)
    for _ in constants:
        block.erase_argument(first)
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    inputs = [*kind.inputs[:first], *kind.inputs[last:]]
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, kind.results))
    if "arg_attrs" in main.attributes:
        each = list(ir.ArrayAttr(main.attributes["arg_attrs"]))
        main.attributes["arg_attrs"] = ir.ArrayAttr.get([*each[:first], *each[last:]])


def read_portable(data: bytes) -> ir.Module:
    """The module of a portable artifact, in the context of the process.

    Raises:
        InvalidModuleError: if StableHLO can't read it.
    """
    try:
        with unknown_location():
            return read_artifact(data)
    except JaxRuntimeError as error:
        raise InvalidModuleError(str(error)) from error


def portable_text(data: bytes) -> str:
    """The module of a portable artifact in MLIR's syntax; raises as `read_portable` does."""
    context = new_context()
    try:
        with context, ir.Location.unknown(context):
            return module_text(read_artifact(data))
    except JaxRuntimeError as error:
        raise InvalidModuleError(str(error)) from error
