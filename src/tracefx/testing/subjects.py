"""What laws are about: a function of values, its arguments, and what transformations make of it."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, TypeAlias, cast, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, DTypeLike, NDArray, as_dtype
from tracefx.core.handler import CURRENT, Handler, as_array
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.kernel_context import call_kernel
from tracefx.core.primitive import MappedAxis, Primitive, Tangent, Zero
from tracefx.core.values import ConcreteArray, Value, as_value, to_numpy
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.jvp import JVP
from tracefx.interpreters.stage import stage
from tracefx.pytrees import trees
from tracefx.testing.generated_programs import SourceFunction
from tracefx.testing.tolerances import PROGRAM, Ulps, ulps_of
from tracefx.transforms.linearization import Linearization, linearize_values

ValueFunction: TypeAlias = Callable[..., list[Value]]
"""A function of values, one argument each, to values."""
BatchAxes: TypeAlias = tuple[int | None, ...]
"""Of each argument, the axis along which it differs from one element of a batch to another."""


@final
@frozen(eq=False)
class Subject:
    """A function or primitive, applied to arguments."""

    name: str
    run: ValueFunction
    args: tuple[Value, ...]
    ulps: Ulps
    prim: Primitive | None = None
    source_function: SourceFunction | None = None
    """The function itself, if it was made of its source."""

    @staticmethod
    def of(f: Callable[..., Any] | Primitive, args: Sequence[Any], ulps: Ulps | None = None) -> Subject:
        """`f` and its arguments: of a primitive the operands; of a function trees of arrays, which are flattened."""
        if isinstance(f, Primitive):
            values = tuple([as_value(a, f"operand {i} of {f.name}") for i, a in enumerate(args)])
            return Subject(f.name, _binding(f), values, ulps_of(f.name) if ulps is None else ulps, f)
        if not callable(f):
            raise TypeError(f"a law is about a function or a primitive, got {f!r}")
        given, tree = trees.flatten(tuple(args))
        leaves = cast(list[ArrayLike], given)  # `as_value` says so of what is none

        def run(*values: Value) -> list[Value]:
            out = f(*tree.unflatten([as_array(v) for v in values]))
            return [as_value(leaf, "an output") for leaf in cast(list[ArrayLike], trees.flatten(out)[0])]

        name = getattr(f, "__name__", type(f).__name__)
        values = tuple([as_value(leaf) for leaf in leaves])
        written = f if isinstance(f, SourceFunction) else None
        return Subject(name, run, values, PROGRAM if ulps is None else ulps, source_function=written)

    def outs(self) -> list[Value]:
        """The outputs, evaluated."""
        return self.run(*self.args)

    def at(self, args: Sequence[Value]) -> Subject:
        """The same function at other arguments."""
        return evolve(self, args=tuple(args))

    def over(self, run: ValueFunction) -> Subject:
        """Another function at the same arguments."""
        return Subject(self.name, run, self.args, self.ulps)

    @property
    def differentiable_args(self) -> tuple[int, ...]:
        """The arguments that have derivatives."""
        return tuple([i for i, a in enumerate(self.args) if dtypes.is_inexact(a.aval.dtype)])

    def rng(self, what: str) -> np.random.Generator:
        """Random numbers that are the same in every run."""
        return np.random.default_rng(zlib.crc32(f"{self.name} {what} {[a.aval for a in self.args]}".encode()))

    @override
    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(format_value, self.args))})"


def _binding(prim: Primitive) -> ValueFunction:
    return lambda *values: list(CURRENT.get().bind(prim, values))


def format_value(x: Value) -> str:
    """A value by its type, and by its numbers if they are few."""
    if isinstance(x, ConcreteArray) and x.aval.size > 12:
        return repr(x.aval)
    return f"{x.aval!r} {' '.join(np.array2string(to_numpy(x), separator=',').split())}"


# ------------------------------------------------------------------ values


def array(
    numbers: object, dtype: DTypeLike = np.float32, *, shape: tuple[int, ...] | None = None, weak_type: bool = False
) -> Array:
    """An array of exactly the type that is asked for, whatever the settings: 64 bits stay 64, weak types too.

    The numbers are nested lists or an array; or the text that reports write in their place where they are many, which
    needs a `shape`. It is how the reports of broken laws write arguments down.

    Raises `ValueError` for numbers that make no array of the shape.

    >>> array([0.5, -1], "float64"), array(2, "int32", weak_type=True)
    (Array([ 0.5, -1. ], dtype=float64), Array(2, dtype=int32, weak_type=True))
    """
    kind = as_dtype(dtype)
    if isinstance(numbers, str):
        host = np.frombuffer(zlib.decompress(base64.b85decode(numbers)), kind).reshape(shape or ())
    else:
        host = call_kernel(lambda: np.asarray(numbers).astype(kind))
        host = host if shape is None else host.reshape(shape)
    return ConcreteArray(ShapedArray(host.shape, kind, weak_type), np.array(host))


def encode_numbers(host: NDArray) -> str:
    """The numbers as text for `array`."""
    return base64.b85encode(zlib.compress(np.ascontiguousarray(host).tobytes(), 9)).decode()


def array_of_type(host: NDArray, aval: ShapedArray) -> ConcreteArray:
    """An array of a type, weak types included."""
    return ConcreteArray(aval, call_kernel(np.array, host, aval.dtype))


def random_like(aval: ShapedArray, rng: np.random.Generator) -> ConcreteArray:
    """Normally distributed numbers of a type that has derivatives."""
    drawn = np.asarray(rng.standard_normal(aval.shape))
    if dtypes.is_complex(aval.dtype):
        drawn = drawn + 1j * rng.standard_normal(aval.shape)
    return array_of_type(drawn, aval)


def instantiate_zeros(t: Tangent) -> Value:
    """A tangent as numbers, zeros too."""
    return array_of_type(np.zeros(t.aval.shape), t.aval) if isinstance(t, Zero) else t


def promote_to_64_bits(subject: Subject) -> Subject:
    """The subject at the same arguments in 64 bits, if it takes such; itself otherwise."""
    args = [
        array_of_type(to_numpy(a), a.aval.update(dtype=_dtype_64_bits(a.aval.dtype)))
        if i in subject.differentiable_args
        else a
        for i, a in enumerate(subject.args)
    ]
    wide = subject.at(args)
    try:
        wide.outs()
    except (TypeError, ValueError):  # it is made for narrower numbers
        return subject
    return wide


def _dtype_64_bits(dtype: DType) -> DType:
    return dtypes.complex128 if dtypes.is_complex(dtype) else dtypes.float64


def subsets(positions: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every nonempty choice of positions; of more than three, each alone and all together."""
    sizes = range(1, len(positions) + 1) if len(positions) <= 3 else (1, len(positions))
    for n in sizes:
        yield from combinations(positions, n)


