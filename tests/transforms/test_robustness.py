"""Robustness of compiled functions: threads, bounded caches, lifetimes, runtime errors, metadata, copies."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, final

import numpy as np
import pytest
from attrs import frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.compiling import metadata
from tests.primitives import SameTypes
from tracefx import lax
from tracefx.bounded_cache import BoundedCache, Memo
from tracefx.errors import ExecutionError
from tracefx.extend import Lowerable, bind1
from tracefx.lowering import Builder, IrValue, MlirText
from tracefx.serialization.digest import executable_key
from tracefx.transforms import jit as jit_module
from tracefx.transforms.fast_path import MAX_RECENT
from tracefx.transforms.tracing import TRACES
from tracefx.xla.backend import SingleDeviceCompileJob
from tracefx.xla.runtime import executables, mlir

X: Final = np.array([0.5, -1.5, 2.0], np.float32)

# ------------------------------------------------------------------ threads


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> Counter[object]:
    """Counts how often each program is lowered, by its cache key."""
    count: Counter[object] = Counter()
    lower = SingleDeviceCompileJob.lower

    def spied(job: SingleDeviceCompileJob) -> Any:
        count[executable_key(job.jaxpr) or id(job.jaxpr), job.plan.donated, job.keep_unused] += 1
        return lower(job)

    monkeypatch.setattr(SingleDeviceCompileJob, "lower", spied)
    return count


STACKS: Final[dict[str, Callable[[Any], Callable[[Any], Any]]]] = {
    "jit": lambda f: f,
    "jit of jit": lambda f: fx.jit(lambda x: f(f(x)) + 1),
    "grad": lambda f: fx.grad(lambda x: fnp.sum(f(x))),
    "jit of grad": lambda f: fx.jit(fx.grad(lambda x: fnp.sum(f(x)))),
    "vmap": lambda f: fx.vmap(f),
    "jit of vmap of grad": lambda f: fx.jit(fx.vmap(fx.grad(f))),
    "grad of vmap": lambda f: fx.grad(lambda x: fnp.sum(fx.vmap(f)(x) ** 2)),
    "jacfwd": lambda f: fx.jacfwd(f),
    "jvp": lambda f: lambda x: fx.jvp(f, (x,), (x,))[1],
    "linearize": lambda f: lambda x: fx.linearize(f, x)[1](x),
}


def test_64_threads_run_different_transform_stacks(lowered: Counter[object]) -> None:
    """Each thread runs all transform stacks on shared functions, starting with a different stack."""

    def plain(x: Any) -> Any:
        return fnp.sin(x) * 1.375 + x * x

    shared = fx.jit(plain)
    expected = {name: np.asarray(stack(plain)(X)) for name, stack in STACKS.items()}
    lowered.clear()
    names = list(STACKS)
    start = threading.Barrier(64)

    def work(i: int) -> dict[str, Any]:
        start.wait()
        order = names[i % len(names) :] + names[: i % len(names)]
        return {name: np.asarray(STACKS[name](shared)(X)) for name in order}

    with ThreadPoolExecutor(64) as pool:
        results = list(pool.map(work, range(64)))
    for result in results:
        for name in names:
            assert_near(result[name], expected[name])
    assert lowered
    assert set(lowered.values()) == {1}


@final
@frozen(eq=False)
class Doubled(SameTypes, Lowerable):
    """A primitive that holds a callable, so that programs with it have no content-based cache key."""

    name = "doubled"
    closed_over: Callable[[], None]

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> list[IrValue]:
        return builder.emit("stablehlo.add", [operands[0], operands[0]], [operands[0].aval])


def test_program_without_cache_key_is_compiled_once(lowered: Counter[object]) -> None:
    g = fx.jit(lambda x: bind1(Doubled(lambda: None), x))
    g.trace(X)  # all threads use the same trace, whichever thread traces first
    start = threading.Barrier(16)

    def work(_: int) -> Any:
        start.wait()
        return np.asarray(g(X))

    with ThreadPoolExecutor(16) as pool:
        for result in pool.map(work, range(16)):
            np.testing.assert_array_equal(result, X + X)
    assert list(lowered.values()) == [1]


def test_waiting_thread_retries_interrupted_computation() -> None:
    cache: BoundedCache[str, int] = BoundedCache(8)
    computing, waiting = threading.Event(), threading.Event()

    def interrupted() -> int:
        computing.set()
        waiting.wait()
        raise KeyboardInterrupt

    def first() -> None:
        with pytest.raises(KeyboardInterrupt):
            cache.compute_once("key", interrupted)

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first)
        computing.wait()
        other = pool.submit(cache.compute_once, "key", lambda: 3)
        waiting.set()
        one.result()
        assert other.result() == 3


def test_failed_computation_raises_and_is_not_cached() -> None:
    cache: BoundedCache[str, int] = BoundedCache(8)

    def fail() -> int:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            cache.compute_once("key", fail)
    assert len(cache) == 0
    assert cache.compute_once("key", lambda: 3) == 3


# ------------------------------------------------------------------ bounded caches


def test_trace_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_module, "MAX_TRACES", 8)
    monkeypatch.setattr(TRACES, "limit", 8)

    def f(x: Any, n: int = 1) -> Any:
        return x * n

    g = fx.jit(f, static_argnames="n")
    for n in [*range(30), 0, 29]:
        np.testing.assert_array_equal(np.asarray(g(fnp.asarray(X), n=n)), X * n)
    for size in [*range(1, 20), 1, 19]:
        x = fnp.ones(size)
        np.testing.assert_array_equal(np.asarray(g(x)), np.ones(size))
    assert len(TRACES.of(f)) <= 8
    assert len(g._programs) <= 8
    assert len(g._recent) <= MAX_RECENT


def test_derived_program_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memo, "LIMIT", 16)
    g = fx.jit(lambda x: x * 2)
    for size in [*range(1, 40), 1]:
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(np.asarray(fx.vmap(g)(x)), x * 2)
    assert len(g.trace(np.float32(0)).trace.jaxpr.memo.results) <= 16


def test_compute_once_evicts_least_recently_used() -> None:
    cache: BoundedCache[int, int] = BoundedCache(4)
    for i in (0, 1, 2, 3, 0, 4):
        cache.compute_once(i, lambda i=i: i)  # type: ignore[misc]  # a default binds the loop's value
    assert len(cache) == 4
    assert [cache.compute_once(i, lambda: -1) for i in (0, 2, 3, 4)] == [0, 2, 3, 4]  # 1 was used least recently


# ------------------------------------------------------------------ lifetimes


def test_closed_over_arrays_are_freed_with_the_function() -> None:
    """Traces and derived programs refer to closed-over arrays; executables, which outlive the function, must not."""

    def make() -> tuple[Any, list[weakref.ref[Any]]]:
        closed_over = fnp.sum(X)

        def f(x: Any) -> Any:
            return fnp.sin(x) * closed_over

        g = fx.jit(f)
        return g, [weakref.ref(each) for each in (closed_over, f, g)]

    g, alive = make()
    for stack in STACKS.values():
        stack(g)(X)
    gc.collect()
    assert None not in [each() for each in alive]
    del g
    gc.collect()
    assert [each() for each in alive] == [None, None, None]


def test_static_arguments_are_freed_with_the_function() -> None:
    class Config:
        pass

    config = Config()
    g = fx.jit(lambda x, c: x * 2, static_argnums=1)
    g(X, config)
    alive = weakref.ref(config)
    del config
    gc.collect()
    assert alive() is not None
    del g
    gc.collect()
    assert alive() is None


# ------------------------------------------------------------------ errors

PRODUCT: Final = 1000


@final
@frozen
class Failing(SameTypes, Lowerable):
    """A primitive that calls a host function, which fails."""

    name = "failing"

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> list[IrValue]:
        index = {"index": MlirText("0 : ui64")}
        avals = [x.aval for x in operands]
        return builder.custom_call("xla_ffi_python_cpu_callback", operands, avals, index, has_side_effect=True)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds host callbacks to compiled modules."""
    compile_module = executables.compile_module

    def fail(*_: object) -> Sequence[object]:
        raise ValueError("the host's own words")

    def compiling(module: Any, **options: Any) -> Any:
        callbacks = [fail] if "xla_ffi_python_cpu_callback" in mlir.module_text(module) else []
        return compile_module(module, host_callbacks=callbacks, **options)

    monkeypatch.setattr(executables, "compile_module", compiling)


