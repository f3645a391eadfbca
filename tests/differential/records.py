"""What a record of a function is: how to call it, here and in JAX.

A record names a public function and has calls of it. A call is written as the call itself:

    record("sum", call(X, axis=0), call(X, keepdims=True), refused=[call(X, axis=3)])

NumPy arrays among the arguments, also in lists, are operands: they become arrays of their dtype, 64 bits included, are
traced, differentiated and batched. `Weak` arrays are operands too. Everything else, and what is wrapped in
`StaticArgument`,
is handed on as it is. A record may have a reference beside JAX: a function of SciPy's or NumPy's.
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
from tracefx.core.dtypes import NDArray
from tracefx.ops.structural import convert
from tracefx.testing.tolerances import Ulps, ulps_of

jax.config.update("jax_explicit_x64_dtypes", "allow")

Function: TypeAlias = Callable[..., Any]


@final
@frozen
class Library:
    """One of the two libraries, by the names that they share."""

    root: ModuleType
    numpy: ModuleType
    lax: ModuleType
    nn: ModuleType

    @property
    def is_ours(self) -> bool:
        return self.root is fx


OURS: Final = Library(fx, fnp, tracefx.lax, tracefx.nn)
THEIRS: Final = Library(jax, jnp, jax.lax, jax.nn)


# ------------------------------------------------------------------ arguments


@final
@frozen(eq=False)
class Weak:
    """An operand whose dtype gives way, as an array computed from Python numbers."""

    value: NDArray


@final
@frozen(eq=False)
class StaticArgument:
    """An argument that is handed on as it is."""

    value: object


Operand: TypeAlias = NDArray | Weak


def operand_values(x: Operand) -> NDArray:
    return x.value if isinstance(x, Weak) else x


def with_same_weak_type(x: Operand, numbers: NDArray) -> Operand:
    """Other numbers, as weakly typed as `x`."""
    return Weak(numbers) if isinstance(x, Weak) else numbers


def to_library_array(library: Library, x: Operand) -> Any:
    """An operand as an array of the library, its dtype asked for explicitly so that 64 bits stay."""
    numbers = operand_values(x)
    if library.is_ours:
        made = fnp.array(numbers, dtype=numbers.dtype)
        return convert(made, numbers.dtype, weak_type=True) if isinstance(x, Weak) else made
    theirs = jnp.asarray(numbers, numbers.dtype)
    return jax_lax._convert_element_type(theirs, weak_type=True) if isinstance(x, Weak) else theirs


@final
@frozen(eq=False)
class Call:
    """Arguments of one call."""

    leaves: tuple[Any, ...]
    tree: Any

    @property
    def operand_positions(self) -> tuple[int, ...]:
        """Where among the leaves the operands are."""
        return tuple([i for i, x in enumerate(self.leaves) if isinstance(x, np.ndarray | Weak)])

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple([self.leaves[i] for i in self.operand_positions])

    def at(self, operands: Sequence[Any]) -> Call:
        """The same call of other operands."""
        leaves = list(self.leaves)
        for i, x in zip(self.operand_positions, operands, strict=True):
            leaves[i] = x
        return evolve(self, leaves=tuple(leaves))

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = jax.tree.unflatten(self.tree, self.leaves)
        return args, kwargs

    def of(self, f: Function, operands: Sequence[Any]) -> Any:
        """The result of calling `f`, with arrays in the place of the operands."""
        leaves = [x.value if isinstance(x, StaticArgument) else x for x in self.at(operands).leaves]
        args, kwargs = jax.tree.unflatten(self.tree, leaves)
        return f(*args, **kwargs)

    @property
    def differentiable_operands(self) -> tuple[int, ...]:
        """Which operands have derivatives."""
        return tuple([i for i, x in enumerate(self.operands) if is_inexact(operand_values(x))])

    @override
    def __str__(self) -> str:
        args, kwargs = jax.tree.unflatten(self.tree, list(map(_shown, self.leaves)))
        return f"({', '.join([*map(_plain, args), *[f'{k}={_plain(v)}' for k, v in kwargs.items()]])})"


def is_inexact(x: NDArray) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


@frozen
class _Shown:
    text: str

    @override
    def __repr__(self) -> str:
        return self.text


def _shown(x: object) -> object:
    if isinstance(x, StaticArgument):
        return x.value
    if not isinstance(x, np.ndarray | Weak):
        return _Shown(x.__name__) if isinstance(x, FunctionType) else x
    numbers = operand_values(x)
    few = numbers.size <= 4 and not is_inexact(numbers)
    what = str(numbers.tolist()) if few else f"{numbers.dtype}{list(numbers.shape)}"
    return _Shown(f"weak {what}" if isinstance(x, Weak) else what)


def _plain(x: object) -> str:
    return " ".join(repr(x).split())


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
    """A function of NumPy's or SciPy's, which in float64 says more exactly what the results are than JAX does."""

    of: Function
    """Of NumPy's arrays, in the places of the operands."""
    ulps: Ulps
    calls: tuple[Call, ...]
    """At which slopes and batches are compared, in 64 bits."""
    values: tuple[Call, ...]
    """At which values are compared, in 64 and in 32 bits."""
    slopes: tuple[int, ...] | None
    """Along which operands it has slopes, None for all that have derivatives."""
    mapped: tuple[tuple[int, ...], ...] | None
    """Which operands are mapped together, None for each alone and all."""


