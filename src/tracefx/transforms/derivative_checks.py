"""Tangents, cotangents, arguments and outputs of differentiation: their checks and conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tracefx.core import NDArray, ShapedArray, Value, dtypes, float0
from tracefx.core.handler import as_array
from tracefx.core.primitive import Tangent, Zero
from tracefx.errors import TangentError
from tracefx.ops.structural import convert_value, instantiate
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef
from tracefx.transforms.arguments import AnyFunction, element_name, fun_label, leaf_value

# ------------------------------------------------------------------ tangents and cotangents of users


def flatten_tangents(tree: PyTree, what: str) -> tuple[list[Tangent], TreeDef]:
    """Flattens a pytree of tangents; NumPy arrays of dtype `float0` become symbolic zeros."""
    leaves, treedef = trees.flatten(tree)
    return [leaf_tangent(leaf, i, tree, what) for i, leaf in enumerate(leaves)], treedef


def leaf_tangent(leaf: object, i: int, tree: PyTree, what: str) -> Tangent:
    """Converts leaf number `i` of a pytree of tangents; raises like `leaf_value`."""
    if isinstance(leaf, np.ndarray) and leaf.dtype == float0:
        return Zero(ShapedArray(leaf.shape, float0))
    return leaf_value(leaf, i, tree, what)


def convert_tangents(
    what: str, tangents: Sequence[Tangent], like: str, avals: Sequence[ShapedArray], tree: TreeDef
) -> list[Tangent]:
    """Returns tangents or cotangents converted to the types `avals`; raises TangentError if shapes or dtypes differ.

    `what` is the name of their pytree in messages, `like` that of the primals or outputs; `tree` is the structure.
    """
    for i, (tangent, aval) in enumerate(zip(tangents, avals, strict=True)):
        if not is_valid_tangent(tangent.aval, aval):
            leaves = tree.unflatten(range(tree.num_leaves))
            primal = element_name(like, leaves, i)
            why = f"since {primal} is an integer or boolean" if aval.dtype == float0 else f"the type of {primal}"
            raise TangentError(
                f"{element_name(what, leaves, i)} must be of type {aval}, {why}, but it is of type {tangent.aval}"
            )
    return [convert_tangent(t, a) for t, a in zip(tangents, avals, strict=True)]


def is_valid_tangent(aval: ShapedArray, expected: ShapedArray) -> bool:
    """Whether a value of the type `aval`, perhaps a Python number, can be a tangent of the type `expected`."""
    if aval.shape != expected.shape:
        return False
    if aval.dtype == expected.dtype:
        return True
    complexes = dtypes.is_complex(aval.dtype) and not dtypes.is_complex(expected.dtype)
    return aval.weak_type and dtypes.is_inexact(aval.dtype) and dtypes.is_inexact(expected.dtype) and not complexes


def convert_tangent(tangent: Tangent, aval: ShapedArray) -> Tangent:
    """Converts a tangent to the dtype and weak type of `aval`."""
    if isinstance(tangent, Zero) or aval.dtype == float0:
        return Zero(aval)
    return tangent if tangent.aval == aval else convert_value(tangent, aval.dtype, aval.weak_type)


def tangent_to_array(ct: Tangent) -> object:
    """Returns a tangent as an array: a symbolic zero becomes an array of zeros, a NumPy array for `float0`."""
    if isinstance(ct, Zero) and ct.aval.dtype == float0:
        zeros: NDArray = np.zeros(ct.aval.shape, float0)
        return zeros
    return as_array(instantiate(ct))


# ------------------------------------------------------------------ checks of arguments and outputs


def check_differentiable(
    transform: str,
    fun: AnyFunction,
    dtype: dtypes.DType,
    argument: Callable[[], str],
    holomorphic: bool,
    allow_int: bool | None,
) -> None:
    """Raises TypeError unless an argument of this dtype may be differentiated.

    `argument` returns the name of the argument; `allow_int` is None if the transformation has no such option.
    """
    if dtypes.is_float(dtype) and not holomorphic:
        return
    where = f"{transform} of {fun_label(fun)}"
    if holomorphic and not dtypes.is_complex(dtype):
        raise TypeError(
            f"{where}: with holomorphic=True arguments must be complex, got {dtypes.short_name(dtype)} for {argument()}"
        )
    if not dtypes.is_inexact(dtype) and not allow_int:
        raise TypeError(
            f"{where}: differentiated arguments must be floats, got {dtypes.short_name(dtype)} for {argument()}; "
            "convert it" + ("" if allow_int is None else ", or pass allow_int=True to get gradients of dtype float0")
        )


def require_scalar_output(fun: AnyFunction, outs: Sequence[Value], tree: TreeDef, holomorphic: bool) -> Value:
    """Returns the only output of a function; raises TypeError unless it is a scalar that `grad` can differentiate."""
    if len(outs) != 1 or tree != trees.leaf():
        got = trees.show_structure(tree, "one array")
        is_pair = len(tree.children()) == 2
        remedy = "for a pair of a scalar and auxiliary data, pass has_aux=True" if is_pair else "use vjp for others"
        raise TypeError(f"grad of {fun_label(fun)}: the function must return one scalar, got {got}; {remedy}")
    (out,) = outs
    if out.aval.shape:
        raise TypeError(
            f"grad of {fun_label(fun)}: the function must return a scalar, got {out.aval}; sum it, or use vjp or jacrev"
        )
    check_output("grad", fun, out.aval, holomorphic)
    return out


def check_output(transform: str, fun: AnyFunction, aval: ShapedArray, holomorphic: bool) -> None:
    """Raises TypeError unless an output of this type may be differentiated."""
    if dtypes.is_float(aval.dtype) and not holomorphic:
        return
    where = f"{transform} of {fun_label(fun)}"
    if holomorphic and not dtypes.is_complex(aval.dtype):
        raise TypeError(f"{where}: with holomorphic=True the output must be complex, got {aval}")
    if not holomorphic:
        way = (
            "; pass holomorphic=True if the function is holomorphic, or use vjp"
            if dtypes.is_complex(aval.dtype)
            else ""
        )
        raise TypeError(f"{where}: the output must be a float, got {aval}{way}")
