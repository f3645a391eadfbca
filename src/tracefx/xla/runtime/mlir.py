"""Building StableHLO programs: types, constants, attributes, operations, functions, modules and their text."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
from jaxlib.mlir import ir as ir
from jaxlib.mlir._mlir_libs import _chlo, _jax_mlir_ext, _mlir, _mlirHlo, _sdy, _stablehlo

from tracefx.bounded_cache import memoize
from tracefx.core import Shape, dtypes
from tracefx.core.key_data import to_key_data
from tracefx.dimensions.symbolic_dimensions import has_symbolic_dims, is_symbolic_dim
from tracefx.xla.runtime.bindings import (
    DTYPE_BY_MLIR_NAME,
    MLIR_NAME,
    READ_DIRECTLY,
    AnyArray,
    ArraySpec,
    InvalidModuleError,
    client_lock,
    require_xla_dtype,
)

stablehlo = _stablehlo
Attribute: TypeAlias = ir.Attribute
Block: TypeAlias = ir.Block
Location: TypeAlias = ir.Location
Module: TypeAlias = ir.Module
MlirOperation: TypeAlias = ir.Operation
InsertionPoint: TypeAlias = ir.InsertionPoint
MlirRegion: TypeAlias = ir.Region
"""A region of an operation, which contains its blocks."""
Type: TypeAlias = ir.Type
MlirValue: TypeAlias = "ir.Value[ir.Type]"


def new_context() -> ir.Context:
    """Creates an MLIR context of its own; its objects are freed with it."""
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    for dialect in (stablehlo, _chlo, _sdy):
        dialect.register_dialect(context)
    _mlirHlo.register_mhlo_dialect(context)
    context.load_all_available_dialects()
    return context


def _skip_operation_classes() -> None:
    """Makes MLIR's bindings load an empty module (`dialects.stablehlo`) instead of the classes for operations."""
    bindings, name = _mlir.globals, f"{__package__}.dialects"
    modules = bindings.dialect_search_modules
    bindings.dialect_search_modules = [name, *modules]
    bindings._check_dialect_module_loaded("stablehlo")
    bindings.dialect_search_modules = modules


@functools.cache
def _process_context() -> ir.Context:
    _skip_operation_classes()
    return new_context()


def mlir_context() -> ir.Context:
    """Returns the MLIR context of the process, with StableHLO, CHLO, Shardy, func and more loaded. Thread-safe."""
    with client_lock:
        return _process_context()


@functools.cache
def unknown_location() -> ir.Location:
    """Returns the unknown location; `with unknown_location():` makes it and the context current for this thread.

    Always use `with`, which may be nested: a location that is still entered when Python exits makes MLIR abort.

    >>> with unknown_location():
    ...     ir.Type.parse("tensor<2xf32>")
    RankedTensorType(tensor<2xf32>)
    """
    return ir.Location.unknown(mlir_context())


def location(name: str, file: str | None, line: int) -> ir.Location:
    """Returns a named location in a source file; XLA copies an operation's location to its metadata."""
    context = mlir_context()
    return ir.Location.name(name, None if file is None else ir.Location.file(file, line, 0, context), context)


def at_end(block: ir.Block) -> ir.InsertionPoint:
    """Returns the insertion point at the end of a block; in `with at_end(block):` new operations are appended to it."""
    return ir.InsertionPoint(block)


@memoize(256)
def element_type(dtype: np.dtype[np.generic]) -> ir.Type:
    """Returns the MLIR element type of a dtype: signless for signed integers and bool (`i1`), `ui8` etc. for unsigned.

    Raises:
        TypeError: if XLA does not support the dtype.
    """
    dtype = dtype.newbyteorder("=")
    return ir.Type.parse(MLIR_NAME[require_xla_dtype(dtype)], mlir_context())


@memoize(8192)
def tensor_type(shape: Shape, dtype: np.dtype[np.generic]) -> ir.RankedTensorType:
    """Returns the MLIR type of an array.

    >>> tensor_type((2, 3), np.dtype(np.float32))
    RankedTensorType(tensor<2x3xf32>)
    """
    if dtypes.is_key(dtype):  # random keys are arrays of words
        shape, dtype = (*shape, dtypes.key_data_size(dtype)), dtypes.uint32
    if has_symbolic_dims(shape):
        shape = tuple([ir.ShapedType.get_dynamic_size() if is_symbolic_dim(n) else n for n in shape])
    return ir.RankedTensorType.get(shape, element_type(dtype), loc=unknown_location())


