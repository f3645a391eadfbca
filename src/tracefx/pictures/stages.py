"""The stages of a program that a page shows: jaxpr, gradient, simplified jaxpr, StableHLO, compiled HLO."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, final

from attrs import evolve, frozen

from tracefx.core import DType
from tracefx.core.backend import BACKEND, LoweredProgram
from tracefx.core.dtypes import is_complex, is_inexact
from tracefx.core.jaxpr import ClosedJaxpr, Jaxpr
from tracefx.pictures.compiler_text import TextLine, hlo_lines, stablehlo_lines
from tracefx.pictures.descriptions import ProgramDescription, describe_program
from tracefx.rewriting.pass_pipeline import optimize
from tracefx.transforms.arguments import argument_names, fun_name, require_callable
from tracefx.transforms.gradients import grad
from tracefx.transforms.jit import BoundJitted, Jitted, jit
from tracefx.transforms.shape_dtype_struct import flatten_avals
from tracefx.transforms.stages import CompiledCall, LoweredCall, TracedCall

StageSpec: TypeAlias = str | Callable[..., Any]
STAGE_NAMES: Final = ("program", "grad", "simplified", "stablehlo", "compiled")


@final
@frozen(eq=False)
class ProgramStage:
    """One stage: a described program, or a text."""

    title: str
    about: str
    program: ProgramDescription | None
    text: tuple[TextLine, ...] = ()


@final
@frozen(eq=False)
class _StageInput:
    """The input of the next stage: a program, how to lower it, and the function that it comes from, if known."""

    program: Jaxpr | ClosedJaxpr
    name: str
    names: tuple[str, ...]
    lower: Callable[[], LoweredProgram]
    function: Callable[..., Any] | None


def build_stages(
    subject: object, args: Sequence[Any], kwargs: Mapping[str, Any], steps: Sequence[StageSpec]
) -> tuple[str, tuple[ProgramStage, ...]]:
    """Returns the name of the program and its stages."""
    if isinstance(subject, LoweredCall | CompiledCall):
        if args or kwargs or tuple(steps) != ("program",):
            raise TypeError(f"show: {subject!r} takes no arguments and steps; pass the function for these")
        if isinstance(subject, LoweredCall):
            return subject.trace.name, (_stablehlo(subject.as_text(debug_info=True)),)
        return subject.trace.name, (_compiled(subject.as_text()),)
    start = _subject(subject, args, kwargs)
    chosen = [step for each in steps for step in (_available_stages(start, args) if each == "all" else [each])]
    return start.name, tuple(_stages(start, args, kwargs, chosen))


def _available_stages(subject: _StageInput, args: Sequence[Any]) -> Sequence[StageSpec]:
    """Returns all stages; the gradient only for a function of real arguments with a real scalar result."""
    out_avals = subject.program.out_avals
    real = all(is_differentiable(aval.dtype) for aval in flatten_avals(args[:1], "show: arguments")[0])
    has_gradient = subject.function is not None and args and real and len(out_avals) == 1 and not out_avals[0].shape
    return (
        STAGE_NAMES
        if has_gradient and is_differentiable(out_avals[0].dtype)
        else [s for s in STAGE_NAMES if s != "grad"]
    )


def is_differentiable(dtype: DType) -> bool:
    """Whether gradients exist for values of this dtype: real floats."""
    return is_inexact(dtype) and not is_complex(dtype)


def _stages(
    subject: _StageInput, args: Sequence[Any], kwargs: Mapping[str, Any], steps: Sequence[StageSpec]
) -> Iterator[ProgramStage]:
    for step in steps:
        if step == "program":
            yield ProgramStage(subject.name, "as traced", describe_program(subject.program, subject.names))
        elif step == "simplified":
            subject = evolve(subject, program=_optimized(subject.program))
            about = "after tracefx.rewriting.optimize"
            yield ProgramStage("simplified", about, describe_program(subject.program, subject.names))
        elif step == "stablehlo":
            yield _stablehlo(subject.lower().text(True))
        elif step == "compiled":
            yield _compiled(subject.lower().compile({}).text())
        elif step == "grad" or callable(step):
            transform = grad if step == "grad" else step
            assert callable(transform)
            if subject.function is None:
                raise TypeError(
                    f"show: the step {_stage_title(step)!r} transforms functions, but what is shown is a program; "
                    "pass the function and its arguments"
                )
            subject = _of_function(transform(subject.function), args, kwargs)
            title = _stage_title(step)
            yield ProgramStage(title, f"the program of {title}", describe_program(subject.program, subject.names))
        else:
            known = ", ".join(map(repr, STAGE_NAMES))
            raise ValueError(f"show: there is no step {step!r}; there are {known}, and transformations like fx.vmap")


def _stablehlo(text: str) -> ProgramStage:
    return ProgramStage("StableHLO", "input of XLA", None, stablehlo_lines(text))


def _compiled(text: str) -> ProgramStage:
    return ProgramStage("compiled", "output of XLA", None, hlo_lines(text))


def _optimized(program: Jaxpr | ClosedJaxpr) -> Jaxpr | ClosedJaxpr:
    if isinstance(program, ClosedJaxpr):  # two cases for type checkers
        return optimize(program)
    return optimize(program)


def _stage_title(step: StageSpec) -> str:
    if isinstance(step, str):
        return step
    function = step.func if isinstance(step, functools.partial) else step
    return getattr(function, "__name__", None) or getattr(function, "title", None) or type(function).__name__


def _subject(subject: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _StageInput:
    if isinstance(subject, Jaxpr | ClosedJaxpr | TracedCall):
        if args or kwargs:
            raise TypeError(f"show: a program takes no arguments, got {len(args) + len(kwargs)} in addition")
        return _of_program(subject.jaxpr if isinstance(subject, TracedCall) else subject, subject)
    if not callable(subject):
        raise TypeError(
            f"show takes a function with arguments or a program, as make_jaxpr gives, got {subject!r} of type "
            f"{type(subject).__name__}"
        )
    return _of_function(subject, args, kwargs)


def _of_program(program: Jaxpr | ClosedJaxpr, subject: object) -> _StageInput:
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    name = subject.trace.name if isinstance(subject, TracedCall) else "program"
    return _StageInput(program, name, (), lambda: BACKEND.value.lower(jaxpr.closed(), name, (), False), None)


def _of_function(fun: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> _StageInput:
    require_callable("show", fun)
    jitted: Any = fun if isinstance(fun, Jitted | BoundJitted) else jit(fun)
    call: TracedCall[..., Any] = jitted.trace(*args, **kwargs)
    traced = call.trace
    leaf_args, leaf_kwargs = call.in_tree.unflatten(range(call.in_tree.num_leaves))
    names: Sequence[str] = ()
    if len(leaf_args) == len(args):  # no argument is static
        phrases = argument_names(fun, fun_name(fun), leaf_args, leaf_kwargs, range(len(args)))
        names = [_argument_in_quotes(phrase) for phrase in phrases]
    lower = functools.partial(BACKEND.value.lower, traced.jaxpr, traced.name, call.donated, call.keep_unused)
    return _StageInput(call.jaxpr, traced.name, tuple(names), lower, fun)


def _argument_in_quotes(phrase: str) -> str:
    """Extracts the argument's name, which messages put between backquotes."""
    match = re.search(r"`(.*)`", phrase)
    return "" if match is None else match[1]
