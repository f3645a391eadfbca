"""Programs, straight and with control flow, and stacks of transformations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tracefx.testing import programs as steps
from tracefx.testing.programs import BINARY, LAYERS, UNARY, Apply, Layer, Program, Shape, Stacked, Step
from tracefx.testing.structures import WRAPPERS, Branch, Choice, Loop, Repeat, Wrapped

# ------------------------------------------------------------------ straight lines


def _fits(x: Shape, y: Shape) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(x), reversed(y), strict=False))


def _reshaping(draw: DrawFn, place: int, shape: Shape) -> Apply:
    """An operation on one value of `shape` that is no map over its elements."""
    names = ["ravel", "transpose", "broadcast"]
    if shape:
        names += ["sum", "reverse", "double", "expand"]
    if min(shape, default=0) > 0:
        names += ["max", "cut"]
    name = draw(st.sampled_from(names))
    if name == "ravel":
        return steps.ravel(place)
    if name == "transpose":
        return steps.transpose(place)
    if name == "broadcast":
        return steps.broadcast(place, (2, *shape))
    axis = draw(st.integers(0, len(shape) - 1))
    if name in ("sum", "max"):
        return steps.fold(name, place, axis, draw(st.booleans()))
    if name == "reverse":
        return steps.reverse(place, axis)
    if name == "cut":
        return steps.cut(place, axis, draw(st.integers(0, shape[axis] - 1)))
    if name == "double":
        return steps.double(place, axis)
    return steps.expand(place, axis)


_MORE: Final = st.integers(0, 5).map(bool)


def _counted(draw: DrawFn, most: int) -> Iterator[int]:
    """The numbers of steps. The same is drawn for each, and once more at the end: so shrinking can take any away."""
    for i in itertools.count():
        more = draw(_MORE)
        if i and (i == most or not more):
            return
        yield i


@st.composite
def programs(draw: DrawFn, max_steps: int = 7, max_inputs: int = 3) -> Program:
    """Straight-line programs of floats, every step of which fits; of up to 64 numbers a value, now and then none."""
    sizes = st.sampled_from((1, 2, 3, 3, 2, 0))
    given = tuple(draw(st.lists(st.lists(sizes, max_size=2).map(tuple), min_size=1, max_size=max_inputs)))
    known = list(given)
    made: list[Step] = []
    for _ in _counted(draw, max_steps):
        x = draw(st.integers(0, len(known) - 1))
        partners = [i for i, s in enumerate(known) if _fits(known[x], s)]
        products = [i for i, s in enumerate(known) if s and known[x] and known[x][-1] == s[-2:][0]]
        kind = draw(st.sampled_from(["unary", "binary", "binary", "shape", "product"]))
        if kind == "product" and products:
            step = steps.dot(x, draw(st.sampled_from(products)))
        elif kind == "binary":
            step = steps.binary(draw(st.sampled_from(tuple(BINARY))), x, draw(st.sampled_from(partners)))
        elif kind == "shape" and len(known[x]) < 4:
            step = _reshaping(draw, x, known[x])
        else:
            step = steps.unary(draw(st.sampled_from(tuple(UNARY))), x)
        out = np.asarray(step.at(np, *[np.zeros(known[i]) for i in step.operands]))
        if out.size <= 64:
            made.append(step)
            known.append(out.shape)
    return Program(given, tuple(made))


# ------------------------------------------------------------------ with structure


KINDS = ("cond", "switch", "scan", "while", "wrapped")


@st.composite
def _bodies(draw: DrawFn, known: int, depth: int, max_steps: int) -> tuple[Step, ...]:
    """Steps on values of one shape, the first `known` of which are there; `depth` says how deep structures may nest."""
    made: list[Step] = []
    for i in _counted(draw, max_steps):
        # The last value is the result, so each step but the first goes on from it.
        x = draw(st.integers(0, known - 1))
        y = draw(st.integers(0, known + i - 1))
        x = known + i - 1 if made else x
        made.append(draw(_step(x, y, depth)))
    return tuple(made)


@st.composite
def _step(draw: DrawFn, x: int, y: int, depth: int) -> Step:
    kind = draw(st.sampled_from(("unary", "binary", *(KINDS * 2 if depth else ()))))
    if kind == "unary":
        return steps.unary(draw(st.sampled_from(tuple(UNARY))), x)
    if kind == "binary":
        return steps.binary(draw(st.sampled_from(tuple(BINARY))), x, y)
    body = _bodies(2, depth - 1, 2)
    if kind == "cond":
        return Branch((x, y), draw(st.sampled_from((-0.5, 0.0, 0.5))), draw(body), draw(body))
    if kind == "switch":
        return Choice((x, y), (draw(body), draw(body), draw(body)))
    if kind == "scan":
        pieces = draw(st.sampled_from((None, None, 2, "binomial")))
        return Repeat((x, y), draw(st.integers(1, 3)), draw(body), draw(st.booleans()), pieces)
    if kind == "while":
        return Loop((x, y), draw(st.integers(1, 4)), draw(body))
    return Wrapped((x, y), draw(st.sampled_from(WRAPPERS)), draw(body))


@st.composite
def structured_programs(draw: DrawFn, max_steps: int = 3, depth: int = 2) -> Program:
    """Programs of conditions, switches, scans, loops, checkpoints, calls and custom rules, nested up to a depth."""
    shape: Shape = draw(st.sampled_from(((), (2,), (3,), (2, 2))))
    count = draw(st.integers(1, 2))
    return Program((shape,) * count, draw(_bodies(count, depth, max_steps)))


# ------------------------------------------------------------------ stacks


@st.composite
def stacks(draw: DrawFn, count: int, max_layers: int = 3) -> tuple[Layer, ...]:
    """Up to `max_layers` layers from the inside out, for a function of `count` inputs."""
    layers = []
    for name in draw(st.lists(st.sampled_from(LAYERS), max_size=max_layers)):
        mapped = draw(st.lists(st.booleans(), min_size=count, max_size=count)) if name == "vmap" else [True] * count
        layers.append(Layer(name, tuple(mapped if any(mapped) else [True] * count)))
    return tuple(layers)


@st.composite
def _under_stacks(draw: DrawFn, programs: SearchStrategy[Program], max_layers: int) -> Stacked:
    program = draw(programs)
    return Stacked(program, draw(stacks(len(program.shapes), max_layers)), draw(st.integers(0, 99)))


def stacked(max_steps: int = 7, max_layers: int = 3) -> SearchStrategy[Stacked]:
    """Straight-line programs under stacks, with numbers to run them on."""
    return _under_stacks(programs(max_steps), max_layers)


def structured(max_steps: int = 3, max_layers: int = 3, depth: int = 2) -> SearchStrategy[Stacked]:
    """Programs with control flow under stacks, with numbers to run them on."""
    return _under_stacks(structured_programs(max_steps, depth), max_layers)
