"""Host callbacks: their arguments, results, number and order of calls, and exceptions."""

from __future__ import annotations

import functools
import gc
import threading
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.control.libraries import JAX, TRACEFX, Library
from tests.errors import assert_errors
from tracefx.passes.cse import cse
from tracefx.passes.dce import dce
from tracefx.transforms.conditionals import cond
from tracefx.transforms.loops import while_loop
from tracefx.transforms.scans import scan

jax.config.update("jax_explicit_x64_dtypes", "allow")


def recording(log: list[Any], factor: float = 1) -> Callable[[Any], Any]:
    """Returns a function that multiplies by `factor` and appends its argument to `log`."""

    def record(x: Any) -> Any:
        log.append(float(x))
        return x * factor

    return record


def shape(*dims: int, dtype: str = "float32") -> fx.ShapeDtypeStruct:
    return fx.ShapeDtypeStruct(dims, dtype)


# ------------------------------------------------------------------ ordered callbacks


def test_ordered_callbacks_run_in_program_order_across_control_flow() -> None:
    log: list[Any] = []

    def note(name: str) -> Callable[[Any], None]:
        return lambda x: log.append((name, float(x)))

    def branch(name: str) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            fx.io_callback(note(name), None, x, ordered=True)
            return x + 10

        return f

    def step(c: Any, x: Any) -> tuple[Any, Any]:
        c = cond(x % 2 == 0, branch("even"), branch("odd"), c)
        fx.debug.callback(note("step"), c, ordered=True)
        return c, x

    def more(c: Any) -> Any:
        fx.io_callback(note("more"), None, c, ordered=True)
        return c < 40

    def program(x: Any) -> Any:
        fx.io_callback(note("first"), None, x, ordered=True)
        c, _ = scan(step, x, fnp.arange(2))
        c = fx.jit(branch("called"))(c)
        c = while_loop(more, branch("round"), c)
        fx.debug.callback(note("last"), c, ordered=True)
        return c

    want = [("first", 0), ("even", 0), ("step", 10), ("odd", 10), ("step", 20), ("called", 20), ("more", 30)]
    want += [("round", 30), ("more", 40), ("last", 40)]
    for f in (program, fx.jit(program)):
        log.clear()
        assert float(f(fnp.float32(0))) == 40
        assert log == want


def test_token_is_threaded_through_every_call_of_a_shared_jaxpr() -> None:
    log: list[float] = []

    @fx.jit
    def shared(x: Any) -> Any:
        fx.io_callback(lambda v: log.append(float(v)), None, x, ordered=True)
        return x + 1

    fx.jit(lambda x: shared(shared(shared(x))))(0.0)
    assert log == [0, 1, 2]


def test_callbacks_have_finished_when_the_program_returns() -> None:
    log: list[int] = []
    done = threading.Event()

    def slowly(x: Any) -> None:
        done.wait(0.05)
        log.append(int(x))

    f = fx.jit(lambda x: fx.debug.callback(slowly, x))
    for i in range(3):
        f(i)
        fx.effects_barrier()
        assert log == list(range(i + 1))


def test_exception_in_a_callback_ends_the_program() -> None:
    log: list[int] = []

    def note(x: Any) -> None:
        log.append(int(x))
        if x == 2:
            raise StopIteration(int(x))

    def step(c: Any, x: Any) -> tuple[Any, None]:
        fx.io_callback(note, None, x, ordered=True)
        return c + x, None

    for f in (scan, fx.jit(scan, static_argnums=0)):
        log.clear()
        with pytest.raises(StopIteration, match="2"):
            f(step, fnp.int32(0), fnp.arange(5))
        assert log == [0, 1, 2]


# ------------------------------------------------------------------ number of calls


