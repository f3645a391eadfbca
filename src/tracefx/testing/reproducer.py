"""Evidence for violated laws: the smallest violating program, as a jaxpr and as Python code that runs."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from tracefx.core import ConcreteArray, Literal, Value, as_value, dtypes, to_numpy
from tracefx.core.jaxpr import HasSubjaxprs, Jaxpr
from tracefx.core.primitive import Primitive
from tracefx.errors import ParseError
from tracefx.programs import VOCABULARY, parse_jaxpr
from tracefx.settings import DISABLE_JIT, X64
from tracefx.testing.errors import LawError, Reproducer
from tracefx.testing.generated_programs import SOURCE_IMPORTS, SourceFunction
from tracefx.testing.shrinking import Candidate, shrink
from tracefx.testing.subjects import Subject, encode_numbers, promote_to_64_bits, staged
from tracefx.testing.tolerances import PROGRAM, Ulps

LIBRARY: Final = "tracefx.testing"


def find_reproducer(
    check: Callable[[Subject], None],
    call: str,
    subject: Subject,
    found: LawError,
    options: str = "",
    home: str = LIBRARY,
) -> Reproducer | None:
    """Finds a program that fails a check, as a jaxpr and as Python code.

    Args:
        check: raises LawError if a subject fails.
        call: the name of the checking function in the Python code.
        subject: the subject that failed.
        found: its error. The smallest program violates the same law in the same manner.
        options: keyword arguments of the call, as Python code.
        home: the module that `call` is imported from.

    Returns:
        The evidence; None if the function can't be traced.
    """
    try:
        jaxpr, consts = staged(subject.run, [a.aval for a in subject.args])
    except Exception:  # a function that can't be traced has no program
        return None
    if subject.source_function is not None:
        python = script(
            subject.source_function.source,
            call,
            [subject.source_function.name, *map(source_of, subject.args)],
            subject.ulps,
            options,
            home,
        )
        return Reproducer(f"the program:\n{indented_text(jaxpr)}", python)

    finite = _all_finite(subject.args)

    def breaks(candidate: Candidate) -> bool:
        if finite and not _all_finite(candidate.args):  # differences of NaN are NaN, whatever the program
            return False
        try:
            check(Subject("program", candidate.run, candidate.args, subject.ulps))
        except LawError as error:
            return error.is_like(found)
        except Exception:  # not the failure to reproduce
            return False
        return False

    smallest = shrink(Candidate(jaxpr, tuple(consts), subject.args), breaks)
    if smallest is None:  # derivatives are checked in 64 bits, where the program may differ
        wide = promote_to_64_bits(subject)
        smallest = shrink(Candidate(*staged(wide.run, [a.aval for a in wide.args]), wide.args), breaks)
    if smallest is None:
        return Reproducer(
            f"the function traces to this program:\n{indented_text(jaxpr)}\n"
            "which satisfies the law: the violation depends on Python code that inspects the arguments"
        )
    heading = "the smallest program found that violates it:"
    definition = definition_of("program", smallest.jaxpr, smallest.consts)
    if definition is None:
        return Reproducer(
            f"{heading}\n{indented_text(smallest.jaxpr)}\nwhich contains Python functions, so its text is incomplete"
        )
    python = script(definition, call, ["program", *map(source_of, smallest.args)], subject.ulps, options, home)
    return Reproducer(f"{heading}\n{indented_text(smallest.jaxpr)}", python)


def _all_finite(values: Sequence[Value]) -> bool:
    """Whether no float among the values is NaN or infinite."""
    return all(np.all(np.isfinite(to_numpy(x))) for x in values if dtypes.is_inexact(x.aval.dtype))


def indented_text(jaxpr: Jaxpr) -> str:
    """Returns the text of a program, indented."""
    return textwrap.indent(str(jaxpr), "  ")


# ------------------------------------------------------------------ Python code


_NAMES: Final = ("array", "Ulps", "COMPILED", "BATCHED", "FORWARD", "REVERSE")
"""The names of `tracefx.testing` that may occur in arguments."""


def script(definitions: str, call: str, args: Sequence[str], ulps: Ulps, options: str = "", home: str = LIBRARY) -> str:
    """Returns a Python script: imports, definitions, and the call of a check, under the current settings."""
    call_args = [*args, *([options] if options else []), *([f"ulps={ulps!r}"] if ulps != PROGRAM else [])]
    names = sorted(
        {
            *([call] if home == LIBRARY else []),
            *[name for name in _NAMES if any(re.search(rf"\b{name}\b", each) for each in call_args)],
        }
    )
    contexts = [f"fx.{name}()" for name, on in (("enable_x64", X64.value), ("disable_jit", DISABLE_JIT.value)) if on]
    text = " ".join([definitions, *call_args])
    modules = {line: line.split()[-1] for line in SOURCE_IMPORTS}
    imports = [line for line, name in modules.items() if re.search(rf"\b{name}\.", text) or (contexts and name == "fx")]
    if names:
        imports.append(f"from {LIBRARY} import {', '.join(names)}")
    if home != LIBRARY:
        imports.append(_import_line(home, call, "the law"))
    lines = [*imports, "", definitions, ""]
    if contexts:
        lines.append(f"with {', '.join(contexts)}:")
    lines.append(f"{'    ' if contexts else ''}{call}({', '.join(call_args)})")
    return "\n".join(lines)


def definition_of(name: str, jaxpr: Jaxpr, consts: Sequence[Value]) -> str | None:
    """Returns Python code that defines a function which evaluates a program; None if its text can't be parsed."""
    custom = custom_primitives(jaxpr)
    try:
        if parse_jaxpr(str(jaxpr), *custom) != jaxpr:
            return None
    except ParseError:
        return None
    imports = [_import_of_primitive(prim) for prim in custom]
    extra_args = "".join([f", {prim.__qualname__}" for prim in custom])
    const_sources = ", ".join(map(source_of, consts))
    return "\n".join(
        [
            *imports,
            f'{name}_jaxpr = fx.parse_jaxpr("""',
            str(jaxpr).replace("\\", "\\\\"),
            f'"""{extra_args})',
            "",
            f"def {name}(*xs):",
            f"    return fx.eval_jaxpr({name}_jaxpr, [{const_sources}], xs)",
        ]
    )


