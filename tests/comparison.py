"""Compares results: with expected ones, and of a program written once and run with both tracefx and JAX.

`difference` describes how two results differ. The assertions are built on it:

    assert_same(loaded(x), f(x))  # equal structures, types and bits
    assert_same(got, want, ELEMENTARY)  # equal structures and types, and values within a tolerance
    assert_near(got, want)  # equal shapes, and values within the tolerance of a sum of a few terms
    assert_agree(lambda m, np: m.grad(np.sin)(1.0))  # eager tracefx computes what compiled JAX does
    assert_calls_agree(fnp.power, jnp.power, [(x, 2), (x, y)])  # the same for calls that JAX compiles together

Tolerances are those of `tracefx.testing.tolerances`, which the laws use too, and the two below.
"""

# jax leaves some functions that are called here unannotated.
# mypy: untyped-calls-exclude="jax, ml_dtypes"

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from tests.compiling import compile_with_fallback
from tracefx.core import DType, Literal, NDArray, ShapedArray, dtypes, to_numpy
from tracefx.core.handler import as_array
from tracefx.testing.tolerances import EXACT, SUMMED, Ulps, ulp_distance

jax.config.update("jax_explicit_x64_dtypes", "allow")

JAX_TOLERANCE: Final = Ulps(16, 16, 1, least=1.0)
"""For array functions compared with JAX, on numbers of magnitude 1 or more."""

JAX_TRANSFORM_TOLERANCE: Final = Ulps(32, 32, 2, least=1.0, relative_to_max=True)
"""For derivatives and batching of small programs compared with JAX, which uses other formulas."""

# ------------------------------------------------------------------ differences


def difference(got: Any, want: Any, tolerance: Ulps | None = None, *, types: bool = True, weak: bool = True) -> str:
    """Describes the first difference between two results, or returns "".

    Args:
        got: a result: an array, a Python value, a pytree of these, or an exception.
        want: the expected result. A `ShapeDtypeStruct` is the type of an array whose values are not compared. An
            exception expects one of the same built-in class.
        tolerance: the allowed distance of values; None compares bits, where all NaNs are equal.
        types: whether shapes, dtypes, types of containers and of Python values must be equal. Otherwise only shapes
            must be, and values are compared in the narrower of two dtypes.
        weak: whether weak types must be equal too. They are not compared for booleans: JAX's comparisons of weak
            operands return weak booleans, which promote as all booleans do; those of tracefx are never weak.
    """
    if isinstance(got, BaseException) or isinstance(want, BaseException):
        same = isinstance(want, BaseException) and isinstance(got, builtin_error_class(want))
        return "" if same else f"{format_outcome(got)} in place of {format_outcome(want)}"
    mine, theirs = _children(got), _children(want)
    if mine is None or theirs is None:
        if types and (mine is None) != (theirs is None):
            return f"{got!r} in place of {want!r}"
        return _leaf_difference(got, want, tolerance, types, weak)
    (kind, names, parts), (other_kind, other_names, other_parts) = mine, theirs
    if names != other_names or (types and kind != other_kind):
        return f"{got!r} in place of {want!r}"
    for name, x, y in zip(names, parts, other_parts, strict=True):
        if found := difference(x, y, tolerance, types=types, weak=weak):
            return f"output {name}{'' if found.startswith('output ') else ':'} {found.removeprefix('output ')}"
    return ""


def _children(x: Any) -> tuple[object, list[object], list[Any]] | None:
    """Returns the kind of a container and the names and values of its children; None for a leaf."""
    if x is None or hasattr(x, "dtype") or isinstance(x, bool | int | float | complex | str):
        return None
    if isinstance(x, dict):
        names = sorted(x, key=str)
        return dict, names, [x[name] for name in names]
    if isinstance(x, list | tuple):
        return list if isinstance(x, list) else tuple, [*range(len(x))], [*x]
    for flatten in (fx.tree.flatten, jax.tree.flatten):
        children, structure = flatten(x, is_leaf=lambda y: y is not x)
        if not (len(children) == 1 and children[0] is x):
            return (type(x).__name__, str(structure)), [*range(len(children))], children
    return None


def _is_array(x: object) -> bool:
    return isinstance(x, fx.Array | jax.Array)


