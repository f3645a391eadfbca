"""`rng_bit_generator`: random bits by XLA's generator, in the fastest implementation of each platform."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum, unique
from typing import Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, DTypeLike, Literal, Shape, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array, bind
from tracefx.core.named_sharding import OutSharding, Spec
from tracefx.core.primitive import Batchable, BatchDims, MappedAxis, Primitive
from tracefx.lowering import Builder, DenseI64Array, IrValue, Lowerable, MlirText
from tracefx.ops import stablehlo
from tracefx.ops.operation import require_arity, run_compiled, static_shape
from tracefx.ops.structural import move_axis
from tracefx.text.printer import HasJaxParams


@unique
class RandomAlgorithm(Enum):
    """The algorithm of the generator: a named one, or the platform's default."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


_HLO: Final[Mapping[RandomAlgorithm, str]] = {
    RandomAlgorithm.RNG_DEFAULT: "DEFAULT",
    RandomAlgorithm.RNG_THREE_FRY: "THREE_FRY",
    RandomAlgorithm.RNG_PHILOX: "PHILOX",
}
_NATIVE_DTYPES: Final = (dtypes.uint32, dtypes.uint64)
"""The dtypes that XLA generates directly; others are converted from 32-bit words."""


@final
@frozen(eq=False)
class RngBitGenerator(Primitive, Batchable, Lowerable, HasJaxParams):
    """Maps a state to the next state and random bits. States of a batch are processed one after the other.

    Args:
        shape: The shape of the bits of one state.
        dtype: Their dtype: uint8, uint16, uint32 or uint64.
        algorithm: The generator; the platform's default if omitted.

    `state: u32[..., 4] -> u32[..., 4], u32[..., *shape]`, or a state `u64[..., 2]`. Bound by `lax.rng_bit_generator`.

    >>> from tracefx import bind, numpy, ops
    >>> state = numpy.arange(4, dtype="uint32")
    >>> bind(ops.RngBitGenerator((3,), state.dtype), state)[1].shape
    (3,)
    """

    name = "rng_bit_generator"
    multiple_results = True
    shape: Shape
    dtype: DType
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        (state,) = avals
        return [state.spec, (*state.spec[:-1], *[None] * len(self.shape))]

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        require_arity(self.name, 1, avals)
        (state,) = avals
        if (state.shape[-1:], state.dtype) not in (((4,), dtypes.uint32), ((2,), dtypes.uint64)):
            raise TypeError(f"rng_bit_generator takes a state u32[4] or u64[2], got {state}")
        if not dtypes.is_integer(self.dtype) or dtypes.itemsize_bits(self.dtype) < 8 or dtypes.is_signed(self.dtype):
            raise TypeError(
                f"rng_bit_generator: dtype must be uint8, uint16, uint32 or uint64, got {dtypes.name(self.dtype)}"
            )
        return [state.strong(), ShapedArray((*state.shape[:-1], *self.shape), self.dtype)]

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return run_compiled(self, args)

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        (state,), (dim,) = args, dims
        assert dim is not None
        return bind(self, move_axis(state, dim, 0)), [0, 0]

    @override
    def jax_params(self) -> Mapping[str, object]:
        return {
            "algorithm": self.algorithm.name,
            "dtype": self.dtype.name,
            "out_sharding": None,
            "shape": self.shape,
        }

    # -------------------------------------------------------------- lowering

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        (states,) = operands
        out, bits = self.abstract_eval(states.aval)
        if out.ndim == 1:
            return self._emit_one_state(builder, states)
        count = math.prod(out.shape[:-1])
        if not count:
            return [states, stablehlo.emit_full(builder, 0, bits)]
        flat = ShapedArray((count, out.shape[-1]), out.dtype)
        drawn = ShapedArray((count, *self.shape), self.dtype)
        counter = ShapedArray((), dtypes.int32)

        def number(b: Builder, n: int) -> IrValue:
            return b.constant(Literal(n, counter))

        def condition(b: Builder, xs: Sequence[IrValue]) -> Sequence[IrValue]:
            return [stablehlo.emit_compare(b, "LT", xs[0], number(b, count))]

        def body(b: Builder, xs: Sequence[IrValue]) -> Sequence[IrValue]:
            i, all_states, all_bits = xs
            row = ShapedArray((1, flat.shape[1]), flat.dtype)
            start = [i, number(b, 0)]
            (state,) = b.emit(
                "stablehlo.dynamic_slice", [all_states, *start], [row], {"slice_sizes": DenseI64Array(row.shape)}
            )
            (state,) = b.emit("stablehlo.reshape", [state], [ShapedArray(row.shape[1:], row.dtype)])
            next_state, new_bits = self._emit_one_state(b, state)
            (next_state,) = b.emit("stablehlo.reshape", [next_state], [row])
            (new_bits,) = b.emit("stablehlo.reshape", [new_bits], [ShapedArray((1, *self.shape), self.dtype)])
            (all_states,) = b.emit("stablehlo.dynamic_update_slice", [all_states, next_state, *start], [flat])
            starts = [i, *[number(b, 0)] * len(self.shape)]
            (all_bits,) = b.emit("stablehlo.dynamic_update_slice", [all_bits, new_bits, *starts], [drawn])
            (i,) = b.emit("stablehlo.add", [i, number(b, 1)], [counter])
            return [i, all_states, all_bits]

        (start,) = builder.emit("stablehlo.reshape", [states], [flat])
        zeros = stablehlo.emit_full(builder, 0, drawn)
        _, after, new_bits = builder.loop([number(builder, 0), start, zeros], condition, body)
        return [
            *builder.emit("stablehlo.reshape", [after], [out]),
            *builder.emit("stablehlo.reshape", [new_bits], [bits]),
        ]

    def _emit_one_state(self, builder: Builder, state: IrValue) -> list[IrValue]:
        """Emits the next state and the bits for one state, which XLA takes as `u64[2]`."""
        wide = ShapedArray((2,), dtypes.uint64)
        halves = ShapedArray((2, 2), dtypes.uint32)
        words = state.aval.dtype == dtypes.uint32
        if words:
            (state,) = builder.emit("stablehlo.reshape", [state], [halves])
            (state,) = builder.emit("stablehlo.bitcast_convert", [state], [wide])
        drawn_aval = ShapedArray(self.shape, self.dtype if self.dtype in _NATIVE_DTYPES else dtypes.uint32)
        algorithm = {"rng_algorithm": MlirText(f"#stablehlo<rng_algorithm {_HLO[self.algorithm]}>")}
        next_state, bits = builder.emit("stablehlo.rng_bit_generator", [state], [wide, drawn_aval], algorithm)
        if words:
            (next_state,) = builder.emit("stablehlo.bitcast_convert", [next_state], [halves])
            (next_state,) = builder.emit("stablehlo.reshape", [next_state], [ShapedArray((4,), dtypes.uint32)])
        if drawn_aval.dtype != self.dtype:
            (bits,) = builder.emit("stablehlo.convert", [bits], [ShapedArray(self.shape, self.dtype)])
        return [next_state, bits]


def rng_bit_generator(
    key: ArrayLike,
    shape: Sequence[int],
    dtype: DTypeLike = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: OutSharding = None,
) -> tuple[Array, Array]:
    """Returns the next state of XLA's generator and random bits.

    The bits differ between platforms, and may differ between versions of XLA.

    Args:
        key: A state, `u32[4]` or `u64[2]`.
        shape: The shape of the bits, static.
        dtype: uint8, uint16, uint32 (the default) or uint64.
        algorithm: The algorithm. By default the platform's own.
        out_sharding: The sharding of the result, as a constraint. None, the default, adds none.

    Returns:
        A pair: the next state, and an array of uniformly random unsigned integers.

    Raises:
        TypeError: The state has another type, or `dtype` is another one.

    >>> state, bits = rng_bit_generator(np.arange(4, dtype=np.uint32), (2, 3))
    >>> state.aval, bits.aval
    (u32[4], u32[2,3])
    """
    prim = RngBitGenerator(static_shape("rng_bit_generator", shape), dtypes.as_dtype(dtype), algorithm)
    next_state, bits = bind(prim, as_value(key, "key"))
    return as_array(next_state), as_array(bits)