@functools.cache
def token_type() -> ir.Type:
    """Returns the type of tokens, which order operations with effects."""
    return ir.Type.parse("!stablehlo.token", mlir_context())


def spec_of(tensor: ir.Type) -> ArraySpec:
    """Returns the shape and dtype of an MLIR tensor type; the inverse of `tensor_type`.

    Raises:
        TypeError: for other types, unknown sizes, and element types without a dtype.
    """
    if not isinstance(tensor, ir.RankedTensorType) or not tensor.has_static_shape:
        raise TypeError(f"expected an array type with known sizes, got {tensor}")
    dtype = DTYPE_BY_MLIR_NAME.get(str(tensor.element_type))
    if dtype is None:
        raise TypeError(f"there is no dtype for the elements of {tensor}")
    return ArraySpec(tuple(tensor.shape), dtype)


def dense_attr(array: AnyArray, shape: Shape | None = None, context: ir.Context | None = None) -> ir.DenseElementsAttr:
    """Returns a constant. An array of one element (also `np.broadcast_to` of one) becomes a splat of any size.

    The context keeps a copy as long as it lives: in the process's context, the default, use this for small arrays only.

    Args:
        array: an array of any dtype that `element_type` supports, with any strides and byte order.
        shape: for an array of one element, the shape of the constant. None means the array's shape.
        context: a context created by `new_context`. None means the process's.

    >>> str(dense_attr(np.array([True, False])))
    'dense<[true, false]> : tensor<2xi1>'
    >>> str(dense_attr(np.array(1, np.float32), (2, 3)))
    'dense<1.000000e+00> : tensor<2x3xf32>'
    """
    array = to_key_data(array)
    if shape is None:
        shape = array.shape
    elif array.size != 1:
        raise ValueError(f"only an array of one element can be given a shape; got {shape} for shape {array.shape}")
    dtype = array.dtype.newbyteorder("=")
    if context is None:
        element, context = element_type(dtype), mlir_context()
    else:
        element = ir.Type.parse(MLIR_NAME[require_xla_dtype(dtype)], context)
    if array.size > 1 and not any(array.strides):
        array = array[(0,) * array.ndim]
    array = np.ascontiguousarray(array, dtype)
    if dtype.kind not in "biufc" or dtype not in READ_DIRECTLY:
        array = array.view(f"u{dtype.itemsize}")  # ml_dtypes arrays do not support the buffer protocol
    return ir.DenseElementsAttr.get(array.data, type=element, shape=shape, context=context)


@memoize(4096)
def parse_attribute(text: str) -> ir.Attribute:
    """Parses an attribute, e.g. `parse_attribute("#stablehlo<comparison_direction LT>")`; cached."""
    try:
        return ir.Attribute.parse(text, mlir_context())
    except ir.MLIRError as error:
        raise InvalidModuleError(str(error)) from error


@memoize(4096)
def integer_attr(value: int, bits: int = 64) -> ir.IntegerAttr:
    """Returns a signless integer: `3 : i64`."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(bits, mlir_context()), value)


def float_attr(value: float, dtype: np.dtype[np.generic]) -> ir.FloatAttr:
    """Returns a floating-point number: `1.0 : f32`."""
    return ir.FloatAttr.get(element_type(dtype), value, loc=unknown_location())


def bool_attr(value: bool) -> ir.BoolAttr:
    """Returns `true` or `false`."""
    return ir.BoolAttr.get(value, mlir_context())


def string_attr(value: str | bytes) -> ir.StringAttr:
    """Returns a string attribute."""
    return ir.StringAttr.get(value, mlir_context())


def symbol_attr(name: str) -> ir.FlatSymbolRefAttr:
    """Returns a reference to a function of the module: `@name`."""
    return ir.FlatSymbolRefAttr.get(name, mlir_context())


@memoize(4096)
def i64_array_attr(values: tuple[int, ...]) -> ir.DenseI64ArrayAttr:
    """Returns `array<i64: 0, 1>`, the type of StableHLO's dimension attributes."""
    return ir.DenseI64ArrayAttr.get(values, mlir_context())