def _leaf_difference(got: Any, want: Any, tolerance: Ulps | None, types: bool, weak: bool) -> str:
    got, want = [as_array(x) if isinstance(x, Literal) else x for x in (got, want)]
    if types:
        if not hasattr(want, "dtype"):
            same = type(got) is type(want) and (got == want or (got != got and want != want))
            return "" if same else f"{got!r} in place of {want!r}"
        if not hasattr(want, "shape"):
            want = jnp.asarray(want)  # JAX may return a Python number where tracefx returns an array of the same dtype
        if not hasattr(got, "dtype") or (_is_array(want) and not _is_array(got)):
            return f"{got!r} is no array"
        shape, dtype = tuple(want.shape), dtype_of(want)
        if (tuple(got.shape), dtype_of(got)) != (shape, dtype):
            return f"{dtype_of(got)}{list(got.shape)} in place of {dtype}{list(shape)}"
        if weak and dtype != np.bool_ and _is_weak(got) != _is_weak(want):
            return f"weak_type {_is_weak(got)}"
        if isinstance(want, jax.ShapeDtypeStruct | fx.ShapeDtypeStruct):
            return ""
    g, w = host_of(got), host_of(want)
    if g.shape != w.shape:
        return f"shape {g.shape} in place of {w.shape}"
    if not types:
        dtype = _common(g.dtype, w.dtype)
        g, w = g.astype(dtype), w.astype(dtype)
    return value_difference(g, w, tolerance)


def value_difference(got: NDArray, want: NDArray, tolerance: Ulps | None = None) -> str:
    """Describes the largest difference of the values of two arrays of equal shapes and dtypes, or returns ""."""
    if got.tobytes() == want.tobytes():
        return ""
    if tolerance is None:
        tolerance, distance = EXACT, np.where(_same_bits(got, want), 0.0, np.inf)
    else:
        tolerance = tolerance.for_array(want)
        distance = ulp_distance(got, want, tolerance.least)
    limit = tolerance.of(got.dtype) if dtypes.is_inexact(got.dtype) else 0.0
    worst = np.unravel_index(int(np.argmax(distance)), distance.shape)
    if distance[worst] <= limit:
        return ""
    place = f" at {tuple(map(int, worst))}" if got.ndim else ""
    return f"{got[worst]} in place of {want[worst]}{place}: {distance[worst]:.4g} ulps, allowed {limit:.4g}"


def _same_bits(x: NDArray, y: NDArray) -> NDArray:
    """Returns for each element whether the bits are equal, or both are NaN."""
    if dtypes.is_complex(x.dtype):
        return _same_bits(x.real, y.real) & _same_bits(x.imag, y.imag)
    equal = [np.ascontiguousarray(each).reshape(-1, 1).view(np.uint8) for each in (x, y)]
    same = (equal[0] == equal[1]).all(1).reshape(x.shape)
    return np.asarray(same | (np.isnan(x) & np.isnan(y)) if dtypes.is_inexact(x.dtype) else same)


def _common(one: DType, other: DType) -> DType:
    """Returns the narrower of two dtypes; if only one is a float dtype, that one."""
    if not dtypes.is_inexact(one) or not dtypes.is_inexact(other):
        return other if dtypes.is_inexact(other) else one
    bits = min(dtypes.itemsize_bits(dtypes.real_dtype(d)) for d in (one, other))
    narrower = one if dtypes.itemsize_bits(dtypes.real_dtype(one)) == bits else other
    if dtypes.is_complex(one) == dtypes.is_complex(other):
        return narrower
    return dtypes.complex64 if bits <= 32 else dtypes.complex128


# ------------------------------------------------------------------ values and types of both libraries

_GENERATORS: Final = {dtypes.key_fry: "threefry2x32", dtypes.key_rbg: "rbg", dtypes.key_urbg: "unsafe_rbg"}


def key_to_words(keys: NDArray) -> NDArray:
    """Returns the uint32 words of random keys."""
    flat: NDArray = np.ascontiguousarray(keys).view(np.uint32)
    return flat.reshape((*keys.shape, dtypes.key_data_size(keys.dtype)))