def test_passes_keep_effectful_callbacks_and_merge_pure_ones() -> None:
    result = shape()

    def f(x: Any) -> Any:
        fx.io_callback(np.sin, result, x)
        fx.io_callback(np.sin, result, x)
        fx.debug.callback(np.sin, x)
        fx.debug.callback(np.sin, x)
        fx.pure_callback(np.cos, result, x)
        return fx.pure_callback(np.sin, result, x) + fx.pure_callback(np.sin, result, x)

    jaxpr = fx.make_jaxpr(f)(1.0).jaxpr
    fx.check_jaxpr(jaxpr)
    observable = ["io_callback", "io_callback", "debug_callback", "debug_callback"]
    assert [e.prim.name for e in dce(jaxpr).eqns] == [*observable, "pure_callback", "pure_callback", "add"]
    assert [e.prim.name for e in cse(dce(jaxpr)).eqns] == [*observable, "pure_callback", "add"]
    assert {str(e) for e in jaxpr.effects} == {"IO", "Debug"}


def test_pure_callback_with_unused_result_is_not_called() -> None:
    calls: list[object] = []
    f = fx.jit(lambda x: (fx.pure_callback(recording(calls), shape(), x), x + 1)[1])
    assert f(1.0) == 2
    assert calls == []


def test_callback_on_known_values_runs_once_in_linearize_and_not_in_the_linear_part() -> None:
    log: list[float] = []

    def f(x: Any, y: Any) -> Any:
        return fx.io_callback(recording(log), shape(), x, ordered=True) * y

    for g in (f, fx.jit(f)):
        log.clear()
        of_y = functools.partial(g, fnp.float32(3))
        out, linear = fx.linearize(of_y, fnp.float32(2))
        assert float(out) == 6
        assert log == [3]
        assert float(linear(fnp.float32(1))) == float(linear(fnp.float32(1))) == 3
        _, pull = fx.vjp(of_y, fnp.float32(2))
        assert float(pull(fnp.float32(1))[0]) == 3
        assert log == [3, 3]


# ------------------------------------------------------------------ results


METHODS: Final = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("method", METHODS)
def test_vmap_of_pure_callback_agrees_with_jax(method: str, compiled: bool) -> None:
    def run(m: Library) -> tuple[Any, list[Any]]:
        seen: list[Any] = []

        def add(x: Any, y: Any) -> Any:
            seen.append((np.shape(x), np.shape(y)))
            return np.asarray(x) + np.asarray(y) if method != "legacy_vectorized" else np.asarray(x) + 1

        def f(x: Any, y: Any) -> Any:
            return m.top.pure_callback(add, m.top.ShapeDtypeStruct((2,), np.float32), x, y, vmap_method=method)

        batched = m.top.vmap(f, in_axes=(1, None))
        out = (m.top.jit(batched) if compiled else batched)(m.np.arange(6.0).reshape(2, 3), m.np.ones(2))
        return np.asarray(out).tolist(), seen

    assert run(TRACEFX) == run(JAX)


def test_vmap_of_vmap_calls_the_callback_for_each_element() -> None:
    def f(x: Any, y: Any, z: Any) -> Any:
        return fx.pure_callback(lambda x, y, z: x * 100 + y * 10 + z, shape(), x, y, z, vmap_method="sequential")

    x, y, z = fnp.arange(2.0), fnp.arange(6.0).reshape(2, 3), fnp.float32(5)
    batched = fx.vmap(fx.vmap(f, in_axes=(None, 0, None)), in_axes=(0, 0, None))
    want = np.asarray(x)[:, None] * 100 + np.asarray(y) * 10 + 5
    assert np.array_equal(batched(x, y, z), want)
    assert np.array_equal(fx.jit(batched)(x, y, z), want)
    assert fx.vmap(f, in_axes=(0, None, None))(fnp.zeros(0), 1.0, 1.0).shape == (0,)


