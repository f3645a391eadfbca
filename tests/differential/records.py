"""Records of functions: how to call them, in tracefx and in JAX.

A record names a public function and lists calls of it, each written as the call itself:

    record("sum", call(X, axis=0), call(X, keepdims=True), refused=[call(X, axis=3)])

NumPy arrays among the arguments, also in lists, are operands: they are converted to arrays of the same dtype (including
64 bits), traced, differentiated and batched. `Weak` arrays are operands too. All other arguments, and those wrapped in
`StaticArgument`, are passed unchanged. A record may also have a reference function of SciPy or NumPy.
"""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax, ml_dtypes"

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any, Final, TypeAlias, final

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from attrs import evolve, field, frozen
from jax._src.lax import lax as jax_lax
from typing_extensions import override

import tracefx as fx
import tracefx.lax
import tracefx.nn
import tracefx.numpy as fnp
from tests.comparison import to_jax
from tracefx.core import NDArray
from tracefx.ops.structural import convert
from tracefx.testing.tolerances import Ulps, ulps_of

jax.config.update("jax_explicit_x64_dtypes", "allow")

Function: TypeAlias = Callable[..., Any]
Mismatches: TypeAlias = list[str]
"""Descriptions of mismatches: the aspect, the call, the result and the expected result."""


@final
@frozen
class Library:
    """The modules of tracefx or of JAX, under common names."""

    root: ModuleType
    numpy: ModuleType
    lax: ModuleType
    nn: ModuleType

    @property
    def is_tracefx(self) -> bool:
        return self.root is fx


TRACEFX: Final = Library(fx, fnp, tracefx.lax, tracefx.nn)
JAX: Final = Library(jax, jnp, jax.lax, jax.nn)


# ------------------------------------------------------------------ arguments


@final
@frozen(eq=False)
class Weak:
    """A weakly typed operand, like an array computed from Python scalars."""

    value: NDArray


@final
@frozen(eq=False)
class StaticArgument:
    """An argument that is passed unchanged."""

    value: object


Operand: TypeAlias = NDArray | Weak


def operand_values(x: Operand) -> NDArray:
    return x.value if isinstance(x, Weak) else x


def with_same_weak_type(x: Operand, numbers: NDArray) -> Operand:
    """Returns an operand with other values and the weak type of `x`."""
    return Weak(numbers) if isinstance(x, Weak) else numbers


def to_library_array(library: Library, x: Operand) -> Any:
    """Converts an operand to an array of the library, with explicit dtype so that 64 bits are kept."""
    numbers = operand_values(x)
    if library.is_tracefx:
        tracefx_array = fnp.array(numbers, dtype=numbers.dtype)
        return convert(tracefx_array, numbers.dtype, weak_type=True) if isinstance(x, Weak) else tracefx_array
    jax_array = to_jax(numbers)
    return jax_lax._convert_element_type(jax_array, weak_type=True) if isinstance(x, Weak) else jax_array


@final
@frozen(eq=False)
class Call:
    """The arguments of one call."""

    leaves: tuple[Any, ...]
    tree: Any

    @property
    def operand_positions(self) -> tuple[int, ...]:
        """Indices of the operands among the leaves."""
        return tuple([i for i, x in enumerate(self.leaves) if isinstance(x, np.ndarray | Weak)])

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple([self.leaves[i] for i in self.operand_positions])

    def at(self, operands: Sequence[Any]) -> Call:
        """Returns the same call with other operands."""
        leaves = list(self.leaves)
        for i, x in zip(self.operand_positions, operands, strict=True):
            leaves[i] = x
        return evolve(self, leaves=tuple(leaves))

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = jax.tree.unflatten(self.tree, self.leaves)
        return args, kwargs

    def of(self, f: Function, operands: Sequence[Any]) -> Any:
        """Returns the result of calling `f` with the given arrays as operands."""
        leaves = [x.value if isinstance(x, StaticArgument) else x for x in self.at(operands).leaves]
        args, kwargs = jax.tree.unflatten(self.tree, leaves)
        return f(*args, **kwargs)

    @property
    def differentiable_operands(self) -> tuple[int, ...]:
        """Indices of the inexact operands."""
        return tuple([i for i, x in enumerate(self.operands) if is_inexact(operand_values(x))])

    @override
    def __str__(self) -> str:
        args, kwargs = jax.tree.unflatten(self.tree, list(map(_printable, self.leaves)))
        return f"({', '.join([*map(_one_line, args), *[f'{k}={_one_line(v)}' for k, v in kwargs.items()]])})"