def _import_of_primitive(prim: type[Primitive]) -> str:
    """Returns the line that imports the class of a primitive."""
    return _import_line(prim.__module__, prim.__qualname__, f"the class of the primitive {prim.name!r}")


def _import_line(module: str, name: str, description: str) -> str:
    """Returns the line that imports a name, or a comment that describes it if it can't be imported."""
    if "." in name or module == "__main__":
        return f"# {name} of {module} is {description}"
    return f"from {module} import {name}"


def custom_primitives(jaxpr: Jaxpr) -> list[type[Primitive]]:
    """Returns the classes of a program's primitives that are not built in, one of each name."""
    return list(
        {prim.name: prim for prim in _primitive_classes(jaxpr) if VOCABULARY.get(prim.name) is not prim}.values()
    )


def _primitive_classes(jaxpr: Jaxpr) -> Iterator[type[Primitive]]:
    """Yields the classes of a program's primitives, including those of sub-jaxprs."""
    for eqn in jaxpr.eqns:
        yield type(eqn.prim)
        if isinstance(eqn.prim, HasSubjaxprs):
            for body in eqn.prim.jaxprs():
                yield from _primitive_classes(body)


def import_of(f: object) -> str | None:
    """Returns the line that imports a function, or its source if it has one; None if it can't be imported."""
    if isinstance(f, SourceFunction):
        return f.source
    module, name = getattr(f, "__module__", None), getattr(f, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or not name.isidentifier():
        return None
    return f"from {module} import {name}" if getattr(inspect.getmodule(f), name, None) is f else None


# ------------------------------------------------------------------ Python code of values

_MAX_PRINTED_ELEMENTS: Final = 64
"""Larger arrays are printed in an encoded form."""


def source_of(x: Any) -> str:
    """Returns Python code for a tree of arrays, in terms of `np` and of `array` of `tracefx.testing`.

    >>> source_of({"w": [np.float32([0.5, np.nan]), 1]})
    "{'w': [array([0.5, np.nan], 'float32'), 1]}"
    """
    match x:
        case None | bool() | int() | str():
            return repr(x)
        case dict():
            return "{" + ", ".join([f"{k!r}: {source_of(v)}" for k, v in x.items()]) + "}"
        case list():
            return f"[{', '.join(map(source_of, x))}]"
        case tuple() if hasattr(x, "_fields"):
            return f"{type(x).__name__}({', '.join(map(source_of, x))})"
        case tuple():
            return f"({', '.join(map(source_of, x))}{',' if len(x) == 1 else ''})"
        case ConcreteArray() | Literal() | np.ndarray() | np.generic() | float() | complex():
            return _array(x if isinstance(x, ConcreteArray | Literal) else as_value(x))
        case _:
            return repr(x)


def _array(x: Value) -> str:
    host, aval = to_numpy(x), x.aval
    if isinstance(x, Literal) and aval.weak_type:
        return _number(host.item())
    weak = ", weak_type=True" if aval.weak_type else ""
    numbers = _numbers(host)
    shape = f", shape={host.shape}" if numbers.startswith(("'", '"')) else ""
    return f"array({numbers}, {aval.dtype.name!r}{shape}{weak})"


def _numbers(host: dtypes.NDArray) -> str:
    if 0 in host.shape:
        return f"np.zeros({host.shape})"
    if host.size > 3 and np.all(host == 1):
        return f"np.ones({host.shape})"
    if host.size <= _MAX_PRINTED_ELEMENTS:
        return _nested(host.tolist())
    return repr(encode_numbers(host))


def _nested(numbers: Any) -> str:
    return f"[{', '.join(map(_nested, numbers))}]" if isinstance(numbers, list) else _number(numbers)


def _number(x: complex | int | bool) -> str:
    """Returns Python code for a number, with names for infinities and NaN."""
    if isinstance(x, complex):
        return f"complex({_number(x.real)}, {_number(x.imag)})"
    if isinstance(x, float) and not np.isfinite(x):
        return "np.nan" if np.isnan(x) else "np.inf" if x > 0 else "-np.inf"
    return repr(x)
