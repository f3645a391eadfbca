"""`check_grads`: checks derivatives of any order in both modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

from tracefx.core import Value, dtypes, show_avals, to_numpy
from tracefx.core.primitive import Primitive, Tangent, Zero
from tracefx.filtered_tracebacks import api_boundary
from tracefx.testing.errors import Inapplicable, LawError
from tracefx.testing.law import Law, law
from tracefx.testing.laws import (
    jvp_is_the_derivative,
    linearize_is_jvp,
    pulled_back,
    random_tangents,
    require_adjoint,
    require_derivatives,
    require_differences,
    transpose_is_adjoint,
)
from tracefx.testing.reproducer import find_reproducer
from tracefx.testing.subjects import (
    Subject,
    array_of_type,
    evaluate_jvp,
    instantiate_zeros,
    linearize_function,
    promote_to_computed_precision,
    random_like,
)
from tracefx.testing.tolerances import Ulps

DerivativeMode: TypeAlias = Literal["fwd", "rev"]
"""Forward or reverse mode."""
MODES: Final[tuple[DerivativeMode, ...]] = ("fwd", "rev")


@api_boundary
def check_grads(
    f: Callable[..., Any] | Primitive,
    *args: Any,
    order: int = 2,
    modes: Sequence[DerivativeMode] = MODES,
    ulps: Ulps | None = None,
) -> None:
    """Checks derivatives up to an order: forward mode against finite differences, reverse mode against forward mode.

    With only `"rev"` among the modes, reverse mode is checked against finite differences. Derivatives of higher order
    are derivatives of derivatives, in every sequence of the modes. Finite differences are computed in float64 if the
    function accepts it and computes in it throughout, otherwise in float32 with a wider tolerance. The step is chosen
    by an estimate of the error if the derivatives differ from those of the first step.

    Args:
        f: a function of trees of arrays, or a primitive.
        *args: the arguments.
        order: the highest order of the derivatives.
        modes: `"fwd"`, `"rev"`, or both.
        ulps: the tolerance in units in the last place; by default that of the table for the primitive, or that of
            programs of many operations for functions.

    Raises:
        Inapplicable: if no argument or no result is a float, or the function computes with floats of fewer than 32
            bits.
        LawError: if a derivative is wrong.
        ValueError: if `order` or `modes` is invalid.

    >>> import numpy as np
    >>> import tracefx.numpy as fnp
    >>> check_grads(lambda x, y: fnp.sum(x * fnp.exp(y)), np.array([1.0, 2.0]), 0.5)
    >>> check_grads(fnp.sinh, 0.5, order=4, modes=["fwd"])
    """
    if not modes or not set(modes) <= set(MODES):
        raise ValueError(f'check_grads: modes must be a sequence of "fwd" and "rev", e.g. ("fwd",), got {modes!r}')
    if order < 1:
        raise ValueError(f"check_grads: order must be at least 1, got {order}")
    subject = Subject.of(f, args, ulps)
    require_derivatives(subject)
    out_avals = [o.aval for o in subject.outs()]
    if not any(dtypes.is_inexact(a.dtype) for a in out_avals):
        raise Inapplicable(f"check_grads: {subject.name} returns no floats to differentiate: {show_avals(out_avals)}")

    def check(subject: Subject) -> None:
        _check(subject, order, modes)

    try:
        check(subject)
    except LawError as error:
        found, options = error, f"order={order}, modes={tuple(modes)!r}"
        raise found.with_reproducer(lambda: find_reproducer(check, "check_grads", subject, found, options)) from None


def _check(subject: Subject, order: int, modes: Sequence[DerivativeMode]) -> None:
    """Checks the first derivatives of a subject, and recursively those of its derivatives."""
    if "fwd" in modes:
        jvp_is_the_derivative.check(subject)
    if "rev" in modes:
        for each in (linearize_is_jvp, transpose_is_adjoint) if "fwd" in modes else (_vjp_is_the_derivative,):
            each.check(subject)
    if order > 1:
        for mode in modes:
            _check(_forward_derivative(subject) if mode == "fwd" else _reverse_derivative(subject), order - 1, modes)


@law("<w, differences along v> = <vjp of w, v> for all directions v and w")
def _vjp_is_the_derivative(self: Law, subject: Subject) -> None:
    """Checks cotangents against finite differences."""
    require_derivatives(subject)
    wide = promote_to_computed_precision(subject)
    directions, at = random_tangents(wide, wide.differentiable_args, "directions"), wide.outs()
    linear = linearize_function(wide.run, wide.args, [i in wide.differentiable_args for i in range(len(wide.args))])
    ws: list[Tangent] = [  # including outputs whose derivative is declared to be zero
        random_like(o.aval, wide.rng(f"cotangent {i}")) if dtypes.is_inexact(o.aval.dtype) else Zero(o.aval.tangent())
        for i, o in enumerate(at)
    ]
    pulled = linear.pull([w if moved else Zero(w.aval) for w, moved in zip(ws, linear.active_outputs, strict=True)])

    def require(slopes: list[Value], ulps: Ulps) -> None:
        remaining = iter(slopes)
        pushed: list[Tangent] = [
            next(remaining) if dtypes.is_inexact(o.aval.dtype) else Zero(o.aval.tangent()) for o in at
        ]
        require_adjoint(self, wide, directions, ws, pushed, pulled, ulps)

    require_differences(wide, directions, at, require)


# ------------------------------------------------------------------ derivatives as functions


def _forward_derivative(subject: Subject) -> Subject:
    """Returns the function from the arguments to the tangents of the outputs along a fixed direction."""
    directions = [
        to_numpy(random_like(a.aval, subject.rng(f"fixed {i}"))) if i in subject.differentiable_args else None
        for i, a in enumerate(subject.args)
    ]

    def run(*xs: Value) -> list[Value]:
        tangents: list[Tangent] = [
            Zero(x.aval.tangent()) if d is None else array_of_type(d, x.aval)
            for x, d in zip(xs, directions, strict=True)
        ]
        return [
            instantiate_zeros(t) for t in evaluate_jvp(subject.run, xs, tangents)[1] if t.aval.dtype != dtypes.float0
        ]

    return Subject(f"the derivative of {subject.name}", run, subject.args, subject.ulps)


def _reverse_derivative(subject: Subject) -> Subject:
    """Returns the function from the arguments to their cotangents, for fixed cotangents of the outputs."""
    is_differentiated = [i in subject.differentiable_args for i in range(len(subject.args))]

    def run(*xs: Value) -> list[Value]:
        linear = linearize_function(subject.run, xs, is_differentiated)
        return pulled_back(subject, linear, "fixed cotangents")

    return Subject(f"the gradient of {subject.name}", run, subject.args, subject.ulps)