def is_inexact(x: NDArray) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


@frozen
class _Verbatim:
    text: str

    @override
    def __repr__(self) -> str:
        return self.text


def _printable(x: object) -> object:
    if isinstance(x, StaticArgument):
        return x.value
    if not isinstance(x, np.ndarray | Weak):
        return _Verbatim(x.__name__) if isinstance(x, FunctionType) else x
    numbers = operand_values(x)
    is_short = numbers.size <= 4 and not is_inexact(numbers)
    description = str(numbers.tolist()) if is_short else f"{numbers.dtype}{list(numbers.shape)}"
    return _Verbatim(f"weak {description}" if isinstance(x, Weak) else description)


def _one_line(x: object) -> str:
    return " ".join(repr(x).split())


def arrays(library: Library, call: Call) -> list[Any]:
    """Returns the operands of a call as arrays of a library."""
    return [to_library_array(library, x) for x in call.operands]


def call(*args: Any, **kwargs: Any) -> Call:
    leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=lambda x: isinstance(x, Weak | StaticArgument))
    return Call(tuple(leaves), tree)


# ------------------------------------------------------------------ records

DTYPES: Final = (
    *("bool", "int8", "uint8", "int32", "uint32", "int64"),
    *("bfloat16", "float16", "float32", "float64", "complex64"),
)


@final
@frozen(eq=False)
class Reference:
    """A NumPy or SciPy function whose float64 results are more accurate than JAX's."""

    of: Function
    """The function; it takes NumPy arrays as operands."""
    ulps: Ulps
    calls: tuple[Call, ...]
    """Calls for which derivatives and batches are compared, in 64 bits."""
    values: tuple[Call, ...]
    """Calls for which values are compared, in 64 and in 32 bits."""
    slopes: tuple[int, ...] | None
    """Indices of operands to differentiate; None: all inexact operands."""
    mapped: tuple[tuple[int, ...], ...] | None
    """Sets of operands to map together; None: each alone, and all."""


@final
@frozen(eq=False)
class Record:
    """A function, and calls of it.

    For `calls`, everything is compared: values and types, eager and compiled; first and second derivatives in every
    inexact operand; batches over every operand and axis. They avoid kinks. For `values`, only values and types are
    compared. Each call of `refused` must raise an error of the same built-in class as in JAX.
    """

    name: str
    calls: tuple[Call, ...]
    values: tuple[Call, ...]
    refused: tuple[Call, ...]
    via: Callable[[Library], Function]
    """Returns the function of a library."""
    ulps: Ulps
    dtypes: tuple[str, ...] = DTYPES
    """The dtypes to which operands of the first call are cast."""
    pairs: bool = False
    """Whether all pairs of dtypes are tested, instead of one operand at a time."""
    derivatives: bool = True
    along: tuple[int, ...] | None = None
    """Indices of the operands in which JAX's function is differentiable; None: all inexact operands."""
    batched: bool = True
    is_plain: bool = False
    """Whether the result is not an array, but a static value."""
    also: tuple[str, ...] = field(default=())
    """Aliases of the function."""
    typed: tuple[Call, ...] = ()
    """Calls for which only types are compared."""
    reference: Reference | None = None
    """A reference besides JAX for values, first derivatives and batches."""
    types_only: bool = False
    """Whether only types and errors are compared: the record of a function with an equal program compares values,
    derivatives and batches."""


