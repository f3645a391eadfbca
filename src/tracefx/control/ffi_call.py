"""`ffi_call`: a call of a kernel that the user registered with XLA's foreign function interface."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.callback import VmapMethod, batch_vectorized, move_batch_axes_first
from tracefx.control.scan import Scan
from tracefx.core import NDArray, ShapedArray, Value, dtypes
from tracefx.core.effects import Effects, IOEffect
from tracefx.core.handler import bind
from tracefx.core.jaxpr import single_eqn_jaxpr
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import (
    Batchable,
    BatchDims,
    Differentiable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
)
from tracefx.lowering import Builder, IrValue, KernelLayouts, Lowerable, MlirText
from tracefx.ops.operation import run_compiled
from tracefx.ops.sharding_rules import unsharded_specs

FfiAttribute: TypeAlias = (
    "bool | int | float | str | bytes | np.generic | NDArray | Sequence[FfiAttribute] | Mapping[str, FfiAttribute]"
)
"""A static argument of a kernel. Python's integers and floats have 64 bits; NumPy's scalars keep their dtype."""

_MLIR_TYPES = {dtypes.bfloat16: "bf16", np.dtype(np.bool_): "i1"}


def mlir_type(dtype: np.dtype[np.generic], where: str) -> str:
    """Returns the name of the MLIR type of an attribute's dtype, or raises TypeError."""
    if dtype in _MLIR_TYPES:
        return _MLIR_TYPES[dtype]
    if dtype.kind not in "iuf":
        raise TypeError(f"{where} has dtype {dtype}; attributes are booleans, integers, floats, strings or arrays")
    return f"{'f' if dtype.kind == 'f' else 'ui' if dtype.kind == 'u' else 'i'}{8 * dtype.itemsize}"


def mlir_attribute(value: FfiAttribute, where: str) -> str:
    """Returns an attribute in MLIR syntax.

    Args:
        value: The attribute.
        where: Its description, for error messages.

    Raises:
        TypeError: If MLIR has no such attribute, or the foreign function interface cannot pass it.
        OverflowError: If a Python integer exceeds 64 bits.

    >>> mlir_attribute(np.float32(0.5), "scale")
    '0x3F000000 : f32'
    >>> mlir_attribute((1, True, "a"), "options")
    '[1 : i64, true, "a"]'
    """
    match value:
        case bool() | np.bool_():
            return "true" if value else "false"
        case int() if not -(2**63) <= value < 2**63:
            raise OverflowError(f"{where} is {value}, which exceeds 64 bits")
        case int():
            return f"{int(value)} : i64"
        case float() if not isinstance(value, np.generic):
            return mlir_attribute(np.float64(value), where)
        case str():
            return _quoted(value.encode())
        case bytes():
            return _quoted(value)
        case np.ndarray():
            element = mlir_type(value.dtype, where)
            shape = "".join([f"{n}x" for n in value.shape])
            return f"dense<{_elements(value)}> : tensor<{shape}{element}>"
        case np.generic() if value.dtype.kind in "iu":
            return f"{int(value)} : {mlir_type(value.dtype, where)}"
        case np.generic():
            element, bits = mlir_type(value.dtype, where), value.tobytes()[::-1].hex().upper()
            return f"0x{bits} : {element}"
        case Mapping():
            items = [f"{_quoted(str(k).encode())} = {mlir_attribute(v, f'{where}[{k!r}]')}" for k, v in value.items()]
            return f"{{{', '.join(items)}}}"
        case Sequence():
            return f"[{', '.join([mlir_attribute(v, f'{where}[{i}]') for i, v in enumerate(value)])}]"
        case _:
            raise TypeError(
                f"{where} is {value!r} of type {type(value).__name__}; attributes are booleans, integers, floats, "
                "strings, NumPy arrays and scalars, and sequences and dictionaries of these. Pass arrays that the "
                "program computes as positional arguments"
            )


def _quoted(text: bytes) -> str:
    return '"' + "".join([chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text]) + '"'


def _elements(array: NDArray) -> str:
    """Returns the elements of a constant: as text for booleans and no elements, else as the bytes in hexadecimal."""
    if not array.size:
        return ""
    if array.dtype == np.bool_:
        return json.dumps(array.tolist())
    little_endian = array.astype(array.dtype.newbyteorder("<"))
    return f'"0x{little_endian.tobytes().hex().upper()}"'


