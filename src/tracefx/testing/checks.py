"""`check_primitive`, `check_function`, `check_linear` and `check_batchable`: many laws at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import Value, as_value, to_numpy
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import call_under, current
from tracefx.core.primitive import MappedAxis, Primitive, UndefinedPrimal, Zero
from tracefx.errors import MissingRuleError
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.transpose import backward_pass
from tracefx.ops.structural import batch_first
from tracefx.testing.errors import Inapplicable
from tracefx.testing.law import Law, law, require_close
from tracefx.testing.laws import LAWS, batch_axis_first, require_adjoint, vmap_commutes_with_jvp, vmap_is_a_loop
from tracefx.testing.subjects import (
    SampleBatch,
    Subject,
    ValueFunction,
    array_of_type,
    as_arrays,
    evaluate_batch,
    promote_to_64_bits,
    random_like,
    staged,
)
from tracefx.testing.tolerances import DERIVATIVE, PROGRAM, Ulps
from tracefx.transforms.jit import jit


@final
@frozen
class LawReport:
    """The result of a check: the names of the laws that hold, and why the others were skipped.

    Attributes:
        passed: the names of the laws that hold.
        skipped: the reason for each law that was not checked, by name.

    >>> import tracefx.numpy as fnp
    >>> from tracefx.testing import check_function
    >>> "vmap_is_a_loop" in check_function(fnp.square, fnp.arange(3.0)).passed
    True
    """

    passed: tuple[str, ...]
    skipped: Mapping[str, str]

    @override
    def __str__(self) -> str:
        lines = [f"{name}: holds" for name in self.passed]
        return "\n".join([*lines, *[f"{name}: skipped, since {why}" for name, why in self.skipped.items()]])


def _check_all(laws: Sequence[Law], subjects: Sequence[Subject]) -> LawReport:
    """Checks laws for all subjects; a law is skipped if it applies to none of them."""
    passed: list[str] = []
    skipped: dict[str, str] = {}
    for each in laws:
        reasons: list[str] = []
        for subject in subjects:
            try:
                each.check(subject)
            except (MissingRuleError, Inapplicable) as error:
                reasons.append(str(error))
        if len(reasons) < len(subjects):
            passed.append(each.name)
        else:
            skipped[each.name] = reasons[0]
    return LawReport(tuple(passed), skipped)


@api_boundary
def check_primitive(
    prim: Primitive, *samples: Sequence[Any], laws: Sequence[Law] = LAWS, ulps: Ulps | None = None
) -> LawReport:
    """Checks every law that the rules of a primitive allow, at samples of its operands.

    Args:
        prim: the primitive, an instance.
        *samples: sequences of operands, away from points without derivatives.
        laws: the laws to check; all by default.
        ulps: the tolerance for values computed in different ways; by default that of the table of tolerances, in which
            primitives that are not listed must agree exactly.

    Returns:
        A report of the laws that hold, and of those skipped because a rule is missing or no operand is differentiable.

    Raises:
        LawError: for the first law that is violated.
        TypeError: if `prim` is not a primitive, or a sample is not a sequence of operands.
        ValueError: if there are no samples.

    >>> import numpy as np
    >>> from tracefx.ops.elementwise.powers import IntegerPow
    >>> report = check_primitive(IntegerPow(3), [np.array([0.5, -1.0, 2.0], np.float32)])
    >>> len(report.passed), dict(report.skipped)
    (13, {})
    """
    if not isinstance(prim, Primitive):
        raise TypeError(f"check_primitive takes a primitive, an instance such as MultiplyAdd(), got {prim!r}")
    if not samples:
        raise ValueError(
            f"check_primitive needs samples of the operands of {prim.name}: a sequence of them, or several"
        )
    for sample in samples:
        if not isinstance(sample, list | tuple):
            raise TypeError(f"check_primitive: a sample is a list of the operands, e.g. [x], got {sample!r}")
    return _check_all(laws, [Subject.of(prim, sample, ulps) for sample in samples])


@api_boundary
def check_function(
    f: Callable[..., Any], *args: Any, laws: Sequence[Law] = LAWS, ulps: Ulps | None = None
) -> LawReport:
    """Checks every law for a function of trees of arrays, at given arguments.

    Args:
        f: the function; its results are trees of arrays.
        *args: the arguments.
        laws: the laws to check; all by default.
        ulps: the tolerance; by default that for programs of many operations.

    Returns:
        A report of the laws that hold, and of those skipped.

    Raises:
        LawError: for the first law that is violated.

    >>> import tracefx.numpy as fnp
    >>> report = check_function(lambda d: fnp.tanh(d["w"] @ d["x"]), {"w": fnp.ones((2, 3)), "x": fnp.arange(3.0)})
    >>> report.skipped
    {}
    """
    return _check_all(laws, [Subject.of(f, args, ulps)])


# ------------------------------------------------------------------ linear functions


@law(
    "f(x + 3 y) = f(x) + 3 f(y), and the transpose of f is its adjoint",
    call="check_linear",
)
def _is_linear(self: Law, subject: Subject) -> None:
    """Checks linearity at random arguments, and the transpose against the adjoint."""
    if len(subject.differentiable_args) < len(subject.args):
        raise Inapplicable("every argument of a linear function must be an array of floats or complex numbers")
    subject = promote_to_64_bits(subject)
    rng = subject.rng("linear")
    xs, ys = [[random_like(a.aval, rng) for a in subject.args] for _ in range(2)]
    sums = [array_of_type(to_numpy(x) + 3 * to_numpy(y), x.aval) for x, y in zip(xs, ys, strict=True)]
    f_x, f_y = subject.run(*xs), subject.run(*ys)
    want = [array_of_type(to_numpy(a) + 3 * to_numpy(b), a.aval) for a, b in zip(f_x, f_y, strict=True)]
    tolerance = DERIVATIVE if subject.ulps == PROGRAM else DERIVATIVE.widen_to(subject.ulps)
    require_close(self, subject.at(sums), subject.run(*sums), want, ("f(x + 3 y)", "f(x) + 3 f(y)"), tolerance)
    jaxpr, consts = staged(subject.run, [x.aval for x in xs])
    ws = [random_like(o.aval, rng) for o in f_x]
    try:
        cts = backward_pass(jaxpr, consts, [UndefinedPrimal(x.aval) for x in xs], ws)
    except TypeError as error:  # names a primitive that is not linear
        raise self.violation(subject, f"  {error}") from error
    pulled = [Zero(x.aval) if ct is None else ct for x, ct in zip(xs, cts, strict=True)]
    require_adjoint(self, subject.at(xs), xs, ws, eval_jaxpr(jaxpr, consts, xs), pulled, tolerance)


@api_boundary
def check_linear(f: Callable[..., Any] | Primitive, *args: Any, ulps: Ulps | None = None) -> None:
    """Checks that a function is linear in all arguments jointly, and that its transpose is its adjoint.

    Args:
        f: a function of arrays, or a primitive.
        *args: arrays of floats or complex numbers; only their shapes and dtypes matter.
        ulps: the tolerance in units in the last place; by default that of the table for the primitive, or that of
            programs of many operations for functions.

    Raises:
        Inapplicable: if an argument is not an array of floats or complex numbers.
        LawError: if the function is not linear, or its transpose is wrong.

    >>> import numpy as np
    >>> check_linear(lambda x, y: x[::-1] - 2.0 * y, np.ones(3), np.ones(3))
    """
    _is_linear(f, *args, ulps=ulps)


# ------------------------------------------------------------------ batches


def _stacked_outputs(run: ValueFunction, batch: SampleBatch, args: Sequence[Value]) -> list[Value]:
    """Returns the outputs for a batch along axis 0."""
    axes = (0,) * len(args)
    return batch_axis_first(evaluate_batch(run, args, axes, batch.size), batch.size)


@law("a compiled batch gives the same results as an eager one", call="check_batchable")
def _compiled_batches(self: Law, subject: Subject) -> None:
    """Checks that a compiled batch gives the eager results."""
    batch = SampleBatch.like(subject.args)
    args = batch.stacked((0,) * len(subject.args))
    compiled = jit(lambda *xs: as_arrays(_batched_outputs(subject.run, xs, batch.size)))
    got = [as_value(o) for o in compiled(*as_arrays(args))]
    names = ("jit of vmap", "vmap")
    require_close(self, subject.at(args), got, _stacked_outputs(subject.run, batch, args), names)


def _batched_outputs(run: ValueFunction, args: Sequence[Value], size: int) -> list[Value]:
    """Returns the outputs for a batch along axis 0, under the current handler."""
    handler = Batch(current(), MappedAxis(size))
    outs = call_under(handler, run, *[handler.wrap(a, 0) for a in args])
    return [batch_first(*handler.unwrap(o), handler.axis) for o in outs]


@law("nested vmap gives the same results as nested loops", call="check_batchable")
def _batches_of_batches(self: Law, subject: Subject) -> None:
    """Checks that nested `vmap` gives the results of nested loops."""
    outer = SampleBatch.like(subject.args)
    inner = [SampleBatch.like(args) for args in outer.elements]
    axes = (0,) * len(subject.args)
    whole = [
        array_of_type(np.stack([to_numpy(x) for x in column]), column[0].aval.with_axis(outer.size, 0))
        for column in zip(*[each.stacked(axes) for each in inner], strict=True)
    ]
    got = batch_axis_first(
        evaluate_batch(lambda *xs: _batched_outputs(subject.run, xs, inner[0].size), whole, axes, outer.size),
        outer.size,
    )
    rows = [[subject.run(*args) for args in each.elements] for each in inner]
    want = [
        array_of_type(
            np.stack([np.stack([to_numpy(outs[i]) for outs in row]) for row in rows]),
            out.aval.with_axis(inner[0].size, 0).with_axis(outer.size, 0),
        )
        for i, out in enumerate(rows[0][0])
    ]
    require_close(self, subject.at(whole), got, want, ("vmap of vmap", "loops"))


@law("batches of size 1 and 0 give the shapes and dtypes of any batch", call="check_batchable")
def _small_batches(self: Law, subject: Subject) -> None:
    """Checks batches of sizes 1 and 0."""
    for size in (1, 0):
        args, want = [
            [array_of_type(np.broadcast_to(to_numpy(x), (size, *x.aval.shape)), x.aval.with_axis(size, 0)) for x in xs]
            for xs in (subject.args, subject.outs())
        ]
        got = batch_axis_first(evaluate_batch(subject.run, args, (0,) * len(args), size), size)
        require_close(self, subject.at(args), got, want, (f"a batch of {size}", "by itself"))


BATCH_LAWS: Final = (vmap_is_a_loop, _small_batches, _compiled_batches, _batches_of_batches, vmap_commutes_with_jvp)
"""The laws that `check_batchable` checks."""


@api_boundary
def check_batchable(f: Callable[..., Any] | Primitive, *args: Any, ulps: Ulps | None = None) -> None:
    """Checks that a function can be batched.

    It is mapped along every axis of its arguments, compiled, under another `vmap`, over batches of sizes 1 and 0, and
    combined with `jvp`.

    Args:
        f: a function of trees of arrays, or a primitive.
        *args: the arguments for one element of a batch.
        ulps: the tolerance in units in the last place; by default that of the table for the primitive, or that of
            programs of many operations for functions.

    Raises:
        LawError: if a batch gives other results than a loop.
        MissingRuleError: if a primitive has no batch rule.
        ValueError: if there are no arguments.

    >>> import numpy as np
    >>> import tracefx.numpy as fnp
    >>> check_batchable(lambda x, y: fnp.dot(x, y) + y[0], np.ones((2, 3)), np.arange(3.0))
    """
    subject = Subject.of(f, args, ulps)
    if not subject.args:
        raise ValueError("check_batchable needs arguments: a function without arguments can't be mapped")
    for each in BATCH_LAWS:
        if each is not vmap_commutes_with_jvp or subject.differentiable_args:
            each.check(subject)