def test_vmap_of_effectful_callbacks() -> None:
    seen: list[float] = []
    f = fx.vmap(lambda x: fx.io_callback(recording(seen, 2), shape(), x))
    for g in (f, fx.jit(f)):
        seen.clear()
        assert np.array_equal(g(fnp.arange(3.0)), [0, 2, 4])
        assert sorted(seen) == [0, 1, 2]
    with pytest.raises(ValueError, match="have no order"):
        fx.vmap(lambda x: fx.io_callback(np.sin, shape(), x, ordered=True))(fnp.ones(3))
    with pytest.raises(NotImplementedError, match="vmap_method"):
        fx.vmap(lambda x: fx.pure_callback(np.sin, shape(), x))(fnp.ones(3))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    ("result", "wanted", "message"),
    [
        (lambda x: x[:2], shape(3), r"is float32\[2\], but result_shape_dtypes is float32\[3\]"),
        (lambda x: {"a": x}, {"a": shape(3, dtype="int32")}, r"at \['a'\] is float32.*dtypes\['a'\] is int32\[3\]"),
        (lambda x: (x, x), [shape(3)], "is a tuple of length 2, but result_shape_dtypes is a list of length 1"),
        (lambda x: None, shape(3), "is None, but result_shape_dtypes is a leaf"),
        (lambda x: 1, shape(), r"is int64\[\], but result_shape_dtypes is float32\[\]"),
        (lambda x: "text", shape(), r"result_shape_dtypes is float32\[\]"),
    ],
)
def test_results_of_the_wrong_type_are_rejected(
    result: Callable[[Any], Any], wanted: Any, message: str, compiled: bool
) -> None:
    def f(x: Any) -> Any:
        return fx.pure_callback(result, wanted, x)

    with pytest.raises(TypeError, match=f"pure_callback: the result of .*<lambda>.*{message}"):
        (fx.jit(f) if compiled else f)(fnp.ones(3))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_python_results_are_converted(compiled: bool) -> None:
    def f(x: Any) -> Any:
        return fx.pure_callback(
            lambda x: (np.float64(x), 1, 1.5, {"a": np.asarray(x)[None], "b": [x, None]}),
            (shape(), shape(dtype="int16"), shape(dtype="bfloat16"), {"a": shape(1), "b": [shape(), None]}),
            x,
        )

    out = (fx.jit(f) if compiled else f)(fnp.float32(2))
    leaves: list[Any] = fx.tree.leaves(out)
    assert [str(leaf.aval) for leaf in leaves] == ["f32[]", "i16[]", "bf16[]", "f32[1]", "f32[]"]
    assert [float(leaf.sum()) for leaf in leaves] == [2, 1, 1.5, 2, 2]


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int4", "bfloat16", "float16", "float8_e4m3fn", "complex64"]
)
def test_dtypes_round_trip(dtype: str) -> None:
    x = fnp.asarray([0, 1, 1]).astype(dtype)

    def f(x: Any) -> Any:
        return fx.pure_callback(lambda x: x, shape(3, dtype=dtype), x)

    for g in (f, fx.jit(f)):
        assert g(x).dtype == x.dtype
        assert np.array_equal(np.asarray(g(x)), np.asarray(x))


def test_empty_shapes_and_no_arguments() -> None:
    empty = fx.jit(lambda x: fx.pure_callback(lambda x: np.zeros((0, 3), np.float32), shape(0, 3), x))
    assert empty(fnp.zeros((3, 0))).shape == (0, 3)
    assert fx.jit(lambda: fx.io_callback(lambda: np.float32(3), shape()))() == 3


# ------------------------------------------------------------------ context of the callback


