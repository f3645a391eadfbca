"""Tracebacks of errors: the user's frames, one entry in place of those of tracefx, and nothing else changed."""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import pickle
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, FunctionType, TracebackType
from typing import Final, NoReturn

import numpy as np
import pytest

import tracefx as fx
from tests.errors import untyped
from tests.subprocesses import run_python
from tracefx import handlers, lax, nn, programs, random, rewriting, scipy, testing
from tracefx import numpy as fnp
from tracefx.core.handler import CURRENT, ROOT
from tracefx.filtered_tracebacks import api_boundary, filter_traceback
from tracefx.settings import SETTINGS, TRACEBACK_FILTERING
from tracefx.source_location import SOURCE, is_internal_file

NOTE: Final = "_stand_for_internal_frames"
X: Final = fnp.ones((5, 3))
W: Final = fnp.ones((4, 2))


@pytest.fixture(autouse=True)
def filtered() -> Iterator[None]:
    """Filters, also where the environment turns this off."""
    with fx.traceback_filtering("filtered"):
        yield


def layer(x: fx.Array, w: fx.Array) -> fx.Array:
    return fnp.sum(fnp.sin(x) @ w)


def loss(x: fx.Array, w: fx.Array) -> fx.Array:
    return layer(x, w) * 2.0


def error_of(f: Callable[[], object]) -> Exception:
    try:
        f()
    except Exception as error:
        return error
    raise AssertionError("no error was raised")


def frames(error: BaseException) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def names(error: BaseException) -> list[str]:
    """Returns the names of the functions in a traceback, after that of `error_of` and of the function it calls."""
    return [frame.f_code.co_name for frame in frames(error)][2:]


def internal_frames(error: BaseException) -> list[str]:
    return [frame.f_code.co_name for frame in frames(error) if is_internal_file(frame.f_code.co_filename)]


def test_nested_transformations() -> None:
    step = fx.jit(fx.vmap(fx.grad(loss), in_axes=(0, None)))
    error = error_of(lambda: step(X, W))
    assert type(error) is TypeError
    assert names(error) == [NOTE, "loss", "layer"]
    with fx.traceback_filtering("off"):
        full = names(error_of(lambda: step(X, W)))
    assert len(full) > 20
    assert NOTE not in full
    assert full[0] == "call_slowly"


def fail(*args: object) -> NoReturn:
    raise KeyError("user")


def _custom_jvp() -> object:
    f = fx.custom_jvp(lambda x: x)
    f.defjvp(fail)
    return fx.jvp(f, (1.0,), (1.0,))


def _custom_vjp() -> object:
    f = fx.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), fail)
    return fx.grad(f)(1.0)


def _custom_vmap() -> object:
    f = fx.custom_batching.custom_vmap(lambda x: x)
    f.def_vmap(fail)
    return fx.vmap(f)(X)


USER_ERRORS: Final[dict[str, Callable[[], object]]] = {
    "jit": lambda: fx.jit(fail)(X),
    "jit-trace": lambda: fx.jit(fail).trace(X),
    "jit-lower": lambda: fx.jit(fail).lower(X),
    "grad": lambda: fx.grad(fail)(1.0),
    "vmap": lambda: fx.vmap(fail)(X),
    "jacfwd": lambda: fx.jacfwd(fail)(X),
    "hessian": lambda: fx.hessian(fail)(X),
    "jvp": lambda: fx.jvp(fail, (1.0,), (1.0,)),
    "vjp": lambda: fx.vjp(fail, 1.0),
    "linearize": lambda: fx.linearize(fail, 1.0),
    "linear_transpose": lambda: fx.linear_transpose(fail, 1.0),
    "checkpoint": lambda: fx.checkpoint(fail)(1.0),
    "make_jaxpr": lambda: fx.make_jaxpr(fail)(1.0),
    "eval_shape": lambda: fx.eval_shape(fail, 1.0),
    "scan": lambda: lax.scan(fail, 0.0, X),
    "map": lambda: lax.map(fail, X),
    "while_loop": lambda: lax.while_loop(lambda x: x < 3.0, fail, 0.0),
    "fori_loop": lambda: lax.fori_loop(0, 3, fail, 0.0),
    "cond": lambda: lax.cond(True, fail, fail, 1.0),
    "switch": lambda: lax.switch(0, [fail, fail], 1.0),
    "associative_scan": lambda: lax.associative_scan(fail, X),
    "reduce": lambda: lax.reduce(X, 0.0, fail, [0]),
    "custom_root": lambda: lax.custom_root(fail, 1.0, fail, fail),
    "custom_jvp": _custom_jvp,
    "custom_vjp": _custom_vjp,
    "custom_vmap": _custom_vmap,
    "pure_callback": lambda: fx.pure_callback(fail, fx.ShapeDtypeStruct((), "float32"), 1.0),
    "show": lambda: fx.show(fail, 1.0),
    "vectorize": lambda: fnp.vectorize(fail)(X),
}