# ------------------------------------------------------------------ functions under handlers


def run_with_handler(handler: Handler, run: ValueFunction, args: Sequence[Value]) -> list[Value]:
    token = CURRENT.set(handler)
    try:
        return run(*args)
    finally:
        CURRENT.reset(token)


def evaluate_jvp(
    run: ValueFunction, args: Sequence[Value], tangents: Sequence[Tangent]
) -> tuple[list[Value], list[Tangent]]:
    """The outputs and their tangents: forward mode."""
    handler = JVP(CURRENT.get())
    outs = run_with_handler(handler, run, [handler.wrap(a, t) for a, t in zip(args, tangents, strict=True)])
    pairs = [handler.unwrap(o) for o in outs]
    return [p for p, _ in pairs], [t for _, t in pairs]


def linearize_function(run: ValueFunction, args: Sequence[Value], moving: Sequence[bool]) -> Linearization:
    """The linear part of the derivative, recorded."""
    linear, _, _ = linearize_values(lambda xs: (run(*xs), None), args, moving)
    return linear


def staged(run: ValueFunction, avals: Sequence[ShapedArray]) -> tuple[Jaxpr, list[Value]]:
    """The program, and the constants that it closed over."""
    return stage(run, avals)


def evaluate_batch(
    run: ValueFunction, args: Sequence[Value], axes: BatchAxes, size: int
) -> list[tuple[Value, int | None, ShapedArray]]:
    """For a whole batch, the outputs, their batch axes, and their types without these."""
    handler = Batch(CURRENT.get(), MappedAxis(size))
    outs = run_with_handler(handler, run, [handler.wrap(a, axis) for a, axis in zip(args, axes, strict=True)])
    return [(*handler.unwrap(o), o.aval) for o in outs]


@final
@frozen(eq=False)
class SampleBatch:
    """Arguments for each element of a batch, and for the batch as a whole."""

    elements: tuple[tuple[Value, ...], ...]
    size: int = field(init=False)

    @size.default
    def _size(self) -> int:
        return len(self.elements)

    @staticmethod
    def like(args: Sequence[Value]) -> SampleBatch:
        """Batches whose elements differ, and stay where the function is defined as far as one can tell.

        An element has the numbers of the given one in another order; where there is only one number, a smaller one.
        No axis has the size of the batch, so that none can be taken for it.
        """
        sides = {n for a in args for n in a.aval.shape}
        size = next(n for n in (3, 2, *range(4, 5 + len(sides))) if n not in sides)
        return SampleBatch(tuple([tuple([_vary_element(a, k) for a in args]) for k in range(size)]))

    def stacked(self, axes: BatchAxes) -> list[Value]:
        """The batch along `axes`; an argument without one is that of the first element."""
        return [
            self.elements[0][i]
            if axis is None
            else array_of_type(
                np.stack([to_numpy(e[i]) for e in self.elements], axis),
                self.elements[0][i].aval.with_axis(self.size, axis),
            )
            for i, axis in enumerate(axes)
        ]

    def element(self, k: int, axes: BatchAxes) -> list[Value]:
        return [self.elements[0 if axis is None else k][i] for i, axis in enumerate(axes)]


def _vary_element(x: Value, k: int) -> Value:
    host = to_numpy(x)
    if host.size != 1:
        return array_of_type(np.roll(host, k), x.aval) if host.size else x
    if k == 0:
        return x
    if dtypes.is_bool(host.dtype):
        return array_of_type(host ^ bool(k % 2), x.aval)
    if dtypes.is_integer(host.dtype):
        return array_of_type(host if int(host.ravel()[0]) < k else host - host.dtype.type(k), x.aval)
    return array_of_type(call_kernel(lambda: host * host.dtype.type(1 - k / 8)), x.aval)


def as_arrays(values: Sequence[Value]) -> list[Array]:
    return [as_array(v) for v in values]
