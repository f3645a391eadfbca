"""`debug.print`: its output under control flow and transformations, and its format strings, as in JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.control.libraries import JAX, TRACEFX, Library


def square(m: Library, ordered: bool) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        m.print("x = {}, {y:.3f}", x, y=x + 0.5, ordered=ordered)
        return x * x

    return f


def of_branches(m: Library, ordered: bool) -> Callable[[Any], Any]:
    def small(x: Any) -> Any:
        m.print("small {}", x, ordered=ordered)
        return x

    def large(x: Any) -> Any:
        m.print("large {}", x, ordered=ordered)
        return x * x

    def f(x: Any) -> Any:
        m.print("before {}", x, ordered=ordered)
        return m.cond(x > 1, large, small, x)

    return f


def of_steps(m: Library, ordered: bool) -> Callable[[Any], Any]:
    def step(c: Any, x: Any) -> tuple[Any, Any]:
        m.print("carry {c}, {}", x, c=c, ordered=ordered)
        return c * x, c

    return lambda xs: m.scan(step, m.np.float32(1), xs)


def until(m: Library, ordered: bool) -> Callable[[Any], Any]:
    def more(x: Any) -> Any:
        m.print("more? {}", x, ordered=ordered)
        return x < 3

    def step(x: Any) -> Any:
        m.print("step {}", x, ordered=ordered)
        return of_branches(m, ordered)(x) + 1

    return lambda x: m.while_loop(more, step, x)


PROGRAMS: Final[dict[str, Callable[[Library, bool], object]]] = {
    "plain": lambda m, o: square(m, o)(m.np.float32(3)),
    "called": lambda m, o: m.top.jit(square(m, o))(m.np.float32(3)) + square(m, o)(m.np.float32(2)),
    "grad": lambda m, o: m.top.grad(square(m, o))(3.0),
    "grad of a call": lambda m, o: m.top.grad(m.top.jit(square(m, o)))(3.0),
    "value_and_grad": lambda m, o: m.top.value_and_grad(square(m, o))(3.0),
    "grad of grad": lambda m, o: m.top.grad(m.top.grad(square(m, o)))(3.0),
    "jvp": lambda m, o: m.top.jvp(square(m, o), (3.0,), (1.0,)),
    "linearize": lambda m, o: m.top.linearize(square(m, o), 3.0)[1](1.0),
    "vmap": lambda m, o: m.top.vmap(square(m, o))(m.np.arange(3.0)),
    "vmap of a call": lambda m, o: m.top.vmap(m.top.jit(square(m, o)))(m.np.arange(3.0)),
    "grad under vmap": lambda m, o: m.top.vmap(m.top.grad(square(m, o)))(m.np.arange(3.0)),
    "two batches": lambda m, o: m.top.vmap(m.top.vmap(of_two(m, o), in_axes=(0, None)), in_axes=(None, 0))(
        m.np.arange(3.0), m.np.arange(2.0)
    ),
    "other two batches": lambda m, o: m.top.vmap(m.top.vmap(of_two(m, o), in_axes=(0, None)))(
        m.np.arange(6.0).reshape(2, 3), m.np.arange(2.0)
    ),
    "cond": lambda m, o: of_branches(m, o)(m.np.float32(3)) + of_branches(m, o)(m.np.float32(0)),
    "grad of cond": lambda m, o: m.top.grad(of_branches(m, o))(3.0),
    "vmap of cond": lambda m, o: m.top.vmap(of_branches(m, o))(m.np.arange(3.0)),
    "scan": lambda m, o: of_steps(m, o)(m.np.arange(1.0, 4.0)),
    "grad of scan": lambda m, o: m.top.grad(lambda xs: of_steps(m, o)(xs)[0])(m.np.arange(1.0, 4.0)),
    "vmap of scan": lambda m, o: m.top.vmap(of_steps(m, o))(m.np.arange(6.0).reshape(2, 3)),
    "while": lambda m, o: until(m, o)(m.np.float32(0)),
    "scan of while": lambda m, o: m.scan(lambda c, x: (until(m, o)(c + x), c), m.np.float32(0), m.np.arange(2.0)),
}


def of_two(m: Library, ordered: bool) -> Callable[[Any, Any], Any]:
    def f(x: Any, y: Any) -> Any:
        m.print("{} and {}", x, y, ordered=ordered)
        return x * y

    return f


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_output_agrees_with_jax(name: str, ordered: bool, compiled: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def run(m: Library) -> tuple[list[Any], str]:
        def program() -> object:
            return PROGRAMS[name](m, ordered)

        result = (m.top.jit(program) if compiled else program)()
        m.top.effects_barrier()
        return [np.asarray(leaf).tolist() for leaf in m.top.tree.leaves(result)], capsys.readouterr().out

    (result, printed), (wanted, wanted_text) = run(TRACEFX), run(JAX)
    assert result == wanted
    if ordered:
        assert printed == wanted_text
    else:  # in any order
        assert sorted(printed.splitlines()) == sorted(wanted_text.splitlines())


FORMATS: Final[Sequence[tuple[str, tuple[object, ...], dict[str, object]]]] = (
    ("nothing", (), {}),
    ("{{}}", (), {}),
    ("{} {{}} {}", (1.5, 2), {}),
    ("{1} {0}", (1.5, "text"), {}),
    ("{:.3f} {x:>8}", (1.23456,), {"x": "text"}),
    ("{x:{width}.2f}|", (), {"x": 1.5, "width": 8}),
    ("{} {!r}", (None, {"a": "b"}), {}),
    ("{x.shape} {x[1]}", (), {"x": np.arange(3, dtype=np.float32)}),
    ("{} {!s} {!r} {:>8.3f}", (np.float32(0.9),) * 4, {}),
    ("{} {} {}", (np.float16(0.9), np.complex64(0.9), True), {}),
    ("{} {:>4}", (np.int8(3), 5), {}),
    ("{}", (np.linspace(0, 1, 5, dtype=np.float32),), {}),
)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(("fmt", "args", "kwargs"), FORMATS, ids=[f[0] for f in FORMATS])
def test_formats_are_interpreted_as_in_jax(
    fmt: str, args: tuple[object, ...], kwargs: dict[str, object], compiled: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(m: Library) -> str:
        def program() -> None:
            with np.printoptions(precision=2):
                m.print(fmt, *args, **kwargs)

        (m.top.jit(program) if compiled else program)()
        m.top.effects_barrier()
        return capsys.readouterr().out

    assert run(TRACEFX) == run(JAX)


@pytest.mark.parametrize(
    ("fmt", "args", "kwargs", "error", "message"),
    [
        ("{x}", (), {"x": 1, "y": 2}, ValueError, "does not use keyword argument 'y'"),
        ("{}", (1, 2), {}, ValueError, "does not use positional argument 1"),
        ("1.0", (1,), {}, ValueError, "f-string"),
        ("{y}", (), {}, KeyError, "uses y, but no arguments have these names"),
        ("{} {}", (1,), {}, IndexError, "positional argument 1"),
        ("{0} {}", (1, 2), {}, ValueError, "number either all"),
        ("{", (), {}, ValueError, "Single '{'"),
        (3, (), {}, TypeError, "format string first, got 3"),
    ],
)
def test_invalid_formats_are_rejected(
    fmt: Any, args: tuple[object, ...], kwargs: dict[str, object], error: type[Exception], message: str
) -> None:
    for m in (TRACEFX, JAX):
        with pytest.raises(error, match=message if m is TRACEFX else None):
            m.print(fmt, *args, **kwargs)


def test_f_string_with_a_tracer_prints_it_and_is_rejected_with_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    fx.jit(lambda x: fx.debug.print(f"{x}"))(1.0)
    assert capsys.readouterr().out == "StageTracer(f32[])\n"
    with pytest.raises(ValueError, match="remove the f"):
        fx.jit(lambda x: fx.debug.print(f"{x}", x))(1.0)


def test_formats_are_checked_without_formatting_values() -> None:
    (eqn,) = fx.make_jaxpr(lambda x: fx.debug.print("{x.shape} {x[0]}", x=x))(fnp.ones(3)).eqns
    assert eqn.prim.name == "debug_print"


def test_options_and_format_arguments_of_the_same_name_are_distinct(capsys: pytest.CaptureFixture[str]) -> None:
    fx.debug.print(ordered=True)("{ordered}", ordered=1)
    seen: list[object] = []
    fx.debug.callback(ordered=True)(lambda **kwargs: seen.append(sorted(kwargs)), ordered=2, partitioned=3)
    assert capsys.readouterr().out == "1\n"
    assert seen == [["ordered", "partitioned"]]
    functions: list[Any] = [fx.debug.print, fx.debug.callback]
    for function in functions:
        with pytest.raises(TypeError, match="takes options only"):
            function(x=1)


def test_arguments_that_are_no_arrays_are_passed_unchanged() -> None:
    seen: list[Any] = []
    marked = {1, 2}

    @fx.jit
    def f(x: Any) -> None:
        fx.debug.callback(lambda *args, **kwargs: seen.append((args, kwargs)), {"a": x, "b": "text"}, None, s=marked)

    f(2.0)
    ((args, kwargs),) = seen
    tree, none = args
    assert float(tree["a"]) == 2
    assert tree["b"] == "text"
    assert none is None
    assert kwargs["s"] is marked
