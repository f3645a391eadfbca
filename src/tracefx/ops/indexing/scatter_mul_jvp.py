"""`product_of_others`: partial derivatives of `scatter_mul` where updates may go to the same element."""

from __future__ import annotations

from tracefx.core import Array, Literal, ShapedArray, Value, dtypes
from tracefx.core.handler import as_array, bind
from tracefx.ops.elementwise.arithmetic import mul
from tracefx.ops.elementwise.comparison import eq
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.selection import select
from tracefx.ops.indexing.gather_scatter_add import ScatterOperation
from tracefx.ops.indexing.sorting import Sort
from tracefx.ops.shape.array_creation import iota
from tracefx.ops.shape.slicing import pad
from tracefx.ops.structural import full_like_aval, reshape


def product_of_others(prim: ScatterOperation, operand: ShapedArray, indices: Value, updates: Value) -> Array:
    """Returns, for each update, the product of all other updates of the same element.

    Nothing is divided, so zeros are no problem. Updates are sorted by their target element; then the products of those
    before and of those after each update are computed by doubling.
    """
    shape, count = updates.aval.shape, updates.aval.size
    if count < 2:
        return full_like_aval(updates.aval, 1)
    numbering = dtypes.int32 if operand.size < 2**31 - 1 else dtypes.int64
    numbers = reshape(add(iota(numbering, operand.size), 1), operand.shape)
    (positions,) = bind(prim.matching_gather(operand.shape, shape), numbers, indices)  # 0 for dropped updates
    order = iota(numbering, count)
    sort = Sort(0, True, 1)
    ordered = bind(sort, reshape(positions, (count,)), order, reshape(updates, (count,)))
    position, order, factors = [as_array(x) for x in ordered]
    one = Literal(1, ShapedArray((), updates.aval.dtype))
    nowhere = Literal(-1, ShapedArray((), numbering))

    def products(direction: int) -> Array:
        """Returns the products of the factors of the same element before (`direction` 1) or after (-1) each."""

        def moved(x: Array, by: int, fill: Literal) -> Array:
            return pad(x, fill, [(direction * by, -direction * by, 0)])

        def there(x: Array, by: int) -> Array:
            same = eq(position, moved(position, by, nowhere))
            return select(same, moved(x, by, one), full_like_aval(x.aval, 1))

        out, reach = there(factors, 1), 1
        while reach < count:
            out = mul(out, there(out, reach))
            reach *= 2
        return out

    _, back = bind(sort, order, mul(products(1), products(-1)))
    return reshape(back, shape)
