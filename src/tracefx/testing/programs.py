"""Straight-line programs and stacks of transformations as values to read, run and compare.

Both are written in terms of the modules they are given: `(tracefx, tracefx.numpy)`, or `(jax, jax.numpy)`, or NumPy for
a program alone. So one value is a program of either library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt
from attrs import frozen
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
@frozen(eq=False, repr=False)
class Program:
    """Inputs, then a value for each step. The last value, with the sums of all that nobody used, is the output.

    >>> double = Step("add", lambda N, x, y: x + y, (0, 0))
    >>> program = Program(((3,),), (double, Step("sin", lambda N, x: N.sin(x), (1,))))
    >>> program
    v0 = input (3,)
    v1 = add(v0, v0)
    v2 = sin(v1)
    >>> program.function(np)(np.zeros(3))
    array([0., 0., 0.])
    """

    shapes: tuple[Shape, ...]
    steps: tuple[Step, ...]

    def function(self, N: Any) -> Function:
        """The program as a function of its inputs, by the array functions of `N`."""

        def run(*inputs: Any) -> Any:
            values = list(inputs)
            for step in self.steps:
                values.append(step.apply(N, *[values[i] for i in step.operands]))
            used = {i for step in self.steps for i in step.operands}
            rest = [N.sum(v) for i, v in enumerate(values[:-1]) if i not in used]
            return sum(rest, values[-1])

        return run

    @override
    def __repr__(self) -> str:
        lines = [f"v{i} = input {shape}" for i, shape in enumerate(self.shapes)]
        lines += [
            f"v{len(self.shapes) + i} = {step.text}({', '.join(f'v{o}' for o in step.operands)})"
            for i, step in enumerate(self.steps)
        ]
        return "\n".join(lines)


# What keeps numbers between bounds: programs of any length stay finite.
UNARY: Final[Mapping[str, Apply]] = MappingProxyType(
    {
        "sin": lambda N, x: N.sin(x),
        "cos": lambda N, x: N.cos(x),
        "tanh": lambda N, x: N.tanh(x),
        "exp": lambda N, x: N.exp(N.minimum(x, 1.0)),
        "log": lambda N, x: N.log(1.5 + x * x),
        "sqrt": lambda N, x: N.sqrt(0.5 + N.abs(x)),
        "negative": lambda N, x: -x,
        "cube": lambda N, x: N.tanh(x) ** 3,
        "reciprocal": lambda N, x: 1 / (2 + N.sin(x)),
        "to integers and back": lambda N, x: (4 * N.tanh(x)).astype(np.int32).astype(x.dtype) * 0.5,
    }
)
BINARY: Final[Mapping[str, Apply]] = MappingProxyType(
    {
        "add": lambda N, x, y: x + y,
        "subtract": lambda N, x, y: x - y,
        "multiply": lambda N, x, y: x * N.tanh(y),
        "divide": lambda N, x, y: x / (1.5 + N.cos(y)),
        "maximum": lambda N, x, y: N.maximum(x, y),
        "minimum": lambda N, x, y: N.minimum(x, y),
        "where": lambda N, x, y: N.where(x > y, x, N.sin(y)),
    }
)


def dot(x: int, y: int) -> Step:
    """The product of two values that have axes."""
    return Step("dot", lambda N, a, b: N.dot(a, b), (x, y))


def unary(name: str, x: int) -> Step:
    return Step(name, UNARY[name], (x,))


def binary(name: str, x: int, y: int) -> Step:
    return Step(name, BINARY[name], (x, y))


def fold(name: str, x: int, axis: int, keepdims: bool) -> Step:
    """`sum` or `max` along an axis."""
    kept = ", kept" if keepdims else ""
    return Step(f"{name} over {axis}{kept}", lambda N, x: getattr(N, name)(x, axis=axis, keepdims=keepdims), (x,))


def ravel(x: int) -> Step:
    return Step("ravel", lambda N, x: N.ravel(x), (x,))


def transpose(x: int) -> Step:
    return Step("transpose", lambda N, x: N.transpose(x), (x,))


def broadcast(x: int, shape: Shape) -> Step:
    return Step(f"broadcast to {shape}", lambda N, x: N.broadcast_to(x, shape), (x,))


def reverse(x: int, axis: int) -> Step:
    return Step(f"reverse {axis}", lambda N, x: N.flip(x, axis), (x,))


def cut(x: int, axis: int, start: int) -> Step:
    """What is left from `start` on along an axis."""
    index = (*(slice(None),) * axis, slice(start, None))
    return Step(f"cut {axis} at {start}", lambda N, x: x[index], (x,))


def double(x: int, axis: int) -> Step:
    """The value and its sine, one behind the other."""
    return Step(f"double {axis}", lambda N, x: N.concatenate([x, N.sin(x)], axis), (x,))


def expand(x: int, axis: int) -> Step:
    return Step(f"expand {axis}", lambda N, x: N.expand_dims(x, axis), (x,))


# ------------------------------------------------------------------ stacks


@final
@frozen
class Layer:
    """One transformation of a stack; `mapped` says of each input whether `vmap` maps it."""

    name: str
    mapped: tuple[bool, ...]

    def inputs(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """The shapes of the inputs of the transformed function."""
        if self.name != "vmap":
            return tuple(shapes)
        return tuple([(2, *s) if m else s for s, m in zip(shapes, self.mapped, strict=True)])

    def over(self, F: Any, N: Any, f: Function) -> Function:
        """The function transformed, by the transformations of `F`."""
        run: Function
        match self.name:
            case "jit":
                run = F.jit(f)
            case "vmap":
                run = F.vmap(f, in_axes=tuple([0 if m else None for m in self.mapped]))
            case "grad":
                run = F.grad(lambda *xs: N.sum(f(*xs)), len(self.mapped) - 1)
            case "jvp":
                run = lambda *xs: F.jvp(f, xs, tuple([N.cos(x) for x in xs]))[1]  # noqa: E731
            case "linearize":
                run = lambda *xs: F.linearize(f, *xs)[1](*[N.sin(x) for x in xs])  # noqa: E731
            case "vjp":
                run = _pulled(F, f)
            case _:
                raise ValueError(f"no layer is called {self.name!r}; there are {', '.join(LAYERS)}")
        return run


LAYERS: Final = ("jit", "vmap", "grad", "jvp", "vjp", "linearize")
"""What a stack is made of. `grad` is of the sum of the outputs with respect to the last input."""


def _pulled(F: Any, f: Function) -> Function:
    def run(*xs: Any) -> Any:
        y, pull = F.vjp(f, *xs)
        return pull(y)[0]

    return run


@final
@frozen(eq=False, repr=False)
class Stacked:
    """A program under a stack of transformations, the innermost first, and a seed for numbers to run it on.

    >>> import tracefx.numpy as fnp
    >>> from tracefx.transforms.jit import jit
    >>> Stacked(Program(((3,),), (unary("sin", 0),)), (Layer("jit", (True,)),), seed=0)
    jit of the program
    v0 = input (3,)
    v1 = sin(v0)
    """

    program: Program
    layers: tuple[Layer, ...]
    seed: int

    def function(self, F: Any, N: Any) -> Function:
        f = self.program.function(N)
        for layer in self.layers:
            f = layer.over(F, N, f)
        return f

    def inputs(self) -> list[npt.NDArray[np.float64]]:
        """Numbers between -1.5 and 1.5, of the shapes that the stack takes."""
        shapes: Sequence[Shape] = self.program.shapes
        for layer in self.layers:
            shapes = layer.inputs(shapes)
        gen = np.random.default_rng(self.seed)
        return [np.asarray(gen.uniform(-1.5, 1.5, shape)) for shape in shapes]

    @override
    def __repr__(self) -> str:
        under = " of ".join([*[layer.name for layer in reversed(self.layers)], "the program"])
        masks = [layer.mapped for layer in reversed(self.layers) if layer.name == "vmap"]
        mapping = f", vmap maps {', '.join(map(str, masks))}" if masks else ""
        return f"{under}{mapping}\n{self.program}"