@final
@frozen(eq=False)
class Record:
    """A function, and calls of it.

    At `calls` everything is compared: values and types, evaluated and compiled; first and second derivatives in every
    inexact operand; batches over every operand and axis. They stay away from kinks. At `values` only values and types
    are. Each of `refused` has to raise an error of the same built-in class as in JAX.
    """

    name: str
    calls: tuple[Call, ...]
    values: tuple[Call, ...]
    refused: tuple[Call, ...]
    via: Callable[[Library], Function]
    """The function of a library."""
    ulps: Ulps
    dtypes: tuple[str, ...] = DTYPES
    """What the dtypes of the first call's operands are changed to."""
    pairs: bool = False
    """Whether pairs of dtypes are told apart, beyond one operand at a time."""
    derivatives: bool = True
    along: tuple[int, ...] | None = None
    """Which operands alone JAX has derivatives in."""
    batched: bool = True
    is_plain: bool = False
    """Whether the result is no array, but something to be known while tracing."""
    also: tuple[str, ...] = field(default=())
    """Other names of it."""
    typed: tuple[Call, ...] = ()
    """At which types alone are compared."""
    reference: Reference | None = None
    """What values, first derivatives and batches are compared with beside JAX."""


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
) -> Record:
    """The record of `name` in a module; `via` says how it is reached, where not as an attribute of the module."""

    def found(library: Library) -> Function:
        f: Function = getattr(getattr(library, module), name)
        return f

    return Record(
        f"{module}.{name}",
        calls,
        tuple(values),
        tuple(refused),
        found if via is None else via,
        ulps_of(name) if ulps is None else ulps,
        tuple(dtypes),
        pairs,
        derivatives,
        None if along is None else tuple(along),
        batched,
        is_plain,
        tuple([f"{module}.{other}" for other in also]),
        tuple(typed),
        reference,
    )


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
    """A vector, or a matrix of rows."""
    return np.array(numbers, np.float32)


def i32(*numbers: Any) -> NDArray:
    return np.array(numbers, np.int32)


def c64(*numbers: Any) -> NDArray:
    return np.array(numbers, np.complex64)


def bools(*numbers: Any) -> NDArray:
    return np.array(numbers, np.bool_)


def grid(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> NDArray:
    """Different numbers of an open interval, in no order."""
    count = int(np.prod(shape))
    places = np.random.default_rng([seed, count]).permutation(count).reshape(shape)
    return np.asarray(low + (places + 0.45) * (high - low) / max(count, 1)).astype(np.float32)


def c_grid(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> NDArray:
    out = grid(*shape, low=low, high=high, seed=seed) + 1j * grid(*shape, low=low, high=high, seed=seed + 1)
    return np.asarray(out).astype(np.complex64)


def cast(x: NDArray, dtype: str) -> NDArray:
    """The numbers as those of another dtype, of which it has similar ones."""
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
"""What goes wrong first."""
