"""`jit`: agreement with JAX, cache hits and retraces, compilation."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import Case, assert_agree, assert_near
from tracefx.core import float0
from tracefx.errors import PlatformError
from tracefx.serialization.digest import executable_key
from tracefx.settings import RepeatsMode
from tracefx.testing.tolerances import ELEMENTARY
from tracefx.xla import backend as xla_backend
from tracefx.xla.lower import ExecutionPlan, lower

X: Final = np.array([0.5, -1.5, 2.0], np.float32)
M: Final = np.arange(6, dtype=np.float32).reshape(2, 3)
I: Final = np.array([3, 1, 2], np.int32)  # noqa: E741

CASES: Final[dict[str, Case]] = {
    "array": lambda F, N: F.jit(lambda x: N.sin(x) * 2)(X),
    "number": lambda F, N: F.jit(lambda x: x * x)(3.0),
    "int": lambda F, N: F.jit(lambda x: x * x)(3),
    "bool": lambda F, N: F.jit(lambda x: ~x)(True),
    "complex": lambda F, N: F.jit(lambda x: x * x)(3j),
    "trees": lambda F, N: F.jit(lambda p: {"s": p["a"] + p["b"][0], "t": (p["b"][1], None)})({"a": X, "b": [X, M]}),
    "keywords": lambda F, N: F.jit(lambda x, *, k: x * k["s"])(X, k={"s": 3.0}),
    "defaults": lambda F, N: F.jit(lambda x, y=2.0: x * y)(X),
    "variadic": lambda F, N: F.jit(lambda *xs, **ks: sum(xs) + ks["a"])(X, X, X, a=1.0),
    "nothing": lambda F, N: F.jit(lambda: 3)(),
    "compiled, without static arguments": lambda F, N: (
        F.jit(lambda n, x, m, y: n * x + m * y, static_argnums=(0, 2)).lower(3, X, 5, y=X).compile()(X + 1, y=X)
    ),
    "compiled for weak": lambda F, N: F.jit(lambda x: x * 2).lower(1.0).compile()(np.float32(2.0)),
    "compiled for strong": lambda F, N: F.jit(lambda x: x * 2).lower(np.int32(1)).compile()(2),
    "constants out": lambda F, N: F.jit(lambda x: (1, 2.0, N.asarray(X), x))(X),
    "numpy out": lambda F, N: F.jit(lambda x: (X, np.float32(2), np.int32(3)))(X),
    "input out twice": lambda F, N: F.jit(lambda x: (x, x, x + 1, x + 1))(X),
    "output twice": lambda F, N: F.jit(lambda x: (lambda y: (y, y))(x * 2))(X),
    "unused input": lambda F, N: F.jit(lambda x, y: x)(X, M),
    "keep_unused": lambda F, N: F.jit(lambda x, y: x * 2, keep_unused=True)(X, M),
    "inline": lambda F, N: F.jit(F.jit(lambda x: N.sin(x) * X, inline=True))(X),
    "closure over an array": lambda F, N: F.jit(lambda x: x * N.asarray(M))(X),
    "nested": lambda F, N: F.jit(lambda x: F.jit(lambda y: F.jit(N.sin)(y) * x)(x * 2))(X),
    "nested, called twice": lambda F, N: (lambda g: F.jit(lambda x: g(x) + g(x * 2))(X))(F.jit(N.sin)),
    "nested, other types": lambda F, N: (lambda g: F.jit(lambda x: (g(x), g(2), g(M)))(X))(F.jit(lambda x: x * x)),
    "static_argnums": lambda F, N: F.jit(lambda x, n: x**n, static_argnums=1)(X, 3),
    "static_argnums negative": lambda F, N: F.jit(lambda x, n: x**n, static_argnums=-1)(X, 3),
    "NumPy integers as positions": lambda F, N: [
        F.jit(lambda x, n: x**n, static_argnums=np.int64(1))(X, 3),
        F.jit(lambda x, n: x**n, static_argnums=(np.int32(-1),), donate_argnums=np.int32(0))(N.asarray(X) + 0, 3),
        F.grad(lambda x, y: (x * y).sum(), argnums=np.int64(1))(X, X),
        F.value_and_grad(lambda x, y: (x * y).sum(), argnums=(np.int64(1), 0))(X, X),
        F.jacfwd(lambda x, y: x * y, argnums=np.int64(-1))(X, X),
        len(F.make_jaxpr(lambda x, n: x**n, static_argnums=np.int64(1))(X, 3).in_avals),
        F.custom_jvp(lambda f, x: f(x), nondiff_argnums=(np.int64(0),)).__name__,
    ],
    "static_argnums and static_argnames": lambda F, N: [
        jitted(*args, **kwargs)
        for jitted in [
            F.jit(lambda x, n: x * len(str(n)) if isinstance(n, int) else x + n, static_argnums=1, static_argnames="x")
        ]
        for args, kwargs in [((X, 123), {}), ((X,), {"n": X})]
    ],
    "static_argnums and static_argnames, one empty": lambda F, N: [
        F.jit(lambda x, n: x * 2 if isinstance(n, int) else x + n, static_argnums=numbers, static_argnames=names)(
            X, *args, **kwargs
        )
        for numbers, names in [(1, ()), ((), "n"), (1, None), (None, "n"), ((), None), (None, ()), ((), ())]
        for args, kwargs in [((3,), {}), ((), {"n": 3})]
    ],
    "donate_argnums and donate_argnames, one empty": lambda F, N: [
        (F.jit(lambda x, n: (x + 1, n + 1), donate_argnums=numbers, donate_argnames=names)(X, n=n), n.is_deleted())[1]
        for numbers, names in [(1, ()), (1, None), ((), "n")]
        for n in [N.asarray(X) + 0]
    ],
    "static_argnums by keyword": lambda F, N: F.jit(lambda x, n: x * (n if n > 2 else -n), static_argnums=1)(X, n=3),
    "static_argnames": lambda F, N: F.jit(lambda x, n: x * (n if n > 2 else -n), static_argnames="n")(X, n=1),
    "static_argnames by position": lambda F, N: F.jit(lambda x, n: x * (n if n > 2 else -n), static_argnames=("n",))(
        X, 1
    ),
    "static before traced": lambda F, N: F.jit(lambda n, x: x * len(n), static_argnums=0)("word", X),
    "static in the middle": lambda F, N: F.jit(lambda x, s, y: x * y if s else x, static_argnums=(1,))(X, "", X),
    "static function": lambda F, N: F.jit(lambda f, x: f(x), static_argnums=0)(N.cos, X),
    "donated": lambda F, N: F.jit(lambda x, y: x * 2 + y, donate_argnums=0)(N.asarray(X) + 0, X),
    "donated by name": lambda F, N: F.jit(lambda x, y: x * 2 + y, donate_argnames="y")(X, y=N.asarray(X) + 0),
    "donated tree": lambda F, N: F.jit(lambda p, x: {k: v + x for k, v in p.items()}, donate_argnums=0)(
        {"a": N.asarray(X) + 0, "b": N.asarray(X) + 1}, X
    ),
    "donated, handed through": lambda F, N: F.jit(lambda x: (x, x + 1), donate_argnums=0)(N.asarray(X) + 0),
    "decorator with options": lambda F, N: (
        F.jit(static_argnums=1)(lambda x, n: x * n)(X, 3)
        if F is fx
        else F.jit(lambda x, n: x * n, static_argnums=1)(X, 3)
    ),
    "partial": lambda F, N: F.jit(functools.partial(lambda x, y: x * y, y=2.0))(X),
    "float0 in": lambda F, N: F.jit(lambda x, z: x * 2)(X, np.zeros(3, float0)),
    "eval_shape": lambda F, N: F.jit(lambda x: {"a": x @ x.T, "b": 1}).eval_shape(M),
    "in a loop of Python": lambda F, N: F.jit(lambda x: functools.reduce(lambda a, i: a * x + i, range(5), x))(X),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_jax(name: str) -> None:
    assert_agree(CASES[name])


# ------------------------------------------------------------------ tracing


@final
class Traced:
    """A function that counts its traces."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.calls = 0
        self._f = f

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self._f(*args, **kwargs)


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records the names of the lowered programs."""
    names: list[str] = []

    def spied(plan: ExecutionPlan, name: str, repeats: RepeatsMode) -> Any:
        names.append(name)
        return lower(plan, name, repeats)

    monkeypatch.setattr(xla_backend, "lower", spied)
    return names


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Records the jaxprs whose executable is looked up by cache key."""
    looked_up: list[object] = []

    def spied(jaxpr: Any) -> bytes | None:
        looked_up.append(jaxpr)
        return executable_key(jaxpr)

    monkeypatch.setattr(xla_backend, "executable_key", spied)
    return looked_up


