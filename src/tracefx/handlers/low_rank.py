"""Low-rank adaptation (LoRA): weights `W + scale * A @ B` that are applied without forming the sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, ParamSpec, TypeAlias, TypeVar, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx import random
from tracefx.control.scan import Scan
from tracefx.core import Array, ArrayLike, ShapedArray, Value, dtypes
from tracefx.core.handler import as_array, bind1, bind_expansion
from tracefx.core.primitive import Expandable, Primitive
from tracefx.handlers.probabilistic.seeding import as_key
from tracefx.interpreters.body_transform import ValueSpec, array_spec
from tracefx.interpreters.callables import HasCallables
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rule_methods import rule
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.elementwise.selection import StopGradient
from tracefx.ops.structural import ConvertElementType, Transpose, convert, transpose
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, keystr
from tracefx.transforms.handle import handle_values

P = ParamSpec("P")
R = TypeVar("R")


@final
@trees.register_dataclass
@frozen
class LowRank:
    """A weight `weight + scale * a @ b` with a low-rank update.

    Attributes:
        weight: the base weight, `f32[..., n, m]`; leading axes are those of stacked layers.
        a: the left factor, `f32[..., n, r]`.
        b: the right factor, `f32[..., r, m]`.
        scale: the factor of the update.

    >>> import tracefx.numpy as fnp
    >>> weight = LowRank(fnp.zeros((2, 3)), fnp.ones((2, 1)), fnp.ones((1, 3)), scale=0.5)
    >>> lora(lambda w, x: w @ x)(weight, fnp.ones(3))
    Array([1.5, 1.5], dtype=float32)
    """

    weight: Any
    a: Any
    b: Any
    scale: float = field(default=1.0, metadata={"static": True})

    def merged(self) -> Array:
        """Returns the sum `weight + scale * a @ b` as an array.

        >>> import tracefx.numpy as fnp
        >>> LowRank(fnp.ones((2, 2)), fnp.ones((2, 1)), fnp.ones((1, 2)), 0.5).merged()
        Array([[1.5, 1.5],
               [1.5, 1.5]], dtype=float32)
        """
        weight = as_array(self.weight)
        low: Array = (as_array(self.a) @ self.b) * self.scale
        return weight + low.astype(weight.dtype)


def _is_low_rank(x: object) -> bool:
    return isinstance(x, LowRank)


def lora(fun: Callable[P, R]) -> Callable[P, R]:
    """Returns `fun` for arguments in which a `LowRank` replaces an array, anywhere in their pytrees.

    Products with such a weight, on either side, transposed and batched, are computed as
    `x @ weight + (x @ a) @ b * scale`, without forming the sum of the weights. Scans over stacked layers take slices of
    all three arrays. All other operations use the sum.

    Args:
        fun: the function to adapt.

    Returns:
        A function like `fun` that also accepts `LowRank` weights.

    Raises:
        ValueError: if the shapes of `weight`, `a` and `b` do not fit together.
        TypeError: if `fun` is not callable.

    >>> import tracefx.numpy as fnp
    >>> w = LowRank(fnp.ones((3, 2)), fnp.ones((3, 1)), fnp.ones((1, 2)))
    >>> lora(lambda x, w: x @ w)(fnp.ones(3), w)
    Array([6., 6.], dtype=float32)
    """
    return handle_values(
        "lora", fun, _Lora(), LowRank, _factor_weight, lambda handler, x: handler.strip_to_plain(x, "a result")
    )


# ------------------------------------------------------------------ parameters


def init_lora(
    params: PyTree,
    rank: int,
    *,
    key: ArrayLike = 0,
    alpha: float | None = None,
    where: Callable[[str, Array], bool] | None = None,
) -> Any:
    """Returns the parameters with a `LowRank` in place of each matrix.

    `a` is random and `b` is zero, so the adapted parameters compute the same function at first.

    Args:
        params: a pytree of arrays.
        rank: the rank `r` of the updates, at least 1.
        key: a random key or a seed for the factors `a`.
        alpha: the scale of an update is `alpha / rank`; with the default, None, it is 1.
        where: a predicate that selects the leaves to adapt by their path, e.g. `"['layers'][0]"`, and value. With the
            default, None, all floating-point leaves with at least two axes are; all axes but the last two are those of
            stacked layers.

    Returns:
        A pytree like `params` with `LowRank` nodes.

    Raises:
        ValueError: if `rank` is below 1.
        TypeError: if `where` selects a leaf that is not a floating-point matrix.

    >>> import tracefx.numpy as fnp
    >>> init_lora({"w": fnp.ones((4, 3)), "b": fnp.ones(3)}, 2)["w"].a.shape
    (4, 2)
    """
    if rank < 1:
        raise ValueError(f"init_lora: the rank must be at least 1, got {rank}")
    scale = 1.0 if alpha is None else alpha / rank
    paths, tree = trees.flatten_with_path(params)
    keys = random.split(as_key(key), max(len(paths), 1))

    def adapted(i: int, path: str, leaf: ArrayLike) -> ArrayLike | LowRank:
        x = as_array(leaf)
        fits = x.ndim >= 2 and dtypes.is_float(x.dtype)
        if not (fits if where is None else where(path, x)):
            return leaf
        if not fits:
            raise TypeError(f"init_lora: where selects params{path}, which is {x.aval}, not a floating-point matrix")
        *stack, n, m = x.shape
        a = random.normal(keys[i], (*stack, n, rank), x.dtype) * float(n**-0.5)
        return LowRank(x, a, as_array(np.zeros((*stack, rank, m), x.dtype)), scale)

    return tree.unflatten([adapted(i, keystr(path), leaf) for i, (path, leaf) in enumerate(paths)])


def merge(params: PyTree) -> Any:
    """Returns the parameters with each `LowRank` merged into one array, for use without `lora`.

    Args:
        params: a pytree of arrays and `LowRank` nodes.

    Returns:
        A pytree of arrays.

    >>> import tracefx.numpy as fnp
    >>> merge({"w": LowRank(fnp.zeros((1, 1)), fnp.ones((1, 2)), fnp.ones((2, 1)))})
    {'w': Array([[2.]], dtype=float32)}
    """
    return trees.map(lambda x: x.merged() if isinstance(x, LowRank) else x, params, is_leaf=_is_low_rank)


def split_lora(params: PyTree) -> tuple[Any, Any]:
    """Splits parameters into a trainable and a frozen part: the factors `a` and `b` of each `LowRank`, and the rest.

    `join_lora` puts the parts together, so `grad(lambda trained: loss(join_lora(trained, frozen)))` is the gradient
    with respect to the factors alone.

    Args:
        params: a pytree of arrays and `LowRank` nodes.

    Returns:
        The pair `(trained, frozen)` of pytrees like `params`, each with None for what is in the other.

    >>> import tracefx.numpy as fnp
    >>> trained, frozen = split_lora(init_lora({"w": fnp.ones((4, 3)), "b": fnp.ones(3)}, 1))
    >>> trained["w"].weight is None, trained["b"] is None, frozen["w"].a is None
    (True, True, True)
    """
    trained = trees.map(
        lambda x: evolve(x, weight=None) if isinstance(x, LowRank) else None, params, is_leaf=_is_low_rank
    )
    frozen_ = trees.map(
        lambda x: evolve(x, a=None, b=None) if isinstance(x, LowRank) else x, params, is_leaf=_is_low_rank
    )
    return trained, frozen_


def join_lora(trained: PyTree, frozen: PyTree) -> Any:
    """Returns the parameters that `split_lora` split.

    Args:
        trained: the trainable part.
        frozen: the frozen part.

    Returns:
        A pytree like the argument of `split_lora`.

    >>> import tracefx.numpy as fnp
    >>> params = init_lora({"w": fnp.ones((4, 3))}, 1)
    >>> join_lora(*split_lora(params))["w"].a.shape
    (4, 1)
    """

    def joined(x: object, y: object) -> object:
        return evolve(x, weight=y.weight) if isinstance(x, LowRank) and isinstance(y, LowRank) else y

    return trees.map(joined, trained, frozen, is_leaf=lambda x: x is None or isinstance(x, LowRank))


# ------------------------------------------------------------------ the handler


WeightAxes: TypeAlias = tuple[int, ...]


@final
@trees.register_dataclass
@frozen
class FactoredWeight:
    """A weight and its two factors, each with the rank as its last axis.

    Axes have names: those of the weight are `axes`, those of `left` and `right` are `left_axes` and `right_axes`,
    both subsets of `axes`. All three arrays also have the leading axes of stacked layers, `stack_axes`.
    """

    weight: Value
    left: Value
    right: Value
    axes: WeightAxes = field(metadata={"static": True})
    left_axes: WeightAxes = field(metadata={"static": True})
    right_axes: WeightAxes = field(metadata={"static": True})
    scale: float = field(metadata={"static": True})

    @property
    def stack_axes(self) -> WeightAxes:
        """The names of the leading axes, those of stacked layers: negative numbers."""
        return tuple(range(-(self.weight.aval.ndim - len(self.axes)), 0))

    def sum(self) -> Array:
        """Returns the weight plus the product of its factors."""
        rank = max(self.axes) + 1
        names = self.stack_axes + self.axes
        left, right = (self.stack_axes + own + (rank,) for own in (self.left_axes, self.right_axes))
        low = _named_contraction(DotGeneral((((), ()), ((), ()))), self.left, left, self.right, right, names)
        weight = as_array(self.weight)
        return weight + (low * self.scale).astype(weight.dtype)


FactoredOrValue: TypeAlias = FactoredWeight | Value


def _factor_weight(x: LowRank) -> FactoredWeight:
    weight, a, b = map(as_array, (x.weight, x.a, x.b))
    *stack, n, m = weight.shape if weight.ndim > 1 else (0, 0)
    rank = a.shape[-1] if a.ndim else -1
    if weight.ndim < 2 or a.shape != (*stack, n, rank) or b.shape != (*stack, rank, m):
        raise ValueError(
            "lora: the weight, a and b must have the shapes [..., n, m], [..., n, r] and [..., r, m], got "
            f"{weight.shape}, {a.shape} and {b.shape}"
        )
    last = weight.ndim - 1
    turned = transpose(b, (*range(last - 1), last, last - 1))
    return FactoredWeight(weight, a, turned, (0, 1), (0,), (1,), x.scale)


def _named_contraction(
    op: DotGeneral, x: Value, x_names: WeightAxes, y: Value, y_names: WeightAxes, outs: WeightAxes
) -> Array:
    """Contracts two arrays with named axes over the names that are missing from `outs`."""
    shared = [name for name in x_names if name in y_names]
    batch, summed = [name for name in shared if name in outs], [name for name in shared if name not in outs]

    def positions(names: Sequence[int]) -> tuple[WeightAxes, WeightAxes]:
        return tuple([x_names.index(name) for name in names]), tuple([y_names.index(name) for name in names])

    product_names = [*batch, *[n for n in x_names if n not in shared], *[n for n in y_names if n not in shared]]
    out = bind1(evolve(op, dimension_numbers=(positions(summed), positions(batch))), x, y)
    return transpose(out, [product_names.index(name) for name in outs])


@final
class _Lora(Interpreter[FactoredWeight]):
    """Values are weights with their factors; contractions multiply by the factors separately."""

    title: ClassVar[str] = "lora"

    @override
    def aval_of(self, value: FactoredWeight) -> ShapedArray:
        return value.weight.aval

    @override
    def strip(self, value: FactoredWeight) -> Value:
        return value.sum()

    @override
    def join(self, x: ValueSpec, y: ValueSpec, what: str) -> ValueSpec:
        """Returns the spec of a plain array where a factored weight meets another value."""
        if x == y or len(x.avals) == len(y.avals) == 0:
            return x
        return Interpreter.join(self, array_spec(x.avals[0]), array_spec(y.avals[0]), what)

    @rule(DotGeneral)
    def dot_general(self, op: DotGeneral, x: FactoredOrValue, y: FactoredOrValue) -> Value:
        """Multiplies by a weight's factors one after the other, first by the one with contracted axes."""
        if isinstance(x, FactoredWeight) and isinstance(y, FactoredWeight):
            y = y.sum()
        weight_first = isinstance(x, FactoredWeight)
        w, other = (x, y) if weight_first else (y, x)
        assert isinstance(w, FactoredWeight)
        assert not isinstance(other, FactoredWeight)
        (of_x, of_y), (batch_x, batch_y) = op.dimension_numbers
        summed, batch = (of_x, batch_x) if weight_first else (of_y, batch_y)
        summed_other, batch_other = (of_y, batch_y) if weight_first else (of_x, batch_x)
        names = w.stack_axes + w.axes
        rank = max(w.axes) + 1
        new_names = iter(range(rank + 1, rank + 1 + other.aval.ndim))
        partner = {**dict(zip(summed_other, summed, strict=True)), **dict(zip(batch_other, batch, strict=True))}
        other_names = tuple([names[partner[i]] if i in partner else next(new_names) for i in range(other.aval.ndim)])
        mapped = [names[i] for i in batch]
        free = [n for i, n in enumerate(names) if i not in summed and i not in batch]
        other_free = [n for i, n in enumerate(other_names) if i not in partner]
        outs = (*mapped, *free, *other_free) if weight_first else (*mapped, *other_free, *free)
        over = {names[i] for i in summed}
        if not over & {*w.left_axes, *w.right_axes}:
            return bind1(op, *(w.sum() if isinstance(a, FactoredWeight) else a for a in (x, y)))
        parts = [(w.left, w.stack_axes + w.left_axes + (rank,)), (w.right, w.stack_axes + w.right_axes + (rank,))]
        if not over & {*w.left_axes}:
            parts.reverse()
        (first, first_names), (second, second_names) = parts
        needed = {*outs, *second_names}
        between = (
            *[n for n in other_names if n in needed],
            *[n for n in first_names if n in needed and n not in other_names],
        )
        half = _named_contraction(op, other, other_names, first, first_names, between) * w.scale
        low = _named_contraction(op, half, between, second, second_names, outs)
        out = bind1(op, *(a.weight if isinstance(a, FactoredWeight) else a for a in (x, y)))
        return out + convert(low, out.aval.dtype, low.aval.weak_type)

    @rule(Transpose)
    def transpose_weight(self, op: Transpose, x: FactoredWeight) -> FactoredOrValue:
        """Transposes the weight and the stack axes of its factors; if an axis leaves or joins the stack, the sum."""
        names = x.stack_axes + x.axes
        new = tuple([names[i] for i in op.permutation])
        stack, axes = new[: len(x.stack_axes)], new[len(x.stack_axes) :]
        if {*stack} != {*x.stack_axes}:
            return bind1(op, x.sum())
        order = [x.stack_axes.index(name) for name in stack]
        left, right = (transpose(part, (*order, *range(len(order), part.aval.ndim))) for part in (x.left, x.right))
        return evolve(x, weight=bind1(op, x.weight), left=left, right=right, axes=axes)

    @rule(StopGradient, ConvertElementType)
    def elementwise(self, op: StopGradient | ConvertElementType, x: FactoredWeight) -> FactoredOrValue:
        """Applies the operation to the weight and both factors. Conversions to integers apply to the sum."""
        if isinstance(op, ConvertElementType) and not dtypes.is_float(op.new_dtype):
            return bind1(op, x.sum())
        return evolve(x, weight=bind1(op, x.weight), left=bind1(op, x.left), right=bind1(op, x.right))

    @rule(Scan)
    def scan(self, op: Scan, *xs: FactoredOrValue) -> Sequence[FactoredOrValue]:
        """Slices the weight and its factors along an axis of stacked layers; without one, slices the sum."""
        consts, carry, arrays = op.split_operands(xs)
        sliced = [x.sum() if isinstance(x, FactoredWeight) and not x.stack_axes else x for x in arrays]
        outs = op.transform_bodies(self, [self.wrap(x) for x in (*consts, *carry, *sliced)])
        return [self.unwrap(x) for x in outs]

    @rule(family=Primitive)
    def other(self, op: Primitive, *xs: FactoredOrValue) -> Sequence[FactoredOrValue]:
        """Applies all other operations to the sum."""
        if isinstance(op, HasCallables) and isinstance(op, Expandable):  # its functions may close over factored weights
            return [self.unwrap(x) for x in bind_expansion(self.frame, op, [self.wrap(x) for x in xs])]
        return self.inner.bind(op, [x.sum() if isinstance(x, FactoredWeight) else x for x in xs])
