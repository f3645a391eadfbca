"""The report of a broken law: the smallest failing program, as a jaxpr and as Python that reproduces the failure."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest
from attrs import evolve
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

import tracefx as fx
import tracefx.numpy as fnp
from tests.laws import test_planted as planted
from tests.laws.examples import sampled
from tracefx.core import Value
from tracefx.core.primitive import MappedAxis, Primitive, Tangent
from tracefx.extend import as_array, bind1, instantiate
from tracefx.ops.elementwise.arithmetic import Mul
from tracefx.ops.elementwise.hyperbolic import Tanh
from tracefx.ops.shape.slicing import Rev
from tracefx.testing import (
    Law,
    LawError,
    Subject,
    abstract_eval_matches_evaluation,
    array,
    check_grads,
    check_linear,
    jit_changes_nothing,
    jit_commutes_with_transforms,
    jvp_is_the_derivative,
    law,
    linearize_is_jvp,
    passes_change_nothing,
    require_close,
    transpose_is_adjoint,
    vmap_commutes_with_jvp,
    vmap_is_a_loop,
)
from tracefx.testing.errors import ViolationManner
from tracefx.testing.generated_programs import TransformedProgram
from tracefx.testing.strategies import transformed_control_flow_programs, transformed_programs
from tracefx.testing.tolerances import PROGRAM

X: Final = np.array([0.5, -1.0, 2.0], np.float32)
K: Final = np.array([0.5, 2.0], np.float32)


def law_error(run: Callable[[], object]) -> LawError:
    with pytest.raises(LawError) as caught:
        run()
    return caught.value


def fails_again(error: LawError) -> LawError:
    """Runs the reproducer in an empty namespace and checks that it breaks the same law."""
    assert error.reproducer is not None
    python = error.reproducer.python
    assert python is not None, error
    second_error = law_error(lambda: exec(compile(python, "<report>", "exec"), {}))
    assert second_error.message.split(": violated by")[0] == error.message.split(": violated by")[0]
    return second_error


def python_of(error: LawError) -> list[str]:
    assert error.reproducer is not None
    assert error.reproducer.python is not None
    return error.reproducer.python.splitlines()


# ------------------------------------------------------------------ a wrong rule somewhere in a model


def model(prim: Primitive) -> Callable[[Any, Any], Any]:
    """A program with the primitive among others, in a loop body in a jitted call."""

    def f(x: Any, k: Any) -> Any:
        c, ys = fx.lax.scan(lambda c, k: (fnp.tanh(bind1(prim, fnp.sin(c)) * k), fnp.cos(c)), x * 2, k)
        return fx.jit(lambda y: fnp.sum(y * c) + x)(ys)

    return f


def straight_line(prim: Primitive) -> Callable[[Any, Any], Any]:
    return lambda x, k: fnp.tanh(bind1(prim, fnp.sin(x)) * k[0]) + fnp.sum(k)


@pytest.mark.parametrize(
    ("prim", "law", "build"),
    [
        (planted.WrongJvp(), jvp_is_the_derivative, model),
        (planted.WrongTranspose(), transpose_is_adjoint, model),
        (planted.ReversesBatchAxis(), vmap_is_a_loop, straight_line),
        (planted.WeakBatch(), vmap_is_a_loop, lambda prim: lambda x, k: fnp.sin(bind1(prim, x))),
        (planted.WrongLowering(), jit_changes_nothing, straight_line),
        (planted.WrongPartialEval(), linearize_is_jvp, straight_line),
        (planted.WrongJvpOfABatch(), vmap_commutes_with_jvp, straight_line),
        (planted.WrongTracedBatch(), jit_commutes_with_transforms, straight_line),
        (planted.WrongWeakType(), abstract_eval_matches_evaluation, lambda prim: lambda x, k: bind1(prim, fnp.sin(x))),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, Primitive) else None,
)
def test_report_isolates_the_primitive_with_a_wrong_rule(
    prim: Primitive, law: Law, build: Callable[[Primitive], Any]
) -> None:
    error = law_error(lambda: law(build(prim), X, K))
    assert error.reproducer is not None
    weak = "*" if isinstance(prim, planted.WrongWeakType) else ""
    assert error.reproducer.programs == (
        f"the smallest program found that violates it:\n  {{ lambda ; a:f32[3]. let b:f32[3]{weak} = scale a in (b,) }}"
    )
    second_error = fails_again(error)
    assert second_error.reproducer == error.reproducer  # the reproducer is already minimal
    assert str(error) == f"{error.message}\n\n{error.reproducer}"


def test_full_text_of_a_report() -> None:
    error = law_error(lambda: jvp_is_the_derivative(model(planted.WrongJvp()), X, K))
    assert str(error).split("\n\n", 1)[1].splitlines() == [
        "the smallest program found that violates it:",
        "  { lambda ; a:f32[3]. let b:f32[3] = scale a in (b,) }",
        "in Python:",
        "",
        "import tracefx as fx",
        "from tracefx.testing import array, jvp_is_the_derivative",
        "",
        "from tests.laws.test_planted import WrongJvp",
        'program_jaxpr = fx.parse_jaxpr("""',
        "{ lambda ; a:f32[3]. let b:f32[3] = scale a in (b,) }",
        '""", WrongJvp)',
        "",
        "def program(*xs):",
        "    return fx.eval_jaxpr(program_jaxpr, [], xs)",
        "",
        "jvp_is_the_derivative(program, array([1.0, 1.0, 1.0], 'float32'))",
    ]


