"""Derivatives by sparse arrays, that is by their data: `grad`, `value_and_grad`, `jacfwd` and `jacrev`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard, final

from tracefx.filtered_tracebacks import api_boundary
from tracefx.pytrees import trees
from tracefx.sparse.base import SparseArray
from tracefx.sparse.bcoo import BCOO
from tracefx.sparse.bcsr import BCSR
from tracefx.transforms import gradients, jacobians
from tracefx.transforms.arguments import require_callable


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: bool
) -> Callable[..., tuple[Any, Any]]:
    """Returns a function that computes the value and the gradient of `fun` by arguments that may be sparse.

    The gradient by a sparse array is a sparse array with the same index vectors: derivatives by elements that are not
    specified are not computed.

    Args:
        fun: A function with a scalar result. Its arguments are pytrees of arrays and sparse arrays.
        argnums: The index or indices of the arguments to differentiate by. 0 by default.
        has_aux: Whether `fun` returns a pair of the scalar and other values. False by default.
        **kwargs: Further options of `tracefx.value_and_grad`.

    Returns:
        A function with the parameters of `fun` that returns the pair.

    >>> import tracefx.numpy as fnp
    >>> from tracefx import sparse
    >>> x = sparse.BCOO.fromdense(fnp.array([0.0, 2.0, 3.0]))
    >>> value, gradient = value_and_grad(lambda x, y: (x @ y) ** 2)(x, fnp.ones(3))
    >>> float(value), gradient, gradient.data.tolist()
    (25.0, BCOO(float32[3], nse=2), [10.0, 10.0])
    """
    require_callable("sparse.value_and_grad", fun)
    transform: Callable[..., Callable[..., Any]] = gradients.value_and_grad

    @api_boundary
    @functools.wraps(fun)
    def value_and_gradient(*args: Any, **options: Any) -> tuple[Any, Any]:
        arguments = _Arguments(args)
        value, grads = transform(arguments.apply(fun), argnums, has_aux=has_aux, **kwargs)(*arguments.data, **options)
        return value, arguments.restore(argnums, grads)

    return value_and_gradient


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: bool
) -> Callable[..., Any]:
    """Returns a function that computes the gradient of `fun` by arguments that may be sparse.

    Args:
        fun: As for `value_and_grad`.
        argnums: As for `value_and_grad`. 0 by default.
        has_aux: As for `value_and_grad`: the result is then a pair of the gradient and the other values. False by
            default.
        **kwargs: Further options of `tracefx.grad`.

    Returns:
        A function with the parameters of `fun`.

    >>> import tracefx.numpy as fnp
    >>> from tracefx import sparse
    >>> x = sparse.BCOO.fromdense(fnp.array([0.0, 2.0, 3.0]))
    >>> grad(lambda x, y: x @ y)(x, fnp.arange(3.0)).todense().tolist()
    [0.0, 1.0, 2.0]
    """
    compute = value_and_grad(fun, argnums, has_aux, **kwargs)

    @functools.wraps(fun)
    def gradient(*args: Any, **kw: Any) -> Any:
        value, grads = compute(*args, **kw)
        return (grads, value[1]) if has_aux else grads

    return gradient


def jacfwd(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: bool
) -> Callable[..., Any]:
    """Returns a function that computes the Jacobian of `fun` by arguments that may be sparse, in forward mode.

    The Jacobian by a sparse array is one with the axes of the output as additional batch axes.

    Args:
        fun: A function of pytrees of arrays and sparse arrays, with dense results.
        argnums: The index or indices of the arguments to differentiate by. 0 by default.
        has_aux: Whether `fun` returns a pair of the output and other values. False by default.
        **kwargs: Further options of `tracefx.jacfwd`.

    Returns:
        A function with the parameters of `fun`.

    >>> import tracefx.numpy as fnp
    >>> from tracefx import sparse
    >>> x = sparse.BCOO.fromdense(fnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> jacfwd(lambda x, y: x @ y)(x, fnp.ones(2))
    BCOO(float32[2, 2, 2], nse=2, n_batch=1)
    """
    return _jacobian(jacobians.jacfwd, fun, argnums, has_aux, kwargs)


def jacrev(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: bool
) -> Callable[..., Any]:
    """Returns a function that computes the Jacobian of `fun` by arguments that may be sparse, in reverse mode.

    Args:
        fun: As for `jacfwd`.
        argnums: As for `jacfwd`. 0 by default.
        has_aux: As for `jacfwd`. False by default.
        **kwargs: Further options of `tracefx.jacrev`.

    Returns:
        A function with the parameters of `fun`.

    >>> import tracefx.numpy as fnp
    >>> from tracefx import sparse
    >>> x = sparse.BCOO.fromdense(fnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> jacrev(lambda x, y: x @ y)(x, fnp.ones(2)).todense().tolist()
    [[[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]]
    """
    return _jacobian(jacobians.jacrev, fun, argnums, has_aux, kwargs)


jacobian = jacrev


def _jacobian(
    transform: Callable[..., Callable[..., Any]],
    fun: Callable[..., Any],
    argnums: int | Sequence[int],
    has_aux: bool,
    options: dict[str, bool],
) -> Callable[..., Any]:
    require_callable("sparse.jacfwd or jacrev", fun)

    @api_boundary
    @functools.wraps(fun)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        arguments = _Arguments(args)
        structures = []

        def by_data(*data: Any, **kw: Any) -> Any:
            out = arguments.apply(fun)(*data, **kw)
            structures.append(trees.structure(out[0] if has_aux else out))
            return out

        out = transform(by_data, argnums, has_aux=has_aux, **options)(*arguments.data, **kwargs)
        derivatives = out[0] if has_aux else out
        parts = trees.flatten_up_to(structures[0], derivatives)
        restored = trees.unflatten(structures[0], [arguments.restore(argnums, part) for part in parts])
        return (restored, out[1]) if has_aux else restored

    return derivative


def _is_sparse(x: object) -> TypeGuard[BCOO | BCSR]:
    return isinstance(x, SparseArray)


@final
class _Arguments:
    """The arguments of a function, in which the data of sparse arrays can be replaced."""

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.args = args
        self.data: tuple[Any, ...] = trees.map(lambda x: x.data if _is_sparse(x) else x, args, is_leaf=_is_sparse)

    def apply(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `fun` as a function of the data."""

        @functools.wraps(fun)
        def by_data(*data: Any, **kwargs: Any) -> Any:
            return fun(*_replace_data(self.args, data), **kwargs)

        return by_data

    def restore(self, argnums: int | Sequence[int], derivatives: Any) -> Any:
        """Returns derivatives by the data as pytrees like the arguments, with sparse arrays."""
        if isinstance(argnums, int):
            return _replace_data(self.args[argnums], derivatives)
        return tuple([_replace_data(self.args[i], each) for i, each in zip(argnums, derivatives, strict=True)])


def _replace_data(args: Any, data: Any) -> Any:
    """Returns pytrees with other leaves, which are the data of sparse arrays. The data may have more leading axes."""
    return trees.map(lambda x, new: _with_data(x, new) if _is_sparse(x) else new, args, data, is_leaf=_is_sparse)


def _with_data(mat: BCOO | BCSR, data: Any) -> BCOO | BCSR:
    more = data.ndim - mat.data.ndim
    if not more:
        return mat.with_data(data)
    arrays, metadata = mat.tree_flatten()
    rest = [x.reshape(*[1] * more, *x.shape) for x in arrays[1:]]
    out: BCOO | BCSR = type(mat).tree_unflatten(metadata, (data, *rest))
    return out
