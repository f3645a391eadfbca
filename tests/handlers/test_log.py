"""`log`: logs primitives in execution order with source lines, types and values, also from compiled programs."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.errors import assert_errors, untyped
from tracefx import lax
from tracefx.control.call import Call
from tracefx.handlers import OperationInfo, Summary, log, operation_log
from tracefx.handlers.array_summary import format_array
from tracefx.handlers.instrumentation import Instrument
from tracefx.handlers.operation_log import _LogHooks
from tracefx.testing import HANDLER_LAWS, check_handler
from tracefx.transforms.handle import handle

XS: Final = np.array([0.5, 0.25, -1.5], np.float32)


@fx.jit
def layer(x: Any) -> Any:
    return fnp.tanh(x)


def network(x: Any) -> Any:
    y = layer(x)
    c, _ = lax.scan(lambda c, z: (c * z, None), y, np.array([2.0, 3.0], np.float32))
    return lax.cond(c > 0, fnp.exp, fnp.sin, c)


def step_body(x: Any) -> Any:
    return lax.while_loop(lambda c: c < 10.0, lambda c: c * 2.0, x)


class Lines:
    """A sink that stores the lines without their source locations."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> None:
        self.texts.append(text.partition("  (")[0])


def lines_of(f: Callable[..., Any], *args: Any, wrap: Callable[..., Any] = lambda f: f, **options: Any) -> list[str]:
    lines = Lines()
    wrap(log(f, sink=lines, **options))(*args)
    return lines.texts


TANH: Final = float(np.tanh(np.float32(0.5)))
EXPECTED: Final = [
    "jit(layer) (f32[])",
    f"  tanh f32[] -> f32[] = {TANH:.6g}",
    "scan of 2 steps (f32[], f32[2])",
    "  step 0",
    f"    mul f32[], f32[] -> f32[] = {2 * TANH:.6g}",
    "  step 1",
    f"    mul f32[], f32[] -> f32[] = {6 * TANH:.6g}",
    "gt f32[], f32[] -> bool[] = True",
    "convert_element_type bool[] -> i32[] = 1",
    "cond (i32[], f32[])",
    "  branch 1",
    f"    exp f32[] -> f32[] = {np.exp(np.float32(6 * TANH)):.6g}",
]


@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit, lambda f: fx.jit(fx.jit(f))], ids=["plain", "jit", "twice"])
def test_primitives_are_logged_in_order(wrap: Callable[..., Any]) -> None:
    assert lines_of(network, np.float32(0.5), wrap=wrap) == EXPECTED


def test_log_of_a_compiled_function() -> None:
    logged = lines_of(fx.jit(network), np.float32(0.5))
    assert logged == ["jit(network) (f32[2], f32[])", *["  " + line for line in EXPECTED]]


def test_log_does_not_change_results() -> None:
    logged_network, x = log(network, sink=Lines()), np.float32(0.5)
    assert logged_network(x) == network(x)
    assert fx.jit(logged_network)(x) == fx.jit(network)(x)
    assert fx.grad(logged_network)(x) == fx.grad(network)(x)
    assert fx.vmap(logged_network)(XS).tolist() == fx.vmap(network)(XS).tolist()
    assert fx.jvp(logged_network, (x,), (x,)) == fx.jvp(network, (x,), (x,))


def test_lines_have_source_locations() -> None:
    seen: list[str] = []
    log(network, sink=seen.append)(np.float32(0.5))
    _, first = inspect.getsourcelines(network)
    assert seen[0].endswith(f"test_log.py:{first + 1})")
    assert seen[1].endswith(f"test_log.py:{inspect.getsourcelines(layer.__wrapped__)[1] + 2})")
    assert seen[-1].endswith(f"test_log.py:{first + 3})")


def test_step_numbers_restart_in_every_run() -> None:
    f = fx.jit(log(step_body, sink=(lines := Lines())))
    for _ in range(2):
        lines.texts.clear()
        f(np.float32(4.0))
        assert lines.texts == [
            "while (f32[])",
            "  condition",
            "    lt f32[], f32[] -> bool[] = True",
            "  step 0",
            "    mul f32[], f32[] -> f32[] = 8",
            "  condition",
            "    lt f32[], f32[] -> bool[] = True",
            "  step 1",
            "    mul f32[], f32[] -> f32[] = 16",
            "  condition",
            "    lt f32[], f32[] -> bool[] = False",
        ]


def test_log_of_nested_loops() -> None:
    def f(x: Any) -> Any:
        return lax.fori_loop(0, 2, lambda i, x: lax.fori_loop(0, 2, lambda j, x: x + 1.0, x), x)

    steps = [line for line in lines_of(fx.jit(f), np.float32(0)) if "step " in line]
    assert steps == [f"{'  ' * n}step {i}" for n, i in [(2, 0), (4, 0), (4, 1), (2, 1), (4, 0), (4, 1)]]


