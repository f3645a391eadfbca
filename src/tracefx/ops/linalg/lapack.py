"""Base classes of primitives on stacks of matrices, and calls of LAPACK kernels.

XLA has no instructions for decompositions on the CPU. jaxlib provides kernels, which are registered by name in every
process; they take matrices in column-major order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, TypeAlias

from typing_extensions import override

from tracefx.core import DType, NDArray, Shape, ShapedArray, Value, dtypes, from_numpy, to_numpy
from tracefx.core.handler import bind
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import Batchable, BatchDims, MappedAxis, Primitive
from tracefx.errors import ShapeError
from tracefx.lowering import Attr, Builder, IrValue, KernelLayouts, Lowerable, MlirText
from tracefx.ops import stablehlo
from tracefx.ops.operation import Domain, require_arity, run_compiled
from tracefx.ops.sharding_rules import joined_spec, require_unsharded
from tracefx.ops.structural import batch_first

LAPACK_PREFIXES: Final[Mapping[DType, str]] = {
    dtypes.float32: "s",
    dtypes.float64: "d",
    dtypes.complex64: "c",
    dtypes.complex128: "z",
}
"""The letter for each dtype in the names of LAPACK's routines."""
LAPACK_NUMBERS: Final = Domain(
    "floats or complex numbers with 32-bit or 64-bit components", LAPACK_PREFIXES.__contains__
)

ResultTypes: TypeAlias = Sequence[tuple[Shape, DType]]

NO_CONFIG: Final[Mapping[str, Attr]] = {}


class MatrixOperation(Primitive, Batchable):
    """A primitive on matrices or vectors, or stacks of these: leading axes are batch axes.

    Eager evaluation compiles it, once per tuple of operand avals.

    >>> from tracefx import bind, numpy, ops
    >>> bind(ops.Cholesky(), numpy.array([[4.0, 0.0], [0.0, 9.0]]))[0].tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """

    __slots__ = ()
    ranks: ClassVar[tuple[int, ...]] = (2,)
    """The rank of each operand without batch axes."""
    domain: ClassVar[Domain] = LAPACK_NUMBERS

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        for x, rank in zip(avals, self.ranks, strict=True):
            require_unsharded(self, x, range(x.ndim - rank, x.ndim))
        batch = joined_spec(self, [stack_type(x, x.ndim - rank) for x, rank in zip(avals, self.ranks, strict=True)])
        return [(*batch, *[None] * (out.ndim - len(batch))) for out in outs]

    @abstractmethod
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        """Returns the shapes and dtypes of the results for operands without batch axes; raises if they don't fit."""
        raise NotImplementedError

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        require_arity(self.name, len(self.ranks), avals)
        self.require_dtypes(*avals)
        for i, (aval, rank) in enumerate(zip(avals, self.ranks, strict=True)):
            if aval.ndim < rank:
                raise TypeError(f"{self.name}: operand {i} must have at least {rank} axes, got {aval}")
        splits = [a.ndim - rank for a, rank in zip(avals, self.ranks, strict=True)]
        stack = avals[0].shape[: splits[0]]
        if any(a.shape[:split] != stack for a, split in zip(avals, splits, strict=True)):
            raise TypeError(
                f"{self.name}: the leading (batch) axes of operands must agree, got {' and '.join(map(str, avals))}"
            )
        weak = all(a.weak_type for a in avals)
        types = self.result_types(avals[0].dtype, *[a.shape[split:] for a, split in zip(avals, splits, strict=True)])
        return [ShapedArray((*stack, *shape), kind, weak) for shape, kind in types]

    def require_dtypes(self, *avals: ShapedArray) -> None:
        """Raises TypeError unless the primitive accepts the operands' dtypes."""
        self.domain.require(self.name, *avals)
        if any(a.dtype != avals[0].dtype for a in avals):
            raise TypeError(f"{self.name} takes operands of one dtype, got {' and '.join(map(str, avals))}")

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return [to_numpy(o) for o in self.evaluate([from_numpy(x, x.dtype) for x in args])]

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return run_compiled(self, args)

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        outs = bind(self, *[batch_first(x, d, axis) for x, d in zip(args, dims, strict=True)])
        return outs, [0] * len(outs)


def stack_type(x: ShapedArray, ndim: int) -> ShapedArray:
    """Returns the aval of the batch axes of an operand."""
    for axis in reversed(range(ndim, x.ndim)):
        x = x.without_axis(axis)
    return x


