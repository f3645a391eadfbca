"""StableHLO programs: types, constants, attributes, operations, functions, modules and their text."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

import numpy as np
from jaxlib.mlir import ir as ir
from jaxlib.mlir._mlir_libs import _chlo, _jax_mlir_ext, _mlirHlo, _sdy, _stablehlo

from tracefx.core import dtypes
from tracefx.core.key_data import to_key_data
from tracefx.xla.runtime.bindings import (
    DTYPE_BY_MLIR_NAME,
    MLIR_NAME,
    READ_DIRECTLY,
    AnyArray,
    ArraySpec,
    InvalidModuleError,
    Shape,
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
"""Where an operation that has regions keeps the blocks of one."""
Type: TypeAlias = ir.Type
MlirValue: TypeAlias = "ir.Value[ir.Type]"


def new_context() -> ir.Context:
    """A context of its own: what is made in it goes with it."""
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    for dialect in (stablehlo, _chlo, _sdy):
        dialect.register_dialect(context)
    _mlirHlo.register_mhlo_dialect(context)
    context.load_all_available_dialects()
    return context


_make_context: Final = functools.cache(new_context)


def mlir_context() -> ir.Context:
    """The MLIR context of this process, with StableHLO, CHLO, Shardy, func and the rest loaded. Safe to share."""
    with client_lock:
        return _make_context()


@functools.cache
def unknown_location() -> ir.Location:
    """The unknown location; in `with lowering():` it and the context are current for this thread. May be nested.

    Always by `with`: one that is entered and still open when Python ends aborts the process in MLIR's own clean-up.

    >>> with unknown_location():
    ...     ir.Type.parse("tensor<2xf32>")
    RankedTensorType(tensor<2xf32>)
    """
    return ir.Location.unknown(mlir_context())


def location(name: str, file: str | None, line: int) -> ir.Location:
    """A named place in a source file; operations made in `with location(...):` carry it into XLA's metadata."""
    context = mlir_context()
    return ir.Location.name(name, None if file is None else ir.Location.file(file, line, 0, context), context)


def at_end(block: ir.Block) -> ir.InsertionPoint:
    """In `with at_end(block):` this thread's new operations are appended to the block."""
    return ir.InsertionPoint(block)


@functools.cache
def element_type(dtype: np.dtype[np.generic]) -> ir.Type:
    """The MLIR type of an element: signless for signed integers and bool (`i1`), `ui8` and so on for unsigned ones.

    Raises:
        TypeError: if XLA has no such dtype.
    """
    dtype = dtype.newbyteorder("=")
    return ir.Type.parse(MLIR_NAME[require_xla_dtype(dtype)], mlir_context())


@functools.lru_cache(maxsize=8192)
def tensor_type(shape: Shape, dtype: np.dtype[np.generic]) -> ir.RankedTensorType:
    """The MLIR type of an array.

    >>> tensor_type((2, 3), np.dtype(np.float32))
    RankedTensorType(tensor<2x3xf32>)
    """
    if dtypes.is_key(dtype):  # random keys, made of words
        shape, dtype = (*shape, dtypes.key_data_size(dtype)), dtypes.uint32
    return ir.RankedTensorType.get(shape, element_type(dtype), loc=unknown_location())


@functools.cache
def token_type() -> ir.Type:
    """The type of tokens, which operations hand to each other to happen in order."""
    return ir.Type.parse("!stablehlo.token", mlir_context())


def spec_of(kind: ir.Type) -> ArraySpec:
    """The shape and dtype of an MLIR tensor type; the opposite of `tensor_type`.

    Raises:
        TypeError: for other types, unknown sizes, and elements without a dtype.
    """
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        raise TypeError(f"an array's type is expected, with sizes that are known, got {kind}")
    dtype = DTYPE_BY_MLIR_NAME.get(str(kind.element_type))
    if dtype is None:
        raise TypeError(f"no dtype stands for the elements of {kind}")
    return ArraySpec(tuple(kind.shape), dtype)


