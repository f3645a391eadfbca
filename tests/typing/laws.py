"""Static types of `tracefx.testing`. Checked by mypy and pyright; the functions are never called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

from hypothesis.strategies import SearchStrategy

import tracefx as fx
from tracefx import Array
from tracefx.core import dtypes
from tracefx.pytrees.trees import PyTree
from tracefx.testing import (
    IdentityHandler,
    LawError,
    LawReport,
    Reproducer,
    Ulps,
    array,
    assert_transforms_commute,
    check_batchable,
    check_equivalent,
    check_function,
    check_grads,
    check_handler,
    check_linear,
    check_primitive,
    vmap_is_a_loop,
)
from tracefx.testing.generated_programs import GeneratedProgram, TransformedProgram
from tracefx.testing.strategies import (
    Einsum,
    arrays,
    axes,
    axis_tuples,
    broadcastable_arrays,
    broadcastable_shapes,
    einsums,
    index_expressions,
    programs,
    pytrees,
    shapes,
    transformed_control_flow_programs,
)


def square(x: Array) -> Array:
    return x * x


def checks_accept_functions_and_pytrees(x: Array) -> None:
    assert_type(check_function(square, x), LawReport)
    assert_type(check_function(square, x).passed, tuple[str, ...])
    check_grads(square, x, order=3, modes=["fwd"])
    check_grads(square, x, modes=["forward"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    check_linear(square, {"x": x}, ulps=Ulps(f64=4))
    check_batchable(square, x, 2.0)
    check_primitive(square, [x])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    check_equivalent(square, fx.jit(square), arrays(), transforms=[fx.jit, fx.Grad(), fx.Vmap() @ fx.Grad()])
    check_equivalent(square, 2.0, x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    check_equivalent(square, square, x, transforms=[2])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    assert_transforms_commute(fx.Vmap(), fx.jit, square, x)
    vmap_is_a_loop(square, x)


def handler_factories_take_the_inner_handler() -> None:
    assert_type(check_handler(IdentityHandler), LawReport)
    check_handler(lambda inner: IdentityHandler(inner), square, 2.0, meaning=lambda f: f)
    check_handler(IdentityHandler(fx.current()))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def law_errors_have_evidence(error: LawError) -> None:
    assert_type(error.message, str)
    assert_type(error.reproducer, Reproducer | None)
    if error.reproducer is not None:
        assert_type(error.reproducer.python, str | None)


def strategies_have_value_types() -> None:
    assert_type(arrays(dtypes.float32, (2,)), SearchStrategy[Array])
    assert_type(broadcastable_arrays(2), SearchStrategy[tuple[Array, ...]])
    assert_type(shapes(), SearchStrategy[tuple[int, ...]])
    assert_type(broadcastable_shapes(2), SearchStrategy[tuple[tuple[int, ...], ...]])
    assert_type(axes(2), SearchStrategy[int])
    assert_type(axis_tuples(2), SearchStrategy[tuple[int, ...]])
    assert_type(pytrees(), SearchStrategy[PyTree])
    assert_type(einsums(), SearchStrategy[Einsum])
    assert_type(programs(), SearchStrategy[GeneratedProgram])
    assert_type(transformed_control_flow_programs(), SearchStrategy[TransformedProgram])
    index_expressions((2, 3), kinds=("slice",))
    index_expressions("ij")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def generated_programs_accept_any_library(case: TransformedProgram, library: Any, functions: Any) -> None:
    f: Callable[..., Any] = case.function(library, functions)
    assert_type(case.source, str)
    f(*case.inputs())
    assert_type(array([1.0], "float64", weak_type=True), Array)
