"""`checkify`, and the checks that users write."""

from __future__ import annotations

import functools
import itertools
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, ParamSpec, TypeVar

from tracefx.core import dtypes
from tracefx.core.array import ArrayLike, is_arraylike
from tracefx.core.handler import current, handling
from tracefx.core.values import Value, as_value
from tracefx.handlers.checking.check_sites import ErrorKind, FailedCheck, resolved_location
from tracefx.handlers.checking.errors import NO_ERROR, Error, bind_check
from tracefx.handlers.checking.rules import Checkify, ErrorKinds
from tracefx.ops.elementwise.bitwise import bitwise_not
from tracefx.ops.elementwise.selection import stop_gradient
from tracefx.pytrees import trees
from tracefx.transforms.arguments import LEAF_TYPES, require_callable

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
    """A function that gives what went wrong in a call of `fun`, as an `Error`, and what `fun` gives.

    Nothing is raised, so the function can be compiled, batched and differentiated. `errors` says what is looked for,
    in all that `fun` calls, in loops and branches too: what is asserted by `check` (`user_checks`), arithmetic that
    gives NaN (`nan_checks`), divisions by zero (`div_checks`), indices out of bounds (`index_checks`), and these
    together by `|`, or as `float_checks`, `automatic_checks` and `all_checks`. The first that went wrong is told.

    An index is out of bounds whatever the operation's `mode` makes of it, a divisor zero in any dtype. A `check` in
    `fun` is left out where `errors` has no `user_checks`.

    Under `vmap` there is an error for each element of the batch; in a function that is batched inside, the first
    element is told of which has one. Derivatives are those of `fun`: `grad(checkify(fun), has_aux=True)` needs the
    error second.

    `TypeError` if `fun` is no function, or `errors` none of these.

    >>> import tracefx as fx
    >>> import tracefx.numpy as fnp
    >>> safe = fx.jit(checkify(lambda x: fnp.log(x).sum(), errors=nan_checks))
    >>> error, _ = safe(fnp.array([1.0, -2.0]))
    >>> error.get()
    'log gave NaN, at [1] of f32[2], in <doctest tracefx.handlers.checking.api.checkify[2]>:1 (<lambda>)'
    """
    require_callable("checkify", fun)
    given: object = errors
    if not isinstance(given, frozenset | set) or any(not isinstance(kind, ErrorKind) for kind in given):
        raise TypeError(
            "checkify: errors must be user_checks, nan_checks, div_checks, index_checks or several of them joined by "
            f"|, got {errors!r}"
        )

    kinds = frozenset(errors)

    @functools.wraps(fun)
    def checked(*args: P.args, **kwargs: P.kwargs) -> tuple[Error, R]:
        with handling(Checkify(current(), kinds=kinds)) as handler:
            handler.set_state(NO_ERROR)
            out = fun(*args, **kwargs)
        return handler.current_state, out

    return checked


def check(pred: ArrayLike, msg: str, *fmt_args: object, **fmt_kwargs: object) -> None:
    """Assert `pred`, of type `bool[]`; if it is false the error is `msg.format(*fmt_args, **fmt_kwargs)`.

    It is raised at once, as a `CheckError`. In a program, which can't raise, it becomes a value by `checkify`: a
    function with checks that is compiled without raises `ValueError` then, which says so. Arguments of the format may
    be arrays, which the message shows as they are when the program runs, trees of arrays, or anything hashable.

    `TypeError` if `pred` is no boolean scalar; `IndexError` and `KeyError` if the format shows what it isn't given.

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
    """As `check` under `checkify`; without it, nothing.

    >>> from tracefx.handlers import checkify
    >>> debug_check(False, "nobody looks")
    >>> checkify(debug_check)(False, "somebody looks")[0].get() is None
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
        raise TypeError(f"{caller}: pred must be a boolean scalar, got {pred!r}; reduce an array by all() or any()")
    _require_format_arguments(caller, msg, args, kwargs)
    leaves, tree = trees.flatten_with_known_types((args, dict(kwargs)), LEAF_TYPES)
    told: list[Value] = []
    static = []
    for i, leaf in enumerate(leaves):
        if is_arraylike(leaf):
            value = as_value(leaf)
            told.append(stop_gradient(value) if dtypes.is_inexact(value.aval.dtype) else value)
        else:
            try:
                hash(leaf)
            except TypeError as error:
                raise TypeError(f"{caller}: what the message shows must be arrays or hashable, got {leaf!r}") from error
            static.append((i, leaf))
    site = FailedCheck(resolved_location(), msg, tree, tuple(static), tuple([x.aval.strong() for x in told]))
    bind_check(Error.at(site, bitwise_not(pred), told), debug)


def _require_format_arguments(caller: str, msg: str, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """`IndexError` or `KeyError` for arguments that the message shows and that aren't there."""
    automatic = itertools.count()
    for name in _format_fields(msg):
        first = re.split(r"[.\[]", name, maxsplit=1)[0]
        if not first or first.isdecimal():
            place = int(first) if first else next(automatic)
            if place >= len(args):
                raise IndexError(f"{caller}: the message {msg!r} shows argument {place}, but there are {len(args)}")
        elif first not in kwargs:
            raise KeyError(f"{caller}: the message {msg!r} shows {first}, which it was not given")


def _format_fields(msg: str) -> Iterator[str]:
    """The names of a format's fields, and of those in the specifications of fields."""
    for _, name, spec, _ in string.Formatter().parse(msg):
        if name is not None:
            yield name
            yield from _format_fields(spec or "")