@pytest.mark.parametrize("name", USER_ERRORS)
def test_errors_of_user_functions(name: str) -> None:
    error = error_of(USER_ERRORS[name])
    assert type(error) is KeyError
    assert error.args == ("user",)
    assert frames(error)[-1].f_code is fail.__code__  # where post-mortem debuggers start
    assert internal_frames(error) == [NOTE]


ONES: Final = fnp.ones(3)

LIBRARY_ERRORS: Final[dict[str, Callable[[], object]]] = {
    "operator": lambda: ONES + fnp.ones(4),
    "reflected-operator": lambda: np.ones(4) + ONES,
    "method": lambda: ONES.sum(axis=3),
    "function": lambda: fnp.concatenate([ONES, 3.0]),
    "index": lambda: ONES[1, 2],
    "compiled": lambda: fx.jit(layer).lower(X, X.T).compile()(X, X),
    "vjp-function": lambda: fx.vjp(fnp.sin, 1.0)[1](X),
    "linear-map": lambda: fx.linearize(fnp.sin, ONES)[1](X),
    "donated": lambda: fx.jit(lambda x, y: x, donate_argnums=0)(ONES.copy(), object()),
    "parser": lambda: fx.parse_jaxpr("{ lambda"),
    "scalar type": lambda: fnp.float32("a"),  # type: ignore[arg-type]  # is the point
    "initializer": lambda: nn.initializers.ones(random.key(0), "a"),  # type: ignore[arg-type]  # is the point
    "solver": lambda: scipy.sparse.linalg.cg(ONES, object()),
    "custom rule": lambda: fx.custom_vjp(3),  # type: ignore[arg-type]  # is the point
    "mesh": lambda: fx.Mesh([], (1,)),  # type: ignore[arg-type]  # is the point
    "partition spec": lambda: fx.P(3),
    "reduce": lambda: fx.tree.reduce(lambda x, y: x @ y, [X, X]),
    "law": lambda: testing.jit_changes_nothing(3),  # type: ignore[arg-type]  # is the point
    "checked gradient": lambda: testing.check_grads(3),  # type: ignore[arg-type]  # is the point
    "kernel": lambda: fx.ffi.register_ffi_target("name", 3),  # type: ignore[arg-type]  # is the point
    "picture": lambda: fx.debug.visualize_array_sharding(3),  # type: ignore[arg-type]  # is the point
}


@pytest.mark.parametrize("name", LIBRARY_ERRORS)
def test_errors_of_the_library(name: str) -> None:
    assert internal_frames(error_of(LIBRARY_ERRORS[name])) == [NOTE]


PACKAGES: Final = (
    *("tracefx", "tracefx.numpy", "tracefx.numpy.linalg", "tracefx.numpy.fft", "tracefx.lax", "tracefx.lax.linalg"),
    *("tracefx.nn", "tracefx.random", "tracefx.image", "tracefx.handlers"),
    *("tracefx.scipy.linalg", "tracefx.scipy.special", "tracefx.scipy.signal", "tracefx.scipy.stats"),
    *("tracefx.sharding", "tracefx.rewriting", "tracefx.tree", "tracefx.tree_util", "tracefx.programs"),
    "tracefx.interop.jax",
)


SETTING_FUNCTIONS: Final = {"compilation_cache", "disable_jit", "enable_x64", "log_compiles"}
"""Functions that warn if their results are not used."""


