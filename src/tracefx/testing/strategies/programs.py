"""Strategies for straight-line programs, programs with control flow, and stacks of transformations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tracefx.core import Shape
from tracefx.testing import generated_programs as steps
from tracefx.testing.control_flow_steps import WRAPPER_NAMES, CondStep, ScanStep, SwitchStep, WhileStep, WrappedStep
from tracefx.testing.generated_programs import (
    BINARY,
    TRANSFORM_NAMES,
    UNARY,
    ExpressionStep,
    GeneratedProgram,
    ProgramStep,
    TransformedProgram,
    TransformLayer,
)

# ------------------------------------------------------------------ straight-line programs


def _broadcasts(x: Shape, y: Shape) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(x), reversed(y), strict=False))


def _shape_step(draw: DrawFn, operand: int, shape: Shape) -> ExpressionStep:
    """Draws a step on one value that is not elementwise."""
    names = ["ravel", "transpose", "broadcast"]
    if shape:
        names += ["sum", "reverse", "double", "expand"]
    if min(shape, default=0) > 0:
        names += ["max", "cut"]
    name = draw(st.sampled_from(names))
    if name == "ravel":
        return steps.ravel_step(operand)
    if name == "transpose":
        return steps.transpose_step(operand)
    if name == "broadcast":
        return steps.broadcast_step(operand, (2, *shape))
    axis = draw(st.integers(0, len(shape) - 1))
    if name in ("sum", "max"):
        return steps.reduce_step(name, operand, axis, draw(st.booleans()))
    if name == "reverse":
        return steps.flip_step(operand, axis)
    if name == "cut":
        return steps.slice_step(operand, axis, draw(st.integers(0, shape[axis] - 1)))
    if name == "double":
        return steps.concatenate_step(operand, axis)
    return steps.expand_dims_step(operand, axis)


_CONTINUE: Final = st.integers(0, 5).map(bool)


def _step_indices(draw: DrawFn, most: int) -> Iterator[int]:
    """Yields step numbers. Every step is preceded by the same draw, so that shrinking can remove any of them."""
    for i in itertools.count():
        more = draw(_CONTINUE)
        if i and (i == most or not more):
            return
        yield i


@st.composite
def programs(draw: DrawFn, max_steps: int = 7, max_inputs: int = 3) -> GeneratedProgram:
    """Draws straight-line programs of floats in which all shapes match, with values of at most 64 elements.

    Args:
        max_steps: the maximum number of steps.
        max_inputs: the maximum number of inputs.

    Returns:
        A strategy for `GeneratedProgram`, which is callable and prints as Python code.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=2, deadline=None)
    ... @given(programs(max_steps=2))
    ... def test(program):
    ...     assert str(program).startswith("def program")
    >>> test()
    """
    sizes = st.sampled_from((1, 2, 3, 3, 2, 0))
    input_shapes = tuple(draw(st.lists(st.lists(sizes, max_size=2).map(tuple), min_size=1, max_size=max_inputs)))
    value_shapes = list(input_shapes)
    drawn_steps: list[ProgramStep] = []
    for _ in _step_indices(draw, max_steps):
        x = draw(st.integers(0, len(value_shapes) - 1))
        partners = [i for i, s in enumerate(value_shapes) if _broadcasts(value_shapes[x], s)]
        products = [i for i, s in enumerate(value_shapes) if s and value_shapes[x] and value_shapes[x][-1] == s[-2:][0]]
        kind = draw(st.sampled_from(["unary", "binary", "binary", "shape", "product"]))
        if kind == "product" and products:
            step = steps.dot_step(x, draw(st.sampled_from(products)))
        elif kind == "binary":
            step = steps.binary_step(draw(st.sampled_from(tuple(BINARY))), x, draw(st.sampled_from(partners)))
        elif kind == "shape" and len(value_shapes[x]) < 4:
            step = _shape_step(draw, x, value_shapes[x])
        else:
            step = steps.unary_step(draw(st.sampled_from(tuple(UNARY))), x)
        out = np.asarray(step.at(np, *[np.zeros(value_shapes[i]) for i in step.operands]))
        if out.size <= 64:
            drawn_steps.append(step)
            value_shapes.append(out.shape)
    return GeneratedProgram(input_shapes, tuple(drawn_steps))


# ------------------------------------------------------------------ programs with control flow


CONTROL_FLOW_KINDS = ("cond", "switch", "scan", "while", "wrapped")


@st.composite
def _bodies(draw: DrawFn, known: int, depth: int, max_steps: int) -> tuple[ProgramStep, ...]:
    """Draws steps on values of one shape, of which the first `known` are given; `depth` bounds the nesting."""
    drawn_steps: list[ProgramStep] = []
    for i in _step_indices(draw, max_steps):
        # The last value is the result, so every step except the first uses the one before.
        x = draw(st.integers(0, known - 1))
        y = draw(st.integers(0, known + i - 1))
        x = known + i - 1 if drawn_steps else x
        drawn_steps.append(draw(_step(x, y, depth)))
    return tuple(drawn_steps)


@st.composite
def _step(draw: DrawFn, x: int, y: int, depth: int) -> ProgramStep:
    kind = draw(st.sampled_from(("unary", "binary", *(CONTROL_FLOW_KINDS * 2 if depth else ()))))
    if kind == "unary":
        return steps.unary_step(draw(st.sampled_from(tuple(UNARY))), x)
    if kind == "binary":
        return steps.binary_step(draw(st.sampled_from(tuple(BINARY))), x, y)
    body = _bodies(2, depth - 1, 2)
    if kind == "cond":
        return CondStep((x, y), draw(st.sampled_from((-0.5, 0.0, 0.5))), draw(body), draw(body))
    if kind == "switch":
        return SwitchStep((x, y), (draw(body), draw(body), draw(body)))
    if kind == "scan":
        pieces = draw(st.sampled_from((None, None, 2, "binomial")))
        return ScanStep((x, y), draw(st.integers(1, 3)), draw(body), draw(st.booleans()), pieces)
    if kind == "while":
        return WhileStep((x, y), draw(st.integers(1, 4)), draw(body))
    return WrappedStep((x, y), draw(st.sampled_from(WRAPPER_NAMES)), draw(body))


@st.composite
def control_flow_programs(draw: DrawFn, max_steps: int = 3, depth: int = 2) -> GeneratedProgram:
    """Draws programs of conditionals, switches, scans, loops, checkpoints, calls and custom rules.

    Args:
        max_steps: the maximum number of steps of a body.
        depth: the maximum nesting depth.

    Returns:
        A strategy for `GeneratedProgram`, which is callable and prints as Python code.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=2, deadline=None)
    ... @given(control_flow_programs(max_steps=1, depth=1))
    ... def test(program):
    ...     assert str(program).startswith("def program")
    >>> test()
    """
    shape: Shape = draw(st.sampled_from(((), (2,), (3,), (2, 2))))
    count = draw(st.integers(1, 2))
    return GeneratedProgram((shape,) * count, draw(_bodies(count, depth, max_steps)))


# ------------------------------------------------------------------ stacks of transformations


@st.composite
def transform_stacks(draw: DrawFn, count: int, max_layers: int = 3) -> tuple[TransformLayer, ...]:
    """Draws stacks of transformations for a function of `count` inputs, the innermost first.

    Args:
        count: the number of inputs.
        max_layers: the maximum number of transformations.

    Returns:
        A strategy for tuples of `TransformLayer`.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=5, deadline=None)
    ... @given(transform_stacks(1))
    ... def test(layers):
    ...     assert len(layers) <= 3
    >>> test()
    """
    layers = []
    for name in draw(st.lists(st.sampled_from(TRANSFORM_NAMES), max_size=max_layers)):
        mapped = draw(st.lists(st.booleans(), min_size=count, max_size=count)) if name == "vmap" else [True] * count
        layers.append(TransformLayer(name, tuple(mapped if any(mapped) else [True] * count)))
    return tuple(layers)


@st.composite
def _with_transform_stacks(
    draw: DrawFn, programs: SearchStrategy[GeneratedProgram], max_layers: int
) -> TransformedProgram:
    program = draw(programs)
    return TransformedProgram(
        program, draw(transform_stacks(len(program.shapes), max_layers)), draw(st.integers(0, 99))
    )


def transformed_programs(max_steps: int = 7, max_layers: int = 3) -> SearchStrategy[TransformedProgram]:
    """Returns a strategy for straight-line programs under stacks of transformations, with inputs.

    Args:
        max_steps: the maximum number of steps.
        max_layers: the maximum number of transformations.

    Returns:
        A strategy for `TransformedProgram`, which prints as Python code.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=2, deadline=None)
    ... @given(transformed_programs(max_steps=2))
    ... def test(program):
    ...     assert "def program" in str(program)
    >>> test()
    """
    return _with_transform_stacks(programs(max_steps), max_layers)


def transformed_control_flow_programs(
    max_steps: int = 3, max_layers: int = 3, depth: int = 2
) -> SearchStrategy[TransformedProgram]:
    """Returns a strategy for programs with control flow under stacks of transformations, with inputs.

    Args:
        max_steps: the maximum number of steps of a body.
        max_layers: the maximum number of transformations.
        depth: the maximum nesting depth.

    Returns:
        A strategy for `TransformedProgram`, which prints as Python code.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=2, deadline=None)
    ... @given(transformed_control_flow_programs(max_steps=1, depth=1))
    ... def test(program):
    ...     assert "def program" in str(program)
    >>> test()
    """
    return _with_transform_stacks(control_flow_programs(max_steps, depth), max_layers)