def record(
    name: str,
    *calls: Call,
    module: str = "numpy",
    values: Sequence[Call] = (),
    refused: Sequence[Call] = (),
    via: Callable[[Library], Function] | None = None,
    ulps: Ulps | None = None,
    dtypes: Sequence[str] = DTYPES,
    pairs: bool = False,
    derivatives: bool = True,
    batched: bool = True,
    is_plain: bool = False,
    also: Sequence[str] = (),
    along: Sequence[int] | None = None,
    typed: Sequence[Call] = (),
    reference: Reference | None = None,
    types_only: bool = False,
) -> Record:
    """Creates the record of `module.name`; `via` returns the function where it is not an attribute of the module."""

    def lookup(library: Library) -> Function:
        f: Function = getattr(getattr(library, module), name)
        return f

    return Record(
        f"{module}.{name}",
        calls,
        tuple(values),
        tuple(refused),
        lookup if via is None else via,
        ulps_of(name) if ulps is None else ulps,
        tuple(dtypes),
        pairs,
        derivatives,
        None if along is None else tuple(along),
        batched,
        is_plain,
        tuple([f"{module}.{alias}" for alias in also]),
        tuple(typed),
        reference,
        types_only,
    )


def via_newer(module: str, name: str, substitute: Function) -> Callable[[Library], Function]:
    """Returns how to find a function that older releases of JAX lack: there, `substitute` takes its place."""

    def find(library: Library) -> Function:
        f: Function = getattr(getattr(library, module), name, substitute)
        return f

    return find


def reference(
    of: Function,
    ulps: Ulps,
    *calls: Call,
    values: Sequence[Call] = (),
    slopes: Sequence[int] | None = None,
    mapped: Sequence[tuple[int, ...]] | None = None,
) -> Reference:
    along = None if slopes is None else tuple(slopes)
    return Reference(of, ulps, calls, tuple(values), along, None if mapped is None else tuple(mapped))


# ------------------------------------------------------------------ numbers


def f32(*numbers: Any) -> NDArray:
    """A vector, or a matrix given by rows."""
    return np.array(numbers, np.float32)


def i32(*numbers: Any) -> NDArray:
    return np.array(numbers, np.int32)


def c64(*numbers: Any) -> NDArray:
    return np.array(numbers, np.complex64)


def bools(*numbers: Any) -> NDArray:
    return np.array(numbers, np.bool_)


def grid(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> NDArray:
    """Distinct numbers of an open interval in random order."""
    count = int(np.prod(shape))
    ranks = np.random.default_rng([seed, count]).permutation(count).reshape(shape)
    return np.asarray(low + (ranks + 0.45) * (high - low) / max(count, 1)).astype(np.float32)


def c_grid(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> NDArray:
    out = grid(*shape, low=low, high=high, seed=seed) + 1j * grid(*shape, low=low, high=high, seed=seed + 1)
    return np.asarray(out).astype(np.complex64)


def cast(x: NDArray, dtype: str) -> NDArray:
    """Casts numbers to another dtype; to integers after doubling, to complex with an imaginary part."""
    to = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    if np.issubdtype(x.dtype, np.complexfloating) and to.kind != "c":
        x = x.real
    if to.kind == "b":
        return np.asarray(x > 0) if x.dtype.kind != "b" else x
    if to.kind in "iu" and is_inexact(x):
        x = np.rint(2 * x.astype(np.float64))
    if to.kind == "u":
        x = np.abs(x.astype(np.int64))
    if to.kind == "c" and x.dtype.kind not in "bc":
        return np.asarray(x + 0.5j * np.roll(x, 1)).astype(to)
    return x.astype(to)


NAN: Final = float("nan")
INF: Final = float("inf")
EDGES: Final = f32(0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-30, 3e38, 1e5, -1e5, INF, -INF, NAN)
"""Edge cases of floats."""