@pytest.mark.parametrize("package", PACKAGES)
def test_wrong_arguments_of_public_functions(package: str) -> None:
    module = importlib.import_module(package)
    public = [getattr(module, name) for name in module.__all__ if name not in SETTING_FUNCTIONS]
    functions = [f for f in public if isinstance(f, FunctionType)]
    frames_by_function: dict[str, list[str]] = {}
    takes_arguments = 0
    for f in functions:
        required = [
            p
            for p in inspect.signature(f).parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        takes_arguments += bool(required)
        try:
            f(*[object() for _ in required])
        except Exception as error:
            frames_by_function[f.__name__] = internal_frames(error)
    assert {name: found for name, found in frames_by_function.items() if found not in ([NOTE], [])} == {}
    assert len(frames_by_function) > (takes_arguments - 1) / 2


UNFILTERED: Final = {"named_scope", "Ref", "InputTerm", "Apply", "ExplainedOperation"}
"""A class on which filtering depends, and classes whose instances tracefx makes, very many of some."""


def test_wrong_arguments_of_constructors() -> None:
    modules = [importlib.import_module(package) for package in PACKAGES]
    public = [getattr(module, name) for module in modules for name in module.__all__ if name not in UNFILTERED]
    classes = [c for c in public if isinstance(c, type) and not issubclass(c, Exception | tuple | functools.partial)]
    frames_by_class: dict[str, list[str]] = {}
    for c in classes:
        try:
            c(*[object() for _ in inspect.signature(c).parameters])
        except Exception as error:
            frames_by_class[c.__name__] = internal_frames(error)
    assert {name: found for name, found in frames_by_class.items() if found not in ([NOTE], [])} == {}
    assert sum(found == [NOTE] for found in frames_by_class.values()) > 40


METHODS: Final[dict[str, Callable[[], object]]] = {
    "reshape": lambda: ONES.reshape(2, 5),
    "transpose": lambda: ONES.transpose(7),
    "astype": lambda: ONES.astype("none"),
    "view": lambda: ONES.view("none"),
    "item": lambda: ONES.item(9),
    "contains": lambda: ONES.__contains__(np.array("a")),
    "assignment": lambda: ONES.__setitem__(0, 1.0),
    "update": lambda: ONES.at[0].set("a"),
    "index of an update": lambda: ONES.at[1, 2].set(1.0),
}


@pytest.mark.parametrize("name", METHODS)
def test_wrong_arguments_of_methods(name: str) -> None:
    assert internal_frames(error_of(METHODS[name])) == [NOTE]


def test_causes_and_contexts() -> None:
    class OwnError(Exception):
        pass

    def explicit(x: fx.Array) -> fx.Array:
        try:
            return loss(x, W)
        except TypeError as error:
            raise OwnError("explicit") from error

    def implicit(x: fx.Array) -> fx.Array:
        try:
            return fx.vmap(explicit)(x)
        except OwnError:
            raise OwnError("implicit")  # noqa: B904  # the context is what is tested

    error = error_of(lambda: fx.jit(implicit)(X))
    assert names(error) == [NOTE, "implicit"]
    assert error.__cause__ is None
    context = error.__context__
    assert isinstance(context, OwnError)
    assert [frame.f_code.co_name for frame in frames(context)] == ["implicit", "explicit"]
    cause = context.__cause__
    assert isinstance(cause, TypeError)
    assert context.__context__ is cause
    assert [frame.f_code.co_name for frame in frames(cause)] == ["explicit", "loss", "layer"]


def test_chains_of_the_library() -> None:
    error = error_of(lambda: fx.jit(lambda n: lax.scan(lambda c, x: (c, x), n, None, length=n))(3))
    cause = error.__cause__
    assert isinstance(error, fx.errors.TracerIntegerConversionError)
    assert isinstance(cause, fx.errors.TracerIntegerConversionError)
    assert internal_frames(error) == [NOTE]
    assert internal_frames(cause) == []


def test_cycles_of_contexts_end() -> None:
    def raises(x: fx.Array) -> fx.Array:
        first, second = ValueError("first"), ValueError("second")
        first.__context__, second.__context__ = second, first
        raise first

    error = error_of(lambda: fx.jit(raises)(X))
    assert error.__context__ is not None
    assert error.__context__.__context__ is error


def test_members_of_groups() -> None:
    def raises(x: fx.Array) -> fx.Array:
        raise ExceptionGroup("several", [error_of(lambda: loss(x, W))])

    error = error_of(lambda: fx.jit(raises)(X))
    assert isinstance(error, ExceptionGroup)
    assert internal_frames(error) == [NOTE]
    assert internal_frames(error.exceptions[0]) == []


def test_error_is_the_same_object() -> None:
    raised = ValueError("message", 3)
    raised.add_note("a note")

    def raises(x: fx.Array) -> fx.Array:
        raise raised from KeyError("cause")

    error = error_of(lambda: fx.jit(fx.vmap(raises))(X))
    assert error is raised
    assert error.args == ("message", 3)
    assert error.__notes__ == ["a note"]
    assert isinstance(error.__cause__, KeyError)
    assert error.__suppress_context__


def test_tracebacks_of_users_are_not_replaced() -> None:
    error = error_of(fail)
    outer = error.__traceback__
    filter_traceback(error)
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_next is outer


def test_no_frame_is_left() -> None:
    """An error without frames of the user, which the entry points of nested calls may see."""
    error = fx.errors.ParseError("never raised")
    filter_traceback(error)
    assert internal_frames(error) == [NOTE]


def test_generated_methods_are_internal() -> None:
    with fx.traceback_filtering("off"):
        error = error_of(lambda: untyped(fx.Grad)(argnums="x"))
    assert any(frame.f_code.co_filename.startswith("<attrs") for frame in frames(error))
    assert len(internal_frames(error)) == len(names(error))


def test_errors_are_freed_without_garbage_collection() -> None:
    class Value:
        pass

    values: list[weakref.ref[Value]] = []

    def remember(value: Value) -> Value:
        values.append(weakref.ref(value))
        return value

    def raises(x: fx.Array) -> fx.Array:
        local = remember(Value())
        raise ValueError(f"user {local}")

    def calls(f: Callable[[fx.Array], fx.Array]) -> None:
        local = remember(Value())
        f(ONES)
        raise AssertionError(f"no error was raised, {local}")

    gc.disable()
    try:
        for f in (fx.jit(raises), fx.vmap(raises), fx.grad(raises), fx.checkpoint(raises)):
            with pytest.raises(ValueError, match="user") as caught:
                calls(f)
            del caught
        assert [value() for value in values] == [None] * 8
    finally:
        gc.enable()


def test_errors_leave_no_context_behind() -> None:
    values = SETTINGS.get()
    error_of(lambda: fx.jit(fx.vmap(fx.grad(loss), in_axes=(0, None)))(X, W))
    assert CURRENT.get() is ROOT
    assert SETTINGS.get() is values
    assert SOURCE.get() is None
    assert sys.exception() is None


def test_other_exceptions_are_not_filtered() -> None:
    def interrupted(x: fx.Array) -> fx.Array:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        fx.jit(interrupted)(X)
    assert NOTE not in internal_frames(caught.value)


def test_deep_recursion() -> None:
    def recursive(x: fx.Array) -> fx.Array:
        return fx.checkpoint(lambda y: recursive(y))(x)

    with pytest.raises(RecursionError):
        recursive(ONES)


def test_threads_have_the_default_of_the_process() -> None:
    errors: list[Exception] = []
    with fx.traceback_filtering("off"):
        thread = threading.Thread(target=lambda: errors.append(error_of(lambda: fx.jit(layer)(X, W))))
        thread.start()
        thread.join()
    assert (NOTE in names(errors[0])) == (TRACEBACK_FILTERING.default == "filtered")


def hidden(traceback: TracebackType | None) -> list[str]:
    """Returns the names of the functions whose frames IPython and pytest do not show."""
    walked = [frame for frame, _ in _walk(traceback)]
    return [frame.f_code.co_name for frame in walked if frame.f_locals.get("__tracebackhide__")]


_walk: Final = traceback.walk_tb


def test_ipython_and_pytest_show_frames_of_the_user_only() -> None:
    with pytest.raises(TypeError) as caught:
        fx.jit(fx.vmap(fx.grad(loss), in_axes=(0, None)))(X, W)
    assert hidden(caught.value.__traceback__) == [NOTE]
    shown = [entry.frame.code.name for entry in caught.traceback.filter(caught)]
    assert shown == ["test_ipython_and_pytest_show_frames_of_the_user_only", "loss", "layer"]
    assert "tracefx/" not in str(caught.getrepr(style="long")).replace(__file__, "")


SCRIPT: Final = """
import sys, threading
import tracefx as fx
from tracefx import numpy as fnp

def layer(x, w):
    return fnp.sum(fnp.sin(x) @ w)

def loss(x, w):
    return layer(x, w) * 2.0

step = fx.jit(fx.vmap(fx.grad(loss), in_axes=(0, None)))
x, w = fnp.ones((5, 3)), fnp.ones((4, 2))
if "thread" in sys.argv:
    thread = threading.Thread(target=step, args=(x, w))
    thread.start()
    thread.join()
else:
    step(x, w)
"""


def run_script(folder: Path, mode: str | None, *args: str) -> str:
    """Runs the script in a new process and returns what it writes to standard error."""
    file = folder / "script.py"
    file.write_text(SCRIPT)
    return run_python(file, *args, TRACEFX_TRACEBACK_FILTERING=mode).stderr


def test_uncaught_error_of_a_script(tmp_path: Path) -> None:
    text = run_script(tmp_path, None)
    lines = [line.strip() for line in text.splitlines()]
    files = [line for line in lines if line.startswith("File ")]
    assert len(files) == 4
    assert NOTE in files[1]
    assert 'raise InternalFramesHidden("set TRACEFX_TRACEBACK_FILTERING=off to see them")' in lines
    assert lines[-1].startswith("TypeError: matmul: f32[3] and f32[4,2] do not fit")


def test_uncaught_error_of_a_thread(tmp_path: Path) -> None:
    files = [line for line in run_script(tmp_path, None, "thread").splitlines() if line.startswith("  File ")]
    assert [line.rpartition(" ")[2] for line in files if "threading.py" not in line] == [NOTE, "loss", "layer"]


def test_environment_variable(tmp_path: Path) -> None:
    text = run_script(tmp_path, " OFF ")
    assert text.count("  File ") > 20
    assert NOTE not in text
    assert "ValueError: environment variable TRACEFX_TRACEBACK_FILTERING='all': allowed are off, filtered" in (
        run_script(tmp_path, "all")
    )


def test_invalid_mode() -> None:
    with pytest.raises(ValueError, match="traceback_filtering takes 'off' or 'filtered', got 'all'"):
        untyped(fx.traceback_filtering)("all")


def test_decorated_functions_keep_their_signatures() -> None:
    def f(x: int, *, y: int = 3) -> int:
        """Adds."""
        return x + y

    g = api_boundary(f)
    assert (g.__name__, g.__doc__, g(1, y=2)) == ("f", "Adds.", 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fx.random.normal(0, (3,)),
        lambda: fx.random.choice(fx.random.key(0), X, (3,), p=W),
        lambda: scipy.linalg.cho_solve((fnp.ones((3, 3)), True), fnp.ones(4)),
        lambda: untyped(scipy.special.gammaln)("a"),
        lambda: fx.nn.softmax(X, axis=4),
        lambda: fnp.linalg.norm(X, ord="q"),
        lambda: lax.psum(X, "nowhere"),
        lambda: lax.all_gather(X, "nowhere"),
        lambda: lax.dynamic_slice(X, (0,), (2, 2)),
        lambda: lax.conv(X, W, (1, 1), "SAME"),
        lambda: lax.top_k(X, 7),
        lambda: fx.tree.map(lambda x, y: x, {"a": 1}, {"b": 2}),
        lambda: fx.tree_util.tree_map(lambda x, y: x, [1], [1, 2]),
        lambda: fx.device_put("a"),
        lambda: fx.make_mesh((100,), ("a",)),
        lambda: fx.devices("abacus"),
        lambda: rewriting.rewrite(fx.make_jaxpr(fnp.sin)(1.0), [rewriting.rule()(fail)]),
        lambda: untyped(rewriting.equivalent)(3, 4),
        lambda: handlers.check_key_reuse(fail)(fx.random.key(0)),
        lambda: handlers.checkify(fail)(1.0),
        lambda: handlers.count(fail)(1.0),
        lambda: handlers.with_units(fail)(1.0),
        lambda: handlers.autocast(fail)(1.0),
        lambda: untyped(programs.serialize)(3),
        lambda: programs.deserialize(b""),
        lambda: fx.export(fx.jit(lambda x: fx.pure_callback(fail, x, x)))(1.0),
        lambda: untyped(fx.jit)(3),
        lambda: X.at["a"].set(1.0),  # type: ignore[index]  # not an index
        lambda: X.at[0].set(W),
    ],
)
def test_errors_of_public_functions_show_no_internal_frames(call: Callable[[], object]) -> None:
    assert internal_frames(error_of(call)) == [NOTE]


def test_public_functions_with_filtered_tracebacks_can_be_pickled_and_inspected() -> None:
    assert pickle.loads(pickle.dumps(fx.random.normal)) is fx.random.normal
    for f in (fx.device_put, fx.random.split, scipy.linalg.cho_solve, lax.psum, fx.tree.map):
        assert pickle.loads(pickle.dumps(f)) is f
        assert inspect.signature(f) == inspect.signature(inspect.unwrap(f))
