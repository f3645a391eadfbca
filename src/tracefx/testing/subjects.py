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

from tracefx.core import dtypes, trees
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import DType, DTypeLike, NDArray, as_dtype
from tracefx.core.handler import CURRENT, Handler, as_array
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.kernels import quietly
from tracefx.core.primitive import MappedAxis, Primitive, Tangent, Zero
from tracefx.core.values import ConcreteArray, Value, as_value, to_numpy
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.jvp import JVP
from tracefx.interpreters.stage import stage
from tracefx.testing.programs import Written
from tracefx.testing.tolerances import PROGRAM, Ulps, ulps_of
from tracefx.transforms.linearization import Linearization, linearize_values

Run: TypeAlias = Callable[..., list[Value]]
"""A function of values, one argument each, to values."""
Axes: TypeAlias = tuple[int | None, ...]
"""Of each argument, the axis along which it differs from one element of a batch to another."""


@final
@frozen(eq=False)
class Subject:
    """A function or primitive, applied to arguments."""

    name: str
    run: Run
    args: tuple[Value, ...]
    ulps: Ulps
    prim: Primitive | None = None
    written: Written | None = None
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
        written = f if isinstance(f, Written) else None
        return Subject(name, run, values, PROGRAM if ulps is None else ulps, written=written)

    def outs(self) -> list[Value]:
        """The outputs, evaluated."""
        return self.run(*self.args)

    def at(self, args: Sequence[Value]) -> Subject:
        """The same function at other arguments."""
        return evolve(self, args=tuple(args))

    def over(self, run: Run) -> Subject:
        """Another function at the same arguments."""
        return Subject(self.name, run, self.args, self.ulps)

    @property
    def moving(self) -> tuple[int, ...]:
        """The arguments that have derivatives."""
        return tuple([i for i, a in enumerate(self.args) if dtypes.is_inexact(a.aval.dtype)])

    def rng(self, what: str) -> np.random.Generator:
        """Random numbers that are the same in every run."""
        return np.random.default_rng(zlib.crc32(f"{self.name} {what} {[a.aval for a in self.args]}".encode()))

    @override
    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(shown, self.args))})"


def _binding(prim: Primitive) -> Run:
    return lambda *values: list(CURRENT.get().bind(prim, values))


def shown(x: Value) -> str:
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
        host = quietly(lambda: np.asarray(numbers).astype(kind))
        host = host if shape is None else host.reshape(shape)
    return ConcreteArray(ShapedArray(host.shape, kind, weak_type), np.array(host))


def packed(host: NDArray) -> str:
    """The numbers as text for `array`."""
    return base64.b85encode(zlib.compress(np.ascontiguousarray(host).tobytes(), 9)).decode()


def of_type(host: NDArray, aval: ShapedArray) -> ConcreteArray:
    """An array of a type, weak types included."""
    return ConcreteArray(aval, quietly(np.array, host, aval.dtype))


def random_like(aval: ShapedArray, rng: np.random.Generator) -> ConcreteArray:
    """Normally distributed numbers of a type that has derivatives."""
    drawn = np.asarray(rng.standard_normal(aval.shape))
    if dtypes.is_complex(aval.dtype):
        drawn = drawn + 1j * rng.standard_normal(aval.shape)
    return of_type(drawn, aval)


def dense(t: Tangent) -> Value:
    """A tangent as numbers, zeros too."""
    return of_type(np.zeros(t.aval.shape), t.aval) if isinstance(t, Zero) else t


def widened(subject: Subject) -> Subject:
    """The subject at the same arguments in 64 bits, if it takes such; itself otherwise."""
    args = [
        of_type(to_numpy(a), a.aval.update(dtype=_wide(a.aval.dtype))) if i in subject.moving else a
        for i, a in enumerate(subject.args)
    ]
    wide = subject.at(args)
    try:
        wide.outs()
    except (TypeError, ValueError):  # it is made for narrower numbers
        return subject
    return wide


