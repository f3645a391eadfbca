"""`triangular_solve`: systems of equations with triangular matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, Shape, ShapedArray, Value, as_value, dtypes
from tracefx.core.handler import bind1
from tracefx.core.named_sharding import Spec
from tracefx.core.primitive import (
    BatchDims,
    Differentiable,
    MappedAxis,
    Tangent,
    UndefinedPrimal,
    Zero,
    not_linear_error,
)
from tracefx.lowering import Attr, Builder, IrValue, MlirText
from tracefx.ops.elementwise.arithmetic import neg
from tracefx.ops.elementwise.complex import conj
from tracefx.ops.elementwise.elementwise import add_tangents
from tracefx.ops.linalg import lapack
from tracefx.ops.linalg.lapack import LAPACK_PREFIXES, MatrixKernel, ResultTypes, char_attr, stack_type
from tracefx.ops.linalg.matrices import matmul, matrix_transpose, tril, triu
from tracefx.ops.operation import Domain, HasPullback
from tracefx.ops.shape.shape import expand_dims, squeeze
from tracefx.ops.sharding_rules import joined_spec, require_unsharded
from tracefx.ops.structural import batch_first, move_axis, reshape

_HALVES: Final = frozenset({dtypes.bfloat16, dtypes.float16})


@final
@frozen(eq=False)
class TriangularSolve(MatrixKernel, Differentiable, HasPullback):
    """The solution `x` of `op(a) x = b` or `x op(a) = b` for triangular `a`. Only one triangle of `a` is read.

    Args:
        conjugate_a: Whether `op` takes the complex conjugate.
        left_side: Whether `op(a)` is on the left of `x`.
        lower: Whether `a` is lower triangular; otherwise, it is upper triangular.
        transpose_a: Whether `op` transposes.
        unit_diagonal: Whether the diagonal of `a` is taken as 1 and not read.

    `a: f32[..., n, n], b: f32[..., n, m] -> f32[..., n, m]` with `left_side`; floats or complex numbers of 16 bits or
    more. Bound by `lax.linalg.triangular_solve`.
    """

    name = "triangular_solve"
    ranks: ClassVar[tuple[int, ...]] = (2, 2)
    domain = Domain("floats or complex numbers of 16 bits or more", lambda d: d in LAPACK_PREFIXES or d in _HALVES)
    conjugate_a: bool
    left_side: bool
    is_lower: bool = field(alias="lower")
    transpose_a: bool
    unit_diagonal: bool

    @override
    def sharding_rule(self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> Sequence[Spec]:
        a, b = avals
        n = b.ndim - 2
        require_unsharded(self, a, (n, n + 1))
        require_unsharded(self, b, (n if self.left_side else n + 1,))  # the other axis is of independent systems
        return [(*joined_spec(self, [stack_type(a, n), stack_type(b, n)]), *b.spec[n:])]

    @override
    def result_types(self, dtype: DType, *shapes: Shape) -> ResultTypes:
        a, b = shapes
        if a[0] != a[1]:
            raise ValueError(f"triangular_solve: a must be square matrices, got {a[0]} by {a[1]}")
        rows = b[0] if self.left_side else b[1]
        if rows != a[0]:
            side = "rows" if self.left_side else "columns"
            raise ValueError(f"triangular_solve: b must have as many {side} as a, which has {a[0]}, got {rows}")
        return [(b, dtype)]

    @override
    def emit(self, builder: Builder, outs: Sequence[ShapedArray], *operands: IrValue) -> Sequence[IrValue]:
        a, b = operands
        conjugate, transpose = self.conjugate_a and dtypes.is_complex(a.aval.dtype), self.transpose_a
        if conjugate and not transpose:
            (a,) = builder.emit("chlo.conj", [a], [a.aval])
            conjugate = False
        if builder.platform == "cpu" and a.aval.dtype in LAPACK_PREFIXES:
            config: dict[str, Attr] = {
                "side": char_attr("L" if self.left_side else "R"),
                "uplo": lapack.uplo_attr(self.is_lower),
                "trans_x": char_attr(("C" if conjugate else "T") if transpose else "N"),
                "diag": char_attr("U" if self.unit_diagonal else "N"),
            }
            return lapack.call_lapack(self, builder, "trsm_ffi", [a, b], outs, config, [(1, 0)])
        how = ("ADJOINT" if conjugate else "TRANSPOSE") if transpose else "NO_TRANSPOSE"
        attrs: dict[str, Attr] = {
            "left_side": self.left_side,
            "lower": self.is_lower,
            "unit_diagonal": self.unit_diagonal,
            "transpose_a": MlirText(f"#stablehlo<transpose {how}>"),
        }
        return builder.emit("stablehlo.triangular_solve", [a, b], outs, attrs)

    # -------------------------------------------------------------- rules

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        (a, _), (da, db) = primals, tangents
        x = bind1(self, *primals)
        total: Tangent = db if isinstance(db, Zero) else bind1(self, a, db)
        if not isinstance(da, Zero):
            total = add_tangents(self._moved_by(a, da, x), total)
        return [x], [total]

    def _moved_by(self, a: Value, da: Value, x: Array) -> Array:
        """Returns the tangent of `x` due to `da`: `-op(a)^-1 op(da) x`, or its mirror image, in the cheaper order."""
        m, n = x.aval.shape[-2:]
        k = 1 if self.unit_diagonal else 0
        moved: Array = neg(tril(da, -k) if self.is_lower else triu(da, k))
        if self.transpose_a:
            moved = matrix_transpose(moved)
        if self.conjugate_a and dtypes.is_complex(a.aval.dtype):
            moved = conj(moved)
        if self.left_side:
            return bind1(self, a, matmul(moved, x)) if m > n else matmul(bind1(self, a, moved), x)
        return bind1(self, a, matmul(x, moved)) if m < n else matmul(x, bind1(self, a, moved))

    @override
    def pullback(self, ct: Value, *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        a, b = args
        if isinstance(a, UndefinedPrimal) or not isinstance(b, UndefinedPrimal):
            raise not_linear_error(self)
        return [None, bind1(evolve(self, transpose_a=not self.transpose_a), a, ct)]

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        (a, b), (a_dim, b_dim) = args, dims
        if a_dim is not None or b_dim is None:
            fronted = [batch_first(x, d, axis) for x, d in zip(args, dims, strict=True)]
            return [bind1(self, *fronted)], [0]
        # One matrix for all right-hand sides, which are concatenated.
        rank = b.aval.ndim - 1
        position = rank if self.left_side else rank - 1
        spread = move_axis(b, b_dim, position)
        shape = spread.aval.shape
        at = position - 1
        flat = reshape(spread, (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]))
        return [reshape(bind1(self, a, flat), shape)], [position]


def triangular_solve(
    a: ArrayLike,
    b: ArrayLike,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """Returns the solution of `x op(a) = b`, or of `op(a) x = b`, for triangular `a`.

    Args:
        a: Matrices `f32[..., n, n]`, of which only one triangle is read.
        b: `f32[..., k, n]`, or `f32[..., n, k]` with `left_side`; or vectors `f32[..., n]`.
        left_side: Whether to solve `op(a) x = b`. False by default.
        lower: Whether `a` is lower triangular. False by default.
        transpose_a: Whether `op` transposes. False by default.
        conjugate_a: Whether `op` conjugates. False by default.
        unit_diagonal: Whether the diagonal of `a` is not read, but assumed to be 1. False by default.

    Returns:
        An array of the shape of `b`.

    Raises:
        TypeError: The dtypes differ, or are not inexact with at least 16 bits.
        ValueError: The sizes don't fit.

    >>> import numpy as np
    >>> triangular_solve(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([4.0, 3.0]), left_side=True, lower=True)
    Array([2., 1.], dtype=float32)
    """
    x, y = as_value(a, "a"), as_value(b, "b")
    conjugate = bool(conjugate_a) and dtypes.is_complex(x.aval.dtype)
    prim = TriangularSolve(conjugate, bool(left_side), bool(lower), bool(transpose_a), bool(unit_diagonal))
    if y.aval.ndim != x.aval.ndim - 1 or not y.aval.ndim:
        return bind1(prim, x, y)
    position = y.aval.ndim - (0 if left_side else 1)
    return squeeze(bind1(prim, x, expand_dims(y, (position,))), (position,))