def test_log_of_vmap() -> None:
    def f(x: Any) -> Any:
        return fnp.sin(x)

    each = [f"sin f32[] -> f32[] = {np.sin(x):.6g}" for x in XS]
    assert lines_of(f, XS, wrap=fx.vmap) == each
    assert lines_of(f, XS, wrap=lambda f: fx.jit(fx.vmap(f))) == each
    assert lines_of(fx.vmap(f), XS) == ["sin f32[3] -> f32[3] = [ 0.4794 0.2474 -0.9975]"]


def test_log_of_derivatives() -> None:
    def f(x: Any) -> Any:
        return fnp.sin(x)

    value, slope = np.sin(np.float32(0.5)), np.cos(np.float32(0.5))
    plain = f"sin f32[] -> f32[] = {value:.6g}"
    assert lines_of(f, np.float32(0.5), wrap=fx.grad) == [plain]
    assert lines_of(f, np.float32(0.5), wrap=lambda f: fx.jit(fx.grad(f))) == [plain]
    assert lines_of(fx.grad(f), np.float32(0.5))[:2] == [plain, f"cos f32[] -> f32[] = {slope:.6g}"]
    assert lines_of(fx.grad(fx.jit(f)), np.float32(0.5))[:3][1:] == [
        "  " + line for line in (plain, f"cos f32[] -> f32[] = {slope:.6g}")
    ]


def test_custom_rules_stay_in_force() -> None:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    f.defjvps(lambda t, ans, x: 7.0 * t)
    for g in (f, fx.jit(f)):
        lines = Lines()
        assert fx.grad(log(g, sink=lines))(0.5) == 7.0
        assert any("sin" in line for line in lines.texts)
        assert fx.vmap(fx.grad(log(g, sink=lines)))(XS).tolist() == [7.0] * 3
        assert log(fx.grad(g), sink=lines)(0.5) == 7.0


def test_checkpoint_logs_the_recomputation() -> None:
    f = fx.checkpoint(lambda x: fnp.sin(fnp.cos(x)))
    logged = lines_of(f, np.float32(0.5))
    assert [line.split()[0] for line in logged] == ["checkpoint", "cos", "sin"]
    assert [line.split()[0] for line in lines_of(f, np.float32(0.5), wrap=fx.grad)] == ["checkpoint", "cos", "sin"]


def test_where_selects_logged_primitives() -> None:
    filtered: list[OperationInfo] = []

    def is_exp(op: OperationInfo) -> bool:
        filtered.append(op)
        return op.name == "exp"

    for wrap in (lambda f: f, fx.jit):
        assert lines_of(network, np.float32(0.5), where=is_exp, wrap=wrap) == [EXPECTED[-1].strip()]
    exp = next(op for op in filtered if op.name == "exp" and op.results)
    assert (exp.file, exp.line > 0, exp.has_bodies) == (__file__, True, False)
    assert exp.enclosing_bodies == ("branch 1 of cond",)
    assert [str(a) for a in (*exp.operands, *exp.results)] == ["f32[]", "f32[]"]


def test_log_without_values() -> None:
    for wrap in (lambda f: f, fx.jit):
        logged = lines_of(network, np.float32(0.5), values=False, wrap=wrap)
        assert logged == [line.partition(" = ")[0] for line in EXPECTED]