def test_traces_once_per_signature() -> None:
    f = Traced(lambda x: x * 2)
    g = fx.jit(f)
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(g(X)), X * 2)
    assert f.calls == 1


SAME: Final[dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]] = {
    "other numbers": ((X,), (X + 1,)),
    "an array for a NumPy array": ((X,), (fnp.asarray(X),)),
    "a NumPy scalar for an array": ((np.float32(1),), (np.array(2, np.float32),)),
    "another Python number": ((1.0,), (2.0,)),
    "a dict in another order": (({"a": X, "b": 1},), ({"b": 2, "a": X},)),
    "float64, narrowed": ((X,), (X.astype(np.float64),)),
}
RETRACED: Final[dict[str, tuple[tuple[Any, ...], tuple[Any, ...], str]]] = {
    "shape": ((X,), (X[:2],), r"the argument `args\[0\]` of Traced was f32\[3\] and is f32\[2\]"),
    "rank": ((X,), (X[None],), r"was f32\[3\] and is f32\[1,3\]"),
    "dtype": ((X,), (I,), r"was f32\[3\] and is i32\[3\]"),
    "weak type": ((np.float32(1),), (1.0,), r"was f32\[\] and is f32\[\]\*"),
    "Python kind": ((1,), (1.0,), r"was i32\[\]\* and is f32\[\]\*"),
    "structure": (([X],), ((X,),), "the structure of the arguments was .* and is "),
    "None": ((X, None), (X, X), "the structure of the arguments"),
    "keys": (({"a": X},), ({"b": X},), "the structure of the arguments"),
}


