"""Many laws at once, for a primitive or a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import current
from tracefx.core.primitive import MappedAxis, Primitive, UndefinedPrimal, Zero
from tracefx.core.values import Value, as_value, to_numpy
from tracefx.errors import MissingRuleError
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
    run_with_handler,
    staged,
)
from tracefx.testing.tolerances import DERIVATIVE, PROGRAM, Ulps
from tracefx.transforms.jit import jit


@final
@frozen
class LawReport:
    """Which laws hold, by their names, and why the others were not checked."""

    passed: tuple[str, ...]
    skipped: Mapping[str, str]

    @override
    def __str__(self) -> str:
        lines = [f"{name}: holds" for name in self.passed]
        return "\n".join([*lines, *[f"{name}: left out, since {why}" for name, why in self.skipped.items()]])


def _check_all(laws: Sequence[Law], subjects: Sequence[Subject]) -> LawReport:
    held: list[str] = []
    left_out: dict[str, str] = {}
    for each in laws:
        reasons: list[str] = []
        for subject in subjects:
            try:
                each.check(subject)
            except (MissingRuleError, Inapplicable) as error:
                reasons.append(str(error))
        if len(reasons) < len(subjects):
            held.append(each.name)
        else:
            left_out[each.name] = reasons[0]
    return LawReport(tuple(held), left_out)


def check_primitive(
    prim: Primitive, *samples: Sequence[Any], laws: Sequence[Law] = LAWS, ulps: Ulps | None = None
) -> LawReport:
    """Check every law that the primitive's rules allow, at each sample, a sequence of operands.

    The report says which laws hold, and which were left out because a rule is missing or no operand has derivatives.
    Values may be `ulps` apart where they are computed in different ways: by default as far as the table of tolerances
    says for a primitive of this name, which for one that it doesn't know is not at all.

    Raises `LawError` for the first law that is broken, `ValueError` without samples.

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
    return _check_all(laws, [Subject.of(prim, sample, ulps) for sample in samples])


def check_function(
    f: Callable[..., Any], *args: Any, laws: Sequence[Law] = LAWS, ulps: Ulps | None = None
) -> LawReport:
    """Check every law for a function of trees of arrays to trees of arrays, at arguments.

    Raises `LawError` for the first law that is broken.

    >>> import tracefx.numpy as fnp
    >>> report = check_function(lambda d: fnp.tanh(d["w"] @ d["x"]), {"w": fnp.ones((2, 3)), "x": fnp.arange(3.0)})
    >>> report.skipped
    {}
    """
    return _check_all(laws, [Subject.of(f, args, ulps)])


# ------------------------------------------------------------------ linear functions


@law(
    "a linear function of sums and multiples gives sums and multiples, and its transpose is its adjoint",
    call="check_linear",
)
def _is_linear(self: Law, subject: Subject) -> None:
    if len(subject.differentiable_args) < len(subject.args):
        raise Inapplicable("every argument of a linear function has to be an array of floats or complex numbers")
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
    except TypeError as error:  # as it says, an operation that is not linear
        raise self.violation(subject, f"  {error}") from error
    pulled = [Zero(x.aval) if ct is None else ct for x, ct in zip(xs, cts, strict=True)]
    require_adjoint(self, subject.at(xs), xs, ws, eval_jaxpr(jaxpr, consts, xs), pulled, tolerance)


def check_linear(f: Callable[..., Any] | Primitive, *args: Any, ulps: Ulps | None = None) -> None:
    """Check that a function is linear in all of its arguments together, and that transposing it gives its adjoint.

    Only the types of the arguments count. Raises `LawError` if it is not so.

    >>> import numpy as np
    >>> check_linear(lambda x, y: x[::-1] - 2.0 * y, np.ones(3), np.ones(3))
    """
    _is_linear(f, *args, ulps=ulps)


# ------------------------------------------------------------------ batches


def _stacked_outputs(run: ValueFunction, batch: SampleBatch, args: Sequence[Value]) -> list[Value]:
    axes = (0,) * len(args)
    return batch_axis_first(evaluate_batch(run, args, axes, batch.size), batch.size)


@law("compiled, a batch gives what it gives evaluated", call="check_batchable")
def _compiled_batches(self: Law, subject: Subject) -> None:
    batch = SampleBatch.like(subject.args)
    args = batch.stacked((0,) * len(subject.args))
    compiled = jit(lambda *xs: as_arrays(_batched_outputs(subject.run, xs, batch.size)))
    got = [as_value(o) for o in compiled(*as_arrays(args))]
    names = ("jit of vmap", "vmap")
    require_close(self, subject.at(args), got, _stacked_outputs(subject.run, batch, args), names)


def _batched_outputs(run: ValueFunction, args: Sequence[Value], size: int) -> list[Value]:
    """The outputs for a batch along first axes, under whatever handler is current."""
    handler = Batch(current(), MappedAxis(size))
    outs = run_with_handler(handler, run, [handler.wrap(a, 0) for a in args])
    return [batch_first(*handler.unwrap(o), handler.axis) for o in outs]


@law("batches of batches are loops in loops", call="check_batchable")
def _batches_of_batches(self: Law, subject: Subject) -> None:
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


@law("a batch of one, or of none, has the types of any batch", call="check_batchable")
def _small_batches(self: Law, subject: Subject) -> None:
    outs = subject.outs()
    for size in (1, 0):
        args = [
            array_of_type(
                np.stack([to_numpy(a)] * size) if size else np.zeros((0, *a.aval.shape)), a.aval.with_axis(size, 0)
            )
            for a in subject.args
        ]
        got = batch_axis_first(evaluate_batch(subject.run, args, (0,) * len(args), size), size)
        want = [
            array_of_type(
                np.stack([to_numpy(o)] * size) if size else np.zeros((0, *o.aval.shape)), o.aval.with_axis(size, 0)
            )
            for o in outs
        ]
        require_close(self, subject.at(args), got, want, (f"a batch of {size}", "by itself"))


BATCH_LAWS: Final = (vmap_is_a_loop, _small_batches, _compiled_batches, _batches_of_batches, vmap_commutes_with_jvp)


def check_batchable(f: Callable[..., Any] | Primitive, *args: Any, ulps: Ulps | None = None) -> None:
    """Check that a function can be mapped over batches: along every axis of its arguments, compiled, under another
    `vmap`, over batches of one and of none, and beside `jvp`. The arguments are those of one element of a batch.

    Raises `LawError` where a batch is not what a loop gives, and what `vmap` raises where it can't be mapped.

    >>> import numpy as np
    >>> import tracefx.numpy as fnp
    >>> check_batchable(lambda x, y: fnp.dot(x, y) + y[0], np.ones((2, 3)), np.arange(3.0))
    """
    subject = Subject.of(f, args, ulps)
    if not subject.args:
        raise ValueError("check_batchable needs arguments: there is nothing to map in a function of none")
    for each in BATCH_LAWS:
        if each is not vmap_commutes_with_jvp or subject.differentiable_args:
            each.check(subject)
