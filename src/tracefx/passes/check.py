"""The type checker of jaxprs: variables are bound before use, and avals agree with `abstract_eval`."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from typing import Final, NoReturn, final

from tracefx.bounded_cache import memoize_on_object
from tracefx.core import Literal, ShapedArray, accepts, dtypes
from tracefx.core.effects import Effect
from tracefx.core.jaxpr import Atom, ClosedJaxpr, Eqn, HasSubjaxprs, Jaxpr, Var
from tracefx.errors import JaxprTypeError
from tracefx.passes.varying import infer_types
from tracefx.source_location import LazySourceLocation, SourceLocation
from tracefx.text.printer import format_eqn, variable_name

_CONTEXT_EQNS: Final = 2


def check_jaxpr(jaxpr: Jaxpr | ClosedJaxpr) -> None:
    """Raises JaxprTypeError unless a jaxpr is well formed.

    Well formed means: variables are numbered 0, 1, ... without gaps, bound exactly once, before their uses, and have
    one aval; the outputs of an equation have the avals that `abstract_eval` returns for its operands; literals are
    scalars of their dtype; sub-jaxprs are well formed, have no constvars, and no observable effects that their
    primitive does not declare. The message shows the equation with its neighbours and the user's line. The check takes
    linear time, and its result is cached per jaxpr object, however many equations share it.

    Args:
        jaxpr: The program. For a `ClosedJaxpr` the avals of the constants are checked too.

    Raises:
        JaxprTypeError: If it is not well formed.

    >>> import numpy as np
    >>> x = Var(0, ShapedArray((2,), np.dtype("float32")))
    >>> check_jaxpr(Jaxpr((), (x,), (), (x,)))
    >>> check_jaxpr(Jaxpr((), (), (), (x,)))
    Traceback (most recent call last):
    ...
    tracefx.errors.JaxprTypeError: output 0: variable a is used here but bound nowhere before
    """
    if isinstance(jaxpr, Jaxpr):
        _check(jaxpr)
        return
    check_jaxpr(jaxpr.jaxpr)
    expected = [v.aval for v in jaxpr.jaxpr.constvars]
    actual = [c.aval for c in jaxpr.consts]
    if expected != actual:
        raise JaxprTypeError(f"the program's constants have the types {expected}, it was given {actual}")


@memoize_on_object
def _check(jaxpr: Jaxpr) -> None:
    _Check(jaxpr).run()


@final
class _Check:
    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.env: list[ShapedArray | None] = []
        self.at: int | None = None
        """The index of the equation being checked."""

    def run(self) -> bool:
        jaxpr = self.jaxpr
        binders = len(jaxpr.constvars) + len(jaxpr.invars) + sum([len(e.outs) for e in jaxpr.eqns])
        self.env = [None] * binders
        for v in jaxpr.constvars:
            self.define(v, "a constant")
        for v in jaxpr.invars:
            self.define(v, "an input")
        for i, eqn in enumerate(jaxpr.eqns):
            self.at = i
            self.equation(eqn)
        self.at = None
        for i, x in enumerate(jaxpr.outs):
            self.use(x, f"output {i}: ")
        return True

    # -------------------------------------------------------------- atoms

    def define(self, v: Var, what: str) -> None:
        name = variable_name(v.index)
        if not 0 <= v.index < len(self.env):
            self.fail(
                f"{what} is variable {name}, number {v.index}, in a program of {len(self.env)} variables: "
                f"they are numbered from 0 to {len(self.env) - 1}"
            )
        if self.env[v.index] is not None:
            self.fail(f"{what} binds variable {name} (number {v.index}), which is bound already")
        self.env[v.index] = v.aval

    def use(self, x: Atom, where: str) -> None:
        if isinstance(x, Literal):
            problem = _literal_problem(x)
            if problem is not None:
                self.fail(where + problem)
            return
        name = variable_name(x.index)
        bound = self.env[x.index] if 0 <= x.index < len(self.env) else None
        if bound is None:
            self.fail(f"{where}variable {name} is used here but bound nowhere before")
        if bound != x.aval:
            self.fail(f"{where}variable {name} is used as {x.aval!r}, but it was bound as {bound!r}")

    # -------------------------------------------------------------- equations

    def equation(self, eqn: Eqn) -> None:
        for i, x in enumerate(eqn.inputs):
            self.use(x, f"operand {i}: ")
        prim = eqn.prim
        if isinstance(prim, HasSubjaxprs):
            self.bodies(prim.name, prim.jaxprs(), prim.effects)
        try:
            expected = infer_types(prim, [x.aval for x in eqn.inputs])
        except Exception as error:  # a rule may fail in any way on operands it was not written for
            self.fail(f"{prim.name} doesn't take these operands: {type(error).__name__}: {error}", error)
        if len(expected) != len(eqn.outs):
            self.fail(f"{prim.name} has {len(expected)} outputs, but {len(eqn.outs)} variables take them")
        for v, aval in zip(eqn.outs, expected, strict=True):
            if not accepts((v.aval,), (aval,)):
                self.fail(f"{prim.name} gives {aval!r}, but variable {variable_name(v.index)} is {v.aval!r}")
        for v in eqn.outs:
            self.define(v, f"an output of {prim.name}")

    def bodies(self, name: str, bodies: Sequence[Jaxpr], effects: frozenset[Effect]) -> None:
        for i, body in enumerate(bodies):
            which = f"the body of {name}" if len(bodies) == 1 else f"body {i} of {name}"
            if body.constvars:
                self.fail(f"{which} has {len(body.constvars)} constants of its own; they must be inputs")
            try:
                check_jaxpr(body)
            except JaxprTypeError as error:
                message = str(error).replace("\n", "\n    ")
                self.fail(f"in {which}: {message}", error)
            hidden = [e for e in body.effects if e.observable and e not in effects]
            if hidden:
                shown = ", ".join(sorted(map(str, hidden)))
                self.fail(f"{which} has effects that {name} itself doesn't declare: {shown}")

    # -------------------------------------------------------------- errors

    def fail(self, problem: str, cause: Exception | None = None) -> NoReturn:
        if self.at is None:
            raise JaxprTypeError(problem) from cause
        eqns, i = self.jaxpr.eqns, self.at
        first, last = max(0, i - _CONTEXT_EQNS), min(len(eqns), i + _CONTEXT_EQNS + 1)
        lines = [f"{'-->' if k == i else '   '} {format_eqn(eqns[k])}" for k in range(first, last)]
        if first > 0:
            lines.insert(0, "    ...")
        if last < len(eqns):
            lines.append("    ...")
        message = "\n".join([f"equation {i} of {len(eqns)}: {problem}", *lines, *_user_line(eqns[i])])
        raise JaxprTypeError(message) from cause


def _user_line(eqn: Eqn) -> list[str]:
    """Returns a line with the source location of an equation and the code there; no line if it is unknown."""
    source = eqn.source
    if source is None:
        return []
    location: SourceLocation = source.resolve() if isinstance(source, LazySourceLocation) else source
    code = linecache.getline(location.file, location.line).strip()
    return [f"written at {location}" + (f": {code}" if code else "")]


def _literal_problem(x: Literal) -> str | None:
    """Returns what is wrong with a literal; `None` if nothing is."""
    aval, shown = x.aval, f"literal {x.val!r}"
    if aval.shape != ():
        return f"{shown} has the type {aval!r}, but literals are scalars"
    if type(x.val) not in (bool, int, float, complex):
        return f"{shown} is a {type(x.val).__name__}; literals hold Python's bool, int, float or complex"
    if dtypes.is_bool(aval.dtype) or dtypes.is_integer(aval.dtype):
        stored = int(x.numpy().astype(object).item())
        if stored != x.val:
            return f"{shown} doesn't fit {aval!r}, which stores it as {stored}"
    return None