@pytest.mark.parametrize("name", SAME)
def test_calls_with_equal_types_do_not_retrace(name: str) -> None:
    first, second = SAME[name]
    f = Traced(lambda *args: args)
    g = fx.jit(f)
    g(*first)
    g(*second)
    assert f.calls == 1
    assert g.explain_retrace(*second) == "Traced has a trace for these arguments"


@pytest.mark.parametrize("name", RETRACED)
def test_retraces_and_explains_the_cache_miss(name: str) -> None:
    first, second, reason = RETRACED[name]
    f = Traced(lambda *args: args)
    g = fx.jit(f)
    assert "has not been traced yet" in g.explain_retrace(*first)
    g(*first)
    explained = g.explain_retrace(*second)
    assert f.calls == 1
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(explained)
    g(*second)
    assert f.calls == 2
    g(*first)
    assert f.calls == 2


NAN: Final = float("nan")
STATICS: Final = [
    (1, 1, True),
    (1, 2, False),
    (1, 1.0, False),
    (1, True, False),
    (0.0, -0.0, False),
    (NAN, -NAN, False),
    (NAN, float("nan"), True),
    ((1, 0.0), (1, -0.0), False),
    ((1, "a"), (1, "a"), True),
    ("a", "b", False),
    (None, 0, False),
    (frozenset({1}), frozenset({1}), True),
]


@pytest.mark.parametrize(("first", "second", "equal"), STATICS)
@pytest.mark.parametrize("passed_as", ["position", "keyword", "name"])
def test_static_values_compare_by_type_and_bits(first: object, second: object, equal: bool, passed_as: str) -> None:
    f = Traced(lambda x, n: x)

    def function(x: Any, n: Any) -> Any:
        return f(x, n)

    g = fx.jit(function, static_argnames="n") if passed_as == "name" else fx.jit(function, static_argnums=1)
    for n in (first, second, first):
        g(X, n) if passed_as == "position" else g(X, n=n)
    assert f.calls == (1 if equal else 2)
    if not equal:
        fresh = fx.jit(lambda x, n: x, static_argnums=1)
        fresh(X, first)
        assert f"the static argument 1 was {first!r} and is {second!r}" in fresh.explain_retrace(X, second)


def test_positional_and_keyword_static_give_the_same_result() -> None:
    def scaled(x: Any, n: int) -> Any:
        return x * n if n > 1 else x

    g = fx.jit(scaled, static_argnames="n")
    np.testing.assert_array_equal(np.asarray(g(X, 3)), np.asarray(g(X, n=3)))


