"""`composite`: functions under names, in the place of which a compiler may put operations of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, SupportsIndex

import numpy as np
from typing_extensions import ParamSpec

from tracefx.control.composite import ArrayAttribute, Attributes, AttributeValue, Composite
from tracefx.core.array import Array
from tracefx.core.handler import Tracer, bind
from tracefx.core.values import ConcreteArray
from tracefx.errors import EscapedTracerError
from tracefx.ops.static_integers import static_int
from tracefx.pytrees import trees
from tracefx.transforms.arguments import flatten_values, fun_name, require_callable, to_arrays
from tracefx.transforms.body_tracing import trace_body
from tracefx.transforms.tracing import along

P = ParamSpec("P")


def composite(decomposition: Callable[P, Any], name: str, version: SupportsIndex = 0) -> Callable[P, Any]:
    """`decomposition`, as a function that compilers may know as `name`, of a version.

    Its positional arguments are trees of arrays. Its keyword arguments are attributes that compilers can read, known
    when the program is traced: truth values, numbers, strings, NumPy arrays, tuples of these, and None for none. A
    compiler that does not know the name compiles `decomposition`; so derivatives and batches are the decomposition's.

    Raises TypeError for an attribute that is traced or anything else.

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
        where = f"composite {name} of {fun_name(decomposition)}"
        attributes: Attributes = tuple([(k, _attribute(where, k, v)) for k, v in kwargs.items() if v is not None])
        operands, tree = flatten_values(args, f"the arguments of {where}")
        given = trees.structure((tree.unflatten(range(tree.num_leaves)), {}))
        f = functools.partial(decomposition, **kwargs) if kwargs else decomposition
        traced = trace_body(where, f, given, [x.aval for x in operands], along=along(operands))
        for c in traced.consts:
            if isinstance(c, Tracer):
                raise EscapedTracerError(
                    f"{where} closes over {c}: what is traced must be one of its positional arguments, since a "
                    "compiler that knows the name sees nothing else"
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
    raise TypeError(f"{where}: the attribute {key} must be a number, a string or an array known at once, but it {what}")
