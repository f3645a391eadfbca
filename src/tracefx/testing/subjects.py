"""`Subject`: a function and the arguments that laws are checked at; and helpers that transform and compare it."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, TypeAlias, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import Array, ConcreteArray, DType, DTypeLike, NDArray, ShapedArray, Value, as_value, dtypes, to_numpy
from tracefx.core.dtypes import as_dtype
from tracefx.core.handler import CURRENT, as_array, call_under
from tracefx.core.jaxpr import HasSubjaxprs, Jaxpr, Var
from tracefx.core.kernel_context import call_kernel
from tracefx.core.primitive import MappedAxis, Primitive, Tangent, Zero
from tracefx.filtered_tracebacks import api_boundary
from tracefx.interpreters.batch import Batch
from tracefx.interpreters.jvp import JVP
from tracefx.interpreters.stage import stage
from tracefx.pytrees import trees
from tracefx.testing.generated_programs import SourceFunction
from tracefx.testing.tolerances import PROGRAM, Ulps, tolerance_or, ulps_of
from tracefx.transforms.linearization import Linearization, linearize_values

ValueFunction: TypeAlias = Callable[..., list[Value]]
"""A function from values, one for each argument, to a list of values."""
BatchAxes: TypeAlias = tuple[int | None, ...]
"""The batch axis of each argument; None for arguments that are not batched."""


@final
@frozen(eq=False)
class Subject:
    """A function or a primitive, and the arguments at which laws are checked.

    Attributes:
        name: the name of the function.
        run: the function, from flat arguments to flat results.
        args: the flat arguments.
        ulps: the tolerance.
        prim: the primitive, if the subject is one.

    >>> import tracefx.numpy as fnp
    >>> Subject.of(fnp.sin, [0.0], None).outs()
    [Array(0., dtype=float32, weak_type=True)]
    """

    name: str
    run: ValueFunction
    args: tuple[Value, ...]
    ulps: Ulps
    prim: Primitive | None = None
    source_function: SourceFunction | None = None
    """The function with its source, if it was created from source."""

    @staticmethod
    def of(f: Callable[..., Any] | Primitive, args: Sequence[Any], ulps: Ulps | None = None) -> Subject:
        """Creates a subject.

        Args:
            f: a function of trees of arrays, or a primitive.
            args: the arguments, which are flattened; for a primitive its operands.
            ulps: the tolerance; by default that of the table for the primitive, or that of programs of many operations.

        Returns:
            The subject.

        Raises:
            TypeError: if `f` is neither a function nor a primitive.
        """
        if isinstance(f, Primitive):
            values = tuple([as_value(a, f"operand {i} of {f.name}") for i, a in enumerate(args)])
            return Subject(f.name, _binding(f), values, tolerance_or(ulps, ulps_of(f.name)), f)
        if not callable(f):
            raise TypeError(f"a law is about a function or a primitive, got {f!r}")
        flat_args, tree = trees.flatten(tuple(args))

        def run(*values: Value) -> list[Value]:
            out = f(*tree.unflatten([as_array(v) for v in values]))
            return [as_value(leaf, "an output") for leaf in trees.flatten(out)[0]]

        name = getattr(f, "__name__", type(f).__name__)
        values = tuple([as_value(leaf) for leaf in flat_args])
        source_function = f if isinstance(f, SourceFunction) else None
        return Subject(name, run, values, tolerance_or(ulps, PROGRAM), source_function=source_function)

    def outs(self) -> list[Value]:
        """Evaluates the function at the arguments.

        Returns:
            The flat results.
        """
        return self.run(*self.args)

    def at(self, args: Sequence[Value]) -> Subject:
        """Returns the same function at other arguments.

        Args:
            args: the flat arguments.
        """
        return evolve(self, args=tuple(args))

    @property
    def differentiable_args(self) -> tuple[int, ...]:
        """The indices of the arguments with inexact dtypes."""
        return tuple([i for i, a in enumerate(self.args) if dtypes.is_inexact(a.aval.dtype)])

    def rng(self, what: str) -> np.random.Generator:
        """Returns a random generator with a reproducible seed.

        Args:
            what: what the numbers are for; part of the seed, as are the name and the types of the arguments.
        """
        return np.random.default_rng(zlib.crc32(f"{self.name} {what} {[a.aval for a in self.args]}".encode()))

    @override
    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(format_value, self.args))})"


def _binding(prim: Primitive) -> ValueFunction:
    """Returns the function that binds a primitive."""
    return lambda *values: list(CURRENT.get().bind(prim, values))


def format_value(x: Value) -> str:
    """Returns the shape and dtype of a value, with its elements if they are few."""
    if isinstance(x, ConcreteArray) and x.aval.size > 12:
        return repr(x.aval)
    return f"{x.aval!r} {' '.join(np.array2string(to_numpy(x), separator=',').split())}"


# ------------------------------------------------------------------ values


@api_boundary
def array(
    numbers: object, dtype: DTypeLike = np.float32, *, shape: tuple[int, ...] | None = None, weak_type: bool = False
) -> Array:
    """Creates an array of exactly the given dtype, whatever the settings: 64-bit dtypes are not narrowed.

    Reports of violated laws print arguments in this form.

    Args:
        numbers: nested lists or an array; or the encoded form that reports use for large arrays, which needs a `shape`.
        dtype: the dtype.
        shape: the shape; by default that of `numbers`.
        weak_type: whether the array is weakly typed.

    Returns:
        The array.

    Raises:
        ValueError: if `numbers` don't form an array of the shape.

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
    """Encodes the elements of an array as text, which `array` decodes."""
    return base64.b85encode(zlib.compress(np.ascontiguousarray(host).tobytes(), 9)).decode()


