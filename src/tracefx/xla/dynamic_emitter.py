"""The emitter for programs with symbolic dimensions: operations of StableHLO whose sizes are operands.

The sizes of the arguments give the values of the dimension variables; all other sizes are computed from these. The
compiler replaces them by constants when the sizes of the arguments are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

import numpy as np
from attrs import evolve
from typing_extensions import override

from tracefx.core import Literal, ShapedArray, dtypes
from tracefx.core.device import Device
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.key_data import key_data_aval
from tracefx.dimensions.bounds import SymbolicScope
from tracefx.dimensions.solving import is_symbolic, scope_of, solve_variables
from tracefx.dimensions.symbolic_dimensions import (
    Factor,
    Polynomial,
    has_symbolic_dims,
    is_symbolic_dim,
    polynomial_of,
    variables_of,
)
from tracefx.lowering import Attr, CompositeAttr, DenseI64Array, IrValue, KernelLayouts, MlirText, Region, WindowPadding
from tracefx.xla.attributes import custom_call_attributes, layout_attributes, row_major_layouts
from tracefx.xla.emitted_module import aval_to_ir_type, unwrap_values
from tracefx.xla.emitter import Emitter
from tracefx.xla.runtime import mlir

_SIZE: Final = ShapedArray((), dtypes.int32)
_FLAG: Final = ShapedArray((), dtypes.bool_)

_SIZES_OF_RESULT: Final = {
    "stablehlo.broadcast_in_dim": "stablehlo.dynamic_broadcast_in_dim",
    "stablehlo.iota": "stablehlo.dynamic_iota",
    "stablehlo.reshape": "stablehlo.dynamic_reshape",
}
"""Operations that take the shape of the result as their last operand if it is symbolic."""

_SIZES_IN_ATTRIBUTES: Final = {
    "stablehlo.slice": ("stablehlo.real_dynamic_slice", ("start_indices", "limit_indices", "strides")),
    "stablehlo.pad": ("stablehlo.dynamic_pad", ("edge_padding_low", "edge_padding_high", "interior_padding")),
    "stablehlo.gather": ("stablehlo.dynamic_gather", ("slice_sizes",)),
}
"""Operations that take attributes as operands if one is symbolic, or the shape of the result."""


def _is_symbolic(attribute: Attr | mlir.Attribute) -> bool:
    """Whether an attribute has symbolic sizes."""
    if isinstance(attribute, WindowPadding):
        return any(map(has_symbolic_dims, attribute.pairs))
    return isinstance(attribute, DenseI64Array) and has_symbolic_dims(attribute.values)


@final
class DynamicEmitter(Emitter):
    """An emitter whose values may have symbolic dimensions.

    Functions are inlined, because their bodies have no access to the dimension variables.
    """

    __slots__ = ("_name", "_variables")

    def __init__(
        self, module: mlir.Module, platform: str | tuple[str, ...], devices: tuple[Device, ...], name: str
    ) -> None:
        super().__init__(module, platform, devices)
        self._name = name
        self._variables: dict[str, IrValue] = {}
        module.operation.attributes["jax.uses_shape_polymorphism"] = mlir.bool_attr(True)

    @override
    def inline(self, jaxpr: Jaxpr, args: Sequence[IrValue]) -> list[IrValue]:
        if not self._variables:  # the body of `main`
            self._compute_variables(args)
        return super().inline(jaxpr, args)

    @override
    def call(
        self,
        name: str,
        jaxpr: Jaxpr,
        operands: Sequence[IrValue],
        *,
        inlined: bool = True,
        merged: bool = True,
        partitioned: bool = False,
    ) -> list[IrValue]:
        return self.inline(jaxpr, operands)

    @override
    def composite(
        self,
        name: str,
        version: int,
        attributes: Mapping[str, CompositeAttr],
        jaxpr: Jaxpr,
        operands: Sequence[IrValue],
    ) -> list[IrValue]:
        return self.inline(jaxpr, operands)

    @override
    def emit(
        self,
        name: str,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        attrs: Mapping[str, Attr | mlir.Attribute] | None = None,
        regions: Sequence[Region] = (),
    ) -> list[IrValue]:
        attributes = dict(attrs or {})
        sizes_are_symbolic = any(map(_is_symbolic, attributes.values()))
        if not sizes_are_symbolic and not is_symbolic(outs):
            return super().emit(name, operands, outs, attrs, regions)
        if name in _SIZES_OF_RESULT:
            shape = self._sizes(key_data_aval(outs[0]).shape)
            return super().emit(_SIZES_OF_RESULT[name], [*operands, shape], outs, attributes)
        if name == "stablehlo.dynamic_slice" and sizes_are_symbolic:
            return self._emit_dynamic_slice(operands, outs, attributes)
        if name in _SIZES_IN_ATTRIBUTES and (sizes_are_symbolic or name == "stablehlo.slice"):
            dynamic_name, sized = _SIZES_IN_ATTRIBUTES[name]
            sizes = []
            for attribute in sized:
                values = attributes.pop(attribute)
                assert isinstance(values, DenseI64Array)
                sizes.append(self._sizes(values.values))
            return super().emit(dynamic_name, [*operands, *sizes], outs, attributes)
        if name == "stablehlo.convolution" and sizes_are_symbolic:
            padding = self._padding(attributes.pop("padding"))
            return super().emit("stablehlo.dynamic_conv", [*operands, padding], outs, attributes)
        if name == "stablehlo.reduce_window" and sizes_are_symbolic:
            return self._emit_reduce_window(operands, outs, attributes, regions[0])
        if name == "stablehlo.rng_bit_generator":
            shape = self._sizes(outs[1].shape)
            call: dict[str, Attr | mlir.Attribute] = {
                "call_target_name": mlir.string_attr("stablehlo.dynamic_rng_bit_generator"),
                "api_version": mlir.integer_attr(2, 32),
            }
            return super().emit("stablehlo.custom_call", [*operands, shape], outs, call | attributes)
        if sizes_are_symbolic:
            operation = name.removeprefix("stablehlo.")
            raise NotImplementedError(
                f"export of {self._name}: StableHLO has no {operation} of symbolic sizes, for results of type "
                f"{', '.join(map(str, outs))}"
            )
        return super().emit(name, operands, outs, attrs, regions)

    def _emit_dynamic_slice(
        self, operands: Sequence[IrValue], outs: Sequence[ShapedArray], attributes: Mapping[str, Attr | mlir.Attribute]
    ) -> list[IrValue]:
        """Emits a slice at a position that is clamped so that the slice is in bounds."""
        x, *positions = operands
        slice_sizes = attributes["slice_sizes"]
        assert isinstance(slice_sizes, DenseI64Array)
        positions_in_bounds = []
        for position, size, length in zip(positions, slice_sizes.values, key_data_aval(x.aval).shape, strict=True):
            (at,) = super().emit("stablehlo.convert", [position], [_SIZE])
            start = self._binary("minimum", self._binary("maximum", at, self._number(0)), self._size(length - size))
            positions_in_bounds.append(start)
        starts = self._vector(positions_in_bounds)
        # Sums of vectors: the compiler finds the sizes of the result only in limits of this form.
        limits = super().emit("stablehlo.add", [starts, self._sizes(slice_sizes.values)], [starts.aval])
        bounds = [starts, *limits, self._sizes((1,) * len(positions))]
        return super().emit("stablehlo.real_dynamic_slice", [x, *bounds], outs)

    def _emit_reduce_window(
        self,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        attributes: Mapping[str, Attr | mlir.Attribute],
        reducer: Region,
    ) -> list[IrValue]:
        """Emits a reduction of windows of symbolic sizes: a custom call, which the compiler specializes."""
        symbol = self._unique_symbol("reducer")
        types = list(map(aval_to_ir_type, reducer.args))
        body = mlir.add_function(self.module, symbol, types, types[: len(outs)], public=False)
        with mlir.unknown_location():
            self._fill(body, reducer, "func.return")
        ones = DenseI64Array((1,) * outs[0].ndim)
        windows = []
        for name in ("window_dimensions", "window_strides", "base_dilations", "window_dilations"):
            values = attributes.get(name, ones)
            assert isinstance(values, DenseI64Array)
            windows.append(self._sizes(values.values))
        call: dict[str, Attr | mlir.Attribute] = {
            "call_target_name": mlir.string_attr("stablehlo.dynamic_reduce_window"),
            "called_computations": mlir.array_attr([mlir.symbol_attr(symbol)]),
            "api_version": mlir.integer_attr(2, 32),
        }
        windows.append(self._padding(attributes["padding"]))
        return super().emit("stablehlo.custom_call", [*operands, *windows], outs, call)

    def _padding(self, attribute: Attr | mlir.Attribute) -> IrValue:
        """Returns the padding of windows as a matrix with a row for each axis."""
        assert isinstance(attribute, WindowPadding)
        flat = self._sizes([n for pair in attribute.pairs for n in pair])
        return super().emit("stablehlo.reshape", [flat], [ShapedArray((len(attribute.pairs), 2), _SIZE.dtype)])[0]

    @override
    def custom_call(
        self,
        target: str,
        operands: Sequence[IrValue],
        outs: Sequence[ShapedArray],
        config: Mapping[str, Attr] | None = None,
        has_side_effect: bool = False,
        layouts: KernelLayouts | None = None,
    ) -> list[IrValue]:
        if not is_symbolic(outs):
            return super().custom_call(target, operands, outs, config, has_side_effect, layouts)
        self._register_kernel(target)
        # Operands at these indices give the shapes of the results; the compiler drops them.
        shapes = [self._sizes(key_data_aval(aval).shape) for aval in outs]
        first = len(operands)
        known = layouts or row_major_layouts([x.aval for x in operands], outs)
        extended = evolve(known, operands=(*known.operands, *[(0,)] * len(shapes)))
        attributes: dict[str, Attr | mlir.Attribute] = dict(
            custom_call_attributes(target, config or {}, has_side_effect)
        )
        attributes |= layout_attributes(extended)
        attributes["indices_of_shape_operands"] = mlir.dense_attr(np.arange(first, first + len(shapes)))
        return super().emit("stablehlo.custom_call", [*operands, *shapes], outs, attributes)

    # -------------------------------------------------------------- sizes

    @override
    def dimension(self, size: int, aval: ShapedArray) -> IrValue:
        value = self._size(size)
        return value if aval.dtype == _SIZE.dtype else super().emit("stablehlo.convert", [value], [aval])[0]

    def _sizes(self, sizes: Sequence[int]) -> IrValue:
        """Returns sizes as a vector."""
        if not has_symbolic_dims(sizes):
            return self.constant(np.array(sizes, np.int32))
        return self._vector([self._size(n) for n in sizes])

    def _vector(self, sizes: Sequence[IrValue]) -> IrValue:
        one = ShapedArray((1,), _SIZE.dtype)
        parts = [super(DynamicEmitter, self).emit("stablehlo.reshape", [n], [one])[0] for n in sizes]
        if len(parts) == 1:
            return parts[0]
        return super().emit(
            "stablehlo.concatenate", parts, [ShapedArray((len(parts),), _SIZE.dtype)], {"dimension": 0}
        )[0]

    def _number(self, value: int) -> IrValue:
        return self.constant(Literal(value, _SIZE))

    def _binary(self, name: str, x: IrValue, y: IrValue) -> IrValue:
        return super().emit(f"stablehlo.{name}", [x, y], [_SIZE])[0]

    def _compare(self, direction: str, x: IrValue, y: IrValue) -> IrValue:
        attributes: dict[str, Attr] = {
            "comparison_direction": MlirText(f"#stablehlo<comparison_direction {direction}>")
        }
        return super().emit("stablehlo.compare", [x, y], [_FLAG], attributes)[0]

    def _size(self, size: int) -> IrValue:
        return self._polynomial(polynomial_of(size))

    def _polynomial(self, polynomial: Polynomial) -> IrValue:
        total: IrValue | None = None
        for term, k in polynomial.terms:
            product = None if k == 1 and term.factors else self._number(k)
            for factor, exponent in term.factors:
                value = self._factor(factor)
                for _ in range(exponent):
                    product = value if product is None else self._binary("multiply", product, value)
            assert product is not None
            total = product if total is None else self._binary("add", total, product)
        return self._number(0) if total is None else total

    def _factor(self, factor: Factor) -> IrValue:
        if factor.is_variable:
            return self._variables[factor.name]
        left, right = map(self._polynomial, factor.operands)
        if factor.name in ("max", "min"):
            return self._binary(f"{factor.name}imum", left, right)
        quotient = self._floor_divide(left, right)
        if factor.name == "floordiv":
            return quotient
        return self._binary("subtract", left, self._binary("multiply", quotient, right))

    def _floor_divide(self, x: IrValue, y: IrValue) -> IrValue:
        quotient, zero = self._binary("divide", x, y), self._number(0)  # rounded towards zero
        remainder = self._binary("remainder", x, y)
        other_sign = self._compare("LT", self._binary("multiply", remainder, y), zero)
        lower = self._binary("subtract", quotient, self._number(1))
        return super().emit("stablehlo.select", [other_sign, lower, quotient], [_SIZE])[0]

    # -------------------------------------------------------------- dimension variables

    def _compute_variables(self, args: Sequence[IrValue]) -> None:
        """Emits the dimension variables as functions of the sizes of arguments, and assertions about all sizes."""
        avals = [x.aval for x in args]
        for name, argument, axis, coefficient, rest in solve_variables(avals, self._name):
            size = self._argument_size(args[argument], axis)
            difference = self._binary("subtract", size, self._polynomial(rest)) if rest.terms else size
            if coefficient != 1:
                divisor = self._number(coefficient)
                exact = self._compare("EQ", self._binary("remainder", difference, divisor), self._number(0))
                self._assert(
                    exact, f"an axis of size {{0}} is not {avals[argument].shape[axis]} for any integer {name}", size
                )
                difference = self._binary("divide", difference, divisor)
            self._variables[name] = difference
            self._assert(self._compare("GE", difference, self._number(1)), f"{name} = {{0}} is not >= 1", difference)
        for x in args:
            for axis, n in enumerate(x.aval.shape):
                if is_symbolic_dim(n):
                    size = self._argument_size(x, axis)
                    self._assert(
                        self._compare("EQ", size, self._polynomial(n.polynomial)),
                        f"an axis of size {{0}} is not {n} = {{1}}",
                        size,
                        self._polynomial(n.polynomial),
                    )
        scope = scope_of(avals, self._name)
        for text, constraint in scope.checked if isinstance(scope, SymbolicScope) else ():
            if variables_of(constraint.polynomial) <= self._variables.keys():
                direction = "EQ" if constraint.is_equality else "GE"
                holds = self._compare(direction, self._polynomial(constraint.polynomial), self._number(0))
                self._assert(holds, f"the constraint {text} is not satisfied")

    def _argument_size(self, x: IrValue, axis: int) -> IrValue:
        return super().emit("stablehlo.get_dimension_size", [x], [_SIZE], {"dimension": axis})[0]

    def _assert(self, holds: IrValue, message: str, *values: IrValue) -> None:
        """Emits an assertion, which the compiler checks when the sizes are known; `{0}` is the first of the values."""
        attributes: dict[str, mlir.Attribute] = {
            "call_target_name": mlir.string_attr("shape_assertion"),
            "error_message": mlir.string_attr(f"{self._name}: {message}"),
            "has_side_effect": mlir.bool_attr(True),
            "api_version": mlir.integer_attr(2, 32),
        }
        operands = unwrap_values([holds, *values])
        mlir.create("stablehlo.custom_call", [], operands, attributes, None, 0, self._line, self._block)