def test_sinks_print_and_logging(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    log(fnp.sin)(np.float32(0))
    assert capsys.readouterr().out.startswith("sin f32[] -> f32[] = 0  (")
    with caplog.at_level(logging.INFO):
        log(fnp.sin, sink=logging.getLogger("numbers"))(np.float32(0))
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("numbers", "INFO")
    assert record.getMessage().startswith("sin f32[] -> f32[] = 0  (")


def test_exceptions_of_the_sink_propagate() -> None:
    def failing_sink(text: str) -> None:
        raise RuntimeError("enough")

    for f in (fnp.sin, fx.jit(fnp.sin)):
        with pytest.raises(RuntimeError, match="enough"):
            log(f, sink=failing_sink)(1.0)
    assert fnp.sin(np.float32(0)) == 0


def test_invalid_arguments_are_refused() -> None:
    assert_errors(
        (lambda: untyped(log)(3), TypeError, r"log takes a function, got 3"),
        (lambda: untyped(log)(fnp.sin, sink=3), TypeError, r"log: sink must be a function, got 3 of type int"),
        (
            lambda: untyped(log)(fnp.sin, where="sin"),
            TypeError,
            r"log: where must be a function, got 'sin' of type str",
        ),
    )


def test_nested_logs() -> None:
    outer, inner = Lines(), Lines()
    log(log(lambda x: fnp.sin(x) * 2.0, sink=inner), sink=outer)(np.float32(0))
    assert [line.split()[0] for line in inner.texts] == ["sin", "mul"]
    assert [line.split()[0] for line in outer.texts] == ["sin", "debug_callback", "mul", "debug_callback"]


def test_logged_function_pickles_and_keeps_its_name() -> None:
    logged_network = log(network)
    assert (logged_network.__name__, copy.copy(logged_network)) == ("network", logged_network)
    restored = pickle.loads(pickle.dumps(log(network, sink=print)))
    assert restored.__wrapped__ is network


def test_logged_functions_compile_once() -> None:
    loud = log(fx.jit(network), sink=Lines())
    first, second = [fx.make_jaxpr(loud)(np.float32(0.5)).eqns[-1].prim for _ in range(2)]
    assert isinstance(first, Call)
    assert isinstance(second, Call)
    assert first.jaxpr is second.jaxpr
    loud = log(lambda x: fnp.sin(x) * 2.0, sink=Lines())
    one, other = [fx.make_jaxpr(loud)(np.float32(0.5)).jaxpr for _ in range(2)]
    assert one == other


def test_log_obeys_the_handler_laws() -> None:
    watcher = _LogHooks(Lines(), None)
    assert check_handler(Instrument("log", watcher)).passed == tuple(law.name for law in HANDLER_LAWS)


# ------------------------------------------------------------------ text of arrays


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.float32(0.1), "0.1"),
        (np.int64(-3), "-3"),
        (np.bool_(True), "True"),
        (np.complex64(1 + 2j), "(1+2j)"),
        (ml_dtypes.bfloat16(0.5), "0.5"),
        (np.array([[1, 2], [3, 4]]), "[[1 2] [3 4]]"),
        (np.zeros((0, 3)), "empty"),
        (np.arange(10.0), "min=0 max=9 mean=4.5"),
        (np.arange(10, dtype=np.uint8), "min=0 max=9 mean=4.5"),
        (np.arange(10) > 6, "min=0 max=1 mean=0.3"),
        (np.array([np.nan] * 8), "nan=8"),
        (np.array([np.inf, np.nan, -np.inf, 1, 2, 3, 4, 5.0]), "min=1 max=5 mean=3 nan=1 inf=2"),
        (np.full(8, 3 + 4j), "min=5 max=5 mean=5"),
        (np.full(8, complex(np.nan, np.inf)), "nan=8"),
        (np.ones(8, ml_dtypes.bfloat16), "min=1 max=1 mean=1"),
        (np.ones(8, ml_dtypes.float8_e4m3fn), "min=1 max=1 mean=1"),
        (np.ones(8, ml_dtypes.int4), "min=1 max=1 mean=1"),
        (np.full(7, 2**63, np.uint64), "min=9.223e+18 max=9.223e+18 mean=9.223e+18"),
    ],
    ids=str,
)
def test_format_array(array: Any, text: str) -> None:
    assert format_array(np.asarray(array)) == text


def test_summaries_merge() -> None:
    a, b = np.array([1.0, np.nan, 2.0]), np.array([np.inf, 9.0])
    both = Summary.of(a) | Summary.of(b)
    assert both == Summary.of(np.concatenate([a, b]))
    assert both == Summary(5, 1, 1, 1.0, 9.0, 4.0)
    assert Summary.of(np.zeros(0)) | Summary.of(a) == Summary.of(a)
    assert (both.finite, Summary().text()) == (3, "empty")


def test_a_logged_function_keeps_a_bounded_number_of_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_log, "MAX_LINES", 16)
    hooks = _LogHooks(print, None)
    logged = handle(lambda x: x + 1, Instrument("log", hooks, True))
    for n in range(40):
        fx.make_jaxpr(logged)(np.zeros(n))
    assert len(hooks.callbacks) <= 16


def test_threads_have_separate_step_counters() -> None:
    lines: dict[int, list[str]] = {}
    both = threading.Barrier(2)

    def sink(text: str) -> None:
        mine = lines.setdefault(threading.get_ident(), [])
        mine.append(text.split("(")[0].strip())
        if text.strip().startswith("step"):
            both.wait(10)

    @functools.partial(log, sink=sink, where=lambda op: op.has_bodies, values=False)
    def f(x: Any) -> Any:
        c, _ = lax.scan(lambda c, z: (c * z, None), x, np.ones(3, np.float32))
        return lax.while_loop(lambda c: c < 3.0, lambda c: c + 1.0, c)

    def run(x: float) -> list[str]:
        f(x)
        return lines[threading.get_ident()]

    for _ in range(2):  # the second run uses the cached program of the first
        lines.clear()
        with ThreadPoolExecutor(2) as threads:
            logged = list(threads.map(run, [1.0, 1.0]))
        steps = [[line for line in each if line.startswith("step")] for each in logged]
        assert steps == [["step 0", "step 1", "step 2", "step 0", "step 1"]] * 2