@pytest.mark.parametrize("call", [lambda g: g(X, [1]), lambda g: g(X, n={}), lambda g: g(X, np.ones(2))])
def test_static_arguments_must_be_hashable(call: Any) -> None:
    f = Traced(lambda x, n: x)

    def function(x: Any, n: Any) -> Any:
        return f(x, n)

    with pytest.raises(ValueError, match=r"jit of function: .*static argument .* must be hashable"):
        call(fx.jit(function, static_argnums=1))
    assert f.calls == 0


def test_configuration_is_part_of_the_trace_key() -> None:
    f = Traced(lambda x: x * 2)
    g = fx.jit(f)
    g(I)
    with fx.enable_x64():
        explained = g.explain_retrace(I)
        g(I)
        g(I)
    g(I)
    assert f.calls == 2
    assert "enable_x64 was False and is True" in explained


def test_axis_environment_is_part_of_the_trace_key() -> None:
    f = Traced(lambda x: x * 2)
    g = fx.jit(f)
    fx.vmap(g)(M)
    fx.vmap(g)(M)
    assert f.calls == 1
    fx.vmap(g, axis_name="i")(M)
    fx.vmap(g, axis_name="i")(M)
    assert f.calls == 2
    fx.vmap(g, axis_name="j")(M)
    assert f.calls == 3


def test_two_jits_of_a_function_share_its_traces() -> None:
    f = Traced(lambda x: x * 2)
    fx.jit(f)(X)
    fx.jit(f)(X)
    assert f.calls == 1


@pytest.mark.parametrize(
    ("stack", "x"),
    [
        (fx.grad, 2.0),
        (fx.vmap, X),
        (lambda g: fx.vmap(fx.grad(g)), X),
        (lambda g: fx.grad(fx.grad(g)), 2.0),
        (fx.jacfwd, X),
        (fx.jacrev, X),
        (lambda g: lambda x: fx.jvp(g, (x,), (x,)), X),
        (lambda g: lambda x: fx.linearize(g, x)[1](x), X),
    ],
    ids=["grad", "vmap", "vmap of grad", "grad of grad", "jacfwd", "jacrev", "jvp", "linearize"],
)
def test_repeated_transformed_calls_do_not_trace_hash_or_compile(
    stack: Any, x: Any, lowered: list[str], keys: list[object]
) -> None:
    f = Traced(lambda x: fnp.sin(x) * fnp.exp(x))
    g = fx.jit(f)
    run = stack(g)
    run(x)
    traced, compiled, hashed = f.calls, len(lowered), len(keys)
    assert compiled > 0
    assert hashed > 0
    for _ in range(3):
        run(x)
        stack(g)(x)
    assert (f.calls, len(lowered), len(keys)) == (traced, compiled, hashed)
    assert traced == 1


def test_equal_programs_are_compiled_once(lowered: list[str]) -> None:

    def make() -> Any:
        return fx.jit(lambda x: fnp.tanh(x) * 7.25)

    make()(X)
    make()(X)
    assert len(lowered) == 1


def test_closed_over_tracer_retraces_for_each_tracer() -> None:
    inner = []

    def outer(x: Any) -> Any:
        @fx.jit
        def f(y: Any) -> Any:
            inner.append(1)
            return x * y

        return f(x) + f(x)

    g = fx.grad(outer)
    assert float(g(3.0)) == 12.0
    assert float(g(4.0)) == 16.0


def test_trace_that_holds_a_tracer_is_not_cached() -> None:
    """A cached trace would use the tracer of the first call in the second."""
    captured: list[Any] = []

    @fx.jit
    def f(y: Any) -> Any:
        return captured[-1] * y

    def outer(x: Any) -> Any:
        captured.append(x)
        return f(2.0)

    assert [float(fx.grad(outer)(v)) for v in (1.0, 2.0)] == [2.0, 2.0]
    np.testing.assert_array_equal(np.asarray(fx.vmap(outer)(X)), X * 2)
    np.testing.assert_array_equal(np.asarray(fx.jit(outer)(3.0)), 6.0)
    captured.append(5.0)
    assert float(f(2.0)) == 10.0


def test_arrays_closed_over_are_arguments_of_the_program(lowered: list[str]) -> None:
    """Programs that differ only in closed-over arrays share an executable and return different results."""

    def make(a: Any) -> Any:
        return fx.jit(lambda x: fnp.sin(x) * a * 3.5)

    for a in (X, X + 1):
        assert_near(np.asarray(make(fnp.asarray(a))(X)), np.sin(X) * a * 3.5, ELEMENTARY)
    assert len(lowered) == 1


