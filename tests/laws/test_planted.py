"""The laws detect mistakes: each faulty primitive has one wrong rule, and the law about that rule fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest
from attrs import frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.errors import assert_errors, untyped
from tests.primitives import BatchAxes, SameTypes, Tangents, Values
from tracefx import extend, testing
from tracefx.core import ConcreteArray, dtypes, to_numpy
from tracefx.interpreters.jvp import JVPTracer
from tracefx.ops.elementwise.arithmetic import Neg
from tracefx.ops.structural import ConvertElementType


@frozen(eq=False)
class Scale(SameTypes, extend.Differentiable, extend.Transposable, extend.Batchable, extend.Lowerable):
    """Reverses a vector and doubles it: linear, and sensitive to the position of the batch axis."""

    name = "scale"

    @override
    def impl(self, *args: extend.NDArray) -> Sequence[extend.NDArray]:
        return [np.asarray(2 * args[0][..., ::-1], args[0].dtype)]

    @override
    def jvp(self, primals: Values, tangents: Tangents) -> tuple[Values, Tangents]:
        return [extend.bind1(self, *primals)], [extend.bind1(self, extend.instantiate(tangents[0]))]

    @override
    def transpose(
        self, cts: Sequence[extend.Tangent], *args: extend.Value | extend.UndefinedPrimal
    ) -> Sequence[extend.Tangent | None]:
        return [extend.bind1(self, extend.instantiate(cts[0]))]

    @override
    def batch(self, axis: extend.MappedAxis, args: Values, dims: BatchAxes) -> tuple[Values, BatchAxes]:
        return [extend.bind1(self, extend.batch_first(args[0], dims[0], axis))], [0]

    @override
    def lower(self, builder: extend.Builder, *operands: extend.IrValue) -> Sequence[extend.IrValue]:
        (x,) = operands
        (two,) = builder.emit("stablehlo.add", [x, x], [x.aval])
        last = fx.extend.DenseI64Array((len(x.aval.shape) - 1,))
        return builder.emit("stablehlo.reverse", [two], [x.aval], {"dimensions": last})


X: Final = np.array([0.5, -1.0, 2.0], np.float32)


def test_correct_primitive_passes_all_laws() -> None:
    report = testing.check_primitive(Scale(), [X])
    assert report.passed == tuple([law.name for law in testing.LAWS])
    assert not report.skipped


# ------------------------------------------------------------------ one wrong rule each


class WrongJvp(Scale):
    @override
    def jvp(self, primals: Values, tangents: Tangents) -> tuple[Values, Tangents]:
        return [extend.bind1(self, *primals)], [fnp.negative(extend.bind1(self, extend.instantiate(tangents[0])))]


class WrongTranspose(Scale):
    @override
    def transpose(
        self, cts: Sequence[extend.Tangent], *args: extend.Value | extend.UndefinedPrimal
    ) -> Sequence[extend.Tangent | None]:
        return [fnp.negative(extend.bind1(self, extend.instantiate(cts[0])))]


class WrongCotangentShape(Scale):
    @override
    def transpose(
        self, cts: Sequence[extend.Tangent], *args: extend.Value | extend.UndefinedPrimal
    ) -> Sequence[extend.Tangent | None]:
        return [extend.bind1(self, extend.instantiate(cts[0])).sum()]


class WrongBatchAxis(Scale):
    """Reports the old position of the batch axis after moving it."""

    @override
    def batch(self, axis: extend.MappedAxis, args: Values, dims: BatchAxes) -> tuple[Values, BatchAxes]:
        return [extend.bind1(self, extend.batch_first(args[0], dims[0], axis))], dims


class ReversesBatchAxis(Scale):
    """Reverses the batch axis instead of the vector."""

    @override
    def batch(self, axis: extend.MappedAxis, args: Values, dims: BatchAxes) -> tuple[Values, BatchAxes]:
        return [extend.bind1(self, args[0])], dims


class WrongLowering(Scale):
    @override
    def lower(self, builder: extend.Builder, *operands: extend.IrValue) -> Sequence[extend.IrValue]:
        return builder.emit("stablehlo.add", [operands[0], operands[0]], [operands[0].aval])


class WrongDtype(Scale):
    @override
    def abstract_eval(self, *avals: extend.ShapedArray) -> Sequence[extend.ShapedArray]:
        return [avals[0].update(dtype=dtypes.float16)]


class WrongShape(Scale):
    @override
    def abstract_eval(self, *avals: extend.ShapedArray) -> Sequence[extend.ShapedArray]:
        return [avals[0].update(shape=(*avals[0].shape, 1))]


class WrongWeakType(Scale):
    """The results are never weakly typed in evaluation and always weakly typed in `abstract_eval`."""

    @override
    def abstract_eval(self, *avals: extend.ShapedArray) -> Sequence[extend.ShapedArray]:
        return [extend.ShapedArray(avals[0].shape, avals[0].dtype, weak_type=True)]

    @override
    def evaluate(self, args: Sequence[extend.Value]) -> Sequence[extend.Value]:
        (out,) = self.impl(to_numpy(args[0]))
        return [ConcreteArray(args[0].aval.strong(), out)]


class WeakBatch(Scale):
    """Returns weakly typed results under vmap."""

    @override
    def batch(self, axis: extend.MappedAxis, args: Values, dims: BatchAxes) -> tuple[Values, BatchAxes]:
        outs, out_dims = super().batch(axis, args, dims)
        aval = outs[0].aval
        return [extend.bind1(ConvertElementType(aval.dtype, weak_type=True), outs[0])], out_dims


class WrongPartialEval(Scale):
    """Records an additional negation under partial evaluation."""

    @override
    def partial_eval(
        self, recorder: extend.Recorder, unknown: Sequence[bool], args: Sequence[extend.Value]
    ) -> Sequence[extend.Value]:
        return recorder.record(Neg(), recorder.record(self, args))


class WrongJvpOfABatch(Scale):
    """Batches to another primitive, whose JVP rule is wrong."""

    @override
    def batch(self, axis: extend.MappedAxis, args: Values, dims: BatchAxes) -> tuple[Values, BatchAxes]:
        return [extend.bind1(WrongJvp(), extend.batch_first(args[0], dims[0], axis))], [0]


class WrongTracedBatch(Scale):
    """Computes another result for a traced batch than for a concrete one."""

    @override
    def batch(self, axis: extend.MappedAxis, args: Values, dims: BatchAxes) -> tuple[Values, BatchAxes]:
        outs, out_dims = super().batch(axis, args, dims)
        return outs if isinstance(args[0], ConcreteArray | JVPTracer) else [extend.bind1(Neg(), outs[0])], out_dims


@pytest.mark.parametrize(
    ("prim", "law"),
    [
        (WrongJvp(), testing.jvp_is_the_derivative),
        (WrongTranspose(), testing.transpose_is_adjoint),
        (ReversesBatchAxis(), testing.vmap_is_a_loop),
        (WeakBatch(), testing.vmap_is_a_loop),
        (WrongLowering(), testing.jit_changes_nothing),
        (WrongDtype(), testing.abstract_eval_matches_evaluation),
        (WrongShape(), testing.abstract_eval_matches_evaluation),
        (WrongWeakType(), testing.abstract_eval_matches_evaluation),
        (WrongPartialEval(), testing.linearize_is_jvp),
        (WrongJvpOfABatch(), testing.vmap_commutes_with_jvp),
        (WrongTracedBatch(), testing.jit_commutes_with_transforms),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, extend.Primitive) else repr(part),
)
def test_wrong_rule_breaks_its_law(prim: extend.Primitive, law: testing.Law) -> None:
    with pytest.raises(testing.LawError) as caught:
        law(prim, X)
    assert str(caught.value).startswith(f"{law.statement}: violated by scale(f")
    with pytest.raises(testing.LawError):
        testing.check_primitive(prim, [X])
    testing.check_primitive(
        prim, [X], laws=testing.LAWS[: testing.LAWS.index(law)]
    )  # the laws before it do not detect the mistake


@pytest.mark.parametrize(
    ("prim", "law", "rule"),
    [
        (WrongCotangentShape(), testing.transpose_is_adjoint, "transpose"),
        (WrongBatchAxis(), testing.vmap_is_a_loop, "batch"),
    ],
    ids=["cotangent shape", "batch axis"],
)
def test_results_of_wrong_types_are_errors_of_their_rules(prim: extend.Primitive, law: testing.Law, rule: str) -> None:
    with pytest.raises(TypeError, match=rf"the rule {type(prim).__name__}\.{rule} .* returned .*, expected "):
        law(prim, X)


def test_law_error_shows_both_results() -> None:
    with pytest.raises(testing.LawError) as caught:
        testing.jit_changes_nothing(WrongLowering(), X)
    assert caught.value.message.splitlines()[1:] == [
        "  compiled:  f32[3] [ 1.,-2., 4.]",
        "  evaluated: f32[3] [ 4.,-2., 1.]",
        "  output 0 at (2,): 4.0 and 1.0, must be equal",
    ]


class OtherRounding(SameTypes, extend.Lowerable):
    """The identity, whose compiled code returns the next larger number."""

    name = "other_rounding"

    @override
    def impl(self, *args: extend.NDArray) -> Sequence[extend.NDArray]:
        return args

    @override
    def lower(self, builder: extend.Builder, *operands: extend.IrValue) -> Sequence[extend.IrValue]:
        (x,) = operands
        factor = builder.constant(np.full(x.aval.shape, 1 + 2**-23, x.aval.dtype))
        return builder.emit("stablehlo.multiply", [x, factor], [x.aval])


def test_rounding_errors_name_the_tolerance() -> None:
    one = np.ones(1, np.float32)
    with pytest.raises(testing.LawError, match="1 ulps apart, must be equal unless the argument `ulps` allows"):
        testing.jit_changes_nothing(OtherRounding(), one)
    testing.jit_changes_nothing(OtherRounding(), one, ulps=testing.Ulps(f32=1))


# ------------------------------------------------------------------ wrong equality and names


@frozen(eq=False)
class EqualForAllFactors(Scale):
    """Compares equal for all values of its parameter."""

    factor: float = 2.0

    @override
    def impl(self, *args: extend.NDArray) -> Sequence[extend.NDArray]:
        return [np.asarray(self.factor * args[0], args[0].dtype)]

    @override
    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    @override
    def __hash__(self) -> int:
        return 0


def test_passes_law_detects_wrong_parameter_equality() -> None:
    def f(x: Any) -> Any:
        return extend.bind1(EqualForAllFactors(2.0), x) - extend.bind1(EqualForAllFactors(3.0), x)

    with pytest.raises(testing.LawError, match="after cse"):
        testing.passes_change_nothing(f, X)


def test_text_law_detects_duplicate_primitive_names() -> None:
    with pytest.raises(testing.LawError, match="as parsed"):
        testing.text_round_trips(lambda x: extend.bind1(WrongJvp(), extend.bind1(Scale(), x)), X)


# ------------------------------------------------------------------ laws that a function breaks


def differs_when_traced(x: Any) -> Any:
    return x * 2 if isinstance(x, fx.extend.Tracer) else x * 3


def leaks_tracers() -> Callable[[Any], Any]:
    """A function that leaks: it stores the last tracer and returns it in later calls."""
    leaked: list[Any] = []

    def f(x: Any) -> Any:
        if isinstance(x, fx.extend.Tracer):
            leaked.append(x)
            return x * 1
        return leaked[-1] if leaked else x * 1

    return f


def differs_under_a_handler(x: Any) -> Any:
    return x * 2 if fx.current().inner is None else x * 3


@pytest.mark.parametrize(
    ("f", "law"),
    [
        (differs_when_traced, testing.staging_changes_nothing),
        (differs_when_traced, testing.jit_changes_nothing),
        (differs_when_traced, testing.vmap_is_a_loop),
        (differs_when_traced, testing.jvp_is_the_derivative),
        (differs_under_a_handler, testing.identity_changes_nothing),
        (leaks_tracers(), testing.no_tracer_leaks),
    ],
)
def test_function_that_inspects_its_arguments_breaks_laws(f: Callable[..., Any], law: testing.Law) -> None:
    with pytest.raises(testing.LawError):
        law(f, X)


def test_check_linear_detects_nonlinear_functions() -> None:
    testing.check_linear(lambda x: x[::-1] * 2, X)
    with pytest.raises(testing.LawError, match=r"f\(x \+ 3 y\)"):
        testing.check_linear(lambda x: x * x, X)
    with pytest.raises(testing.LawError, match="<v, Jᵀ w>"):
        testing.check_linear(WrongTranspose(), X)


def test_check_grads_detects_a_wrong_second_derivative() -> None:
    def f(x: Any) -> Any:
        """Has a correct first derivative and a wrong second one."""
        return extend.bind1(FlatSine(), x)

    testing.check_grads(f, X, order=1)
    with pytest.raises(testing.LawError, match="the derivative of f"):
        testing.check_grads(f, X, order=2)


@pytest.mark.parametrize("modes", [("fwd",), ("rev",), ("fwd", "rev")])
def test_check_grads_uses_the_tolerance_of_the_precision_of_the_function(modes: Any) -> None:
    weights = fnp.linspace(0.1, 1.0, 5)

    def with_weights(x: Any) -> Any:
        return fnp.sum(fnp.sin(weights * x))

    def in_float32(x: Any) -> Any:
        return fnp.sum(fnp.sin(weights * fnp.asarray(x, fnp.float32)))

    def in_a_loop(x: Any) -> Any:
        return fx.lax.scan(lambda c, w: (fnp.sin(c * w), None), fnp.asarray(x, fnp.float32), weights)[0]

    for f in (with_weights, in_float32, in_a_loop):
        for x in (0.5, np.float32(0.5)):
            testing.check_grads(f, x, modes=modes)

    def wrong(x: Any) -> Any:
        return in_float32(x) + fx.lax.stop_gradient(x)

    for x in (0.5, np.float32(0.5)):
        with pytest.raises(testing.LawError):
            testing.check_grads(wrong, x, modes=modes)


SCALES: Final[dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], float]]] = {
    "fast": (lambda x: fnp.sin(100 * x), lambda x: 100 * fnp.cos(100 * x), 1.3),
    "faster": (lambda x: fnp.sin(1000 * x), lambda x: 1000 * fnp.cos(1000 * x), 1.3),
    "steep": (lambda x: fnp.exp(30 * x), lambda x: 30 * fnp.exp(30 * x), 1.3),
    "near a pole": (lambda x: fnp.log(x), lambda x: 1 / x, 1e-3),
    "with a large term": (lambda x: 1e6 + fnp.sin(x), lambda x: fnp.cos(x), 1.3),
    "of a large argument": (lambda x: fnp.sin(x), lambda x: fnp.cos(x), 1e6),
}
"""Functions, their derivatives and an argument: they vary on other scales than 1, or have large rounding errors."""


def with_derivative(f: Callable[[Any], Any], derivative: Callable[[Any], Any]) -> Callable[[Any], Any]:
    g = fx.custom_jvp(f)
    g.defjvp(lambda primals, tangents: (g(*primals), derivative(*primals) * tangents[0]))
    return g


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("modes", [("fwd",), ("rev",), ("fwd", "rev")])
def test_steps_of_differences_fit_the_function(name: str, modes: Any) -> None:
    f, derivative, at = SCALES[name]
    testing.check_grads(f, at, modes=modes)
    wrong = with_derivative(f, lambda x: 1.001 * derivative(x))
    with pytest.raises(testing.LawError, match="differences"):
        testing.check_grads(wrong, at, order=1, modes=modes)
    second = with_derivative(derivative, lambda x: 1.001 * fx.grad(derivative)(x))
    wrong_second = with_derivative(f, second)
    testing.check_grads(wrong_second, at, order=1, modes=modes)
    with pytest.raises(testing.LawError, match="differences"):
        testing.check_grads(wrong_second, at, order=2, modes=modes)


@pytest.mark.parametrize("name", ["fast", "steep", "near a pole"])
def test_steps_of_differences_fit_functions_in_float32(name: str) -> None:
    f, derivative, at = SCALES[name]

    def in_float32(x: Any) -> Any:
        return f(fnp.asarray(x, fnp.float32))

    testing.check_grads(in_float32, at, order=1)
    wrong = with_derivative(in_float32, lambda x: 1.02 * derivative(fnp.asarray(x, fnp.float32)))
    with pytest.raises(testing.LawError, match="jvp agrees with finite differences"):
        testing.check_grads(wrong, at, order=1)


def test_differences_across_a_jump_confirm_nothing() -> None:
    with pytest.raises(testing.LawError):
        testing.check_grads(with_derivative(lambda x: fnp.where(x > 1.3, 1.0, 0.0), lambda x: 0 * x), 1.3)


def test_check_grads_refuses_functions_without_float_results() -> None:
    for f in (lambda x: None, lambda x: fnp.argmax(x)):
        with pytest.raises(testing.Inapplicable, match="returns no floats to differentiate"):
            testing.check_grads(f, X)
    with pytest.raises(ValueError, match=r'modes must be a sequence of "fwd" and "rev", e.g. \("fwd",\), got \'fwd\''):
        untyped(testing.check_grads)(fnp.sin, X, modes="fwd")


@pytest.mark.parametrize(
    "check",
    [
        lambda ulps: testing.check_grads(fnp.sin, X, ulps=ulps),
        lambda ulps: testing.check_equivalent(fnp.sin, fnp.sin, X, ulps=ulps),
        lambda ulps: testing.check_handler(testing.IdentityHandler, fnp.sin, X, ulps=ulps),
        lambda ulps: testing.jit_changes_nothing(fnp.sin, X, ulps=ulps),
    ],
    ids=["check_grads", "check_equivalent", "check_handler", "law"],
)
def test_tolerance_that_is_a_number_is_refused(check: Any) -> None:
    with pytest.raises(TypeError, match=r"ulps must be a tolerance such as Ulps\(f64=4, f32=4\) or None, got 4"):
        check(4)


def test_check_grads_does_not_judge_programs_with_half_precision() -> None:
    with pytest.raises(testing.Inapplicable, match="16 bits"):
        testing.check_grads(lambda x: fnp.sin(x.astype("bfloat16")).astype("float32"), fnp.ones(3))


class FlatSine(SameTypes, extend.Differentiable):
    name = "flat_sine"

    @override
    def impl(self, *args: extend.NDArray) -> Sequence[extend.NDArray]:
        return [np.sin(args[0])]

    @override
    def jvp(self, primals: Values, tangents: Tangents) -> tuple[Values, Tangents]:
        slope = fx.lax.stop_gradient(fnp.cos(primals[0]))
        return [extend.bind1(self, *primals)], [fnp.multiply(extend.instantiate(tangents[0]), slope)]


# ------------------------------------------------------------------ skipped laws


class OnlyEvaluated(extend.Primitive):
    name = "only_evaluated"

    @override
    def impl(self, *args: extend.NDArray) -> Sequence[extend.NDArray]:
        return [args[0] * 2]


def test_laws_are_skipped_without_the_rule_they_need() -> None:
    report = testing.check_primitive(OnlyEvaluated(), [X])
    assert report.passed == ()
    assert "primitive 'only_evaluated' has no abstract_eval rule" in report.skipped["abstract_eval_matches_evaluation"]
    assert "vmap_is_a_loop: skipped, since primitive 'only_evaluated' has no batch rule" in str(report)


def test_derivative_laws_are_skipped_for_integers() -> None:
    report = testing.check_function(lambda x: x + 1, np.arange(3))
    assert set(report.skipped.values()) == {
        "no argument is differentiable: i32[3]; derivatives are those of floats, e.g. of 3.0, not 3"
    }
    with pytest.raises(testing.Inapplicable, match=r"no argument is differentiable: i32\[3\]"):
        testing.linearize_is_jvp(lambda x: x + 1, np.arange(3))


def test_invalid_arguments_are_refused() -> None:
    assert_errors(
        (lambda: untyped(testing.check_primitive)(np.sin, [X]), TypeError, "check_primitive takes a primitive"),
        (lambda: testing.check_primitive(Scale()), ValueError, "needs samples of the operands of scale"),
        (lambda: untyped(testing.check_primitive)(Scale(), X), TypeError, "a sample is a list of the operands, e.g. "),
        (lambda: untyped(testing.vmap_is_a_loop)(3, X), TypeError, "a law is about a function or a primitive, got 3"),
    )
