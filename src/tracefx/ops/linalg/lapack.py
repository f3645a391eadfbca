"""How operations call LAPACK: the family of operations on stacks of matrices, and the calling convention.

XLA has no instructions for decompositions on the CPU. jaxlib brings kernels for them, known by name in every process;
their matrices lie in memory column by column.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, TypeAlias

from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.builder import Attr, Builder, Ir, Layouts, Text
from tracefx.core.dtypes import DType, NDArray
from tracefx.core.handler import bind
from tracefx.core.primitive import Batchable, Lowerable, MappedAxis, Primitive
from tracefx.core.values import Value, from_numpy, to_numpy
from tracefx.ops import stablehlo
from tracefx.ops.basis import batch_first
from tracefx.ops.operation import Domain, miscounted, run_alone
from tracefx.ops.static import ShapeError

PREFIXES: Final[Mapping[DType, str]] = {
    dtypes.float32: "s",
    dtypes.float64: "d",
    dtypes.complex64: "c",
    dtypes.complex128: "z",
}
LAPACK_NUMBERS: Final = Domain("floats or complex numbers of 32 or 64 bits each", PREFIXES.__contains__)

Types: TypeAlias = Sequence[tuple[Shape, DType]]

NO_CONFIG: Final[Mapping[str, Attr]] = {}


class MatrixOperation(Primitive, Batchable):
    """An operation on matrices, vectors beside them, and stacks of these: axes before the last ones are the batch.

    Evaluated, it is compiled, once for all operands of one type.
    """

    __slots__ = ()
    ranks: ClassVar[tuple[int, ...]] = (2,)
    """How many axes each operand has beside those of the batch."""
    domain: ClassVar[Domain] = LAPACK_NUMBERS

    @abstractmethod
    def types(self, dtype: DType, *shapes: Shape) -> Types:
        """The shapes and dtypes of the results for operands that are no stacks; raises where they don't fit."""
        raise NotImplementedError

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        if len(avals) != len(self.ranks):
            raise miscounted(self.name, len(self.ranks), len(avals))
        self.require_dtypes(*avals)
        for i, (aval, rank) in enumerate(zip(avals, self.ranks, strict=True)):
            if aval.ndim < rank:
                raise TypeError(f"{self.name}: operand {i} must have {rank} axes or more, got {aval}")
        splits = [a.ndim - rank for a, rank in zip(avals, self.ranks, strict=True)]
        stack = avals[0].shape[: splits[0]]
        if any(a.shape[:split] != stack for a, split in zip(avals, splits, strict=True)):
            raise TypeError(
                f"{self.name}: the axes before the last ones are a batch and must agree, got "
                f"{' and '.join(map(str, avals))}"
            )
        weak = all(a.weak_type for a in avals)
        found = self.types(avals[0].dtype, *[a.shape[split:] for a, split in zip(avals, splits, strict=True)])
        return [ShapedArray((*stack, *shape), kind, weak) for shape, kind in found]

    def require_dtypes(self, *avals: ShapedArray) -> None:
        """`TypeError` unless the operands' dtypes are those that the operation takes."""
        self.domain.require(self.name, *avals)
        if any(a.dtype != avals[0].dtype for a in avals):
            raise TypeError(f"{self.name} takes operands of one dtype, got {' and '.join(map(str, avals))}")

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return [to_numpy(o) for o in self.evaluate([from_numpy(x, x.dtype) for x in args])]

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return run_alone(self, args)

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        outs = bind(self, *[batch_first(x, d, axis) for x, d in zip(args, dims, strict=True)])
        return outs, [0] * len(outs)


class Kernel(MatrixOperation, Lowerable):
    """An operation on matrices that a kernel computes, or an instruction of XLA's."""

    __slots__ = ()

    @abstractmethod
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: Ir) -> Sequence[Ir]:
        """The results, in StableHLO, of operands that have elements."""
        raise NotImplementedError

    def emit_empty(self, builder: Builder, outs: Sequence[ShapedArray], *operands: Ir) -> Sequence[Ir]:
        """The results where an operand has no elements: most have none either."""
        return [stablehlo.full(builder, 0, out) for out in outs]

    @override
    def lower(self, builder: Builder, *operands: Ir) -> Sequence[Ir]:
        return self.lower_to(builder, self.abstract_eval(*[o.aval for o in operands]), operands)

    @override
    def lower_to(self, builder: Builder, outs: Sequence[ShapedArray], operands: Sequence[Ir]) -> Sequence[Ir]:
        if not all(x.aval.size for x in operands):
            return self.emit_empty(builder, outs, *operands)
        return self.emit(builder, outs, *operands)


def require_square(name: str, shape: Shape) -> None:
    if shape[0] != shape[1]:
        raise ShapeError(f"{name} takes square matrices, but they are {shape[0]} by {shape[1]}")


# ------------------------------------------------------------------ calls