# ------------------------------------------------------------------ lifetime of traces


def test_traces_are_freed_with_the_function() -> None:
    def f(x: Any) -> Any:
        return x * 2

    g = fx.jit(f)
    g(X)
    fx.vmap(g)(X)
    trace = g.trace(X).trace
    jaxpr, function = weakref.ref(trace), weakref.ref(f)
    del trace, f, g
    gc.collect()
    assert (function(), jaxpr()) == (None, None)


def test_clear_cache() -> None:
    f = Traced(lambda x: x * 2)
    g = fx.jit(f)
    g(X)
    g.clear_cache()
    assert "has not been traced yet" in g.explain_retrace(X)
    g(X)
    assert f.calls == 2


def test_failed_trace_is_not_cached() -> None:
    fail = [True]

    def f(x: Any) -> Any:
        if fail[0]:
            raise KeyError("not today")
        return x * 2

    g = fx.jit(f)
    with pytest.raises(KeyError, match="not today"):
        g(X)
    fail[0] = False
    np.testing.assert_array_equal(np.asarray(g(X)), X * 2)


def test_disable_jit_calls_the_python_function() -> None:
    f = Traced(lambda x: x * 2 if x.sum() > 0 else x)
    g = fx.jit(f)
    with fx.disable_jit():
        for _ in range(3):
            np.testing.assert_array_equal(np.asarray(g(fnp.asarray(X))), X * 2)
    assert f.calls == 3
    with pytest.raises(TypeError, match=r"`bool\(\)`"):
        g(X)