def test_report_keeps_several_primitives_if_they_fail_together() -> None:
    def f(x: Any) -> Any:
        y = fnp.sin(x) * 3
        return fnp.exp(bind1(planted.EqualForAllFactors(2.0), y) - bind1(planted.EqualForAllFactors(3.0), y)) + fnp.sum(
            y
        )

    error = law_error(lambda: passes_change_nothing(f, X))
    assert error.reproducer is not None
    assert error.reproducer.programs.splitlines()[1:] == [
        "  { lambda ; a:f32[3]. let",
        "      b:f32[3] = scale[factor=2.0] a",
        "      c:f32[3] = scale[factor=3.0] a",
        "      d:f32[3] = sub b c",
        "    in (d,) }",
    ]
    fails_again(error)


def test_smallest_program_violates_the_law_in_the_same_manner() -> None:
    """Differences at NaN are NaN whatever the program: the rule with finite results is the one that is wrong."""

    def f(x: Any) -> Any:
        return bind1(planted.WrongJvp(), fnp.log(x)) * fnp.ones(3)

    wrong_value = law_error(lambda: check_grads(f, np.array([1.0, 2.0, 3.0], np.float32), order=1))
    assert "scale a" in str(wrong_value.reproducer)
    undefined = law_error(lambda: check_grads(f, np.array([-1.0, -2.0, -3.0], np.float32), order=1))
    assert undefined.manner is ViolationManner.NAN
    assert "log a in" in str(undefined.reproducer)
    assert fails_again(undefined).manner is ViolationManner.NAN


def test_reproducer_calls_check_grads_or_check_linear() -> None:
    error = law_error(lambda: check_grads(lambda x: fnp.exp(bind1(planted.FlatSine(), x)) * 2, X, order=2))
    assert "flat_sine" in str(error.reproducer)
    assert python_of(error)[-1] == (
        "check_grads(program, array([1.0, 1.0, 1.0], 'float32'), order=2, modes=('fwd', 'rev'))"
    )
    fails_again(error)
    error = law_error(lambda: check_linear(lambda x: fnp.flip(x * x) + 2 * x, X))
    assert python_of(error)[-1] == "check_linear(program, array([1.0, 1.0, 1.0], 'float32'))"
    fails_again(error)


def test_reproducer_sets_tolerances_and_x64() -> None:
    error = law_error(lambda: jit_changes_nothing(planted.WrongLowering(), X))
    assert python_of(error)[-1].endswith("'float32'), ulps=Ulps())")
    fails_again(error)
    with fx.enable_x64():
        error = law_error(lambda: jvp_is_the_derivative(planted.WrongJvp(), np.ones(2)))
    assert python_of(error)[-2:] == [
        "with fx.enable_x64():",
        "    jvp_is_the_derivative(program, array([1.0, 1.0], 'float64'), ulps=Ulps())",
    ]
    fails_again(error)


# ------------------------------------------------------------------ no Python, or no program


def test_report_says_that_the_violation_depends_on_python_code() -> None:
    error = law_error(lambda: jit_changes_nothing(planted.differs_when_traced, X))
    assert error.reproducer is not None
    assert error.reproducer.programs.endswith("the violation depends on Python code that inspects the arguments")
    assert error.reproducer.python is None


def test_untraceable_function_has_no_reproducer() -> None:
    def f(x: Any) -> Any:
        if fx.current().title == "jit":
            raise RuntimeError("no")
        return bind1(planted.WrongJvp(), x)

    error = law_error(lambda: jvp_is_the_derivative(f, X))
    assert error.reproducer is None
    assert str(error) == error.message


