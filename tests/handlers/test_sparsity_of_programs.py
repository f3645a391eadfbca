"""Sparsity and forward Laplacians of generated programs, compared with dense Jacobians and Hessians.

A program costs seconds; `make laws` runs more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import given

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.laws.examples import limit_examples
from tracefx.handlers import forward_laplacian, sparse_hessian, sparse_jacobian
from tracefx.testing.generated_programs import GeneratedProgram
from tracefx.testing.strategies.programs import control_flow_programs, programs
from tracefx.testing.tolerances import DERIVATIVE


def arguments(program: GeneratedProgram) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return tuple([rng.normal(size=shape) for shape in program.shapes])


def matrix(tree: Any, rows: int, sizes: Sequence[int]) -> Any:
    """Concatenates the Jacobians by several arguments to one matrix."""
    return np.concatenate([np.reshape(np.asarray(x), (rows, n)) for x, n in zip(tree, sizes, strict=True)], 1)


def finite(*arrays: Any) -> bool:
    return all(bool(np.isfinite(x).all()) for x in arrays)


def compare(program: GeneratedProgram) -> None:
    with fx.enable_x64():
        f, xs = program.function(fx, fnp), arguments(program)
        array_function: Callable[..., Any] = lambda xs: fnp.asarray(f(*xs))  # noqa: E731
        out, sizes = array_function(xs), [x.size for x in xs]
        dense = matrix(fx.jit(fx.jacfwd(array_function))(xs), out.size, sizes)
        sparse = sparse_jacobian(array_function)(xs)
        outside = dense[~sparse.pattern.todense()]
        assert not np.nan_to_num(outside).any(), sparse.pattern.todense().astype(int)
        if finite(dense):
            assert_near(sparse.todense(), dense, DERIVATIVE)
        total: Callable[..., Any] = lambda xs: fnp.sum(array_function(xs))  # noqa: E731
        blocks = fx.jit(fx.hessian(total))(xs)
        size = dense.shape[1]
        curvature = np.concatenate([matrix(row, n, sizes) for row, n in zip(blocks, sizes, strict=True)])
        second = sparse_hessian(total)(xs)
        assert second.shape == (size, size)
        if finite(curvature):
            assert not curvature[~second.pattern.todense()].any()
            assert_near(second.todense(), curvature, DERIVATIVE)
            value, jacobian, laplacian = forward_laplacian(array_function)(xs)
            assert_near(value, out, DERIVATIVE)
            assert_near(matrix(jacobian, out.size, sizes), dense, DERIVATIVE)
            assert_near(np.sum(laplacian), np.trace(curvature), DERIVATIVE)


@limit_examples(8, at_length=200)
@given(programs(max_steps=6))
def test_straight_line_programs(program: GeneratedProgram) -> None:
    compare(program)


@limit_examples(4, at_length=200)
@given(control_flow_programs(max_steps=2))
def test_programs_with_control_flow_and_custom_rules(program: GeneratedProgram) -> None:
    compare(program)