def test_callbacks_get_concrete_copies_outside_all_transformations() -> None:
    seen: list[Any] = []

    def look(x: Any) -> Any:
        seen.append((x, type(x), fx.current()))
        return fx.jit(lambda x: x * 2)(x)

    def f(x: Any) -> Any:
        return fx.pure_callback(look, shape(3), x + 1)

    def product(g: Callable[[Any], Any], y: Any) -> Any:
        return g(x) * y

    x = fnp.arange(3.0)
    for g in (f, fx.jit(f)):
        seen.clear()
        out, _ = fx.jvp(functools.partial(product, g), (1.0,), (1.0,))
        assert np.array_equal(out, [2, 4, 6])
        for _ in range(3):
            g(x * 7)
        argument, kind, handler = seen[0]
        assert np.array_equal(argument, [1, 2, 3])
        assert kind is type(x)
        assert handler is fx.current()


def test_large_operands_and_compiled_programs_inside_callbacks() -> None:
    inner = fx.jit(lambda x: x @ x)
    x = fnp.full((300, 300), 1 / 256)
    f = fx.jit(lambda x: fx.pure_callback(lambda x: inner(x), shape(300, 300), inner(x)) + x)
    assert np.array_equal(f(x), np.full((300, 300), 300**3 / 256**4 + 1 / 256))


def test_callbacks_run_with_the_settings_of_their_trace() -> None:
    seen: list[Any] = []

    def look(x: Any) -> Any:
        seen.append(fnp.asarray(np.ones(2)).dtype)
        return np.asarray(x)

    def f(x: Any) -> Any:
        return fx.pure_callback(look, shape(dtype="float64"), x)

    with fx.enable_x64():
        (eqn,) = fx.make_jaxpr(f)(np.float64(1)).eqns
        x = fnp.asarray(1.0)
        assert fx.jit(f)(x).dtype == np.float64
    # XLA may call from another thread, in which the setting was never made.
    thread = threading.Thread(target=lambda: eqn.prim.evaluate([x]))
    thread.start()
    thread.join()
    assert seen == [np.float64, np.float64]
    fx.jit(lambda x: fx.pure_callback(look, shape(), x))(1.0)
    assert seen == [np.float64, np.float64, np.float32]


# ------------------------------------------------------------------ derivatives


def test_differentiating_a_callback_is_an_error() -> None:
    for function in (fx.pure_callback, fx.io_callback):
        for transform in (fx.grad, lambda f: fx.jit(fx.grad(f)), lambda f: lambda x: fx.jvp(fx.jit(f), (x,), (x,))):
            with pytest.raises(ValueError, match="custom_jvp"):
                transform(lambda x, function=function: function(np.sin, shape(), x))(1.0)
        assert fx.grad(lambda x, function=function: function(np.sin, shape(), 0.5) * x)(1.0) == np.sin(np.float32(0.5))


# ------------------------------------------------------------------ exceptions


class Trouble(Exception):
    pass


def raising(error: BaseException) -> Callable[[Any], Any]:
    def troubled(x: Any) -> Any:
        raise error

    return troubled


CALLS: Final[dict[str, Callable[[Callable[[Any], Any], Any], Any]]] = {
    "pure": lambda f, x: fx.pure_callback(f, shape(), x),
    "io": lambda f, x: fx.io_callback(f, shape(), x),
    "ordered io": lambda f, x: fx.io_callback(f, shape(), x, ordered=True),
    "debug": lambda f, x: fx.debug.callback(f, x),
    "ordered debug": lambda f, x: fx.debug.callback(f, x, ordered=True),
}


