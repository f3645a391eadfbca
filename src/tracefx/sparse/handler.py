"""`sparsify`: functions of dense arrays, applied to sparse arrays by a handler with rules for sparse operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeAlias, final

from attrs import field, frozen
from typing_extensions import override

from tracefx import lax, ops
from tracefx import numpy as fnp
from tracefx.control.checkpoint import CheckpointName
from tracefx.control.scan import Scan
from tracefx.control.special.bessel import BesselI1e
from tracefx.core import Array, Shape, ShapedArray, Value
from tracefx.core.handler import as_array, bind1, bind_expansion
from tracefx.core.primitive import Expandable, Primitive
from tracefx.interpreters.body_transform import ValueSpec, array_spec
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rule_methods import rule
from tracefx.pytrees import trees
from tracefx.source_location import at_location, current_provenance
from tracefx.sparse.base import TODENSE, SparseArray
from tracefx.sparse.bcoo import BCOO
from tracefx.sparse.bcsr import BCSR
from tracefx.sparse.contractions import bcoo_dot_general, bcoo_multiply_sparse, read_factor
from tracefx.sparse.entries import in_bounds
from tracefx.sparse.movement import (
    bcoo_broadcast_in_dim,
    bcoo_concatenate,
    bcoo_dynamic_slice,
    bcoo_gather,
    bcoo_reduce_sum,
    bcoo_reshape,
    bcoo_rev,
    bcoo_slice,
    bcoo_squeeze,
)
from tracefx.transforms.handle import handle_values

Sparse: TypeAlias = BCOO | BCSR


@final
@trees.register_dataclass
@frozen
class Repeated:
    """An array that is repeated along axes, as the factor of a sparse array often is: it is not stored in full.

    Attributes:
        array: the array.
        shape: the shape with the axes along which it is repeated.
        dims: the axis of `shape` for each axis of `array`.
    """

    array: Value | BCOO
    shape: Shape = field(metadata={"static": True})
    dims: tuple[int, ...] = field(metadata={"static": True})

    def full(self) -> Array | BCOO:
        """Returns the whole array."""
        return self._broadcast(self.shape)

    def aligned(self) -> Array | BCOO:
        """Returns the array with the axes of `shape`, of size 1 where it is repeated."""
        sizes = dict(zip(self.dims, self.array.aval.shape, strict=True))
        return self._broadcast(tuple([sizes.get(i, 1) for i in range(len(self.shape))]))

    def _broadcast(self, shape: Shape) -> Array | BCOO:
        if isinstance(self.array, BCOO):
            return bcoo_broadcast_in_dim(self.array, shape=shape, broadcast_dimensions=self.dims)
        return lax.broadcast_in_dim(self.array, shape, self.dims)


Operand: TypeAlias = Sparse | Repeated | Value
_Coordinates: TypeAlias = BCOO | Value


def sparsify(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that applies `f`, a function of dense arrays, to sparse arrays.

    Operations on sparse arrays are interpreted by sparse rules. Their results are sparse where zeros stay zeros, and
    dense where a sparse rule says so, as for the product of a sparse and a dense array. Operations without a sparse
    operand are unchanged. Bodies of loops, branches and calls are interpreted, too.

    Args:
        f: The function. Sparse arrays in its arguments, which are pytrees, appear in it as arrays.

    Returns:
        A function with the parameters of `f`. Its results are sparse arrays where those of the operations are.

    Raises:
        NotImplementedError: When the result is called: if an operation has no rule for its sparse operands. The message
            names the operation and its line.

    >>> from tracefx import sparse
    >>> matrix = sparse.BCOO.fromdense(fnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparsify(lambda m, v: 2 * fnp.sin(m).T @ v)(matrix, fnp.ones(2)).shape
    (2,)
    >>> sparsify(fnp.sqrt)(matrix)
    BCOO(float32[2, 2], nse=2)
    """
    return handle_values("sparsify", f, Sparsify(), SparseArray, lambda x: x, _result)


def _result(handler: Sparsify, x: Array) -> Array | Sparse:
    value = handler.unwrap(x)
    return value.full() if isinstance(value, Repeated) else value


# ------------------------------------------------------------------ rules


def _unsupported(
    what: str, remedy: str = "convert its sparse operands by tracefx.sparse.todense"
) -> NotImplementedError:
    return NotImplementedError(f"sparsify: {what}{at_location(current_provenance())} has no sparse rule: {remedy}")


def _multiply(x: _Coordinates, y: _Coordinates) -> _Coordinates:
    if isinstance(x, BCOO) and isinstance(y, BCOO):
        if x.indices is y.indices and x.unique_indices and x.shape == y.shape:
            return x.with_data(x.data * y.data)
        return bcoo_multiply_sparse(x, y)
    if isinstance(y, BCOO):
        x, y = y, x
    assert isinstance(x, BCOO)
    return x.with_data(x.data * read_factor("mul", x, as_array(y)))


