"""`laplacian`, `value_and_laplacian` and `forward_laplacian`: for users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, unique
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast, final

from attrs import field, frozen
from typing_extensions import ParamSpec, override

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import current, handling
from tracefx.core.values import Value
from tracefx.handlers.laplacian.handler import ForwardLaplacian
from tracefx.handlers.laplacian.laplacian_array import (
    LaplacianArray,
    LaplacianOrValue,
    constant_laplacian_array,
    seed_laplacian_array,
    to_dense,
)
from tracefx.ops.shape.slicing import slice_axis
from tracefx.ops.structural import constant_like_aval, move_axis, reshape
from tracefx.pytrees.trees import TreeDef
from tracefx.transforms.arguments import flatten_values, fun_name, normalize_argnums, require_callable, to_arrays
from tracefx.transforms.transform import Transform, WrappedFunction, to_argnums, validate_argnums
from tracefx.transforms.transformed_function import wrap_transformed

P = ParamSpec("P")
R = TypeVar("R")


class Derivatives(NamedTuple, Generic[R]):
    """What `forward_laplacian` gives: the value, its derivatives as `jacfwd` has them, and its Laplacian."""

    value: R
    jacobian: Any
    laplacian: R


@unique
class LaplacianOutputs(Enum):
    """What is asked for."""

    LAPLACIAN = "laplacian"
    WITH_VALUE = "value_and_laplacian"
    ALL = "forward_laplacian"


def laplacian(fun: Callable[P, R], argnums: int | Sequence[int] = 0) -> WrappedFunction[P, R]:
    """The function that gives the Laplacian of `fun`: the sum of its second derivatives by each element of an argument.

    That is the trace of the Hessian, for each element of the outputs, in one pass forwards and without Hessians: with
    each value of the program go its derivatives by the `n` inputs and its Laplacian. `argnums` says which arguments,
    trees of arrays of floats, the derivatives are by; the others are constants. The result is like `fun`'s.

    Raises TypeError for arguments or outputs that are not floats (outputs may be complex), ValueError for `argnums`
    that name no argument.

    >>> import tracefx.numpy as jnp
    >>> float(laplacian(lambda x: (x**3).sum())(jnp.array([1.0, 2.0])))
    18.0
    """
    return cast("WrappedFunction[P, R]", _LaplacianTransform(LaplacianOutputs.LAPLACIAN, argnums)(fun))


def value_and_laplacian(fun: Callable[P, R], argnums: int | Sequence[int] = 0) -> WrappedFunction[P, tuple[R, R]]:
    """The function that gives both, `fun(x)` and its Laplacian, by one pass; `laplacian` says more.

    >>> import tracefx.numpy as jnp
    >>> y, curvature = value_and_laplacian(lambda x: (x * x).sum())(jnp.arange(3.0))
    >>> float(y), float(curvature)
    (5.0, 6.0)
    """
    return cast("WrappedFunction[P, tuple[R, R]]", _LaplacianTransform(LaplacianOutputs.WITH_VALUE, argnums)(fun))


def forward_laplacian(fun: Callable[P, R], argnums: int | Sequence[int] = 0) -> WrappedFunction[P, Derivatives[R]]:
    """The function that gives `fun(x)`, its Jacobian and its Laplacian, by one pass; `laplacian` says more.

    An output `f32[m]` of an argument `f32[n]` gives a Jacobian `f32[m, n]`; trees give the tree of outputs, with the
    tree of arguments at each leaf.

    >>> import tracefx.numpy as jnp
    >>> value, gradient, curvature = forward_laplacian(lambda x: (x * x).sum())(jnp.arange(3.0))
    >>> gradient.tolist(), float(curvature)
    ([0.0, 2.0, 4.0], 6.0)
    """
    return cast("WrappedFunction[P, Derivatives[R]]", _LaplacianTransform(LaplacianOutputs.ALL, argnums)(fun))


@final
@frozen(eq=False, repr=False)
class _LaplacianTransform(Transform):
    title: ClassVar[str] = "laplacian"
    outputs: LaplacianOutputs
    argnums: int | tuple[int, ...] = field(default=0, converter=to_argnums, validator=validate_argnums)

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        title, argnums = self.outputs.value, self.argnums
        require_callable(title, fun)

        @wrap_transformed(self, fun)
        def derived(*args: Any, **kwargs: Any) -> Any:
            places = normalize_argnums(argnums, len(args), title, fun)
            given = args[places[0]] if isinstance(argnums, int) else tuple([args[i] for i in places])
            values, in_tree = flatten_values(given, f"{title} of {fun_name(fun)}: the differentiated arguments")
            for x in values:
                if not dtypes.is_float(x.aval.dtype):
                    raise TypeError(
                        f"{title} of {fun_name(fun)}: differentiated arguments must be floats, got {x.aval}; convert "
                        "them, or name others by argnums"
                    )
            size = sum([x.aval.size for x in values])
            handler = ForwardLaplacian(current(), size)
            inputs = in_tree.unflatten(to_arrays([handler.wrap(x) for x in _seed_inputs(values, size)]))
            full_args = list(args)
            for i, x in zip(places, [inputs] if isinstance(argnums, int) else inputs, strict=True):
                full_args[i] = x
            with handling(handler):
                outs, out_tree = flatten_values(fun(*full_args, **kwargs), f"the output of {fun_name(fun)}")
            found = [_checked_output(title, fun, handler.unwrap(out), size) for out in outs]
            return self._result(found, out_tree, [x.aval for x in values], in_tree)

        return derived

    def _result(
        self, found: Sequence[LaplacianArray], out_tree: TreeDef, avals: Sequence[ShapedArray], in_tree: TreeDef
    ) -> object:
        laplacians = out_tree.unflatten(to_arrays([_laplacian_or_zeros(x) for x in found]))
        if self.outputs is LaplacianOutputs.LAPLACIAN:
            return laplacians
        values = out_tree.unflatten(to_arrays([x.value for x in found]))
        if self.outputs is LaplacianOutputs.WITH_VALUE:
            return values, laplacians
        jacobians = [in_tree.unflatten(to_arrays(_split_jacobian(to_dense(x), avals))) for x in found]
        return Derivatives(values, out_tree.unflatten(jacobians), laplacians)


def _seed_inputs(values: Sequence[Value], size: int) -> list[LaplacianOrValue]:
    found: list[LaplacianOrValue] = []
    start = 0
    for x in values:
        found.append(seed_laplacian_array(x, start, size))
        start += x.aval.size
    return found


def _checked_output(title: str, fun: Callable[..., object], out: LaplacianOrValue, size: int) -> LaplacianArray:
    if isinstance(out, LaplacianArray):
        return out
    if not dtypes.is_inexact(out.aval.dtype):
        raise TypeError(f"{title} of {fun_name(fun)}: outputs must be floats or complex numbers, got {out.aval}")
    return constant_laplacian_array(out, size)


def _laplacian_or_zeros(x: LaplacianArray) -> Value:
    return constant_like_aval(x.value.aval.tangent(), 0) if x.laplacian is None else x.laplacian


def _split_jacobian(x: LaplacianArray, avals: Sequence[ShapedArray]) -> list[Value]:
    """The derivatives by each of the arguments."""
    parts: list[Value] = []
    start = 0
    for a in avals:
        part = slice_axis(x.jacobian, start, start + a.size, 0)
        parts.append(reshape(move_axis(part, 0, len(x.shape)), (*x.shape, *a.shape)))
        start += a.size
    return parts
