"""Checks of user-defined primitives: the results of their rules, their parameters, and their classes.

The checks are added to a class when it is defined. Primitives of tracefx have none: tests check their rules.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray, without_vma
from tracefx.core.dtypes import NDArray
from tracefx.core.equality import attrs_fields, strict_key
from tracefx.core.rule_arguments import MappedAxis, Tangent, UndefinedPrimal, Zero
from tracefx.core.values import Value
from tracefx.source_location import at_location, current_provenance, here, is_internal_file


class HasResultAvals(Protocol):
    """The interface of primitives that checks need."""

    @property
    def name(self) -> str: ...

    def expected_avals(self, avals: Sequence[ShapedArray]) -> Sequence[ShapedArray] | None: ...


_Check: TypeAlias = Callable[..., str | None]
"""A function of a primitive, what a rule returned, and the arguments of the rule; returns what a wrong rule should
have returned, in words."""


def add_check(cls: type[HasResultAvals], name: str, check: _Check) -> None:
    """Makes a rule of a class check its results.

    Args:
        cls: The class.
        name: The name of the rule, a method.
        check: Returns what was expected, in words, or None if the results are right.
    """
    rule = inspect.getattr_static(cls, name, None)
    if not isinstance(rule, FunctionType):
        return
    original: FunctionType | None = getattr(rule, "unchecked", None)
    if original is not None:
        if name in vars(cls):
            _refer_to_class(original, cls)
        return

    @functools.wraps(rule)
    def checked(self: HasResultAvals, *args: Any, **kwargs: Any) -> object:
        try:
            results = rule(self, *args, **kwargs)
        except TypeError:
            if name in RULE_PARAMETERS:
                check_call(rule, self.name, (self, *args), RULE_PARAMETERS[name])
            raise
        if getattr(type(self), name) is checked:  # otherwise an overriding method calls this one
            expected = check(self, results, *args, **kwargs)
            if expected is not None:
                defined = getattr(type(self), name.removesuffix("_with_avals"))
                raise wrong_results_error(defined, self.name, show_result(results), expected)
        return results

    checked.unchecked = rule  # type: ignore[attr-defined]  # marks the function
    setattr(cls, name, checked)


def _refer_to_class(rule: FunctionType, cls: type) -> None:
    """Makes `super()` in a method refer to `cls`, the copy of the class that attrs makes to add slots."""
    for variable, cell in zip(rule.__code__.co_freevars, rule.__closure__ or (), strict=True):
        if variable == "__class__":
            cell.cell_contents = cls


def wrong_results_error(rule: Callable[..., object], prim: str, returned: str, expected: str) -> TypeError:
    """Returns the error for a rule, of a primitive or of a handler for it, that returned something else than expected.

    Args:
        rule: The rule.
        prim: The name of the primitive.
        returned: What the rule returned, in words.
        expected: What it should have returned, in words.
    """
    return TypeError(f"{_show_rule(rule, prim)} at {here()} returned {returned}, expected {expected}")


def _show_rule(rule: Callable[..., object], prim: str) -> str:
    """Returns the name of a rule, its line unless it is a rule of tracefx, and its primitive as text."""
    code = getattr(inspect.unwrap(rule), "__code__", None)
    name = getattr(rule, "__qualname__", repr(rule))
    where = "" if code is None or is_internal_file(code.co_filename) else f" ({code.co_filename}:{code.co_firstlineno})"
    return f"the rule {name}{where} for {prim}"


RULE_PARAMETERS: Final[Mapping[str, str]] = {
    "impl": "*args",
    "abstract_eval": "*avals",
    "partial_eval": "recorder, unknown, args",
    "jvp": "primals, tangents",
    "transpose": "cts, *args",
    "batch": "axis, args, dims",
    "expand": "*args",
    "lower": "builder, *operands",
    "kernel": "*args",
}
"""The parameters of the rules of primitives after `self`; one with `*` stands for the operands."""
HANDLER_RULE_PARAMETERS: Final = "op, *operands"
"""The parameters of the rules of handlers after `self`."""


def check_definition(rule: FunctionType, prim: str, parameters: str) -> None:
    """Checks when a rule is defined that it accepts all arguments but the operands, whose number is not known.

    Args:
        rule: The rule.
        prim: The primitives that it is for, in words.
        parameters: The expected parameters after the first, as in `RULE_PARAMETERS`.

    Raises:
        TypeError: If it does not accept them.
    """
    signature, names = inspect.signature(rule), _named(parameters)
    try:
        (signature.bind_partial if "*" in parameters else signature.bind)(None, *names)
    except TypeError:
        raise _wrong_parameters_error(rule, prim, f"{rule.__name__}(self, {parameters})") from None


def check_call(rule: object, prim: str, args: Sequence[object], parameters: str) -> None:
    """Checks whether a rule accepts its arguments; called after the call of the rule has raised a TypeError.

    Args:
        rule: The rule; only functions are checked.
        prim: The name of the primitive.
        args: The arguments of the call.
        parameters: The expected parameters after the first, as in `RULE_PARAMETERS`.

    Raises:
        TypeError: If it does not accept them.
    """
    if isinstance(rule, FunctionType):
        try:
            inspect.signature(rule).bind(*args)
        except TypeError:
            count = len(args) - 1 - len(_named(parameters))
            expected = f"{rule.__name__}(self, {parameters}), for {count} operand{'s' * (count != 1)}"
            raise _wrong_parameters_error(rule, f"{prim} at {here()}", expected) from None


def _named(parameters: str) -> list[str]:
    return [name for name in parameters.split(", ") if not name.startswith("*")]


def _wrong_parameters_error(rule: Callable[..., object], prim: str, expected: str) -> TypeError:
    signature = inspect.signature(rule)
    plain = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
    shown = signature.replace(parameters=plain, return_annotation=signature.empty)
    return TypeError(f"{_show_rule(rule, prim)} has the parameters {shown}, expected {expected}")


def show_result(x: object) -> str:
    """Returns what a rule returned as text: avals instead of values."""
    if isinstance(x, list | tuple):
        text = ", ".join(map(show_result, x))
        return f"[{text}]" if isinstance(x, list) else f"({text},)" if len(x) == 1 else f"({text})"
    if isinstance(x, np.ndarray | np.generic):
        return f"a NumPy array {x.dtype}{list(x.shape)}"
    aval = getattr(x, "aval", None)
    if isinstance(aval, ShapedArray):
        return f"Zero({aval})" if isinstance(x, Zero) else str(aval)
    return str(x) if x is None or isinstance(x, int | ShapedArray) else f"{x!r} of type {type(x).__name__}"


def show_avals_or_any(avals: Sequence[ShapedArray | None] | None) -> str:
    """Returns the results that a rule should return, in words; None means any results."""
    return "[...]" if avals is None else f"[{', '.join(map(str, avals))}]"


def _value_aval(x: object) -> ShapedArray | None:
    """Returns the aval of a value or SSA value; None for any other object."""
    aval = getattr(x, "aval", None)
    return aval if isinstance(aval, ShapedArray) and not isinstance(x, Zero | UndefinedPrimal) else None


def _fits(x: object, aval: ShapedArray) -> bool:
    """Whether `x` is a value with the shape and dtype of `aval`."""
    actual = _value_aval(x)
    return actual is not None and actual.shape == aval.shape and actual.dtype == aval.dtype


def _all_fit(xs: object, avals: Sequence[ShapedArray] | None) -> bool:
    """Whether `xs` is a list of values with these avals, or of any values if they are None."""
    if not isinstance(xs, list | tuple):
        return False
    if avals is None:
        return all(_value_aval(x) is not None for x in xs)
    return len(xs) == len(avals) and all(map(_fits, xs, avals))


def _check_abstract_eval(prim: HasResultAvals, results: object, *avals: ShapedArray) -> str | None:
    if isinstance(results, list | tuple) and all(isinstance(aval, ShapedArray) for aval in results):
        return None
    return "a list of ShapedArray"


def _check_jvp(
    prim: HasResultAvals, results: object, primals: Sequence[Value], tangents: Sequence[Tangent]
) -> str | None:
    avals = prim.expected_avals(without_vma([x.aval for x in primals]))
    if isinstance(results, list | tuple) and len(results) == 2:
        outs, out_tangents = results
        if _all_fit(outs, avals) and isinstance(out_tangents, list | tuple) and len(out_tangents) == len(outs):
            tangent_avals = [out.aval.tangent() for out in outs]
            if all(isinstance(t, Zero) or _fits(t, a) for t, a in zip(out_tangents, tangent_avals, strict=True)):
                return None
    tangents_text = show_avals_or_any(None if avals is None else [aval.tangent() for aval in avals])
    return f"the results and their tangents, ({show_avals_or_any(avals)}, {tangents_text})"


def _check_transpose(
    prim: HasResultAvals, results: object, cts: Sequence[Tangent], *args: Value | UndefinedPrimal
) -> str | None:
    avals = [x.aval.tangent() if isinstance(x, UndefinedPrimal) else None for x in args]
    if (
        isinstance(results, list | tuple)
        and len(results) == len(avals)
        and all(
            ct is None if aval is None else isinstance(ct, Zero) or _fits(ct, aval)
            for ct, aval in zip(results, avals, strict=True)
        )
    ):
        return None
    return f"the list {show_avals_or_any(avals)}: a cotangent for each linear operand, None for each other one"


def _check_batch(
    prim: HasResultAvals, results: object, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
) -> str | None:
    unbatched = [x.aval if dim is None else x.aval.without_axis(dim) for x, dim in zip(args, dims, strict=True)]
    avals = prim.expected_avals(without_vma(unbatched))
    if isinstance(results, list | tuple) and len(results) == 2:
        outs, out_dims = results
        if _all_fit(outs, None) and isinstance(out_dims, list | tuple) and len(out_dims) == len(outs):
            shapes = [_unbatched_shape(out.aval, dim, axis) for out, dim in zip(outs, out_dims, strict=True)]
            dtypes = [out.aval.dtype for out in outs]
            if avals is None:
                if None not in shapes:
                    return None
            elif (shapes, dtypes) == ([aval.shape for aval in avals], [aval.dtype for aval in avals]):
                return None
    expected = show_avals_or_any(avals)
    return f"the results, {expected} with batch axes of size {axis.size}, and the position of each batch axis, or None"


def _unbatched_shape(aval: ShapedArray, dim: object, axis: MappedAxis) -> tuple[int, ...] | None:
    """Returns the shape without the batch axis; None if it is not at `dim`."""
    if dim is None:
        return aval.shape
    if not isinstance(dim, int) or not 0 <= dim < aval.ndim or aval.shape[dim] != axis.size:
        return None
    return aval.without_axis(dim).shape


def _check_expand(prim: HasResultAvals, results: object, *args: Value) -> str | None:
    avals = prim.expected_avals(without_vma([x.aval for x in args]))
    return None if _all_fit(results, avals) else f"the list {show_avals_or_any(avals)}"


def _check_lower(
    prim: HasResultAvals, results: object, builder: object, outs: Sequence[ShapedArray], operands: object
) -> str | None:
    return None if _all_fit(results, outs) else f"the list {show_avals_or_any(outs)}"


def _check_kernel(prim: HasResultAvals, result: object, *args: NDArray) -> str | None:
    """The check of an `Operation`, which converts the result of its kernel to the dtype of `abstract_eval`."""
    (aval,) = prim.expected_avals([ShapedArray(x.shape, x.dtype) for x in args]) or (None,)
    if aval is None or np.asarray(result).shape == aval.shape:
        return None
    return f"a NumPy array of shape {aval.shape}"


def _initialized(prim: HasResultAvals) -> None:
    """The default of `__attrs_post_init__`."""


def _check_fields(prim: HasResultAvals, result: object) -> None:
    """The check of `__attrs_post_init__`, which runs when the fields have been set: they must be hashable."""
    for each in attrs_fields(type(prim)):
        if each.eq:
            _check_field(prim.name, each.name, getattr(prim, each.name))


def _check_field(prim: str, name: str, value: object) -> None:
    try:
        hash(strict_key(value))
    except TypeError as error:
        part, source = _unhashable_part(value), current_provenance(4)  # the caller of the constructor
        if isinstance(part, Array | np.ndarray):
            remedy = "pass arrays as operands, bind(prim, x, array)"
        else:
            remedy = "use a tuple" if isinstance(part, list | set | dict) else "define __eq__ and __hash__"
        raise TypeError(
            f"the field {name!r} of the primitive {prim!r} is {value!r}{at_location(source)}, but fields must be "
            f"hashable, since programs are compared and cached by them, and {type(part).__name__} is not: {remedy}"
        ) from error


def _unhashable_part(value: object) -> object:
    """Returns the first part of a parameter that is not hashable."""
    if isinstance(value, tuple):
        for part in value:
            try:
                hash(part)
            except TypeError:
                return _unhashable_part(part)
    return value


def _new(cls: type[HasResultAvals], *args: object, **kwargs: object) -> HasResultAvals:
    """The `__new__` of user-defined primitives: checks the class, and ignores the parameters."""
    kind = cls.__name__
    if not hasattr(cls, "name"):
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()
        raise TypeError(
            f"the primitive class {kind} has no name: write `name = {name!r}` in the class. Only base classes, which "
            "have no instances, need none"
        )
    if "__dataclass_fields__" in vars(cls):
        raise TypeError(
            f"the primitive class {kind} is a dataclass, whose fields tracefx does not compare: decorate it with "
            "attrs.frozen(eq=False) instead"
        )
    initializer = next(base for base in cls.__mro__ if "__init__" in vars(base))
    if (args or kwargs) and initializer is not cls and not attrs_fields(cls) and "__attrs_attrs__" in vars(initializer):
        raise TypeError(
            f"the primitive class {kind} has no parameters: annotate them in the class (`n: int`), and decorate it "
            "with attrs.frozen(eq=False)"
        )
    return object.__new__(cls)


_CHECKS: Final[Mapping[str, _Check]] = {
    "abstract_eval": _check_abstract_eval,
    "jvp": _check_jvp,
    "transpose": _check_transpose,
    "batch": _check_batch,
    "expand": _check_expand,
    "lower_with_avals": _check_lower,
    "kernel": _check_kernel,
    "__attrs_post_init__": _check_fields,
}


def add_checks(cls: type[HasResultAvals], *, has_types: bool) -> None:
    """Makes the rules of a class of primitives check their results, and its constructor the parameters.

    Args:
        cls: The class.
        has_types: Whether it defines `abstract_eval`.
    """
    if not hasattr(cls, "__attrs_post_init__"):
        cls.__attrs_post_init__ = _initialized  # type: ignore[attr-defined]  # the constructor of attrs calls it
    if "__new__" not in vars(cls):
        cls.__new__ = staticmethod(_new)  # type: ignore[assignment]  # takes any arguments
    for name, parameters in RULE_PARAMETERS.items():
        rule = vars(cls).get(name)
        if isinstance(rule, FunctionType):
            check_definition(rule, getattr(cls, "name", cls.__name__), parameters)
    for name, check in _CHECKS.items():
        if has_types or check is not _check_abstract_eval:
            add_check(cls, name, check)
