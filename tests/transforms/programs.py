"""Hypothesis strategies: straight-line programs, and stacks of transformations to run them under.

Both are written in terms of the modules they are given, `(fx, fnp)` or `(jax, jnp)`: one value is a program of either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt
from attrs import frozen
from hypothesis import strategies as st
from typing_extensions import override

Shape: TypeAlias = tuple[int, ...]
Function: TypeAlias = Callable[..., Any]
Apply: TypeAlias = Callable[..., Any]
"""`apply(N, *operands)` with a namespace of array functions."""

# ------------------------------------------------------------------ programs


@final
@frozen(eq=False)
class Step:
    """One operation on earlier values, by their numbers."""

    text: str
    apply: Apply
    operands: tuple[int, ...]


@final
@frozen(eq=False)
class Program:
    """Inputs, then a value for each step. The last value, with all that nobody used, is the output."""

    shapes: tuple[Shape, ...]
    steps: tuple[Step, ...]

    def function(self, N: Any) -> Function:
        def run(*inputs: Any) -> Any:
            values = list(inputs)
            for step in self.steps:
                values.append(step.apply(N, *[values[i] for i in step.operands]))
            used = {i for step in self.steps for i in step.operands}
            rest = [N.sum(v) for i, v in enumerate(values[:-1]) if i not in used]
            return sum(rest, values[-1])

        return run

    @override
    def __str__(self) -> str:
        lines = [f"v{i} = input {shape}" for i, shape in enumerate(self.shapes)]
        lines += [
            f"v{len(self.shapes) + i} = {step.text}({', '.join(f'v{o}' for o in step.operands)})"
            for i, step in enumerate(self.steps)
        ]
        return "\n".join(lines)

    __repr__ = __str__


UNARY: Final[dict[str, Apply]] = {
    "sin": lambda N, x: N.sin(x),
    "cos": lambda N, x: N.cos(x),
    "tanh": lambda N, x: N.tanh(x),
    "exp": lambda N, x: N.exp(N.minimum(x, 1.0)),
    "log": lambda N, x: N.log(1.5 + x * x),
    "sqrt": lambda N, x: N.sqrt(0.5 + N.abs(x)),
    "negative": lambda N, x: -x,
    "cube": lambda N, x: N.tanh(x) ** 3,
    "reciprocal": lambda N, x: 1 / (2 + N.sin(x)),
    "to integers and back": lambda N, x: (4 * N.tanh(x)).astype(np.int32).astype(np.float64) * 0.5,
}
BINARY: Final[dict[str, Apply]] = {
    "add": lambda N, x, y: x + y,
    "subtract": lambda N, x, y: x - y,
    "multiply": lambda N, x, y: x * N.tanh(y),
    "divide": lambda N, x, y: x / (1.5 + N.cos(y)),
    "maximum": lambda N, x, y: N.maximum(x, y),
    "minimum": lambda N, x, y: N.minimum(x, y),
    "where": lambda N, x, y: N.where(x > y, x, N.sin(y)),
}
SIZES: Final = (1, 2, 3)


def _shape() -> st.SearchStrategy[Shape]:
    return st.lists(st.sampled_from(SIZES), max_size=2).map(tuple)


def _fits(x: Shape, y: Shape) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(x), reversed(y), strict=False))


def _of_one(draw: st.DrawFn, shape: Shape) -> tuple[str, Apply]:
    """An operation on one value of `shape` that is no map over its elements."""
    axes = st.integers(0, len(shape) - 1)
    kinds = ["ravel", "transpose", "broadcast"] + ["sum", "max", "reverse", "slice", "double", "expand"] * bool(shape)
    kind = draw(st.sampled_from(kinds))
    if kind in ("sum", "max"):
        axis, keep = draw(axes), draw(st.booleans())
        return f"{kind} over {axis}", lambda N, x: getattr(N, kind)(x, axis=axis, keepdims=keep)
    if kind == "ravel":
        return kind, lambda N, x: N.ravel(x)
    if kind == "transpose":
        return kind, lambda N, x: N.transpose(x)
    if kind == "broadcast":
        return kind, lambda N, x: N.broadcast_to(x, (2, *shape))
    axis = draw(axes)
    if kind == "reverse":
        return f"reverse {axis}", lambda N, x: N.flip(x, axis)
    if kind == "slice":
        start = draw(st.integers(0, shape[axis] - 1))
        return f"slice {axis}", lambda N, x: x[(slice(None),) * axis + (slice(start, None),)]
    if kind == "double":
        return f"concatenate {axis}", lambda N, x: N.concatenate([x, N.sin(x)], axis)
    return f"expand {axis}", lambda N, x: N.expand_dims(x, axis)


@st.composite
def programs(draw: st.DrawFn, max_steps: int = 7) -> Program:
    """Programs of one to three inputs, every step of which fits."""
    shapes = tuple(draw(st.lists(_shape(), min_size=1, max_size=3)))
    known = list(shapes)
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, max_steps))):
        x = draw(st.integers(0, len(known) - 1))
        partners = [i for i, s in enumerate(known) if _fits(known[x], s)]
        products = [i for i, s in enumerate(known) if s and known[x] and known[x][-1] == s[-2:][0]]
        kind = draw(st.sampled_from(["unary", "binary", "binary", "shape", "product"]))
        if kind == "product" and products:
            step = Step("dot", lambda N, a, b: N.dot(a, b), (x, draw(st.sampled_from(products))))
        elif kind == "binary":
            name = draw(st.sampled_from(sorted(BINARY)))
            step = Step(name, BINARY[name], (x, draw(st.sampled_from(partners))))
        elif kind == "shape" and len(known[x]) < 4:
            step = Step(*_of_one(draw, known[x]), (x,))
        else:
            name = draw(st.sampled_from(sorted(UNARY)))
            step = Step(name, UNARY[name], (x,))
        out = step.apply(np, *[np.zeros(known[i]) for i in step.operands])
        if out.size <= 64:
            steps.append(step)
            known.append(out.shape)
    return Program(shapes, tuple(steps))


# ------------------------------------------------------------------ stacks


@final
@frozen
class Layer:
    """One transformation of a stack; `mapped` says of each input whether `vmap` maps it."""

    name: str
    mapped: tuple[bool, ...] = ()

    def inputs(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """The shapes of the inputs of the transformed function."""
        if self.name != "vmap":
            return tuple(shapes)
        return tuple([(2, *s) if m else s for s, m in zip(shapes, self.mapped, strict=True)])

    def over(self, F: Any, N: Any, f: Function) -> Function:
        if self.name == "jit":
            return F.jit(f)  # type: ignore[no-any-return]
        if self.name == "vmap":
            return F.vmap(f, in_axes=tuple([0 if m else None for m in self.mapped]))  # type: ignore[no-any-return]
        if self.name == "grad":
            return F.grad(lambda *xs: N.sum(f(*xs)), len(self.mapped) - 1)  # type: ignore[no-any-return]
        if self.name == "jvp":
            return lambda *xs: F.jvp(f, xs, tuple([N.cos(x) for x in xs]))[1]
        if self.name == "linearize":
            return lambda *xs: F.linearize(f, *xs)[1](*[N.sin(x) for x in xs])
        assert self.name == "vjp"

        def pulled(*xs: Any) -> Any:
            y, pull = F.vjp(f, *xs)
            return pull(y)[0]

        return pulled


@st.composite
def stacks(draw: st.DrawFn, count: int, max_layers: int = 3) -> tuple[Layer, ...]:
    """Layers from the inside out, for a function of `count` inputs."""
    layers = []
    for name in draw(
        st.lists(st.sampled_from(["jit", "vmap", "grad", "jvp", "vjp", "linearize"]), min_size=1, max_size=max_layers)
    ):
        mapped = draw(st.lists(st.booleans(), min_size=count, max_size=count)) if name == "vmap" else [True] * count
        layers.append(Layer(name, tuple(mapped if any(mapped) else [True] * count)))
    return tuple(layers)


@final
@frozen(eq=False)
class Stacked:
    """A program under a stack."""

    program: Program
    layers: tuple[Layer, ...]
    seed: int

    def function(self, F: Any, N: Any) -> Function:
        f = self.program.function(N)
        for layer in self.layers:
            f = layer.over(F, N, f)
        return f

    def inputs(self) -> list[npt.NDArray[np.float64]]:
        shapes: Sequence[Shape] = self.program.shapes
        for layer in self.layers:
            shapes = layer.inputs(shapes)
        gen = np.random.default_rng(self.seed)
        return [np.asarray(gen.uniform(-1.5, 1.5, shape)) for shape in shapes]

    @override
    def __repr__(self) -> str:
        under = " of ".join([*[layer.name for layer in reversed(self.layers)], "the program"])
        masks = [layer.mapped for layer in self.layers if layer.name == "vmap"]
        return f"{under}, vmaps {masks}, seed {self.seed}\n{self.program}"


@st.composite
def stacked(draw: st.DrawFn) -> Stacked:
    program = draw(programs())
    return Stacked(program, draw(stacks(len(program.shapes))), draw(st.integers(0, 99)))