@pytest.mark.parametrize("error", [Trouble("in person"), KeyError("k"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("call", CALLS)
def test_the_exception_object_is_propagated_with_its_traceback(call: str, error: BaseException) -> None:
    def f(x: Any) -> Any:
        return CALLS[call](raising(error), x)

    x = fnp.ones(1)
    for g in (lambda x: f(x[0]), fx.jit(lambda x: f(x[0])), fx.jit(lambda x: scan(lambda c, x: (c, f(x)), 0, x))):
        with pytest.raises(type(error)) as caught:
            g(x)
        assert caught.value is error
        assert caught.value.__context__ is None
        assert "troubled" in [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_exception_cause_is_preserved() -> None:
    cause = Trouble("the cause")

    def troubled(x: Any) -> Any:
        raise KeyError("the effect") from cause

    with pytest.raises(KeyError) as caught:
        fx.jit(lambda x: fx.pure_callback(troubled, shape(), x))(1.0)
    assert caught.value.__cause__ is cause


def test_concurrent_executions_get_their_own_exceptions() -> None:
    wrong: list[object] = []

    def troubled(x: Any) -> Any:
        raise Trouble(int(x))

    f = fx.jit(lambda x: fx.pure_callback(troubled, shape(dtype="int32"), x))
    f_ok = fx.jit(lambda x: fx.pure_callback(lambda x: x, shape(dtype="int32"), x))
    start = threading.Barrier(4)

    def work(k: int) -> None:
        start.wait()
        for i in range(50):
            n = 1000 * k + i
            try:
                f(fnp.int32(n))
                wrong.append("nothing raised")
            except Trouble as error:
                if error.args != (n,):
                    wrong.append((n, error.args))
            if int(f_ok(fnp.int32(n))) != n:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_program_can_run_again_after_an_exception() -> None:
    def picky(x: Any) -> Any:
        if x > 1:
            raise Trouble
        return x

    f = fx.jit(lambda x: fx.pure_callback(picky, shape(), x))
    for _ in range(2):
        with pytest.raises(Trouble):
            f(2.0)
        assert f(1.0) == 1


# ------------------------------------------------------------------ lifetime and caching


def test_callbacks_are_freed_with_their_program() -> None:
    class Captured:
        pass

    def make_program() -> tuple[Any, weakref.ref[Captured]]:
        captured = Captured()
        return fx.jit(lambda x: fx.pure_callback(lambda x: (captured, x)[1], shape(), x)), weakref.ref(captured)

    f, captured = make_program()
    assert f(1.0) == 1
    gc.collect()
    assert captured() is not None
    del f
    gc.collect()
    assert captured() is None


def test_programs_with_callbacks_are_not_cached_on_disk(tmp_path: Path) -> None:
    with fx.compilation_cache(tmp_path):
        fx.jit(lambda x: fx.debug.print("{}", x))(1.0)
        fx.jit(lambda x: fx.pure_callback(np.sin, shape(), x))(1.0)
        fx.jit(lambda x: fx.pure_callback(np.cos, shape(), x))(1.0)
    assert list(tmp_path.iterdir()) == []


def test_equal_programs_call_their_own_callbacks() -> None:
    def make_program(n: int) -> Any:
        return fx.jit(lambda x: fx.pure_callback(lambda x: x + n, shape(), x))

    assert [float(make_program(n)(0.0)) for n in range(3)] == [0, 1, 2]


# ------------------------------------------------------------------ invalid arguments


PURE: Final[Any] = fx.pure_callback
IO: Final[Any] = fx.io_callback
CALLBACK: Final[Any] = fx.debug.callback
PRINT: Final[Any] = fx.debug.print


def test_invalid_arguments_are_rejected() -> None:
    assert_errors(
        (lambda: PURE(3, shape(), 1.0), TypeError, "takes a function"),
        (lambda: IO(np.sin, "text", 1.0), TypeError, "io_callback: result_shape_dtypes"),
        (lambda: IO(np.sin, shape(), "text"), TypeError, r"io_callback: arguments\[0\]\[0\]"),
        (lambda: PURE(np.sin, shape(), 1.0, vmap_method="fast"), ValueError, "sequential.*got 'fast'"),
        (lambda: PURE(np.sin, shape(), 1.0, sharding="here"), NotImplementedError, "sharding"),
        (lambda: IO(np.sin, shape(), 1.0, ordered=1), TypeError, "ordered must be True or False"),
        (lambda: CALLBACK(3), TypeError, "takes a function"),
        (lambda: PRINT("", ordered=None), TypeError, "ordered must be True or False"),
    )
