"""Comparing, moving and erasing operations of MLIR blocks under construction."""

from __future__ import annotations

from jaxlib.mlir import ir

from tracefx.xla.runtime.mlir import Block, InsertionPoint, MlirOperation, MlirValue, Type, token_type, unknown_location


def add_parameter(body: Block, parameter_type: Type) -> MlirValue:
    """Adds a parameter at the end of a function with this body; the function must not have argument attributes."""
    function = body.owner.operation
    function_type = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get([*function_type.inputs, parameter_type], function_type.results)
    )
    return body.add_argument(parameter_type, unknown_location())


def insert_marker(insertion_point: InsertionPoint) -> MlirOperation:
    """Inserts an operation as a marker for `erase_from`; much faster than asking a block for its length."""
    return ir.Operation.create("stablehlo.create_token", [token_type()], ip=insertion_point, loc=unknown_location())


def erase_from(marker: MlirOperation) -> None:
    """Erases a marker and all operations after it."""
    for op in list(marker.block.operations)[::-1]:
        is_marker = op.operation == marker
        op.operation.erase()
        if is_marker:
            return


def inline_first_region(operation: MlirOperation) -> list[MlirValue]:
    """Replaces an operation by the operations of its first region; returns the region's results."""
    *inner, end = list(operation.regions[0].blocks[0].operations)
    for op in inner:
        op.operation.move_before(operation)
    results = list(end.operation.operands)
    operation.erase()
    return results


def move_regions(old: MlirOperation, new: MlirOperation, which: list[int]) -> None:
    """Moves the regions with indices `which` of one operation to another, in this order, and erases the first."""
    blocks = [old.regions[i].blocks[0] for i in which]
    for block, region in zip(blocks, new.regions, strict=True):
        block.append_to(region)
    old.erase()


def blocks_equal(a: Block, b: Block) -> bool:
    """Whether two blocks compute the same: the same operations in the same order on the same outer values.

    Source locations are ignored.
    """
    return _blocks_equal(a, b, {})


def _blocks_equal(a: Block, b: Block, known: dict[MlirValue, MlirValue]) -> bool:
    """Implements `blocks_equal`; `known` maps values of the first block to equal ones of the second."""
    if [x.type for x in a.arguments] != [x.type for x in b.arguments]:
        return False
    known.update(zip(a.arguments, b.arguments, strict=True))
    left, right = [[op.operation for op in block.operations] for block in (a, b)]
    return len(left) == len(right) and all(_operations_equal(x, y, known) for x, y in zip(left, right, strict=True))


def _operations_equal(x: MlirOperation, y: MlirOperation, known: dict[MlirValue, MlirValue]) -> bool:
    if x.name != y.name or [known.get(v, v) for v in x.operands] != list(y.operands):
        return False
    if [v.type for v in x.results] != [v.type for v in y.results] or _attributes(x) != _attributes(y):
        return False
    bodies = [[block for region in op.regions for block in region.blocks] for op in (x, y)]
    if len(bodies[0]) != len(bodies[1]) or not all(_blocks_equal(p, q, known) for p, q in zip(*bodies, strict=True)):
        return False
    known.update(zip(x.results, y.results, strict=True))
    return True


def _attributes(operation: MlirOperation) -> dict[str, ir.Attribute]:
    return {name: operation.attributes[name] for name in operation.attributes}