@final
@frozen(eq=False)
class FfiCall(Primitive, Differentiable, Transposable, Batchable, Lowerable):
    """Calls a kernel that was registered with `tracefx.ffi.register_ffi_target`.

    Args:
        target: The registered name.
        result_avals: The avals of the results.
        attributes: The attributes of the call by name, in MLIR syntax, in the order of the names. None by default.
        has_side_effect: Whether the call is kept if its results are unused. False by default.
        vmap_method: How the call is batched, as in `pure_callback`. By default, `None`: `vmap` is an error.
        layouts: The memory layouts and aliases. By default, `None`: arrays are row-major and nothing is aliased.
    """

    name = "ffi_call"
    multiple_results = True
    target: str
    result_avals: tuple[ShapedArray, ...]
    attributes: tuple[tuple[str, str], ...] = ()
    has_side_effect: bool = False
    vmap_method: VmapMethod | None = None
    layouts: KernelLayouts | None = field(default=None, metadata={"hide_default": True})

    @property
    @override
    def effects(self) -> Effects:
        return frozenset({IOEffect()}) if self.has_side_effect else frozenset()

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return self.result_avals

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return unsharded_specs(outs)

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return run_compiled(self, args)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        config = {name: MlirText(attribute) for name, attribute in self.attributes}
        layouts = self.layouts
        return builder.custom_call(
            self.target, operands, self.result_avals, config, self.has_side_effect, layouts=layouts
        )

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        method = self.vmap_method
        if method is None:
            raise NotImplementedError(
                f"vmap of ffi_call of {self.target!r}: set vmap_method to tell how the kernel handles the batch of "
                f"{axis.size}: 'sequential' for one call for each element, 'expand_dims' or 'broadcast_all' for one "
                "call with a leading axis"
            )
        if method == "sequential" or method == "sequential_unrolled":
            return batch_in_loop(self, axis.size, args, dims, unroll=method == "sequential_unrolled")
        batched = evolve(
            self,
            result_avals=tuple([axis.add_to(a, 0) for a in self.result_avals]),
            layouts=None if self.layouts is None else _with_leading_axis(self.layouts, dims, method),
        )
        return batch_vectorized(batched, method, axis, args, dims)

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        self._refuse("differentiated")

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        self._refuse("transposed")

    def _refuse(self, done: str) -> NoReturn:
        raise ValueError(
            f"ffi_call of {self.target!r} cannot be {done}: a kernel has no derivative rule. Call it in a function "
            "with tracefx.custom_jvp or tracefx.custom_vjp, which defines the derivative, or on "
            "tracefx.lax.stop_gradient(x) if the derivative is to be zero"
        )


def batch_in_loop(
    prim: Primitive, size: int, args: Sequence[Value], dims: BatchDims, unroll: bool = False
) -> tuple[Sequence[Value], BatchDims]:
    """Batches a primitive by a loop over the batch elements."""
    operands = move_batch_axes_first(args, dims)
    types = [x.aval if d is None else x.aval.without_axis(0) for x, d in zip(operands, dims, strict=True)]
    call = single_eqn_jaxpr(prim, types)
    order = sorted(range(len(args)), key=lambda i: dims[i] is not None)  # a loop takes constants first
    body = evolve(call, invars=tuple([call.invars[i] for i in order]))
    loop = Scan(body, size, 0, sum(d is None for d in dims), reverse=False, unroll=max(size, 1) if unroll else 1)
    outs = bind(loop, *[operands[i] for i in order])
    return outs, [0] * len(outs)


def _with_leading_axis(layouts: KernelLayouts, dims: BatchDims, method: VmapMethod) -> KernelLayouts:
    """Returns layouts whose slowest axis is a new first axis; `legacy_vectorized` adds none to unbatched operands."""

    def extended(layout: tuple[int, ...]) -> tuple[int, ...]:
        return (*[axis + 1 for axis in layout], 0)

    operands = tuple(
        [
            layout if d is None and method == "legacy_vectorized" else extended(layout)
            for layout, d in zip(layouts.operands, dims, strict=True)
        ]
    )
    return evolve(layouts, operands=operands, results=tuple(map(extended, layouts.results)))
