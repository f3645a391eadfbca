"""A value with its derivatives by all inputs and its Laplacian, and the arithmetic that rules are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, final

from attrs import evolve, field, frozen

from tracefx.core import dtypes, trees
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.dtypes import DType
from tracefx.core.primitive import Tangent, Zero
from tracefx.core.values import Value
from tracefx.ops.arithmetic import mul
from tracefx.ops.basis import broadcast_in_dim, broadcast_to, convert, filled, move_axis, reduce_sum, reshape
from tracefx.ops.comparison import eq
from tracefx.ops.cutting import pad
from tracefx.ops.elementwise import add
from tracefx.ops.filling import broadcasted_iota
from tracefx.ops.selection import where


@final
@frozen(eq=False)
class Curved:
    """A value `f32[*s]`, its derivatives by `size` inputs, `f32[size, *s]`, and the sum of its second derivatives.

    A Laplacian known to be zero is `None`. With a `start` each element depends on one input alone: element `i`,
    counted through the array, on input `start + i`; then `jacobian` is only that derivative, `f32[*s]`. With `rows`
    each row along the first axis depends on its own `b` inputs alone, as many for each, and `jacobian` is by these,
    `f32[b, *s]`. At the border of a loop, which slices values along their first axis, the inputs come last
    (`behind`): `f32[*s, size]`.
    """

    value: Value
    jacobian: Value
    laplacian: Value | None
    size: int
    start: int | None = field(default=None)
    rows: bool = field(default=False)
    behind: bool = field(default=False)

    @property
    def shape(self) -> Shape:
        return self.value.aval.shape

    @property
    def form(self) -> tuple[int | None, bool]:
        """How the Jacobian is written."""
        return self.start, self.rows


Static: TypeAlias = tuple[int, int | None, bool, bool]


def _children(x: Curved) -> tuple[tuple[Value, Value, Value | None], Static]:
    return (x.value, x.jacobian, x.laplacian), (x.size, x.start, x.rows, x.behind)


def _again(static: Static, children: tuple[Value, Value, Value | None]) -> Curved:
    size, start, rows, behind = static
    value, jac, lap = children
    return Curved(value, jac, lap, size, start, rows, behind)


trees.register_pytree_node(Curved, _children, _again)

Held: TypeAlias = Curved | Value


DENSE: Final = (None, False)


def curved(
    value: Value, jacobian: Value, laplacian: Value | None, size: int, form: tuple[int | None, bool] = DENSE
) -> Curved:
    """The derivatives get the dtype of the value."""
    dtype = value.aval.dtype
    lap = None if laplacian is None else of_dtype(laplacian, dtype)
    return Curved(value, of_dtype(jacobian, dtype), lap, size, *form)


def of_dtype(x: Value, dtype: DType) -> Value:
    return x if x.aval.dtype is dtype else convert(x, dtype, x.aval.weak_type)


def value_of(x: Held) -> Value:
    return x.value if isinstance(x, Curved) else x


def constant(x: Value, size: int) -> Curved:
    """A value that doesn't vary."""
    return Curved(x, filled(ShapedArray((size, *x.aval.shape), x.aval.dtype), 0), None, size)


def seed(x: Value, start: int, size: int) -> Curved:
    """Inputs: each element its own, from number `start` on."""
    return Curved(x, filled(x.aval.tangent(), 1), None, size, start)


# ------------------------------------------------------------------ forms


def dense(x: Curved) -> Curved:
    """The same with all derivatives written out."""
    if x.rows:
        return evolve(x, jacobian=rows_among(x.jacobian, 1), rows=False)
    if x.start is None:
        return x
    shape = (x.size, *x.shape)
    places = reshape(broadcasted_iota(dtypes.int32, (x.value.aval.size,), 0), x.shape)
    own = eq(broadcast_to(add(places, x.start), shape), broadcasted_iota(dtypes.int32, shape, 0))
    return evolve(x, jacobian=_where(own, broadcast_to(x.jacobian, shape)), start=None)


def by_rows(x: Curved) -> Curved | None:
    """The same as rows that depend on their own inputs each, if they do."""
    if x.rows:
        return x
    shape = x.shape
    if x.start != 0 or len(shape) < 2 or x.value.aval.size != x.size or not x.size:
        return None
    count = x.size // shape[0]
    places = reshape(broadcasted_iota(dtypes.int32, (count,), 0), shape[1:])
    full = (count, *shape)
    own = eq(broadcast_to(places, full), broadcasted_iota(dtypes.int32, full, 0))
    return evolve(x, jacobian=_where(own, broadcast_to(x.jacobian, full)), start=None, rows=True)


