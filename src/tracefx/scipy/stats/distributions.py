"""Makes the functions of distributions from formulas: signatures, argument handling, derived functions, docstrings.

A distribution is a subclass of `DistributionFunctions` whose attributes are functions. Each is made from a formula and
from a declaration of the arguments, which determines the signature, or it is derived from another function.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Final, ParamSpec, TypeAlias, cast

from typing_extensions import override

import tracefx.numpy as fnp
from tracefx.core import Array, ArrayLike
from tracefx.filtered_tracebacks import api_boundary
from tracefx.scipy.stats.standardization import nan_unless_positive, promote_real, standardize_arguments

P = ParamSpec("P")

Arguments: TypeAlias = tuple[ArrayLike, ...]
"""What a declaration of arguments returns: all of them, in order."""
Formula: TypeAlias = Callable[..., Array]
"""A function of promoted arrays."""


# ------------------------------------------------------------------ functions from formulas


def promoted(declaration: Callable[P, Arguments], formula: Formula) -> staticmethod[P, Array]:
    """Makes a function from a formula of all its arguments."""
    return _function(declaration, lambda name, *args: formula(*promote_real(name, *args)))


def standardized(declaration: Callable[P, Arguments], formula: Formula) -> staticmethod[P, Array]:
    """Makes a function of `(x, *shapes, loc, scale)` from a formula of `(z, *shapes, scale)`.

    There `z` is `(x - loc) / scale`, and `scale` is NaN where it is not positive.
    """

    def evaluate(name: str, x: ArrayLike, *rest: ArrayLike) -> Array:
        *shapes, loc, scale = rest
        return formula(*standardize_arguments(name, x, loc, scale, *shapes))

    return _function(declaration, evaluate)


def shifted(declaration: Callable[P, Arguments], formula: Formula) -> staticmethod[P, Array]:
    """Makes a function of `(k, *parameters, loc)` from a formula of `(k - loc, *parameters)`."""

    def evaluate(name: str, *args: ArrayLike) -> Array:
        k, *parameters, loc = promote_real(name, *args)
        return formula(k - loc, *parameters)

    return _function(declaration, evaluate)


def quantile(
    declaration: Callable[P, Arguments], formula: Formula, *, mirrored: bool = False
) -> staticmethod[P, Array]:
    """Makes a quantile function of `(q, *shapes, loc, scale)` from a formula of `(q, *shapes)`.

    With `mirrored`, the formula is that of the distribution reflected at 0.
    """

    def evaluate(name: str, *args: ArrayLike) -> Array:
        q, *shapes, loc, scale = promote_real(name, *args)
        distance = nan_unless_positive(scale) * formula(q, *shapes)
        return loc - distance if mirrored else loc + distance

    return _function(declaration, evaluate)


def exp_of(function: staticmethod[P, Array]) -> staticmethod[P, Array]:
    """Makes a function whose logarithm is another one."""
    return _derived(function, fnp.exp)


def log_of(function: staticmethod[P, Array]) -> staticmethod[P, Array]:
    """Makes the logarithm of a function."""
    return _derived(function, fnp.log)


def complement_of(function: staticmethod[P, Array]) -> staticmethod[P, Array]:
    """Makes the complement of the probability whose logarithm is a function."""
    return _derived(function, lambda log: -fnp.expm1(log))


def _function(declaration: Callable[P, Arguments], evaluate: Callable[..., Array]) -> staticmethod[P, Array]:
    """Makes a function that evaluates its name and its arguments."""
    shared = cast(FunctionType, declaration)
    # A copy, since Python names it in errors of calls.
    own = FunctionType(shared.__code__, shared.__globals__, shared.__name__, shared.__defaults__)
    own.__annotations__ = {**shared.__annotations__, "return": "Array"}
    arguments = cast(Callable[P, Arguments], own)

    def function(*args: P.args, **kwargs: P.kwargs) -> Array:
        return evaluate(own.__qualname__, *arguments(*args, **kwargs))

    return staticmethod(functools.update_wrapper(function, own, assigned=(), updated=()))


def _derived(base: staticmethod[P, Array], transform: Callable[[Array], Array]) -> staticmethod[P, Array]:
    evaluate = base.__func__

    def function(*args: P.args, **kwargs: P.kwargs) -> Array:
        return transform(evaluate(*args, **kwargs))

    return staticmethod(functools.update_wrapper(function, evaluate, assigned=(), updated=()))


# ------------------------------------------------------------------ distributions


class DistributionFunctions:
    """A namespace of the functions of a probability distribution.

    The docstring of a subclass describes the distribution, the arguments of its functions, and has an example of each.
    The docstrings of the functions are made from it.
    """

    @api_boundary
    def __init__(self) -> None:
        name = type(self).__name__
        raise TypeError(f"{name} is a namespace of functions, which has no instances: call one of its functions")

    @override
    def __init_subclass__(cls) -> None:
        static = {name: f.__func__ for name, f in vars(cls).items() if isinstance(f, staticmethod)}
        functions = {name: cast(FunctionType, f) for name, f in static.items() if hasattr(f, "__wrapped__")}
        for name, function in functions.items():
            function.__name__, function.__qualname__ = name, f"{cls.__qualname__}.{name}"
            function.__module__ = cls.__module__
            declaration = vars(function)["__wrapped__"]
            if declaration not in functions.values():
                declaration.__qualname__ = function.__qualname__
            if cls.__doc__ is not None:  # without the option -OO
                function.__doc__ = _docstring(cls.__doc__, function)


_SUMMARIES: Final[Mapping[str, str]] = {
    "logpdf": "the logarithm of the probability density of {}",
    "pdf": "the probability density of {}",
    "logpmf": "the logarithm of the probability mass function of {}",
    "pmf": "the probability mass function of {}",
    "cdf": "the cumulative distribution function of {}: the probability of at most `{first}`",
    "logcdf": "the logarithm of the cumulative distribution function of {}",
    "sf": "the survival function of {}: the probability of more than `{first}`",
    "logsf": "the logarithm of the survival function of {}",
    "ppf": "the quantile function of {}, the inverse of `cdf`",
    "isf": "the inverse survival function of {}",
}
_RESULTS: Final[Mapping[str, str]] = {
    "logpdf": "log density",
    "pdf": "density",
    "ppf": "point that is not exceeded with this probability",
    "isf": "point that is exceeded with this probability",
    **dict.fromkeys(("logpmf", "logcdf", "logsf"), "log probability"),
}
_PROBABILITY: Final = "the probability; the result is NaN unless it is between 0 and 1."


def _docstring(description: str, function: FunctionType) -> str:
    """Returns the docstring of a function of the distribution that a class docstring describes."""
    form = function.__name__
    head, _, rest = inspect.cleandoc(description).partition("\n\nArgs:\n")
    what, _, details = head.partition("\n\n")
    arguments, _, examples = rest.partition("\n\n")
    noun = re.sub(r"^The", "the", what[: what.index("distribution")]) + "distribution"
    meanings = dict(re.findall(r"^    (\w+): (.*)$", arguments, re.MULTILINE))
    names = _argument_names(function)
    if form in ("ppf", "isf"):
        meanings[names[0]] = _PROBABILITY
    example = next(e for e in examples.split(">>> ") if f"{function.__qualname__}(" in e)
    result = _RESULTS.get(form, "probability")
    paragraphs = [
        f"Computes {_SUMMARIES[form].format(noun, first=names[0])}.",
        *([details] if form in ("pdf", "pmf") and details else []),
        "\n".join(["Args:", *[f"    {name}: {meanings[name]}" for name in names]]),
        f"Returns:\n    The {result}, an array of floats of the shape that the arguments broadcast to.",
        f">>> {example.strip()}",
    ]
    return "\n\n".join(paragraphs) + "\n"


def _argument_names(function: FunctionType) -> tuple[str, ...]:
    """Returns the names of a function's arguments, from its declaration."""
    declaration: Any = function
    while hasattr(declaration, "__wrapped__"):
        declaration = declaration.__wrapped__
    names: tuple[str, ...] = declaration.__code__.co_varnames[: declaration.__code__.co_argcount]
    return names
