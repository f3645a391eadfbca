"""The command `tracefx`, which writes HTML pages about programs and prints the version."""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, final

from tracefx.core.jaxpr import ClosedJaxpr, Jaxpr
from tracefx.core.version import __version__
from tracefx.dimensions.symbolic_dimensions import has_symbolic_dims
from tracefx.errors import ParseError
from tracefx.pictures import show
from tracefx.pictures.stages import STAGE_NAMES
from tracefx.settings import TRACEBACK_FILTERING
from tracefx.source_location import is_internal_file
from tracefx.text.parser import parse_jaxpr
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct

_SHOW_DESCRIPTION: Final = """\
Write a page about the program of a function: its equations beside the source, as a graph, with costs and memory.

The function is given as module:function or path/to/file.py:function, and each of its arguments by its type, such as
f32[8,128], i32[], bool[3] or bf16[2,2]. Trees of types are written as in Python; plain values are passed unchanged:

  tracefx show model:loss "{'w': f32[784,10], 'b': f32[10]}" f32[32,784] i32[32] --steps all --open
  tracefx show examples/wave.py:step "(f32[64,64], f32[64,64])" 0.1 --grad -o step.html

(quotes keep the shell from interpreting brackets).
"""


@final
class UsageError(Exception):
    """The command cannot do what was requested; the message gives the reason."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        argv: The arguments. None, the default, means those of the process.

    Returns:
        The exit status: 0, or 2 if the command cannot do what was requested.
    """
    parser = _parser()
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        return _show(options)
    except UsageError as error:
        sys.stderr.write(f"tracefx show: {error}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tracefx", description="Look at programs of array computations.")
    parser.add_argument("--version", action="version", version=f"tracefx {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    show_parser = commands.add_parser(
        "show",
        help="write a page about the program of a function",
        description=_SHOW_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    show_parser.add_argument("target", metavar="module:function", help="the function or program to show")
    show_parser.add_argument("types", nargs="*", metavar="type", help="the arguments' types, such as f32[8]")
    show_parser.add_argument("--grad", action="store_true", help="also show the program of the gradient")
    show_parser.add_argument(
        "--steps",
        metavar="STEPS",
        help=f"the stages to show side by side, separated by commas: {', '.join(STAGE_NAMES)}; or all",
    )
    show_parser.add_argument("--title", help="the title of the page [the name of the function]")
    show_parser.add_argument(
        "-o", "--output", metavar="FILE", help="the file to write; - is standard output [function.html]"
    )
    show_parser.add_argument("--open", action="store_true", help="open the page in a browser")
    return parser


def _show(options: argparse.Namespace) -> int:
    """Runs `tracefx show`."""
    subject, name = _load_target(options.target)
    args = [_parse_argument(text) for text in options.types]
    if callable(subject):
        _check_arguments(subject, name, args)
    elif isinstance(subject, Jaxpr | ClosedJaxpr):
        if args:
            raise UsageError(f"{options.target} is a program: pass no types for it")
    else:
        raise UsageError(f"{options.target} is neither a function nor a program: {subject!r}")
    steps = _steps(options)
    try:
        page = show(subject, *args, steps=steps, title=options.title)
    except Exception as error:
        if TRACEBACK_FILTERING.value == "off":
            raise
        message = "".join(traceback.format_exception_only(error)).rstrip()
        raise UsageError(f"{options.target} raises an error{_location(error)}\n{message}") from None
    if options.output == "-":
        sys.stdout.write(page.html)
        return 0
    file = options.output or f"{name}.html"
    try:
        path = page.save(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None
    sys.stdout.write(f"{path}\n")
    if options.open:
        webbrowser.open(path.resolve().as_uri())
    return 0


def _location(error: Exception) -> str:
    """Returns the innermost line of the user's code in the traceback of an error, as ` at file:line (function)`."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not is_internal_file(f.filename)]
    return f" at {frames[-1].filename}:{frames[-1].lineno} ({frames[-1].name})" if frames else ""


def _steps(options: argparse.Namespace) -> list[str]:
    """Returns the names of the stages to show."""
    steps = options.steps.split(",") if options.steps else ["program"]
    if options.grad and "grad" not in steps and "all" not in steps:
        steps.insert(steps.index("program") + 1 if "program" in steps else 0, "grad")
    for step in steps:
        if step not in (*STAGE_NAMES, "all"):
            similar = difflib.get_close_matches(step, STAGE_NAMES, 1)
            suggestion = f"; did you mean {similar[0]!r}?" if similar else "."
            raise UsageError(f"there is no step {step!r}{suggestion} There are {', '.join(STAGE_NAMES)}, and all.")
    return steps


# ------------------------------------------------------------------ the target


def _load_target(target: str) -> tuple[Any, str]:
    """Returns the object that `module:name` refers to, and its name."""
    where, colon, path = target.rpartition(":")
    if not colon or not where or not path:
        raise UsageError(
            f"{target!r} is not the name of a function: write module:function, or path/to/file.py:function"
        )
    target_object: object = _import_module(where)
    for name in path.split("."):
        if not hasattr(target_object, name):
            public = (
                [n for n in vars(target_object) if not n.startswith("_")] if hasattr(target_object, "__dict__") else []
            )
            similar = difflib.get_close_matches(name, public, 3)
            suggestion = f"; did you mean {' or '.join(similar)}?" if similar else ""
            raise UsageError(f"{where} has no {name!r}{suggestion}")
        target_object = getattr(target_object, name)
    return target_object, path.rpartition(".")[2]


def _import_module(where: str) -> ModuleType:
    if where.endswith(".py"):
        file = Path(where)
        if not file.is_file():
            raise UsageError(f"there is no file {where}")
        name = f"shown_{file.stem}"  # the file may have the name of another module
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # where its classes are looked up
        sys.path.insert(0, str(file.parent))
        spec.loader.exec_module(module)
        return module
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{where}.".startswith(f"{error.name}."):
            raise  # the module exists, but not one that it imports
        raise UsageError(
            f"there is no module {where!r}, here or installed; a file is named by its path, x.py"
        ) from None


def _check_arguments(fun: Callable[..., Any], name: str, args: Sequence[object]) -> None:
    """Raises UsageError unless the function can be called with these arguments."""
    try:
        signature = inspect.signature(fun)
    except (TypeError, ValueError):  # no signature
        return
    try:
        signature.bind(*args)
    except TypeError as error:
        count = f"{len(args)} type{'' if len(args) == 1 else 's'}"
        raise UsageError(f"{name}{signature} was given {count}: {error}") from None


# ------------------------------------------------------------------ types of arguments

_TYPE: Final = re.compile(r"(?:key<[a-z0-9]+>|[A-Za-z]\w*)\s*\[[^\]'\"{}():]*\]\*?")


def _parse_argument(text: str) -> Any:
    """Parses a command-line argument: a pytree of types and plain values.

    >>> _parse_argument("{'w': f32[2,3], 'scale': 0.5}")
    {'w': ShapeDtypeStruct(shape=(2, 3), dtype=float32), 'scale': 0.5}
    """
    types: list[ShapeDtypeStruct] = []

    def placed(match: re.Match[str]) -> str:
        types.append(_parse_type(match.group(), text))
        return f"type_{len(types) - 1}_"

    try:
        tree = ast.parse(_TYPE.sub(placed, text).strip(), mode="eval").body
        return _parse_value(tree, types)
    except (SyntaxError, ValueError):
        raise UsageError(
            f"{text!r} is not the type of an argument: write one such as f32[8,128], a tree of them such as "
            "\"(f32[3], {'b': i32[]})\", or a plain value such as 0.5"
        ) from None


def _parse_value(node: ast.expr, types: Sequence[ShapeDtypeStruct]) -> Any:
    """Evaluates a literal expression in which names refer to `types`."""
    match node:
        case ast.Name(id=name) if name.startswith("type_"):
            return types[int(name.split("_")[1])]
        case ast.Tuple(elts=parts):
            return tuple([_parse_value(part, types) for part in parts])
        case ast.List(elts=parts):
            return [_parse_value(part, types) for part in parts]
        case ast.Dict(keys=keys, values=values):
            return {
                ast.literal_eval(key): _parse_value(value, types)
                for key, value in zip(keys, values, strict=True)
                if key
            }
        case _:
            return ast.literal_eval(node)


def _parse_type(text: str, whole: str) -> ShapeDtypeStruct:
    """Parses a type such as `f32[2,3]`; `whole` is the entire argument, for messages."""
    inside = "" if text == whole else f" in {whole!r}"
    try:
        (aval,) = parse_jaxpr(f"{{ lambda ; a:{text}. let in () }}", {}).in_avals
    except ParseError as error:
        problem = str(error).partition("\n")[0].partition(": ")[2]
        raise UsageError(f"{text!r}{inside} is not a type: {problem}") from None
    if has_symbolic_dims(aval.shape):
        raise UsageError(f"{text!r}{inside} is not the type of an argument: its sizes must be integers")
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