def rows_among(jac: Value, axis: int) -> Value:
    """Derivatives `f32[b, ..., n, ...]` of rows along `axis` by their own inputs, among zeros: `f32[n * b, ...]`."""
    shape = jac.aval.shape
    n = shape[axis]
    full = (n, *shape)
    own = eq(broadcasted_iota(dtypes.int32, full, 0), broadcasted_iota(dtypes.int32, full, axis + 1))
    return reshape(_where(own, broadcast_to(jac, full)), (n * shape[0], *shape[1:]))


def own_rows(x: Value, axis: int, among: bool = False) -> Value:
    """Rows `[n, ...]`, among zeros along one more axis: `x[i]` at `[i, ..., i, ...]`, the second at place `axis`.

    Or the other way, where both axes are there: only those with `i` at both.
    """
    if among:
        shape = x.aval.shape
        own = eq(broadcasted_iota(dtypes.int32, shape, 0), broadcasted_iota(dtypes.int32, shape, axis))
        return reduce_sum(_where(own, x), (axis,))
    shape = (*x.aval.shape[:axis], x.aval.shape[0], *x.aval.shape[axis:])
    full = broadcast_in_dim(x, shape, [d for d in range(len(shape)) if d != axis])
    own = eq(broadcasted_iota(dtypes.int32, shape, 0), broadcasted_iota(dtypes.int32, shape, axis))
    return _where(own, full)


def _where(own: Value, slopes: Value) -> Value:
    return where(own, slopes, 0, slopes.aval)


def in_front(x: Curved) -> Curved:
    return evolve(x, jacobian=move_axis(x.jacobian, len(x.shape), 0), behind=False) if x.behind else x


def at_the_end(x: Curved) -> Curved:
    """The form that goes through loops."""
    if x.behind:
        return x
    x = dense(x)
    return evolve(x, jacobian=move_axis(x.jacobian, 0, len(x.shape)), behind=True)


def expanded(x: Held, shape: Shape) -> Held:
    """A value without axes repeated to a shape, as operations element by element take it."""
    if not isinstance(x, Curved) or x.shape == shape:
        return x
    full = dense(x)
    lap = None if full.laplacian is None else broadcast_to(full.laplacian, shape)
    jac = broadcast_in_dim(full.jacobian, (x.size, *shape), (0,))
    return Curved(broadcast_to(full.value, shape), jac, lap, x.size)


def alike(x: Curved, y: Curved) -> tuple[Curved, Curved]:
    """Both with derivatives in one form."""
    x, y = in_one_form([x, y])
    return x, y


def in_one_form(xs: Sequence[Curved]) -> list[Curved]:
    """All with derivatives in one form."""
    if len({(x.form, x.shape) for x in xs}) == 1:
        return list(xs)
    rows = [by_rows(x) for x in xs]
    found = [x for x in rows if x is not None]
    return found if len(found) == len(xs) and len({x.shape for x in xs}) == 1 else [dense(x) for x in xs]


def in_place(x: Value, start: int, size: int) -> Value:
    """Derivatives by the inputs from number `start` on, `f32[n, *s]`, among zeros: `f32[size, *s]`."""
    shape = x.aval.shape
    behind = size - start - shape[0]
    return pad(x, 0, [(start, behind, 0), *[(0, 0, 0)] * (len(shape) - 1)]) if start or behind else x


# ------------------------------------------------------------------ arithmetic


def factor_for(x: Value, y: Curved) -> Value:
    """A factor, one an element or one for all, for derivatives as those of `y` are."""
    return x if y.start is not None or not x.aval.shape else broadcast_to(x, (y.jacobian.aval.shape[0], *x.aval.shape))


def scaled(factor: Value, x: Curved) -> Value:
    """A factor, one an element or one for all, times the derivatives of `x`, in their form."""
    return mul(factor_for(factor, x), x.jacobian)


def inner(x: Curved, y: Curved) -> Value:
    """The sum over inputs of the products of derivatives; both have one form."""
    products = mul(x.jacobian, y.jacobian)
    return products if x.start is not None else reduce_sum(products, (0,))


def plus(x: Value | None, y: Value | None) -> Value | None:
    if x is None:
        return y
    return x if y is None else add(x, y)


def times(x: Value, y: Value | None) -> Value | None:
    return None if y is None else mul(x, y)


def as_term(t: Tangent) -> Value | None:
    return None if isinstance(t, Zero) else t