@fx.jit
def square(x: Any) -> Any:
    return x @ x


@pytest.mark.usefixtures("failing")
def test_asynchronous_error_names_the_function_when_read() -> None:
    @fx.jit
    def unlucky(x: Any) -> Any:
        return bind1(Failing(), -x)

    @fx.jit
    def heir(x: Any) -> Any:
        return x + 1

    x = fnp.ones((PRODUCT, PRODUCT))

    def enqueued() -> Any:
        # A program is enqueued while its argument is still being computed. If this thread is paused for that long,
        # the program runs immediately, and the test tries again.
        for _ in range(50):
            try:
                return unlucky(square(x))
            except ExecutionError:
                continue
        raise AssertionError("no program was ever enqueued")

    late = enqueued()
    after = heir(late)
    for wait in (fx.block_until_ready, np.asarray, lambda y: y.__dlpack__(), str, lambda y: float(y[0, 0])):
        with pytest.raises(ExecutionError, match="(?s)the compiled unlucky failed.*the host's own words"):
            wait(late)
    with pytest.raises(
        ExecutionError, match="(?s)the compiled heir failed, or a program whose .* the host's own words"
    ):
        after.block_until_ready()


@pytest.mark.usefixtures("failing")
def test_runtime_error_names_the_called_function() -> None:
    """Not the function whose executable it shares because their programs are equal."""

    def jitted(name: str) -> Any:
        def f(x: Any) -> Any:
            return bind1(Failing(), x)

        f.__name__ = name
        return fx.jit(f)

    for name in ("first", "second"):
        with pytest.raises(ExecutionError, match=f"(?s)the compiled {name} failed: .*the host's own words"):
            jitted(name)(X).block_until_ready()


