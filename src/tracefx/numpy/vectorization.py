"""Vectorization of functions: `vectorize`, `apply_along_axis`, `apply_over_axes`, `ufunc`, `frompyfunc`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias

from typing_extensions import override

from tracefx.core import Array, ArrayLike
from tracefx.core.handler import as_array
from tracefx.filtered_tracebacks import api_boundary
from tracefx.numpy.operand_promotion import as_operand, broadcast_operand_shapes, reject_out
from tracefx.numpy.shapes import expand_dims, squeeze
from tracefx.numpy.ufunc_methods import UfuncMethods
from tracefx.numpy.ufunc_types import UfuncIdentity
from tracefx.ops.static_integers import canonicalize_axis, static_int, static_ints
from tracefx.transforms.vmap import vmap

AxisNames: TypeAlias = tuple[str, ...]
"""The names of the core axes of one argument or result."""


class GufuncSignature(NamedTuple):
    """A parsed signature such as `"(m,n),(n)->(m)"`: the names of the core axes of each input and output."""

    text: str
    inputs: list[AxisNames]
    outputs: list[AxisNames]


_ARGUMENT = r"\(\s*(?:\w+\s*(?:,\s*\w+\s*)*)?\)"
_LIST = rf"{_ARGUMENT}(?:\s*,\s*{_ARGUMENT})*"


def _parse_signature(signature: str) -> GufuncSignature:
    if not re.fullmatch(rf"\s*{_LIST}\s*->\s*{_LIST}\s*", signature):
        raise ValueError(f"vectorize: {signature!r} is not a signature; write it like '(m,n),(n)->(m)'")
    sides = [
        [tuple(re.findall(r"\w+", argument)) for argument in re.findall(_ARGUMENT, side)]
        for side in signature.split("->")
    ]
    return GufuncSignature(signature, sides[0], sides[1])


def vectorize(
    pyfunc: Callable[..., Any],
    *,
    excluded: Collection[int | str] = frozenset(),
    signature: str | None = None,
) -> Callable[..., Any]:
    """Vectorizes a function of scalars, so that it takes arrays, which broadcast.

    With a signature, the function takes and returns arrays with these core axes, and is mapped over the axes before
    them.

    Args:
        pyfunc: The function. An argument that is None is passed on.
        excluded: The positions and names of arguments that are passed on unchanged.
        signature: The core axes of arguments and results, such as `"(m,n),(n)->(m)"`; None means scalars.

    Returns:
        The vectorized function. It raises ValueError if sizes do not fit the signature, and TypeError for another
        number of arguments or results.

    Raises:
        TypeError: If `excluded` has elements other than positions and names.
        ValueError: If an excluded position is negative, or the signature is malformed.

    >>> import numpy as np
    >>> distance = vectorize(lambda x, y: abs(x - y).sum(), signature="(n),(n)->()")
    >>> distance(np.ones((3, 2)), np.zeros(2)).tolist()
    [2.0, 2.0, 2.0]
    """
    for each in excluded:
        if not isinstance(each, int | str):
            raise TypeError(f"vectorize: excluded must be positions and names of arguments, got {each!r}")
        if isinstance(each, int) and each < 0:
            raise ValueError(f"vectorize: excluded positions must not be negative, got {each}")
    axes = None if signature is None else _parse_signature(signature)

    @functools.wraps(pyfunc)
    @api_boundary
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        passed_on = [i for i, x in enumerate(args) if i in excluded or x is None]
        mapped = [i for i in range(len(args)) if i not in passed_on]
        names: list[AxisNames] = [()] * len(args)
        if axes is not None:
            counted = [i for i in range(len(args)) if i not in excluded]
            if len(counted) != len(axes.inputs):
                raise TypeError(
                    f"vectorize: the signature {axes.text!r} needs {len(axes.inputs)} arguments, got {len(counted)}"
                )
            for i, core in zip(counted, axes.inputs, strict=True):
                names[i] = core
                if core and args[i] is None:
                    raise ValueError(f"vectorize: argument {i} of {axes.text!r} has axes {core}, and must not be None")
        named = {key: value for key, value in kwargs.items() if key in excluded}
        others = {key: value for key, value in kwargs.items() if key not in excluded}
        arrays = [as_array(as_operand(args[i], f"vectorize: argument {i}")) for i in mapped]

        def call(*elements: Array, **keywords: Any) -> Any:
            all_args = list(args)
            for i, x in zip(mapped, elements, strict=True):
                all_args[i] = x
            out = pyfunc(*all_args, **named, **keywords)
            if axes is not None:
                _check_results(out, axes, sizes)
            return out

        sizes = _axis_sizes([names[i] for i in mapped], arrays, axes)
        return _vmap_loop_axes(call, arrays, [len(names[i]) for i in mapped], others)

    return vectorized


def _axis_sizes(names: Sequence[AxisNames], arrays: Sequence[Array], axes: GufuncSignature | None) -> dict[str, int]:
    """Returns the size of each named axis."""
    sizes: dict[str, int] = {}
    for i, (core, x) in enumerate(zip(names, arrays, strict=True)):
        if x.ndim < len(core):
            raise ValueError(f"vectorize: argument {i} must have axes {core} of {axes and axes.text!r}, got {x.aval}")
        _bind_axis_sizes(sizes, core, x.shape[x.ndim - len(core) :], f"argument {i}", axes)
    return sizes


def _bind_axis_sizes(
    sizes: dict[str, int], core: AxisNames, shape: Sequence[int], what: str, axes: GufuncSignature | None
) -> None:
    """Adds the sizes of named axes to `sizes`; raises ValueError if one differs."""
    for name, n in zip(core, shape, strict=True):
        if sizes.setdefault(name, n) != n:
            raise ValueError(
                f"vectorize: axis {name} of {axes and axes.text!r} has size {sizes[name]}, but {n} in {what}"
            )


def _check_results(out: Any, axes: GufuncSignature, sizes: dict[str, int]) -> None:
    """Raises TypeError or ValueError unless the results fit the signature."""
    results = out if isinstance(out, tuple) else (out,)
    if len(results) != len(axes.outputs) or (len(axes.outputs) > 1 and not isinstance(out, tuple)):
        raise TypeError(f"vectorize: {axes.text!r} has {len(axes.outputs)} results, but the function returned {out!r}")
    sizes = dict(sizes)
    for i, (core, x) in enumerate(zip(axes.outputs, results, strict=True)):
        shape = as_operand(x, f"vectorize: result {i}").aval.shape
        if len(shape) != len(core):
            raise ValueError(f"vectorize: result {i} must have axes {core} of {axes.text!r}, but has shape {shape}")
        _bind_axis_sizes(sizes, core, shape, f"result {i}", axes)


def _vmap_loop_axes(
    call: Callable[..., Any], arrays: Sequence[Array], core_ndims: Sequence[int], others: dict[str, Any]
) -> Any:
    """Maps `call` over the leading axes of arrays, which broadcast, without repeating arrays along axes they lack."""
    loop_shapes = [x.shape[: x.ndim - n] for x, n in zip(arrays, core_ndims, strict=True)]
    loop_shape = broadcast_operand_shapes("vectorize", *loop_shapes)
    squeezed = [
        squeeze(x, tuple([i for i, n in enumerate(sizes) if n == 1])) if 1 in sizes else x
        for x, sizes in zip(arrays, loop_shapes, strict=True)
    ]
    mapped, unit_axes = call, []
    for axis in reversed(range(len(loop_shape))):
        position = axis - len(loop_shape)
        dims = tuple([0 if len(sizes) >= -position and sizes[position] != 1 else None for sizes in loop_shapes])
        if any(dim == 0 for dim in dims):
            mapped = vmap(mapped, dims)
        else:
            unit_axes.append(axis)
    out = mapped(*squeezed, **others)
    if not unit_axes:
        return out
    return tuple([expand_dims(x, unit_axes) for x in out]) if isinstance(out, tuple) else expand_dims(out, unit_axes)


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **kwargs: Any) -> Any:
    """Applies a function of vectors along an axis.

    Args:
        func1d: A function of a vector; the axes of its result replace the axis.
        axis: The axis.
        arr: The array.
        *args: Further arguments of the function.
        **kwargs: Keyword arguments of the function.

    Returns:
        The stacked results.

    >>> import numpy as np
    >>> apply_along_axis(lambda v: v[::-1], 0, np.array([[1, 2], [3, 4]])).tolist()
    [[3, 4], [1, 2]]
    """
    x = as_array(as_operand(arr, "apply_along_axis: arr"))
    along = canonicalize_axis("apply_along_axis", axis, x.ndim)

    def function(vector: Array) -> Any:
        return func1d(vector, *args, **kwargs)

    mapped: Callable[[Array], Any] = function
    for i in range(1, x.ndim - along):
        mapped = vmap(mapped, i, -1)
    for _ in range(along):
        mapped = vmap(mapped)
    return mapped(x)


def apply_over_axes(func: Callable[[Array, int], Array], a: ArrayLike, axes: Sequence[int]) -> Array:
    """Applies a reduction to one axis after another; an axis that it removes is put back with size 1.

    Args:
        func: A function `func(a, axis)`.
        a: The array.
        axes: The axes.

    Returns:
        An array with as many axes as `a`.

    Raises:
        ValueError: If a result has neither as many axes as `a` nor one less.

    >>> import numpy as np
    >>> from tracefx.numpy import sum
    >>> apply_over_axes(sum, np.ones((2, 3, 4)), [0, 2]).shape
    (1, 3, 1)
    """
    x = as_array(as_operand(a, "apply_over_axes: a"))
    for axis in static_ints("apply_over_axes", axes, "axes"):
        result = func(x, axis)
        if result.ndim == x.ndim - 1:
            result = expand_dims(result, axis)
        elif result.ndim != x.ndim:
            raise ValueError(f"apply_over_axes: the function may remove one axis, but gave {result.aval} for {x.aval}")
        x = result
    return x


class UfuncMeta(type):
    """The metaclass of `ufunc`, for which functions with the methods of universal functions are instances too."""

    @override
    def __instancecheck__(cls, instance: object) -> bool:
        return super().__instancecheck__(instance) or (
            isinstance(instance, FunctionType) and hasattr(instance, "nargs") and hasattr(instance, "at")
        )


class ufunc(metaclass=UfuncMeta):
    """A universal function made from a function of scalars: takes arrays, which broadcast.

    It has the methods `reduce`, `accumulate`, `at`, `reduceat` and `outer`.

    Args:
        func: The function of scalars.
        nin: The number of operands.
        nout: The number of results.
        name: The name; None means that of `func`.
        identity: The identity of a binary function, the initial value of its reductions; None means that it has none.

    >>> import numpy as np
    >>> larger = ufunc(lambda x, y: x + 2 * y, 2, 1)
    >>> larger(np.arange(3), 1).tolist(), larger.reduce(np.arange(3)).tolist()
    ([2, 3, 4], 6)
    """

    @api_boundary
    def __init__(
        self,
        func: Callable[..., Any],
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        identity: UfuncIdentity = None,
    ) -> None:
        self.__name__ = name or func.__name__
        self.__doc__ = func.__doc__
        self.nin, self.nout = static_int("ufunc", nin, "nin"), static_int("ufunc", nout, "nout")
        self.nargs, self.identity = self.nin, identity
        self._function = func
        self._vectorized = vectorize(func)
        methods = UfuncMethods(self, self.__name__, self.nin, self.nout, identity)
        self.reduce, self.accumulate, self.at = methods.reduce, methods.accumulate, methods.at
        self.reduceat, self.outer = methods.reduceat, methods.outer

    @override
    def __setattr__(self, name: str, value: object) -> None:
        if name in vars(self) and not name.startswith("__"):
            raise AttributeError(f"{self!r}: the attribute {name!r} is read-only")
        super().__setattr__(name, value)

    @override
    def __reduce__(self) -> tuple[object, ...]:
        make = functools.partial(ufunc, name=self.__name__, identity=self.identity)
        return make, (self._function, self.nin, self.nout)

    def __call__(self, *args: ArrayLike, out: None = None) -> Any:
        reject_out(self.__name__, out)
        if len(args) != self.nin:
            raise TypeError(f"{self.__name__} takes {self.nin} arrays, got {len(args)}")
        return self._vectorized(*[as_operand(x, f"{self.__name__}: x{i + 1}") for i, x in enumerate(args)])

    def _key(self) -> tuple[object, ...]:
        return (self._function, self.__name__, self.identity, self.nin, self.nout)

    @override
    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if type(other) is ufunc else NotImplemented

    @override
    def __hash__(self) -> int:
        return hash(self._key())

    @override
    def __repr__(self) -> str:
        return f"<tracefx.numpy.ufunc {self.__name__!r}>"


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity: UfuncIdentity = None) -> ufunc:
    """Makes a universal function from a function of `nin` scalars with `nout` results: `ufunc(func, nin, nout)`.

    Args:
        func: A function of `nin` scalars.
        nin: The number of its arguments.
        nout: The number of its results.
        identity: The value of reductions of no elements; None means that there is none.

    Returns:
        The universal function.

    >>> import numpy as np
    >>> frompyfunc(lambda x, y: x * y + 1, 2, 1).outer(np.arange(2), np.arange(3)).tolist()
    [[1, 1, 1], [1, 2, 3]]
    """
    return ufunc(func, nin, nout, identity=identity)
