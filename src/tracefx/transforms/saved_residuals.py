"""`saved_residuals`: the list of values that reverse mode stores for the backward pass of a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, final

from attrs import frozen
from typing_extensions import override

from tracefx.control.checkpoint import CheckpointName
from tracefx.core import ShapedArray, dtypes
from tracefx.core.jaxpr import Atom, Eqn, HasSubjaxprs, Jaxpr
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.jaxpr_transforms import jvp_jaxpr, unzip_jaxpr
from tracefx.source_location import at_location
from tracefx.transforms.arguments import argument_names, flatten_values, fun_label, fun_name, require_callable
from tracefx.transforms.tracing import trace


@final
@frozen
class Residual:
    """The type of a stored value, and a description of its origin."""

    aval: ShapedArray
    origin: str

    @override
    def __str__(self) -> str:
        return f"{self.aval} {self.origin}"


@api_boundary
def saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Residual]:
    """Returns the values that reverse mode stores for the backward pass of `f` at these arguments.

    Args:
        f: The function. It takes and returns pytrees of arrays.
        *args: Its positional arguments.
        **kwargs: Its keyword arguments.

    Returns:
        A list of `Residual`, each with the type `aval` and a description `origin`.

    Raises:
        TypeError: If `f` is not callable or an argument is not a pytree of arrays.

    >>> import tracefx as fx
    >>> [str(r) for r in saved_residuals(fx.checkpoint(lambda x: fx.numpy.sin(fx.numpy.sin(x))), 1.0)]
    ['f32[] from the argument `x` of <lambda>']
    """
    require_callable("saved_residuals", f)
    values, in_tree = flatten_values((args, kwargs), f"saved_residuals of {fun_label(f)}: arguments")
    names = argument_names(f, fun_name(f), args, kwargs, range(len(args)))
    traced = trace(f, in_tree, tuple([v.aval for v in values]), names, fun_name(f))
    active = tuple([dtypes.is_inexact(a.dtype) for a in traced.jaxpr.in_avals])
    derived = jvp_jaxpr(traced.jaxpr, active)
    primal_count = len(derived.consts) + len(active)
    split = unzip_jaxpr(derived.jaxpr, (False,) * primal_count + (True,) * sum(active))
    new_residuals = iter(split.known.outs[split.out_unknown.count(False) :])
    residuals = []
    for source in split.forwarded:
        if source is None:
            atom = next(new_residuals)
            residuals.append(Residual(atom.aval, _describe_producer(split.known, atom)))
        else:
            i = source - primal_count + len(values)
            origin = f"from {names[i]}" if i >= 0 else "from outside the function"
            residuals.append(Residual(split.known.invars[len(split.consts) + source].aval, origin))
    return residuals


@api_boundary
def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Prints the result of `saved_residuals`, one line per value.

    Args:
        f: The function. It takes and returns pytrees of arrays.
        *args: Its positional arguments.
        **kwargs: Its keyword arguments.

    Raises:
        TypeError: As `saved_residuals`.

    >>> import tracefx as fx
    >>> print_saved_residuals(lambda x, y: x * y, 2.0, 3.0)
    f32[] from the argument `y` of <lambda>
    f32[] from the argument `x` of <lambda>
    """
    for residual in saved_residuals(f, *args, **kwargs):
        print(residual)  # noqa: T201


def _describe_producer(jaxpr: Jaxpr, atom: Atom) -> str:
    """Describes the equation that computes a value, in the innermost body that has it as an output."""
    for eqn, i in _producers(jaxpr, atom):
        bodies = eqn.prim.jaxprs() if isinstance(eqn.prim, HasSubjaxprs) else ()
        if len(bodies) == 1 and len(bodies[0].outs) == len(eqn.outs):
            inside = list(_producers(bodies[0], bodies[0].outs[i]))
            if inside:
                return _describe_producer(bodies[0], bodies[0].outs[i])
        kind = f"named {eqn.prim.label!r}" if isinstance(eqn.prim, CheckpointName) else f"output of {eqn.prim.name}"
        return kind + at_location(eqn.source)
    return "from outside the function"


def _producers(jaxpr: Jaxpr, atom: Atom) -> Iterator[tuple[Eqn, int]]:
    """Yields the equations that have `atom` as an output, with the index of the output."""
    for eqn in jaxpr.eqns:
        for i, v in enumerate(eqn.outs):
            if v is atom:
                yield eqn, i