class MatrixKernel(MatrixOperation, Lowerable):
    """A primitive on matrices that lowers to a kernel or to an XLA instruction."""

    __slots__ = ()

    @abstractmethod
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        """Emits the results for operands that have elements."""
        raise NotImplementedError

    def emit_empty(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        """Emits the results if an operand has no elements: zeros by default."""
        return [stablehlo.emit_full(builder, 0, out) for out in outs]

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return self.lower_with_avals(builder, self.abstract_eval(*[o.aval for o in operands]), operands)

    @override
    def lower_with_avals(
        self, builder: Builder, outs: Sequence[ShapedArray], operands: Sequence[IrValue]
    ) -> Sequence[IrValue]:
        if not all(x.aval.size for x in operands):
            return self.emit_empty(builder, outs, *operands)
        return self.emit(builder, outs, *operands)


def require_square(name: str, shape: Shape) -> None:
    """Raises `ShapeError` unless matrices of this shape are square."""
    if shape[0] != shape[1]:
        raise ShapeError(f"{name} takes square matrices, got {shape[0]} by {shape[1]}")


# ------------------------------------------------------------------ calls


def call_lapack(
    prim: Primitive,
    builder: Builder,
    kernel: str,
    operands: Sequence[IrValue],
    outs: Sequence[ShapedArray],
    config: Mapping[str, Attr] = NO_CONFIG,
    aliases: Sequence[tuple[int, int]] = (),
) -> list[IrValue]:
    """Emits a call of a LAPACK kernel, named without the letter of the dtype; `aliases` is that of `KernelLayouts`."""
    return call_cpu_target(
        prim, builder, f"lapack_{LAPACK_PREFIXES[operands[0].aval.dtype]}{kernel}", operands, outs, config, aliases
    )


def call_cpu_target(
    prim: Primitive,
    builder: Builder,
    target: str,
    operands: Sequence[IrValue],
    outs: Sequence[ShapedArray],
    config: Mapping[str, Attr] = NO_CONFIG,
    aliases: Sequence[tuple[int, int]] = (),
) -> list[IrValue]:
    """Emits a call of a CPU kernel; raises NotImplementedError on other platforms."""
    if builder.platform != "cpu":
        raise NotImplementedError(
            f"{prim.name} calls LAPACK, which runs only on the CPU, so it can't be compiled for {builder.platform!r}. "
            "Run it on the CPU, outside of programs that are compiled for other platforms"
        )
    layouts = custom_call_layouts([x.aval for x in operands], outs, aliases)
    return builder.custom_call(target, operands, outs, config, layouts=layouts)


def custom_call_layouts(
    operands: Sequence[ShapedArray],
    outs: Sequence[ShapedArray],
    aliases: Sequence[tuple[int, int]] = (),
    *,
    by_rows: bool = False,
    own: int = 2,
) -> KernelLayouts:
    """Returns the memory layouts of a kernel's operands and results.

    Matrices are in column-major order, or in row-major order with `by_rows`. `own` is that of `KernelLayouts`.
    """
    rank = -1 if by_rows else max(a.ndim for a in operands)
    operand_layouts, result_layouts = [tuple([_layout(a.ndim, rank) for a in avals]) for avals in (operands, outs)]
    return KernelLayouts(operand_layouts, result_layouts, tuple(aliases), own)


def _layout(ndim: int, rank: int) -> tuple[int, ...]:
    """Returns the layout of an array: column-major for arrays of the maximal rank `rank` (matrices), else row-major."""
    rows = tuple(range(ndim - 1, -1, -1))
    return (rows[1], rows[0], *rows[2:]) if ndim == rank and ndim > 1 else rows


def nan_on_failure(
    builder: Builder, info: IrValue, results: Sequence[IrValue], outs: Sequence[ShapedArray], direction: str = "EQ"
) -> list[IrValue]:
    """Emits the results, filled with NaN unless the kernel's status `info` compares with 0 in `direction`."""
    ok = stablehlo.emit_compare(builder, direction, info, stablehlo.emit_full(builder, 0, info.aval))
    return [nan_unless(builder, ok, x, out) for x, out in zip(results, outs, strict=True)]


def nan_unless(builder: Builder, ok: IrValue, x: IrValue, out: ShapedArray) -> IrValue:
    """Emits `x`, filled with NaN in the matrices that are not `ok`."""
    nan = complex("nan+nanj") if dtypes.is_complex(out.dtype) else float("nan")
    which = stablehlo.emit_broadcast(builder, ok, out.shape, range(ok.aval.ndim))
    return builder.emit("stablehlo.select", [which, x, stablehlo.emit_full(builder, nan, out)], [out])[0]


def info_aval(aval: ShapedArray, rank: int = 2) -> ShapedArray:
    """Returns the aval of a kernel's status, for a stack of matrices."""
    return ShapedArray(aval.shape[: aval.ndim - rank], dtypes.int32)


def char_attr(character: str) -> MlirText:
    """Returns a character argument of a LAPACK routine."""
    return byte(ord(character))


def byte(value: int) -> MlirText:
    """Returns an 8-bit integer attribute."""
    return MlirText(f"{value} : ui8")


def word(value: int) -> MlirText:
    """Returns a 32-bit integer attribute."""
    return MlirText(f"{value} : i32")


def uplo_attr(lower: bool) -> MlirText:
    """Returns the attribute that selects a triangle."""
    return char_attr("L" if lower else "U")


def emit_iota(builder: Builder, shape: Shape, dimension: int) -> IrValue:
    """Emits the indices along an axis."""
    return builder.emit("stablehlo.iota", [], [ShapedArray(shape, dtypes.int32)], {"iota_dimension": dimension})[0]


def emit_triangle(builder: Builder, x: IrValue, lower: bool, ok: IrValue | None = None) -> IrValue:
    """Emits one triangle of matrices, with zeros elsewhere; NaN in the triangle if a matrix is not `ok`."""
    aval = x.aval
    matrix = aval.shape[-2:]
    inside = stablehlo.emit_compare(
        builder, "GE" if lower else "LE", emit_iota(builder, matrix, 0), emit_iota(builder, matrix, 1)
    )
    if ok is not None:
        x = nan_unless(builder, ok, x, aval)
    mask = stablehlo.emit_broadcast(builder, inside, aval.shape, (aval.ndim - 2, aval.ndim - 1))
    return builder.emit("stablehlo.select", [mask, x, stablehlo.emit_full(builder, 0, aval)], [aval])[0]


def emit_identity(builder: Builder, out: ShapedArray) -> IrValue:
    """Emits identity matrices."""
    matrix = out.shape[-2:]
    on = stablehlo.emit_compare(builder, "EQ", emit_iota(builder, matrix, 0), emit_iota(builder, matrix, 1))
    (ones,) = builder.emit("stablehlo.convert", [on], [out.update(shape=matrix)])
    return stablehlo.emit_broadcast(builder, ones, out.shape, (out.ndim - 2, out.ndim - 1))