def test_programs_with_callables_are_reported_without_python() -> None:
    custom: Any = fx.custom_jvp(lambda x: x * 2)
    custom.defjvp(lambda primals, tangents: (primals[0] * 2, tangents[0] * 3))
    error = law_error(lambda: jvp_is_the_derivative(lambda x: fnp.sin(custom(x)), X))
    assert error.reproducer is not None
    assert "custom_jvp" in error.reproducer.programs
    assert error.reproducer.programs.endswith("which contains Python functions, so its text is incomplete")
    assert error.reproducer.python is None


def test_report_names_classes_that_cannot_be_imported() -> None:
    class Local(planted.WrongJvp):
        pass

    error = law_error(lambda: jvp_is_the_derivative(Local(), X))
    assert any(line.startswith("# ") and "Local of tests.laws.test_reports" in line for line in python_of(error))


def test_law_error_pickles_with_its_report() -> None:
    error = law_error(lambda: jvp_is_the_derivative(planted.WrongJvp(), X))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


# ------------------------------------------------------------------ generated programs shrink


def smallest(law: Law, cases: SearchStrategy[TransformedProgram]) -> LawError:
    """Returns the error for the smallest of the generated programs that break the law."""

    @settings(
        max_examples=300,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(cases)
    def run(case: TransformedProgram) -> None:
        with fx.disable_jit():
            law(case.function(fx, fnp), *[array(x, "float64") for x in case.inputs()], ulps=evolve(PROGRAM, least=1.0))

    return law_error(run)


def negated_jvp(self: Primitive, primals: Sequence[Value], tangents: Sequence[Tangent]) -> Any:
    return [bind1(self, *primals)], [fnp.negative(instantiate(tangents[0]))]


def batch_without_moving_the_axis(
    self: Primitive, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
) -> Any:
    return [bind1(self, *args)], dims


def negated_transpose(self: Mul, cts: Sequence[Tangent], *args: Any) -> Any:
    operand_cts = RIGHT_TRANSPOSE(self, cts, *args)
    return [None if ct is None else fnp.negative(instantiate(ct)) for ct in operand_cts]


RIGHT_TRANSPOSE: Final = Mul.transpose


def wrong_jvp(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tanh, "jvp", negated_jvp)


def wrong_batch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rev, "batch", batch_without_moving_the_axis)


def wrong_transpose(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Mul, "transpose", negated_transpose)


@pytest.mark.parametrize(
    ("plant", "law", "cases", "body"),
    sampled(
        [
            (wrong_jvp, jvp_is_the_derivative, transformed_programs(max_layers=1), "fnp.tanh(v0)"),
            (wrong_transpose, transpose_is_adjoint, transformed_programs(max_layers=1), "fnp.sin(v0)"),
            (wrong_jvp, jvp_is_the_derivative, transformed_control_flow_programs(max_layers=1), "fnp.tanh(v0)"),
            (wrong_transpose, transpose_is_adjoint, transformed_control_flow_programs(max_layers=1), "fnp.sin(v0)"),
        ],
        3,
    ),
)
def test_generated_program_shrinks_to_one_equation(
    plant: Callable[[pytest.MonkeyPatch], None],
    law: Law,
    cases: SearchStrategy[TransformedProgram],
    body: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    error = smallest(law, cases)
    lines = python_of(error)
    start = lines.index("def program(v0):  # ()")
    assert lines[start + 1 : start + 4] == [f"    v1 = {body}", "    return v1", ""]
    fails_again(error)


def test_generated_program_with_axes_shrinks_to_one_equation(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_batch(monkeypatch)
    error = smallest(vmap_is_a_loop, transformed_programs(max_steps=3, max_layers=1))
    lines = python_of(error)
    start = lines.index("def program(v0):  # (1,)")
    assert lines[start + 1 : start + 4] == ["    v1 = fnp.flip(v0, 0)", "    return v1", ""]
    fails_again(error)


# ------------------------------------------------------------------ user-defined laws


@law("twice as much in gives twice as much out")
def keeps_factors(self: Law, subject: Subject) -> None:
    doubled = subject.run(*[as_array(x) * 2.0 for x in subject.args])
    require_close(
        self, subject, doubled, [as_array(out) * 2.0 for out in subject.outs()], ("of twice as much", "twice")
    )


def test_report_of_a_user_defined_law_imports_it_from_its_module() -> None:
    keeps_factors(fnp.cumsum, X)
    error = law_error(lambda: keeps_factors(lambda x: fnp.cumsum(fnp.tanh(x)), X))
    lines = python_of(error)
    assert lines[1:3] == ["from tracefx.testing import array", f"from {__name__} import keeps_factors"]
    assert lines[-1].startswith("keeps_factors(program, array(")
    fails_again(error)