def test_concurrent_threads_trace_and_compile() -> None:
    f = Traced(lambda x: fnp.sin(x) * 2)
    g = fx.jit(f)
    results: list[Any] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        results.append(np.asarray(g(X)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 8
    for r in results:
        assert_near(r, np.sin(X) * 2, ELEMENTARY)


# ------------------------------------------------------------------ methods


@final
class Model:
    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.traces = 0

    @fx.jit
    def plain(self, x: Any) -> Any:
        return x * self.scale

    @fx.jit(static_argnums=0)
    def apply(self, x: Any, y: Any = 1.0) -> Any:
        """Scaled."""
        self.traces += 1
        return x * self.scale + y

    @staticmethod
    @fx.jit
    def double(x: Any) -> Any:
        return x * 2


def test_methods() -> None:
    a, b = Model(2.0), Model(3.0)
    np.testing.assert_array_equal(np.asarray(a.apply(X)), X * 2 + 1)
    np.testing.assert_array_equal(np.asarray(a.apply(X, y=2.0)), X * 2 + 2)
    np.testing.assert_array_equal(np.asarray(b.apply(X)), X * 3 + 1)
    np.testing.assert_array_equal(np.asarray(a.apply(X + 1)), (X + 1) * 2 + 1)
    np.testing.assert_array_equal(np.asarray(Model.double(X)), X * 2)
    np.testing.assert_array_equal(np.asarray(Model.apply(b, X)), X * 3 + 1)
    assert (a.traces, b.traces) == (2, 1)
    assert a.apply.explain_retrace(X) == "apply has a trace for these arguments"
    assert "the argument `x` of apply was f32[3] and is i32[3]" in a.apply.explain_retrace(I)
    assert a.apply.eval_shape(M) == fx.ShapeDtypeStruct((2, 3), "float32")
    bound: Any = a.apply
    assert (bound.__name__, bound.__doc__) == ("apply", "Scaled.")
    assert "stablehlo" in a.apply.lower(X).as_text()
    np.testing.assert_array_equal(np.asarray(fx.vmap(a.apply)(M)), M * 2 + 1)


def test_jitted_method_of_non_pytree_raises_helpful_error() -> None:
    with pytest.raises(TypeError, match=r"`?self`?.*static_argnums=0"):
        Model(2.0).plain(X)


# ------------------------------------------------------------------ stages


def test_trace_lower_compile_stages() -> None:
    f = fx.jit(lambda x, y: {"out": fnp.sin(x) @ y})
    lowered = f.lower(M, X)
    assert "stablehlo.sine" in lowered.as_text()
    assert "loc(" not in lowered.as_text()
    assert __file__ in lowered.as_text(debug_info=True)
    compiled = lowered.compile()
    assert "HloModule" in compiled.as_text()
    assert compiled.cost_analysis()["flops"] > 0
    assert compiled.memory_analysis().argument_bytes == (6 + 3) * 4
    assert_near(np.asarray(compiled(M, X)["out"]), np.sin(M) @ X, ELEMENTARY)
    traced = f.trace(M, X)
    assert [e.prim.name for e in traced.jaxpr.eqns] == ["sin", "dot_general"]
    assert traced.out_info == lowered.out_info == {"out": fx.ShapeDtypeStruct((2,), "float32")}


def test_lowering_accepts_shape_dtype_structs() -> None:
    f = fx.jit(lambda x, n: x * n, static_argnums=1)
    compiled = f.lower(fx.ShapeDtypeStruct((3,), "float32"), 3).compile()
    np.testing.assert_array_equal(np.asarray(compiled(X, 3)), X * 3)


def test_compiled_function_takes_calls_with_and_without_static_arguments() -> None:
    compiled: Any = fx.jit(lambda n, x, m, y: n * x + m * y, static_argnums=(0, 2)).lower(3, X, 5, y=X).compile()
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(compiled(3, X, 5, y=X + 1)), np.asarray(compiled(X, y=X + 1)))
    with pytest.raises(TypeError, match="the static argument 0 was 3 and is 4"):
        compiled(4, X, 5, y=X)
    with pytest.raises(TypeError, match="compiled for: the structure of the arguments was"):
        compiled(X, X)


@pytest.mark.parametrize("args", [(X[:2],), (I,), ([X],), (1.0,)])
def test_compiled_function_refuses_other_arguments(args: Any) -> None:
    compiled = fx.jit(lambda x: x * 2).lower(X).compile()
    with pytest.raises(TypeError, match="called with other arguments than it was compiled for: .* was .* and is "):
        compiled(*args)


def test_compiled_function_refuses_tracers() -> None:
    compiled = fx.jit(lambda x: x * 2).lower(X).compile()
    with pytest.raises(TypeError, match="compiled .* cannot be transformed"):
        fx.vmap(compiled)(M)
    with pytest.raises(TypeError, match="compiled .* cannot be transformed"):
        fx.grad(lambda x: fnp.sum(compiled(x)))(X)


def test_unused_inputs_are_dropped_unless_keep_unused() -> None:
    def f(x: Any, y: Any) -> Any:
        return x * 2

    assert fx.jit(f).lower(X, M).as_text().count("tensor<2x3xf32>") == 0
    assert fx.jit(f, keep_unused=True).lower(X, M).as_text().count("tensor<2x3xf32>") > 0


def test_inline_removes_the_call() -> None:
    def calls(inline: bool) -> list[str]:
        g = fx.jit(lambda x: fnp.sin(x), inline=inline)
        return [e.prim.name for e in fx.make_jaxpr(lambda x: g(x) * 2)(X).eqns]

    assert calls(inline=True) == ["sin", "mul"]
    assert calls(inline=False) == ["jit", "mul"]


def test_donation_is_passed_to_the_compiler() -> None:
    text = fx.jit(lambda x: x + 1, donate_argnums=0).lower(X).as_text()
    assert "tf.aliasing_output" in text


def test_jit_without_a_function_is_a_decorator() -> None:
    @fx.jit(static_argnums=(1,))
    def f(x: Any, n: int) -> Any:
        return x * n

    np.testing.assert_array_equal(np.asarray(f(X, 3)), X * 3)


def test_device_and_backend() -> None:
    device = fx.devices()[0]
    for options in ({"device": device}, {"backend": "cpu"}):
        f: Any = fx.jit(lambda x, y: {"a": x + y}, **options)
        out = f(1.0, np.ones(2, np.float32))["a"]
        assert (out.device, out.committed) == (device, True)
        assert out.tolist() == [2.0, 2.0]
        assert float(fx.grad(lambda x, f=f: f(x, x)["a"])(1.0)) == 2.0
    with pytest.raises(ValueError, match="only one of device, backend"):
        fx.jit(lambda x: x, device=device, backend="cpu")
    with pytest.raises(PlatformError, match="there are no devices of platform 'nonsense'"):
        fx.jit(lambda x: x, backend="nonsense")
