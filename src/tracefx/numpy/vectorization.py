"""Functions made to work on arrays: of scalars or of small arrays, along an axis, over several."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias

from typing_extensions import override

from tracefx.core.array import Array, ArrayLike
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import as_operand, broadcast_operand_shapes, reject_out
from tracefx.numpy.shapes import expand_dims, squeeze
from tracefx.numpy.ufunc_methods import UfuncMethods
from tracefx.numpy.ufunc_types import UfuncIdentity
from tracefx.ops.static_integers import canonicalize_axis, static_int, static_ints
from tracefx.transforms.vmap import vmap

AxisNames: TypeAlias = tuple[str, ...]
"""The names of the axes of one argument or result."""


class GufuncSignature(NamedTuple):
    text: str
    inputs: list[AxisNames]
    outputs: list[AxisNames]


_ARGUMENT = r"\(\s*(?:\w+\s*(?:,\s*\w+\s*)*)?\)"
_LIST = rf"{_ARGUMENT}(?:\s*,\s*{_ARGUMENT})*"


def _parse_signature(signature: str) -> GufuncSignature:
    if not re.fullmatch(rf"\s*{_LIST}\s*->\s*{_LIST}\s*", signature):
        raise ValueError(f"vectorize: {signature!r} is no signature; write such as '(m,n),(n)->(m)'")
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
    """`pyfunc`, which takes and gives scalars, over arrays that broadcast.

    With a signature such as "(m,n),(n)->(m)" it takes and gives arrays with axes of these names, and is mapped over the
    axes before them. `excluded` arguments, by place or name, are handed on as they are, and so is None. Raises
    ValueError where sizes don't agree with the signature, TypeError for another number of arguments or results.

    >>> import numpy as np
    >>> distance = vectorize(lambda x, y: abs(x - y).sum(), signature="(n),(n)->()")
    >>> distance(np.ones((3, 2)), np.zeros(2)).tolist()
    [2.0, 2.0, 2.0]
    """
    for each in excluded:
        if not isinstance(each, int | str):
            raise TypeError(f"vectorize: excluded must be places and names of arguments, got {each!r}")
        if isinstance(each, int) and each < 0:
            raise ValueError(f"vectorize: excluded places are counted from 0, got {each}")
    axes = None if signature is None else _parse_signature(signature)

    @functools.wraps(pyfunc)
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        left = [i for i, x in enumerate(args) if i in excluded or x is None]
        mapped = [i for i in range(len(args)) if i not in left]
        names: list[AxisNames] = [()] * len(args)
        if axes is not None:
            counted = [i for i in range(len(args)) if i not in excluded]
            if len(counted) != len(axes.inputs):
                raise TypeError(
                    f"vectorize: {len(axes.inputs)} arguments make the signature {axes.text!r}, got {len(counted)}"
                )
            for i, own in zip(counted, axes.inputs, strict=True):
                names[i] = own
                if own and args[i] is None:
                    raise ValueError(f"vectorize: argument {i} of {axes.text!r} has axes {own}, and must not be None")
        named = {key: value for key, value in kwargs.items() if key in excluded}
        others = {key: value for key, value in kwargs.items() if key not in excluded}
        arrays = [as_array(as_operand(args[i], f"vectorize: argument {i}")) for i in mapped]

        def call(*found: Array, **keywords: Any) -> Any:
            whole = list(args)
            for i, x in zip(mapped, found, strict=True):
                whole[i] = x
            out = pyfunc(*whole, **named, **keywords)
            if axes is not None:
                _check_results(out, axes, sizes)
            return out

        sizes = _axis_sizes([names[i] for i in mapped], arrays, axes)
        return _vmap_loop_axes(call, arrays, [len(names[i]) for i in mapped], others)

    return vectorized


def _axis_sizes(names: Sequence[AxisNames], arrays: Sequence[Array], axes: GufuncSignature | None) -> dict[str, int]:
    """The size of each named axis."""
    sizes: dict[str, int] = {}
    for i, (own, x) in enumerate(zip(names, arrays, strict=True)):
        if x.ndim < len(own):
            raise ValueError(f"vectorize: argument {i} must have axes {own} of {axes and axes.text!r}, got {x.aval}")
        _bind_axis_sizes(sizes, own, x.shape[x.ndim - len(own) :], f"argument {i}", axes)
    return sizes


def _bind_axis_sizes(
    sizes: dict[str, int], own: AxisNames, shape: Sequence[int], what: str, axes: GufuncSignature | None
) -> None:
    for name, n in zip(own, shape, strict=True):
        if sizes.setdefault(name, n) != n:
            raise ValueError(
                f"vectorize: axis {name} of {axes and axes.text!r} has size {sizes[name]}, but {n} in {what}"
            )


def _check_results(out: Any, axes: GufuncSignature, sizes: dict[str, int]) -> None:
    found = out if isinstance(out, tuple) else (out,)
    if len(found) != len(axes.outputs) or (len(axes.outputs) > 1 and not isinstance(out, tuple)):
        raise TypeError(f"vectorize: {axes.text!r} gives {len(axes.outputs)} results, but the function gave {out!r}")
    sizes = dict(sizes)
    for i, (own, x) in enumerate(zip(axes.outputs, found, strict=True)):
        shape = as_operand(x, f"vectorize: result {i}").aval.shape
        if len(shape) != len(own):
            raise ValueError(f"vectorize: result {i} must have axes {own} of {axes.text!r}, but has shape {shape}")
        _bind_axis_sizes(sizes, own, shape, f"result {i}", axes)


def _vmap_loop_axes(
    call: Callable[..., Any], arrays: Sequence[Array], own: Sequence[int], others: dict[str, Any]
) -> Any:
    """`call` mapped over what axes the arrays have before their own, without repeating one along another's axes."""
    outer = [x.shape[: x.ndim - n] for x, n in zip(arrays, own, strict=True)]
    whole = broadcast_operand_shapes("vectorize", *outer)
    given = [
        squeeze(x, tuple([i for i, n in enumerate(sizes) if n == 1])) if 1 in sizes else x
        for x, sizes in zip(arrays, outer, strict=True)
    ]
    mapped, alone = call, []
    for axis in reversed(range(len(whole))):
        place = axis - len(whole)
        dims = tuple([0 if len(sizes) >= -place and sizes[place] != 1 else None for sizes in outer])
        if any(dim == 0 for dim in dims):
            mapped = vmap(mapped, dims)
        else:
            alone.append(axis)
    out = mapped(*given, **others)
    if not alone:
        return out
    return tuple([expand_dims(x, alone) for x in out]) if isinstance(out, tuple) else expand_dims(out, alone)


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **kwargs: Any) -> Any:
    """`func1d`, which takes a vector and further arguments, of each vector along an axis; its results take their place.

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
    """`func(a, axis)` for one axis after the other; an axis that it takes away is put back, with size 1.

    >>> import numpy as np
    >>> from tracefx.numpy import sum
    >>> apply_over_axes(sum, np.ones((2, 3, 4)), [0, 2]).shape
    (1, 3, 1)
    """
    x = as_array(as_operand(a, "apply_over_axes: a"))
    for axis in static_ints("apply_over_axes", axes, "axes"):
        found = func(x, axis)
        if found.ndim == x.ndim - 1:
            found = expand_dims(found, axis)
        elif found.ndim != x.ndim:
            raise ValueError(f"apply_over_axes: the function made {found.aval} of {x.aval}; it may take away one axis")
        x = found
    return x


class UfuncMeta(type):
    """`add` and the like are plain functions, and universal functions all the same."""

    @override
    def __instancecheck__(cls, instance: object) -> bool:
        return super().__instancecheck__(instance) or (
            isinstance(instance, FunctionType) and hasattr(instance, "nargs") and hasattr(instance, "at")
        )


class ufunc(metaclass=UfuncMeta):
    """A function of scalars as one of arrays that broadcast, with the methods of universal functions: `reduce`,
    `accumulate`, `at`, `reduceat` and `outer`.

    >>> import numpy as np
    >>> larger = ufunc(lambda x, y: x + 2 * y, 2, 1)
    >>> larger(np.arange(3), 1).tolist(), larger.reduce(np.arange(3)).tolist()
    ([2, 3, 4], 6)
    """

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
    """`func`, which takes `nin` scalars and gives `nout`, as a function of arrays: `ufunc(func, nin, nout)`.

    >>> import numpy as np
    >>> frompyfunc(lambda x, y: x * y + 1, 2, 1).outer(np.arange(2), np.arange(3)).tolist()
    [[1, 1, 1], [1, 2, 3]]
    """
    return ufunc(func, nin, nout, identity=identity)