def to_jax(x: NDArray) -> jax.Array:
    """Converts a NumPy array, random keys included, to a JAX array of the same dtype, 64 bits included."""
    if dtypes.is_key(x.dtype):
        keys: jax.Array = jax.random.wrap_key_data(jnp.asarray(key_to_words(x)), impl=_GENERATORS[x.dtype])
        return keys
    return jnp.asarray(x, x.dtype)


def host_of(x: Any) -> NDArray:
    """Converts a value of either library to a NumPy array; random keys keep their dtype."""
    if isinstance(x, fx.Array):
        return to_numpy(x)
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return np.array(jax.random.key_data(x)).view(dtype_of(x))[..., 0]
    return np.asarray(x)


def dtype_of(x: Any) -> DType:
    """Returns the dtype of a value of either library, random keys included, as tracefx has it."""
    if not isinstance(x.dtype, np.dtype):
        return next(dtype for dtype in dtypes.KEY_DTYPES if dtypes.name(dtype) == str(x.dtype))
    return np.dtype(x.dtype)


def _is_weak(x: Any) -> bool:
    return bool(getattr(x, "weak_type", False))


def aval_of(x: jax.Array) -> ShapedArray:
    """Returns the abstract value of a JAX array; booleans are never weak."""
    dtype = dtype_of(x)
    return ShapedArray(x.shape, dtype, _is_weak(x) and not dtypes.is_bool(dtype))


# ------------------------------------------------------------------ outcomes


def attempt(call: Callable[..., Any], *args: Any) -> Any:
    """Returns the result of a call, or the exception raised."""
    try:
        return call(*args)
    except Exception as error:  # errors are compared too
        return error


def builtin_error_class(error: BaseException) -> type[BaseException]:
    """Returns the built-in base class of an error."""
    return next(base for base in type(error).__mro__ if base.__module__ == "builtins")


def format_outcome(x: Any) -> str:
    """Formats a result, or an error with the beginning of its message."""
    return f"{type(x).__name__}: {str(x)[:120]}" if isinstance(x, BaseException) else repr(x)


# ------------------------------------------------------------------ assertions


def assert_same(got: Any, want: Any, tolerance: Ulps | None = None, what: str = "", *, weak: bool = True) -> None:
    """Asserts equal structures, types and bits, or, with a tolerance, values that near."""
    _assert_no_difference(difference(got, want, tolerance, weak=weak), what)


def assert_near(got: Any, want: Any, tolerance: Ulps = SUMMED, what: str = "") -> None:
    """Asserts equal shapes and close values, compared in the narrower of two dtypes.

    Containers are compared item by item. An array that is not of a float dtype, such as a list of integers, is
    converted to the dtype of the other.
    """
    _assert_no_difference(difference(got, want, tolerance, types=False), what)


def _assert_no_difference(found: str, what: str) -> None:
    __tracebackhide__ = True
    assert not found, f"{what}: {found}"


Case: TypeAlias = Callable[[Any, Any], object]
"""`case(fx, fnp)` returns the result of tracefx, `case(jax, jnp)` that of JAX."""


def assert_agree(
    case: Case, tolerance: Ulps | None = JAX_TRANSFORM_TOLERANCE, what: str = "", *, may_raise: bool = False
) -> None:
    """Asserts that a case has the same structure, types, weak types and close values with both libraries.

    JAX compiles the case as one program. Where concrete values matter, compare `case(jax, jnp)` by `assert_same`.

    Args:
        case: the program, called with the top-level module of a library and its NumPy API.
        tolerance: the allowed distance of values; None compares bits.
        what: the name of the case in the error message.
        may_raise: whether the case may also raise in both libraries, an error of the same built-in class.
    """
    if may_raise:
        assert_same(attempt(case, fx, fnp), attempt(run_with_jax, case), tolerance, what)
    else:
        assert_same(case(fx, fnp), run_with_jax(case), tolerance, what)


