"""Generated programs and stacks of transformations: values that can be compared, run, and printed as Python source.

A program is its source text, in which `fx` and `fnp` stand for `tracefx` and `tracefx.numpy`, or for whatever
`function` is given instead, e.g. JAX, or NumPy for `fnp`. So one value is a program of each library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt
from attrs import field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core import Shape

AnyCallable: TypeAlias = Callable[..., Any]

# ------------------------------------------------------------------ source


@final
@frozen(eq=False)
class SourceWriter:
    """Builds Python source: lines, the current indentation, and fresh names."""

    lines: list[str] = field(factory=list, init=False)
    _depth: list[None] = field(factory=list, init=False)
    _taken: list[None] = field(factory=list, init=False)

    def name(self, prefix: str = "v") -> str:
        """Returns a name that is not used yet."""
        self._taken.append(None)
        return f"{prefix}{len(self._taken) - 1}"

    def line(self, text: str) -> None:
        """Writes a line at the current indentation."""
        self.lines.append("    " * len(self._depth) + text)

    def value(self, expression: str) -> str:
        """Assigns an expression to a fresh name, and returns the name."""
        name = self.name()
        self.line(f"{name} = {expression}")
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Writes the head of a block, and indents the lines written inside the context."""
        self.line(head)
        self._depth.append(None)
        yield
        self._depth.pop()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@final
@frozen(eq=False)
class SourceFunction:
    """A function that knows its source, in which it is called `name`."""

    run: AnyCallable
    source: str
    name: str

    @staticmethod
    def of(source: str, name: str, fx: Any, fnp: Any, /) -> SourceFunction:
        """Creates the function that `source` defines under a name.

        Args:
            source: Python source in which `np`, `fx` and `fnp` are defined.
            name: the name of the function.
            fx: the module that `fx` stands for.
            fnp: the module that `fnp` stands for.

        >>> SourceFunction.of("def f(x):\\n    return fnp.abs(x)", "f", None, np)(-2.0)
        np.float64(2.0)
        """
        scope: dict[str, Any] = {"np": np, "fx": fx, "fnp": fnp}
        exec(compile(source, f"<{name}>", "exec", dont_inherit=True), scope)
        return SourceFunction(scope[name], source, name)

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, *args: Any) -> Any:
        return self.run(*args)


# ------------------------------------------------------------------ programs


class ProgramStep(ABC):
    """A step of a program: one operation on earlier values, given by their indices."""

    __slots__ = ()

    @property
    @abstractmethod
    def operands(self) -> tuple[int, ...]: ...

    @abstractmethod
    def write(self, to: SourceWriter, xs: Sequence[str]) -> str:
        """Writes the operation, and returns the name of its result.

        Args:
            to: the writer.
            xs: the names of the operands.
        """


@final
@frozen
class ExpressionStep(ProgramStep):
    """A step given by an expression, in which `{0}` and `{1}` stand for the operands.

    >>> ExpressionStep("fnp.sin({0})", (0,)).at(np, 0.0)
    np.float64(0.0)
    """

    expression: str
    operands: tuple[int, ...]

    @override
    def write(self, to: SourceWriter, xs: Sequence[str]) -> str:
        return to.value(self.expression.format(*xs))

    def at(self, fnp: Any, *operands: Any) -> Any:
        """Evaluates the expression with the array functions of `fnp`."""
        return _lambda(self.expression, len(operands))(np, fnp, *operands)


@memoize(4096)
def _lambda(expression: str, count: int) -> AnyCallable:
    """Compiles an expression to a function of `np`, `fnp` and the operands."""
    names = [f"x{i}" for i in range(count)]
    function: AnyCallable = eval(f"lambda np, fnp, {', '.join(names)}: {expression.format(*names)}")
    return function


def write_steps(to: SourceWriter, known: Sequence[str], steps: Sequence[ProgramStep]) -> list[str]:
    """Writes steps one after another, and returns the names of all values, starting with those in `known`."""
    values = list(known)
    for step in steps:
        values.append(step.write(to, [values[i] for i in step.operands]))
    return values