def array_of_type(host: NDArray, aval: ShapedArray) -> ConcreteArray:
    """Creates an array with a given aval, including the weak type."""
    return ConcreteArray(aval, call_kernel(np.array, host, aval.dtype))


def random_like(aval: ShapedArray, rng: np.random.Generator) -> ConcreteArray:
    """Draws normally distributed numbers of an inexact dtype."""
    drawn = np.asarray(rng.standard_normal(aval.shape))
    if dtypes.is_complex(aval.dtype):
        drawn = drawn + 1j * rng.standard_normal(aval.shape)
    return array_of_type(drawn, aval)


def instantiate_zeros(t: Tangent) -> Value:
    """Converts a symbolic zero tangent to an array of zeros."""
    return array_of_type(np.zeros(t.aval.shape), t.aval) if isinstance(t, Zero) else t


def promote_to_64_bits(subject: Subject) -> Subject:
    """Returns the subject with 64-bit arguments if the function accepts them, else itself."""
    args = [
        array_of_type(to_numpy(a), ShapedArray(a.aval.shape, _dtype_64_bits(a.aval.dtype)))
        if i in subject.differentiable_args
        else a
        for i, a in enumerate(subject.args)
    ]
    wide = subject.at(args)
    try:
        wide.outs()
    except (TypeError, ValueError):  # the function accepts narrower numbers only
        return subject
    return wide


def promote_to_computed_precision(subject: Subject) -> Subject:
    """Returns the subject with 64-bit arguments if the function accepts them and computes in 64 bits, else itself."""
    wide = promote_to_64_bits(subject)
    return wide if narrowest_bits(wide) == 64 else subject


def _dtype_64_bits(dtype: DType) -> DType:
    return dtypes.complex128 if dtypes.is_complex(dtype) else dtypes.float64


def narrowest_bits(subject: Subject) -> int:
    """Returns the smallest width in bits of the floats that a function computes from its differentiable arguments."""
    avals = [a.aval for a in subject.args]
    widths = [_bits(avals[i]) for i in subject.differentiable_args]
    try:
        jaxpr, _ = staged(subject.run, avals)
    except Exception:  # a function that can't be traced computes in the dtypes of its arguments and results
        return min([*widths, *[_bits(o.aval) for o in subject.outs()]], default=64)
    return min([*widths, *_computed_widths(jaxpr, [jaxpr.invars[i] for i in subject.differentiable_args])], default=64)