def _divide(x: _Coordinates, y: _Coordinates) -> BCOO:
    if isinstance(y, BCOO):
        raise _unsupported("div by a sparse array")
    assert isinstance(x, BCOO)
    divisor = read_factor("div", x, as_array(y))
    if divisor.ndim:  # that of padding is 0
        valid = in_bounds(x.indices, x.sparse_shape)
        valid = valid.reshape(*valid.shape, *[1] * x.n_dense)
        divisor = fnp.where(valid, divisor, fnp.ones((), divisor.dtype))
    return x.with_data(x.data / divisor)


def _add(x: _Coordinates, y: _Coordinates) -> _Coordinates:
    if isinstance(x, BCOO) and isinstance(y, BCOO):
        if x.shape != y.shape:
            raise _unsupported(f"the sum of sparse arrays of different shapes, {x!r} and {y!r}")
        if x.indices is y.indices:
            return x.with_data(x.data + y.data)
        if x.n_batch != y.n_batch or x.n_dense != y.n_dense:
            raise _unsupported(f"the sum of {x!r} and {y!r}", "give them the same layout by update_layout")
        pairs = zip(x.full_batch(), y.full_batch(), strict=True)
        return BCOO([fnp.concatenate(pair, x.n_batch) for pair in pairs], shape=x.shape)
    mat, dense = (x, y) if isinstance(x, BCOO) else (y, x)
    assert isinstance(mat, BCOO)
    assert not isinstance(dense, BCOO)
    if dense.aval.shape != mat.shape:
        raise _unsupported(f"the sum of {mat!r} and {dense.aval}, which is dense and larger than the dense operand,")
    return mat.todense() + as_array(dense)


def _subtract(x: _Coordinates, y: _Coordinates) -> _Coordinates:
    if not isinstance(x, BCOO) or not isinstance(y, BCOO):
        raise _unsupported("the difference of a sparse and a dense array")
    return _add(x, y.with_data(-y.data))


def _stack(axis: int, mats: Sequence[BCOO]) -> BCOO:
    expanded = []
    for mat in mats:
        shape = (*mat.shape[:axis], 1, *mat.shape[axis:])
        dims = [i for i in range(len(shape)) if i != axis]
        expanded.append(bcoo_broadcast_in_dim(mat, shape=shape, broadcast_dimensions=dims))
    return bcoo_concatenate(expanded, dimension=axis)


def _is_sparse(xs: Iterable[Operand]) -> bool:
    return any(isinstance(x, SparseArray) or (isinstance(x, Repeated) and isinstance(x.array, BCOO)) for x in xs)