@final
@frozen(repr=False)
class GeneratedProgram:
    """A program: the shapes of its inputs, and steps with a value each.

    The output is the last value, plus the sums of all values that no step uses.

    >>> program = GeneratedProgram(((3,),), (binary_step("add", 0, 0), unary_step("sin", 1)))
    >>> program
    def program(v0):  # (3,)
        v1 = v0 + v0
        v2 = fnp.sin(v1)
        return v2
    >>> program.function(None, np)(np.zeros(3))
    array([0., 0., 0.])
    """

    shapes: tuple[Shape, ...]
    steps: tuple[ProgramStep, ...]

    def function(self, fx: Any, fnp: Any) -> SourceFunction:
        """Returns the program as a function of its inputs, with the modules that `fx` and `fnp` stand for."""
        return SourceFunction.of(self.source, "program", fx, fnp)

    @property
    def source(self) -> str:
        """The definition of a Python function called `program`."""
        to = SourceWriter()
        inputs = [to.name() for _ in self.shapes]
        with to.block(f"def program({', '.join(inputs)}):  # {', '.join(map(str, self.shapes))}"):
            values = write_steps(to, inputs, self.steps)
            used = {i for step in self.steps for i in step.operands}
            unused_sums = [f"fnp.sum({v})" for i, v in enumerate(values[:-1]) if i not in used]
            to.line(f"return {' + '.join([values[-1], *unused_sums])}")
        return to.text

    @override
    def __repr__(self) -> str:
        return self.source


# Expressions whose values are bounded, so that programs of any length stay finite.
UNARY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sin": "fnp.sin({0})",
        "cos": "fnp.cos({0})",
        "tanh": "fnp.tanh({0})",
        "exp": "fnp.exp(fnp.minimum({0}, 1.0))",
        "log": "fnp.log(1.5 + {0} * {0})",
        "sqrt": "fnp.sqrt(0.5 + fnp.abs({0}))",
        "negative": "-{0}",
        "cube": "fnp.sin({0}) ** 3",
        "reciprocal": "1 / (2 + fnp.sin({0}))",
        "to integers and back": "(4 * fnp.tanh({0})).astype(np.int32).astype({0}.dtype) * 0.5",
    }
)
BINARY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "add": "{0} + {1}",
        "subtract": "{0} - {1}",
        "multiply": "{0} * fnp.tanh({1})",
        "divide": "{0} / (1.5 + fnp.cos({1}))",
        "maximum": "fnp.maximum({0}, {1})",
        "minimum": "fnp.minimum({0}, {1})",
        "where": "fnp.where({0} > {1}, {0}, fnp.sin({1}))",
    }
)


def dot_step(x: int, y: int) -> ExpressionStep:
    """Returns a step that multiplies two values that have axes by `dot`."""
    return ExpressionStep("fnp.dot({0}, {1})", (x, y))


def unary_step(name: str, x: int) -> ExpressionStep:
    """Returns a step that applies a function of `UNARY`."""
    return ExpressionStep(UNARY[name], (x,))


def binary_step(name: str, x: int, y: int) -> ExpressionStep:
    """Returns a step that applies a function of `BINARY`."""
    return ExpressionStep(BINARY[name], (x, y))


def reduce_step(name: str, x: int, axis: int, keepdims: bool) -> ExpressionStep:
    """Returns a step that reduces an axis by `sum` or `max`."""
    return ExpressionStep(f"fnp.{name}({{0}}, axis={axis}, keepdims={keepdims})", (x,))


def ravel_step(x: int) -> ExpressionStep:
    """Returns a step that flattens a value."""
    return ExpressionStep("fnp.ravel({0})", (x,))


def transpose_step(x: int) -> ExpressionStep:
    """Returns a step that reverses the axes."""
    return ExpressionStep("fnp.transpose({0})", (x,))


def broadcast_step(x: int, shape: Shape) -> ExpressionStep:
    """Returns a step that broadcasts a value to a shape."""
    return ExpressionStep(f"fnp.broadcast_to({{0}}, {shape})", (x,))


def flip_step(x: int, axis: int) -> ExpressionStep:
    """Returns a step that reverses an axis."""
    return ExpressionStep(f"fnp.flip({{0}}, {axis})", (x,))


def slice_step(x: int, axis: int, start: int) -> ExpressionStep:
    """Returns a step that slices an axis from `start` on."""
    return ExpressionStep(f"{{0}}[{':, ' * axis}{start}:]", (x,))


def concatenate_step(x: int, axis: int) -> ExpressionStep:
    """Returns a step that concatenates a value and its sine along an axis."""
    return ExpressionStep(f"fnp.concatenate([{{0}}, fnp.sin({{0}})], {axis})", (x,))


def expand_dims_step(x: int, axis: int) -> ExpressionStep:
    """Returns a step that inserts an axis."""
    return ExpressionStep(f"fnp.expand_dims({{0}}, {axis})", (x,))


# ------------------------------------------------------------------ stacks of transformations


