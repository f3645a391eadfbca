"""The laws find what is wrong: one wrong rule of each kind is planted in an operation that keeps them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest
from attrs import frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tracefx.core import dtypes
from tracefx.core.values import ConcreteArray, to_numpy
from tracefx.extend import (
    Batchable,
    Builder,
    Differentiable,
    IrValue,
    Lowerable,
    MappedAxis,
    NDArray,
    Primitive,
    Recorder,
    ShapedArray,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Value,
    batch_first,
    bind1,
    instantiate,
)
from tracefx.interpreters.jvp import JVPTracer
from tracefx.ops.elementwise.arithmetic import Neg
from tracefx.ops.structural import ConvertElementType
from tracefx.testing import (
    LAWS,
    Inapplicable,
    Law,
    LawError,
    abstract_eval_matches_evaluation,
    check_function,
    check_grads,
    check_linear,
    check_primitive,
    identity_changes_nothing,
    jit_changes_nothing,
    jit_commutes_with_transforms,
    jvp_is_the_derivative,
    linearize_is_jvp,
    no_tracer_leaks,
    passes_change_nothing,
    staging_changes_nothing,
    text_round_trips,
    transpose_is_adjoint,
    vmap_commutes_with_jvp,
    vmap_is_a_loop,
)


@frozen(eq=False)
class Scale(Primitive, Differentiable, Transposable, Batchable, Lowerable):
    """Twice a vector whose entries are turned round: linear, and it matters where the batch axis is."""

    name = "scale"

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return [np.asarray(2 * args[0][..., ::-1], args[0].dtype)]

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return avals

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return [bind1(self, *primals)], [bind1(self, instantiate(tangents[0]))]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [bind1(self, instantiate(cts[0]))]

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        return [bind1(self, batch_first(args[0], dims[0], axis))], [0]

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        (x,) = operands
        (two,) = builder.emit("stablehlo.add", [x, x], [x.aval])
        last = fx.extend.DenseI64Array((len(x.aval.shape) - 1,))
        return builder.emit("stablehlo.reverse", [two], [x.aval], {"dimensions": last})


X: Final = np.array([0.5, -1.0, 2.0], np.float32)


def test_a_right_operation_keeps_all_laws() -> None:
    report = check_primitive(Scale(), [X])
    assert report.passed == tuple([law.name for law in LAWS])
    assert not report.skipped


# ------------------------------------------------------------------ one wrong rule each


class WrongJvp(Scale):
    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return [bind1(self, *primals)], [fnp.negative(bind1(self, instantiate(tangents[0])))]


class WrongTranspose(Scale):
    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [fnp.negative(bind1(self, instantiate(cts[0])))]


class CotangentOfAnotherType(Scale):
    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [bind1(self, instantiate(cts[0])).sum()]


class WrongBatchAxis(Scale):
    """Says that the batch axis is still where it was."""

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        return [bind1(self, batch_first(args[0], dims[0], axis))], dims


class NoBatchAxis(Scale):
    """Turns the batch round with the rest."""

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        return [bind1(self, args[0])], dims


class OtherwiseCompiled(Scale):
    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return builder.emit("stablehlo.add", [operands[0], operands[0]], [operands[0].aval])


class WrongDtype(Scale):
    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return [avals[0].update(dtype=dtypes.float16)]


class WrongShape(Scale):
    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return [avals[0].update(shape=(*avals[0].shape, 1))]


class WrongWeakType(Scale):
    """Evaluated, its outputs are never weakly typed; abstractly they always are."""

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return [ShapedArray(avals[0].shape, avals[0].dtype, weak_type=True)]

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        (out,) = self.impl(to_numpy(args[0]))
        return [ConcreteArray(args[0].aval.strong(), out)]


class WeakBatch(Scale):
    """Batched, its outputs are weakly typed."""

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        outs, out_dims = super().batch(axis, args, dims)
        aval = outs[0].aval
        return [bind1(ConvertElementType(aval.dtype, weak_type=True), outs[0])], out_dims


class RecordedOtherwise(Scale):
    """Where its operand is unknown, what is put off is not what it does."""

    @override
    def partial_eval(self, recorder: Recorder, unknown: Sequence[bool], args: Sequence[Value]) -> Sequence[Value]:
        return recorder.record(Neg(), recorder.record(self, args))


class WrongJvpOfABatch(Scale):
    """A batch of it is another operation, whose derivative is wrong."""

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        return [bind1(WrongJvp(), batch_first(args[0], dims[0], axis))], [0]


class OtherwiseStaged(Scale):
    """A batch whose numbers are not known is computed in another way."""

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        outs, out_dims = super().batch(axis, args, dims)
        return outs if isinstance(args[0], ConcreteArray | JVPTracer) else [bind1(Neg(), outs[0])], out_dims


@pytest.mark.parametrize(
    ("prim", "law"),
    [
        (WrongJvp(), jvp_is_the_derivative),
        (WrongTranspose(), transpose_is_adjoint),
        (CotangentOfAnotherType(), transpose_is_adjoint),
        (WrongBatchAxis(), vmap_is_a_loop),
        (NoBatchAxis(), vmap_is_a_loop),
        (WeakBatch(), vmap_is_a_loop),
        (OtherwiseCompiled(), jit_changes_nothing),
        (WrongDtype(), abstract_eval_matches_evaluation),
        (WrongShape(), abstract_eval_matches_evaluation),
        (WrongWeakType(), abstract_eval_matches_evaluation),
        (RecordedOtherwise(), linearize_is_jvp),
        (WrongJvpOfABatch(), vmap_commutes_with_jvp),
        (OtherwiseStaged(), jit_commutes_with_transforms),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, Primitive) else repr(part),
)
def test_a_wrong_rule_is_found_by_its_law(prim: Primitive, law: Law) -> None:
    with pytest.raises(LawError) as found:
        law(prim, X)
    assert str(found.value).startswith(f"{law.statement}: violated by scale(f")
    with pytest.raises(LawError):
        check_primitive(prim, [X])
    check_primitive(prim, [X], laws=LAWS[: LAWS.index(law)])  # those before it see nothing


def test_both_results_are_in_the_message() -> None:
    with pytest.raises(LawError) as found:
        jit_changes_nothing(OtherwiseCompiled(), X)
    assert found.value.message.splitlines()[1:] == [
        "  compiled:  f32[3] [ 1.,-2., 4.]",
        "  evaluated: f32[3] [ 4.,-2., 1.]",
        "  output 0 at (2,): 4.0 and 1.0, must be equal",
    ]


# ------------------------------------------------------------------ wrong values


@frozen(eq=False)
class Times(Scale):
    """Takes every number for the same parameter."""

    factor: float = 2.0

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return [np.asarray(self.factor * args[0], args[0].dtype)]

    @override
    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    @override
    def __hash__(self) -> int:
        return 0


def test_operations_that_are_taken_for_each_other_are_found() -> None:
    def f(x: Any) -> Any:
        return bind1(Times(2.0), x) - bind1(Times(3.0), x)

    with pytest.raises(LawError, match="after cse"):
        passes_change_nothing(f, X)


def test_operations_of_one_name_are_found() -> None:
    with pytest.raises(LawError, match="as parsed"):
        text_round_trips(lambda x: bind1(WrongJvp(), bind1(Scale(), x)), X)


# ------------------------------------------------------------------ laws that a function breaks


def differs_when_traced(x: Any) -> Any:
    return x * 2 if isinstance(x, fx.extend.Tracer) else x * 3


def remembering() -> Callable[[Any], Any]:
    """A function that keeps the last tracer it saw, and gives it back."""
    kept: list[Any] = []

    def f(x: Any) -> Any:
        if isinstance(x, fx.extend.Tracer):
            kept.append(x)
            return x * 1
        return kept[-1] if kept else x * 1

    return f


def under_a_handler(x: Any) -> Any:
    return x * 2 if fx.current().inner is None else x * 3


@pytest.mark.parametrize(
    ("f", "law"),
    [
        (differs_when_traced, staging_changes_nothing),
        (differs_when_traced, jit_changes_nothing),
        (differs_when_traced, vmap_is_a_loop),
        (differs_when_traced, jvp_is_the_derivative),
        (under_a_handler, identity_changes_nothing),
        (remembering(), no_tracer_leaks),
    ],
)
def test_a_function_that_looks_at_its_arguments_is_found(f: Callable[..., Any], law: Law) -> None:
    with pytest.raises(LawError):
        law(f, X)


def test_a_function_that_is_not_linear_is_found() -> None:
    check_linear(lambda x: x[::-1] * 2, X)
    with pytest.raises(LawError, match=r"f\(x \+ 3 y\)"):
        check_linear(lambda x: x * x, X)
    with pytest.raises(LawError, match="<v, Jᵀ w>"):
        check_linear(WrongTranspose(), X)


def test_a_wrong_second_derivative_is_found() -> None:
    def f(x: Any) -> Any:
        """Its derivative is right; the derivative of that is not."""
        return bind1(FlatSine(), x)

    check_grads(f, X, order=1)
    with pytest.raises(LawError, match="the derivative of f"):
        check_grads(f, X, order=2)


class FlatSine(Primitive, Differentiable):
    name = "flat_sine"

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return [np.sin(args[0])]

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return avals

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        slope = fx.lax.stop_gradient(fnp.cos(primals[0]))
        return [bind1(self, *primals)], [fnp.multiply(instantiate(tangents[0]), slope)]


# ------------------------------------------------------------------ what is left out


class OnlyEvaluated(Primitive):
    name = "only_evaluated"

    @override
    def impl(self, *args: NDArray) -> Sequence[NDArray]:
        return [args[0] * 2]


def test_a_law_without_its_rule_is_left_out_and_says_so() -> None:
    report = check_primitive(OnlyEvaluated(), [X])
    assert report.passed == ()
    assert "primitive 'only_evaluated' has no abstract_eval rule" in report.skipped["abstract_eval_matches_evaluation"]
    assert "vmap_is_a_loop: skipped, since primitive 'only_evaluated' has no batch rule" in str(report)


def test_laws_of_derivatives_say_nothing_of_integers() -> None:
    report = check_function(lambda x: x + 1, np.arange(3))
    assert set(report.skipped.values()) == {"no argument is differentiable: i32[3]"}
    with pytest.raises(Inapplicable, match=r"no argument is differentiable: i32\[3\]"):
        linearize_is_jvp(lambda x: x + 1, np.arange(3))


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="check_primitive takes a primitive"):
        check_primitive(np.sin, [X])  # type: ignore[arg-type]  # the error is the point
    with pytest.raises(ValueError, match="needs samples of the operands of scale"):
        check_primitive(Scale())
    with pytest.raises(TypeError, match="a law is about a function or a primitive, got 3"):
        vmap_is_a_loop(3, X)  # type: ignore[arg-type]  # the error is the point
