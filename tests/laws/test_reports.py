"""What a broken law shows: the smallest program, as a jaxpr and as Python that breaks the law when it is run."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

import tracefx as fx
import tracefx.numpy as fnp
from tests.laws import test_planted as planted
from tracefx.core.primitive import MappedAxis, Primitive, Tangent
from tracefx.core.values import Value
from tracefx.extend import as_array, bind1, instantiate
from tracefx.ops.elementwise.arithmetic import Mul
from tracefx.ops.elementwise.transcendental import Tanh
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
from tracefx.testing.generated_programs import TransformedProgram
from tracefx.testing.strategies import transformed_control_flow_programs, transformed_programs
from tracefx.testing.tolerances import PROGRAM

X: Final = np.array([0.5, -1.0, 2.0], np.float32)
K: Final = np.array([0.5, 2.0], np.float32)


def broken(run: Callable[[], object]) -> LawError:
    with pytest.raises(LawError) as found:
        run()
    return found.value


def fails_again(error: LawError) -> LawError:
    """The Python of a report breaks the law that it reports, in a namespace of its own."""
    assert error.reproducer is not None
    python = error.reproducer.python
    assert python is not None, error
    again = broken(lambda: exec(compile(python, "<report>", "exec"), {}))
    assert again.message.split(": violated by")[0] == error.message.split(": violated by")[0]
    return again


def python_of(error: LawError) -> list[str]:
    assert error.reproducer is not None
    assert error.reproducer.python is not None
    return error.reproducer.python.splitlines()


# ------------------------------------------------------------------ a wrong rule somewhere in a model


def model(prim: Primitive) -> Callable[[Any, Any], Any]:
    """The operation among many, in the body of a loop, in a call."""

    def f(x: Any, k: Any) -> Any:
        def step(c: Any, k: Any) -> Any:
            return fnp.tanh(bind1(prim, fnp.sin(c)) * k), fnp.cos(c)

        c, ys = fx.lax.scan(step, x * 2, k)
        return fx.jit(lambda y: fnp.sum(y * c) + x)(ys)

    return f


def straight(prim: Primitive) -> Callable[[Any, Any], Any]:
    return lambda x, k: fnp.tanh(bind1(prim, fnp.sin(x)) * k[0]) + fnp.sum(k)


@pytest.mark.parametrize(
    ("prim", "law", "around"),
    [
        (planted.WrongJvp(), jvp_is_the_derivative, model),
        (planted.WrongTranspose(), transpose_is_adjoint, model),
        (planted.CotangentOfAnotherType(), transpose_is_adjoint, straight),
        (planted.WrongBatchAxis(), vmap_is_a_loop, straight),
        (planted.NoBatchAxis(), vmap_is_a_loop, straight),
        (planted.WeakBatch(), vmap_is_a_loop, lambda prim: lambda x, k: fnp.sin(bind1(prim, x))),
        (planted.OtherwiseCompiled(), jit_changes_nothing, straight),
        (planted.RecordedOtherwise(), linearize_is_jvp, straight),
        (planted.WrongJvpOfABatch(), vmap_commutes_with_jvp, straight),
        (planted.OtherwiseStaged(), jit_commutes_with_transforms, straight),
        (planted.WrongWeakType(), abstract_eval_matches_evaluation, lambda prim: lambda x, k: bind1(prim, fnp.sin(x))),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, Primitive) else None,
)
def test_a_wrong_rule_is_found_alone(prim: Primitive, law: Law, around: Callable[[Primitive], Any]) -> None:
    error = broken(lambda: law(around(prim), X, K))
    assert error.reproducer is not None
    weak = "*" if isinstance(prim, planted.WrongWeakType) else ""
    assert error.reproducer.programs == (
        f"the smallest program found that violates it:\n  {{ lambda ; a:f32[3]. let b:f32[3]{weak} = scale a in (b,) }}"
    )
    again = fails_again(error)
    assert again.reproducer == error.reproducer  # it is as small as it gets
    assert str(error) == f"{error.message}\n\n{error.reproducer}"


def test_a_report_in_full() -> None:
    error = broken(lambda: jvp_is_the_derivative(model(planted.WrongJvp()), X, K))
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


def test_several_operations_that_break_a_law_together() -> None:
    def f(x: Any) -> Any:
        y = fnp.sin(x) * 3
        return fnp.exp(bind1(planted.Times(2.0), y) - bind1(planted.Times(3.0), y)) + fnp.sum(y)

    error = broken(lambda: passes_change_nothing(f, X))
    assert error.reproducer is not None
    assert error.reproducer.programs.splitlines()[1:] == [
        "  { lambda ; a:f32[3]. let",
        "      b:f32[3] = scale[factor=2.0] a",
        "      c:f32[3] = scale[factor=3.0] a",
        "      d:f32[3] = sub b c",
        "    in (d,) }",
    ]
    fails_again(error)


def test_checks_of_their_own_are_what_the_python_calls() -> None:
    error = broken(lambda: check_grads(lambda x: fnp.exp(bind1(planted.FlatSine(), x)) * 2, X, order=2))
    assert "flat_sine" in str(error.reproducer)
    assert python_of(error)[-1] == (
        "check_grads(program, array([1.0, 1.0, 1.0], 'float32'), order=2, modes=('fwd', 'rev'))"
    )
    fails_again(error)
    error = broken(lambda: check_linear(lambda x: fnp.flip(x * x) + 2 * x, X))
    assert python_of(error)[-1] == "check_linear(program, array([1.0, 1.0, 1.0], 'float32'))"
    fails_again(error)


def test_tolerances_and_settings_are_in_the_python() -> None:
    error = broken(lambda: jit_changes_nothing(planted.OtherwiseCompiled(), X))
    assert python_of(error)[-1].endswith("'float32'), ulps=Ulps())")
    fails_again(error)
    with fx.enable_x64():
        error = broken(lambda: jvp_is_the_derivative(planted.WrongJvp(), np.ones(2)))
    assert python_of(error)[-2:] == [
        "with fx.enable_x64():",
        "    jvp_is_the_derivative(program, array([1.0, 1.0], 'float64'), ulps=Ulps())",
    ]
    fails_again(error)


# ------------------------------------------------------------------ where there is no Python, or no program


def test_what_depends_on_python_is_said_to() -> None:
    error = broken(lambda: jit_changes_nothing(planted.differs_when_traced, X))
    assert error.reproducer is not None
    assert error.reproducer.programs.endswith("the violation depends on Python code that inspects the arguments")
    assert error.reproducer.python is None


def test_what_can_not_be_traced_has_no_evidence() -> None:
    def f(x: Any) -> Any:
        if fx.current().title == "jit":
            raise RuntimeError("no")
        return bind1(planted.WrongJvp(), x)

    error = broken(lambda: jvp_is_the_derivative(f, X))
    assert error.reproducer is None
    assert str(error) == error.message


def test_programs_that_hold_functions_are_shown_without_python() -> None:
    custom: Any = fx.custom_jvp(lambda x: x * 2)
    custom.defjvp(lambda primals, tangents: (primals[0] * 2, tangents[0] * 3))
    error = broken(lambda: jvp_is_the_derivative(lambda x: fnp.sin(custom(x)), X))
    assert error.reproducer is not None
    assert "custom_jvp" in error.reproducer.programs
    assert error.reproducer.programs.endswith("which contains Python functions, so its text is incomplete")
    assert error.reproducer.python is None


def test_classes_that_can_not_be_imported_are_named() -> None:
    class Local(planted.WrongJvp):
        pass

    error = broken(lambda: jvp_is_the_derivative(Local(), X))
    assert any(line.startswith("# ") and "Local of tests.laws.test_reports" in line for line in python_of(error))


def test_reports_survive_pickling() -> None:
    error = broken(lambda: jvp_is_the_derivative(planted.WrongJvp(), X))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


# ------------------------------------------------------------------ generated programs shrink


def smallest(law: Law, cases: SearchStrategy[TransformedProgram]) -> LawError:
    """The error for the smallest of the programs that break a law."""

    @settings(max_examples=300, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(cases)
    def run(case: TransformedProgram) -> None:
        with fx.disable_jit():
            law(case.function(fx, fnp), *[array(x, "float64") for x in case.inputs()], ulps=evolve(PROGRAM, least=1.0))

    return broken(run)


def negated_jvp(self: Primitive, primals: Sequence[Value], tangents: Sequence[Tangent]) -> Any:
    return [bind1(self, *primals)], [fnp.negative(instantiate(tangents[0]))]


def unmoved(self: Primitive, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]) -> Any:
    return [bind1(self, *args)], dims


def negated_transpose(self: Mul, cts: Sequence[Tangent], *args: Any) -> Any:
    pulled = RIGHT_TRANSPOSE(self, cts, *args)
    return [None if ct is None else fnp.negative(instantiate(ct)) for ct in pulled]


RIGHT_TRANSPOSE: Final = Mul.transpose


def wrong_jvp(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tanh, "jvp", negated_jvp)


def wrong_batch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rev, "batch", unmoved)


def wrong_transpose(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Mul, "transpose", negated_transpose)


@pytest.mark.parametrize(
    ("plant", "law", "cases", "body"),
    [
        (wrong_jvp, jvp_is_the_derivative, transformed_programs(max_layers=1), "fnp.tanh(v0)"),
        (wrong_transpose, transpose_is_adjoint, transformed_programs(max_layers=1), "fnp.sin(v0)"),
        (wrong_jvp, jvp_is_the_derivative, transformed_control_flow_programs(max_layers=1), "fnp.tanh(v0)"),
        (wrong_transpose, transpose_is_adjoint, transformed_control_flow_programs(max_layers=1), "fnp.sin(v0)"),
    ],
)
def test_a_generated_program_shrinks(
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


def test_a_program_with_axes_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_batch(monkeypatch)
    error = smallest(vmap_is_a_loop, transformed_programs(max_steps=3, max_layers=1))
    lines = python_of(error)
    start = lines.index("def program(v0):  # (1,)")
    assert lines[start + 1 : start + 4] == ["    v1 = fnp.flip(v0, 0)", "    return v1", ""]
    fails_again(error)


# ------------------------------------------------------------------ a law of a user's


@law("twice as much in gives twice as much out")
def keeps_factors(self: Law, subject: Subject) -> None:
    doubled = subject.run(*[as_array(x) * 2.0 for x in subject.args])
    require_close(
        self, subject, doubled, [as_array(out) * 2.0 for out in subject.outs()], ("of twice as much", "twice")
    )


def test_the_report_of_a_law_of_ones_own_imports_it_from_where_it_is() -> None:
    keeps_factors(fnp.cumsum, X)
    error = broken(lambda: keeps_factors(lambda x: fnp.cumsum(fnp.tanh(x)), X))
    lines = python_of(error)
    assert lines[1:3] == ["from tracefx.testing import array", f"from {__name__} import keeps_factors"]
    assert lines[-1].startswith("keeps_factors(program, array(")
    fails_again(error)