def _computed_widths(jaxpr: Jaxpr, inputs: Sequence[Var]) -> Iterator[int]:
    """Yields the widths of the floats that a program computes from some of its inputs, also in sub-jaxprs."""
    dependent = {v.index for v in inputs}
    for eqn in jaxpr.eqns:
        if any(isinstance(x, Var) and x.index in dependent for x in eqn.inputs):
            dependent.update([v.index for v in eqn.outs])
            yield from [_bits(v.aval) for v in eqn.outs]
            if isinstance(eqn.prim, HasSubjaxprs):
                for body in eqn.prim.jaxprs():
                    yield from _computed_widths(body, [v for v in body.invars if dtypes.is_inexact(v.aval.dtype)])


def _bits(aval: ShapedArray) -> int:
    """Returns the width of a float or of the parts of a complex number; 64 for dtypes that limit no precision."""
    return dtypes.itemsize_bits(dtypes.real_dtype(aval.dtype)) if dtypes.is_inexact(aval.dtype) else 64


def subsets(positions: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yields every nonempty subset of positions; for more than three, each alone and all together."""
    sizes = range(1, len(positions) + 1) if len(positions) <= 3 else (1, len(positions))
    for n in sizes:
        yield from combinations(positions, n)


# ------------------------------------------------------------------ running under handlers


def evaluate_jvp(
    run: ValueFunction, args: Sequence[Value], tangents: Sequence[Tangent]
) -> tuple[list[Value], list[Tangent]]:
    """Returns the outputs and their tangents (forward mode)."""
    handler = JVP(CURRENT.get())
    outs = call_under(handler, run, *[handler.wrap(a, t) for a, t in zip(args, tangents, strict=True)])
    pairs = [handler.unwrap(o) for o in outs]
    return [p for p, _ in pairs], [t for _, t in pairs]


def linearize_function(run: ValueFunction, args: Sequence[Value], moving: Sequence[bool]) -> Linearization:
    """Linearizes a function with respect to the arguments marked in `moving`."""
    linear, _, _ = linearize_values(lambda xs: (run(*xs), None), args, moving)
    return linear


def staged(run: ValueFunction, avals: Sequence[ShapedArray]) -> tuple[Jaxpr, list[Value]]:
    """Stages a function to a jaxpr; also returns the constants it closed over."""
    return stage(run, avals)


def evaluate_batch(
    run: ValueFunction, args: Sequence[Value], axes: BatchAxes, size: int
) -> list[tuple[Value, int | None, ShapedArray]]:
    """Runs a function on a batch: returns the outputs, their batch axes, and their avals without these."""
    handler = Batch(CURRENT.get(), MappedAxis(size))
    outs = call_under(handler, run, *[handler.wrap(a, axis) for a, axis in zip(args, axes, strict=True)])
    return [(*handler.unwrap(o), o.aval) for o in outs]


@final
@frozen(eq=False)
class SampleBatch:
    """The arguments of each element of a batch; stacked, those of the batch."""

    elements: tuple[tuple[Value, ...], ...]
    size: int = field(init=False)

    @size.default
    def _size(self) -> int:
        return len(self.elements)

    @staticmethod
    def like(args: Sequence[Value]) -> SampleBatch:
        """Creates a batch whose elements vary the given arguments, and stay in the domain of the function if possible.

        An element has the given numbers in another order; if there is only one number, a smaller one. The batch size
        differs from the size of every axis, so that a confusion of axes is noticed.
        """
        sides = {n for a in args for n in a.aval.shape}
        size = next(n for n in (3, 2, *range(4, 5 + len(sides))) if n not in sides)
        return SampleBatch(tuple([tuple([_vary_element(a, k) for a in args]) for k in range(size)]))

    def stacked(self, axes: BatchAxes) -> list[Value]:
        """Stacks the arguments along `axes`; an argument without a batch axis is that of the first element."""
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
        """Returns the arguments of element `k`."""
        return [self.elements[0 if axis is None else k][i] for i, axis in enumerate(axes)]


def _vary_element(x: Value, k: int) -> Value:
    """Returns the variation of an argument for element `k`."""
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
    """Converts values to arrays."""
    return [as_array(v) for v in values]