def call(
    prim: Primitive,
    builder: Builder,
    kernel: str,
    operands: Sequence[Ir],
    outs: Sequence[ShapedArray],
    config: Mapping[str, Attr] = NO_CONFIG,
    aliases: Sequence[tuple[int, int]] = (),
) -> list[Ir]:
    """The results of a kernel, named without the letter of its dtype. `aliases` as in `Layouts`."""
    return call_named(
        prim, builder, f"lapack_{PREFIXES[operands[0].aval.dtype]}{kernel}", operands, outs, config, aliases
    )


def call_named(
    prim: Primitive,
    builder: Builder,
    target: str,
    operands: Sequence[Ir],
    outs: Sequence[ShapedArray],
    config: Mapping[str, Attr] = NO_CONFIG,
    aliases: Sequence[tuple[int, int]] = (),
) -> list[Ir]:
    if builder.platform != "cpu":
        raise NotImplementedError(
            f"{prim.name} is computed by LAPACK, which runs on the CPU: it can't be compiled for {builder.platform!r}. "
            "Run it on the CPU, outside of the program that is compiled for another platform"
        )
    layouts = layouts_of([x.aval for x in operands], outs, aliases)
    return builder.custom_call(target, operands, outs, config, layouts=layouts)


def layouts_of(
    operands: Sequence[ShapedArray],
    outs: Sequence[ShapedArray],
    aliases: Sequence[tuple[int, int]] = (),
    *,
    by_rows: bool = False,
    own: int = 2,
) -> Layouts:
    """How what a kernel takes and gives lies in memory: matrices column by column, unless `by_rows`. `own` as there."""
    rank = -1 if by_rows else max(a.ndim for a in operands)
    takes, gives = [tuple([_layout(a.ndim, rank) for a in avals]) for avals in (operands, outs)]
    return Layouts(takes, gives, tuple(aliases), own)


def _layout(ndim: int, rank: int) -> tuple[int, ...]:
    """Matrices, which have the most axes, lie column by column; the others, row by row."""
    rows = tuple(range(ndim - 1, -1, -1))
    return (rows[1], rows[0], *rows[2:]) if ndim == rank and ndim > 1 else rows


def checked(
    builder: Builder, info: Ir, results: Sequence[Ir], outs: Sequence[ShapedArray], direction: str = "EQ"
) -> list[Ir]:
    """The results, full of NaN where what a kernel says of its success doesn't compare so with 0."""
    ok = stablehlo.compare(builder, direction, info, stablehlo.full(builder, 0, info.aval))
    return [where_ok(builder, ok, x, out) for x, out in zip(results, outs, strict=True)]


def where_ok(builder: Builder, ok: Ir, x: Ir, out: ShapedArray) -> Ir:
    """`x`, but NaN in the matrices that are not `ok`."""
    nan = complex("nan+nanj") if dtypes.is_complex(out.dtype) else float("nan")
    which = stablehlo.broadcast(builder, ok, out.shape, range(ok.aval.ndim))
    return builder.emit("stablehlo.select", [which, x, stablehlo.full(builder, nan, out)], [out])[0]


def info_of(aval: ShapedArray, rank: int = 2) -> ShapedArray:
    """The type of what a kernel says of its success, for a stack of matrices."""
    return ShapedArray(aval.shape[: aval.ndim - rank], dtypes.int32)


def letter(character: str) -> Text:
    """A letter as LAPACK's routines take it."""
    return byte(ord(character))


def byte(value: int) -> Text:
    return Text(f"{value} : ui8")


def word(value: int) -> Text:
    return Text(f"{value} : i32")


def triangle(lower: bool) -> Text:
    return letter("L" if lower else "U")


def emit_iota(builder: Builder, shape: Shape, dimension: int) -> Ir:
    return builder.emit("stablehlo.iota", [], [ShapedArray(shape, dtypes.int32)], {"iota_dimension": dimension})[0]


def emit_triangle(builder: Builder, x: Ir, lower: bool, ok: Ir | None = None) -> Ir:
    """One triangle of matrices, with zeros beyond it; NaN in it where they are not `ok`."""
    aval = x.aval
    matrix = aval.shape[-2:]
    inside = stablehlo.compare(
        builder, "GE" if lower else "LE", emit_iota(builder, matrix, 0), emit_iota(builder, matrix, 1)
    )
    if ok is not None:
        x = where_ok(builder, ok, x, aval)
    mask = stablehlo.broadcast(builder, inside, aval.shape, (aval.ndim - 2, aval.ndim - 1))
    return builder.emit("stablehlo.select", [mask, x, stablehlo.full(builder, 0, aval)], [aval])[0]


def emit_identity(builder: Builder, out: ShapedArray) -> Ir:
    """Ones on the diagonals of matrices, zeros elsewhere."""
    matrix = out.shape[-2:]
    on = stablehlo.compare(builder, "EQ", emit_iota(builder, matrix, 0), emit_iota(builder, matrix, 1))
    (ones,) = builder.emit("stablehlo.convert", [on], [out.update(shape=matrix)])
    return stablehlo.broadcast(builder, ones, out.shape, (out.ndim - 2, out.ndim - 1))