def run_with_jax(case: Case) -> object:
    """Returns the result of a case with JAX, compiled as one program: eagerly, JAX compiles one for each primitive.

    A case that JAX cannot trace, because it needs concrete values or raises an error, is evaluated eagerly.
    """
    leaves: list[Any] = []
    tree: Any = None

    def arrays() -> list[jax.Array]:
        nonlocal leaves, tree
        leaves, tree = jax.tree.flatten(case(jax, jnp))
        return [x for x in leaves if isinstance(x, jax.Array)]

    try:
        computed = iter(compile_with_fallback(jax.jit, arrays)())
    except Exception:  # which eager evaluation raises again, unless it comes from tracing
        return case(jax, jnp)
    return jax.tree.unflatten(tree, [next(computed) if isinstance(x, jax.Array) else x for x in leaves])


def assert_calls_agree(
    function: Callable[..., object],
    jax_function: Callable[..., object],
    calls: Iterable[Sequence[Any]],
    tolerance: Ulps | None = JAX_TOLERANCE,
    *,
    weak: bool = True,
    error_classes: bool = True,
    compiled: bool = False,
    types_only: bool = False,
) -> None:
    """Asserts that both functions return the same result for each call, or both raise. JAX compiles one program.

    Args:
        function: the function of tracefx.
        jax_function: the function of JAX.
        calls: the arguments of each call; a dictionary in the last place holds keyword arguments. NumPy arrays, also
            in containers, become arrays of the respective library, of the same dtype.
        tolerance: the allowed distance of values.
        weak: whether weak types are compared.
        error_classes: whether errors must be of the same built-in class in both libraries.
        compiled: whether tracefx also compiles the calls, as one program, and gives the same results.
        types_only: whether only types are compared, so that JAX compiles nothing.
    """
    named = [(f"{getattr(function, '__name__', function)} of {call}", *jax.tree.flatten([*call])) for call in calls]
    hosts = [[x for x in leaves if isinstance(x, np.ndarray)] for _, leaves, _ in named]

    def evaluate(f: Callable[..., object], i: int, arrays: Sequence[Any]) -> object:
        _, leaves, tree = named[i]
        rest = iter(arrays)
        args = jax.tree.unflatten(tree, [next(rest) if isinstance(x, np.ndarray) else x for x in leaves])
        return f(*args[:-1], **args[-1]) if args and isinstance(args[-1], dict) else f(*args)

    errors: dict[int, Exception] = {}

    def evaluate_all(array_lists: Sequence[Sequence[jax.Array]]) -> list[object]:
        outs = [attempt(evaluate, jax_function, i, arrays) for i, arrays in enumerate(array_lists)]
        errors.update({i: out for i, out in enumerate(outs) if isinstance(out, Exception)})
        return [None if isinstance(out, Exception) else out for out in outs]

    run = partial(jax.eval_shape, evaluate_all) if types_only else compile_with_fallback(jax.jit, evaluate_all)
    expected: list[Any] = run([list(map(to_jax, arrays)) for arrays in hosts])
    operands = [[fnp.array(x, dtype=x.dtype) for x in arrays] for arrays in hosts]
    for i, ((label, _, _), arrays, want) in enumerate(zip(named, operands, expected, strict=True)):
        got = attempt(evaluate, function, i, arrays)
        if i not in errors or error_classes or not isinstance(got, Exception):
            assert_same(got, errors.get(i, want), tolerance, label, weak=weak)
    if compiled:
        known = [i for i in range(len(named)) if i not in errors]
        program = compile_with_fallback(
            fx.jit, lambda xss: [evaluate(function, i, xs) for i, xs in zip(known, xss, strict=True)]
        )
        for i, got in zip(known, program([operands[i] for i in known]), strict=True):
            assert_same(got, expected[i], tolerance, f"compiled {named[i][0]}", weak=weak)


def assert_programs_agree(
    programs: Iterable[Callable[..., object]], *operands: Any, compiled: bool = True, **options: Any
) -> None:
    """Asserts that `program(np, *operands)` returns the same with the NumPy APIs of both libraries, for each program.

    Args:
        programs: the programs.
        operands: their operands; NumPy arrays become arrays of the respective library.
        compiled: whether tracefx's results are compared when compiled too.
        options: those of `assert_calls_agree`.
    """
    assert_calls_agree(
        lambda program, *xs: program(fnp, *xs),
        lambda program, *xs: program(jnp, *xs),
        [(program, *operands) for program in programs],
        compiled=compiled,
        **options,
    )
