"""The mistakes on the page `docs/errors.md`: programs that raise, with the messages of tracefx and of JAX.

The page is the record: to add a mistake, write a heading and a program there and run `python -m tests.mistakes`, which
writes the messages.
"""

from __future__ import annotations

import os
import re
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final, final

import jax
import jax.numpy as jnp
from attrs import frozen

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import attempt
from tests.compiling import xla_flag
from tests.conftest import DEVICES

PAGE: Final = Path(__file__).parent.parent / "docs" / "errors.md"
JAX_VERSION: Final = re.compile(r"(?<=with JAX )\d+\.\d+\.\d+")
"""Matches the version of JAX whose messages are on the page."""

_MISTAKE: Final = re.compile(
    r"^### (?P<title>[^\n]*)\n\n```py\n(?P<program>.*?)^```\n(?P<messages>.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL
)
_JAX_HEADING: Final = "\nJAX:\n\n"
_NO_ERROR: Final = "raises nothing"
_WIDTH: Final = 116
_MAX_LINES: Final = 6


@final
@frozen
class Mistake:
    """A program that raises, with the messages as the page shows them."""

    title: str
    program: str
    ours: str
    jax: str

    def error(self) -> Exception | None:
        """Runs the program with tracefx. Returns the error that it raises, or None."""
        return _run(self.program, fx, fnp)

    def jax_error(self) -> Exception | None:
        """Runs the program with JAX. Returns the error that it raises, or None."""
        return _run(self.program, jax, jnp)


def mistakes(page: str) -> list[Mistake]:
    """Returns the mistakes on a page."""
    found = []
    for match in _MISTAKE.finditer(page):
        ours, _, theirs = match["messages"].partition(_JAX_HEADING)
        ours = ours.removeprefix("\ntracefx:\n\n")
        found.append(Mistake(match["title"], match["program"], ours.strip("\n"), theirs.strip("\n")))
    return found


def rewritten(page: str) -> str:
    """Returns the page with the messages of this version of JAX, and of tracefx."""

    def section(match: re.Match[str]) -> str:
        (mistake,) = mistakes(match[0])
        ours, theirs = block(message(mistake.error())), block(shortened(message(mistake.jax_error())))
        program = f"### {mistake.title}\n\n```py\n{mistake.program}```\n"
        return f"{program}\ntracefx:\n\n{ours}\n{_JAX_HEADING}{theirs}\n\n"

    page = _MISTAKE.sub(section, page)
    return JAX_VERSION.sub(jax.__version__, page).rstrip("\n") + "\n"


def _run(program: str, library: ModuleType, numpy: ModuleType) -> Exception | None:
    run: Callable[..., object] = exec
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(program, "example.py", "exec", dont_inherit=True)
        outcome = attempt(run, code, {"fx": library, "fnp": numpy, "__name__": "example"})
    return outcome if isinstance(outcome, Exception) else None


def message(error: Exception | None) -> str:
    """Returns the class and the message of an error."""
    return _NO_ERROR if error is None else f"{type(error).__name__}: {error}"


def shortened(text: str) -> str:
    """Returns the first lines of a message of JAX, without its links and the addresses of objects."""
    text = re.sub(r"0x[0-9a-f]+|\b\d{9,}\b", "...", text)
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith(("See https://", "-----"))]
    return "\n".join(lines[:_MAX_LINES] + ["..."] * (len(lines) > _MAX_LINES))


def block(text: str) -> str:
    """Returns a message as the page shows it: a block with long lines wrapped."""
    lines = [
        textwrap.fill(line, _WIDTH, subsequent_indent=" " * (len(line) - len(line.lstrip())), break_on_hyphens=False)
        for line in text.split("\n")
    ]
    return "\n".join(["```text", *[line.rstrip() for line in lines], "```"])


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = xla_flag("xla_force_host_platform_device_count", DEVICES)
    os.environ["JAX_PLATFORMS"] = os.environ["TRACEFX_PLATFORM"] = "cpu"
    PAGE.write_text(rewritten(PAGE.read_text()))
