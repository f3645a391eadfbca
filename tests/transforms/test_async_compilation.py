"""`jit(async_compile=True)`: calls before the program is compiled are interpreted, and behave as later ones."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import pytest
from attrs import field, frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tests.primitives import SameTypes
from tests.subprocesses import output_of
from tracefx.errors import CompilationError, DeletedArrayError, DonationError
from tracefx.extend import Builder, IrValue, Lowerable, bind1
from tracefx.testing.tolerances import SUMMED
from tracefx.transforms import async_compilation
from tracefx.transforms.async_compilation import THREAD_NAME
from tracefx.xla import interpretation

X: Final = np.array([0.5, -1.5, 2.0], np.float32)
INVALID: Final = {"xla_no_such_option": True}


@final
@frozen(eq=False)
class Compilations:
    """Compilations in threads, which wait until `finish` is called."""

    may_run: threading.Event = field(factory=threading.Event)

    def finish(self) -> None:
        """Lets all compilations run, and waits until they have ended."""
        self.may_run.set()
        for thread in threading.enumerate():
            if thread.name == THREAD_NAME:
                thread.join()


@pytest.fixture(name="compilations")
def waiting_compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compilations]:
    compilations, run = Compilations(), async_compilation._Compilation.__call__

    def run_later(compilation: async_compilation._Compilation) -> None:
        compilations.may_run.wait()
        run(compilation)

    monkeypatch.setattr(async_compilation, "HEAD_START", 0.0)
    monkeypatch.setattr(async_compilation._Compilation, "__call__", run_later)
    yield compilations
    compilations.finish()


def is_compiled(f: Any) -> bool:
    """Whether calls take the fast path, to a compiled program."""
    return len(f._recent) > 0


def test_calls_are_interpreted_until_the_program_is_compiled(compilations: Compilations) -> None:
    f = fx.jit(lambda x, y: {"a": fnp.sin(x) @ y, "b": fnp.where(x > 0, x, y)}, async_compile=True)
    expected = fx.jit(f.__wrapped__)(X, X + 1)
    for _ in range(3):
        assert_same(f(X, X + 1), expected, SUMMED)
        assert not is_compiled(f)
    compilations.finish()
    for _ in range(3):
        assert_same(f(X, X + 1), expected, SUMMED)
        assert is_compiled(f)


def test_the_compilation_begins_without_a_second_call() -> None:
    f = fx.jit(lambda x: x * 2, async_compile=True)
    f(X)
    Compilations().finish()
    f(X)
    assert is_compiled(f)


OUTPUTS: Final[dict[str, Callable[[Any], Any]]] = {
    "inputs": lambda x: (x, x + 1, x),
    "literals": lambda x: (1.0, x, np.float32(2)),
    "the same value": lambda x: [x * 2] * 2 + [fnp.sin(x)],
    "weak types": lambda x: (fnp.sum(x) * 0 + 1, 2 * 3.0, fnp.full((), 3)),
    "views": lambda x: (x[None], x.reshape(3, 1), x[::-1], fnp.transpose(x), x.astype(np.float32)),
    "identities": lambda x: (fx.lax.optimization_barrier(x), fx.checkpoint_name(x, "x")),
    "nothing": lambda x: (),
    "loops": lambda x: fx.lax.fori_loop(0, 5, lambda i, y: y * x, x),
    "branches": lambda x: fx.lax.cond(x[0] > 0, fnp.sin, fnp.cos, x),
    "random numbers": lambda x: fx.random.normal(fx.random.key(3), (5,)) + x[0],
    "keys": lambda x: fx.random.split(fx.random.key(3)),
    "a jitted function": lambda x: fx.jit(fnp.sin)(x),
    "an asynchronous function": lambda x: fx.jit(fnp.sin, async_compile=True)(x),
    "a gradient": lambda x: fx.grad(fx.jit(lambda x: fnp.sum(x**3), async_compile=True))(x),
}


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("on_device", [False, True])
def test_outputs_are_those_of_the_compiled_program(name: str, on_device: bool, compilations: Compilations) -> None:
    f, x = fx.jit(OUTPUTS[name], async_compile=True), fnp.asarray(X) + 0
    if on_device:
        x = fx.jit(lambda x: x)(x)
    outs, expected = f(x), fx.jit(OUTPUTS[name])(x)
    assert not is_compiled(f)
    outs, expected = fx.tree.leaves(outs), fx.tree.leaves(expected)
    assert [out.aval for out in outs] == [out.aval for out in expected]
    if name != "keys":
        assert_same(outs, expected, SUMMED)
    else:
        np.testing.assert_array_equal(fx.random.key_data(outs[0]), fx.random.key_data(expected[0]))
    for i, out in enumerate(outs):
        assert not any(each.is_deleted() for each in outs[i:])
        out.delete()
    np.testing.assert_array_equal(np.asarray(x), X)


def test_numpy_arguments_may_be_written_to_after_the_call(compilations: Compilations) -> None:
    x = np.array(X)
    y, z = fx.jit(lambda x: (x[None], x), async_compile=True)(x)
    x[:] = 0
    np.testing.assert_array_equal(np.asarray(y), X[None])
    np.testing.assert_array_equal(np.asarray(z), X)


def test_random_numbers_are_those_of_the_compiled_program(compilations: Compilations) -> None:
    f = fx.jit(lambda key: fx.random.uniform(key, (100,)), async_compile=True)
    key = fx.random.key(7)
    first = f(key)
    compilations.finish()
    np.testing.assert_array_equal(np.asarray(first), np.asarray(f(key)))
    assert is_compiled(f)


# ------------------------------------------------------------------ errors


def test_an_error_of_the_compilation_is_raised_by_later_calls(compilations: Compilations) -> None:
    f = fx.jit(lambda x: x * 2, async_compile=True, compiler_options=INVALID)
    np.testing.assert_array_equal(np.asarray(f(X)), X * 2)
    compilations.finish()
    for _ in range(2):
        with pytest.raises(CompilationError, match="xla_no_such_option"):
            f(X)
    compilations.may_run.clear()
    f.clear_cache()
    np.testing.assert_array_equal(np.asarray(f(X)), X * 2)


def test_an_error_of_the_compilation_is_raised_by_the_call_that_needs_the_program(
    compilations: Compilations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpretation, "LARGEST_VALUE", 1)
    compilations.may_run.set()
    with pytest.raises(CompilationError, match="xla_no_such_option"):
        fx.jit(lambda x: x * 2, async_compile=True, compiler_options=INVALID)(X)


@final
class Doubled(SameTypes, Lowerable):
    """A primitive that cannot be evaluated eagerly."""

    name = "doubled"

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> tuple[IrValue, ...]:
        (x,) = operands
        return tuple(builder.emit("stablehlo.add", [x, x], [x.aval]))


def test_programs_that_cannot_be_interpreted_are_waited_for(compilations: Compilations) -> None:
    compilations.may_run.set()
    f = fx.jit(lambda x: bind1(Doubled(), x), async_compile=True)
    np.testing.assert_array_equal(np.asarray(f(X)), X * 2)


def test_programs_of_large_values_are_waited_for(compilations: Compilations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpretation, "LARGEST_VALUE", X.nbytes - 1)
    compilations.may_run.set()
    calls: list[None] = []

    def count(x: Any) -> Any:
        calls.append(None)
        return np.asarray(x)

    f = fx.jit(lambda x: fx.pure_callback(count, fx.ShapeDtypeStruct((3,), "float32"), x), async_compile=True)
    np.testing.assert_array_equal(np.asarray(f(X)), X)
    assert len(calls) == 1


def test_the_option_must_be_a_flag() -> None:
    wrong: Any = "yes"
    with pytest.raises(TypeError, match="async_compile must be True or False"):
        fx.jit(fnp.sin, async_compile=wrong)


# ------------------------------------------------------------------ the switch to the compiled program


@pytest.mark.parametrize("has_effects", [False, True])
def test_interpretation_stops_when_the_program_is_compiled(has_effects: bool, compilations: Compilations) -> None:
    seen: list[str] = []

    def finish(x: Any) -> Any:
        seen.append("first")
        compilations.finish()
        return np.asarray(x)

    def note(x: Any) -> Any:
        seen.append("second")
        return np.asarray(x)

    def program(x: Any) -> Any:
        callback = fx.io_callback if has_effects else fx.pure_callback
        shape = fx.ShapeDtypeStruct((3,), "float32")
        return callback(note, shape, callback(finish, shape, x) + 1)

    f = fx.jit(program, async_compile=True)
    np.testing.assert_array_equal(np.asarray(f(X)), X + 1)
    # Without effects the compiled program runs all of it again; with effects each runs once.
    assert seen == (["first", "second"] if has_effects else ["first", "first", "second"])


def test_effects_happen_once_per_call_and_in_order(
    compilations: Compilations, capsys: pytest.CaptureFixture[str]
) -> None:
    def program(x: Any) -> Any:
        fx.debug.print("begin {}", x, ordered=True)
        y = fx.jit(fnp.sin)(x)
        fx.debug.print("end {}", y, ordered=True)
        return y

    f = fx.jit(program, async_compile=True)
    for x in range(4):
        f(0.0 * x)
        if x == 1:
            compilations.finish()
    assert is_compiled(f)
    assert capsys.readouterr().out == "begin 0.0\nend 0.0\n" * 4


def test_exceptions_of_callbacks_are_raised_by_the_call(compilations: Compilations) -> None:
    error = StopIteration("enough")

    def fail(x: Any) -> Any:
        raise error

    f = fx.jit(lambda x: fx.io_callback(fail, fx.ShapeDtypeStruct((3,), "float32"), x), async_compile=True)
    for _ in range(2):
        with pytest.raises(StopIteration) as raised:
            f(X)
        assert raised.value is error
        compilations.finish()


def test_several_threads_call_a_function(compilations: Compilations) -> None:
    f = fx.jit(lambda x: fnp.sin(x) * 2, async_compile=True)
    expected, results = fx.jit(f.__wrapped__)(X), list[Any]()
    threads = [threading.Thread(target=lambda: results.append(f(X))) for _ in range(8)]
    for i, thread in enumerate(threads):
        thread.start()
        if i == 4:
            compilations.may_run.set()
    for thread in threads:
        thread.join()
    assert len(results) == len(threads)
    for result in results:
        assert_same(result, expected, SUMMED)


def test_settings_apply_to_the_compilation(compilations: Compilations, tmp_path: Path) -> None:
    f = fx.jit(lambda x: fnp.cumsum(x) * 3, async_compile=True)
    with fx.compilation_cache(tmp_path):
        f(X)
    compilations.finish()
    assert len(list(tmp_path.iterdir())) == 1


def test_compiling_ahead_of_time_waits(compilations: Compilations) -> None:
    f = fx.jit(lambda x: x * 2, async_compile=True)
    compiled = f.lower(X).compile()
    np.testing.assert_array_equal(np.asarray(compiled(X)), X * 2)
    assert "multiply" in compiled.as_text()


def test_functions_are_pickled_without_their_compilation(compilations: Compilations) -> None:
    f = fx.jit(fnp.sin, async_compile=True)
    expected = f(X)
    restored = pickle.loads(pickle.dumps(f))
    assert_same(restored(X), expected, SUMMED)
    assert not is_compiled(restored)
    assert restored._options == fx.Jit(async_compile=True)


def test_the_process_ends_after_the_compilation(tmp_path: Path) -> None:
    program = f"""
    import tracefx as fx
    import tracefx.numpy as fnp
    from pathlib import Path

    with fx.compilation_cache({str(tmp_path)!r}):
        f = fx.jit(lambda x: fx.lax.fori_loop(0, 3, lambda i, y: fnp.linalg.inv(y) @ x, x), async_compile=True)
        f(fnp.eye(4))
    """
    assert output_of(program) == ""
    assert list(tmp_path.iterdir())


# ------------------------------------------------------------------ devices and donation


def test_committed_arguments_wait_for_the_program_on_their_device(compilations: Compilations) -> None:
    compilations.may_run.set()
    device = fx.devices()[1]
    y = fx.jit(lambda x: x * 2, async_compile=True)(fx.device_put(X, device))
    assert y.devices() == {device}
    with fx.default_device(device):
        y = fx.jit(lambda x: x * 3, async_compile=True)(X)
    assert y.devices() == {device}
    sharding = fx.NamedSharding(fx.make_mesh((2,), ("i",)), fx.P("i"))
    y = fx.jit(lambda x: x * 2, async_compile=True, out_shardings=sharding)(fnp.ones(4))
    assert y.sharding == sharding


def test_donated_arguments_are_deleted(compilations: Compilations) -> None:
    def step(state: Any, x: Any) -> Any:
        return state + x

    f = fx.jit(step, donate_argnums=0, async_compile=True)
    state = fnp.ones(3) + 1
    new: Any = f(state, X)
    assert state.is_deleted()
    with pytest.raises(DeletedArrayError, match="the argument `state` of step"):
        np.asarray(state)
    np.testing.assert_array_equal(np.asarray(f(new, X)), 2 * X + 2)
    assert new.is_deleted()
    compilations.may_run.set()
    x = fnp.ones(3) + 1
    with pytest.raises(DonationError):
        f(x, x)


def test_arrays_that_no_result_reuses_are_not_deleted(compilations: Compilations) -> None:
    x = fnp.ones(3) + 1
    with pytest.warns(UserWarning, match="donated"):
        fx.jit(fnp.sum, donate_argnums=0, async_compile=True)(x)
    assert not x.is_deleted()


def test_callbacks_are_freed_with_their_program(compilations: Compilations) -> None:
    class Captured:
        pass

    def make_program() -> tuple[Any, weakref.ref[Captured]]:
        captured = Captured()
        shape = fx.ShapeDtypeStruct((), "float32")
        f = fx.jit(lambda x: fx.pure_callback(lambda x: (captured, x)[1], shape, x), async_compile=True)
        return f, weakref.ref(captured)

    f, captured = make_program()
    assert f(1.0) == 1
    compilations.finish()
    assert f(2.0) == 2
    del f
    gc.collect()
    assert captured() is None