def test_out_of_memory_error_names_the_function() -> None:
    @fx.jit
    def huge(x: Any) -> Any:
        return fnp.broadcast_to(x, (1 << 23, 1 << 23))

    with pytest.raises(ExecutionError, match="the compiled huge failed.*allocating 281474976710656 bytes"):
        huge(fnp.ones(())).block_until_ready()


def test_jit_of_100_nested_functions() -> None:
    f: Any = fx.jit(lambda x: x * 2)
    for _ in range(99):
        f = fx.jit(lambda x, f=f: f(x) + 1)
    assert float(f(3.0)) == 105.0


HUGE: Final = 10**9
BEYOND_MEMORY: Final[dict[str, Callable[[], Any]]] = {  # arrays with more bytes than an address has bits for
    "zeros": lambda: fnp.zeros((HUGE, HUGE)).sum(),
    "full": lambda: fnp.full((HUGE, HUGE), 2.0) + 1,
    "broadcast": lambda: fnp.broadcast_to(fnp.ones(3), (HUGE, HUGE, 3)).max(),
    "eye": lambda: fnp.eye(HUGE),
    "iota": lambda: lax.broadcasted_iota("int32", (HUGE, HUGE), 0) + 1,
    "an outer product": lambda: fnp.outer(fnp.zeros(HUGE // 1000), fnp.zeros(HUGE * 1000)),
    "a batch": lambda: fx.vmap(lambda x: fnp.zeros((HUGE, HUGE)).sum() + x)(fnp.ones(3)),
}


@pytest.mark.parametrize("name", BEYOND_MEMORY)
def test_arrays_larger_than_memory_raise_immediately(name: str) -> None:
    with pytest.raises(MemoryError, match=r"this machine has .* GiB of memory"):
        BEYOND_MEMORY[name]()


def test_results_larger_than_memory_raise_when_read() -> None:
    """Asynchronous programs fail when their results are read."""
    x = fx.random.normal(fx.random.key(0), (HUGE, HUGE // 1000))
    for read in (np.asarray, str, np.from_dlpack, lambda x: x + 1, lambda x: x.block_until_ready()):
        with pytest.raises(RuntimeError, match="the compiled random.normal failed.*[Mm]emory"):
            read(x)


# ------------------------------------------------------------------ metadata for profilers


def test_optimized_program_has_source_lines_and_scopes() -> None:
    def f(x: Any) -> Any:
        with fx.named_scope("encoder"), fx.named_scope("layer"):
            y = fnp.sin(x)
        return fnp.exp(y)

    first = f.__code__.co_firstlineno
    seen = metadata(fx.jit(f).lower(X).compile().as_text())
    assert ("encoder/layer/sin", __file__, first + 2) in seen
    assert ("exp", __file__, first + 3) in seen


def test_scopes_of_calls_and_callees() -> None:
    @fx.jit
    def inner(x: Any) -> Any:
        with fx.named_scope("deep"):
            return fnp.sin(x) @ x

    def f(x: Any) -> Any:
        with fx.named_scope("first"):
            y = inner(x)
        with fx.named_scope("second"):
            return inner(fnp.exp(y) @ x)

    names = {op for op, _, _ in metadata(fx.jit(f).lower(fnp.ones((64, 64))).compile().as_text())}
    assert {f"{scope}/jit(inner)/deep/dot_general" for scope in ("first", "second")} <= names
    assert not any("first" in op and "second" in op for op in names)
    assert "deep/" not in str({op for op in names if "inner" not in op})


def test_scopes_of_a_loop_apply_to_its_body() -> None:
    def f(x: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            with fx.named_scope("deep"):
                return fnp.sin(carry) @ x, ()

        with fx.named_scope("outer"):
            return fx.lax.scan(step, x[0], x)

    names = {op for op, _, _ in metadata(fx.jit(f).lower(fnp.ones((3, 16, 16))).compile().as_text())}
    assert any(re.fullmatch("outer/scan/(.*/)?deep/dot_general", op) for op in names)
    assert not any(op.count("outer") > 1 for op in names)


DERIVED: Final[dict[str, Callable[[Any], Any]]] = {
    "grad": fx.grad,
    "grad of jit": lambda f: fx.grad(fx.jit(f)),
    "grad of grad of jit": lambda f: fx.grad(fx.grad(fx.jit(f))),
    "vmap of grad of jit": lambda f: fx.vmap(fx.grad(fx.jit(f))),
    "jvp of jit": lambda f: lambda x: fx.jvp(fx.jit(f), (x,), (x,)),
    "transposed": lambda f: lambda x: fx.vjp(fx.jit(f), x)[1](x),
}


@pytest.mark.parametrize("name", DERIVED)
def test_derived_programs_keep_source_lines(name: str) -> None:
    def f(x: Any) -> Any:
        with fx.named_scope("encoder"):
            y = fnp.sin(x) * x
        return fnp.exp(y)

    first = f.__code__.co_firstlineno
    x = X if name.startswith("vmap") else np.float32(0.5)
    seen = {
        (op.removeprefix("jit(f)/"), file, line)  # the prefix stands for the call of the inner function
        for op, file, line in metadata(fx.jit(DERIVED[name](f)).lower(x).compile().as_text())
    }
    assert ("encoder/cos", __file__, first + 2) in seen
    assert ("exp", __file__, first + 3) in seen
    assert {line for op, _, line in seen if op.startswith("encoder/")} == {first + 2}
    assert {line for op, _, line in seen if op.endswith("mul")} <= {first + 2, first + 3}
    assert (
        "encoder/add",
        __file__,
        first + 2,
    ) in seen  # an addition of cotangents; the function itself only multiplies there


# ------------------------------------------------------------------ copies


@final
@frozen
class Model:
    scale: float

    @fx.jit(static_argnums=0)
    def __call__(self, x: Any) -> Any:
        return x * self.scale

    @fx.jit(static_argnums=0)
    def shifted(self, x: Any, by: Any) -> Any:
        return x * self.scale + by


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copied_programs_and_functions_are_equivalent(duplicate: Callable[[Any], Any]) -> None:
    closed = fx.make_jaxpr(fx.jit(fx.grad(lambda x: fnp.sum(square(x)))))(np.ones((2, 2), np.float32))
    assert duplicate(closed) == closed
    assert executable_key(duplicate(closed).jaxpr) == executable_key(closed.jaxpr)
    fx.check_jaxpr(duplicate(closed))
    jitted = square(fnp.ones((2, 2)))
    np.testing.assert_array_equal(np.asarray(duplicate(jitted)), jitted)
    assert duplicate(jitted).aval == jitted.aval
    assert duplicate(square) is square
    np.testing.assert_array_equal(duplicate(Model(3.0).shifted)(X, by=1.0), X * 3 + 1)
    assert duplicate(fx.Jit(donate_argnums=0) @ fx.Grad()) == fx.Jit(donate_argnums=0) @ fx.Grad()