@final
class Sparsify(Interpreter[Sparse | Repeated]):
    """Own values are sparse arrays, and dense arrays that are repeated along axes."""

    title: ClassVar[str] = "sparsify"
    handles_all: ClassVar[bool] = True

    @override
    def aval_of(self, value: Sparse | Repeated) -> ShapedArray:
        if isinstance(value, Repeated):
            return value.array.aval.update(shape=value.shape)
        return value.aval

    @override
    def strip(self, value: Sparse | Repeated) -> Value:
        full = value.full() if isinstance(value, Repeated) else value
        if isinstance(full, Array):
            return full
        raise _unsupported(f"a use of {value!r} that needs a dense array,")

    @override
    def debug_value(self, value: Sparse | Repeated) -> Value:
        full = value.full() if isinstance(value, Repeated) else value
        return full if isinstance(full, Array) else full.todense()

    @override
    def spec(self, x: Value) -> ValueSpec:
        if isinstance(self.unwrap(x), Repeated):  # in bodies, it is a plain array
            return array_spec(x.aval)
        return super().spec(x)

    def _dense(self, op: Primitive, xs: Sequence[Operand]) -> Sequence[Value]:
        """Applies a primitive to dense operands."""
        operands: list[Value] = []
        for x in xs:
            operand = x.full() if isinstance(x, Repeated) else x
            assert not isinstance(operand, BCOO | BCSR)
            operands.append(operand)
        return self.inner.bind(op, operands)

    def _sparse(
        self, op: Primitive, xs: Sequence[Operand], function: Callable[..., _Coordinates], aligned: bool = False
    ) -> Sequence[Operand]:
        """Applies a function to the operands in the coordinate format, if one is sparse.

        Args:
            op: The primitive, for dense operands.
            xs: The operands.
            function: The function.
            aligned: Whether it takes dense operands that broadcast.
        """
        if not _is_sparse(xs):
            return self._dense(op, xs)
        operands: list[_Coordinates] = []
        for x in xs:
            if isinstance(x, BCSR):
                operands.append(x.to_bcoo())
            elif isinstance(x, Repeated):
                operands.append(x.aligned() if aligned else x.full())
            else:
                operands.append(x)
        out = function(*operands)
        if isinstance(out, BCOO) and out.n_sparse == 2 and any(isinstance(x, BCSR) for x in xs):
            return [BCSR.from_bcoo(out)]
        return [out]

    # -------------------------------------------------------------- elementwise

    def _map_data(self, op: Primitive, x: Operand) -> Operand | Sequence[Operand]:
        return x.with_data(as_array(bind1(op, x.data))) if isinstance(x, BCOO | BCSR) else self._dense(op, [x])

    @rule(CheckpointName)
    def name(self, op: CheckpointName, x: Operand) -> Operand | Sequence[Operand]:
        """Converts to a dense array where `todense` was called; otherwise names the data."""
        if op == TODENSE and isinstance(x, BCOO | BCSR):
            return x.todense()
        return self._map_data(op, x)

    @rule(ops.Neg, ops.Real, ops.Imag, ops.Conj, ops.StopGradient)
    def linear(self, op: Primitive, x: Operand) -> Operand | Sequence[Operand]:
        """Applies a linear function to the data."""
        return self._map_data(op, x)

    @rule(
        ops.Abs,
        ops.Asin,
        ops.Asinh,
        ops.Atan,
        ops.Atanh,
        ops.Cbrt,
        ops.Ceil,
        ops.ConvertElementType,
        ops.Erf,
        ops.Expm1,
        ops.Floor,
        ops.IntegerPow,
        ops.Log1p,
        ops.Round,
        ops.Sign,
        ops.Sin,
        ops.Sinh,
        ops.Sqrt,
        ops.Square,
        ops.Tan,
        ops.Tanh,
        BesselI1e,
    )
    def zero_preserving(self, op: Primitive, x: Operand) -> Operand | Sequence[Operand]:
        """Applies a function that maps 0 to 0 to the data, after equal index vectors are summed."""
        if not isinstance(x, BCOO | BCSR):
            return self._dense(op, [x])
        if isinstance(op, ops.IntegerPow) and op.y <= 0:
            raise _unsupported(f"integer_pow with the exponent {op.y}")
        if not x.unique_indices:
            x = x.sum_duplicates(x.nse, remove_zeros=False)
        return x.with_data(as_array(bind1(op, x.data)))

    @rule(ops.Mul)
    def mul(self, op: ops.Mul, x: Operand, y: Operand) -> Sequence[Operand]:
        """Multiplies by the entries at the index vectors of a sparse operand."""
        return self._sparse(op, [x, y], _multiply, aligned=True)

    @rule(ops.Div)
    def div(self, op: ops.Div, x: Operand, y: Operand) -> Sequence[Operand]:
        """Divides by the entries at the index vectors of the first operand."""
        return self._sparse(op, [x, y], _divide, aligned=True)

    @rule(ops.Add)
    def add(self, op: ops.Add, x: Operand, y: Operand) -> Sequence[Operand]:
        """Joins the elements of two sparse arrays; adds a sparse and a dense array as dense arrays."""
        if _is_sparse([x, y]):
            # A repeated array is refused like one that broadcasts; a repeated scalar is an array of constants.
            x, y = (z.full() if isinstance(z, Repeated) and not z.dims else z for z in (x, y))
        return self._sparse(op, [x, y], _add, aligned=True)

    @rule(ops.Sub)
    def sub(self, op: ops.Sub, x: Operand, y: Operand) -> Sequence[Operand]:
        """Joins the elements of two sparse arrays."""
        return self._sparse(op, [x, y], _subtract)

    # -------------------------------------------------------------- contractions, reductions and data movement

    @rule(ops.DotGeneral)
    def dot_general(self, op: ops.DotGeneral, x: Operand, y: Operand) -> Sequence[Operand]:
        """Contracts over the specified elements."""
        return self._sparse(
            op,
            [x, y],
            lambda p, q: bcoo_dot_general(
                p, q, dimension_numbers=op.dimension_numbers, preferred_element_type=op.preferred_element_type
            ),
        )

    @rule(ops.ReduceSum)
    def reduce_sum(self, op: ops.ReduceSum, x: Operand) -> Sequence[Operand]:
        """Sums the elements; the sum over all axes is dense."""

        def total(mat: BCOO) -> _Coordinates:
            out = bcoo_reduce_sum(mat, axes=op.axes)
            return out if out.ndim else out.todense()

        return self._sparse(op, [x], total)

    @rule(ops.Transpose)
    def transpose(self, op: ops.Transpose, x: Operand) -> Sequence[Operand]:
        """Permutes the columns of the index vectors."""
        return self._sparse(op, [x], lambda mat: mat.transpose(op.permutation))

    @rule(ops.BroadcastInDim)
    def broadcast_in_dim(self, op: ops.BroadcastInDim, x: Operand) -> Operand | Sequence[Operand]:
        """Adds axes; a dense array is not repeated until it is needed in full."""
        if isinstance(x, Repeated):
            x = x.full()
        mat = x.to_bcoo() if isinstance(x, BCSR) else x
        out = Repeated(mat, op.shape, op.broadcast_dimensions)
        if not isinstance(mat, BCOO):
            return out
        dims = op.broadcast_dimensions[mat.n_batch : mat.n_batch + mat.n_sparse]
        if any(op.shape[i] != n for i, n in zip(dims, mat.sparse_shape, strict=True)):
            return out
        return self._sparse(op, [x], lambda _: out.full())

    @rule(ops.Reshape)
    def reshape(self, op: ops.Reshape, x: Operand) -> Sequence[Operand]:
        """Splits and joins the columns of the index vectors."""
        return self._sparse(op, [x], lambda mat: bcoo_reshape(mat, new_sizes=op.new_sizes))

    @rule(ops.Rev)
    def rev(self, op: ops.Rev, x: Operand) -> Sequence[Operand]:
        """Reverses columns of the index vectors."""
        return self._sparse(op, [x], lambda mat: bcoo_rev(mat, op.dimensions))

    @rule(ops.Squeeze)
    def squeeze(self, op: ops.Squeeze, x: Operand) -> Sequence[Operand]:
        """Removes columns of the index vectors."""
        return self._sparse(op, [x], lambda mat: bcoo_squeeze(mat, dimensions=op.dimensions))

    @rule(ops.Slice)
    def slice(self, op: ops.Slice, x: Operand) -> Sequence[Operand]:
        """Selects the elements within bounds."""
        return self._sparse(
            op,
            [x],
            lambda mat: bcoo_slice(
                mat, start_indices=op.start_indices, limit_indices=op.limit_indices, strides=op.strides
            ),
        )

    @rule(ops.DynamicSlice)
    def dynamic_slice(self, op: ops.DynamicSlice, x: Operand, *starts: Operand) -> Sequence[Operand]:
        """Selects the elements within the window."""
        if _is_sparse(starts):
            raise _unsupported("dynamic_slice with sparse indices")
        return self._sparse(op, [x, *starts], lambda mat, *at: bcoo_dynamic_slice(mat, at, op.slice_sizes))

    @rule(ops.Gather)
    def gather(self, op: ops.Gather, x: Operand, indices: Operand) -> Sequence[Operand]:
        """Selects the elements within the windows."""
        if _is_sparse([indices]):
            raise _unsupported("gather with sparse indices")
        return self._sparse(
            op,
            [x, indices],
            lambda mat, at: bcoo_gather(mat, at, op.dimension_numbers, op.slice_sizes, mode=op.mode),
        )

    @rule(ops.Concatenate)
    def concatenate(self, op: ops.Concatenate, *xs: Operand) -> Sequence[Operand]:
        """Joins the elements."""
        return self._sparse(op, xs, lambda *mats: bcoo_concatenate(mats, dimension=op.dimension))

    @rule(ops.Stack)
    def stack(self, op: ops.Stack, *xs: Operand) -> Sequence[Operand]:
        """Joins the elements along a new axis."""
        return self._sparse(op, xs, lambda *mats: _stack(op.axis, mats))

    # -------------------------------------------------------------- other primitives

    @rule(Scan)
    def scan(self, op: Scan, *xs: Operand) -> Sequence[Operand]:
        """Interprets the step; sparse arrays that are scanned must have a batch axis."""
        _, _, arrays = op.split_operands(xs)
        for x in arrays:
            if isinstance(x, BCOO | BCSR) and not x.n_batch:
                raise _unsupported(f"scan over {x!r}", "give it a batch axis by update_layout(n_batch=1)")
        outs = op.transform_bodies(self, [self.wrap(x) for x in xs])
        return [self.unwrap(x) for x in outs]

    @rule(family=Primitive)
    def other(self, op: Primitive, *xs: Operand) -> Sequence[Operand]:
        """Applies all other operations to dense operands, and expands those of sparse operands."""
        if not _is_sparse(xs):
            return self._dense(op, xs)
        if isinstance(op, Expandable):
            return [self.unwrap(x) for x in bind_expansion(self.frame, op, [self.wrap(x) for x in xs])]
        raise _unsupported(op.name)