@final
@frozen
class TransformLayer:
    """One transformation of a stack; `mapped` says which inputs `vmap` maps."""

    name: str
    mapped: tuple[bool, ...]

    def inputs(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Returns the shapes of the inputs of the transformed function."""
        if self.name != "vmap":
            return tuple(shapes)
        return tuple([(2, *s) if m else s for s, m in zip(shapes, self.mapped, strict=True)])

    def write(self, to: SourceWriter, f: str) -> str:
        """Writes the transformation of a function, and returns the name of the result."""
        if self.name not in TRANSFORM_NAMES:
            raise ValueError(f"unknown transformation {self.name!r}; expected one of {', '.join(TRANSFORM_NAMES)}")
        transformed = to.name("f")
        match self.name:
            case "jit":
                to.line(f"{transformed} = fx.jit({f})")
            case "vmap":
                axes = tuple([0 if m else None for m in self.mapped])
                to.line(f"{transformed} = fx.vmap({f}, in_axes={axes})")
            case "grad":
                to.line(f"{transformed} = fx.grad(lambda *xs: fnp.sum({f}(*xs)), {len(self.mapped) - 1})")
            case "jvp":
                to.line(f"{transformed} = lambda *xs: fx.jvp({f}, xs, tuple([fnp.cos(x) for x in xs]))[1]")
            case "linearize":
                to.line(f"{transformed} = lambda *xs: fx.linearize({f}, *xs)[1](*[fnp.sin(x) for x in xs])")
            case _:
                to.line(f"{transformed} = lambda *xs: (lambda y, pull: pull(y)[0])(*fx.vjp({f}, *xs))")
        return transformed

    def over(self, fx: Any, fnp: Any, f: AnyCallable) -> AnyCallable:
        """Transforms a function with the transformations of `fx`."""
        to = SourceWriter()
        with to.block("def transformed(f):"):
            to.line(f"return {self.write(to, 'f')}")
        transformed: AnyCallable = SourceFunction.of(to.text, "transformed", fx, fnp)(f)
        return transformed


TRANSFORM_NAMES: Final = ("jit", "vmap", "grad", "jvp", "vjp", "linearize")
"""The transformations in stacks. `grad` differentiates the sum of the outputs with respect to the last input."""


@final
@frozen(repr=False)
class TransformedProgram:
    """A program under a stack of transformations, the innermost first, and a seed for its inputs.

    >>> program = GeneratedProgram(((3,),), (unary_step("sin", 0),))
    >>> TransformedProgram(program, (TransformLayer("jit", (True,)),), seed=0)
    import numpy as np
    import tracefx as fx
    import tracefx.numpy as fnp
    <BLANKLINE>
    def program(v0):  # (3,)
        v1 = fnp.sin(v0)
        return v1
    f0 = fx.jit(program)
    rng = np.random.default_rng(0)
    inputs = [np.asarray(rng.uniform(-1.5, 1.5, shape)) for shape in [(3,)]]
    f0(*inputs)
    """

    program: GeneratedProgram
    layers: tuple[TransformLayer, ...]
    seed: int

    def function(self, fx: Any, fnp: Any) -> SourceFunction:
        """Returns the transformed function, with the modules that `fx` and `fnp` stand for."""
        return SourceFunction.of(self.source, self._lines()[1], fx, fnp)

    @property
    def source(self) -> str:
        """The definitions of the program and of its transformations."""
        return self._lines()[0]

    def _lines(self) -> tuple[str, str]:
        """Returns the source, and the name of the transformed function."""
        to, f = SourceWriter(), "program"
        to.line(self.program.source)
        for layer in self.layers:
            f = layer.write(to, f)
        return to.text, f

    @property
    def input_shapes(self) -> tuple[Shape, ...]:
        """The shapes of the inputs of the transformed function."""
        shapes = self.program.shapes
        for layer in self.layers:
            shapes = layer.inputs(shapes)
        return shapes

    def inputs(self) -> list[npt.NDArray[np.float64]]:
        """Draws inputs between -1.5 and 1.5."""
        rng = np.random.default_rng(self.seed)
        return [np.asarray(rng.uniform(-1.5, 1.5, shape)) for shape in self.input_shapes]

    @override
    def __repr__(self) -> str:
        source, f = self._lines()
        return "\n".join(
            [
                *SOURCE_IMPORTS,
                "",
                source,
                f"rng = np.random.default_rng({self.seed})",
                f"inputs = [np.asarray(rng.uniform(-1.5, 1.5, shape)) for shape in {list(self.input_shapes)}]",
                f"{f}(*inputs)",
            ]
        )


SOURCE_IMPORTS: Final = ("import numpy as np", "import tracefx as fx", "import tracefx.numpy as fnp")
"""The imports that the source of a program needs."""