@memoize(4096)
def padding_attr(pairs: tuple[tuple[int, int], ...]) -> ir.DenseElementsAttr:
    """Returns the padding of windows: `dense<[[0, 1]]> : tensor<1x2xi64>`."""
    return dense_attr(np.array(pairs, np.int64).reshape(len(pairs), 2))


def bool_array_attr(values: tuple[bool, ...]) -> ir.DenseBoolArrayAttr:
    """Returns `array<i1: true, false>`."""
    return ir.DenseBoolArrayAttr.get(values, mlir_context())


def array_attr(values: Sequence[ir.Attribute]) -> ir.ArrayAttr:
    """Returns a list of attributes: `[1, "two"]`."""
    return ir.ArrayAttr.get(values, mlir_context())


def dict_attr(values: Mapping[str, ir.Attribute]) -> ir.DictAttr:
    """Returns a dictionary of attributes: `{a = 1}`."""
    return ir.DictAttr.get(dict(values), mlir_context())


create: Final = ir.Operation.create
"""Creates an operation, without checks (see `verify`); the fastest way to build StableHLO.

Takes the operation's name, its result types, its operands, attributes by name, successors, the number of regions, the
location and the insertion point; the last two default to the current ones. Add a block to a region with
`operation.regions[0].blocks.append(*types)`.
"""


def broadcast_of(value: MlirValue) -> tuple[MlirValue, tuple[int, ...]] | None:
    """Returns the operand of a broadcast, and its sizes along the result's axes (1 for new axes); None for others."""
    producer = value.owner
    if isinstance(producer, ir.Block) or producer.name != "stablehlo.broadcast_in_dim":
        return None
    (source,) = producer.operands
    dims = list(ir.DenseI64ArrayAttr(producer.attributes["broadcast_dimensions"]))
    if not dims:
        return None
    sizes = [1] * ir.RankedTensorType(value.type).rank
    for dim, n in zip(dims, ir.RankedTensorType(source.type).shape, strict=True):
        sizes[dim] = n
    return source, tuple(sizes)


def new_module(name: str) -> ir.Module:
    """Creates an empty module."""
    module = ir.Module.create(unknown_location())
    module.operation.attributes["sym_name"] = string_attr(name)
    return module


def add_function(
    module: ir.Module,
    name: str,
    inputs: Sequence[ir.Type],
    results: Sequence[ir.Type],
    *,
    public: bool = True,
    argument_attributes: Sequence[Mapping[str, ir.Attribute]] | None = None,
    result_attributes: Sequence[Mapping[str, ir.Attribute]] | None = None,
) -> ir.Block:
    """Appends a function to a module and returns its empty body, whose `arguments` are the function's parameters.

    Args:
        module: the module.
        name: the function's symbol.
        inputs: the types of the parameters.
        results: the types of the results.
        public: whether the function is visible from outside of the module.
        argument_attributes: for each parameter, attributes such as `{"tf.aliasing_output": integer_attr(0, 32)}`.
        result_attributes: for each result, its attributes.
    """
    context = mlir_context()
    attributes: dict[str, ir.Attribute] = {
        "sym_name": string_attr(name),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, results, context), context),
        "sym_visibility": string_attr("public" if public else "private"),
    }
    if argument_attributes is not None:
        attributes["arg_attrs"] = array_attr([dict_attr(each) for each in argument_attributes])
    if result_attributes is not None:
        attributes["res_attrs"] = array_attr([dict_attr(each) for each in result_attributes])
    with unknown_location():
        operation = ir.Operation.create(
            "func.func", attributes=attributes, regions=1, ip=ir.InsertionPoint(module.body)
        )
        return ir.Block.create_at_start(operation.regions[0], inputs)


def verify(module: ir.Module) -> None:
    """Verifies a module by the rules of its dialects; raises `InvalidModuleError` with MLIR's text."""
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise InvalidModuleError(str(error)) from error


def module_text(module: ir.Module, *, locations: bool = False) -> str:
    """Returns a module in MLIR's syntax, with source locations if `locations` is set."""
    return str(module.operation.get_asm(enable_debug_info=locations))


def parse_module(text: str) -> ir.Module:
    """Parses the output of `module_text`; raises `InvalidModuleError` with MLIR's text."""
    try:
        return ir.Module.parse(text, mlir_context())
    except ir.MLIRError as error:
        raise InvalidModuleError(str(error)) from error


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
