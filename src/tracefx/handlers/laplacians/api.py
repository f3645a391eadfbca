"""`laplacian`, `value_and_laplacian` and `forward_laplacian`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, unique
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, final

from attrs import field, frozen
from typing_extensions import ParamSpec, override

from tracefx.core import ShapedArray, Value, dtypes
from tracefx.core.handler import current, handling
from tracefx.handlers.laplacians.handler import ForwardLaplacian
from tracefx.handlers.laplacians.laplacian_array import (
    LaplacianArray,
    LaplacianOrValue,
    constant_laplacian_array,
    seed_laplacian_array,
    to_dense,
)
from tracefx.ops.shape.slicing import slice_axis
from tracefx.ops.structural import constant_like_aval, move_axis, reshape
from tracefx.pytrees.trees import TreeDef
from tracefx.transforms.arguments import (
    flatten_values,
    fun_label,
    normalize_argnums,
    output_label,
    require_callable,
    to_arrays,
)
from tracefx.transforms.function_types import WrappedFunction
from tracefx.transforms.transform import SameArguments, TransformOf, to_argnums, validate_argnums
from tracefx.transforms.transformed_function import wrap_transformed

P = ParamSpec("P")
R = TypeVar("R")


class Derivatives(NamedTuple, Generic[R]):
    """The result of `forward_laplacian`.

    Attributes:
        value: the result of the function.
        jacobian: its derivatives, structured like the result of `jacfwd`.
        laplacian: its Laplacian.

    >>> import tracefx.numpy as fnp
    >>> result = forward_laplacian(lambda x: (x**2).sum())(fnp.arange(3.0))
    >>> result.value, result.jacobian, result.laplacian
    (Array(5., dtype=float32), Array([0., 2., 4.], dtype=float32), Array(6., dtype=float32))
    """

    value: R
    jacobian: Any
    laplacian: R


@unique
class LaplacianOutputs(Enum):
    """The outputs of each of the three functions."""

    LAPLACIAN = "laplacian"
    WITH_VALUE = "value_and_laplacian"
    ALL = "forward_laplacian"


def laplacian(fun: Callable[P, R], argnums: int | Sequence[int] = 0) -> WrappedFunction[P, R]:
    """Returns a function that computes the Laplacian of `fun`: the sum of its second derivatives by each input.

    This is the trace of the Hessian for each element of the outputs. It is computed in one forward pass without forming
    Hessians: every intermediate value is accompanied by its derivatives by the `n` inputs and by its Laplacian.

    Args:
        fun: a function of pytrees of real floating-point arrays. Its outputs may be complex.
        argnums: the index or indices of the arguments to differentiate by; the others are constants.

    Returns:
        A function with the parameters of `fun` and results like its results.

    Raises:
        TypeError: if `fun` is not callable, or differentiated arguments or outputs are not floats.
        ValueError: if `argnums` names an argument that is not passed.

    >>> import tracefx.numpy as fnp
    >>> float(laplacian(lambda x: (x**3).sum())(fnp.array([1.0, 2.0])))
    18.0
    """
    return _LaplacianTransform(LaplacianOutputs.LAPLACIAN, argnums)(fun)


def value_and_laplacian(fun: Callable[P, R], argnums: int | Sequence[int] = 0) -> WrappedFunction[P, tuple[R, R]]:
    """Returns a function that computes the value and the Laplacian of `fun` in one pass.

    Args:
        fun: as for `laplacian`.
        argnums: as for `laplacian`.

    Returns:
        A function that returns the pair of both, each like the result of `fun`.

    >>> import tracefx.numpy as fnp
    >>> y, curvature = value_and_laplacian(lambda x: (x * x).sum())(fnp.arange(3.0))
    >>> float(y), float(curvature)
    (5.0, 6.0)
    """
    return _LaplacianTransform(LaplacianOutputs.WITH_VALUE, argnums)(fun)


def forward_laplacian(fun: Callable[P, R], argnums: int | Sequence[int] = 0) -> WrappedFunction[P, Derivatives[R]]:
    """Returns a function that computes the value, the Jacobian and the Laplacian of `fun` in one pass.

    Args:
        fun: as for `laplacian`.
        argnums: as for `laplacian`.

    Returns:
        A function that returns `Derivatives`. For an argument `f32[n]` and an output `f32[m]` the Jacobian is
        `f32[m, n]`; for pytrees it is a pytree like the output with pytrees like the argument as leaves.

    >>> import tracefx.numpy as fnp
    >>> value, gradient, curvature = forward_laplacian(lambda x: (x * x).sum())(fnp.arange(3.0))
    >>> gradient.tolist(), float(curvature)
    ([0.0, 2.0, 4.0], 6.0)
    """
    return _LaplacianTransform(LaplacianOutputs.ALL, argnums)(fun)


@final
@frozen(eq=False, repr=False)
class _LaplacianTransform(TransformOf[SameArguments]):
    """The transformation behind the three functions; `outputs` selects one of them."""

    title: ClassVar[str] = "laplacian"
    outputs: LaplacianOutputs
    argnums: int | tuple[int, ...] = field(default=0, converter=to_argnums, validator=validate_argnums)

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        title, argnums = self.outputs.value, self.argnums
        require_callable(title, fun)

        @wrap_transformed(self, fun)
        def derived(*args: Any, **kwargs: Any) -> Any:
            indices = normalize_argnums(argnums, len(args), title, fun)
            differentiated = args[indices[0]] if isinstance(argnums, int) else tuple([args[i] for i in indices])
            values, in_tree = flatten_values(
                differentiated, f"{title} of {fun_label(fun)}: the differentiated arguments"
            )
            for x in values:
                if not dtypes.is_float(x.aval.dtype):
                    raise TypeError(
                        f"{title} of {fun_label(fun)}: differentiated arguments must be floats, got {x.aval}; convert "
                        "them, or name others by argnums"
                    )
            size = sum([x.aval.size for x in values])
            handler = ForwardLaplacian(size).start(current())
            inputs = in_tree.unflatten(to_arrays([handler.wrap(x) for x in _seed_inputs(values, size)]))
            full_args = list(args)
            for i, x in zip(indices, [inputs] if isinstance(argnums, int) else inputs, strict=True):
                full_args[i] = x
            with handling(handler.frame):
                outs, out_tree = flatten_values(fun(*full_args, **kwargs), output_label(fun))
            results = [_checked_output(title, fun, handler.unwrap(out), size) for out in outs]
            return self._result(results, out_tree, [x.aval for x in values], in_tree)

        return derived

    def _result(
        self, results: Sequence[LaplacianArray], out_tree: TreeDef, avals: Sequence[ShapedArray], in_tree: TreeDef
    ) -> object:
        laplacians = out_tree.unflatten(to_arrays([_laplacian_or_zeros(x) for x in results]))
        if self.outputs is LaplacianOutputs.LAPLACIAN:
            return laplacians
        values = out_tree.unflatten(to_arrays([x.value for x in results]))
        if self.outputs is LaplacianOutputs.WITH_VALUE:
            return values, laplacians
        jacobians = [in_tree.unflatten(to_arrays(_split_jacobian(to_dense(x), avals))) for x in results]
        return Derivatives(values, out_tree.unflatten(jacobians), laplacians)


def _seed_inputs(values: Sequence[Value], size: int) -> list[LaplacianOrValue]:
    seeded: list[LaplacianOrValue] = []
    start = 0
    for x in values:
        seeded.append(seed_laplacian_array(x, start, size))
        start += x.aval.size
    return seeded


def _checked_output(title: str, fun: Callable[..., object], out: LaplacianOrValue, size: int) -> LaplacianArray:
    if isinstance(out, LaplacianArray):
        return out
    if not dtypes.is_inexact(out.aval.dtype):
        raise TypeError(f"{title} of {fun_label(fun)}: outputs must be floats or complex numbers, got {out.aval}")
    return constant_laplacian_array(out, size)


def _laplacian_or_zeros(x: LaplacianArray) -> Value:
    return constant_like_aval(x.value.aval.tangent(), 0) if x.laplacian is None else x.laplacian


def _split_jacobian(x: LaplacianArray, avals: Sequence[ShapedArray]) -> list[Value]:
    """Returns the derivatives by each argument."""
    parts: list[Value] = []
    start = 0
    for a in avals:
        part = slice_axis(x.jacobian, start, start + a.size, 0)
        parts.append(reshape(move_axis(part, 0, len(x.shape)), (*x.shape, *a.shape)))
        start += a.size
    return parts
