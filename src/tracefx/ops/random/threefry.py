"""Threefry-2x32, a counter-based generator: a block cipher with few rounds, whose blocks are random bits.

It has 20 rounds, as in Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from typing_extensions import override

from tracefx.core import Array, ArrayLike, Literal, Shape, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import as_array, bind
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import Batchable, BatchDims, MappedAxis, Primitive
from tracefx.errors import ShapeError
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops import stablehlo
from tracefx.ops.operation import require_arity, run_compiled
from tracefx.ops.sharding_rules import joined_spec
from tracefx.ops.structural import batch_first

_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY: Final = 0x1BD11BDA
_GROUPS: Final = 5
"""The number of groups of four rounds. After each group, words of the key are added."""


@final
class Threefry2x32(Primitive, Batchable, Lowerable):
    """Encrypts two words of counter by two words of key with the cipher Threefry-2x32 (Salmon et al. 2011, Random123).

    `key0: u32[...], key1: u32[...], x0: u32[...], x1: u32[...] -> u32[...], u32[...]`, words of one shape. Bound by the
    expansions of `RandomBits`, `RandomSplit` and `RandomFoldIn`.

    >>> from tracefx import bind, numpy, ops
    >>> zero = numpy.zeros((), "uint32")
    >>> [hex(int(word)) for word in bind(ops.Threefry2x32(), zero, zero, zero, zero)]
    ['0x6b200159', '0x99ba4efe']
    """

    name = "threefry2x32"
    multiple_results = True

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        return [joined_spec(self, avals)] * len(outs)

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        require_arity(self.name, 4, avals)
        for i, aval in enumerate(avals):
            if aval.dtype != dtypes.uint32:
                raise TypeError(f"threefry2x32 takes u32 words, but operand {i} is {aval}; convert it with astype")
            if aval.shape != avals[0].shape:
                raise ShapeError(f"threefry2x32 takes operands of one shape, got {', '.join(map(str, avals))}")
        return [ShapedArray(avals[0].shape, dtypes.uint32)] * 2

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return run_compiled(self, args)

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        return bind(self, *[batch_first(x, dim, axis) for x, dim in zip(args, dims, strict=True)]), [0, 0]

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        first, second, x, y = operands
        shape = x.aval.shape
        words = _Words(builder, shape)
        third = words.xor(words.xor(first, second), words.constant(_PARITY))
        keys = (first, second, third)
        # Unrolled: a loop over the groups would write and read every array once per group.
        x, y = words.add(x, first), words.add(y, second)
        for group in range(_GROUPS):
            for distance in _ROTATIONS[group % 2]:
                x = words.add(x, y)
                y = words.xor(words.rotate_left(y, distance), x)
            x = words.add(x, keys[(group + 1) % 3])
            y = words.add(words.add(y, keys[(group + 2) % 3]), words.constant(group + 1))
        return [x, y]


@final
class _Words:
    """Emits arithmetic on arrays of 32-bit words of one shape."""

    def __init__(self, builder: Builder, shape: Shape) -> None:
        self.builder = builder
        self.aval = ShapedArray(shape, dtypes.uint32)

    def constant(self, word: int) -> IrValue:
        return stablehlo.emit_broadcast(
            self.builder, self.builder.constant(Literal(word, ShapedArray((), dtypes.uint32))), self.aval.shape
        )

    def add(self, x: IrValue, y: IrValue) -> IrValue:
        return self.builder.emit("stablehlo.add", [x, y], [self.aval])[0]

    def xor(self, x: IrValue, y: IrValue) -> IrValue:
        return self.builder.emit("stablehlo.xor", [x, y], [self.aval])[0]

    def rotate_left(self, x: IrValue, distance: int) -> IrValue:
        """Emits `x` with its bits rotated to the left."""
        (up,) = self.builder.emit("stablehlo.shift_left", [x, self.constant(distance)], [self.aval])
        (down,) = self.builder.emit("stablehlo.shift_right_logical", [x, self.constant(32 - distance)], [self.aval])
        return self.builder.emit("stablehlo.or", [up, down], [self.aval])[0]


THREEFRY_2X32: Final = Threefry2x32()


def threefry2x32(first: ArrayLike, second: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Returns the block with counter `(x, y)` under the key `(first, second)`: two arrays `u32[...]`.

    Raises:
        ShapeError: The operands differ in shape.
        TypeError: An operand is not of dtype uint32.

    >>> from tracefx import lax
    >>> [hex(int(word)) for word in threefry2x32(*[lax.full((), 0, "uint32")] * 4)]
    ['0x6b200159', '0x99ba4efe']
    """
    a, b = bind(THREEFRY_2X32, *[as_value(word) for word in (first, second, x, y)])
    return as_array(a), as_array(b)