def _wide(dtype: DType) -> DType:
    return dtypes.complex128 if dtypes.is_complex(dtype) else dtypes.float64


def subsets(positions: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every nonempty choice of positions; of more than three, each alone and all together."""
    sizes = range(1, len(positions) + 1) if len(positions) <= 3 else (1, len(positions))
    for n in sizes:
        yield from combinations(positions, n)


# ------------------------------------------------------------------ functions under handlers


def under(handler: Handler, run: Run, args: Sequence[Value]) -> list[Value]:
    token = CURRENT.set(handler)
    try:
        return run(*args)
    finally:
        CURRENT.reset(token)


def push(run: Run, args: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[list[Value], list[Tangent]]:
    """The outputs and their tangents: forward mode."""
    handler = JVP(CURRENT.get())
    outs = under(handler, run, [handler.wrap(a, t) for a, t in zip(args, tangents, strict=True)])
    pairs = [handler.unwrap(o) for o in outs]
    return [p for p, _ in pairs], [t for _, t in pairs]


def linearized(run: Run, args: Sequence[Value], moving: Sequence[bool]) -> Linearization:
    """The linear part of the derivative, recorded."""
    linear, _, _ = linearize_values(lambda xs: (run(*xs), None), args, moving)
    return linear


def staged(run: Run, avals: Sequence[ShapedArray]) -> tuple[Jaxpr, list[Value]]:
    """The program, and the constants that it closed over."""
    return stage(run, avals)


def mapped(run: Run, args: Sequence[Value], axes: Axes, size: int) -> list[tuple[Value, int | None, ShapedArray]]:
    """For a whole batch, the outputs, their batch axes, and their types without these."""
    handler = Batch(CURRENT.get(), MappedAxis(size))
    outs = under(handler, run, [handler.wrap(a, axis) for a, axis in zip(args, axes, strict=True)])
    return [(*handler.unwrap(o), o.aval) for o in outs]


@final
@frozen(eq=False)
class Several:
    """Arguments for each element of a batch, and for the batch as a whole."""

    each: tuple[tuple[Value, ...], ...]
    size: int = field(init=False)

    @size.default
    def _size(self) -> int:
        return len(self.each)

    @staticmethod
    def like(args: Sequence[Value]) -> Several:
        """Batches whose elements differ, and stay where the function is defined as far as one can tell.

        An element has the numbers of the given one in another order; where there is only one number, a smaller one.
        No axis has the size of the batch, so that none can be taken for it.
        """
        sides = {n for a in args for n in a.aval.shape}
        size = next(n for n in (3, 2, *range(4, 5 + len(sides))) if n not in sides)
        return Several(tuple([tuple([_varied(a, k) for a in args]) for k in range(size)]))

    def stacked(self, axes: Axes) -> list[Value]:
        """The batch along `axes`; an argument without one is that of the first element."""
        return [
            self.each[0][i]
            if axis is None
            else of_type(
                np.stack([to_numpy(e[i]) for e in self.each], axis), self.each[0][i].aval.with_axis(self.size, axis)
            )
            for i, axis in enumerate(axes)
        ]

    def element(self, k: int, axes: Axes) -> list[Value]:
        return [self.each[0 if axis is None else k][i] for i, axis in enumerate(axes)]


def _varied(x: Value, k: int) -> Value:
    host = to_numpy(x)
    if host.size != 1:
        return of_type(np.roll(host, k), x.aval) if host.size else x
    if k == 0:
        return x
    if dtypes.is_bool(host.dtype):
        return of_type(host ^ bool(k % 2), x.aval)
    if dtypes.is_integer(host.dtype):
        return of_type(host if int(host.ravel()[0]) < k else host - host.dtype.type(k), x.aval)
    return of_type(quietly(lambda: host * host.dtype.type(1 - k / 8)), x.aval)


def as_arrays(values: Sequence[Value]) -> list[Array]:
    return [as_array(v) for v in values]
