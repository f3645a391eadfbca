"""`explain`: reports the primitives of every source line, in eager and compiled programs."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import untyped
from tests.handlers.test_sowing import FORMS, VALUES
from tracefx import lax
from tracefx.handlers import ExplainedOperation, Explanation, explain
from tracefx.handlers.explanation import _ExplainHooks
from tracefx.handlers.instrumentation import Instrument
from tracefx.testing import HANDLER_LAWS, check_handler
from tracefx.testing.tolerances import ELEMENTARY, FINITE_DIFFERENCES

XS: Final = np.array([0.5, 0.25, -1.5], np.float32)


def network(x: Any) -> Any:
    y = fnp.tanh(x)
    c, _ = lax.scan(lambda c, z: (c * z, None), y, np.array([2.0, 3.0, -1.0], np.float32))
    return lax.cond(c[0] > 0, fnp.exp, fnp.sin, c)


def line_of(f: Callable[..., Any], offset: int) -> int:
    return inspect.getsourcelines(f)[1] + offset


def leaves(explanation: Explanation[Any]) -> list[ExplainedOperation]:
    return [op for op in explanation.operations if not op.has_bodies]


@pytest.mark.parametrize("form", FORMS)
def test_explain_lists_every_line_with_its_primitives(form: str) -> None:
    explanation = explain(FORMS[form](network))(XS)
    assert_near(explanation.out, network(XS))
    lines = {line.line: line for line in explanation.lines if any(not op.has_bodies for op in line.operations)}
    assert [n - line_of(network, 0) for n in lines] == [1, 2, 3]
    assert lines[line_of(network, 1)].text == "y = fnp.tanh(x)"
    assert {line.file for line in lines.values()} == {__file__}
    names = [op.name for op in leaves(explanation)]
    assert names == ["tanh", "mul", "slice", "squeeze", "gt", "convert_element_type", "sin", "exp"]
    tanh, mul, *_, sin, exp = leaves(explanation)
    assert [op.count for op in (tanh, mul, sin, exp)] == [1, 3, 1, 0]
    (value,) = tanh.values
    assert value is not None
    assert_near(value, np.tanh(XS), ELEMENTARY)
    (summary,) = mul.summaries
    steps = np.tanh(XS)[None] * np.array([2.0, 6.0, -6.0])[:, None]
    assert summary.min is not None
    assert summary.max is not None
    assert summary.mean is not None
    assert_near(summary.min, steps.min(), FINITE_DIFFERENCES)
    assert_near(summary.max, steps.max(), FINITE_DIFFERENCES)
    assert_near(summary.mean, steps.mean(), FINITE_DIFFERENCES)
    (last,) = mul.values
    assert last is not None
    assert_near(last, steps[-1], ELEMENTARY)
    assert mul.enclosing_bodies[-1] == "a step of scan"
    assert exp.enclosing_bodies[-1] == "branch 1 of cond"
    assert (exp.summaries, exp.values) == ((), ())


def test_library_functions_are_located_at_the_calling_line() -> None:
    def first(x: Any) -> Any:
        return lax.cond(x[0] > 0, fnp.cbrt, fnp.log1p, x)

    def second(x: Any) -> Any:
        return lax.cond(x[0] > 0, fnp.cbrt, fnp.log1p, x)

    for f in (first, second):
        explanation = explain(f)(XS).first(lambda op: op.name == "cbrt")
        assert explanation is not None
        assert explanation.location.line == line_of(f, 1)


def test_higher_order_primitives_precede_their_bodies() -> None:
    explanation = explain(fx.jit(network))(XS)
    names = [op.name for op in explanation.operations]
    assert names[0] == "jit(network)"
    assert names.index("scan") < names.index("mul")
    assert names.index("cond") < names.index("sin")
    scan = explanation.operations[names.index("scan")]
    assert scan.count == 1
    assert_near(np.asarray(scan.values[0]), np.tanh(XS) * -6, ELEMENTARY)


def test_first_nan_is_located() -> None:
    def f(x: Any) -> Any:
        y = fnp.sqrt(x - 1)
        z = y * 2
        return lax.map(lambda z: z + 1, z)

    for form in FORMS.values():
        explanation = explain(form(f))(np.array([2.0, 0.5], np.float32))
        first = explanation.first(lambda op: op.has_nan)
        assert first is not None
        assert (first.name, first.nans, first.location.line) == ("sqrt", 1, line_of(f, 1))
        assert [op.name for op in explanation.where(lambda op: op.has_nan) if not op.has_bodies] == [
            "sqrt",
            "mul",
            "add",
        ]
        assert explanation.first(lambda op: op.has_inf) is None


def test_first_nan_of_a_loop_is_located_in_the_step_that_made_it() -> None:
    def step(c: Any, x: Any) -> Any:
        halved = c * 0.5  # has the NaN of the step before
        return halved + fnp.sqrt(x), fnp.log(halved)

    xs = fnp.array([1.0, 4.0, -1.0, 9.0])

    def by_while(xs: Any) -> Any:
        return lax.fori_loop(0, len(xs), lambda i, c: step(c, xs[i])[0], np.float32(0))

    def nested(xs: Any) -> Any:
        return lax.fori_loop(0, 2, lambda i, c: lax.scan(step, c, xs + 1 - i)[0], np.float32(0))

    for form in FORMS.values():
        for f, run in ((lambda xs: lax.scan(step, np.float32(0), xs), 2), (by_while, 2), (nested, 6)):
            report = explain(form(f))(xs)
            first = report.first(lambda op: op.has_nan)
            assert first is not None
            assert (first.name, first.first_nan_run, first.first_inf_run) == ("sqrt", run, None)
            assert first.nans >= 1
    (log,) = [op for op in explain(lambda xs: lax.scan(step, np.float32(0), xs))(xs).operations if op.name == "log"]
    assert (log.first_inf_run, log.first_nan_run, log.count) == (0, 3, 4)


def test_conditions_that_are_not_functions_are_refused() -> None:
    report = explain(fnp.sin)(0.5)
    with pytest.raises(TypeError, match=r"Explanation.first takes a function, got 'sin' of type str"):
        untyped(report.first)("sin")
    with pytest.raises(TypeError, match=r"Explanation.where takes a function, got True of type bool"):
        untyped(report.where)(True)


def test_report_as_the_output_of_a_transformed_function_is_named_in_one_line() -> None:
    for transform in (fx.jit, fx.vmap, fx.grad):
        with pytest.raises(TypeError) as failure:
            transform(explain(fnp.sum))(fnp.ones((2, 3)))
        assert str(failure.value).endswith("got an object of type Explanation")


def test_operations_of_branches_that_do_not_run_are_found_last() -> None:
    def f(x: Any) -> Any:
        y = lax.cond(x[0] > 9, fnp.exp, lambda x: x + 1, x)
        return fnp.exp(y)

    first = explain(f)(XS).first(lambda op: op.name == "exp")
    assert first is not None
    assert (first.count, first.location.line) == (1, line_of(f, 2))
    only = explain(f)(XS).first(lambda op: op.name == "exp" and not op.count)
    assert only is not None
    assert only.location.line == line_of(f, 1)


def test_inf_in_the_backward_pass_is_located() -> None:
    def f(x: Any) -> Any:
        return fnp.sqrt(x).sum()

    for g in (fx.grad(f), fx.jit(fx.grad(f)), fx.grad(fx.jit(f))):
        explanation = explain(g)(np.array([4.0, 0.0], np.float32))
        first = explanation.first(lambda op: op.has_inf)
        assert first is not None
        assert first.location.line == line_of(f, 1)


def test_first_primitive_with_a_dtype_is_located() -> None:
    def f(x: Any) -> Any:
        y = x + 1
        z = y * np.float64(2)
        return z

    with fx.enable_x64(True):
        first = explain(f)(fnp.asarray(XS)).first(lambda op: np.float64 in op.dtypes)
    assert first is not None
    assert first.location.line == line_of(f, 2)


def test_first_broadcast_is_located() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return y + y[:, None]

    first = explain(f)(fnp.asarray(XS)).first(lambda op: op.broadcasts)
    assert first is not None
    assert (first.location.line, first.results[0].shape) == (line_of(f, 2), (3, 3))


def test_explain_of_vmap_shows_batched_arrays() -> None:
    explanation = explain(fx.vmap(fnp.sin))(XS)
    (sin,) = explanation.operations
    assert str(sin) == "sin f32[3] -> f32[3]  [ 0.4794 0.2474 -0.9975]"


def test_explain_inside_grad_shows_the_forward_pass() -> None:
    explanation: list[Explanation[Any]] = []

    def f(x: Any) -> Any:
        explanation.append(explain(network)(x))
        return explanation[-1].out.sum()

    slopes = fx.grad(f)(XS)
    assert_near(np.asarray(slopes), np.asarray(fx.grad(lambda x: network(x).sum())(XS)), ELEMENTARY)
    assert [op.name for op in leaves(explanation[0])] == [op.name for op in leaves(explain(network)(XS))]
    assert leaves(explanation[0])[0].count == 1


def test_explain_inside_jit_shows_only_types() -> None:
    explanation: list[Explanation[Any]] = []

    @fx.jit
    def f(x: Any) -> Any:
        explanation.append(explain(network)(x))
        return explanation[-1].out

    assert_near(f(XS), network(XS))
    tanh = explanation[0].operations[0]
    assert (tanh.name, tanh.count, tanh.values, str(tanh)) == ("tanh", 0, (), "tanh f32[3] -> f32[3]  not run")


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_explain_accepts_any_pytree_and_dtype(value: Any) -> None:
    def f(tree: Any) -> Any:
        return fx.tree.map(lambda x: fnp.stack([x, x]), tree)

    for form in FORMS.values():
        explanation = explain(form(f))(value)
        assert fx.tree.structure(explanation.out) == fx.tree.structure(value)
        assert str(explanation)
        assert all(op.count == 1 for op in explanation.operations)


def test_explain_obeys_the_handler_laws() -> None:
    laws = [
        law for law in HANDLER_LAWS if law.name != "satisfies_function_laws"
    ]  # each call of explain has its own callbacks
    report = check_handler(Instrument("explain", _ExplainHooks(3)), laws=laws)
    assert report.passed == tuple(law.name for law in laws)


def test_explained_function_pickles_and_keeps_its_name() -> None:
    restored = pickle.loads(pickle.dumps(explain(network, keep=3)))
    assert restored(XS).operations[0].name == "tanh"
    assert restored.__name__ == "network"


def test_keep_limits_the_size_of_stored_values() -> None:
    explanation = explain(lambda x: fnp.add(x, 1), keep=2)(XS)
    assert explanation.operations[-1].values == (None,)
    assert explanation.operations[-1].summaries[0].max == 1.5
    with pytest.raises(TypeError, match=r"explain: keep must be a number of elements, got 1.5 of type float"):
        untyped(explain)(network, keep=1.5)
    with pytest.raises(ValueError, match=r"explain: keep must be a number of elements, got -1"):
        explain(network, keep=-1)
    with pytest.raises(TypeError, match=r"explain takes a function, got 3"):
        untyped(explain)(3)


def test_text_of_an_explanation() -> None:
    text = str(explain(fx.jit(network))(XS))
    assert "y = fnp.tanh(x)\n" in text
    assert "tanh f32[3] -> f32[3]  [ 0.4621 0.2449 -0.9051]" in text
    assert "mul f32[3], f32[] -> f32[3]  3 times min=-5.431 max=5.431 mean=" in text
    assert "exp f32[3] -> f32[3]  not run" in text
    assert str(explain(lambda: 3)()) == repr(explain(lambda: 3)()) == "no operations"


def test_custom_rules_stay_in_force() -> None:
    @fx.custom_vjp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    f.defvjp(lambda x: (f(x), None), lambda _, ct: (ct * 7.0,))
    for g in (f, fx.jit(f)):
        assert fx.grad(lambda x, g=g: explain(g)(x).out)(0.5) == 7.0
        assert explain(fx.grad(g))(0.5).out == 7.0
        assert "sin" in [op.name for op in explain(g)(0.5).operations]
