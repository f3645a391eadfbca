"""Blocks of programs under construction: what was appended is compared, moved and taken back."""

from __future__ import annotations

from jaxlib.mlir import ir

from tracefx.xla.runtime.mlir import (
    Block,
    InsertionPoint,
    MlirOperation,
    MlirValue,
    Type,
    token_type,
    unknown_location,
)


def add_parameter(body: Block, kind: Type) -> MlirValue:
    """A new last parameter of a function, which has this body and says nothing else of its parameters."""
    function = body.owner.operation
    old = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([*old.inputs, kind], old.results))
    return body.add_argument(kind, unknown_location())


def insert_marker(place: InsertionPoint) -> MlirOperation:
    """An operation to go back to. Blocks don't know how long they are, so this takes less time than to ask one."""
    return ir.Operation.create("stablehlo.create_token", [token_type()], ip=place, loc=unknown_location())


def erase_from(marked: MlirOperation) -> None:
    """Take back the mark and all operations after it."""
    for op in list(marked.block.operations)[::-1]:
        found = op.operation == marked
        op.operation.erase()
        if found:
            return


def inline_first_region(operation: MlirOperation) -> list[MlirValue]:
    """The results of an operation's first body, which takes its place."""
    *inner, end = list(operation.regions[0].blocks[0].operations)
    for op in inner:
        op.operation.move_before(operation)
    results = list(end.operation.operands)
    operation.erase()
    return results


def move_regions(old: MlirOperation, new: MlirOperation, which: list[int]) -> None:
    """Move these bodies of an operation to another one, in their order, and take the first back."""
    blocks = [old.regions[i].blocks[0] for i in which]
    for block, region in zip(blocks, new.regions, strict=True):
        block.append_to(region)
    old.erase()


def blocks_equal(a: Block, b: Block) -> bool:
    """Whether two blocks compute the same, by the same operations in the same order, of the same values from outside.

    Where their operations are in the source doesn't matter.
    """
    return _blocks_equal(a, b, {})


def _blocks_equal(a: Block, b: Block, known: dict[MlirValue, MlirValue]) -> bool:
    """The same; `known` are values of the first and those of the second that are the same."""
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
