"""`composite`: named functions that a compiler may implement by its own operations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, SupportsIndex

import numpy as np
from typing_extensions import ParamSpec

from tracefx.control.composite import ArrayAttribute, Attributes, AttributeValue, Composite
from tracefx.core import Array, ConcreteArray
from tracefx.core.handler import Tracer, bind
from tracefx.errors import EscapedTracerError
from tracefx.ops.static_integers import static_int
from tracefx.pytrees import trees
from tracefx.transforms.arguments import flatten_values, fun_label, require_callable, to_arrays
from tracefx.transforms.body_tracing import trace_body

P = ParamSpec("P")


def composite(decomposition: Callable[P, Any], name: str, version: SupportsIndex = 0) -> Callable[P, Any]:
    """Returns `decomposition` as a named operation that a compiler may implement itself.

    A compiler that does not know the name compiles `decomposition`. Derivatives and batched versions are those of
    `decomposition`.

    Args:
        decomposition: A function whose positional arguments are pytrees of arrays. Its keyword arguments are
            attributes, which compilers can read: booleans, numbers, strings, NumPy arrays and tuples of these; None
            means no attribute.
        name: The name of the operation, for example `"my_library.scaled"`.
        version: Its version, an integer. The default is 0.

    Returns:
        A function with the signature of `decomposition`.

    Raises:
        TypeError: If `decomposition` is not callable or `name` is not a string. When the result is called: if an
            attribute is traced or of another type.
        EscapedTracerError: When the result is called, if `decomposition` closes over a tracer.

    >>> import numpy as np
    >>> from tracefx import lax
    >>> scaled = composite(lambda x, *, by: x * by, "my.scaled")
    >>> scaled(np.arange(3.0), by=2).tolist()
    [0.0, 2.0, 4.0]
    """
    require_callable("composite", decomposition)
    if not isinstance(name, str):
        raise TypeError(f"composite: name must be a string, got {name!r}")
    number = static_int("composite", version, "version")

    @functools.wraps(decomposition)
    def called(*args: P.args, **kwargs: P.kwargs) -> Any:
        where = f"composite {name} of {fun_label(decomposition)}"
        attributes: Attributes = tuple([(k, _attribute(where, k, v)) for k, v in kwargs.items() if v is not None])
        operands, tree = flatten_values(args, f"the arguments of {where}")
        given = trees.structure((tree.unflatten(range(tree.num_leaves)), {}))
        f = functools.partial(decomposition, **kwargs) if kwargs else decomposition
        traced = trace_body(where, f, given, [x.aval for x in operands])
        for c in traced.consts:
            if isinstance(c, Tracer):
                raise EscapedTracerError(
                    f"{where} closes over {c}: pass traced values as positional arguments, since a compiler that "
                    "implements the operation gets nothing else"
                )
        prim = Composite(name, attributes, number, traced.jaxpr)
        return traced.out_tree.unflatten(to_arrays(bind(prim, *traced.consts, *operands)))

    return called


def _attribute(where: str, key: str, value: object) -> AttributeValue | tuple[AttributeValue, ...]:
    if isinstance(value, tuple | list):
        return tuple([_single(where, key, each) for each in value])
    return _single(where, key, value)


def _single(where: str, key: str, value: object) -> AttributeValue:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, ConcreteArray):
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic):
        return ArrayAttribute.of(np.asarray(value))
    what = "is traced: make it a positional argument" if isinstance(value, Array) else f"is {value!r}"
    raise TypeError(f"{where}: the attribute {key} must be a concrete number, string or array, but it {what}")
