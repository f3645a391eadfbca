"""The command `tracefx`: writes pages about programs, and prints the version."""

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
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, final

from tracefx.core.jaxpr import ClosedJaxpr, Jaxpr
from tracefx.core.version import __version__
from tracefx.errors import ParseError
from tracefx.pictures import show
from tracefx.pictures.stages import STAGE_NAMES
from tracefx.text.parser import parse_jaxpr
from tracefx.transforms.shape_dtype_struct import ShapeDtypeStruct

_SHOW_DESCRIPTION: Final = """\
Write a page about the program of a function: its code beside the source, as a graph, with costs and memory.

The function is named as module:function or path/to/file.py:function; each of its arguments by its type, such as
f32[8,128], i32[], bool[3] or bf16[2,2]. Trees of types are written as in Python, and plain values stand for themselves:

  tracefx show model:loss "{'w': f32[784,10], 'b': f32[10]}" f32[32,784] i32[32] --steps all --open
  tracefx show examples/wave.py:step "(f32[64,64], f32[64,64])" 0.1 --grad -o step.html

(quotes keep the shell away from brackets).
"""


@final
class UsageError(Exception):
    """What was asked for can't be done; the message says why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, those of the process by default; the exit status."""
    parser = _parser()
    given = parser.parse_args(argv)
    if given.command is None:
        parser.print_help()
        return 0
    try:
        return _show(given)
    except UsageError as error:
        sys.stderr.write(f"tracefx show: {error}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tracefx", description="Look at programs of array computations.")
    parser.add_argument("--version", action="version", version=f"tracefx {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    asked = commands.add_parser(
        "show",
        help="write a page about the program of a function",
        description=_SHOW_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    asked.add_argument("target", metavar="module:function", help="what to show")
    asked.add_argument("types", nargs="*", metavar="type", help="the arguments' types, such as f32[8]")
    asked.add_argument("--grad", action="store_true", help="show the program of the gradient, too")
    asked.add_argument(
        "--steps",
        metavar="STEPS",
        help=f"what to show side by side, with commas between: {', '.join(STAGE_NAMES)}; or all",
    )
    asked.add_argument("--title", help="what to call the page, the function's name by default")
    asked.add_argument("-o", "--output", metavar="FILE", help="where to write; - is standard output [function.html]")
    asked.add_argument("--open", action="store_true", help="open the page in a browser")
    return parser


def _show(given: argparse.Namespace) -> int:
    subject, name = _load_target(given.target)
    args = [_parse_argument(text) for text in given.types]
    if callable(subject):
        _check_arguments(subject, name, args)
    elif isinstance(subject, Jaxpr | ClosedJaxpr):
        if args:
            raise UsageError(f"{given.target} is a program, which takes no types")
    else:
        raise UsageError(f"{given.target} is no function and no program: {subject!r}")
    page = show(subject, *args, steps=_steps(given), title=given.title)
    if given.output == "-":
        sys.stdout.write(page.html)
        return 0
    file = given.output or f"{name}.html"
    try:
        path = page.save(file)
    except OSError as error:
        raise UsageError(f"{file} can't be written: {error.strerror}") from None
    sys.stdout.write(f"{path}\n")
    if given.open:
        webbrowser.open(path.resolve().as_uri())
    return 0


def _steps(given: argparse.Namespace) -> list[str]:
    steps = given.steps.split(",") if given.steps else ["program"]
    if given.grad and "grad" not in steps and "all" not in steps:
        steps.insert(steps.index("program") + 1 if "program" in steps else 0, "grad")
    for step in steps:
        if step not in (*STAGE_NAMES, "all"):
            near = difflib.get_close_matches(step, STAGE_NAMES, 1)
            meant = f"; did you mean {near[0]!r}?" if near else "."
            raise UsageError(f"there is no step {step!r}{meant} There are {', '.join(STAGE_NAMES)}, and all.")
    return steps


# ------------------------------------------------------------------ what to show


def _load_target(target: str) -> tuple[Any, str]:
    """What `module:name` names, and its name."""
    where, colon, path = target.rpartition(":")
    if not colon or not where or not path:
        raise UsageError(f"{target!r} names no function: write module:function, or path/to/file.py:function")
    found: object = _import_module(where)
    for name in path.split("."):
        if not hasattr(found, name):
            public = [n for n in vars(found) if not n.startswith("_")] if hasattr(found, "__dict__") else []
            near = difflib.get_close_matches(name, public, 3)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            raise UsageError(f"{where} has no {name!r}{meant}")
        found = getattr(found, name)
    return found, path.rpartition(".")[2]


def _import_module(where: str) -> ModuleType:
    if where.endswith(".py"):
        file = Path(where)
        if not file.is_file():
            raise UsageError(f"there is no file {where}")
        name = f"shown_{file.stem}"  # a file may be called as a module that others import
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # which classes of it are looked up by
        sys.path.insert(0, str(file.parent))
        spec.loader.exec_module(module)
        return module
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{where}.".startswith(f"{error.name}."):
            raise  # it is there, and imports something that isn't
        raise UsageError(
            f"there is no module {where!r}, here or installed; a file is named by its path, x.py"
        ) from None


def _check_arguments(fun: Callable[..., Any], name: str, args: Sequence[object]) -> None:
    try:
        signature = inspect.signature(fun)
    except (TypeError, ValueError):  # it says nothing about its arguments
        return
    try:
        signature.bind(*args)
    except TypeError as error:
        count = f"{len(args)} type{'' if len(args) == 1 else 's'}"
        raise UsageError(f"{name}{signature} was given {count}: {error}") from None


# ------------------------------------------------------------------ types of arguments

_TYPE: Final = re.compile(r"(?:key<[a-z0-9]+>|[A-Za-z]\w*)\s*\[[^\]'\"{}():]*\]\*?")


def _parse_argument(text: str) -> Any:
    """The argument that a word of the command stands for: a tree of types and plain values.

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
            f"{text!r} is no type of an argument: write one such as f32[8,128], a tree of them such as "
            "\"(f32[3], {'b': i32[]})\", or a plain value such as 0.5"
        ) from None


def _parse_value(node: ast.expr, types: Sequence[ShapeDtypeStruct]) -> Any:
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
    try:
        (aval,) = parse_jaxpr(f"{{ lambda ; a:{text}. let in () }}", {}).in_avals
    except ParseError as error:
        problem = str(error).partition("\n")[0].partition(": ")[2]
        inside = "" if text == whole else f" in {whole!r}"
        raise UsageError(f"{text!r}{inside} is no type: {problem}") from None
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
