"""`checkify` and the checks that users write: `check` and `debug_check`."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, ParamSpec, TypeVar

from tracefx.core import ArrayLike, Value, as_value, dtypes, is_arraylike
from tracefx.extend import here
from tracefx.filtered_tracebacks import api_boundary
from tracefx.handlers.checking.check_sites import ErrorKind, FailedCheck
from tracefx.handlers.checking.errors import NO_ERROR, Error, bind_check
from tracefx.handlers.checking.rules import Checkify, ErrorKinds
from tracefx.ops.elementwise.bitwise import bitwise_not
from tracefx.ops.elementwise.selection import stop_gradient
from tracefx.pytrees import trees
from tracefx.transforms.arguments import LEAF_TYPES, require_callable
from tracefx.transforms.callbacks import format_fields

P = ParamSpec("P")
R = TypeVar("R")

user_checks: Final[ErrorKinds] = frozenset({ErrorKind.USER})
nan_checks: Final[ErrorKinds] = frozenset({ErrorKind.NAN})
div_checks: Final[ErrorKinds] = frozenset({ErrorKind.DIVISION})
index_checks: Final[ErrorKinds] = frozenset({ErrorKind.INDEX})
float_checks: Final[ErrorKinds] = nan_checks | div_checks
automatic_checks: Final[ErrorKinds] = float_checks | index_checks
all_checks: Final[ErrorKinds] = automatic_checks | user_checks


def checkify(fun: Callable[P, R], errors: ErrorKinds = user_checks) -> Callable[P, tuple[Error, R]]:
    """Returns a function that also returns the first failure in a call of `fun`, as an `Error`.

    Nothing is raised, so the function can be compiled, batched and differentiated. Checks apply to everything that
    `fun` calls, including loops and branches:

    - `user_checks`: assertions by `check`;
    - `nan_checks`: arithmetic that produces NaN;
    - `div_checks`: division by zero, in any dtype;
    - `index_checks`: indices out of bounds, whatever the `mode` of the operation does with them.

    Under `vmap` the error has the first failure of each batch element. If `fun` calls `vmap` itself, the error has the
    first failing batch element. Derivatives are those of `fun`; `grad(..., has_aux=True)` needs a function that returns
    the error second.

    Args:
        fun: the function to check.
        errors: the kinds of failure to detect: one of the sets above, several joined by `|`, or `float_checks` (NaN and
            division), `automatic_checks` (these and indices) or `all_checks`. A `check` in `fun` is dropped if
            `user_checks` is not included.

    Returns:
        A function with the parameters of `fun` that returns the pair of the error and the result of `fun`.

    Raises:
        TypeError: if `fun` is not callable, or `errors` is not a set of these kinds.

    >>> import tracefx as fx
    >>> import tracefx.numpy as fnp
    >>> safe = fx.jit(checkify(lambda x: fnp.log(x).sum(), errors=nan_checks))
    >>> error, _ = safe(fnp.array([1.0, -2.0]))
    >>> error.get()
    'log gave NaN, at [1] of f32[2], in <doctest tracefx.handlers.checking.api.checkify[2]>:1 (<lambda>)'
    """
    require_callable("checkify", fun)
    kinds_given: object = errors
    if not isinstance(kinds_given, frozenset | set) or any(not isinstance(kind, ErrorKind) for kind in kinds_given):
        raise TypeError(
            "checkify: errors must be user_checks, nan_checks, div_checks, index_checks or several of them joined by "
            f"|, got {errors!r}"
        )

    kinds = frozenset(errors)

    @api_boundary
    @functools.wraps(fun)
    def checked(*args: P.args, **kwargs: P.kwargs) -> tuple[Error, R]:
        with Checkify(kinds).running(NO_ERROR) as handler:
            out = fun(*args, **kwargs)
        return handler.current_state, out

    return checked


def check(pred: ArrayLike, msg: str, *fmt_args: object, **fmt_kwargs: object) -> None:
    """Asserts that `pred` is true; otherwise the error is `msg.format(*fmt_args, **fmt_kwargs)`.

    In eager code it raises at once. In traced code, which can't raise, `checkify` turns it into a returned value;
    compiling it without `checkify` raises `ValueError`.

    Args:
        pred: the condition, a `bool[]`.
        msg: a format string.
        *fmt_args: arguments of the format: arrays, formatted with their run-time values, pytrees of arrays, or hashable
            objects.
        **fmt_kwargs: named arguments of the format, likewise.

    Raises:
        CheckError: if `pred` is concrete and false, outside of `checkify`.
        TypeError: if `pred` is not a boolean scalar.
        IndexError: if the format refers to a positional argument that is missing.
        KeyError: if it refers to a named argument that is missing.

    >>> import tracefx as fx
    >>> from tracefx.handlers import checkify
    >>> def reciprocal(x):
    ...     check(x != 0, "{x} has no reciprocal", x=x)
    ...     return 1 / x
    >>> error, _ = fx.jit(checkify(reciprocal))(0.0)
    >>> error.get()
    '0.0 has no reciprocal, in <doctest tracefx.handlers.checking.api.check[2]>:2 (reciprocal)'
    """
    _check_predicate("check", False, pred, msg, fmt_args, fmt_kwargs)


def debug_check(pred: ArrayLike, msg: str, *fmt_args: object, **fmt_kwargs: object) -> None:
    """Like `check` under `checkify`; does nothing without it.

    Args:
        pred: the condition, a `bool[]`.
        msg: a format string.
        *fmt_args: arguments of the format, as for `check`.
        **fmt_kwargs: named arguments of the format.

    >>> from tracefx.handlers import checkify
    >>> debug_check(False, "not checked")
    >>> checkify(debug_check)(False, "checked")[0].get() is None
    False
    """
    _check_predicate("debug_check", True, pred, msg, fmt_args, fmt_kwargs)


def _check_predicate(
    caller: str,
    debug: bool,
    pred: ArrayLike,
    msg: str,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> None:
    if not isinstance(msg, str):
        raise TypeError(f"{caller}: msg must be a string, got {msg!r} of type {type(msg).__name__}")
    if not is_arraylike(pred) or (aval := as_value(pred).aval).shape or not dtypes.is_bool(aval.dtype):
        raise TypeError(
            f"{caller}: pred must be a boolean scalar, got {pred!r}; compare numbers, as in x > 0, and reduce an array "
            "by all() or any()"
        )
    _require_format_arguments(caller, msg, args, kwargs)
    leaves, tree = trees.flatten_with_known_types((args, dict(kwargs)), LEAF_TYPES)
    payload: list[Value] = []
    static = []
    for i, leaf in enumerate(leaves):
        if is_arraylike(leaf):
            value = as_value(leaf)
            payload.append(stop_gradient(value) if dtypes.is_inexact(value.aval.dtype) else value)
        else:
            try:
                hash(leaf)
            except TypeError as error:
                raise TypeError(f"{caller}: format arguments must be arrays or hashable, got {leaf!r}") from error
            static.append((i, leaf))
    site = FailedCheck(here(), msg, tree, tuple(static), tuple([x.aval.strong() for x in payload]))
    bind_check(Error.at(site, bitwise_not(pred), payload), debug)


def _require_format_arguments(caller: str, msg: str, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Raises IndexError or KeyError if the format refers to an argument that is missing."""
    automatic = itertools.count()
    for name in format_fields(msg):
        argument = re.split(r"[.\[]", name, maxsplit=1)[0]
        if not argument or argument.isdecimal():
            index = int(argument) if argument else next(automatic)
            if index >= len(args):
                raise IndexError(f"{caller}: the message {msg!r} shows argument {index}, but there are {len(args)}")
        elif argument not in kwargs:
            raise KeyError(f"{caller}: the message {msg!r} shows {argument}, which it was not given")