def dense_attr(array: AnyArray, shape: Shape | None = None, context: ir.Context | None = None) -> ir.DenseElementsAttr:
    """An array as a constant. One element (also `np.broadcast_to` of one) becomes a splat of any size.

    The context keeps a copy as long as it lives, so in that of the process, which is the default, this is for small
    arrays.

    Args:
        array: of any dtype that `element_type` knows, any strides and byte order.
        shape: for an array of one element, the shape of the constant; else the array's own.
        context: one that `new_context` made.

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
        kind, context = element_type(dtype), mlir_context()
    else:
        kind = ir.Type.parse(MLIR_NAME[require_xla_dtype(dtype)], context)
    if array.size > 1 and not any(array.strides):
        array = array[(0,) * array.ndim]
    array = np.ascontiguousarray(array, dtype)
    if dtype.kind not in "biufc" or dtype not in READ_DIRECTLY:
        array = array.view(f"u{dtype.itemsize}")  # ml_dtypes' arrays export no buffer
    return ir.DenseElementsAttr.get(array.data, type=kind, shape=shape, context=context)


@functools.lru_cache(maxsize=4096)
def parse_attribute(text: str) -> ir.Attribute:
    """Any attribute from its text: `attribute("#stablehlo<comparison_direction LT>")`. Parsed once."""
    try:
        return ir.Attribute.parse(text, mlir_context())
    except ir.MLIRError as error:
        raise InvalidModuleError(str(error)) from error


@functools.lru_cache(maxsize=4096)
def integer_attr(value: int, bits: int = 64) -> ir.IntegerAttr:
    """A signless integer: `3 : i64`."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(bits, mlir_context()), value)


def float_attr(value: float, dtype: np.dtype[np.generic]) -> ir.FloatAttr:
    """A floating point number of a dtype: `1.0 : f32`."""
    return ir.FloatAttr.get(element_type(dtype), value, loc=unknown_location())


def bool_attr(value: bool) -> ir.BoolAttr:
    """`true` or `false`."""
    return ir.BoolAttr.get(value, mlir_context())


def string_attr(value: str | bytes) -> ir.StringAttr:
    """A string, in quotes."""
    return ir.StringAttr.get(value, mlir_context())


def symbol_attr(name: str) -> ir.FlatSymbolRefAttr:
    """A reference to a function of the module: `@name`."""
    return ir.FlatSymbolRefAttr.get(name, mlir_context())


@functools.lru_cache(maxsize=4096)
def i64_array_attr(values: tuple[int, ...]) -> ir.DenseI64ArrayAttr:
    """`array<i64: 0, 1>`, which is what StableHLO takes for dimensions."""
    return ir.DenseI64ArrayAttr.get(values, mlir_context())


def bool_array_attr(values: tuple[bool, ...]) -> ir.DenseBoolArrayAttr:
    """`array<i1: true, false>`."""
    return ir.DenseBoolArrayAttr.get(values, mlir_context())


def array_attr(values: Sequence[ir.Attribute]) -> ir.ArrayAttr:
    """A list of attributes: `[1, "two"]`."""
    return ir.ArrayAttr.get(values, mlir_context())


def dict_attr(values: Mapping[str, ir.Attribute]) -> ir.DictAttr:
    """Attributes by name: `{a = 1}`."""
    return ir.DictAttr.get(dict(values), mlir_context())


create: Final = ir.Operation.create
"""Makes an operation: the fastest of the ways to build StableHLO. Nothing is checked until `verify`.

Takes its name, the types of its results, its operands, then attributes by name, successors, the number of its regions,
its location and the insertion point where it goes, the last two by default the current ones. Fill a region with
`operation.regions[0].blocks.append(*types)`.
"""


def broadcast_of(value: MlirValue) -> tuple[MlirValue, tuple[int, ...]] | None:
    """The array that a value repeats, and its sizes along the value's axes, 1 where it has none; else None."""
    made = value.owner
    if isinstance(made, ir.Block) or made.name != "stablehlo.broadcast_in_dim":
        return None
    (source,) = made.operands
    places = list(ir.DenseI64ArrayAttr(made.attributes["broadcast_dimensions"]))
    if not places:
        return None
    sizes = [1] * ir.RankedTensorType(value.type).rank
    for place, n in zip(places, ir.RankedTensorType(source.type).shape, strict=True):
        sizes[place] = n
    return source, tuple(sizes)


def new_module(name: str) -> ir.Module:
    """An empty module."""
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
    """Appends a function to a module and returns its empty body, whose `arguments` are the function's.

    Args:
        argument_attributes: for each input, attributes such as `{"tf.aliasing_output": integer_attr(0, 32)}`.
        result_attributes: for each result.
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
    """Checks a module against the rules of its dialects; raises `InvalidModuleError` with MLIR's text."""
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise InvalidModuleError(str(error)) from error


def module_text(module: ir.Module, *, locations: bool = False) -> str:
    """A module in MLIR's syntax, with the source locations of its operations if asked for."""
    return cast(str, module.operation.get_asm(enable_debug_info=locations))


def parse_module(text: str) -> ir.Module:
    """The module that `module_text` wrote; raises `InvalidModuleError` with MLIR's text."""
    try:
        return ir.Module.parse(text, mlir_context())
    except ir.MLIRError as error:
        raise InvalidModuleError(str(error)) from error
